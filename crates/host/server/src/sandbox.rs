//! Private sandbox server: start, shutdown and complete removal.
//!
//! It has its own data directory, socket, port and password. Never touches a server or file that toll did not
//! create.

use super::config::{self, InstancePaths, Settings};
use super::data_cache::{self, DatasetSpec};
use super::datadir::{self, log_tail};
use super::program::{Flavour, ServerProgram, Version};
use super::sandbox_home::{create_home, socket_path, unused_home};
use super::unprivileged::UnprivilegedUser;
use super::{certificate, port};
use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use toll_journal::{Journal, UndoId};
use toll_mysql::{Address, PasswordOptIns, Secret, Target};
use toll_sys::cancel::CancelToken;
use toll_sys::private_dir;
use toll_sys::process::{self, ProcessId, Termination};
use toll_sys::{child_process, private_file};

/// Options of a sandbox.
#[derive(Debug, Clone)]
pub struct SandboxSpec {
    /// `--server-bin`; absent: the first found.
    pub program: Option<PathBuf>,
    /// Where prepared data and sandboxes are kept: on one file system, so that a clone can share
    /// its blocks. Absent: toll's cache directory.
    pub cache: Option<PathBuf>,
    /// Must be 2 modulo 8; absent: the first free one from [`port::FIRST_PORT`].
    pub port: Option<u16>,
    /// Size of its data in memory, bytes.
    pub data_bytes: u64,
    /// Absent: as much as the data needs, as far as memory allows.
    pub buffer_pool_bytes: Option<u64>,
    pub max_connections: u32,
    pub performance_schema: bool,
    /// Listen on ::1 too.
    pub ipv6: bool,
    /// Offer TLS.
    pub tls: bool,
    /// Listen on its near end too, and let its account in from the far one.
    pub link: Option<LinkEnds>,
    /// Further server settings, `name=value`.
    pub settings: Vec<String>,
    /// The server runs as this user instead of toll's own. For [`Sandbox::start`] alone.
    pub user: Option<UnprivilegedUser>,
    pub start_timeout: Duration,
    /// Ends whatever its start waits for.
    pub cancel: CancelToken,
}

/// Addresses of a link's two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkEnds {
    pub near: Ipv4Addr,
    pub far: Ipv4Addr,
}

impl Default for SandboxSpec {
    fn default() -> Self {
        Self {
            program: None,
            cache: None,
            port: None,
            data_bytes: config::MIN_BUFFER_POOL_BYTES,
            buffer_pool_bytes: None,
            max_connections: config::MAX_CONNECTIONS,
            performance_schema: false,
            ipv6: false,
            tls: false,
            link: None,
            settings: Vec::new(),
            user: None,
            start_timeout: Duration::from_secs(60),
            cancel: CancelToken::new(),
        }
    }
}

impl SandboxSpec {
    pub(super) fn cache_dir(&self) -> Result<PathBuf> {
        self.cache.clone().map_or_else(toll_sys::paths::cache_dir, Ok)
    }
}

/// A running private server. Dropping it kills the server; [`Sandbox::stop`] shuts it down first.
#[derive(Debug)]
pub struct Sandbox {
    program: ServerProgram,
    home: PathBuf,
    socket: PathBuf,
    port: u16,
    password: Secret,
    config: Vec<String>,
    warnings: Vec<String>,
    run_id: String,
    leader: ProcessId,
    child: Option<Child>,
    server: UndoId,
    directories: Vec<UndoId>,
}

/// How long a server may take to end after SIGTERM before it is killed.
const STOP_GRACE: Duration = Duration::from_secs(30);

impl Sandbox {
    /// Starts a server without tables. Blocks until it accepts connections, or fails with the end of its
    /// error log.
    pub fn start(spec: &SandboxSpec, journal: &Journal) -> Result<Self> {
        let program = ServerProgram::find(spec.program.as_deref())?;
        Self::start_with(spec, program, journal, |program, home| {
            datadir::initialise(program, home, spec.user, journal, &spec.cancel)
        })
    }

    /// Starts a server that holds `data`: a clone from the cache, or filled by `load` the first time. `tell`
    /// receives progress messages.
    pub fn start_prepared(
        spec: &SandboxSpec,
        data: &DatasetSpec,
        journal: &Journal,
        tell: &dyn Fn(&str),
        load: impl FnOnce(&Target) -> Result<()>,
    ) -> Result<Self> {
        data_cache::start_from_cache(spec, data, journal, tell, load)
    }

    /// Starts a server on the data directory `data` that `fill` makes in the sandbox's own.
    pub(super) fn start_with(
        spec: &SandboxSpec,
        program: ServerProgram,
        journal: &Journal,
        fill: impl FnOnce(&ServerProgram, &Path) -> Result<()>,
    ) -> Result<Self> {
        let addresses = listen_addresses(spec);
        if let Some(port) = spec.port {
            port::check_port(port, &addresses)?;
        }
        let (buffer_pool_bytes, warning) = match spec.buffer_pool_bytes {
            Some(bytes) => (bytes, None),
            None => {
                let available = toll_sys::memory::available_bytes();
                config::choose_buffer_pool_bytes(0, spec.data_bytes, available, 1)
            }
        };
        let settings = Settings {
            buffer_pool_bytes,
            max_connections: spec.max_connections,
            performance_schema: spec.performance_schema,
            addresses: addresses.clone(),
            extra: spec.settings.clone(),
        };

        let below = spec.cache_dir()?.join("sandbox");
        let home = match spec.user {
            None => unused_home(&below, journal.run_id()),
            Some(_) => {
                unused_home(&UnprivilegedUser::reachable_dir(below)?, &format!("toll-{}", journal.run_id()))
            }
        };
        let mut directories = vec![create_home(&home, spec.user, journal)?];
        let filled = fill(&program, &home);
        let started = filled.and_then(|()| {
            let socket = socket_path(&home, spec.user, journal, &mut directories)?;
            let config = config::render_settings(&program, &settings);
            launch(spec, &program, &home, &socket, &config, &addresses, journal)
                .map(|launched| (launched, socket, config))
        });
        match started {
            Ok((launched, socket, config)) => Ok(Self {
                home,
                socket,
                port: launched.port,
                password: launched.password,
                config,
                warnings: warning.into_iter().collect(),
                run_id: journal.run_id().to_owned(),
                leader: launched.leader,
                child: Some(launched.child),
                server: launched.server,
                directories,
                program,
            }),
            Err(error) => {
                for id in directories {
                    journal.undo(id)?;
                }
                Err(error)
            }
        }
    }

    /// How to connect over TCP, as the sandbox's own account.
    pub fn target(&self) -> Target {
        self.target_at(Address::Tcp { host: "127.0.0.1".into(), port: self.port })
    }

    /// How to connect over the Unix socket.
    pub fn unix_target(&self) -> Target {
        self.target_at(Address::Unix(self.socket.clone()))
    }

    fn target_at(&self, address: Address) -> Target {
        Target {
            address,
            user: config::SANDBOX_USER.into(),
            password: self.password.clone(),
            // It is toll's own server, on this host, with a password of its own.
            password_opt_ins: PasswordOptIns {
                get_server_public_key: true,
                enable_cleartext_plugin: true,
                ..PasswordOptIns::default()
            },
            ..Target::default()
        }
    }

    pub fn pid(&self) -> i32 {
        self.leader.pid
    }

    pub fn process(&self) -> ProcessId {
        self.leader
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The directory that holds everything of this sandbox; gone once it is stopped.
    pub fn home(&self) -> &Path {
        &self.home
    }

    pub fn datadir(&self) -> PathBuf {
        self.home.join("data")
    }

    /// An option file for client programs (`--defaults-extra-file`), readable by its owner only.
    pub fn client_defaults(&self) -> PathBuf {
        self.home.join("client.cnf")
    }

    /// Written by the server while the slow log is on.
    pub fn slow_log(&self) -> PathBuf {
        self.home.join("slow.log")
    }

    pub fn general_log(&self) -> PathBuf {
        self.home.join("general.log")
    }

    pub fn flavour(&self) -> Flavour {
        self.program.flavour
    }

    pub fn version(&self) -> Version {
        self.program.version
    }

    pub fn program(&self) -> &ServerProgram {
        &self.program
    }

    /// For CREATE USER: makes an account's password that of the sandbox's own.
    pub fn identified_clause(&self) -> String {
        config::identified_clause(&self.program, self.password.expose())
    }

    /// Settings that toll chose, `name=value`, for the plan.
    pub fn config(&self) -> &[String] {
        &self.config
    }

    /// Warnings about differences from the requested options.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Description for the plan.
    pub fn describe(&self) -> toll_record::Server {
        toll_record::Server {
            kind: "sandbox".into(),
            flavour: self.program.flavour.name().into(),
            version: self.program.version.to_string(),
            address: format!("127.0.0.1:{}", self.port),
            config: self.config.clone(),
        }
    }

    /// False once the server has ended by itself; `error_log_tail` says why.
    pub fn is_alive(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// The end of the server's error log.
    pub fn error_log_tail(&self) -> String {
        log_tail(&self.home.join("error.log"))
    }

    /// Stops the server (SIGTERM, then SIGKILL) and removes its directory. Returns how it ended.
    pub fn stop(mut self, journal: &Journal) -> Result<Termination> {
        let ending = self.end_server();
        if ending == Termination::Stuck {
            bail!("the sandbox server (pid {}) {ending}", self.leader.pid);
        }
        journal.mark_done(self.server)?;
        for id in std::mem::take(&mut self.directories) {
            journal.undo(id)?;
        }
        Ok(ending)
    }

    /// Ends the server but keeps its data directory, moved to `to` (on the same file system).
    pub(super) fn stop_keeping_data(mut self, journal: &Journal, to: &Path) -> Result<()> {
        match self.end_server() {
            Termination::Signalled(_) => {}
            other => bail!("the server did not shut down cleanly ({other}): {}", self.error_log_tail()),
        }
        journal.mark_done(self.server)?;
        std::fs::rename(self.datadir(), to)
            .with_context(|| format!("cannot move the prepared data to {}", to.display()))?;
        for id in std::mem::take(&mut self.directories) {
            journal.undo(id)?;
        }
        Ok(())
    }

    /// Lets the server outlive this process; the holder of the journal removes it.
    pub fn detach(mut self) {
        self.child = None;
    }

    fn end_server(&mut self) -> Termination {
        let Some(mut child) = self.child.take() else { return Termination::AlreadyExited };
        // Reaped in a thread of its own, so that /proc shows the end as soon as it comes.
        let reaper = std::thread::spawn(move || child.wait());
        let ending = process::terminate_group(self.leader, &self.run_id, Signal::SIGTERM, STOP_GRACE);
        if ending != Termination::Stuck {
            let _ = reaper.join();
        }
        ending
    }
}

impl Drop for Sandbox {
    /// The way out of an error or panic; the journal removes what is left of it.
    fn drop(&mut self) {
        if self.child.is_some() {
            self.end_server();
        }
    }
}

struct LaunchedServer {
    child: Child,
    leader: ProcessId,
    server: UndoId,
    port: u16,
    password: Secret,
}

/// Between looking for a free port and listening on it somebody else may take it: then the next.
fn launch(
    spec: &SandboxSpec,
    program: &ServerProgram,
    home: &Path,
    socket: &Path,
    shown: &[String],
    addresses: &[IpAddr],
    journal: &Journal,
) -> Result<LaunchedServer> {
    let password = private_dir::random_hex().context("no password for the sandbox server")?;
    let own = |path: &Path| spec.user.map_or(Ok(()), |user| user.own(path));
    let statements = home.join("init.sql");
    private_file::write(
        &statements,
        &config::account_statements(program, &password, spec.link.map(|link| link.far)),
    )?;
    own(&statements)?;
    let datadir = home.join("data");
    let error_log = home.join("error.log");
    let tls = if spec.tls { certificate::tls_settings(program, home)? } else { Vec::new() };
    let mut from = spec.port.unwrap_or(port::FIRST_PORT);
    loop {
        let port = match spec.port {
            Some(port) => port,
            None => port::find_free_port(from, addresses)?,
        };
        let files = InstancePaths { home, datadir: &datadir, socket, port, tls: &tls };
        let defaults = home.join("server.cnf");
        let runs_as_root = spec.user.is_none() && nix::unistd::geteuid().is_root();
        private_file::write(&defaults, &config::render_option_file(program, &files, shown, runs_as_root))?;
        own(&defaults)?;
        private_file::write(&home.join("client.cnf"), &render_client_options(socket, port, &password))?;
        let log =
            File::create(&error_log).with_context(|| format!("cannot write {}", error_log.display()))?;
        own(&error_log)?;
        let mut command = child_process::clean_env_command(&program.path);
        command.arg(format!("--defaults-file={}", defaults.display()));
        if let Some(user) = spec.user {
            user.run_as(&mut command, home);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let what = format!("sandbox server on port {port}");
        let (mut child, leader, server) = journal.spawn_sandbox(&mut command, &what)?;
        let Err(reason) = wait_ready(&mut child, socket, spec) else {
            return Ok(LaunchedServer { child, leader, server, port, password: Secret::new(password) });
        };
        process::terminate_group(leader, journal.run_id(), Signal::SIGKILL, Duration::from_secs(1));
        child.wait()?;
        journal.mark_done(server)?;
        let said = std::fs::read(&error_log).unwrap_or_default();
        if spec.port.is_none() && port::is_port_conflict(&String::from_utf8_lossy(&said)) {
            from = port + 8;
            continue;
        }
        bail!(
            "the sandbox server ({}) did not start: {reason:#}; the end of its error log:\n{}",
            program.path.display(),
            log_tail(&error_log)
        );
    }
}

/// Ready means that the socket greets: packet header, then protocol version 10.
fn wait_ready(child: &mut Child, socket: &Path, spec: &SandboxSpec) -> Result<()> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            bail!("it ended by itself ({status})");
        }
        if accepts_connections(socket) {
            return Ok(());
        }
        spec.cancel.check()?;
        if begun.elapsed() > spec.start_timeout {
            bail!("it did not answer within {} s", spec.start_timeout.as_secs());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn accepts_connections(socket: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(socket) else { return false };
    let mut greeting = [0; 5];
    stream.set_read_timeout(Some(Duration::from_secs(1))).is_ok()
        && stream.read_exact(&mut greeting).is_ok()
        && greeting[4] == 10
}

/// Where it listens.
fn listen_addresses(spec: &SandboxSpec) -> Vec<IpAddr> {
    let v6 = spec.ipv6.then_some(IpAddr::V6(Ipv6Addr::LOCALHOST));
    let near = spec.link.map(|link| IpAddr::V4(link.near));
    std::iter::once(IpAddr::V4(Ipv4Addr::LOCALHOST)).chain(v6).chain(near).collect()
}

fn render_client_options(socket: &Path, port: u16, password: &str) -> String {
    format!(
        "[client]\nuser={}\npassword={password}\nsocket={}\nport={port}\n",
        config::SANDBOX_USER,
        socket.display()
    )
}
