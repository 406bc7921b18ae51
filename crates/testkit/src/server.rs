//! Private server for tests: own data, socket and port; stopped when dropped.

use crate::port::free_port;
use crate::{HANG_TIMEOUT, find_program, skip, template};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use toll_mysql::{Address, Connection, Secret, Target};

pub struct TestServer {
    child: Child,
    /// Its files; a directory of its own, or one that goes with the test's.
    home: PathBuf,
    _dir: Option<tempfile::TempDir>,
    port: u16,
    program: PathBuf,
    user: String,
    options: Vec<String>,
}

/// Ports that are tried, since another program may take one that was free.
const ATTEMPTS: usize = 8;

/// Where distributions keep mariadbd; PATH may have another of that name.
pub fn find_mariadbd() -> Option<PathBuf> {
    let usual = ["/usr/sbin/mariadbd", "/usr/local/sbin/mariadbd"].map(PathBuf::from);
    usual.into_iter().find(|path| path.exists()).or_else(|| find_program("mariadbd"))
}

impl TestServer {
    /// `None`, and a visible word, where MariaDB is not installed. Options come after those that make it quick,
    /// so a test may ask for a binary log, or for commits that reach the disk.
    pub fn mariadb(options: &[&str]) -> Option<Self> {
        let Some(program) = find_mariadbd() else {
            skip!("mariadbd is missing: apt-get install mariadb-server");
            return None;
        };
        Self::on_template(program, options)
    }

    /// The MySQL whose `mysqld` the variable `TOLL_TEST_MYSQLD` names.
    pub fn mysql(options: &[&str]) -> Option<Self> {
        let Some(program) = std::env::var_os("TOLL_TEST_MYSQLD").map(PathBuf::from) else {
            skip!("TOLL_TEST_MYSQLD does not name a mysqld (scripts/mysqld does)");
            return None;
        };
        // Its X plugin would take a fixed port, and Debian's has a directory for files of queries that need not be there.
        let own = ["--mysqlx=OFF", "--secure-file-priv="];
        let options: Vec<&str> = options.iter().copied().chain(own).collect();
        Self::on_template(program, &options)
    }

    fn on_template(program: PathBuf, options: &[&str]) -> Option<Self> {
        let dir = template::server_dir();
        match template::template_dir(&program) {
            Ok(data) => template::copy_template(&data, &dir.path().join("data"), None),
            Err(reason) => {
                skip!("no data directory: {reason}");
                return None;
            }
        }
        let mut server = Self::launch(program, dir.path(), "root", options);
        server._dir = Some(dir);
        Some(server)
    }

    /// Starts it on `home/data`, as a user of this host where we are root.
    pub(crate) fn launch(program: PathBuf, home: &Path, user: &str, options: &[&str]) -> Self {
        let port = free_port();
        let child = spawn(&program, home, port, user, options);
        let options = options.iter().map(|o| (*o).to_owned()).collect();
        let mut server =
            Self { child, home: home.to_owned(), _dir: None, port, program, user: user.to_owned(), options };
        for _ in 0..ATTEMPTS {
            if server.is_up() {
                return server;
            }
            server.port = free_port();
            server.respawn();
        }
        panic!("every port was taken meanwhile:\n{}", server.error_log());
    }

    fn respawn(&mut self) {
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        self.child = spawn(&self.program, &self.home, self.port, &self.user, &options);
    }

    /// Waits until it is up; false where somebody else took its port since that was free.
    fn is_up(&mut self) -> bool {
        let begin = Instant::now();
        loop {
            if Connection::connect(&self.unix_target()).is_ok() {
                return true;
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                let log = self.error_log();
                // At bind, or, where two bind at the same moment, at listen.
                let taken = ["Do you already have another", "listen() on TCP/IP port"];
                assert!(taken.iter().any(|words| log.contains(words)), "server ended with {status}:\n{log}");
                return false;
            }
            assert!(
                begin.elapsed() < HANG_TIMEOUT,
                "server not up in {HANG_TIMEOUT:?}:\n{}",
                self.error_log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn error_log(&self) -> String {
        std::fs::read_to_string(self.home.join("server.log")).unwrap_or_default()
    }

    /// Data directory.
    pub fn datadir(&self) -> PathBuf {
        self.home.join("data")
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
        self.home.join("s.sock")
    }

    pub fn unix_target(&self) -> Target {
        Target { address: Address::Unix(self.socket()), ..Target::default() }
    }

    pub fn tcp_target(&self) -> Target {
        Target { address: Address::Tcp { host: "127.0.0.1".into(), port: self.port }, ..Target::default() }
    }

    pub fn connect_as_root(&self) -> Connection {
        Connection::connect(&self.unix_target()).unwrap()
    }

    /// Ends it and starts it again on the same data, address and options.
    pub fn restart(&mut self, pause: Duration) {
        self.stop();
        std::thread::sleep(pause);
        self.respawn();
        // The address stays, so whoever has it meanwhile is waited for.
        while !self.is_up() {
            self.respawn();
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

fn spawn(program: &Path, home: &Path, port: u16, user: &str, options: &[&str]) -> Child {
    let log = std::fs::File::create(home.join("server.log")).unwrap();
    let mut command = Command::new(program);
    command
        .arg("--no-defaults")
        .args([
            "--skip-log-bin",
            "--bind-address=127.0.0.1",
            "--innodb-buffer-pool-size=64M",
            template::REDO_LOG,
        ])
        // What a test's server holds is lost with the host it runs on, and nobody minds.
        .args(["--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0"])
        .arg(format!("--datadir={}", home.join("data").display()))
        .arg(format!("--socket={}", home.join("s.sock").display()))
        .arg(format!("--pid-file={}", home.join("pid").display()))
        .arg(format!("--port={port}"))
        .env("TMPDIR", home)
        .args(options)
        .stdout(Stdio::null())
        .stderr(log);
    if nix::unistd::geteuid().is_root() {
        command.arg(format!("--user={user}"));
    }
    command.spawn().unwrap()
}

/// A session as `user`, over the transport of `target`.
pub fn target_as_user(target: Target, user: &str, password: &str) -> Target {
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
