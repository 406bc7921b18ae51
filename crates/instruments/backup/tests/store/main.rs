//! Backup and restore tests with a folder store, and tests of invalid backups.

#![allow(clippy::unwrap_used)] // in helpers too

mod reread;
mod retention;
mod signed;
mod untrusted;

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use toll_backup::archive::prune::{self, Retention, RetentionPolicy};
use toll_backup::archive::{
    ActivityMarker, Backups, ContentSplitter, Manifest, MarkerOwner, PieceDecoder, PieceEncoder, Totals,
    UploadProgress, Uploader, restore,
};
use toll_store::{Destination, Error, RetryPolicy, Store};
use toll_sys::cancel::CancelToken;

fn open(folder: &Path) -> Arc<Store> {
    let patience =
        RetryPolicy { retry_for: Duration::from_millis(300), stop: Arc::default(), report: |_| {} };
    Arc::new(Store::open(Destination::Folder(folder.to_owned()), true, patience).unwrap())
}

fn owner(pid: i32) -> MarkerOwner {
    MarkerOwner { boot_id: "this".into(), namespace: "n".into(), pid, start_ticks: 1 }
}

/// As mariadb-dump writes it: `tables` of `rows` each, in which every row of `changed` has another text.
fn dump(tables: u32, rows: u32, changed: impl Fn(u32) -> bool) -> String {
    let mut text =
        "-- Host: here\n\n/*!40101 SET NAMES utf8mb4 */;\n\n--\n-- Current Database: `shop`\n--\n\n\
                    CREATE DATABASE `shop`;\n\nUSE `shop`;\n\n"
            .to_owned();
    for table in 0..tables {
        text +=
            &format!("--\n-- Table structure for table `t{table}`\n--\n\nDROP TABLE IF EXISTS `t{table}`;\n");
        for row in 0..rows {
            let word = if changed(row) { "changed" } else { "as it was" };
            let noise = row.wrapping_mul(2_654_435_761).wrapping_add(table);
            text +=
                &format!("INSERT INTO `t{table}` VALUES ({row},'{word}','{noise:x}{}');\n", noise ^ 0x5a5a);
        }
    }
    text + "/*!40103 SET TIME_ZONE=@OLD_TIME_ZONE */;\n\n-- Dump completed\n"
}

fn store_backup(store: &Arc<Store>, sealing: &PieceEncoder, id: &str, dump: &str) -> Result<Manifest, Error> {
    // No piece that is there is read again.
    store_backup_rereading(store, sealing, (PieceDecoder::default(), u64::MAX), id, dump)
}

fn store_backup_rereading(
    store: &Arc<Store>,
    sealing: &PieceEncoder,
    (opening, one_of): (PieceDecoder, u64),
    id: &str,
    dump: &str,
) -> Result<Manifest, Error> {
    let running = ActivityMarker::start_backup(
        store.clone(),
        id,
        &owner(1),
        |_| Some(true),
        Duration::from_secs(1),
        &CancelToken::new(),
    )?;
    let progress = Arc::new(UploadProgress::default());
    let mut upload = Uploader::start(store.clone(), sealing.clone(), opening, one_of, |_| true, progress)?;
    let files = {
        let mut content = ContentSplitter::new(vec![&mut upload]);
        content.read(dump.as_bytes(), |_| Ok(()))?;
        content.read_bodies(&b"CREATE TRIGGER x\n-- Dump completed\n"[..], |_| Ok(()))?;
        content.finish()?
    };
    let uploaded = upload.finish(files)?;
    let manifest = Manifest {
        format: toll_backup::archive::FORMAT,
        id: id.into(),
        begun_unix_ms: 1,
        ended_unix_ms: 2,
        source: Default::default(),
        program: Default::default(),
        schemas: vec!["shop".into()],
        name_key: sealing.name_key(),
        totals: Totals {
            new_pieces: uploaded.new_pieces,
            new_stored_bytes: uploaded.new_stored_bytes,
            reread_pieces: uploaded.reread_pieces,
            ..Totals::default()
        },
        files: uploaded.files,
        definers: vec![],
        warnings: uploaded.damage.into_iter().collect(),
    };
    prune::write_index(store, sealing, id, manifest.pieces().map(|piece| piece.name()))?;
    running.ensure_valid()?;
    manifest.write(store, sealing)?;
    Ok(manifest)
}

fn restore_backup(store: &Store, opening: &PieceDecoder, id: &str) -> Result<String, Error> {
    let manifest = Backups::list(store)?.find(id, None)?.read_manifest(store, opening)?;
    let (mut text, mut check) = (Vec::new(), restore::ContentCheck::begin());
    restore::read_pieces(store, opening, &manifest, |file, bytes| {
        text.extend_from_slice(bytes);
        check.feed(&file.summary, bytes)
    })?;
    let expected: Vec<_> = manifest.files.iter().map(|file| &file.summary).collect();
    check.finish(id, &expected)?;
    Ok(String::from_utf8(text).unwrap())
}

fn files(below: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(below).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut all: Vec<PathBuf> =
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect();
    all.sort();
    all
}

fn keep_latest(count: usize) -> RetentionPolicy<'static> {
    let retention = Retention { latest: count, ..Retention::default() };
    RetentionPolicy { retention, keep_id: None }
}

const BODIES: &str = "CREATE TRIGGER x\n-- Dump completed\n";

#[test]
fn a_backup_comes_back_byte_for_byte_and_a_second_one_stores_what_changed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("new/store"));
    let before = dump(3, 20_000, |_| false);
    let after = dump(3, 20_000, |row| row / 200 == 50);
    let plain = PieceEncoder::default();
    let first = store_backup(&store, &plain, "a", &before).unwrap();
    // An object that is put again is another file under the same name.
    let pieces = || -> HashMap<PathBuf, u64> {
        let files = files(&dir.path().join("new/store/pieces")).into_iter();
        files.map(|path| (path.clone(), std::fs::metadata(&path).unwrap().ino())).collect()
    };
    let put = pieces();
    let second = store_backup(&store, &plain, "b", &after).unwrap();
    assert!(first.totals.new_pieces > 20, "{:?}", first.totals);
    let there = pieces();
    assert!(put.iter().all(|(path, inode)| there.get(path) == Some(inode)), "a piece was put twice");
    // The rows lie together: a piece or two of each table.
    assert!((1..=9).contains(&second.totals.new_pieces), "{:?}", second.totals);
    assert_eq!(restore_backup(&store, &PieceDecoder::default(), "a").unwrap(), before.clone() + BODIES);
    assert_eq!(restore_backup(&store, &PieceDecoder::default(), "latest").unwrap(), after + BODIES);
    let rows: u64 = first.files.iter().map(|file| file.summary.rows).sum();
    assert_eq!(rows, 60_000);
    assert!(files(&dir.path().join("new/store/running")).is_empty());
}

#[test]
fn what_was_put_before_a_break_is_not_put_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let text = dump(2, 20_000, |_| false);
    let broken = store_backup(&store, &PieceEncoder::default(), "a", &text[..text.len() / 2]).unwrap_err();
    assert!(matches!(broken, Error::Incomplete(_)), "{broken}");
    assert!(Backups::list(&store).unwrap().valid.is_empty());
    let whole = store_backup(&store, &PieceEncoder::default(), "b", &text).unwrap();
    let all = whole.pieces().count() as u64;
    assert!(whole.totals.new_pieces < all * 2 / 3, "{} of {all}", whole.totals.new_pieces);
}

#[test]
fn a_piece_or_manifest_that_was_damaged_is_told_and_never_handed_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let text = dump(1, 5000, |_| false);
    store_backup(&store, &PieceEncoder::default(), "a", &text).unwrap();
    let opening = PieceDecoder::default();
    for path in files(&dir.path().join("pieces")) {
        let whole = std::fs::read(&path).unwrap();
        let mut damaged = whole.clone();
        *damaged.last_mut().unwrap() ^= 1;
        for damage in [damaged, whole[..whole.len() / 2].to_vec(), Vec::new()] {
            std::fs::write(&path, damage).unwrap();
            assert!(restore_backup(&store, &opening, "a").is_err(), "{}", path.display());
        }
        std::fs::remove_file(&path).unwrap();
        assert!(restore_backup(&store, &opening, "a").is_err(), "{}", path.display());
        std::fs::write(&path, whole).unwrap();
    }
    assert!(restore_backup(&store, &opening, "a").is_ok());
    let manifest = files(&dir.path().join("backups")).remove(0);
    let whole = std::fs::read(&manifest).unwrap();
    for length in [0, 1, whole.len() - 1] {
        std::fs::write(&manifest, &whole[..length]).unwrap();
        let error = restore_backup(&store, &opening, "a").unwrap_err();
        assert!(error.to_string().contains("not what was stored"), "{error}");
    }
}

#[test]
fn a_piece_that_a_full_disk_left_empty_is_put_anew() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let text = dump(1, 5000, |_| false);
    store_backup(&store, &PieceEncoder::default(), "a", &text).unwrap();
    let piece = files(&dir.path().join("pieces")).remove(0);
    std::fs::write(&piece, b"").unwrap();
    let again = store_backup(&store, &PieceEncoder::default(), "b", &text).unwrap();
    assert_eq!(again.totals.new_pieces, 1);
    assert!(restore_backup(&store, &PieceDecoder::default(), "b").is_ok());
}

#[test]
fn prune_removes_what_no_backup_names_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let versions: Vec<String> = (0..4).map(|n| dump(1, 20_000, move |row| row / 500 == 7 * n)).collect();
    for (number, text) in versions.iter().enumerate() {
        store_backup(&store, &PieceEncoder::default(), &format!("b{number}"), text).unwrap();
    }
    std::fs::write(dir.path().join("pieces/00#1"), b"half").unwrap();
    // Whatever else is in the folder is not the store's.
    std::fs::create_dir(dir.path().join("mine")).unwrap();
    std::fs::write(dir.path().join("mine/notes#1"), b"precious").unwrap();
    let before = files(dir.path());
    let prune = |dry_run| {
        let alone = ActivityMarker::start_prune(store.clone(), "p", &owner(2), |_| Some(true)).unwrap();
        prune::prune(&store, &PieceDecoder::default(), keep_latest(2), dry_run, &alone).unwrap()
    };
    let foretold = prune(true);
    assert_eq!(files(dir.path()), before, "a dry run removes nothing");
    let pruned = prune(false);
    assert_eq!((foretold.pieces, foretold.backups), (pruned.pieces, pruned.backups.clone()));
    assert_eq!((pruned.backups.as_slice(), pruned.unfinished), (&["b0".to_owned(), "b1".to_owned()][..], 1));
    assert!(pruned.pieces > 0);
    for number in [2, 3] {
        assert_eq!(
            restore_backup(&store, &PieceDecoder::default(), &format!("b{number}")).unwrap(),
            versions[number].clone() + BODIES
        );
    }
    assert_eq!(files(&dir.path().join("pieces")).len() as u64, pruned.pieces_left);
    assert!(dir.path().join("mine/notes#1").exists());
    let named = prune::referenced_pieces(&store, &PieceDecoder::default()).unwrap();
    assert_eq!(named.len() as u64, pruned.pieces_left, "nothing is left that no backup names");
}

#[test]
fn prune_keeps_away_from_a_backup_that_goes_on_and_from_what_it_cannot_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let alive = |_: &MarkerOwner| Some(true);
    store_backup(&store, &PieceEncoder::default(), "a", &dump(1, 10, |_| false)).unwrap();
    let going = ActivityMarker::start_backup(
        store.clone(),
        "going",
        &owner(1),
        alive,
        Duration::ZERO,
        &CancelToken::new(),
    )
    .unwrap();
    let refused = ActivityMarker::start_prune(store.clone(), "p", &owner(2), alive).unwrap_err();
    assert!(refused.to_string().contains("a backup is running on"), "{refused}");
    drop(going);
    let pruning = ActivityMarker::start_prune(store.clone(), "p", &owner(2), alive).unwrap();
    let waits = ActivityMarker::start_backup(
        store.clone(),
        "b",
        &owner(1),
        alive,
        Duration::ZERO,
        &CancelToken::new(),
    )
    .unwrap_err();
    assert!(waits.to_string().contains("a prune is running on"), "{waits}");
    let manifest = files(&dir.path().join("backups")).remove(0);
    std::fs::write(&manifest, b"{}").unwrap();
    let before = files(&dir.path().join("pieces"));
    assert!(
        prune::prune(&store, &PieceDecoder::default(), RetentionPolicy::default(), false, &pruning).is_err()
    );
    assert_eq!(files(&dir.path().join("pieces")), before);
}

#[test]
fn a_dead_owner_counts_for_nothing_and_one_of_another_boot_takes_trust_away_until_a_prune() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let leave_behind = |name: &str, boot_id: &str| {
        let owner = MarkerOwner { boot_id: boot_id.into(), ..owner(9) };
        let text = serde_json::json!({ "work": "backup", "owner": owner }).to_string();
        store.put(&format!("running/{name}.json"), text.into_bytes()).unwrap();
    };
    let is_alive = |owner: &MarkerOwner| Some(owner.pid != 9);
    let begin = || {
        ActivityMarker::start_backup(
            store.clone(),
            "b",
            &owner(1),
            is_alive,
            Duration::ZERO,
            &CancelToken::new(),
        )
        .unwrap()
    };
    leave_behind("killed", "this");
    assert!(begin().trusts_unreferenced());
    assert!(files(&dir.path().join("running")).is_empty());
    leave_behind("unplugged", "another");
    assert!(!begin().trusts_unreferenced());
    assert!(!begin().trusts_unreferenced(), "its pieces are still there");
    let alone = ActivityMarker::start_prune(store.clone(), "p", &owner(2), is_alive).unwrap();
    prune::prune(&store, &PieceDecoder::default(), RetentionPolicy::default(), false, &alone).unwrap();
    drop(alone);
    assert!(begin().trusts_unreferenced());
}

#[test]
fn what_is_encrypted_comes_back_with_its_key_alone_and_can_be_pruned_without() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (sealing, opening) = toll_backup::archive::codec_with_passphrase(&store, "correct horse").unwrap();
    let texts = [dump(1, 5000, |_| false), dump(1, 5000, |row| row < 2000)];
    store_backup(&store, &sealing, "a", &texts[0]).unwrap();
    // Another run, which has nothing but the passphrase.
    let (again, _) = toll_backup::archive::codec_with_passphrase(&store, "correct horse").unwrap();
    let second = store_backup(&store, &again, "b", &texts[1]).unwrap();
    assert!(second.totals.new_pieces < second.pieces().count() as u64, "names are the same");
    for path in files(dir.path()) {
        let stored = std::fs::read(&path).unwrap();
        let told = String::from_utf8_lossy(&stored);
        assert!(!told.contains("INSERT INTO") && !told.contains("shop"), "{}", path.display());
    }
    assert_eq!(restore_backup(&store, &opening, "a").unwrap(), texts[0].clone() + BODIES);
    let wrong = toll_backup::archive::codec_with_passphrase(&store, "wrong horse").unwrap_err();
    assert!(wrong.to_string().contains("cannot decrypt the store's key"), "{wrong}");
    let without = restore_backup(&store, &PieceDecoder::default(), "a").unwrap_err();
    assert!(without.to_string().contains("encrypted"), "{without}");
    let alone = ActivityMarker::start_prune(store.clone(), "p", &owner(2), |_| Some(true)).unwrap();
    // Of a backup that was killed before its manifest was put.
    store.put("pieces-of/killed", vec![0; 32]).unwrap();
    let pruned = prune::prune(&store, &PieceDecoder::default(), keep_latest(1), false, &alone).unwrap();
    assert!(pruned.pieces > 0, "{pruned:?}");
    assert_eq!(files(&dir.path().join("pieces-of")).len(), 1);
    assert_eq!(restore_backup(&store, &opening, "b").unwrap(), texts[1].clone() + BODIES);
}

#[test]
fn servers_that_share_a_store_do_not_remove_each_others_backups() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let ids = ["20260101T000000Z-0-one", "20260102T000000Z-0-two", "20260103T000000Z-0-two"];
    for (number, id) in ids.into_iter().enumerate() {
        store_backup(&store, &PieceEncoder::default(), id, &dump(1, 10 + number as u32, |_| false)).unwrap();
    }
    let alone = ActivityMarker::start_prune(store.clone(), "p", &owner(2), |_| Some(true)).unwrap();
    let pruned = prune::prune(&store, &PieceDecoder::default(), keep_latest(1), false, &alone).unwrap();
    assert_eq!(pruned.backups, [ids[1]]);
    assert!(restore_backup(&store, &PieceDecoder::default(), ids[0]).is_ok());
}

#[test]
fn a_damaged_backup_is_no_reason_to_take_none() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let [one, other] = [dump(1, 100, |_| false), dump(1, 100, |_| true)];
    store_backup(&store, &PieceEncoder::default(), "a", &one).unwrap();
    let manifest = files(&dir.path().join("backups")).remove(0);
    let whole = store_backup(&store, &PieceEncoder::default(), "b", &other).unwrap();
    std::fs::write(manifest, b"{}").unwrap();
    let named = prune::referenced_pieces(&store, &PieceDecoder::default()).unwrap();
    assert_eq!(named, whole.pieces().map(|piece| piece.name()).collect());
}

#[test]
fn a_marker_whose_first_answer_was_lost_is_known_again_and_anothers_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let begin = |pid| {
        ActivityMarker::start_backup(
            store.clone(),
            "b",
            &owner(pid),
            |_| Some(true),
            Duration::ZERO,
            &CancelToken::new(),
        )
    };
    let _first = begin(1).unwrap();
    assert!(begin(1).is_ok());
    let _first = begin(1).unwrap();
    assert!(begin(3).unwrap_err().to_string().contains("another run has the same name"));
}

#[test]
fn a_backup_waits_again_for_a_prune_that_took_it_for_dead() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let alive = |_: &MarkerOwner| Some(true);
    let mut backup = ActivityMarker::start_backup(
        store.clone(),
        "b",
        &owner(1),
        alive,
        Duration::ZERO,
        &CancelToken::new(),
    )
    .unwrap();
    // It does not see the other: this host slept, and its marker became old.
    let dead = |owner: &MarkerOwner| Some(owner.pid != 1);
    let prune = ActivityMarker::start_prune(store.clone(), "p", &owner(2), dead).unwrap();
    let busy = backup.wait_for_prunes(Duration::ZERO, &CancelToken::new()).unwrap_err();
    assert!(busy.to_string().contains("a prune is running on"), "{busy}");
    drop(prune);
    backup.wait_for_prunes(Duration::ZERO, &CancelToken::new()).unwrap();
}

#[test]
fn what_is_kept_in_a_folder_that_others_may_look_into_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let store = open(dir.path());
    store_backup(&store, &PieceEncoder::default(), "a", &dump(1, 10, |_| false)).unwrap();
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().mode() & 0o077, 0, "{}", entry.path().display());
    }
}

#[test]
fn a_folder_whose_backups_others_can_read_is_reported() {
    use std::os::unix::fs::PermissionsExt;
    static REPORTED: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let open = || {
        let report = |what: &str| REPORTED.lock().unwrap().push(what.to_owned());
        let patience = RetryPolicy { retry_for: Duration::ZERO, stop: Arc::default(), report };
        drop(Store::open(Destination::Folder(store.clone()), true, patience).unwrap());
        std::mem::take(&mut *REPORTED.lock().unwrap()).concat()
    };
    let set_mode = |below: &str, mode| {
        std::fs::set_permissions(store.join(below), PermissionsExt::from_mode(mode)).unwrap();
    };
    assert_eq!(open(), "");
    // Nobody gets in, and nobody gets in but its group.
    set_mode("pieces", 0o755);
    assert_eq!(open(), "");
    set_mode("", 0o755);
    set_mode("pieces", 0o750);
    assert_eq!(open(), "");
    set_mode("pieces", 0o755);
    assert!(open().contains("other users can read the backups in") && open().contains("mode 755"));
}

#[test]
fn nothing_that_is_longer_than_any_piece_is_fetched_in_the_place_of_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store_backup(&store, &PieceEncoder::default(), "a", &dump(1, 10, |_| false)).unwrap();
    let piece = files(&dir.path().join("pieces")).remove(0);
    // As long as a disk, and takes none.
    std::fs::File::options().write(true).open(piece).unwrap().set_len(1 << 40).unwrap();
    let refused = restore_backup(&store, &PieceDecoder::default(), "a").unwrap_err();
    assert!(refused.to_string().contains("the maximum is"), "{refused}");
}

#[test]
fn a_key_that_was_lost_or_replaced_is_told_before_anything_is_encrypted_for_another() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (sealing, _) = toll_backup::archive::codec_with_passphrase(&store, "correct horse").unwrap();
    store_backup(&store, &sealing, "a", &dump(1, 10, |_| false)).unwrap();
    sealing.check_key(&store).unwrap();
    std::fs::remove_file(dir.path().join("keys/identity.age")).unwrap();
    let refused = sealing.check_key(&store).unwrap_err();
    assert!(refused.to_string().contains("differs from the key of this backup"), "{refused}");
    let lost = toll_backup::archive::codec_with_passphrase(&store, "correct horse").unwrap_err();
    assert!(lost.to_string().contains("If keys/identity.age was lost"), "{lost}");
    assert!(files(&dir.path().join("keys")).is_empty(), "no other was made");
}
