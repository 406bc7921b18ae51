//! Fuzz target of fingerprints: no panic, bounded output, no literal in it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use toll_wire::fingerprint::{distill, fingerprint, tables};

fuzz_target!(|data: &[u8]| {
    let mut out = Vec::new();
    fingerprint(data, &mut out);
    // `in` and `values` without a space gain `(?+)`, a UNION its note.
    assert!(out.len() <= data.len() * 4 + 64, "{} bytes of {}", out.len(), data.len());
    distill(data);
    tables(data);
    if !data.contains(&0) {
        let mut literal = b"select * from t where a = '".to_vec();
        literal.extend(data.iter().filter(|b| b.is_ascii_alphanumeric()));
        literal.extend_from_slice(b"\0secret");
        fingerprint(&literal, &mut out);
        assert!(!out.windows(6).any(|part| part == b"secret"), "{}", String::from_utf8_lossy(&out));
    }
});
