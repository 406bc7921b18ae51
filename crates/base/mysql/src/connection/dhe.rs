//! How is TLS spoken with servers that offer no elliptic curve: MySQL 5.7 and 8.0 before 8.0.16 as
//! published, built with OpenSSL 1.0?
//!
//! They offer Diffie-Hellman over one fixed group, which rustls allows for but does not bring. Only
//! TLS 1.2, and only beside the curves: a server that has curves prefers them.

use rsa::BigUint;
use rsa::rand_core::{OsRng, RngCore};
use rustls::crypto::ring::cipher_suite;
use rustls::crypto::{
    ActiveKeyExchange, CryptoProvider, KeyExchangeAlgorithm, SharedSecret, SupportedKxGroup,
};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{
    CipherSuite, CipherSuiteCommon, Error, NamedGroup, ProtocolVersion, SupportedCipherSuite,
    Tls12CipherSuite,
};
use std::sync::LazyLock;

/// The 2048-bit safe prime that those servers send in ServerKeyExchange, generator 5.
const PRIME: [u8; 256] = [
    0x8a, 0x5d, 0xfa, 0xc0, 0x66, 0x76, 0x4e, 0x61, 0xfa, 0xca, 0xc0, 0x37, 0x57, 0x5c, 0x6d, 0x3f, 0x83,
    0x0a, 0xa1, 0xf5, 0xf1, 0xe6, 0x7f, 0x3c, 0xc6, 0xaf, 0xda, 0x8b, 0x26, 0xe6, 0x1a, 0x74, 0x5e, 0x64,
    0xcb, 0xe2, 0x08, 0xf1, 0x09, 0xe3, 0xaf, 0xbb, 0x54, 0x29, 0x2d, 0x97, 0xf4, 0x59, 0xe6, 0x26, 0x83,
    0x1f, 0x55, 0xcd, 0x1b, 0x57, 0x55, 0x42, 0x6c, 0xe7, 0xb7, 0xda, 0x6e, 0xd8, 0x6d, 0xee, 0xb1, 0x4f,
    0xa4, 0xd7, 0xf5, 0x41, 0xe1, 0xb4, 0x0b, 0xe1, 0x98, 0x16, 0xe2, 0xed, 0x16, 0xcf, 0x18, 0x7d, 0x3f,
    0x25, 0xc3, 0x82, 0x59, 0xbd, 0xf4, 0x8f, 0x57, 0xca, 0x3e, 0x19, 0xe4, 0xf5, 0x44, 0xe0, 0xcc, 0x80,
    0xb3, 0x10, 0x91, 0x18, 0x0d, 0x64, 0x59, 0x0a, 0x43, 0xf7, 0xfc, 0xca, 0x01, 0xe8, 0x14, 0x04, 0xf2,
    0xcd, 0xa9, 0x2a, 0x3c, 0xf3, 0xa5, 0x2a, 0x83, 0xd8, 0x66, 0x9f, 0xc9, 0x2c, 0xc9, 0x4f, 0x44, 0x05,
    0x5e, 0x5e, 0x00, 0x47, 0x22, 0x0a, 0xe6, 0xb0, 0x87, 0xa5, 0x74, 0x3b, 0xe4, 0xa3, 0xfc, 0x2d, 0xdc,
    0x49, 0xf2, 0xe1, 0x80, 0x0d, 0x06, 0x71, 0x7a, 0x77, 0x3a, 0xa9, 0x66, 0x70, 0x3b, 0xba, 0x8d, 0x2e,
    0x60, 0x5a, 0x39, 0xf7, 0x2d, 0xd3, 0xf5, 0x53, 0x47, 0x6e, 0x57, 0x13, 0x01, 0x87, 0xf9, 0xde, 0x4d,
    0x20, 0x92, 0xbe, 0xd7, 0x1e, 0xe0, 0x20, 0x0c, 0x60, 0xc8, 0xca, 0x35, 0x58, 0x7d, 0x3f, 0x59, 0xee,
    0xfb, 0x67, 0x7d, 0x64, 0x7d, 0x8e, 0x77, 0x6c, 0x61, 0x44, 0x8a, 0x8c, 0x4d, 0xf0, 0x12, 0xd4, 0xa4,
    0xea, 0x17, 0x75, 0x66, 0x49, 0x6c, 0xcf, 0x14, 0x28, 0xc6, 0x9a, 0x3c, 0x71, 0xfd, 0xb8, 0x3a, 0x6c,
    0xe3, 0xa3, 0xa6, 0x06, 0x5a, 0xa6, 0xf0, 0x7a, 0x00, 0x15, 0xa5, 0x5a, 0x64, 0x66, 0x00, 0x05, 0x85,
    0xb7,
];
const GROUP: FfdheGroup<'static> = FfdheGroup { p: &PRIME, g: &[5] };
/// Twice the strength of the group (RFC 7919, 5.2), as bytes.
const SECRET_BYTES: usize = 32;

/// The ring provider, with this group and its suites after everything that ring brings.
pub fn provider() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.kx_groups.push(&ServersGroup);
    provider.cipher_suites.extend(SUITES.iter().map(SupportedCipherSuite::Tls12));
    provider
}

static SUITES: LazyLock<Vec<Tls12CipherSuite>> = LazyLock::new(|| {
    let like = |base: SupportedCipherSuite, suite: CipherSuite| match base {
        SupportedCipherSuite::Tls12(base) => Some(Tls12CipherSuite {
            common: CipherSuiteCommon {
                suite,
                hash_provider: base.common.hash_provider,
                confidentiality_limit: base.common.confidentiality_limit,
            },
            prf_provider: base.prf_provider,
            kx: KeyExchangeAlgorithm::DHE,
            sign: base.sign,
            aead_alg: base.aead_alg,
        }),
        SupportedCipherSuite::Tls13(_) => None,
    };
    let pairs = [
        (
            cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            CipherSuite::TLS_DHE_RSA_WITH_AES_256_GCM_SHA384,
        ),
        (
            cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            CipherSuite::TLS_DHE_RSA_WITH_AES_128_GCM_SHA256,
        ),
    ];
    pairs.into_iter().filter_map(|(base, suite)| like(base, suite)).collect()
});

#[derive(Debug)]
struct ServersGroup;

impl SupportedKxGroup for ServersGroup {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let mut secret = [0; SECRET_BYTES];
        OsRng.try_fill_bytes(&mut secret).map_err(|_| Error::FailedToGetRandomBytes)?;
        let secret = BigUint::from_bytes_be(&secret);
        let prime = BigUint::from_bytes_be(&PRIME);
        let public = padded(&BigUint::from(5_u8).modpow(&secret, &prime));
        Ok(Box::new(Exchange { secret, prime, public }))
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        Some(GROUP)
    }

    /// From the range for private use (RFC 7919, 9): it has no number of its own.
    fn name(&self) -> NamedGroup {
        NamedGroup::Unknown(0x01fc)
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        version == ProtocolVersion::TLSv1_2
    }
}

struct Exchange {
    secret: BigUint,
    prime: BigUint,
    public: Vec<u8>,
}

impl ActiveKeyExchange for Exchange {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        let one = BigUint::from(1_u8);
        let peer = BigUint::from_bytes_be(peer);
        // 0, 1 and p - 1 would make the secret known (RFC 7919, 3).
        if peer <= one || peer >= &self.prime - &one {
            return Err(rustls::PeerMisbehaved::InvalidKeyShare.into());
        }
        Ok(padded(&peer.modpow(&self.secret, &self.prime)).as_slice().into())
    }

    fn pub_key(&self) -> &[u8] {
        &self.public
    }

    fn group(&self) -> NamedGroup {
        ServersGroup.name()
    }
}

fn padded(number: &BigUint) -> Vec<u8> {
    let bytes = number.to_bytes_be();
    let mut out = vec![0; PRIME.len() - bytes.len()];
    out.extend_from_slice(&bytes);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_find_the_same_secret_and_a_trivial_share_is_refused() {
        let (ours, theirs) = (ServersGroup.start().unwrap(), ServersGroup.start().unwrap());
        let (our_share, their_share) = (ours.pub_key().to_vec(), theirs.pub_key().to_vec());
        let ours = ours.complete(&their_share).unwrap();
        let theirs = theirs.complete(&our_share).unwrap();
        assert_eq!(ours.secret_bytes(), theirs.secret_bytes());
        for trivial in [
            vec![0],
            vec![1],
            {
                let mut p = PRIME.to_vec();
                p[255] -= 1;
                p
            },
            PRIME.to_vec(),
        ] {
            assert!(ServersGroup.start().unwrap().complete(&trivial).is_err());
        }
    }
}
