//! Tests of signed manifests: whoever can write to the store alone makes no backup that is taken.

use super::{dump, files, open, restore_backup, store_backup};
use age::secrecy::ExposeSecret;
use std::path::Path;
use toll_backup::archive::{ContentHash, PieceDecoder, PieceEncoder, SignKey, codec_with_passphrase};

const ID: &str = "20260101T000000Z-1-prod";

fn signing(secret: &[u8]) -> (PieceEncoder, PieceDecoder) {
    let key = SignKey::from_secret(secret).unwrap();
    let opening = PieceDecoder::default().with_verify_key(key.verify_key().unwrap());
    (PieceEncoder::default().with_sign_key(key), opening)
}

/// The one manifest, in the place of which `changed` is put under a name with the right checksum.
fn replace_manifest(store: &Path, id: &str, changed: &[u8]) {
    let [manifest] = &files(&store.join("backups"))[..] else { panic!("one backup") };
    std::fs::remove_file(manifest).unwrap();
    let name = format!("{id}.{}.json", ContentHash::hash(changed));
    std::fs::write(store.join("backups").join(name), changed).unwrap();
}

#[test]
fn a_manifest_without_a_signature_or_with_anothers_is_refused_where_a_key_is_given() {
    let (sealing, opening) = signing(b"ours");
    let text = dump(1, 100, |_| false);
    for (encoder, reason) in
        [(PieceEncoder::default(), "it is not signed"), (signing(b"theirs").0, "not of the key")]
    {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        store_backup(&store, &encoder, ID, &text).unwrap();
        let refused = restore_backup(&store, &opening, ID).unwrap_err().to_string();
        assert!(refused.contains(reason) && refused.contains("Nothing of it was used"), "{refused}");
        assert!(restore_backup(&store, &PieceDecoder::default(), ID).is_ok());
    }
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store_backup(&store, &sealing, ID, &text).unwrap();
    assert!(restore_backup(&store, &opening, ID).is_ok());
}

#[test]
fn no_byte_of_a_signed_manifest_can_be_changed_nor_its_name() {
    let (sealing, opening) = signing(b"ours");
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store_backup(&store, &sealing, ID, &dump(1, 100, |_| false)).unwrap();
    let signed = std::fs::read(files(&dir.path().join("backups")).remove(0)).unwrap();
    let text = String::from_utf8(signed.clone()).unwrap();
    for changed in [
        text.replace("\"shop\"", "\"evil\""),
        text.replacen('{', "{\"definers\":[],", 1),
        text.replace(",\"signature\"", ",\"files\":[],\"signature\""),
        format!("{text}{{}}"),
        text.split(",\"signature\"").next().unwrap().to_owned() + "}",
    ] {
        assert_ne!(changed, text);
        replace_manifest(dir.path(), ID, changed.as_bytes());
        let refused = restore_backup(&store, &opening, ID).unwrap_err().to_string();
        assert!(refused.contains("is not trusted"), "{refused}");
    }
    // Whole, as the backup of another source or a newer one.
    for id in ["20260101T000000Z-1-staging", "20260102T000000Z-1-prod"] {
        replace_manifest(dir.path(), id, &signed);
        let refused = restore_backup(&store, &opening, id).unwrap_err().to_string();
        assert!(refused.contains(&format!("its manifest is of {ID}")), "{refused}");
    }
}

#[test]
fn a_passphrase_signs_too_and_nothing_in_the_clear_is_taken_for_its_backup() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let text = dump(1, 100, |_| false);
    let (sealing, opening) = codec_with_passphrase(&store, "phrase").unwrap();
    store_backup(&store, &sealing, "20260101T000000Z-1-a", &text).unwrap();
    assert!(restore_backup(&store, &opening, "20260101").is_ok());
    store_backup(&store, &PieceEncoder::default(), "20260102T000000Z-1-a", &text).unwrap();
    let identity = age::x25519::Identity::generate();
    let other = PieceDecoder::with_identities(identity.to_string().expose_secret()).unwrap();
    for opening in [&opening, &other] {
        let refused = restore_backup(&store, opening, "latest").unwrap_err().to_string();
        assert!(refused.contains("it is not encrypted, and a key was given"), "{refused}");
    }
    // Encrypted for the store's key, by somebody who knows it from elsewhere and cannot sign.
    let key = std::fs::read(dir.path().join("keys/identity.age")).unwrap();
    let mut phrase = age::scrypt::Identity::new("phrase".to_owned().into());
    // Else what this host does in a few seconds is the limit.
    phrase.set_max_work_factor(20);
    let key = age::decrypt(&phrase, &key).unwrap();
    let key: age::x25519::Identity = std::str::from_utf8(&key).unwrap().trim().parse().unwrap();
    let unsigned = PieceEncoder::for_recipients(&[key.to_public().to_string()]).unwrap();
    store_backup(&store, &unsigned, "20260103T000000Z-1-a", &text).unwrap();
    let refused = restore_backup(&store, &opening, "latest").unwrap_err().to_string();
    assert!(refused.contains("it is not signed"), "{refused}");
}
