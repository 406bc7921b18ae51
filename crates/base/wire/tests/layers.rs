//! Check that each decoder layer depends only on the layers below it. Reads the sources, runs nothing.

use std::path::Path;

/// What the sources of a layer never say. `crate::{` would hide the name of a layer from this test.
const NEVER: [(&str, &[&str]); 4] = [
    ("protocol", &["crate::"]),
    ("frame", &["crate::stream", "crate::mysql", "crate::decoder", "crate::{"]),
    ("stream", &["crate::mysql", "crate::decoder", "crate::{", "Addr", "_port"]),
    ("mysql", &["crate::frame", "crate::stream", "crate::decoder", "crate::{", "Addr"]),
];

#[test]
fn no_layer_knows_of_one_above_it_and_streams_know_no_addresses() {
    let mut faults = Vec::new();
    for (layer, never) in NEVER {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(layer);
        let mut files = 0;
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            assert!(path.is_file(), "{} is not looked into", path.display());
            let source = std::fs::read_to_string(&path).unwrap();
            files += 1;
            for (at, line) in source.lines().enumerate() {
                for word in never.iter().filter(|word| line.contains(**word)) {
                    faults.push(format!("{}:{}: {word}", path.display(), at + 1));
                }
            }
        }
        assert!(files > 1, "{} is elsewhere", folder.display());
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
