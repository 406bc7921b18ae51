//! Packet limit and packet writer: a payload of any size becomes packets with their headers.

/// Bytes of the largest payload of one packet; a payload of this size or more goes on in the next packet.
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

    #[test]
    fn a_payload_of_exactly_the_limit_ends_with_an_empty_packet() {
        let mut out = Vec::new();
        assert_eq!(put_packets(&mut out, 0, &vec![7; MAX_PAYLOAD]), 2);
        assert_eq!(out.len(), MAX_PAYLOAD + 8);
        assert_eq!(&out[out.len() - 4..], &[0, 0, 0, 1]);
    }
}
