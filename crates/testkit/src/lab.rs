//! Private environment for tests of whole runs: the program, its directories, a server, and a check for
//! leftovers.

use crate::server::{TestServer, find_mariadbd, make_certificates};
use crate::template;
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub use crate::HANG_TIMEOUT;

/// What spawned programs say on standard error.
const SPAWNED: &str = "spawned.stderr";

/// Places that belong to one test; prepared data is shared by all.
pub struct Lab {
    dir: tempfile::TempDir,
    toll: PathBuf,
    cache: PathBuf,
    pub is_root: bool,
}

/// A [`Lab`](crate::lab::Lab) for the program that cargo built for this test.
#[macro_export]
macro_rules! lab {
    () => {
        $crate::lab::Lab::of(env!("CARGO_BIN_EXE_toll"), env!("CARGO_TARGET_TMPDIR"))
    };
}

impl Lab {
    /// `toll`: the program; `shared`: a directory that tests share, for data that toll prepares.
    pub fn of(toll: &str, shared: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // Servers of other users live in it; what is for toll alone says so by itself.
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let (toll, cache) = (toll.into(), Path::new(shared).join("cache"));
        Self { dir, toll, cache, is_root: nix::unistd::geteuid().is_root() }
    }

    pub fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    pub fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    /// For its owner alone, as toll wants passphrases and keys.
    pub fn write_secret(&self, name: &str, text: &str) -> String {
        let path = self.write(name, text);
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        path
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        // Heeds all signals, even where the tests themselves were started by nohup.
        let mut command = Command::new("env");
        command
            .arg("--default-signal=HUP,INT,QUIT,TERM")
            .arg(&self.toll)
            .args(arguments)
            .current_dir(self.dir.path())
            .env("XDG_STATE_HOME", self.dir.path().join("state"))
            .env("TOLL_LOCK_DIR", self.dir.path())
            .env("XDG_CACHE_HOME", &self.cache)
            .env_remove("MYSQL_PWD")
            .stdin(Stdio::null());
        command
    }

    pub fn toll(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Inside a network namespace.
    pub fn in_namespace(&self, namespace: &str, arguments: &[&str]) -> Command {
        let toll = self.command(arguments);
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).arg(toll.get_program()).args(toll.get_args());
        command.envs(toll.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    pub fn toll_with(&self, environment: &[(&str, &str)], arguments: &[&str]) -> Output {
        self.command(arguments).envs(environment.iter().copied()).output().unwrap()
    }

    /// Both of its outputs are pipes that nobody reads any more.
    pub fn toll_without_reader(&self, arguments: &[&str]) -> std::process::ExitStatus {
        let mut child =
            self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop((child.stdout.take(), child.stderr.take()));
        child.wait().unwrap()
    }

    /// Its words go to a file.
    pub fn spawn_with_stderr(&self, arguments: &[&str], words: &str) -> Child {
        let file = File::create(words).unwrap();
        self.command(arguments).stdout(Stdio::null()).stderr(file).spawn().unwrap()
    }

    /// Its output and its words go to files.
    pub fn spawn_into(&self, arguments: &[&str], output: &str, words: &str) -> Child {
        let [output, words] = [output, words].map(|path| File::create(path).unwrap());
        self.command(arguments).stdout(output).stderr(words).spawn().unwrap()
    }

    /// True if control groups can be created here. As toll sees it: below its own group (version 2), where
    /// that does not share out the CPU.
    pub fn has_cgroups(&self) -> bool {
        let base = || {
            let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
            let mount = mounts.lines().find_map(|line| {
                let mut fields = line.split_ascii_whitespace();
                let (place, kind) = (fields.nth(1)?, fields.next()?);
                (kind == "cgroup2").then(|| PathBuf::from(place))
            })?;
            let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
            let base = mount.join(own.lines().find_map(|line| line.strip_prefix("0::/"))?);
            let shared_out = std::fs::read_to_string(base.join("cgroup.subtree_control")).ok()?;
            let may_write = nix::unistd::access(&base, nix::unistd::AccessFlags::W_OK).is_ok();
            Some(may_write && !shared_out.split_ascii_whitespace().any(|controller| controller == "cpu"))
        };
        base().unwrap_or(false)
    }

    pub fn spawn(&self, arguments: &[&str]) -> Child {
        self.spawn_with(&[], arguments)
    }

    /// Its words are kept for [`Lab::words_of_spawned`].
    pub fn spawn_with(&self, environment: &[(&str, &str)], arguments: &[&str]) -> Child {
        let words = File::options().create(true).append(true).open(self.dir.path().join(SPAWNED)).unwrap();
        let mut command = self.command(arguments);
        command.envs(environment.iter().copied()).stdout(Stdio::null()).stderr(words).spawn().unwrap()
    }

    /// What those begun by [`Lab::spawn`] said on standard error.
    pub fn words_of_spawned(&self) -> String {
        std::fs::read_to_string(self.dir.path().join(SPAWNED)).unwrap_or_default()
    }

    pub fn signal(&self, child: &Child, name: &str) {
        let sent =
            Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// For one that may have ended by itself.
    pub fn signal_if_alive(&self, child: &mut Child, name: &str) {
        if child.try_wait().unwrap().is_none() {
            self.signal(child, name);
        }
    }

    /// Waits until so many steps of trials are on disk. Panics if the run ends before.
    pub fn wait_for_trials(&self, child: &mut Child, run: &str, lines: usize) {
        let begun = Instant::now();
        let path = Path::new(run).join("trials.ndjson");
        while std::fs::read_to_string(&path).map_or(0, |t| t.lines().count()) < lines {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "{run} ended early, {}: {}", ended.unwrap(), self.words_of_spawned());
            assert!(begun.elapsed() < HANG_TIMEOUT, "no trials in {}", path.display());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Run directories that were made without --out.
    pub fn runs(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.dir.path()).unwrap().flatten();
        names.filter_map(|e| e.file_name().into_string().ok()).filter(|n| n.starts_with("run-")).collect()
    }

    /// A server that is not toll's own, ended with the test.
    pub fn start_server(&self) -> ForeignServer {
        self.start_another_server("server")
    }

    /// One of several.
    pub fn start_another_server(&self, name: &str) -> ForeignServer {
        ForeignServer::start(&self.dir.path().join(name))
    }

    /// A server whose paths are its own, with a certificate. None where that cannot be made.
    pub fn start_jailed_server(&self, jail: Jail) -> Option<ForeignServer> {
        ForeignServer::start_jailed(&self.dir.path().join("jailer"), jail)
    }

    /// No process, namespace, link or journal of this test's runs.
    pub fn assert_nothing_left(&self) {
        let state = self.dir.path().join("state/toll/journal");
        let journals: Vec<_> = std::fs::read_dir(&state)
            .map(|d| d.flatten().map(|e| e.file_name()).collect())
            .unwrap_or_default();
        assert!(journals.is_empty(), "journals left: {journals:?}");
        let mark = self.dir.path().join("state").display().to_string();
        let ours = |pid: &str| {
            let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let environment = String::from_utf8_lossy(&read("environ")).into_owned();
            environment.contains(&mark) && environment.contains("TOLL_RUN=")
        };
        let left: Vec<String> = std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|e| e.file_name().into_string().ok())
            .filter(|name| name.bytes().all(|b| b.is_ascii_digit()) && ours(name))
            .collect();
        assert!(left.is_empty(), "processes left: {left:?}");
    }
}

/// `result.json` of a run.
pub fn read_result(run: &str) -> Value {
    let text = std::fs::read(PathBuf::from(run).join("result.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Lines of trials.ndjson with this step.
pub fn read_steps(run: &str, step: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(Path::new(run).join("trials.ndjson")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["step"] == step).collect()
}

/// An arm of a result or a plan.
pub fn arm<'a>(result: &'a Value, name: &str) -> &'a Value {
    result["arms"].as_array().unwrap().iter().find(|a| a["name"] == name).unwrap()
}

/// All that a program said.
pub fn output_text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A scenario of `rounds` short rounds on little data, with the load alone as its first arm, and `rest`.
pub fn scenario(rounds: u32, rest: &str) -> String {
    format!(
        r#"
name = "small"
question = "?"
baseline = "none"
primary = "latency_us_mean"
[workload]
threads = 2
tables = 1
rate = 300.0
[profile.quick]
rounds = {rounds}
window = "300ms"
settle = "100ms"
rows = 500
[[arm]]
name = "none"
title = "load alone"
role = "baseline"
{rest}"#
    )
}

/// A mariadbd that somebody else started, as far as toll knows: as a user of its own where there is one,
/// with a binary log and performance_schema. On a disk, as servers are: some tests ask what toll says of that.
pub struct ForeignServer {
    owner: ServerOwner,
    pub port: u16,
    /// As it may be reached from outside.
    pub socket: PathBuf,
}

/// How a server comes to have paths of its own. Its processes are counted from 1 in either.
#[derive(Debug, Clone, Copy)]
pub enum Jail {
    /// A chroot into mounts of the host's directories.
    Chroot,
    /// As containers have it: an overlay as the root of a mount namespace, in which the host's root is not mounted.
    Container,
}

impl Jail {
    /// Commands of a shell that make `jail`, and the command in front of the server's.
    fn script(self) -> (&'static str, &'static str) {
        match self {
            Self::Chroot => (
                "mount -t tmpfs tmpfs jail; \
                 for d in usr etc dev; do mkdir jail/$d; mount --rbind /$d jail/$d; done; \
                 for d in bin sbin lib lib64; do [ ! -e /$d ] || ln -s usr/$d jail/$d; done; \
                 mkdir -p jail/proc jail/tmp jail/srv jail/sock; mount -t proc proc jail/proc; chmod 1777 jail/tmp",
                "chroot jail",
            ),
            Self::Container => (
                "mkdir layers; mount -t tmpfs tmpfs layers; mkdir layers/upper layers/work; \
                 mount -t overlay -o lowerdir=/,upperdir=layers/upper,workdir=layers/work overlay jail; \
                 mount -t tmpfs tmpfs jail/srv; mount -t tmpfs -o mode=1777 tmpfs jail/tmp; \
                 mkdir jail/sock jail/host; mount --rbind /dev jail/dev; mount -t proc proc jail/proc",
                "cd jail; pivot_root . host; umount -l /host;",
            ),
        }
    }
}

/// Owner of the server process.
enum ServerOwner {
    Us(TestServer),
    /// A shell in namespaces, with which the server goes.
    Jail(Child),
}

/// User account of distribution servers.
fn server_user() -> Option<nix::unistd::User> {
    let root = nix::unistd::geteuid().is_root();
    if root { nix::unistd::User::from_name("mysql").unwrap() } else { None }
}

/// Options of somebody's server.
const FOREIGN_OPTIONS: [&str; 3] = ["--performance-schema=ON", "--log-bin=binlog", "--server-id=1"];

impl ForeignServer {
    fn start(home: &Path) -> Self {
        std::fs::create_dir_all(home).unwrap();
        let program = find_mariadbd().expect("mariadbd is missing: apt-get install mariadb-server");
        let data = template::template_dir(&program).unwrap();
        let user = server_user();
        if let Some(user) = &user {
            std::os::unix::fs::chown(home, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
        }
        let user = user.map(|user| user.name);
        template::copy_template(&data, &home.join("data"), user.as_deref());
        let server = TestServer::launch(program, home, user.as_deref().unwrap_or("root"), &FOREIGN_OPTIONS);
        Self { port: server.port(), socket: server.socket(), owner: ServerOwner::Us(server) }
    }

    fn start_jailed(home: &Path, jail: Jail) -> Option<Self> {
        let socket = home.join("sock/s.sock");
        let port = crate::port::free_port();
        let data = template::template_dir(&find_mariadbd()?).ok()?;
        std::fs::create_dir_all(home.join("jail")).unwrap();
        std::fs::create_dir_all(home.join("sock")).unwrap();
        // Mounts and processes are in namespaces of their own, and go with the shell, which stays: a program that changes its
        // user gets no signal when its parent dies.
        let (make, enter) = jail.script();
        let certificate = match make_certificates(&home.join("sock")) {
            true => "--ssl-cert=/sock/server.pem --ssl-key=/sock/server.key",
            false => "",
        };
        let script = format!(
            "set -e; cd {home}; {make}; chmod 777 sock; mount --bind sock jail/sock; \
             cp -a {data} jail/srv/db; chown -R {user} jail/srv/db; [ ! -e sock/server.key ] || chown {user} sock/server.key; \
             {enter} mariadbd --no-defaults {certificate} --user={user} --datadir=/srv/db --socket=/sock/s.sock \
               --bind-address=127.0.0.1 --port={port} --innodb-buffer-pool-size=64M {redo} --pid-file=/srv/db/pid 2>/dev/null; exit",
            home = home.display(),
            data = std::fs::canonicalize(data).ok()?.display(),
            redo = template::REDO_LOG,
            user = server_user().map_or("root".to_owned(), |user| user.name),
        );
        let child = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-c"])
            .arg(script)
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("TMPDIR", "/tmp")
            .stdout(Stdio::null())
            .spawn()
            .ok()?;
        let mut server = Self { owner: ServerOwner::Jail(child), port, socket };
        let begun = Instant::now();
        while server.rows("SELECT 1").is_empty() {
            let ServerOwner::Jail(child) = &mut server.owner else { unreachable!() };
            if child.try_wait().unwrap().is_some() {
                return None;
            }
            assert!(begun.elapsed() < HANG_TIMEOUT, "the server in the chroot does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(server)
    }

    fn test_server(&mut self) -> &mut TestServer {
        let ServerOwner::Us(server) = &mut self.owner else { panic!("a server in a jail is started once") };
        server
    }

    /// As a supervisor does after a crash.
    pub fn crash_and_restart(&mut self) {
        self.test_server().restart(Duration::ZERO);
    }

    pub fn signal(&self, name: &str) {
        let ServerOwner::Us(server) = &self.owner else { panic!("a server in a jail is left alone") };
        server.signal(name);
    }

    pub fn dsn(&self) -> String {
        format!("mysql://root@localhost/?socket={}", self.socket.display())
    }

    pub fn datadir(&self) -> PathBuf {
        let ServerOwner::Us(server) = &self.owner else { panic!("a server in a jail has its data there") };
        server.datadir()
    }

    /// Statements for their effect.
    pub fn run(&self, sql: &str) {
        let target = toll_mysql::Target::parse_dsn(&self.dsn()).unwrap();
        let target = toll_mysql::Target { multi_statements: true, ..target };
        toll_mysql::Connection::connect(&target).unwrap().exec_drop(sql).unwrap();
    }

    pub fn rows(&self, sql: &str) -> String {
        let target = toll_mysql::Target::parse_dsn(&self.dsn()).unwrap();
        let Ok(mut connection) = toll_mysql::Connection::connect(&target) else { return String::new() };
        let rows = connection.query(sql).unwrap();
        rows.rows.iter().map(|row| format!("{row:?}\n")).collect()
    }

    /// Everything that SHOW GLOBAL VARIABLES says, but for what moves by itself.
    pub fn variables(&self) -> String {
        let all = self.rows("SHOW GLOBAL VARIABLES");
        all.lines()
            .filter(|l| !l.contains("gtid_") && !l.contains("\"timestamp\""))
            .map(|l| format!("{l}\n"))
            .collect()
    }

    pub fn schemas(&self) -> String {
        self.rows("SHOW DATABASES")
    }
}

impl Drop for ForeignServer {
    fn drop(&mut self) {
        // One of our own ends by itself; its files go with the test's directory.
        if let ServerOwner::Jail(child) = &mut self.owner {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
