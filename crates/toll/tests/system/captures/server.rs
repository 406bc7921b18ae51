//! Private server of these tests, and a capture of its packets.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::Duration;
use toll_journal::Journal;
use toll_load::mix::{Distribution, TableSet};
use toll_load::summary::Summary;
use toll_load::tables::{self, TableLayout};
use toll_mysql::{Connection, Target};
use toll_server::{DatasetSpec, Sandbox, SandboxSpec, ServerProgram};
use toll_sys::program::find_program;
use toll_testkit::tcpdump::{Tcpdump, capture_without_drops};
use toll_wire::decoder::Config;

const TABLE: TableSet = TableSet { tables: 2, rows: 1000, distribution: Distribution::Special };

/// A server with the tables of [`TABLE`], stopped with the test.
pub struct Server {
    // Dropped before the journal and the directory that it writes to.
    sandbox: Sandbox,
    _journal: Journal,
    dir: tempfile::TempDir,
}

/// Prints the reason why a test is skipped.
fn skipped<T>(reason: &str) -> Option<T> {
    toll_testkit::skip!("{reason}");
    None
}

impl Server {
    /// The installed server. `None` if it, root or one of `tools` is missing.
    pub fn installed(tools: &[&str], settings: &[String]) -> Option<Self> {
        match ServerProgram::find(None) {
            Ok(program) => Self::start(program.path, tools, settings),
            Err(reason) => skipped(&format!("{reason:#}")),
        }
    }

    /// The MySQL whose `mysqld` the variable `TOLL_TEST_MYSQLD` names.
    pub fn mysql(tools: &[&str], settings: &[String]) -> Option<Self> {
        match std::env::var_os("TOLL_TEST_MYSQLD") {
            Some(program) => Self::start(program.into(), tools, settings),
            None => skipped("TOLL_TEST_MYSQLD does not name a mysqld"),
        }
    }

    fn start(program: PathBuf, tools: &[&str], settings: &[String]) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            return skipped("captures need root");
        }
        if let Some(missing) = tools.iter().find(|tool| find_program(tool).is_none()) {
            return skipped(&format!("this test needs {missing}"));
        }
        let dir = tempfile::Builder::new().prefix("toll-test-").tempdir().unwrap();
        let name = dir.path().file_name().unwrap().to_string_lossy().into_owned();
        let journal =
            Journal::begin_in(&dir.path().join("journal"), &format!("test-captures-{name}")).unwrap();
        let spec = SandboxSpec {
            program: Some(program),
            cache: Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache/toll")),
            settings: settings.to_vec(),
            start_timeout: Duration::from_secs(120),
            ..SandboxSpec::default()
        };
        // Loaded once and cloned for each test.
        let data = DatasetSpec { key: "test-captures".into(), bytes: 64 << 20, what: "two tables".into() };
        let load = |target: &Target| {
            let target = Target { db: Some("sbtest".into()), ..target.clone() };
            let layout = TableLayout { table: TABLE, seed: 1, threads: 2 };
            Ok(tables::prepare_tables(&target, &layout, &AtomicBool::new(false), |_| {}).map(drop)?)
        };
        let sandbox = Sandbox::start_prepared(&spec, &data, &journal, &|_| {}, load).unwrap();
        Some(Self { sandbox, _journal: journal, dir })
    }

    pub fn port(&self) -> u16 {
        self.sandbox.port()
    }

    /// Account of the clients.
    pub fn account(&self) -> Target {
        self.sandbox.target()
    }

    pub fn config(&self) -> Config {
        Config { ports: vec![self.port()], ..Config::default() }
    }

    /// A path in the server's temporary directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Output file of [`Self::capture_while`].
    pub fn capture_file(&self) -> PathBuf {
        self.path("capture")
    }

    /// A session over the socket, so that it is in no capture.
    pub fn session(&self) -> Connection {
        let target = Target { db: Some("sbtest".into()), ..self.sandbox.unix_target() };
        Connection::connect(&target).unwrap()
    }

    /// The server's statement counters, by name. Reading them changes none.
    pub fn counters(&self) -> HashMap<String, u64> {
        const ASK: &str = "show global status where variable_name in ('Com_select', 'Com_begin', 'Com_commit', \
             'Com_stmt_prepare', 'Com_stmt_execute', 'Com_stmt_close')";
        let rows = self.session().query(ASK).unwrap();
        rows.pairs().map(|(name, count)| (name.to_owned(), count.parse().unwrap())).collect()
    }

    /// Waits until all clients have disconnected from the server.
    pub fn wait_until_alone(&self) {
        let mut session = self.session();
        let mut is_alone = || {
            sleep(Duration::from_millis(100));
            let rows = session.query("show global status like 'Threads_connected'").unwrap();
            rows.pairs().any(|(_, count)| count == "1")
        };
        assert!((0..300).any(|_| is_alone()), "connections stay open after the load");
    }

    /// Packets on the server's port while `work` runs, and the result of `work`.
    pub fn capture_while<T>(&self, mut work: impl FnMut() -> T) -> (Vec<u8>, T) {
        capture_without_drops(|| {
            let tcpdump = Tcpdump::listen(self.port(), self.capture_file());
            let outcome = work();
            self.wait_until_alone();
            Some((tcpdump.stop()?, outcome))
        })
    }

    /// `toll load` over TCP, with JSON output.
    pub fn load_command(&self, options: &[String]) -> Command {
        let target = self.sandbox.target();
        let mut command = Command::new(env!("CARGO_BIN_EXE_toll"));
        command
            .arg("load")
            .args(options)
            .args(["--json", "--tables=2", "--rows=1000", "--host=127.0.0.1"])
            .arg(format!("--port={}", self.port()))
            .arg(format!("--user={}", target.user))
            .env("MYSQL_PWD", target.password.expose())
            .env_remove("TOLL_DSN");
        command
    }

    /// Runs `toll load`. Returns its summary.
    pub fn load(&self, options: &[String]) -> Summary {
        let output = self.load_command(options).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8(output.stdout).unwrap();
        serde_json::from_str(lines.lines().last().unwrap()).unwrap()
    }

    /// The mariadb client over TCP, unencrypted: by default it encrypts if the server offers that.
    pub fn client(&self) -> Command {
        let target = self.sandbox.target();
        let mut command = Command::new("mariadb");
        command
            .args(["--no-defaults", "--skip-ssl", "--protocol=tcp", "--host=127.0.0.1", "--database=sbtest"])
            .arg(format!("--port={}", self.port()))
            .arg(format!("--user={}", target.user))
            .env("MYSQL_PWD", target.password.expose());
        command
    }

    pub fn sysbench(&self, options: &[&str]) {
        let target = self.sandbox.target();
        let output = Command::new("sysbench")
            .args(["oltp_read_only", "--mysql-host=127.0.0.1", "--tables=2", "--table-size=1000"])
            .arg(format!("--mysql-port={}", self.port()))
            .arg(format!("--mysql-user={}", target.user))
            .arg(format!("--mysql-password={}", target.password.expose()))
            .args(options)
            .arg("run")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

/// Settings of a server with TLS, and a certificate generated in `dir`.
pub fn certified(dir: &Path) -> Vec<String> {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"])
        .args(["-keyout", "server.key", "-out", "server.pem"])
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let path = |name: &str| dir.join(name).display().to_string();
    vec![format!("ssl_cert={}", path("server.pem")), format!("ssl_key={}", path("server.key"))]
}
