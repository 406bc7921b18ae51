//! Parser of numbers in logs. Knows no unit except seconds.

/// Leading digits. `None`: there are none, or too many.
pub(crate) fn parse_integer(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit());
    let mut value: Option<u64> = None;
    for digit in digits {
        value = Some(value.unwrap_or(0).checked_mul(10)?.checked_add(u64::from(digit - b'0'))?);
    }
    value
}

/// `12.345678` seconds in ns; whatever follows the number is ignored.
pub(crate) fn parse_seconds(text: &[u8]) -> Option<u64> {
    let whole = parse_integer(text)?.checked_mul(1_000_000_000)?;
    let rest = &text[text.iter().take_while(|b| b.is_ascii_digit()).count()..];
    let fraction = rest.strip_prefix(b".").map_or(0, parse_fraction_ns);
    whole.checked_add(fraction)
}

/// Digits after a decimal point, as ns.
pub(super) fn parse_fraction_ns(digits: &[u8]) -> u64 {
    let mut value = 0;
    let mut unit = 100_000_000;
    for digit in digits.iter().take(9).take_while(|b| b.is_ascii_digit()) {
        value += u64::from(digit - b'0') * unit;
        unit /= 10;
    }
    value
}
