//! Authentication of senders and receivers.
//!
//! Each end has a key of its own (`key_file.rs`). Both present its certificate in a TLS 1.3 handshake and prove that they
//! hold the private key. A sender takes its one receiver, a receiver the senders on its list. Names in certificates,
//! authorities and dates play no part.

use super::key_file::{self, CERTIFICATE_NAME, Fingerprint, KeyFile};
use anyhow::{Context, Result, anyhow, bail};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};
use std::path::Path;
use std::sync::Arc;

/// A sender's protection of its stream.
#[derive(Clone)]
pub enum SenderKey {
    Own(Arc<ClientConfig>),
    /// Nothing: whoever reaches the port may send, and whoever sees the network may read.
    Plain,
}

/// A receiver's protection of all streams.
#[derive(Clone)]
pub enum ReceiverKey {
    Own(Arc<ServerConfig>, Arc<KnownSenders>),
    /// As of [`SenderKey::Plain`].
    Plain,
}

/// Who may send, by the fingerprints of their certificates.
pub struct KnownSenders(Vec<(String, Fingerprint)>);

impl KnownSenders {
    /// Name of the sender with this certificate.
    pub fn name(&self, certificate: &CertificateDer<'_>) -> Option<&str> {
        let shown = Fingerprint::of(certificate);
        self.0.iter().find(|(_, known)| *known == shown).map(|(name, _)| name.as_str())
    }

    pub fn names(&self) -> Vec<&str> {
        self.0.iter().map(|(name, _)| name.as_str()).collect()
    }
}

impl SenderKey {
    /// Reads a sender's key file.
    ///
    /// # Errors
    /// It is not there, others may read it, or it is no sender's.
    pub fn read(path: &Path) -> Result<Self> {
        const MAKE: &str = "`toll receive keygen FILE --receiver KEY` makes one at the receiver";
        let key = KeyFile::read(path).map_err(|error| with_hint(error, MAKE))?;
        let Some(receiver) = key.receiver else {
            bail!("{} is a receiver's key, which no other host needs: {MAKE}", path.display());
        };
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous() // It is the one certificate, or none.
            .with_custom_certificate_verifier(PinnedVerifier::new(vec![receiver], &provider))
            .with_client_auth_cert(vec![key.certificate], key.private)
            .with_context(|| format!("{} holds no key that fits", path.display()))?;
        Ok(Self::Own(Arc::new(config)))
    }
}

impl ReceiverKey {
    /// Makes the key file of a receiver.
    ///
    /// # Errors
    /// A file of this name is there, or cannot be made.
    pub fn create(path: &Path) -> Result<()> {
        key_file::create_receiver(path)
    }

    /// Makes the key file of a sender, and adds the sender to the receiver's. Returns its name.
    ///
    /// # Errors
    /// There is such a sender or file already, or one of the files cannot be written.
    pub fn create_sender(receiver: &Path, sender: &Path) -> Result<String> {
        key_file::create_sender(receiver, sender)
    }

    /// Reads a receiver's key file.
    ///
    /// # Errors
    /// It is not there, others may read it, it is no receiver's, or nobody may send.
    pub fn read(path: &Path) -> Result<Self> {
        let key =
            KeyFile::read(path).map_err(|error| with_hint(error, "`toll receive keygen FILE` makes one"))?;
        if key.receiver.is_some() {
            bail!(
                "{} is a sender's key: a receiver has its own (`toll receive keygen FILE`)",
                path.display()
            );
        }
        if key.senders.is_empty() {
            bail!(
                "nobody may send yet: `toll receive keygen db1.key --receiver {}` makes a key for a host db1",
                path.display()
            );
        }
        let provider = Arc::new(ring::default_provider());
        let taken = key.senders.iter().map(|(_, known)| *known).collect();
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(PinnedVerifier::new(taken, &provider))
            .with_single_cert(vec![key.certificate], key.private)
            .with_context(|| format!("{} holds no key that fits", path.display()))?;
        // Connections last; a handshake more or less does not matter.
        config.send_tls13_tickets = 0;
        Ok(Self::Own(Arc::new(config), Arc::new(KnownSenders(key.senders))))
    }
}

fn with_hint(error: anyhow::Error, how_to_make: &str) -> anyhow::Error {
    if key_file::is_missing(&error) { anyhow!("{error:#}. {how_to_make}.") } else { error }
}

/// The name that a sender asks for.
pub(super) fn server_name() -> Result<ServerName<'static>> {
    ServerName::try_from(CERTIFICATE_NAME).context("cannot name the other end")
}

/// Takes certificates of a list, from whoever proves to hold their keys.
#[derive(Debug)]
struct PinnedVerifier {
    taken: Vec<Fingerprint>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl PinnedVerifier {
    fn new(taken: Vec<Fingerprint>, provider: &CryptoProvider) -> Arc<Self> {
        Arc::new(Self { taken, algorithms: provider.signature_verification_algorithms })
    }

    fn compare(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        let is_known = self.taken.contains(&Fingerprint::of(shown));
        is_known
            .then_some(())
            .ok_or(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
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

impl ServerCertVerifier for PinnedVerifier {
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

impl ClientCertVerifier for PinnedVerifier {
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
    fn each_end_takes_a_key_of_its_own_kind_and_says_how_to_make_one() {
        let dir = tempfile::tempdir().unwrap();
        let (receiver, sender) = (dir.path().join("receiver.key"), dir.path().join("db1.key"));
        let no_receiver = |path: &Path| format!("{:#}", ReceiverKey::read(path).err().unwrap());
        let no_sender = |path: &Path| format!("{:#}", SenderKey::read(path).err().unwrap());
        assert!(no_receiver(&receiver).contains("`toll receive keygen FILE` makes one"));
        assert!(no_sender(&sender).contains("keygen FILE --receiver KEY` makes one"));
        ReceiverKey::create(&receiver).unwrap();
        assert!(no_receiver(&receiver).contains("nobody may send yet"), "{}", no_receiver(&receiver));
        ReceiverKey::create_sender(&receiver, &sender).unwrap();
        let ReceiverKey::Own(_, known) = ReceiverKey::read(&receiver).unwrap() else { panic!("it is a key") };
        assert_eq!(known.names(), ["db1"]);
        SenderKey::read(&sender).unwrap();
        assert!(
            no_receiver(&sender).contains("a sender's key")
                && no_sender(&receiver).contains("a receiver's key")
        );
    }
}
