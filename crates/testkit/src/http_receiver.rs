//! HTTP server that records what it gets, and answers as its test says.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// One request.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub at: Instant,
}

impl HttpRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// What it answers.
#[derive(Debug, Clone)]
pub struct HttpAnswer {
    /// `200 OK`
    pub status: String,
    /// Lines without their ends.
    pub headers: Vec<String>,
    pub body: Vec<u8>,
}

impl HttpAnswer {
    pub fn of(status: &str) -> Self {
        Self { status: status.into(), headers: Vec::new(), body: Vec::new() }
    }
}

/// Answers until the test ends.
pub struct HttpReceiver {
    address: SocketAddr,
    scheme: &'static str,
    requests: mpsc::Receiver<HttpRequest>,
}

type Answer = Box<dyn FnMut(&HttpRequest) -> HttpAnswer + Send>;

impl HttpReceiver {
    /// On a port of 127.0.0.1. `answer` is asked by one connection at a time; while it does not return, nobody has an answer.
    pub fn start(answer: impl FnMut(&HttpRequest) -> HttpAnswer + Send + 'static) -> Self {
        Self::listen(None, Box::new(answer))
    }

    /// With TLS, by `server.pem` and `server.key` of a directory.
    pub fn start_with_tls(
        certificates: &Path,
        answer: impl FnMut(&HttpRequest) -> HttpAnswer + Send + 'static,
    ) -> Self {
        let certificate = CertificateDer::from_pem_file(certificates.join("server.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(certificates.join("server.key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        Self::listen(Some(Arc::new(config)), Box::new(answer))
    }

    fn listen(tls: Option<Arc<rustls::ServerConfig>>, answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, scheme) =
            (listener.local_addr().unwrap(), if tls.is_some() { "https" } else { "http" });
        let (recorded, requests) = mpsc::channel();
        let answer = Arc::new(Mutex::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (tls, answer, recorded) = (tls.clone(), Arc::clone(&answer), recorded.clone());
                // A client that hangs up early is the test's affair.
                std::thread::spawn(move || drop(serve(stream, tls, &answer, &recorded)));
            }
        });
        Self { address, scheme, requests }
    }

    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// The next request; `None`: none came so far.
    pub fn try_next(&self) -> Option<HttpRequest> {
        self.requests.try_recv().ok()
    }

    /// The next request, once it has come.
    pub fn next(&self) -> HttpRequest {
        self.requests.recv_timeout(crate::HANG_TIMEOUT).unwrap()
    }
}

fn serve(
    stream: TcpStream,
    tls: Option<Arc<rustls::ServerConfig>>,
    answer: &Mutex<Answer>,
    recorded: &Sender<HttpRequest>,
) -> io::Result<()> {
    match tls {
        None => exchange(stream, answer, recorded),
        Some(config) => {
            let connection = rustls::ServerConnection::new(config).map_err(io::Error::other)?;
            exchange(rustls::StreamOwned::new(connection, stream), answer, recorded)
        }
    }
}

fn exchange(
    mut stream: impl Read + Write,
    answer: &Mutex<Answer>,
    recorded: &Sender<HttpRequest>,
) -> io::Result<()> {
    let request = read_request(&mut stream)?;
    // Nobody may listen any more.
    let _ = recorded.send(request.clone());
    let HttpAnswer { status, headers, body } = (answer.lock().unwrap())(&request);
    let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(&[head.as_bytes(), &body].concat())?;
    stream.flush()
}

fn read_request(stream: &mut impl Read) -> io::Result<HttpRequest> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 1 << 16]);
    let mut more = |bytes: &mut Vec<u8>| match stream.read(&mut piece)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        read => {
            bytes.extend_from_slice(&piece[..read]);
            Ok::<(), io::Error>(())
        }
    };
    let body_at = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        more(&mut bytes)?;
    };
    let head = String::from_utf8_lossy(&bytes[..body_at]).into_owned();
    let mut lines = head.lines();
    let path = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default().to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    while bytes.len() < body_at + length {
        more(&mut bytes)?;
    }
    Ok(HttpRequest { path, headers, body: bytes.split_off(body_at), at: Instant::now() })
}
