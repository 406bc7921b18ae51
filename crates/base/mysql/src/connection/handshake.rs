//! Login handshake: greeting, TLS, authentication, compression.
//!
//! # Invariants
//! The server chooses the plugin, and whoever sits in between can be the server. So a password goes in clear text
//! only over a Unix socket or to a verified server, and is encrypted only for a key that was asked for; anything
//! else needs an option of the user's ([`PasswordOptIns`](crate::PasswordOptIns)).

use super::auth;
use super::error::Error;
use super::frame_codec::FrameCodec;
use super::packet_io::PacketIo;
use super::rows::{ResultFormat, parse_error};
use super::stream::ChannelSecurity;
use crate::target::{Compression, Target};
use crate::tls::Tls;
use toll_wire::protocol::capability::*;
use toll_wire::protocol::{FieldReader, put_lenenc};

/// utf8mb4_general_ci: the one 4-byte collation that every server since 5.5 knows.
const CHARSET: u8 = 45;
/// What we announce; servers cut it down to their own limit.
const MAX_ALLOWED_PACKET: u32 = 1 << 30;
/// Greetings, challenges and public keys have less than a kilobyte, and errors a text of 512 bytes.
const MAX_LOGIN_PACKET: usize = 64 << 10;
/// A server needs at most switch, fast-path answer, key, result; MariaDB switches once for each plugin of an account.
const MAX_AUTH_PACKETS: u32 = 8;
const DOING: &str = "logging in";

/// Session properties that the server reported.
#[derive(Debug, Clone)]
pub struct SessionInfo {
    pub server_version: String,
    pub connection_id: u32,
    pub result_format: ResultFormat,
}

struct Greeting {
    version: String,
    connection_id: u32,
    capabilities: u32,
    /// Bits 32 and up; 0 unless this is MariaDB.
    mariadb: u32,
    challenge: Vec<u8>,
    plugin: String,
}

/// Runs the whole handshake; afterwards the wire is ready for commands.
pub fn perform_handshake(mut wire: PacketIo, target: &Target) -> Result<(PacketIo, SessionInfo), Error> {
    let mut payload = Vec::new();
    read_packet(&mut wire, &mut payload)?;
    let greeting = parse_greeting(&payload)?;
    let capabilities = negotiate(&greeting, target)?;
    let mariadb = greeting.mariadb & MARIADB_CLIENT_CACHE_METADATA;
    if target.tls != Tls::Off {
        wire.send_reply(&request_prefix(capabilities, mariadb)).map_err(connection_lost)?;
        wire = wire.upgrade_to_tls(|stream| stream.upgrade_to_tls(target, &greeting.version))?;
    }
    let mut login = request_prefix(capabilities, mariadb);
    login.extend_from_slice(target.user.as_bytes());
    login.push(0);
    let mut auth =
        Authenticator::new(target, wire.stream().channel_security(&target.tls), greeting.challenge);
    let first = auth.begin(&greeting.plugin)?;
    put_lenenc(&mut login, first.len() as u64);
    login.extend_from_slice(&first);
    if let Some(db) = &target.db {
        login.extend_from_slice(db.as_bytes());
        login.push(0);
    }
    login.extend_from_slice(auth.plugin.as_bytes());
    login.push(0);
    if capabilities & CLIENT_CONNECT_ATTRS != 0 {
        let mut attributes = Vec::new();
        for text in ["program_name", "toll", "_client_name", "toll"] {
            put_lenenc(&mut attributes, text.len() as u64);
            attributes.extend_from_slice(text.as_bytes());
        }
        put_lenenc(&mut login, attributes.len() as u64);
        login.extend_from_slice(&attributes);
    }
    if capabilities & CLIENT_ZSTD_COMPRESSION_ALGORITHM != 0 {
        login.push(3);
    }
    wire.send_reply(&login).map_err(connection_lost)?;
    auth.run(&mut wire)?;
    if target.compress != Compression::Off {
        wire.enable_compression(FrameCodec::new(target.compress).map_err(connection_lost)?);
    }
    let form = ResultFormat {
        deprecate_eof: capabilities & CLIENT_DEPRECATE_EOF != 0,
        cached_columns: mariadb != 0,
    };
    Ok((
        wire,
        SessionInfo {
            server_version: greeting.version,
            connection_id: greeting.connection_id,
            result_format: form,
        },
    ))
}

fn connection_lost(cause: std::io::Error) -> Error {
    Error::ConnectionLost { doing: DOING, cause }
}

fn read_packet(wire: &mut PacketIo, payload: &mut Vec<u8>) -> Result<(), Error> {
    wire.read_payload(payload, MAX_LOGIN_PACKET).map_err(connection_lost)?;
    match payload.first() {
        None => Err(Error::protocol(DOING, "an empty packet")),
        Some(0xff) => Err(parse_error(payload).into()),
        Some(_) => Ok(()),
    }
}

fn parse_greeting(payload: &[u8]) -> Result<Greeting, Error> {
    let cut = || Error::protocol(DOING, "the greeting is cut short");
    let mut fields = FieldReader(payload);
    let protocol = fields.u8().ok_or_else(cut)?;
    if protocol != 10 {
        return Err(Error::protocol(DOING, format!("the greeting has protocol {protocol}, not 10")));
    }
    let version = String::from_utf8_lossy(fields.until_nul()).into_owned();
    let connection_id = fields.u32().ok_or_else(cut)?;
    let mut challenge = fields.bytes(8).ok_or_else(cut)?.to_vec();
    fields.u8().ok_or_else(cut)?;
    let low = fields.u16().ok_or_else(cut)?;
    fields.bytes(3).ok_or_else(cut)?; // character set and status
    let high = fields.u16().ok_or_else(cut)?;
    let length = usize::from(fields.u8().ok_or_else(cut)?);
    fields.bytes(6).ok_or_else(cut)?;
    let extended = fields.u32().ok_or_else(cut)?;
    let second = fields.bytes(length.saturating_sub(8).max(13)).ok_or_else(cut)?;
    challenge.extend_from_slice(second.strip_suffix(&[0]).unwrap_or(second));
    let plugin = String::from_utf8_lossy(fields.until_nul()).into_owned();
    let plugin = if plugin.is_empty() { "mysql_native_password".into() } else { plugin };
    let capabilities = u32::from(low) | u32::from(high) << 16;
    let mariadb = if capabilities & CLIENT_LONG_PASSWORD == 0 { extended } else { 0 };
    // MariaDB up to 10 hides behind an old version so that old replicas talk to it.
    let version = version.strip_prefix("5.5.5-").unwrap_or(&version).to_owned();
    Ok(Greeting { version, connection_id, capabilities, mariadb, challenge, plugin })
}

fn negotiate(greeting: &Greeting, target: &Target) -> Result<u32, Error> {
    let offered = greeting.capabilities;
    let needed = CLIENT_PROTOCOL_41
        | CLIENT_SECURE_CONNECTION
        | CLIENT_PLUGIN_AUTH
        | CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA;
    let wanted = needed
        | CLIENT_LONG_FLAG
        | CLIENT_TRANSACTIONS
        | CLIENT_MULTI_RESULTS
        | CLIENT_PS_MULTI_RESULTS
        | CLIENT_CONNECT_ATTRS
        | CLIENT_DEPRECATE_EOF;
    // MariaDB leaves CLIENT_LONG_PASSWORD out to say that it has capabilities beyond 32 bits; so do we, to it.
    let mut capabilities = offered & (wanted | CLIENT_LONG_PASSWORD);
    if capabilities & needed != needed {
        return Err(Error::Unsupported(format!(
            "server {} is too old: toll needs MySQL or MariaDB 5.5.7 or later",
            greeting.version
        )));
    }
    if target.db.is_some() {
        capabilities |= CLIENT_CONNECT_WITH_DB;
    }
    if target.multi_statements {
        capabilities |= offered & CLIENT_MULTI_STATEMENTS;
    }
    let mut require = |flag: u32, what: &str, advice: &str| {
        if offered & flag == 0 {
            return Err(Error::Unsupported(format!(
                "server {} offers no {what}: {advice}",
                greeting.version
            )));
        }
        capabilities |= flag;
        Ok(())
    };
    if target.tls != Tls::Off {
        require(CLIENT_SSL, "TLS", "give it a certificate (ssl_cert, ssl_key) or connect without --tls")?;
    }
    match target.compress {
        Compression::Off => {}
        Compression::Zlib => require(CLIENT_COMPRESS, "zlib compression", "connect without --compress")?,
        Compression::Zstd => require(
            CLIENT_ZSTD_COMPRESSION_ALGORITHM,
            "zstd compression",
            "use --compress=zlib; zstd needs MySQL 8.0.18",
        )?,
    }
    Ok(capabilities)
}

/// The part that an SSLRequest and a login have in common: 32 bytes.
fn request_prefix(capabilities: u32, mariadb: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    out.extend_from_slice(&capabilities.to_le_bytes());
    out.extend_from_slice(&MAX_ALLOWED_PACKET.to_le_bytes());
    out.push(CHARSET);
    out.resize(28, 0);
    out.extend_from_slice(&mariadb.to_le_bytes());
    out
}

/// The client's side of authentication.
struct Authenticator<'a> {
    target: &'a Target,
    password: &'a [u8],
    channel: ChannelSecurity,
    plugin: String,
    challenge: Vec<u8>,
    /// The server was asked for its public key, and the next packet is to be it.
    is_key_requested: bool,
}

impl<'a> Authenticator<'a> {
    fn new(target: &'a Target, channel: ChannelSecurity, challenge: Vec<u8>) -> Self {
        let password = target.password.expose().as_bytes();
        Self { target, password, channel, plugin: String::new(), challenge, is_key_requested: false }
    }

    /// Response to the greeting. Its plugin is the server's default, not the account's: where it asks for more
    /// than it may have, the login names another one, and the server asks for the account's own.
    fn begin(&mut self, plugin: &str) -> Result<Vec<u8>, Error> {
        const HARMLESS: &str = "mysql_native_password";
        self.respond_as(plugin).or_else(|_| self.respond_as(HARMLESS))
    }

    fn run(mut self, wire: &mut PacketIo) -> Result<(), Error> {
        let mut payload = Vec::new();
        for _ in 0..MAX_AUTH_PACKETS {
            read_packet(wire, &mut payload)?;
            let mut fields = FieldReader(&payload);
            let response = match fields.u8() {
                Some(0x00) => return Ok(()),
                Some(0xfe) if fields.0.is_empty() => Some(self.respond_as("mysql_old_password")?),
                Some(0xfe) => {
                    let plugin = String::from_utf8_lossy(fields.until_nul()).into_owned();
                    self.challenge = fields.0.strip_suffix(&[0]).unwrap_or(fields.0).to_vec();
                    Some(self.respond_as(&plugin)?)
                }
                Some(0x01) => self.respond_to_request(fields.0)?,
                _ => return Err(Error::protocol(DOING, format!("packet {:#04x}", payload[0]))),
            };
            if let Some(response) = response {
                wire.send_reply(&response).map_err(connection_lost)?;
            }
        }
        Err(Error::protocol(DOING, "authentication goes round in circles"))
    }

    /// First response of a plugin.
    fn respond_as(&mut self, plugin: &str) -> Result<Vec<u8>, Error> {
        self.is_key_requested = false;
        plugin.clone_into(&mut self.plugin);
        let is_over_tls = matches!(self.channel, ChannelSecurity::Encrypted | ChannelSecurity::Verified);
        match plugin {
            "mysql_native_password" => Ok(auth::native_response(self.password, &self.challenge)),
            "caching_sha2_password" => Ok(auth::caching_sha2_response(self.password, &self.challenge)),
            "client_ed25519" => Ok(auth::ed25519_response(self.password, &self.challenge)),
            // The server asks the kernel who we are.
            "auth_socket" | "unix_socket" => Ok(Vec::new()),
            "sha256_password" if self.password.is_empty() => Ok(vec![0]),
            "sha256_password" if !is_over_tls => self.encrypt_or_request_key(1),
            "mysql_clear_password" | "dialog" | "sha256_password" => self.clear_password(),
            other => Err(Error::Unsupported(format!(
                "the account uses the plugin {other}: toll speaks mysql_native_password, caching_sha2_password, \
                 sha256_password, client_ed25519 and unix_socket"
            ))),
        }
    }

    /// Response to what a plugin sends after its first response; `None` where the result follows.
    fn respond_to_request(&mut self, request: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        if std::mem::take(&mut self.is_key_requested) {
            return self.encrypt(&String::from_utf8_lossy(request)).map(Some);
        }
        match (self.plugin.as_str(), request) {
            // The server knew the password's hash.
            ("caching_sha2_password", [3]) => Ok(None),
            ("caching_sha2_password", [4]) if self.channel == ChannelSecurity::Open => {
                self.encrypt_or_request_key(2).map(Some)
            }
            ("caching_sha2_password", [4]) => self.clear_password().map(Some),
            (plugin, _) => Err(Error::protocol(DOING, format!("{plugin} sent what it was not asked for"))),
        }
    }

    fn clear_password(&self) -> Result<Vec<u8>, Error> {
        let is_allowed = match self.channel {
            ChannelSecurity::Local | ChannelSecurity::Verified => true,
            ChannelSecurity::Encrypted => self.target.password_opt_ins.enable_cleartext_plugin,
            ChannelSecurity::Open => false,
        };
        if is_allowed || self.password.is_empty() {
            return Ok([self.password, &[0]].concat());
        }
        let plugin = &self.plugin;
        Err(Error::Unsupported(if self.channel == ChannelSecurity::Open {
            format!(
                "{plugin} asks for the password in clear text, and the connection is not encrypted: connect with \
                 ssl-ca=FILE.pem (--ca), or over the Unix socket"
            )
        } else {
            format!(
                "{plugin} asks for the password in clear text, and nobody has checked the server's certificate: \
                 name its authority with ssl-ca=FILE.pem (--ca), or allow it with enable-cleartext-plugin. \
                 caching_sha2_password asks at the first login after each start of the server"
            )
        }))
    }

    /// The password for a key that is known, or a request for the server's key.
    fn encrypt_or_request_key(&mut self, request: u8) -> Result<Vec<u8>, Error> {
        let opt_ins = &self.target.password_opt_ins;
        if let Some(path) = &opt_ins.server_public_key_path {
            let pem = std::fs::read_to_string(path).map_err(|e| {
                Error::Unsupported(format!(
                    "cannot read {} ({e}): check server-public-key-path",
                    path.display()
                ))
            })?;
            return self.encrypt(&pem);
        }
        if opt_ins.get_server_public_key || self.channel == ChannelSecurity::Local {
            self.is_key_requested = true;
            return Ok(vec![request]);
        }
        Err(Error::Unsupported(format!(
            "{} needs the server's public key, which anybody on the way could replace by his own: connect with \
             ssl-ca=FILE.pem (--ca), over the Unix socket, or with server-public-key-path=FILE.pem; \
             get-server-public-key takes any key. caching_sha2_password asks at the first login after each start of \
             the server",
            self.plugin
        )))
    }

    fn encrypt(&self, pem: &str) -> Result<Vec<u8>, Error> {
        auth::rsa_encrypt_password(self.password, &self.challenge, pem).map_err(Error::Unsupported)
    }
}
