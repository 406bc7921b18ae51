//! How are the protocol's integers and strings read from bytes, and written?
//!
//! Every reader answers `None` at the end of its bytes; none panics, none allocates.

/// A cursor over one payload.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(n)?;
        self.rest = tail;
        Some(head)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.bytes(1).map(|b| b[0])
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.bytes(2).map(|b| u16::from_le_bytes([b[0], b[1]]))
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.bytes(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.bytes(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    /// Length-encoded integer; `None` also for the NULL marker and for 0xff.
    pub fn lenenc(&mut self) -> Option<u64> {
        match self.u8()? {
            n @ 0..=0xfa => Some(u64::from(n)),
            0xfc => self.u16().map(u64::from),
            0xfd => self.bytes(3).map(|b| u64::from(u32::from_le_bytes([b[0], b[1], b[2], 0]))),
            0xfe => self.u64(),
            _ => None,
        }
    }

    pub fn lenenc_bytes(&mut self) -> Option<&'a [u8]> {
        let n = usize::try_from(self.lenenc()?).ok()?;
        self.bytes(n)
    }

    /// Up to a NUL, which is consumed; to the end where there is none.
    pub fn until_nul(&mut self) -> &'a [u8] {
        let end = self.rest.iter().position(|&b| b == 0);
        let text = &self.rest[..end.unwrap_or(self.rest.len())];
        self.rest = &self.rest[end.map_or(self.rest.len(), |e| e + 1)..];
        text
    }
}

pub fn put_lenenc(out: &mut Vec<u8>, n: u64) {
    let bytes = n.to_le_bytes();
    match n {
        0..=0xfa => out.push(bytes[0]),
        0xfb..=0xffff => {
            out.push(0xfc);
            out.extend_from_slice(&bytes[..2]);
        }
        0x1_0000..=0xff_ffff => {
            out.push(0xfd);
            out.extend_from_slice(&bytes[..3]);
        }
        _ => {
            out.push(0xfe);
            out.extend_from_slice(&bytes);
        }
    }
}

/// Largest payload of one packet; a longer one continues in the next.
pub const MAX_PAYLOAD: usize = 0xff_ffff;

/// Appends `payload` as packets, the first numbered `sequence`; returns the number after the last.
pub fn put_packets(out: &mut Vec<u8>, mut sequence: u8, payload: &[u8]) -> u8 {
    let mut rest = payload;
    loop {
        let n = rest.len().min(MAX_PAYLOAD);
        out.extend_from_slice(&(n as u32).to_le_bytes()[..3]);
        out.push(sequence);
        out.extend_from_slice(&rest[..n]);
        sequence = sequence.wrapping_add(1);
        rest = &rest[n..];
        if n < MAX_PAYLOAD {
            return sequence;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_written_integer_reads_back(n: u64) {
            let mut out = Vec::new();
            put_lenenc(&mut out, n);
            prop_assert_eq!(Reader::new(&out).lenenc(), Some(n));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let mut r = Reader::new(&bytes);
            while r.lenenc_bytes().is_some() || r.u8().is_some() {}
            r.until_nul();
        }
    }

    #[test]
    fn a_payload_of_exactly_the_limit_ends_with_an_empty_packet() {
        let mut out = Vec::new();
        assert_eq!(put_packets(&mut out, 0, &vec![7; MAX_PAYLOAD]), 2);
        assert_eq!(out.len(), MAX_PAYLOAD + 8);
        assert_eq!(&out[out.len() - 4..], &[0, 0, 0, 1]);
    }
}
