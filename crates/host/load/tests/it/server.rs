//! A private server for tests: own data, socket and port; ended when dropped.

use crate::port::free_port;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};
use toll_mysql::{Address, Connection, Secret, Target};

pub struct TestServer {
    child: Child,
    dir: tempfile::TempDir,
    port: u16,
    program: PathBuf,
    options: Vec<String>,
}

/// One empty data directory, made once and copied for each server.
static TEMPLATE: LazyLock<Option<tempfile::TempDir>> = LazyLock::new(|| {
    let dir = tempfile::tempdir().ok()?;
    let made = Command::new("mariadb-install-db")
        .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"])
        .arg(format!("--datadir={}", dir.path().join("data").display()))
        .args(["--user=root", "--innodb-log-file-size=16M"])
        .env("TMPDIR", dir.path()) // in a shared one, servers delete each other's temporary tables
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .ok()?;
    made.success().then_some(dir)
});

/// Starts are one at a time, so that two servers never pick the same free port.
static STARTING: Mutex<()> = Mutex::new(());
/// Ports that are tried, since another program may take one that was free.
const ATTEMPTS: usize = 8;
/// No host is so busy that a server that gets up takes this long.
const HUNG: Duration = Duration::from_secs(600);

impl TestServer {
    /// `None`, and a visible word, where MariaDB is not installed.
    pub fn mariadb(options: &[&str]) -> Option<Self> {
        let guard = STARTING.lock().unwrap_or_else(|e| e.into_inner());
        let Some(template) = TEMPLATE.as_ref() else {
            eprintln!("SKIPPED: mariadb-install-db is missing or failed: apt-get install mariadb-server");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let copied =
            Command::new("cp").arg("-a").arg(template.path().join("data")).arg(&data).status().unwrap();
        assert!(copied.success());
        let server = Self::launch("mariadbd".into(), dir, options);
        drop(guard);
        Some(server)
    }

    /// The MySQL whose `mysqld` the variable `TOLL_TEST_MYSQLD` names, with an empty data directory and
    /// certificates of its own making.
    pub fn mysql(options: &[&str]) -> Option<Self> {
        let guard = STARTING.lock().unwrap_or_else(|e| e.into_inner());
        let Some(program) = std::env::var_os("TOLL_TEST_MYSQLD").map(PathBuf::from) else {
            eprintln!("SKIPPED: TOLL_TEST_MYSQLD does not name a mysqld (scripts/mysqld does)");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        let made = Command::new(&program)
            .args(["--no-defaults", "--user=root", "--initialize-insecure"])
            .arg(format!("--datadir={}", dir.path().join("data").display()))
            .env("TMPDIR", dir.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        // Its X plugin would take a fixed port.
        let options: Vec<&str> = options.iter().copied().chain(["--mysqlx=OFF"]).collect();
        let server = Self::launch(program, dir, &options);
        drop(guard);
        Some(server)
    }

    fn launch(program: PathBuf, dir: tempfile::TempDir, options: &[&str]) -> Self {
        let port = free_port();
        let child = spawn(&program, dir.path(), port, options);
        let options = options.iter().map(|o| (*o).to_owned()).collect();
        let mut server = Self { child, dir, port, program, options };
        for _ in 0..ATTEMPTS {
            if server.is_up() {
                return server;
            }
            server.port = free_port();
            server.spawn_again();
        }
        panic!("every port was taken meanwhile:\n{}", server.error_log());
    }

    fn spawn_again(&mut self) {
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        self.child = spawn(&self.program, self.dir.path(), self.port, &options);
    }

    /// Waits until it is up; false where somebody else took its port since that was free.
    fn is_up(&mut self) -> bool {
        let begin = Instant::now();
        loop {
            if Connection::connect(&self.unix()).is_ok() {
                return true;
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                let log = self.error_log();
                // At bind, or, where two bind at the same moment, at listen.
                let taken = ["Do you already have another", "listen() on TCP/IP port"];
                assert!(taken.iter().any(|words| log.contains(words)), "server ended with {status}:\n{log}");
                return false;
            }
            assert!(begin.elapsed() < HUNG, "server not up in {HUNG:?}:\n{}", self.error_log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn error_log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("server.log")).unwrap_or_default()
    }

    /// Sends the server a signal by name, as kill(1) does.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        // On a busy host a thread that is to stop may still answer.
        while name == "STOP" && !self.is_stopped() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn is_stopped(&self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        tasks.flatten().all(|task| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('T'))
        })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    pub fn unix(&self) -> Target {
        Target { address: Address::Unix(self.socket()), ..Target::default() }
    }

    pub fn tcp(&self) -> Target {
        Target { address: Address::Tcp { host: "127.0.0.1".into(), port: self.port }, ..Target::default() }
    }

    pub fn root(&self) -> Connection {
        Connection::connect(&self.unix()).unwrap()
    }

    /// Ends it and starts it again on the same data, address and options.
    pub fn restart(&mut self, pause: Duration) {
        self.stop();
        std::thread::sleep(pause);
        self.spawn_again();
        // The address stays, so whoever has it meanwhile is waited for.
        while !self.is_up() {
            self.spawn_again();
        }
    }

    pub fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn spawn(program: &Path, dir: &Path, port: u16, options: &[&str]) -> Child {
    let log = std::fs::File::create(dir.join("server.log")).unwrap();
    Command::new(program)
        .arg("--no-defaults")
        .args(["--user=root", "--skip-log-bin", "--bind-address=127.0.0.1", "--innodb-buffer-pool-size=64M"])
        .arg(format!("--datadir={}", dir.join("data").display()))
        .arg(format!("--socket={}", dir.join("s").display()))
        .arg(format!("--pid-file={}", dir.join("pid").display()))
        .arg(format!("--port={port}"))
        .env("TMPDIR", dir)
        .args(options)
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// A session as `user`, over the transport of `target`.
pub fn as_user(target: Target, user: &str, password: &str) -> Target {
    Target { user: user.into(), password: Secret::new(password), ..target }
}

/// A certificate authority and a certificate for 127.0.0.1 in `dir`; false where openssl is missing.
pub fn make_certificates(dir: &Path) -> bool {
    let script = "set -e
        openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout ca.key -out ca.pem -subj /CN=ca
        openssl req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=127.0.0.1
        printf 'subjectAltName=IP:127.0.0.1,DNS:localhost\\n' > san
        openssl x509 -req -days 2 -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile san -out server.pem";
    Command::new("sh").args(["-c", script]).current_dir(dir).output().is_ok_and(|o| o.status.success())
}
