//! Authentication of senders and receivers by a shared key file.
//!
//! The file holds a certificate and its private key, generated for each other and for no other use. Both ends
//! present the certificate in a TLS 1.3 handshake, prove that they hold its key, and accept no other. Names,
//! authorities and dates play no part.

use anyhow::{Context, Result, bail, ensure};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use toll_sys::atomic_file::AtomicFile;

/// The name in each certificate; nothing depends on it.
const NAME: &str = "toll";
/// A key file has 900 bytes or so.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Protection of a stream.
#[derive(Clone)]
pub enum Key {
    Shared(SharedKey),
    /// Nothing: whoever reaches the port may send, and whoever sees the network may read.
    Plain,
}

/// What both ends make of the key file.
#[derive(Clone)]
pub struct SharedKey {
    pub(super) client_config: Arc<ClientConfig>,
    pub(super) server_config: Arc<ServerConfig>,
    fingerprint: String,
}

impl Key {
    /// Makes a key file, for its owner alone. The answer is its fingerprint.
    ///
    /// # Errors
    /// A file of this name is there, or cannot be made.
    pub fn create(path: &Path) -> Result<String> {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).context("cannot make a key")?;
        let text = format!("{}{}", made.cert.pem(), made.signing_key.serialize_pem());
        let write = || {
            let mut file = AtomicFile::begin(path)?;
            file.write_all(text.as_bytes())?;
            file.create()
        };
        write().with_context(|| format!("cannot make the key file {}", path.display()))?;
        Ok(fingerprint(made.cert.der()))
    }

    /// Reads a key file.
    ///
    /// # Errors
    /// It is not there, anybody may read it, or it holds no key.
    pub fn read(path: &Path) -> Result<Self> {
        Self::read_shared(path).map(Self::Shared).with_context(|| format!("the key file {}", path.display()))
    }

    fn read_shared(path: &Path) -> Result<SharedKey> {
        let file = File::open(path).context("cannot be read: `toll receive --new-key FILE` makes one")?;
        let mode = file.metadata()?.permissions().mode();
        ensure!(
            mode & 0o007 == 0,
            "may be read by everybody: chmod 600 it, and make another if it was so for long"
        );
        let mut text = Vec::new();
        file.take(MAX_FILE_BYTES).read_to_end(&mut text).context("cannot be read")?;
        let certificate = CertificateDer::from_pem_slice(&text).ok();
        let private = PrivateKeyDer::from_pem_slice(&text).ok();
        let Some((certificate, private)) = certificate.zip(private) else {
            bail!("holds no key of toll's: `toll receive --new-key FILE` makes one");
        };
        SharedKey::new(certificate, private).context("holds no key that fits")
    }

    /// Fingerprint of the key; `None` without a key.
    pub fn fingerprint(&self) -> Option<&str> {
        match self {
            Self::Shared(shared) => Some(&shared.fingerprint),
            Self::Plain => None,
        }
    }
}

impl SharedKey {
    fn new(certificate: CertificateDer<'static>, private: PrivateKeyDer<'static>) -> Result<Self, Error> {
        let provider = Arc::new(ring::default_provider());
        let fingerprint = fingerprint(&certificate);
        let same = Arc::new(SameKeyVerifier {
            certificate: certificate.clone(),
            algorithms: provider.signature_verification_algorithms,
        });
        let sends = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous() // It is the one certificate, or none.
            .with_custom_certificate_verifier(same.clone())
            .with_client_auth_cert(vec![certificate.clone()], private.clone_key())?;
        let mut receives = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(same)
            .with_single_cert(vec![certificate], private)?;
        // Connections last; a handshake more or less does not matter.
        receives.send_tls13_tickets = 0;
        Ok(Self { client_config: Arc::new(sends), server_config: Arc::new(receives), fingerprint })
    }
}

/// The name that a sender asks for.
pub(super) fn server_name() -> Result<ServerName<'static>> {
    ServerName::try_from(NAME).context("cannot name the other end")
}

/// The first half of the certificate's SHA-256, in groups of four digits.
fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    let hash = Sha256::digest(certificate);
    let groups =
        hash.chunks(2).take(8).map(|two| two.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    groups.collect::<Vec<_>>().join("-")
}

/// Takes the one certificate, and whoever proves to hold its key.
#[derive(Debug)]
struct SameKeyVerifier {
    certificate: CertificateDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl SameKeyVerifier {
    fn compare(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        let same = shown.as_ref() == self.certificate.as_ref();
        same.then_some(()).ok_or(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn verify(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }
}

/// Both ends speak TLS 1.3 alone.
fn tls_too_old() -> Error {
    Error::General("TLS 1.2 is not spoken here".into())
}

impl ServerCertVerifier for SameKeyVerifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.compare(shown).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(tls_too_old())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for SameKeyVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.compare(shown).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(tls_too_old())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_is_its_owners_alone_and_is_never_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let made = Key::create(&path).unwrap();
        let read = Key::read(&path).unwrap();
        assert_eq!(read.fingerprint(), Some(made.as_str()));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(format!("{:#}", Key::create(&path).unwrap_err()).contains("cannot make the key file"));
        let another = Key::create(&dir.path().join("another")).unwrap();
        assert_ne!(another, made);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let refused = |path: &Path| format!("{:#}", Key::read(path).err().unwrap());
        assert!(refused(&path).contains("chmod 600"), "{}", refused(&path));
        let empty = dir.path().join("empty");
        toll_sys::private_file::create(&empty).unwrap();
        assert!(refused(&empty).contains("--new-key"), "{}", refused(&empty));
        assert!(refused(&dir.path().join("none")).contains("--new-key"));
    }
}
