//! How are integers and strings laid out in a packet? Every read may run out; none panics.

/// Reads a payload from its head on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u24(&mut self) -> Option<u32> {
        self.array::<3>().map(|[a, b, c]| u32::from_le_bytes([a, b, c, 0]))
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A length-encoded integer; `None` also for the two first bytes that encode none.
    pub fn length(&mut self) -> Option<u64> {
        match self.u8()? {
            small @ 0..=0xfa => Some(u64::from(small)),
            0xfc => self.u16().map(u64::from),
            0xfd => self.u24().map(u64::from),
            0xfe => self.u64(),
            _ => None,
        }
    }

    /// A string after its length-encoded length.
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let length = self.length()?;
        self.bytes(usize::try_from(length).ok()?)
    }

    /// A string up to a NUL, which is consumed; without one, all that is left.
    pub fn until_nul(&mut self) -> &'a [u8] {
        let end = self.0.iter().position(|&byte| byte == 0);
        let taken = &self.0[..end.unwrap_or(self.0.len())];
        self.0 = self.0.get(taken.len() + 1..).unwrap_or_default();
        taken
    }
}
