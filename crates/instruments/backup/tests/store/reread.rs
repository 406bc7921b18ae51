//! Tests of the pieces that a backup relies on and reads again.

use super::{dump, files, open, restore_backup, store_backup, store_backup_rereading};
use toll_backup::archive::{PieceDecoder, PieceEncoder, codec_with_passphrase};

#[test]
fn a_known_piece_that_is_not_what_it_should_be_is_found_and_stored_again() {
    let text = dump(1, 20_000, |_| false);
    for is_encrypted in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let (sealing, opening) = match is_encrypted {
            true => codec_with_passphrase(&store, "phrase").unwrap(),
            false => (PieceEncoder::default(), PieceDecoder::default()),
        };
        store_backup(&store, &sealing, "a", &text).unwrap();
        let pieces = files(&dir.path().join("pieces"));
        assert!(pieces.len() > 4, "{}", pieces.len());
        // As a disk does it: the length stays.
        let mut rotten = std::fs::read(&pieces[0]).unwrap();
        let middle = rotten.len() / 2;
        rotten[middle] ^= 1;
        std::fs::write(&pieces[0], rotten).unwrap();
        // As somebody else does it: a whole piece of the same kind.
        std::fs::copy(&pieces[2], &pieces[1]).unwrap();
        std::fs::File::create(&pieces[3]).unwrap().set_len(1 << 30).unwrap();

        let relying = store_backup(&store, &sealing, "b", &text).unwrap();
        assert_eq!((relying.totals.reread_pieces, relying.warnings.len()), (0, 0));
        assert!(restore_backup(&store, &opening, "b").is_err());

        let again = store_backup_rereading(&store, &sealing, (opening.clone(), 1), "c", &text).unwrap();
        assert_eq!(again.totals.reread_pieces, pieces.len() as u64);
        assert!(again.warnings[0].starts_with("3 of "), "{:?}", again.warnings);
        for id in ["a", "b", "c"] {
            assert!(restore_backup(&store, &opening, id).is_ok(), "{id} needs the same pieces");
        }
        let whole = store_backup_rereading(&store, &sealing, (opening, 1), "d", &text).unwrap();
        assert!(whole.warnings.is_empty(), "{:?}", whole.warnings);
    }
}

#[test]
fn a_host_that_cannot_decrypt_reads_nothing_again() {
    let dir = tempfile::tempdir().unwrap();
    let (store, text) = (open(dir.path()), dump(1, 5000, |_| false));
    let (sealing, _) = codec_with_passphrase(&store, "phrase").unwrap();
    store_backup(&store, &sealing, "a", &text).unwrap();
    let again = store_backup_rereading(&store, &sealing, (PieceDecoder::default(), 1), "b", &text).unwrap();
    assert_eq!((again.totals.reread_pieces, again.totals.new_pieces, again.warnings.len()), (0, 0, 0));
}
