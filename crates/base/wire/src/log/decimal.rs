//! Parser of numbers in logs. Knows no unit except seconds.

/// As many digits fit into 64 bits, whatever they are.
const SAFE_DIGITS: usize = 19;

/// Leading digits. `None`: there are none, or too many.
pub(crate) fn parse_integer(text: &[u8]) -> Option<u64> {
    split_integer(text).map(|(value, _)| value)
}

/// The same, and what follows the digits.
#[inline]
fn split_integer(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    let mut count = 0;
    while let Some(digit) = text.get(count).and_then(|byte| as_digit(*byte)) {
        value = match count < SAFE_DIGITS {
            true => value * 10 + digit,
            false => value.checked_mul(10)?.checked_add(digit)?,
        };
        count += 1;
    }
    (count > 0).then(|| (value, &text[count..]))
}

#[inline]
fn as_digit(byte: u8) -> Option<u64> {
    let digit = byte.wrapping_sub(b'0');
    (digit < 10).then_some(u64::from(digit))
}

/// `12.345678` seconds in ns; whatever follows the number is ignored.
pub(crate) fn parse_seconds(text: &[u8]) -> Option<u64> {
    let (whole, rest) = split_integer(text)?;
    let fraction = rest.strip_prefix(b".").map_or(0, parse_fraction_ns);
    whole.checked_mul(1_000_000_000)?.checked_add(fraction)
}

/// Digits after a decimal point, as ns.
pub(super) fn parse_fraction_ns(digits: &[u8]) -> u64 {
    const UNITS: [u64; 10] =
        [1_000_000_000, 100_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10, 1];
    let mut value = 0;
    let mut count = 0;
    while let Some(digit) = digits.get(count).filter(|_| count < 9).and_then(|byte| as_digit(*byte)) {
        value = value * 10 + digit;
        count += 1;
    }
    value * UNITS[count]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_where_their_digits_do_and_are_none_where_they_do_not_fit() {
        assert_eq!([parse_integer(b""), parse_integer(b"x1"), parse_integer(b"-1")], [None; 3]);
        assert_eq!([parse_integer(b"0"), parse_integer(b"0042;")], [Some(0), Some(42)]);
        assert_eq!(parse_integer(b"9999999999999999999 "), Some(9_999_999_999_999_999_999));
        assert_eq!(parse_integer(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_integer(b"18446744073709551616"), None);
        assert_eq!(parse_integer(&[b'0'; 40]), Some(0));
    }

    #[test]
    fn seconds_have_nine_decimals_and_what_follows_does_not_count() {
        for (text, ns) in [
            ("2.000001  Lock", 2_000_001_000),
            ("0", 0),
            ("3.", 3_000_000_000),
            ("1.1234567899", 1_123_456_789),
            ("18446744073.709551615", u64::MAX),
        ] {
            assert_eq!(parse_seconds(text.as_bytes()), Some(ns), "{text}");
        }
        assert_eq!(["", ".5", "18446744073.709551616"].map(|text| parse_seconds(text.as_bytes())), [None; 3]);
    }
}
