//! Byte streams to a server: TCP, a Unix socket, or TLS over either. Never inspects the bytes.

use super::error::Error;
use crate::target::{Address, Target};
use crate::tls::{Tls, TlsOptions};
use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct,
    PeerIncompatible, RootCertStore, SignatureScheme, StreamOwned,
};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A connected socket. Once it stands, both kinds are alike to the kernel.
#[derive(Debug)]
pub struct Socket {
    fd: Arc<OwnedFd>,
    unix: bool,
    /// Reads block, for as long as the server takes.
    reads_block: bool,
}

/// Ends a connection from outside, whatever call another thread is blocked in on it.
#[derive(Debug, Default)]
pub struct AbortHandle(Weak<OwnedFd>);

impl AbortHandle {
    /// From now on reads find the end of the stream, and writes fail.
    pub fn abort(&self) {
        if let Some(fd) = self.0.upgrade() {
            // The server may have been faster.
            let _ = rustix::net::shutdown(&fd, Shutdown::Both);
        }
    }
}

/// Reads before a server that goes on talking after a goodbye is left behind.
const MAX_DRAIN_READS: u32 = 16;

/// What a password may be sent over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelSecurity {
    /// Anybody on the way can read, and be the server.
    Open,
    /// A Unix socket: the path says who the server is, and nobody is on the way.
    Local,
    /// Nobody can read, but anybody on the way can be the server.
    Encrypted,
    /// TLS with a server whose certificate was checked, or over a Unix socket.
    Verified,
}

#[derive(Debug)]
pub enum Stream {
    Plain(Socket),
    Tls(Box<StreamOwned<ClientConnection, Socket>>),
}

impl Socket {
    /// Connects, with Nagle off (requests are single writes) and `timeout` on every step. Over TCP the client's port is
    /// `client_port`, or where it is absent the kernel's choice.
    pub fn connect(address: &Address, client_port: Option<u16>, timeout: Duration) -> Result<Self, Error> {
        let unix = matches!(address, Address::Unix(_));
        let failed = |cause: io::Error| Error::ConnectFailed { address: address.to_string(), unix, cause };
        let connected = match address {
            Address::Unix(path) => connect_unix(path, timeout),
            Address::Tcp { host, port } => connect_tcp(host, *port, client_port, timeout),
        };
        Self::from_fd(connected.map_err(failed)?, address, timeout)
    }

    /// A socket that is connected to this address.
    pub fn from_fd(fd: OwnedFd, address: &Address, timeout: Duration) -> Result<Self, Error> {
        let unix = matches!(address, Address::Unix(_));
        let mut socket = Self { fd: Arc::new(fd), unix, reads_block: false };
        socket.set_timeouts(Some(timeout), Some(timeout)).map_err(|cause| Error::ConnectFailed {
            address: address.to_string(),
            unix,
            cause,
        })?;
        Ok(socket)
    }

    fn set_timeouts(&mut self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()> {
        set_socket_timeout(&self.fd, Timeout::Recv, read)?;
        set_socket_timeout(&self.fd, Timeout::Send, write)?;
        self.reads_block = read.is_none();
        Ok(())
    }
}

/// Where the server's backlog is full, connecting waits: no longer than `timeout`.
fn connect_unix(path: &Path, timeout: Duration) -> io::Result<OwnedFd> {
    let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&fd, Timeout::Send, Some(timeout))?;
    let address = SocketAddrUnix::new(path)?;
    rustix::io::retry_on_intr(|| rustix::net::connect(&fd, &address))?;
    Ok(fd)
}

/// To the first address of the name that answers.
fn connect_tcp(host: &str, port: u16, client_port: Option<u16>, timeout: Duration) -> io::Result<OwnedFd> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        let connected = match client_port {
            Some(client_port) => connect_from(address, client_port, timeout),
            None => TcpStream::connect_timeout(&address, timeout).map(OwnedFd::from),
        };
        match connected {
            Ok(fd) => {
                rustix::net::sockopt::set_tcp_nodelay(&fd, true)?;
                return Ok(fd);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The port may be one whose last connection is in TIME_WAIT.
fn connect_from(address: SocketAddr, client_port: u16, timeout: Duration) -> io::Result<OwnedFd> {
    let (family, own): (_, SocketAddr) = match address {
        SocketAddr::V4(_) => (AddressFamily::INET, (Ipv4Addr::UNSPECIFIED, client_port).into()),
        SocketAddr::V6(_) => (AddressFamily::INET6, (Ipv6Addr::UNSPECIFIED, client_port).into()),
    };
    let fd = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::sockopt::set_socket_reuseaddr(&fd, true)?;
    rustix::net::bind(&fd, &own)?;
    // To Linux the limit of sending is that of connecting, too.
    set_socket_timeout(&fd, Timeout::Send, Some(timeout))?;
    rustix::io::retry_on_intr(|| rustix::net::connect(&fd, &address))?;
    Ok(fd)
}

impl Read for Socket {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.unix && self.reads_block {
            // A read that blocks in a Unix socket is woken twice: the server's own read frees room to
            // write, and only poll can tell that from an answer.
            rustix::event::poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], None)?;
        }
        Ok(rustix::io::read(&self.fd, buffer)?)
    }
}

impl Write for Socket {
    /// A server that is gone is an error to count, never a signal.
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&self.fd, bytes, SendFlags::NOSIGNAL)?)
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

    fn socket_mut(&mut self) -> &mut Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &mut stream.sock,
        }
    }

    /// Kind of channel: who could eavesdrop on it, or be its other end. `tls` is what it was made with.
    pub fn channel_security(&self, tls: &Tls) -> ChannelSecurity {
        match self {
            Self::Tls(stream) if stream.sock.unix || tls.ca().is_some() => ChannelSecurity::Verified,
            Self::Tls(_) => ChannelSecurity::Encrypted,
            Self::Plain(socket) if socket.unix => ChannelSecurity::Local,
            Self::Plain(_) => ChannelSecurity::Open,
        }
    }

    pub fn set_timeouts(&mut self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()> {
        self.socket_mut().set_timeouts(read, write)
    }

    /// From now on no read and no write blocks.
    pub fn set_nonblocking(&mut self) -> io::Result<()> {
        let socket = self.socket_mut();
        rustix::io::ioctl_fionbio(&socket.fd, true)?;
        socket.reads_block = false;
        Ok(())
    }

    /// A handle that ends the connection while another thread is blocked in it.
    pub fn abort_handle(&self) -> AbortHandle {
        AbortHandle(Arc::downgrade(&self.socket().fd))
    }

    /// Waits, at most this long, until the other side has closed. What comes before that, encrypted or
    /// not, is its farewell and dropped.
    pub fn wait_for_close(&self, limit: Duration) -> io::Result<()> {
        let socket = self.socket();
        set_socket_timeout(&socket.fd, Timeout::Recv, Some(limit))?;
        let mut farewell = [0u8; 256];
        for _ in 0..MAX_DRAIN_READS {
            if rustix::io::read(&socket.fd, &mut farewell)? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Turns a plain stream into an encrypted one, handshake included. `server_version` is for the error.
    pub fn upgrade_to_tls(self, target: &Target, server_version: &str) -> Result<Self, Error> {
        let Self::Plain(socket) = self else {
            return Err(Error::Tls("the stream is encrypted already".into()));
        };
        let name = match &target.address {
            Address::Tcp { host, .. } => host.as_str(),
            Address::Unix(_) => "localhost",
        };
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| Error::Tls(format!("{name:?} is no name that a certificate could hold")))?;
        let connection = ClientConnection::new(tls_config(&target.tls, &target.tls_options)?, name)
            .map_err(|e| Error::Tls(e.to_string()))?;
        let mut stream = StreamOwned::new(connection, socket);
        while stream.conn.is_handshaking() {
            let step = stream.conn.complete_io(&mut stream.sock);
            step.map_err(|e| Error::Tls(explain_tls_error(&e, server_version)))?;
        }
        Ok(Self::Tls(Box::new(stream)))
    }
}

/// An old server answers with one of two alerts, or hangs up; neither tells a user what to do.
fn explain_tls_error(error: &io::Error, server_version: &str) -> String {
    const ADVICE: &str = "Update the server, or connect without TLS over loopback or a Unix socket.";
    match error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>()) {
        Some(
            rustls::Error::AlertReceived(AlertDescription::HandshakeFailure)
            | rustls::Error::PeerIncompatible(
                PeerIncompatible::NoCipherSuitesInCommon | PeerIncompatible::NoKxGroupsInCommon,
            ),
        ) => format!(
            "server {server_version} offers no TLS cipher suite that toll has. toll needs ECDHE: MySQL 8.0.16 \
             or later, or any supported MariaDB. {ADVICE}"
        ),
        Some(
            rustls::Error::AlertReceived(AlertDescription::ProtocolVersion)
            | rustls::Error::PeerIncompatible(
                PeerIncompatible::ServerDoesNotSupportTls12Or13
                | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
            ),
        ) => format!(
            "server {server_version} offers no TLS version that toll has. toll needs TLS 1.2 or 1.3. {ADVICE}"
        ),
        _ if error.kind() == io::ErrorKind::UnexpectedEof => format!(
            "server {server_version} ended the handshake. toll needs TLS 1.2 or 1.3 with ECDHE. {ADVICE}"
        ),
        _ => error.to_string(),
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().fd.as_fd()
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

fn tls_config(tls: &Tls, options: &TlsOptions) -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut versions = Vec::new();
    versions.extend((!options.without_tls12).then_some(&rustls::version::TLS12));
    versions.extend((!options.without_tls13).then_some(&rustls::version::TLS13));
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions)
        .map_err(|e| Error::Tls(e.to_string()))?;
    let builder = match tls {
        Tls::Verified { ca } => builder.with_root_certificates(read_authorities(ca)?),
        Tls::VerifiedCa { ca } => {
            let verifier =
                WebPkiServerVerifier::builder_with_provider(Arc::new(read_authorities(ca)?), provider)
                    .build()
                    .map_err(|e| unusable_file("CA file", ca, &e))?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyName(verifier)))
        }
        Tls::Off | Tls::Required => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        }
    };
    let Some(own) = &options.client_certificate else { return Ok(Arc::new(builder.with_no_client_auth())) };
    let invalid = |e: &dyn std::fmt::Display| unusable_file("client certificate", &own.certificate, e);
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(&own.certificate).map_err(|e| invalid(&e))?.collect();
    let key =
        PrivateKeyDer::from_pem_file(&own.key).map_err(|e| unusable_file("client key", &own.key, &e))?;
    let config = builder.with_client_auth_cert(chain.map_err(|e| invalid(&e))?, key);
    Ok(Arc::new(config.map_err(|e| invalid(&e))?))
}

fn unusable_file(what: &str, path: &Path, cause: &dyn std::fmt::Display) -> Error {
    Error::Tls(format!("cannot use {} as {what}: {cause}", path.display()))
}

fn read_authorities(ca: &Path) -> Result<RootCertStore, Error> {
    let invalid = |e: &dyn std::fmt::Display| unusable_file("CA file", ca, e);
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca).map_err(|e| invalid(&e))? {
        roots.add(certificate.map_err(|e| invalid(&e))?).map_err(|e| invalid(&e))?;
    }
    Ok(roots)
}

/// Accepts every name in a certificate from the right authority, as `ssl-mode=VERIFY_CA` does.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // The name is looked at last, when everything else holds.
        self.0.verify_server_cert(certificate, chain, name, ocsp, now).or_else(|error| match error {
            rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ) => Ok(ServerCertVerified::assertion()),
            other => Err(other),
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Accepts every certificate, as `ssl-mode=REQUIRED` does: encryption without identity.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
            .or_else(accept_old_certificate)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
            .or_else(accept_old_certificate)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Servers generate themselves X.509 v1 certificates, which webpki will not parse; with no identity to check there
/// is nothing that the signature could vouch for.
fn accept_old_certificate(error: rustls::Error) -> Result<HandshakeSignatureValid, rustls::Error> {
    match error {
        rustls::Error::InvalidCertificate(_) => Ok(HandshakeSignatureValid::assertion()),
        other => Err(other),
    }
}
