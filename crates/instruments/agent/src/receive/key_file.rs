//! Files of keys: a receiver's with the list of its senders, and a sender's with its receiver.
//!
//! A file holds a certificate and its private key in PEM, made for each other and for no other use. Beside these, a line
//! `receiver FINGERPRINT` makes it a sender's, and in a receiver's file a line `sender NAME FINGERPRINT` lets one send.
//! Other lines are comments. Never writes over a file.

use anyhow::{Context, Result, bail, ensure};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use std::fmt;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::str::FromStr;
use toll_sys::atomic_file::AtomicFile;
use toll_sys::private_file;

/// The name in each certificate; nothing depends on it.
pub const CERTIFICATE_NAME: &str = "toll";
/// Of a sender: it begins the names of files.
const MAX_NAME: usize = 64;

/// SHA-256 of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(Sha256::digest(certificate).into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Fingerprint {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let is_hex = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        ensure!(is_hex, "a fingerprint has 64 hexadecimal digits, and not {text:?}");
        let mut bytes = [0; 32];
        for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16)?;
        }
        Ok(Self(bytes))
    }
}

/// What a file holds.
pub struct KeyFile {
    pub certificate: CertificateDer<'static>,
    pub private: PrivateKeyDer<'static>,
    /// Of a sender's file.
    pub receiver: Option<Fingerprint>,
    /// Of a receiver's file: who may send, by name.
    pub senders: Vec<(String, Fingerprint)>,
}

impl KeyFile {
    /// # Errors
    /// It is not there, others may read it, or it holds no key.
    pub fn read(path: &Path) -> Result<Self> {
        let text = private_file::read_own_secret(path, "the key file")?;
        Self::parse(&text).with_context(|| format!("cannot use the key file {}", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let certificate = CertificateDer::from_pem_slice(text.as_bytes()).ok();
        let private = PrivateKeyDer::from_pem_slice(text.as_bytes()).ok();
        let Some((certificate, private)) = certificate.zip(private) else {
            bail!("it holds no key of toll's");
        };
        let (mut receiver, mut senders) = (None, Vec::<(String, Fingerprint)>::new());
        for (number, line) in (1..).zip(text.lines()) {
            let place = || format!("line {number}");
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["receiver", of] => receiver = Some(of.parse().with_context(place)?),
                ["sender", name, of] => {
                    let of = of.parse().with_context(place)?;
                    let is_twice = senders.iter().any(|(other, others)| other == name || *others == of);
                    ensure!(!is_twice, "line {number}: the sender {name} is there twice");
                    ensure!(is_name(name), "line {number}: {name:?} is no name of a sender");
                    senders.push((name.to_owned(), of));
                }
                ["receiver" | "sender", ..] => bail!("line {number}: write `sender NAME FINGERPRINT`"),
                _ => {}
            }
        }
        Ok(Self { certificate, private, receiver, senders })
    }
}

/// Makes the key file of a receiver, which has no senders yet.
///
/// # Errors
/// A file of this name is there, or cannot be made.
pub fn create_receiver(path: &Path) -> Result<()> {
    let comment = "# The key of a receiver of `toll receive`: keep it secret. Each line `sender NAME FINGERPRINT` at the end\n\
                   # lets one host send. Without its line it may not, once the receiver is started again.\n";
    create(path, comment).map(|_| ())
}

/// Makes the key file of a sender, and adds the sender to the receiver's. Returns its name, which the file's name says.
///
/// # Errors
/// There is such a sender or file already, or one of the files cannot be written.
pub fn create_sender(receiver_path: &Path, path: &Path) -> Result<String> {
    let receiver = KeyFile::read(receiver_path)?;
    if receiver.receiver.is_some() {
        bail!("{} is a sender's key. Name the receiver's with --key.", receiver_path.display());
    }
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    ensure!(
        is_name(name),
        "{name:?} cannot be the name of a sender. Name the file for the sending host: letters, digits and ._- as in db1.key."
    );
    if receiver.senders.iter().any(|(other, _)| other == name) {
        bail!(
            "{} has a sender {name} already. Choose another name, or remove its line to replace it.",
            receiver_path.display()
        );
    }
    let comment = format!(
        "# The key of {name}, a sender of `toll capture --stream`: keep it secret. It is of use there alone.\n\
         receiver {}\n",
        Fingerprint::of(&receiver.certificate)
    );
    let made = create(path, &comment)?;
    if let Err(error) = append_line(receiver_path, &format!("sender {name} {made}\n")) {
        // It was made a moment ago, and is of no use.
        let _ = std::fs::remove_file(path);
        return Err(error).with_context(|| format!("cannot add a sender to {}", receiver_path.display()));
    }
    Ok(name.to_owned())
}

fn create(path: &Path, comment: &str) -> Result<Fingerprint> {
    let made =
        rcgen::generate_simple_self_signed([CERTIFICATE_NAME.to_owned()]).context("cannot make a key")?;
    let write = || {
        let mut file = AtomicFile::begin(path)?;
        write!(file, "{comment}{}{}", made.cert.pem(), made.signing_key.serialize_pem())?;
        file.create()
    };
    write().with_context(|| format!("cannot make the key file {}", path.display()))?;
    Ok(Fingerprint::of(made.cert.der()))
}

/// In place: the file keeps its owner, who may be the receiver's user.
fn append_line(path: &Path, line: &str) -> Result<()> {
    let ends_line = std::fs::read(path)?.ends_with(b"\n");
    let mut file = OpenOptions::new().append(true).open(path)?;
    let before = file.metadata()?.len();
    let text = if ends_line { line.to_owned() } else { format!("\n{line}") };
    if let Err(error) = file.write_all(text.as_bytes()).and_then(|()| file.sync_all()) {
        // A part of a line would make the file unreadable.
        file.set_len(before)?;
        return Err(error.into());
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && !name.starts_with(['.', '-'])
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// True if the file is not there.
pub fn is_missing(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn refusal<T>(outcome: Result<T>) -> String {
        format!("{:#}", outcome.err().unwrap())
    }

    #[test]
    fn key_files_are_their_owners_alone_and_are_never_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        create_receiver(&path("receiver.key")).unwrap();
        assert!(refusal(create_receiver(&path("receiver.key"))).contains("cannot make the key file"));
        assert_eq!(create_sender(&path("receiver.key"), &path("db1.key")).unwrap(), "db1");
        assert_eq!(create_sender(&path("receiver.key"), &path("db2")).unwrap(), "db2");
        let (receiver, one, two) = (
            KeyFile::read(&path("receiver.key")).unwrap(),
            KeyFile::read(&path("db1.key")).unwrap(),
            KeyFile::read(&path("db2")).unwrap(),
        );
        let known = [
            ("db1".to_owned(), Fingerprint::of(&one.certificate)),
            ("db2".to_owned(), Fingerprint::of(&two.certificate)),
        ];
        assert_eq!((receiver.senders, receiver.receiver), (known.to_vec(), None));
        assert_eq!((one.receiver, one.senders), (Some(Fingerprint::of(&receiver.certificate)), vec![]));
        for name in ["receiver.key", "db1.key"] {
            assert_eq!(std::fs::metadata(path(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
            for mode in [0o644, 0o640] {
                std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(mode)).unwrap();
                let refused = refusal(KeyFile::read(&path(name)));
                assert!(refused.contains("chmod 600") && refused.contains(name), "{refused}");
            }
            std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        assert!(is_missing(&KeyFile::read(&path("none")).err().unwrap()));
    }

    #[test]
    fn a_sender_that_cannot_be_added_has_no_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        create_receiver(&path("receiver.key")).unwrap();
        create_sender(&path("receiver.key"), &path("db1.key")).unwrap();
        let add = |receiver: &str, sender: &str| refusal(create_sender(&path(receiver), &path(sender)));
        assert!(add("receiver.key", "db1").contains("has a sender db1 already"));
        assert!(add("receiver.key", "db1.key").contains("has a sender db1 already"));
        assert!(add("db1.key", "db2.key").contains("a sender's key"));
        assert!(add("none", "db2.key").contains("cannot use the key file"));
        for name in [".key", "-w", "db 1.key", "d\u{e4}.key", &"x".repeat(65)] {
            assert!(add("receiver.key", name).contains("cannot be the name of a sender"), "{name}");
        }
        std::fs::write(path("taken.key"), "precious").unwrap();
        assert!(add("receiver.key", "taken.key").contains("cannot make the key file"));
        assert_eq!(KeyFile::read(&path("receiver.key")).unwrap().senders.len(), 1);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    }

    #[test]
    fn damaged_lines_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let (receiver, sender) = (dir.path().join("receiver.key"), dir.path().join("db1.key"));
        create_receiver(&receiver).unwrap();
        create_sender(&receiver, &sender).unwrap();
        let text = std::fs::read_to_string(&receiver).unwrap();
        let print = text.trim().rsplit(' ').next().unwrap();
        for (more, told) in [
            ("sender db2", "write `sender NAME FINGERPRINT`".to_owned()),
            ("sender db2 abc", "64 hexadecimal digits".to_owned()),
            ("sender ../x 00", "64 hexadecimal digits".to_owned()),
            (&format!("sender db2 {print}"), "twice".to_owned()),
            (&format!("sender ../x {}", "0".repeat(64)), "no name of a sender".to_owned()),
        ] {
            let refused = refusal(KeyFile::parse(&format!("{text}{more}\n")));
            assert!(refused.contains(&told) && refused.contains("line "), "{more}: {refused}");
        }
        // Somebody edited it, and left the last line open.
        std::fs::write(&receiver, text.trim_end()).unwrap();
        create_sender(&receiver, &dir.path().join("db2.key")).unwrap();
        assert_eq!(KeyFile::read(&receiver).unwrap().senders.len(), 2);
        assert!(refusal(KeyFile::parse("")).contains("no key"));
    }
}
