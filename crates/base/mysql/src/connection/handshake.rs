//! Login handshake: greeting, TLS, authentication, compression.
//!
//! # Invariants
//! Never sends a password in clear text unless the stream is private. Never encrypts one with a key that did
//! not come from this very server.

use super::auth;
use super::error::Error;
use super::frame_codec::FrameCodec;
use super::packet_io::PacketIo;
use super::rows::{ResultFormat, parse_error};
use super::stream::ChannelSecurity;
use crate::target::{Compression, Target, Tls};
use toll_wire::protocol::capability::*;
use toll_wire::protocol::{FieldReader, put_lenenc};

/// utf8mb4_general_ci: the one 4-byte collation that every server since 5.5 knows.
const CHARSET: u8 = 45;
/// What we announce; servers cut it down to their own limit.
const MAX_ALLOWED_PACKET: u32 = 1 << 30;
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
    let password = target.password.expose().as_bytes();
    let channel = wire.stream().channel_security();
    let first =
        initial_auth_response(&greeting.plugin, password, &greeting.challenge, channel).unwrap_or_default();
    put_lenenc(&mut login, first.len() as u64);
    login.extend_from_slice(&first);
    if let Some(db) = &target.db {
        login.extend_from_slice(db.as_bytes());
        login.push(0);
    }
    login.extend_from_slice(greeting.plugin.as_bytes());
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
    authenticate(&mut wire, greeting.plugin, greeting.challenge, password)?;
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
    wire.read_payload(payload).map_err(connection_lost)?;
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
        | CLIENT_MULTI_STATEMENTS
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

/// `None` for an unsupported plugin.
fn initial_auth_response(
    plugin: &str,
    password: &[u8],
    challenge: &[u8],
    channel: ChannelSecurity,
) -> Option<Vec<u8>> {
    let clear = || [password, &[0]].concat();
    match plugin {
        "mysql_native_password" => Some(auth::native_response(password, challenge)),
        "caching_sha2_password" => Some(auth::caching_sha2_response(password, challenge)),
        "client_ed25519" => Some(auth::ed25519_response(password, challenge)),
        // The server asks the kernel who we are.
        "auth_socket" | "unix_socket" => Some(Vec::new()),
        "mysql_clear_password" | "dialog" if channel != ChannelSecurity::Open => Some(clear()),
        "sha256_password" if channel == ChannelSecurity::Encrypted => Some(clear()),
        "sha256_password" if password.is_empty() => Some(vec![0]),
        // Asks for the server's public key.
        "sha256_password" => Some(vec![1]),
        _ => None,
    }
}

fn authenticate(
    wire: &mut PacketIo,
    mut plugin: String,
    mut challenge: Vec<u8>,
    password: &[u8],
) -> Result<(), Error> {
    let mut payload = Vec::new();
    let channel = wire.stream().channel_security();
    // A server needs at most switch, fast-path answer, key, result: more is a server gone mad.
    for _ in 0..8 {
        read_packet(wire, &mut payload)?;
        let mut fields = FieldReader(&payload);
        match fields.u8() {
            Some(0x00) => return Ok(()),
            Some(0xfe) => {
                if fields.0.is_empty() {
                    plugin = "mysql_old_password".into();
                } else {
                    plugin = String::from_utf8_lossy(fields.until_nul()).into_owned();
                }
                challenge = fields.0.strip_suffix(&[0]).unwrap_or(fields.0).to_vec();
                let answer = initial_auth_response(&plugin, password, &challenge, channel).ok_or_else(|| {
                    Error::Unsupported(match plugin.as_str() {
                        "mysql_clear_password" | "dialog" => {
                            format!("the account uses {plugin}, which sends the password in clear: add --tls or use the socket")
                        }
                        other => format!(
                            "the account uses the plugin {other}: toll speaks mysql_native_password, \
                             caching_sha2_password, sha256_password, client_ed25519 and unix_socket"
                        ),
                    })
                })?;
                wire.send_reply(&answer).map_err(connection_lost)?;
            }
            Some(0x01) => {
                let asked = match (plugin.as_str(), fields.0) {
                    ("caching_sha2_password", [3]) => continue, // the fast path: the result follows
                    ("caching_sha2_password", [4]) if channel != ChannelSecurity::Open => {
                        Some([password, &[0]].concat())
                    }
                    ("caching_sha2_password", [4]) => Some(vec![2]),
                    ("caching_sha2_password" | "sha256_password", pem)
                        if channel != ChannelSecurity::Encrypted =>
                    {
                        let pem = String::from_utf8_lossy(pem);
                        Some(
                            auth::rsa_encrypt_password(password, &challenge, &pem)
                                .map_err(Error::Unsupported)?,
                        )
                    }
                    _ => None,
                };
                let answer = asked
                    .ok_or_else(|| Error::protocol(DOING, format!("{plugin} sent an unknown request")))?;
                wire.send_reply(&answer).map_err(connection_lost)?;
            }
            _ => return Err(Error::protocol(DOING, format!("packet {:#04x}", payload[0]))),
        }
    }
    Err(Error::protocol(DOING, "authentication goes round in circles"))
}
