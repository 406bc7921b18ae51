//! Signature of a manifest: Ed25519, in the last field of its JSON.
//!
//! All bytes before that field are signed. So a manifest is checked before anything of it is parsed, and is JSON with
//! its signature too. Keys are PEM files, as `openssl genpkey -algorithm ed25519` writes them.

use crate::archive::ContentHash;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use toll_store::{Error, Result};

const FIELD: &[u8] = b",\"signature\":\"";
const END: &[u8] = b"\"}";
const BYTES: usize = 64;
/// What stands before the 32 bytes of an Ed25519 key in a public key file (RFC 8410).
const PUBLIC_KEY_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Key that signs manifests.
#[derive(Clone)]
pub struct SignKey(Arc<Ed25519KeyPair>);

/// Key that checks them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct VerifyKey([u8; 32]);

impl std::fmt::Debug for SignKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SignKey")
    }
}

impl SignKey {
    /// Of a file `-----BEGIN PRIVATE KEY-----`.
    pub fn from_pem(text: &str) -> Result<Self> {
        let parse = || {
            let der = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes()).ok()?;
            // openssl writes no public key beside the private one.
            Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_pkcs8_der()).ok()
        };
        parse().map(|pair| Self(Arc::new(pair))).ok_or_else(|| {
            Error::Key(
                "the signing key is no Ed25519 private key in PEM: run openssl genpkey -algorithm ed25519 -out FILE".into(),
            )
        })
    }

    /// Of a secret that those who back up and those who restore share.
    pub fn from_secret(secret: &[u8]) -> Result<Self> {
        let seed =
            Sha256::new().chain_update("toll backup, signature of manifests, 1\n").chain_update(secret);
        Ed25519KeyPair::from_seed_unchecked(&seed.finalize())
            .map(|pair| Self(Arc::new(pair)))
            .map_err(|reason| Error::Key(format!("cannot make a signing key: {reason}")))
    }

    pub fn verify_key(&self) -> Result<VerifyKey> {
        let bytes = self.0.public_key().as_ref().try_into();
        bytes.map(VerifyKey).map_err(|_| Error::Key("the signing key has no public key".into()))
    }

    /// The same JSON object with its signature as the last field.
    pub(crate) fn sign(&self, mut object: Vec<u8>) -> Vec<u8> {
        if object.last() == Some(&b'}') {
            object.pop();
        }
        let signature = self.0.sign(&object);
        object.extend_from_slice(FIELD);
        signature.as_ref().iter().for_each(|byte| object.extend_from_slice(format!("{byte:02x}").as_bytes()));
        object.extend_from_slice(END);
        object
    }
}

impl VerifyKey {
    /// Of a file `-----BEGIN PUBLIC KEY-----`.
    pub fn from_pem(text: &str) -> Result<Self> {
        let parse = || {
            let der = SubjectPublicKeyInfoDer::from_pem_slice(text.as_bytes()).ok()?;
            der.strip_prefix(&PUBLIC_KEY_HEAD)?.try_into().ok()
        };
        parse().map(Self).ok_or_else(|| {
            Error::Key(
                "the verification key is no Ed25519 public key in PEM: run openssl pkey -in SIGN_KEY -pubout -out FILE"
                    .into(),
            )
        })
    }

    /// Fails unless the object ends with a signature of this key over all that stands before.
    pub(crate) fn check(&self, object: &[u8]) -> Result<(), &'static str> {
        let (signed, signature) = split_signature(object).ok_or("it is not signed")?;
        let key = UnparsedPublicKey::new(&ED25519, self.0);
        key.verify(signed, &signature).map_err(|_| "its signature is not of the key that was given")
    }
}

fn split_signature(object: &[u8]) -> Option<(&[u8], Vec<u8>)> {
    let object = object.strip_suffix(END)?;
    let (object, digits) = object.split_at_checked(object.len().checked_sub(BYTES * 2)?)?;
    let halves = std::str::from_utf8(digits).ok()?.split_at_checked(BYTES)?;
    let halves = [ContentHash::parse(halves.0)?.0, ContentHash::parse(halves.1)?.0];
    Some((object.strip_suffix(FIELD)?, halves.concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 8410, section 10: for tests alone.
    const PRIVATE: &str = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
        -----END PRIVATE KEY-----\n";
    const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\n\
        MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n\
        -----END PUBLIC KEY-----\n";

    #[test]
    fn a_signed_object_is_json_and_no_byte_of_it_can_be_changed() {
        let key = SignKey::from_pem(PRIVATE).unwrap();
        let public = VerifyKey::from_pem(PUBLIC).unwrap();
        assert!(key.verify_key().unwrap() == public);
        let object = key.sign(br#"{"id":"a","pieces":[1]}"#.to_vec());
        public.check(&object).unwrap();
        let parsed: serde_json::Value = serde_json::from_slice(&object).unwrap();
        assert_eq!((&parsed["id"], parsed["signature"].as_str().unwrap().len()), (&"a".into(), 128));
        for at in 0..object.len() {
            let mut changed = object.clone();
            changed[at] ^= 1;
            assert!(public.check(&changed).is_err(), "byte {at}");
            assert!(public.check(&object[..at]).is_err(), "{at} bytes");
        }
        assert_eq!(public.check(br#"{"id":"a"}"#), Err("it is not signed"));
        let other = SignKey::from_secret(b"other").unwrap();
        assert!(public.check(&other.sign(br#"{"id":"a"}"#.to_vec())).is_err());
    }

    #[test]
    fn only_ed25519_keys_are_taken_and_none_is_shown() {
        for text in [
            "",
            PUBLIC,
            &PRIVATE.replace("MC4C", "MC4D"),
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        ] {
            let refused = SignKey::from_pem(text).unwrap_err().to_string();
            assert!(refused.contains("openssl genpkey") && !refused.contains("MC4"), "{refused}");
        }
        for text in ["", PRIVATE, &PUBLIC.replace("MCow", "MCox")] {
            assert!(VerifyKey::from_pem(text).is_err(), "{text}");
        }
    }
}
