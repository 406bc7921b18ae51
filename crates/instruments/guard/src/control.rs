//! Vetoes and questions from outside while a run goes on: a Unix socket that takes two words, and an HTTP service that is asked each
//! second.
//!
//! Both are the guard's: they work when toll does not.

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::fs::Permissions;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A client, or the service, has said what it has to say within this time.
const TIMEOUT: Duration = Duration::from_secs(1);
const ASK_EVERY: Duration = Duration::from_secs(1);
const LONGEST_WORD: u64 = 64;
const LONGEST_ANSWER: u64 = 4 << 10;
/// Times in a row without an answer that are a veto: one may be lost on the way.
const SILENT_TIMES: u32 = 2;
const OK: u16 = 200;

/// Where vetoes come from, beside a flag file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vetoes {
    /// Path of a socket that the guard makes.
    pub control: Option<PathBuf>,
    /// `http://HOST:PORT/PATH`: anything but 200 is a veto.
    pub url: Option<String>,
}

impl Vetoes {
    /// The same, with an absolute path of the socket.
    ///
    /// # Errors
    /// No socket can be made there, or it could not be removed after the run.
    pub fn resolve(mut self) -> Result<Self> {
        if let Some(path) = &mut self.control {
            let shown = path.display().to_string();
            *path = std::path::absolute(&*path).with_context(|| format!("control socket {shown}"))?;
            toll_journal::check_removable(path).with_context(|| format!("control socket {shown}"))?;
            is_abandoned(path)?;
        }
        Ok(self)
    }
}

/// All of them, until it is dropped.
#[derive(Debug)]
pub struct Control {
    veto: Arc<Mutex<Option<String>>>,
    status: Arc<Mutex<String>>,
    socket: Option<PathBuf>,
}

impl Control {
    /// # Errors
    /// The socket cannot be made, or the service does not answer 200: nothing may be switched on.
    pub fn start(vetoes: &Vetoes) -> Result<Self> {
        let mut control = Self { veto: Arc::default(), status: Arc::default(), socket: None };
        if let Some(url) = &vetoes.url {
            let service = Service::parse(url)?;
            if let Some(why) = service.ask().map_err(|why| anyhow::anyhow!("{url} does not answer: {why}"))? {
                bail!("{why}");
            }
            let veto = Arc::clone(&control.veto);
            std::thread::Builder::new()
                .name("http-veto".into())
                .spawn(move || service.ask_for_ever(&veto))?;
        }
        if let Some(path) = &vetoes.control {
            let listener = bind(path)?;
            control.socket = Some(path.clone());
            let (veto, status) = (Arc::clone(&control.veto), Arc::clone(&control.status));
            std::thread::Builder::new().name("control".into()).spawn(move || {
                for client in listener.incoming().flatten() {
                    // A client that hangs up or says nothing has no answer.
                    let _ = answer(&client, &veto, &status);
                }
            })?;
        }
        Ok(control)
    }

    pub fn veto(&self) -> Option<String> {
        lock(&self.veto).clone()
    }

    /// True if somebody can ask for the status.
    pub fn has_socket(&self) -> bool {
        self.socket.is_some()
    }

    /// What `status` is answered with.
    pub fn set_status(&self, status: String) {
        *lock(&self.status) = status;
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Some(path) = &self.socket {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// True if a killed guard left its socket there; false if nothing is there.
///
/// # Errors
/// Something else is there, which must not be removed.
fn is_abandoned(path: &Path) -> Result<bool> {
    let file = match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
        other => other.with_context(|| format!("cannot look at {}", path.display()))?,
    };
    let in_use = |why: &str| format!("control socket {}: {why}. Name another path", path.display());
    ensure!(file.file_type().is_socket(), in_use("the path exists, and is no socket"));
    // Any other error, such as a missing right, may come from a socket that is in use.
    let is_refused = UnixStream::connect(path).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused);
    ensure!(is_refused, in_use("another process listens there"));
    Ok(true)
}

/// A socket for its owner. One that a killed guard left is replaced.
fn bind(path: &Path) -> Result<UnixListener> {
    if is_abandoned(path)? {
        std::fs::remove_file(path).with_context(|| format!("cannot remove the old {}", path.display()))?;
    }
    let listener = UnixListener::bind(path)
        .with_context(|| format!("cannot make the control socket {}", path.display()))?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600))
        .with_context(|| format!("cannot keep {} to its owner", path.display()))?;
    Ok(listener)
}

fn answer(client: &UnixStream, veto: &Mutex<Option<String>>, status: &Mutex<String>) -> std::io::Result<()> {
    client.set_read_timeout(Some(TIMEOUT))?;
    client.set_write_timeout(Some(TIMEOUT))?;
    let mut word = String::new();
    BufReader::new(Read::take(client, LONGEST_WORD)).read_line(&mut word)?;
    let said = match word.trim() {
        "panic" => {
            lock(veto).get_or_insert_with(|| "`panic` at the control socket".to_owned());
            "the method goes off, and the run ends".to_owned()
        }
        "status" => lock(status).clone(),
        _ => "write `panic` or `status`".to_owned(),
    };
    let mut to = client;
    to.write_all(format!("{said}\n").as_bytes())
}

/// A service that may veto.
#[derive(Debug, PartialEq, Eq)]
struct Service {
    /// `HOST:PORT`.
    address: String,
    path: String,
}

impl Service {
    fn parse(url: &str) -> Result<Self> {
        let rest = url
            .strip_prefix("http://")
            .with_context(|| format!("{url} cannot be asked: write http://HOST:PORT/PATH"))?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let is_clean = !host.is_empty() && url.chars().all(|c| c.is_ascii_graphic());
        ensure!(is_clean, "{url} cannot be asked: write http://HOST:PORT/PATH");
        // An IPv6 address has colons of its own.
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = if has_port { host.to_owned() } else { format!("{host}:80") };
        Ok(Self { address, path: format!("/{path}") })
    }

    /// `Ok(None)`: nothing is in the way. `Err`: no answer.
    fn ask(&self) -> std::io::Result<Option<String>> {
        let unknown = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let address = self.address.to_socket_addrs()?.next().ok_or_else(unknown)?;
        let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let request =
            format!("GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.path, self.address);
        stream.write_all(request.as_bytes())?;
        let mut line = String::new();
        BufReader::new(Read::take(stream, LONGEST_ANSWER)).read_line(&mut line)?;
        match line.split_ascii_whitespace().nth(1).and_then(|code| code.parse::<u16>().ok()) {
            Some(OK) => Ok(None),
            Some(code) => Ok(Some(format!("http://{}{} answers {code}", self.address, self.path))),
            None => Err(std::io::ErrorKind::InvalidData.into()),
        }
    }

    fn ask_for_ever(&self, veto: &Mutex<Option<String>>) {
        let mut silent = 0;
        loop {
            std::thread::sleep(ASK_EVERY);
            let found = match self.ask() {
                Ok(found) => {
                    silent = 0;
                    found
                }
                Err(why) => {
                    silent += 1;
                    let reason = || format!("http://{}{} does not answer: {why}", self.address, self.path);
                    (silent >= SILENT_TIMES).then(reason)
                }
            };
            if let Some(reason) = found {
                lock(veto).get_or_insert(reason);
            }
        }
    }
}

/// Each update is whole before the lock is let go.
fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicU16, Ordering};
    use std::time::Instant;

    fn wait_for_veto(control: &Control) -> String {
        let begun = Instant::now();
        loop {
            if let Some(veto) = control.veto() {
                return veto;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "no veto");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn the_socket_takes_two_words_and_goes_with_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control");
        // Left by a guard that was killed.
        drop(UnixListener::bind(&path).unwrap());
        let vetoes = Vetoes { control: Some(path.clone()), url: None };
        let control = Control::start(&vetoes).unwrap();
        assert!(Control::start(&vetoes).unwrap_err().to_string().contains("another process listens"));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        control.set_status("probe p99 1.0 ms".into());
        let ask = |word: &str| {
            let mut client = UnixStream::connect(&path).unwrap();
            client.write_all(format!("{word}\n").as_bytes()).unwrap();
            let mut said = String::new();
            client.read_to_string(&mut said).unwrap();
            said
        };
        assert_eq!(ask("status"), "probe p99 1.0 ms\n");
        assert!(ask("stop").contains("`panic` or `status`"));
        assert_eq!(control.veto(), None);
        assert!(ask("panic").contains("goes off"));
        assert!(wait_for_veto(&control).contains("panic"));
        drop(control);
        assert!(!path.exists());
    }

    #[test]
    fn a_path_that_is_in_use_or_could_not_be_removed_is_refused_and_untouched() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, file, socket) =
            (dir.path().join("mysqld"), dir.path().join("data"), dir.path().join("mysqld.sock"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(&file, "of somebody").unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        let resolve = |path: &Path| Vetoes { control: Some(path.to_owned()), url: None }.resolve();
        for (path, expected) in [
            (folder.as_path(), "is no socket"),
            (&file, "is no socket"),
            (&socket, "another process listens"),
            (Path::new("/control"), "two names"),
            (&folder.join("../control"), "without `..`"),
        ] {
            let error = format!("{:#}", resolve(path).unwrap_err());
            assert!(error.contains(expected), "{}: {error}", path.display());
        }
        assert!(folder.is_dir() && file.is_file() && UnixStream::connect(&socket).is_ok());
        let relative = resolve(Path::new("control")).unwrap().control.unwrap();
        assert_eq!(relative, std::env::current_dir().unwrap().join("control"));
    }

    /// A service that answers with this status until it is 0, and then no more.
    fn serve(status: &Arc<AtomicU16>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let status = Arc::clone(status);
        std::thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                let mut request = [0; 512];
                let _ = client.read(&mut request);
                match status.load(Ordering::Relaxed) {
                    0 => return,
                    code => drop(client.write_all(format!("HTTP/1.1 {code} X\r\n\r\n").as_bytes())),
                }
            }
        });
        format!("http://{address}/may-we?what=log")
    }

    #[test]
    fn anything_but_200_and_a_service_that_falls_silent_are_vetoes() {
        for (becomes, expected) in [(503, "answers 503"), (0, "does not answer")] {
            let status = Arc::new(AtomicU16::new(200));
            let control = Control::start(&Vetoes { control: None, url: Some(serve(&status)) }).unwrap();
            assert_eq!(control.veto(), None);
            status.store(becomes, Ordering::Relaxed);
            let veto = wait_for_veto(&control);
            assert!(veto.contains(expected), "{veto}");
        }
        let refuses = serve(&Arc::new(AtomicU16::new(404)));
        let error = Control::start(&Vetoes { control: None, url: Some(refuses) }).unwrap_err();
        assert!(error.to_string().contains("answers 404"), "{error:#}");
    }

    #[test]
    fn a_url_is_plain_http() {
        let parsed = |url: &str| Service::parse(url).map(|found| (found.address, found.path)).ok();
        assert_eq!(parsed("http://a.example/b?c"), Some(("a.example:80".into(), "/b?c".into())));
        assert_eq!(parsed("http://[::1]:8080"), Some(("[::1]:8080".into(), "/".into())));
        for wrong in ["https://a/b", "a/b", "http:///b", "http://a/b c", "http://a/b\r\nX: y"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
