//! TLS settings of a connection, and the words that option files have for them. Never opens a file.
//!
//! # Invariants
//! A TLS option that toll cannot follow is an error: leaving it out could mean a connection in the clear.

use crate::error::TargetError;
use crate::option_file::Entry;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tls {
    #[default]
    Off,
    /// Encrypted; the server's certificate is not checked (`ssl-mode=REQUIRED`).
    Required,
    /// Encrypted, and the certificate must come from an authority in this PEM file (`ssl-mode=VERIFY_CA`).
    VerifiedCa { ca: PathBuf },
    /// The same, and the certificate must name the host (`ssl-mode=VERIFY_IDENTITY`).
    Verified { ca: PathBuf },
}

impl Tls {
    /// What `ssl-mode=MODE` with this `ssl-ca` asks for.
    ///
    /// # Errors
    /// Describes a mode that is none, or one that checks certificates without an authority.
    pub fn from_mode(mode: &str, ca: Option<PathBuf>) -> Result<Self, String> {
        Self::new(parse_mode(Some(mode))?, ca.ok_or_else(|| NO_AUTHORITY.to_owned()))
    }

    fn new<E>(mode: Mode, ca: Result<PathBuf, E>) -> Result<Self, E> {
        Ok(match mode {
            Mode::Disabled => Self::Off,
            Mode::Required => Self::Required,
            Mode::VerifyCa => Self::VerifiedCa { ca: ca? },
            Mode::VerifyIdentity => Self::Verified { ca: ca? },
        })
    }

    /// The file with the authorities that the server's certificate must come from.
    pub fn ca(&self) -> Option<&PathBuf> {
        match self {
            Self::Off | Self::Required => None,
            Self::VerifiedCa { ca } | Self::Verified { ca } => Some(ca),
        }
    }
}

/// What this client shows to a server that asks for a certificate. Both are PEM files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientCertificate {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Details of TLS, which matter only where it is on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsOptions {
    /// An option file or a DSN says what TLS is to be; otherwise it is off by default.
    pub is_stated: bool,
    pub client_certificate: Option<ClientCertificate>,
    pub without_tls12: bool,
    pub without_tls13: bool,
    /// Names and lines of the option file, as they stand there.
    #[serde(skip)]
    pub lines: Vec<(String, String)>,
}

/// Levels of `ssl-mode`. PREFERRED is not among them: it goes on without TLS if the server offers none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Disabled,
    Required,
    VerifyCa,
    VerifyIdentity,
}

const KNOWN: &str = "ssl, ssl-mode, ssl-ca, ssl-cert, ssl-key, ssl-verify-server-cert and tls-version";
const NO_AUTHORITY: &str = "a certificate is checked against the authorities of a file: add ssl-ca=FILE.pem (of \
                            this host: ssl-ca=/etc/ssl/certs/ca-certificates.crt)";

/// Collects the TLS options of an option file. A later one overrules an earlier one.
#[derive(Debug, Default)]
pub struct TlsReader {
    mode: Option<Mode>,
    ssl: Option<bool>,
    verify: Option<bool>,
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    options: TlsOptions,
    /// The last one, for errors about all of them together.
    last: Option<Entry>,
}

impl TlsReader {
    /// False if the option is not about TLS.
    pub fn read(&mut self, entry: &Entry) -> Result<bool, TargetError> {
        let value = entry.value.as_deref().filter(|value| !value.is_empty());
        let path = || value.map(PathBuf::from);
        if let Some(on) = entry.switch("ssl") {
            self.ssl = Some(on?);
        } else if let Some(on) = entry.switch("ssl-verify-server-cert") {
            let on = on?;
            self.verify = Some(on);
            self.enable_if(on);
        } else {
            match entry.name() {
                "ssl-mode" => self.mode = Some(parse_mode(value).map_err(|why| entry.error_at_entry(&why))?),
                "ssl-ca" => self.ca = path(),
                "ssl-cert" => self.certificate = path(),
                "ssl-key" => self.key = path(),
                "tls-version" => self.read_versions(value).map_err(|why| entry.error_at_entry(&why))?,
                name if is_about_tls(name) => {
                    return Err(entry.error_at_entry(&format!(
                        "toll does not know {name}, and must not connect without what it asks for. It knows \
                         {KNOWN}: give it an option file with these alone"
                    )));
                }
                _ => return Ok(false),
            }
            // As the clients: whoever names a certificate wants TLS, whatever `skip-ssl` said before.
            self.enable_if(value.is_some());
        }
        self.options.lines.push((entry.name().to_owned(), entry.text.clone()));
        self.last = Some(entry.clone());
        Ok(true)
    }

    fn enable_if(&mut self, is_named: bool) {
        if is_named && self.ssl == Some(false) {
            self.ssl = None;
        }
    }

    fn read_versions(&mut self, value: Option<&str>) -> Result<(), String> {
        let listed: Vec<String> =
            value.unwrap_or_default().split(',').map(|name| name.trim().to_ascii_lowercase()).collect();
        let has = |version: &str| listed.iter().any(|name| name == version);
        (self.options.without_tls12, self.options.without_tls13) = (!has("tlsv1.2"), !has("tlsv1.3"));
        if self.options.without_tls12 && self.options.without_tls13 {
            return Err("toll speaks TLSv1.2 and TLSv1.3: write tls-version=TLSv1.2,TLSv1.3".into());
        }
        Ok(())
    }

    /// What all of them mean together.
    pub fn finish(mut self) -> Result<(Tls, TlsOptions), TargetError> {
        let Some(last) = self.last.take() else { return Ok((Tls::Off, self.options)) };
        let mode = match (self.mode, self.ssl, self.verify) {
            (Some(Mode::Disabled), ..) | (None, Some(false), _) => Mode::Disabled,
            (_, _, Some(true)) => Mode::VerifyIdentity,
            (Some(mode), ..) => mode,
            (None, _, None) if self.ca.is_some() => Mode::VerifyIdentity,
            (None, _, Some(false)) if self.ca.is_some() => Mode::VerifyCa,
            (None, ..) if self.wants_tls() => Mode::Required,
            (None, ..) => Mode::Disabled,
        };
        self.options.is_stated = mode != Mode::Disabled || self.mode.is_some() || self.ssl == Some(false);
        self.options.client_certificate = match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => Some(ClientCertificate { certificate, key }),
            (None, None) => None,
            _ => {
                return Err(
                    last.error_at_entry("ssl-cert=FILE.pem and ssl-key=FILE.pem go together: add the other")
                );
            }
        };
        let ca = self.ca.ok_or_else(|| last.error_at_entry(NO_AUTHORITY));
        Ok((Tls::new(mode, ca)?, self.options))
    }

    /// Without a mode and an authority: `ssl-ca=` alone, or `skip-ssl-verify-server-cert`, asks for nothing.
    fn wants_tls(&self) -> bool {
        let versions = self.options.without_tls12 || self.options.without_tls13;
        self.ssl == Some(true) || self.certificate.is_some() || self.key.is_some() || versions
    }
}

fn parse_mode(value: Option<&str>) -> Result<Mode, String> {
    Ok(match value.unwrap_or_default().to_ascii_uppercase().as_str() {
        "DISABLED" => Mode::Disabled,
        "REQUIRED" => Mode::Required,
        "VERIFY_CA" => Mode::VerifyCa,
        "VERIFY_IDENTITY" => Mode::VerifyIdentity,
        "PREFERRED" => {
            return Err("ssl-mode=PREFERRED goes on without TLS if the server offers none: write \
                        ssl-mode=REQUIRED, or DISABLED"
                .into());
        }
        other => {
            return Err(format!(
                "{other:?} is no ssl-mode: write DISABLED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY"
            ));
        }
    })
}

/// Any option about TLS, as the clients read its name.
fn is_about_tls(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let name = ["skip-", "disable-", "enable-"].iter().find_map(|p| name.strip_prefix(p)).unwrap_or(&name);
    name.starts_with("ssl") || name.starts_with("tls")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    fn read(lines: &str) -> Result<Target, TargetError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("my.cnf");
        std::fs::write(&path, format!("[client]\nhost=10.0.0.1\n{lines}\n")).unwrap();
        Target::from_defaults_file(&path)
    }

    #[test]
    fn a_tls_option_of_an_option_file_is_followed() {
        let ca = || PathBuf::from("/ca.pem");
        for (lines, expected) in [
            ("", Tls::Off),
            ("ssl", Tls::Required),
            ("ssl=1", Tls::Required),
            ("loose-ssl", Tls::Required),
            ("enable-ssl", Tls::Required),
            ("ssl\n[mysql]\nssl=OFF", Tls::Off),
            ("ssl\ndisable-ssl", Tls::Off),
            ("loose-skip-ssl", Tls::Off),
            ("ssl-mode=REQUIRED", Tls::Required),
            ("ssl_mode = required", Tls::Required),
            ("loose-ssl-mode=REQUIRED", Tls::Required),
            ("ssl-mode=DISABLED\nssl-ca=/ca.pem", Tls::Off),
            ("ssl-mode=REQUIRED\nssl-ca=/ca.pem", Tls::Required),
            ("ssl-mode=VERIFY_CA\nssl-ca=/ca.pem", Tls::VerifiedCa { ca: ca() }),
            ("loose-ssl-mode=VERIFY_IDENTITY\nloose-ssl-ca=/ca.pem", Tls::Verified { ca: ca() }),
            ("ssl-ca=/ca.pem", Tls::Verified { ca: ca() }),
            ("skip-ssl\nssl-ca=/ca.pem", Tls::Verified { ca: ca() }),
            ("ssl-ca=/ca.pem\nskip-ssl", Tls::Off),
            ("ssl-ca=/ca.pem\nssl-verify-server-cert", Tls::Verified { ca: ca() }),
            ("ssl-mode=REQUIRED\nssl-ca=/ca.pem\nssl-verify-server-cert=ON", Tls::Verified { ca: ca() }),
            ("ssl-ca=/ca.pem\nskip-ssl-verify-server-cert", Tls::VerifiedCa { ca: ca() }),
            ("ssl-ca=/ca.pem\nssl-verify-server-cert=0", Tls::VerifiedCa { ca: ca() }),
            ("skip-ssl-verify-server-cert", Tls::Off),
            ("ssl-cert=/c.pem\nssl-key=/k.pem", Tls::Required),
            ("tls-version=TLSv1.3", Tls::Required),
        ] {
            assert_eq!(read(lines).unwrap_or_else(|e| panic!("{e}: {lines}")).tls, expected, "{lines}");
        }
        let own = read("ssl-cert=/c.pem\nssl-key=/k.pem\ntls-version=TLSv1.1,TLSv1.2").unwrap().tls_options;
        let certificate = ClientCertificate { certificate: "/c.pem".into(), key: "/k.pem".into() };
        assert_eq!(own.client_certificate, Some(certificate));
        assert_eq!((own.without_tls12, own.without_tls13), (false, true));
    }

    #[test]
    fn a_tls_option_that_cannot_be_followed_is_refused_with_its_line() {
        for (lines, word) in [
            ("ssl-capath=/etc/ssl/certs", "ssl-ca"),
            ("loose-ssl-capath=/etc/ssl/certs", "ssl-capath"),
            ("ssl-fp=00:11", "ssl-fp"),
            ("ssl-fplist=/f", "ssl-fplist"),
            ("ssl-crl=/f", "ssl-crl"),
            ("ssl-cipher=AES", "ssl-cipher"),
            ("tls-ciphersuites=X", "tls-ciphersuites"),
            ("skip-ssl-fips-mode", "ssl-fips-mode"),
            ("SSL-MODE=REQUIRED", "SSL-MODE"),
            ("ssl-verify=1", "ssl-verify"),
            ("ssl-mode=PREFERRED", "goes on without TLS"),
            ("ssl-mode=STRICT", "STRICT"),
            ("ssl-mode", "VERIFY_CA"),
            ("ssl=maybe", "maybe"),
            ("skip-ssl=0", "skip-ssl"),
            ("ssl-mode=VERIFY_CA", "ssl-ca=FILE.pem"),
            ("ssl-mode=VERIFY_IDENTITY", "ca-certificates.crt"),
            ("ssl-verify-server-cert", "ssl-ca=FILE.pem"),
            ("tls-version=TLSv1.1", "TLSv1.2"),
            ("ssl-cert=/c.pem", "ssl-key=FILE.pem"),
        ] {
            let error = read(lines).map(|target| target.tls).expect_err(lines).to_string();
            assert!(error.contains(word) && error.contains("line 3"), "{lines}: {error}");
        }
    }

    #[test]
    fn only_a_connection_that_crosses_a_network_in_the_clear_unasked_is_warned_of() {
        for (lines, is_warned) in [
            ("", true),
            ("skip-ssl-verify-server-cert", true),
            ("skip-ssl", false),
            ("ssl-mode=DISABLED", false),
            ("ssl", false),
            ("host=127.0.0.1", false),
            ("host=::1", false),
            ("host=localhost\nport=3307", false),
            ("host=localhost\nsocket=/s", false),
        ] {
            assert_eq!(read(lines).unwrap().exposure_warning().is_some(), is_warned, "{lines}");
        }
        let stated = |dsn: &str| Target::parse_dsn(dsn).unwrap().exposure_warning();
        assert!(stated("mysql://10.0.0.1").unwrap().contains("10.0.0.1:3306 is not encrypted"));
        assert_eq!(stated("mysql://10.0.0.1/?tls=off"), None);
    }
}
