//! Fake MySQL server on loopback that tries to get the client's password, or to fill its memory.
//!
//! It knows no account. It greets, asks as its [`Trick`] says, and writes down what comes. The example
//! `hostile_server` of this crate serves one trick at a time to any client program.

use rsa::pkcs8::EncodePublicKey;
use rsa::{Oaep, RsaPrivateKey};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use toll_mysql::{Address, Secret, Target};
use toll_wire::protocol::capability::*;
use toll_wire::protocol::command::{COM_QUERY, COM_QUIT};
use toll_wire::protocol::{put_lenenc, put_packets};

/// What the server does to a client that logs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trick {
    /// Lets everybody in, and answers each statement with these packets.
    Answer(Vec<Vec<u8>>),
    /// Lets everybody in, and answers each statement with this many columns, described and with rows of NULLs, until
    /// the client hangs up or 512 MiB were sent.
    EndlessNulls(u16),
    /// Greets with a packet of this many bytes.
    LongGreeting(usize),
    /// Greets with this plugin as its default one.
    GreetWith(&'static str),
    /// Asks for the plugin, and for whatever the plugin lets it ask for.
    SwitchTo(&'static str),
    /// The same, but sends its public key behind that at once, without having been asked for it.
    UnaskedKey(&'static str),
}

impl Trick {
    /// A trick by its name: `mysql_clear_password`, `greet:dialog`, `unasked-key:sha256_password`, `endless-nulls`.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "endless-nulls" {
            return Some(Self::EndlessNulls(4_096));
        }
        let (trick, plugin) = text.split_once(':').unwrap_or(("switch", text));
        let known = ["mysql_clear_password", "dialog", "sha256_password", "caching_sha2_password"];
        let plugin = known.into_iter().find(|name| *name == plugin)?;
        match trick {
            "switch" => Some(Self::SwitchTo(plugin)),
            "greet" => Some(Self::GreetWith(plugin)),
            "unasked-key" => Some(Self::UnaskedKey(plugin)),
            _ => None,
        }
    }
}

/// What the server has of its clients.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loot {
    pub connections: usize,
    /// Client capabilities of each login.
    pub capabilities: Vec<u32>,
    /// All payloads that clients sent, the logins first.
    pub payloads: Vec<Vec<u8>>,
    /// Passwords that were sent in clear text, or for the server's own key.
    pub passwords: Vec<String>,
}

impl Loot {
    /// True if the password can be read in what came, or was.
    pub fn holds(&self, password: &str) -> bool {
        let bytes = password.as_bytes();
        self.passwords.iter().any(|found| found == password)
            || self.payloads.iter().any(|payload| payload.windows(bytes.len()).any(|window| window == bytes))
    }
}

/// Serves one trick to every client until it is dropped.
#[derive(Debug)]
pub struct HostileServer {
    port: u16,
    loot: Arc<Mutex<Loot>>,
    is_ended: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
}

const CHALLENGE: &[u8; 20] = b"abcdefghijklmnopqrst";
const RSA_BYTES: usize = 256;
const PATIENCE: Duration = Duration::from_secs(20);
const ENDLESS: usize = 512 << 20;
/// Of an OK packet that ends rows.
const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];
const END_OF_ROWS: &[u8] = &[0xfe, 0, 0, 2, 0, 0, 0];

impl HostileServer {
    /// Over TCP, without TLS.
    pub fn start(trick: Trick) -> Self {
        Self::listen(trick, None)
    }

    /// Offers TLS with `server.pem` and `server.key` of this directory (see [`crate::server::make_certificates`]).
    pub fn start_with_tls(trick: Trick, certificates: &Path) -> Self {
        let chain = CertificateDer::pem_file_iter(certificates.join("server.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(certificates.join("server.key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain.map(Result::unwrap).collect(), key)
            .unwrap();
        Self::listen(trick, Some(Arc::new(config)))
    }

    fn listen(trick: Trick, tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (loot, is_ended) = (Arc::new(Mutex::new(Loot::default())), Arc::new(AtomicBool::new(false)));
        let (seen, ended) = (loot.clone(), is_ended.clone());
        let server = std::thread::spawn(move || {
            while let Ok((peer, _)) = listener.accept() {
                if ended.load(SeqCst) {
                    return;
                }
                seen.lock().unwrap().connections += 1;
                // A client that hangs up has seen through it.
                let _ = serve(peer, &trick, tls.clone(), &seen);
            }
        });
        Self { port, loot, is_ended, server: Some(server) }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// A client of this server that has this password.
    pub fn target(&self, password: &str) -> Target {
        let address = Address::Tcp { host: "127.0.0.1".into(), port: self.port };
        Target { address, password: Secret::new(password), ..Target::default() }
    }

    /// What there is by now.
    pub fn loot(&self) -> Loot {
        self.loot.lock().unwrap().clone()
    }
}

impl Drop for HostileServer {
    fn drop(&mut self) {
        self.is_ended.store(true, SeqCst);
        // Wakes the accept.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

struct Client<'a> {
    stream: Box<dyn ReadWrite>,
    sequence: u8,
    loot: &'a Mutex<Loot>,
}

fn serve(
    peer: TcpStream,
    trick: &Trick,
    tls: Option<Arc<rustls::ServerConfig>>,
    loot: &Mutex<Loot>,
) -> io::Result<()> {
    peer.set_read_timeout(Some(PATIENCE))?;
    peer.set_write_timeout(Some(PATIENCE))?;
    let mut client = Client { stream: Box::new(peer.try_clone()?), sequence: 0, loot };
    let default = if let Trick::GreetWith(plugin) = trick { plugin } else { "mysql_native_password" };
    match trick {
        Trick::LongGreeting(length) => client.send(&vec![10; *length])?,
        _ => client.send(&greeting(default, tls.is_some()))?,
    }
    let mut login = client.receive()?;
    if let Some(config) = tls.filter(|_| login.len() == 32) {
        let connection = rustls::ServerConnection::new(config).map_err(io::Error::other)?;
        client.stream = Box::new(rustls::StreamOwned::new(connection, peer));
        login = client.receive()?;
    }
    if let Some(capabilities) = login.first_chunk() {
        loot.lock().unwrap().capabilities.push(u32::from_le_bytes(*capabilities));
    }
    match trick {
        Trick::Answer(_) | Trick::EndlessNulls(_) | Trick::LongGreeting(_) => {}
        Trick::GreetWith(plugin) => {
            client.note_password(login_response(&login).unwrap_or_default());
            client.ask(plugin, login_response(&login).unwrap_or_default())?;
        }
        Trick::SwitchTo(plugin) => {
            client.send(&auth_switch(plugin))?;
            let response = client.receive()?;
            client.ask(plugin, &response)?;
        }
        Trick::UnaskedKey(plugin) => {
            client.send(&auth_switch(plugin))?;
            client.send(&public_key_packet())?;
            // The plugin's own response, and one to the key.
            client.receive()?;
            client.receive()?;
        }
    }
    client.send(OK)?;
    loop {
        client.sequence = 0;
        match client.receive()?.first() {
            None | Some(&COM_QUIT) => return Ok(()),
            Some(&COM_QUERY) => client.answer(trick)?,
            Some(_) => client.send(OK)?,
        }
    }
}

impl Client<'_> {
    fn send(&mut self, payload: &[u8]) -> io::Result<()> {
        let mut packet = Vec::new();
        self.sequence = put_packets(&mut packet, self.sequence, payload);
        self.stream.write_all(&packet)?;
        self.stream.flush()
    }

    fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head)?;
        self.sequence = head[3].wrapping_add(1);
        let mut payload = vec![0; u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize];
        self.stream.read_exact(&mut payload)?;
        self.note_password(&payload);
        self.loot.lock().unwrap().payloads.push(payload.clone());
        Ok(payload)
    }

    /// Asks for all that the plugin can give, after its first response.
    fn ask(&mut self, plugin: &str, response: &[u8]) -> io::Result<()> {
        match plugin {
            "caching_sha2_password" => {
                self.send(&[1, 4])?;
                if self.receive()? == [2] {
                    self.send(&public_key_packet())?;
                    self.receive()?;
                }
            }
            "sha256_password" if response == [1] => {
                self.send(&public_key_packet())?;
                self.receive()?;
            }
            _ => {}
        }
        Ok(())
    }

    fn note_password(&mut self, payload: &[u8]) {
        let is_encrypted = payload.len() == RSA_BYTES;
        let opened =
            is_encrypted.then(|| private_key().decrypt(Oaep::new::<sha1::Sha1>(), payload).ok()).flatten();
        let unmasked = opened.map(|message| -> Vec<u8> {
            message.iter().zip(CHALLENGE.iter().cycle()).map(|(m, c)| m ^ c).collect()
        });
        // A response in clear text is the password and a zero byte.
        let clear = unmasked.as_deref().unwrap_or(payload).strip_suffix(&[0]);
        let Some(Ok(password)) = clear.map(std::str::from_utf8) else { return };
        if !password.is_empty() && !password.contains(char::is_control) {
            self.loot.lock().unwrap().passwords.push(password.to_owned());
        }
    }

    fn answer(&mut self, trick: &Trick) -> io::Result<()> {
        match trick {
            Trick::Answer(packets) => packets.iter().try_for_each(|packet| self.send(packet)),
            Trick::EndlessNulls(columns) => {
                let mut count = Vec::new();
                put_lenenc(&mut count, u64::from(*columns));
                self.send(&count)?;
                for _ in 0..*columns {
                    self.send(&column_definition(b"c"))?;
                }
                let row = vec![0xfb; usize::from(*columns)];
                (0..ENDLESS / row.len()).try_for_each(|_| self.send(&row))?;
                self.send(END_OF_ROWS)
            }
            _ => self.send(OK),
        }
    }
}

/// A column of this name, as results describe it.
pub fn column_definition(name: &[u8]) -> Vec<u8> {
    let mut packet = b"\x03def\0\0\0".to_vec();
    put_lenenc(&mut packet, name.len() as u64);
    packet.extend_from_slice(name);
    packet.extend([0, 12, 45, 0, 1, 0, 0, 0, 253, 0, 0, 0, 0, 0]);
    packet
}

fn greeting(plugin: &str, tls: bool) -> Vec<u8> {
    let capabilities = CLIENT_LONG_PASSWORD
        | CLIENT_PROTOCOL_41
        | CLIENT_CONNECT_WITH_DB
        | CLIENT_SECURE_CONNECTION
        | CLIENT_MULTI_STATEMENTS
        | CLIENT_MULTI_RESULTS
        | CLIENT_PLUGIN_AUTH
        | CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA
        | CLIENT_DEPRECATE_EOF
        | if tls { CLIENT_SSL } else { 0 };
    let [a, b, c, d] = capabilities.to_le_bytes();
    let mut greeting = b"\x0a8.0.36\0\x01\0\0\0".to_vec();
    greeting.extend_from_slice(&CHALLENGE[..8]);
    greeting.extend([0, a, b, 45, 2, 0, c, d, 21]);
    greeting.extend([0; 10]);
    greeting.extend_from_slice(&CHALLENGE[8..]);
    greeting.push(0);
    greeting.extend_from_slice(plugin.as_bytes());
    greeting.push(0);
    greeting
}

fn auth_switch(plugin: &str) -> Vec<u8> {
    [&[0xfe], plugin.as_bytes(), &[0], CHALLENGE, &[0]].concat()
}

/// The response of a login packet to the greeting.
fn login_response(login: &[u8]) -> Option<&[u8]> {
    let user_end = 32 + login.get(32..)?.iter().position(|byte| *byte == 0)?;
    let length = usize::from(*login.get(user_end + 1)?);
    login.get(user_end + 2..user_end + 2 + length)
}

/// One key for all servers of a program: making it takes a second.
fn private_key() -> &'static RsaPrivateKey {
    static KEY: OnceLock<RsaPrivateKey> = OnceLock::new();
    KEY.get_or_init(|| RsaPrivateKey::new(&mut rsa::rand_core::OsRng, RSA_BYTES * 8).unwrap())
}

/// The public key (PEM) of a server that is another one.
pub fn new_public_key() -> String {
    let private = RsaPrivateKey::new(&mut rsa::rand_core::OsRng, RSA_BYTES * 8).unwrap();
    private.to_public_key().to_public_key_pem(Default::default()).unwrap()
}

fn public_key_packet() -> Vec<u8> {
    let pem = private_key().to_public_key().to_public_key_pem(Default::default()).unwrap();
    [&[1], pem.as_bytes()].concat()
}
