//! Tests of what a store holds that no backup put there.

use super::{dump, files, open, restore_backup, store_backup};
use toll_backup::archive::{Backups, PieceDecoder, PieceEncoder};

#[test]
fn an_object_that_is_longer_than_its_kind_ever_is_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let enlarge = |path: &str, bytes: u64| {
        std::fs::File::create(dir.path().join(path)).unwrap().set_len(bytes).unwrap();
    };
    // No byte of them is on the disk, and all would be in memory.
    enlarge(&format!("backups/a.{}.json", "0".repeat(64)), (2 << 30) + 1);
    let refused = restore_backup(&store, &PieceDecoder::default(), "a").unwrap_err().to_string();
    assert!(refused.contains("the maximum is"), "{refused}");
    enlarge("running/b.json", 1 << 20);
    let refused = store_backup(&store, &PieceEncoder::default(), "c", &dump(1, 1, |_| false)).unwrap_err();
    assert!(refused.to_string().contains("the maximum is"), "{refused}");
    enlarge("keys/identity.age", 1 << 20);
    let refused = PieceDecoder::with_passphrase(&store, "phrase").unwrap_err().to_string();
    assert!(refused.contains("the maximum is"), "{refused}");
}

#[test]
fn latest_is_of_one_source_and_a_manifest_has_one_name() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let plain = PieceEncoder::default();
    for id in [
        "20260101T000000Z-1-prod",
        "20260102T000000Z-1-prod",
        "20260103T000000Z-1-stag",
        "20260103T000000Z-1-stag=12345678",
    ] {
        store_backup(&store, &plain, id, &dump(1, 1, |_| false)).unwrap();
    }
    let find = |id: &str, source: Option<&str>| {
        Backups::list(&store)
            .unwrap()
            .find(id, source)
            .map(|found| found.id.clone())
            .map_err(|error| error.to_string())
    };
    let refused = find("latest", None).unwrap_err();
    assert!(
        refused.contains("3 sources") && refused.contains("prod (latest: 20260102T000000Z-1-prod)"),
        "{refused}"
    );
    assert_eq!(find("latest", Some("pr")).unwrap(), "20260102T000000Z-1-prod");
    assert_eq!(find("latest", Some("stag")).unwrap(), "20260103T000000Z-1-stag");
    assert!(find("latest", Some("st")).unwrap_err().contains("several sources begin with st"));
    assert!(find("latest", Some("x")).unwrap_err().contains("no source x"));
    assert_eq!(find("20260101", None).unwrap(), "20260101T000000Z-1-prod");
    assert!(find("20260103", Some("prod")).is_err());

    // An old one under a newer name, and one under the name of another source.
    for (from, to) in [
        ("20260101T000000Z-1-prod", "20260109T000000Z-1-prod"),
        ("20260103T000000Z-1-stag.", "20260109T000000Z-1-x."),
    ] {
        let there = files(&dir.path().join("backups"))
            .into_iter()
            .find(|path| path.to_string_lossy().contains(from))
            .unwrap();
        std::fs::copy(&there, there.to_str().unwrap().replace(from, to)).unwrap();
        let id = to.trim_end_matches('.');
        let refused = restore_backup(&store, &PieceDecoder::default(), id).unwrap_err().to_string();
        assert!(refused.contains("its manifest is of"), "{refused}");
    }
}
