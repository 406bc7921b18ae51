//! Variable-length integers: seven bits per byte, lowest first. Never reads past the end.

/// Numbers of one record, put together before they reach the block: one copy instead of a test for room
/// with each byte.
pub(super) struct VarintWriter {
    bytes: [u8; VarintWriter::MAX],
    len: usize,
}

impl VarintWriter {
    /// All that an event may have come to less: three dozen numbers, most of them of at most five bytes.
    const MAX: usize = 256;

    pub fn new() -> Self {
        Self { bytes: [0; Self::MAX], len: 0 }
    }

    #[inline]
    pub fn put(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes[self.len] = number as u8 | 0x80;
            self.len += 1;
            number >>= 7;
        }
        self.bytes[self.len] = number as u8;
        self.len += 1;
    }

    /// The way from one number to another, short whichever is larger.
    #[inline]
    pub fn put_delta(&mut self, from: u64, to: u64) {
        let step = to.wrapping_sub(from) as i64;
        self.put((step << 1 ^ step >> 63) as u64);
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The unread rest of a block.
#[derive(Clone, Copy)]
pub(super) struct VarintReader<'a>(pub &'a [u8]);

impl<'a> VarintReader<'a> {
    /// `None`: the block ends within it, or it is longer than any number.
    #[inline]
    pub fn number(&mut self) -> Option<u64> {
        let (&first, rest) = self.0.split_first()?;
        if first < 0x80 {
            self.0 = rest;
            return Some(u64::from(first));
        }
        let mut number = u64::from(first & 0x7f);
        for (at, &byte) in rest.iter().enumerate().take(9) {
            let part = u64::from(byte & 0x7f);
            let shift = 7 * (at as u32 + 1);
            if shift == 63 && part > 1 {
                return None;
            }
            number |= part << shift;
            if byte < 0x80 {
                self.0 = &rest[at + 1..];
                return Some(number);
            }
        }
        None
    }

    /// See [`VarintWriter::put_delta`].
    #[inline]
    pub fn delta(&mut self, from: u64) -> Option<u64> {
        let number = self.number()?;
        let step = (number >> 1) as i64 ^ -((number & 1) as i64);
        Some(from.wrapping_add(step as u64))
    }

    /// A number of a narrower kind.
    #[inline]
    pub fn number_as<N: TryFrom<u64>>(&mut self) -> Option<N> {
        N::try_from(self.number()?).ok()
    }

    #[inline]
    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_steps_come_back_in_few_bytes() {
        let edges = [0, 1, 127, 128, 16_383, 16_384, u64::MAX / 2, u64::MAX - 1, u64::MAX];
        for from in edges {
            for to in edges {
                let mut numbers = VarintWriter::new();
                numbers.put(to);
                numbers.put_delta(from, to);
                let mut rest = VarintReader(numbers.bytes());
                assert_eq!((rest.number(), rest.delta(from)), (Some(to), Some(to)));
                assert!(rest.0.is_empty());
            }
        }
        let mut numbers = VarintWriter::new();
        numbers.put_delta(1_000_000, 999_990);
        assert_eq!(numbers.bytes().len(), 1);
    }

    #[test]
    fn what_ends_early_or_is_no_number_is_none() {
        assert_eq!(VarintReader(&[]).number(), None);
        assert_eq!(VarintReader(&[0x80, 0xff]).number(), None);
        let too_long = [0xff; 11];
        assert_eq!(VarintReader(&too_long).number(), None);
        // The tenth byte has room for one bit.
        let mut over = [0xff; 10];
        over[9] = 2;
        assert_eq!(VarintReader(&over).number(), None);
        assert_eq!(VarintReader(&[1, 2]).bytes(3), None);
        assert_eq!(VarintReader(&[0x80, 0x02]).number_as::<u8>(), None);
    }
}
