//! Over what do the bytes travel: TCP, a Unix socket, or TLS over either? Never looks into them.

use super::error::Error;
use crate::target::{Address, Target, Tls};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// What a password may be sent over: plugins differ in whether a Unix socket is private enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    Open,
    Local,
    Encrypted,
}

#[derive(Debug)]
pub enum Stream {
    Plain(Socket),
    Tls(Box<StreamOwned<ClientConnection, Socket>>),
}

impl Socket {
    /// Connects, with Nagle off (requests are single writes) and `timeout` on every step.
    pub fn connect(address: &Address, timeout: Duration) -> Result<Self, Error> {
        let failed = |unix: bool| {
            move |source: io::Error| Error::Connect { address: address.to_string(), unix, source }
        };
        let socket = match address {
            Address::Unix(path) => Self::Unix(UnixStream::connect(path).map_err(failed(true))?),
            Address::Tcp { host, port } => {
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
                let found = (host.as_str(), *port).to_socket_addrs().map_err(failed(false))?;
                let connected = found.into_iter().find_map(|address| {
                    TcpStream::connect_timeout(&address, timeout).map_err(|e| last = e).ok()
                });
                let stream = connected.ok_or(last).map_err(failed(false))?;
                stream.set_nodelay(true).map_err(failed(false))?;
                Self::Tcp(stream)
            }
        };
        socket.set_timeouts(Some(timeout), Some(timeout)).map_err(failed(socket.is_unix()))?;
        Ok(socket)
    }

    fn is_unix(&self) -> bool {
        matches!(self, Self::Unix(_))
    }

    fn set_timeouts(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(s) => s.set_read_timeout(read).and_then(|()| s.set_write_timeout(write)),
            Self::Unix(s) => s.set_read_timeout(read).and_then(|()| s.set_write_timeout(write)),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.read(buffer),
            Self::Unix(s) => s.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.write(bytes),
            Self::Unix(s) => s.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream {
    fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        }
    }

    /// Who could listen?
    pub fn channel(&self) -> Channel {
        match self {
            Self::Tls(_) => Channel::Encrypted,
            Self::Plain(Socket::Unix(_)) => Channel::Local,
            Self::Plain(Socket::Tcp(_)) => Channel::Open,
        }
    }

    pub fn set_timeouts(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()> {
        self.socket().set_timeouts(read, write)
    }

    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        match self.socket() {
            Socket::Tcp(s) => s.set_nonblocking(on),
            Socket::Unix(s) => s.set_nonblocking(on),
        }
    }

    /// Turns a plain stream into an encrypted one, handshake included.
    pub fn encrypted(self, target: &Target) -> Result<Self, Error> {
        let Self::Plain(socket) = self else {
            return Err(Error::Tls("the stream is encrypted already".into()));
        };
        let name = match &target.address {
            Address::Tcp { host, .. } => host.as_str(),
            Address::Unix(_) => "localhost",
        };
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| Error::Tls(format!("{name:?} is no name that a certificate could hold")))?;
        let connection =
            ClientConnection::new(config(&target.tls)?, name).map_err(|e| Error::Tls(e.to_string()))?;
        let mut stream = StreamOwned::new(connection, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).map_err(|e| Error::Tls(tls_reason(&e)))?;
        }
        Ok(Self::Tls(Box::new(stream)))
    }
}

fn tls_reason(error: &io::Error) -> String {
    format!("{error}; a server that offers only TLS 1.1 or older cannot be reached encrypted")
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.socket() {
            Socket::Tcp(s) => s.as_fd(),
            Socket::Unix(s) => s.as_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

fn config(tls: &Tls) -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(super::dhe::provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::Tls(e.to_string()))?;
    let config = match tls {
        Tls::Verified { ca } => {
            let bad = |e: &dyn std::fmt::Display| {
                Error::Tls(format!("cannot use {} as CA file: {e}", ca.display()))
            };
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_file_iter(ca).map_err(|e| bad(&e))? {
                roots.add(certificate.map_err(|e| bad(&e))?).map_err(|e| bad(&e))?;
            }
            builder.with_root_certificates(roots).with_no_client_auth()
        }
        Tls::Off | Tls::Required => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

/// Accepts every certificate, as `--ssl-mode=REQUIRED` does: encryption without identity.
#[derive(Debug)]
struct AnyCertificate(Arc<rustls::crypto::CryptoProvider>);

impl rustls::client::danger::ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms).or_else(|error| {
            // Servers generate themselves X.509 v1 certificates, which webpki will not parse; with
            // no identity to check there is nothing that the signature could vouch for.
            match error {
                rustls::Error::InvalidCertificate(_) => {
                    Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
                }
                other => Err(other),
            }
        })
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms).or_else(|error| {
            match error {
                rustls::Error::InvalidCertificate(_) => {
                    Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
                }
                other => Err(other),
            }
        })
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
