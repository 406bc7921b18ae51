//! Responses of the client's authentication plugins to a password and a challenge.
//!
//! Pure functions. The handshake decides if the connection is private enough.

use ed25519_dalek::VerifyingKey;
use ed25519_dalek::hazmat::{ExpandedSecretKey, raw_sign};
use rsa::pkcs8::DecodePublicKey;
use rsa::rand_core::OsRng;
use rsa::{Oaep, RsaPublicKey};
use sha1::{Digest as _, Sha1};
use sha2::{Digest as _, Sha256, Sha512};

/// mysql_native_password: SHA1(p) xor SHA1(challenge, SHA1(SHA1(p))); empty for no password.
pub fn native_response(password: &[u8], challenge: &[u8]) -> Vec<u8> {
    if password.is_empty() {
        return Vec::new();
    }
    let once = Sha1::digest(password);
    let twice = Sha1::digest(once);
    let mask = Sha1::new().chain_update(challenge).chain_update(twice).finalize();
    once.iter().zip(mask).map(|(a, b)| a ^ b).collect()
}

/// caching_sha2_password's first answer: SHA256(p) xor SHA256(SHA256(SHA256(p)), challenge).
pub fn caching_sha2_response(password: &[u8], challenge: &[u8]) -> Vec<u8> {
    if password.is_empty() {
        return Vec::new();
    }
    let once = Sha256::digest(password);
    let twice = Sha256::digest(once);
    let mask = Sha256::new().chain_update(twice).chain_update(challenge).finalize();
    once.iter().zip(mask).map(|(a, b)| a ^ b).collect()
}

/// client_ed25519 (MariaDB): an Ed25519 signature of the challenge (RFC 8032), the password itself
/// taking the place of the 32-byte seed.
pub fn ed25519_response(password: &[u8], challenge: &[u8]) -> Vec<u8> {
    let secret = ExpandedSecretKey::from_bytes(&Sha512::digest(password).into());
    raw_sign::<Sha512>(&secret, challenge, &VerifyingKey::from(&secret)).to_bytes().to_vec()
}

/// The password masked with the challenge and encrypted for the server's RSA key (PEM):
/// RSAES-OAEP with SHA-1 (RFC 8017, 7.1.1), which is what the servers' OpenSSL call defaults to.
pub fn rsa_encrypt_password(password: &[u8], challenge: &[u8], pem: &str) -> Result<Vec<u8>, String> {
    let key = RsaPublicKey::from_public_key_pem(pem.trim_matches('\0'))
        .map_err(|e| format!("the server's public key cannot be read: {e}"))?;
    let mut message: Vec<u8> = password.iter().copied().chain([0]).collect();
    if !challenge.is_empty() {
        message.iter_mut().zip(challenge.iter().cycle()).for_each(|(m, c)| *m ^= c);
    }
    key.encrypt(&mut OsRng, Oaep::new::<Sha1>(), &message).map_err(|e| match e {
        rsa::Error::MessageTooLong => "the password is too long for the server's RSA key: use TLS".into(),
        other => format!("the password cannot be encrypted for the server's RSA key: {other}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rsa::RsaPrivateKey;
    use rsa::pkcs8::EncodePublicKey;

    #[test]
    fn no_password_answers_with_nothing() {
        assert!(native_response(b"", b"12345678901234567890").is_empty());
        assert!(caching_sha2_response(b"", b"12345678901234567890").is_empty());
    }

    #[test]
    fn a_server_can_check_native_with_the_double_hash_alone() {
        let (password, challenge) = (b"geheim", b"abcdefghijklmnopqrst");
        let stored = Sha1::digest(Sha1::digest(password));
        let mask = Sha1::new().chain_update(challenge).chain_update(stored).finalize();
        let once: Vec<u8> =
            native_response(password, challenge).iter().zip(mask).map(|(a, b)| a ^ b).collect();
        assert_eq!(Sha1::digest(once), stored);
    }

    #[test]
    fn ed25519_signs_as_rfc_8032_does() {
        // RFC 8032, 7.1, test 1: empty message.
        let hex = |s: &str| -> Vec<u8> {
            (0..s.len()).step_by(2).map(|i| u8::from_str_radix(&s[i..i + 2], 16).unwrap()).collect()
        };
        let seed = hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
        let signature = "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155\
                         5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b";
        assert_eq!(ed25519_response(&seed, b""), hex(signature));
    }

    #[test]
    fn an_encrypted_password_is_what_the_private_key_opens() {
        let private = RsaPrivateKey::new(&mut OsRng, 1024).unwrap();
        let pem = private.to_public_key().to_public_key_pem(Default::default()).unwrap();
        let challenge = b"01234567890123456789";
        let sealed = rsa_encrypt_password(b"geheim", challenge, &pem).unwrap();
        let message = private.decrypt(Oaep::new::<Sha1>(), &sealed).unwrap();
        let plain: Vec<u8> = message.iter().zip(challenge).map(|(a, b)| a ^ b).collect();
        assert_eq!(plain, b"geheim\0");
        assert!(rsa_encrypt_password(&[b'x'; 200], challenge, &pem).is_err());
        assert!(rsa_encrypt_password(b"x", challenge, "no key").is_err());
    }
}
