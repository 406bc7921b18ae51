//! Control socket of a running throttle.
//!
//! A Unix socket that only its owner may open. A request is one line, a response one or a few lines. The
//! socket is in the journal before it exists, and is removed with the throttle.

use super::control_commands::{ControlCommand, ThrottleSettings};
use anyhow::{Context, Result, bail, ensure};
use std::fs::Permissions;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use toll_journal::{Journal, Undo};

/// Timeout of a silent client.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum length of a command line, bytes.
const MAX_LINE_BYTES: u64 = 1_024;
/// Longest path that fits `sun_path` (108 bytes with its final zero on Linux).
const SOCKET_PATH_MAX: usize = 107;
/// A throttle that is at work answers at once, and its askers take the answer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// State that control commands change and that status requests report. Shared by the socket and the throttle.
#[derive(Debug)]
pub struct ControlState {
    pub settings: Mutex<ThrottleSettings>,
    pub status: Mutex<String>,
}

impl ControlState {
    pub fn settings(&self) -> ThrottleSettings {
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_status(&self, status: String) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    fn execute_line(&self, line: &str) -> String {
        match line.parse::<ControlCommand>() {
            Ok(ControlCommand::Status) => self.status.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            Ok(order) => self.settings.lock().unwrap_or_else(PoisonError::into_inner).apply(order),
            Err(error) => format!("error: {error}"),
        }
    }
}

/// Listens from now on, until the process ends.
pub fn listen(path: &Path, state: Arc<ControlState>, journal: &Journal) -> Result<()> {
    let path = &std::path::absolute(path)?;
    ensure!(
        path.as_os_str().len() <= SOCKET_PATH_MAX,
        "cannot listen on {}: a socket's path has {SOCKET_PATH_MAX} bytes at most",
        path.display()
    );
    remove_stale_socket(path)?;
    journal.record(Undo::Path { path: path.clone() })?;
    // Made where nobody else can reach it, and put in its place once it is its owner's alone.
    let (room, made) = journal.create_private_dir(path.parent().unwrap_or(path), ".toll")?;
    let inside = room.entry("s");
    let bind = || -> std::io::Result<UnixListener> {
        let listener = UnixListener::bind(&inside)?;
        std::fs::set_permissions(&inside, Permissions::from_mode(0o600))?;
        std::fs::rename(&inside, path)?;
        Ok(listener)
    };
    let listener = bind().with_context(|| format!("cannot listen on {}", path.display()))?;
    journal.undo(made)?;
    std::thread::Builder::new().name("control".into()).spawn(move || {
        for client in listener.incoming().flatten() {
            let state = Arc::clone(&state);
            // One who holds the line open keeps nobody else from speaking.
            let _ = std::thread::Builder::new().spawn(move || serve_client(client, &state));
        }
    })?;
    Ok(())
}

/// Removes the socket of a killed throttle. Refuses to touch anything else.
fn remove_stale_socket(path: &Path) -> Result<()> {
    let kind = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found.with_context(|| format!("cannot read {}", path.display()))?.file_type(),
    };
    if !kind.is_socket() {
        bail!("{} exists and is not a socket. Choose another path with --control.", path.display());
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))
        }
        Err(error) => Err(error).with_context(|| format!("{} belongs to another user", path.display())),
        Ok(_) => bail!("another throttle listens on {}. Choose another path with --control.", path.display()),
    }
}

fn serve_client(client: UnixStream, state: &ControlState) {
    let _ = client.set_read_timeout(Some(CLIENT_TIMEOUT));
    let _ = client.set_write_timeout(Some(RESPONSE_TIMEOUT));
    let Ok(mut answers) = client.try_clone() else { return };
    let mut lines = BufReader::new(client);
    loop {
        let mut line = String::new();
        match lines.by_ref().take(MAX_LINE_BYTES).read_line(&mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if answers.write_all(format!("{}\n", state.execute_line(&line)).as_bytes()).is_err() {
            return;
        }
    }
}

/// Sends one line to a running throttle. Returns its response.
pub fn send_command(path: &Path, line: &str) -> Result<String> {
    // Told here, lest a mistake reaches a dump that is at work.
    line.parse::<ControlCommand>().map_err(anyhow::Error::msg)?;
    let nobody = || format!("no throttle listens on {}: was it started with --control?", path.display());
    let mut stream = UnixStream::connect(path).with_context(nobody)?;
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    stream.write_all(format!("{line}\n").as_bytes()).with_context(nobody)?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("no response from the throttle")?;
    Ok(answer.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desk() -> Arc<ControlState> {
        let settings = ThrottleSettings {
            paused: false,
            max_p99_overhead: 0.1,
            ceiling: None,
            min_rate: 1e5,
            panic: false,
        };
        Arc::new(ControlState { settings: Mutex::new(settings), status: Mutex::new("all is well".into()) })
    }

    #[test]
    fn orders_come_over_a_socket_that_is_its_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::begin_in(&dir.path().join("journal"), "test-control").unwrap();
        let (path, desk) = (dir.path().join("sock"), desk());
        listen(&path, Arc::clone(&desk), &journal).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(send_command(&path, "status").unwrap(), "all is well");
        assert_eq!(send_command(&path, "pause").unwrap(), "paused, max-p99-toll=10%, rate=auto");
        assert!(desk.settings().paused);
        assert!(send_command(&path, "stop").unwrap_err().to_string().contains("resume"));
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"resume\nnonsense\n").unwrap();
        let mut lines = BufReader::new(stream).lines();
        assert!(lines.next().unwrap().unwrap().starts_with("not paused"));
        assert!(lines.next().unwrap().unwrap().starts_with("error: \"nonsense\" is not a command"));
        let refused = listen(&path, desk, &journal).unwrap_err().to_string();
        assert!(refused.contains("another throttle listens"), "{refused}");
        assert!(journal.undo_all().failures.is_empty());
        assert!(!path.exists());
        assert!(send_command(&path, "status").unwrap_err().to_string().contains("no throttle listens"));
    }

    #[test]
    fn what_somebody_else_made_beside_the_socket_is_not_used_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::begin_in(&dir.path().join("journal"), "test-control").unwrap();
        // Where an earlier version would have made it.
        let planted = dir.path().join(format!(".toll-{}", std::process::id()));
        std::fs::create_dir(&planted).unwrap();
        std::fs::set_permissions(&planted, Permissions::from_mode(0o777)).unwrap();
        let path = dir.path().join("sock");
        listen(&path, desk(), &journal).unwrap();
        assert!(planted.is_dir() && send_command(&path, "status").is_ok());
        assert_eq!(std::fs::metadata(&planted).unwrap().permissions().mode() & 0o777, 0o777);
        let long = dir.path().join("x".repeat(SOCKET_PATH_MAX));
        let refused = listen(&long, desk(), &journal).unwrap_err().to_string();
        assert!(refused.contains("has 107 bytes at most"), "{refused}");
        assert!(journal.undo_all().failures.is_empty());
        assert!(planted.is_dir() && !path.exists());
    }

    #[test]
    fn a_dead_throttles_socket_is_replaced_and_a_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::begin_in(&dir.path().join("journal"), "test-control").unwrap();
        let (path, file) = (dir.path().join("sock"), dir.path().join("file"));
        drop(UnixListener::bind(&path).unwrap());
        listen(&path, desk(), &journal).unwrap();
        assert_eq!(send_command(&path, "status").unwrap(), "all is well");
        std::fs::write(&file, "precious").unwrap();
        assert!(listen(&file, desk(), &journal).unwrap_err().to_string().contains("is not a socket"));
        assert!(journal.undo_all().failures.is_empty());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    }
}
