#![no_main]

//! Fuzz target of the manifests of backups.
//!
//! A manifest that is read is the same once it was written and read again, and so are the pieces that it names.

use toll_backup::archive::Manifest;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Ok(manifest) = serde_json::from_slice::<Manifest>(input) else { return };
    let written = serde_json::to_vec(&manifest).expect("a manifest can be written");
    let again: Manifest = serde_json::from_slice(&written).expect("what was written can be read");
    assert_eq!(manifest, again);
    assert!(manifest.pieces().eq(again.pieces()));
});
