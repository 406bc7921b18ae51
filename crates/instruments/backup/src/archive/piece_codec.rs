//! Compression and encryption of stored pieces.
//!
//! A piece is compressed (zstd), then optionally encrypted (age, <https://age-encryption.org/v1>). So a
//! restore needs no toll: `age -d -i KEY piece | zstd -d`. Never writes a key to disk.

use super::signature::{SignKey, VerifyKey};
use super::upload::piece_object;
use crate::archive::{BackupEntry, Backups, ContentHash};
use age::secrecy::ExposeSecret;
use age::x25519;
use sha2::{Digest, Sha256};
use std::io::{Read, Write};
use toll_store::{Error, Result, Store};

/// Level 3 is zstd's default; above it, time grows faster than size falls.
const LEVEL: i32 = 3;
/// No piece is longer.
const PIECE_MAX: usize = 16 << 20;
/// In the store: what does not compress, and what age adds, are far less than a tenth.
pub(crate) const STORED_PIECE_MAX: u64 = PIECE_MAX as u64 / 10 * 11;
/// Where a store that is encrypted with a passphrase keeps its own key, encrypted with the passphrase.
const KEY_OBJECT: &str = "keys/identity.age";
/// It has 500 bytes or so.
const KEY_MAX_BYTES: u64 = 64 << 10;
/// Of scrypt, as age's own program chooses it: 256 MiB for a second.
const WORK_FACTOR: u8 = 18;
/// A store must not decide how much memory its key takes, on a host where a database server needs it: 1 GiB.
const MAX_WORK_FACTOR: u8 = 20;

/// Compression and encryption of pieces.
#[derive(Clone, Default)]
pub struct PieceEncoder {
    recipients: Vec<x25519::Recipient>,
    name_key: Option<[u8; 32]>,
    /// Of the store's own key, as it was stored.
    stored_key_hash: Option<ContentHash>,
    /// Of manifests.
    sign_key: Option<SignKey>,
}

impl std::fmt::Debug for PieceEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sealing(to {} recipients)", self.recipients.len())
    }
}

impl PieceEncoder {
    /// To these age recipients (`age1...`); with none, in the clear. Names of pieces are keyed by the
    /// recipients, since the host that backs up knows no secret that it could key them by.
    pub fn for_recipients(recipients: &[String]) -> Result<Self> {
        if recipients.is_empty() {
            return Ok(Self::default());
        }
        let mut words: Vec<&str> = recipients.iter().map(String::as_str).collect();
        words.sort_unstable();
        let parse = |word: &&str| {
            word.parse::<x25519::Recipient>().map_err(|reason| {
                Error::Key(format!("{word} is no age recipient ({reason}): age-keygen makes one, age1..."))
            })
        };
        let recipients = words.iter().map(parse).collect::<Result<_>>()?;
        let name_key =
            Sha256::new().chain_update("toll backup, names of pieces, 1\n").chain_update(words.join("\n"));
        Ok(Self { recipients, name_key: Some(name_key.finalize().into()), ..Self::default() })
    }

    /// The same, which signs manifests.
    pub fn with_sign_key(self, key: SignKey) -> Self {
        Self { sign_key: Some(key), ..self }
    }

    /// A manifest's JSON, signed where there is a key.
    pub(crate) fn sign(&self, manifest: Vec<u8>) -> Vec<u8> {
        match &self.sign_key {
            Some(key) => key.sign(manifest),
            None => manifest,
        }
    }

    /// To be asked right before the manifest is put: what was encrypted for a key that is not there any more,
    /// nobody opens. Two first backups at once may each have made one.
    pub fn check_key(&self, store: &Store) -> Result<()> {
        let Some(used) = self.stored_key_hash else { return Ok(()) };
        let there = store.get_if_exists(KEY_OBJECT, KEY_MAX_BYTES)?.map(|stored| ContentHash::hash(&stored));
        if there == Some(used) {
            return Ok(());
        }
        Err(Error::Key(format!(
            "the key in {store} ({KEY_OBJECT}) differs from the key of this backup. Run the backup again."
        )))
    }

    pub fn encrypts(&self) -> bool {
        !self.recipients.is_empty()
    }

    /// Key for the manifest, in hex.
    pub fn name_key(&self) -> Option<String> {
        self.name_key.map(|key| ContentHash(key).to_string())
    }

    /// Key of the names of pieces; `None`: nothing is encrypted.
    pub(crate) fn piece_key(&self) -> Option<&[u8; 32]> {
        self.name_key.as_ref()
    }

    pub fn hash_piece(&self, piece: &[u8]) -> ContentHash {
        match &self.name_key {
            Some(key) => ContentHash::keyed_hash(key, piece),
            None => ContentHash::hash(piece),
        }
    }

    /// The stored form of a piece.
    pub fn encode(&self, piece: &[u8]) -> Result<Vec<u8>> {
        let packed =
            zstd::bulk::compress(piece, LEVEL).map_err(|cause| Error::Write { what: "a piece", cause })?;
        self.encrypt(packed)
    }

    /// As it is where nothing is encrypted.
    pub fn encrypt(&self, plain: Vec<u8>) -> Result<Vec<u8>> {
        if !self.encrypts() {
            return Ok(plain);
        }
        let failed = |reason: &dyn std::fmt::Display| Error::Key(format!("cannot encrypt: {reason}"));
        let recipients = self.recipients.iter().map(|recipient| recipient as &dyn age::Recipient);
        let encryptor = age::Encryptor::with_recipients(recipients).map_err(|reason| failed(&reason))?;
        let mut stored = Vec::with_capacity(plain.len() + 512);
        encryptor
            .wrap_output(&mut stored)
            .and_then(|mut writer| writer.write_all(&plain).and_then(|()| writer.finish()))
            .map_err(|reason| failed(&reason))?;
        Ok(stored)
    }
}

/// Decryption and decompression of pieces.
#[derive(Clone, Default)]
pub struct PieceDecoder {
    identities: Vec<x25519::Identity>,
    /// Of manifests; none: they need no signature.
    verify_key: Option<VerifyKey>,
}

impl std::fmt::Debug for PieceDecoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Opening(with {} identities)", self.identities.len())
    }
}

impl PieceDecoder {
    /// With the keys of an age identity file (`AGE-SECRET-KEY-1...`, comments begin with `#`).
    pub fn with_identities(text: &str) -> Result<Self> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        // The line itself is never shown: it may be a key that lacks a letter.
        let parse = |line: &str| {
            line.parse::<x25519::Identity>()
                .map_err(|reason| Error::Key(format!("a line of the identity file is no age key ({reason})")))
        };
        let identities: Vec<_> = lines.map(parse).collect::<Result<_>>()?;
        if identities.is_empty() {
            return Err(Error::Key("the identity file holds no key: age-keygen writes one".into()));
        }
        Ok(Self { identities, verify_key: None })
    }

    /// The same, which takes no manifest without a signature of this key.
    pub fn with_verify_key(self, key: VerifyKey) -> Self {
        Self { verify_key: Some(key), ..self }
    }

    /// Fails, with a reason, if a manifest's JSON needs a signature and has none that fits.
    pub(crate) fn check_signature(&self, manifest: &[u8]) -> Result<(), &'static str> {
        self.verify_key.map_or(Ok(()), |key| key.check(manifest))
    }

    /// With a passphrase: the store holds a key of its own, encrypted with it.
    pub fn with_passphrase(store: &Store, passphrase: &str) -> Result<Self> {
        let Some(stored) = store.get_if_exists(KEY_OBJECT, KEY_MAX_BYTES)? else {
            return Err(Error::Key(format!("{store} has no key that a passphrase opens ({KEY_OBJECT})")));
        };
        Self::with_store_key(decrypt_key(&stored, passphrase)?)
    }

    /// Who has the passphrase has signed, too: the store alone knows neither the key nor what to encrypt for.
    fn with_store_key(identity: x25519::Identity) -> Result<Self> {
        let verify_key = Some(sign_key_of(&identity)?.verify_key()?);
        Ok(Self { identities: vec![identity], verify_key })
    }

    /// False: nothing that is encrypted can be read.
    pub(crate) fn has_identity(&self) -> bool {
        !self.identities.is_empty()
    }

    pub fn decrypt(&self, stored: &[u8]) -> Result<Vec<u8>> {
        if self.identities.is_empty() {
            return Err(Error::Key("this backup is encrypted: give --identity or --passphrase-file".into()));
        }
        let identities = self.identities.iter().map(|identity| identity as &dyn age::Identity);
        let failed = |reason: &dyn std::fmt::Display| {
            Error::Key(format!("cannot decrypt with the key that was given ({reason})"))
        };
        let decryptor = age::Decryptor::new(stored).map_err(|reason| failed(&reason))?;
        let reader = decryptor.decrypt(identities).map_err(|reason| failed(&reason))?;
        let mut plain = Vec::with_capacity(stored.len());
        reader.take(stored.len() as u64).read_to_end(&mut plain).map_err(|reason| failed(&reason))?;
        Ok(plain)
    }

    /// The piece of that name, or an error that says that what is stored is not it.
    pub fn decode(&self, name: ContentHash, name_key: Option<&[u8; 32]>, stored: Vec<u8>) -> Result<Vec<u8>> {
        let damaged =
            |reason: String| Error::Damaged { name: name.to_string(), object: piece_object(&name), reason };
        let packed = if name_key.is_some() { self.decrypt(&stored)? } else { stored };
        let piece = zstd::bulk::decompress(&packed, PIECE_MAX).map_err(|error| damaged(error.to_string()))?;
        let found =
            name_key.map_or_else(|| ContentHash::hash(&piece), |key| ContentHash::keyed_hash(key, &piece));
        if found == name { Ok(piece) } else { Err(damaged("its content has another checksum".into())) }
    }
}

/// Sealing with a passphrase: with the store's own key, which is made the first time.
pub fn codec_with_passphrase(store: &Store, passphrase: &str) -> Result<(PieceEncoder, PieceDecoder)> {
    let stored = match store.get_if_exists(KEY_OBJECT, KEY_MAX_BYTES)? {
        Some(stored) => stored,
        None => {
            if Backups::list(store)?.valid.iter().any(BackupEntry::is_encrypted) {
                return Err(Error::Key(format!(
                    "{store} has encrypted backups but no passphrase-protected key. If {KEY_OBJECT} was \
                     lost, restore it. Backups with a passphrase and with recipients need separate stores."
                )));
            }
            let text = x25519::Identity::generate().to_string().expose_secret().to_owned();
            // Another backup may have begun at the same time: the key that is there is the store's.
            store.put_if_absent(KEY_OBJECT, encrypt_key(text.as_bytes(), passphrase)?)?;
            store.get(KEY_OBJECT, KEY_MAX_BYTES)?
        }
    };
    let identity = decrypt_key(&stored, passphrase)?;
    let recipient = identity.to_public();
    let secret = identity.to_string();
    let name_key = Sha256::new()
        .chain_update("toll backup, names of pieces, 1\n")
        .chain_update(secret.expose_secret().as_bytes());
    let sealing = PieceEncoder {
        recipients: vec![recipient],
        name_key: Some(name_key.finalize().into()),
        stored_key_hash: Some(ContentHash::hash(&stored)),
        sign_key: Some(sign_key_of(&identity)?),
    };
    Ok((sealing, PieceDecoder::with_store_key(identity)?))
}

fn sign_key_of(identity: &x25519::Identity) -> Result<SignKey> {
    SignKey::from_secret(identity.to_string().expose_secret().as_bytes())
}

fn encrypt_key(text: &[u8], passphrase: &str) -> Result<Vec<u8>> {
    let failed = |reason: &dyn std::fmt::Display| Error::Key(format!("cannot encrypt the key: {reason}"));
    let mut scrypt = age::scrypt::Recipient::new(passphrase.to_owned().into());
    // Not what this host does in a second: a fast one would make a key that no host takes.
    scrypt.set_work_factor(WORK_FACTOR);
    let encryptor = age::Encryptor::with_recipients(std::iter::once(&scrypt as &dyn age::Recipient))
        .map_err(|reason| failed(&reason))?;
    let mut stored = Vec::new();
    encryptor
        .wrap_output(&mut stored)
        .and_then(|mut writer| writer.write_all(text).and_then(|()| writer.finish()))
        .map_err(|reason| failed(&reason))?;
    Ok(stored)
}

fn decrypt_key(stored: &[u8], passphrase: &str) -> Result<x25519::Identity> {
    let failed = |reason: &dyn std::fmt::Display| {
        Error::Key(format!("cannot decrypt the store's key with this passphrase: {reason}"))
    };
    let mut scrypt = age::scrypt::Identity::new(passphrase.to_owned().into());
    scrypt.set_max_work_factor(MAX_WORK_FACTOR);
    let decryptor = age::Decryptor::new(stored).map_err(|reason| failed(&reason))?;
    let reader = decryptor
        .decrypt(std::iter::once(&scrypt as &dyn age::Identity))
        .map_err(|reason| failed(&reason))?;
    let mut text = String::new();
    reader.take(4096).read_to_string(&mut text).map_err(|reason| failed(&reason))?;
    text.trim().parse().map_err(|reason| failed(&reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> (String, PieceDecoder) {
        let identity = x25519::Identity::generate();
        (identity.to_public().to_string(), PieceDecoder { identities: vec![identity], verify_key: None })
    }

    #[test]
    fn a_piece_comes_back_as_it_was_and_another_key_does_not_open_it() {
        let (recipient, opening) = key();
        let sealing = PieceEncoder::for_recipients(&[recipient]).unwrap();
        let piece = b"INSERT INTO `t` VALUES (1);\n".repeat(1000);
        let stored = sealing.encode(&piece).unwrap();
        assert!(stored.len() < piece.len() / 10 && stored.starts_with(b"age-encryption.org/v1"));
        let name = sealing.hash_piece(&piece);
        assert_ne!(name, ContentHash::hash(&piece));
        let name_key = sealing.name_key;
        assert_eq!(opening.decode(name, name_key.as_ref(), stored.clone()).unwrap(), piece);
        let wrong = key().1.decode(name, name_key.as_ref(), stored.clone()).unwrap_err();
        assert!(wrong.to_string().contains("the key that was given"), "{wrong}");
        assert!(PieceDecoder::default().decode(name, name_key.as_ref(), stored).is_err());
    }

    #[test]
    fn a_store_does_not_decide_how_much_memory_its_key_takes() {
        let secret = x25519::Identity::generate().to_string();
        let stored = encrypt_key(secret.expose_secret().as_bytes(), "phrase").unwrap();
        let head = String::from_utf8_lossy(&stored[..stored.len().min(200)]).into_owned();
        assert!(head.lines().nth(1).unwrap().ends_with(" 18"), "{head}");
        assert!(decrypt_key(&stored, "phrase").is_ok());
        // 4 GiB, for a reader.
        let at = head.find(" 18\n").unwrap();
        let greedy = [&stored[..at], b" 22\n", &stored[at + 4..]].concat();
        let refused = decrypt_key(&greedy, "phrase").err().unwrap().to_string();
        assert!(refused.to_lowercase().contains("excessive work"), "{refused}");
    }

    #[test]
    fn a_piece_that_was_changed_or_swapped_is_never_handed_on() {
        let (sealing, opening) = (PieceEncoder::default(), PieceDecoder::default());
        let [one, other] = [&b"one\n"[..], b"other\n"]
            .map(|piece| (sealing.hash_piece(piece), sealing.encode(piece).unwrap()));
        assert!(opening.decode(one.0, None, one.1.clone()).is_ok());
        assert!(opening.decode(one.0, None, other.1).is_err());
        for at in 0..one.1.len() {
            let mut changed = one.1.clone();
            changed[at] ^= 1;
            let opened = opening.decode(one.0, None, changed);
            assert!(opened.as_ref().map_or(true, |piece| piece == b"one\n"), "byte {at}: {opened:?}");
        }
    }

    #[test]
    fn the_same_piece_has_the_same_name_for_the_same_recipients_in_any_order() {
        let [one, other] = [key().0, key().0];
        let name = |recipients: &[&String]| {
            let recipients: Vec<String> = recipients.iter().map(|word| (*word).clone()).collect();
            PieceEncoder::for_recipients(&recipients).unwrap().hash_piece(b"x")
        };
        assert_eq!(name(&[&one, &other]), name(&[&other, &one]));
        assert_ne!(name(&[&one]), name(&[&other]));
        assert!(PieceEncoder::for_recipients(&["age1nonsense".into()]).is_err());
    }
}
