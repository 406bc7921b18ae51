//! How does a load reach the server through SSH?
//!
//! As people do it with `ssh -L`: one port forwarded to the server's port, another to its socket.
//! The sshd and both keys are the run's own; never reads the user's keys, agent or configuration.

use crate::child;
use crate::journal::{Journal, Undo, held};
use crate::server::program::on_path;
use crate::signals;
use anyhow::{Context, bail};
use std::fs::{DirBuilder, File};
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Local ports that lead to the server.
#[derive(Debug, Clone, Copy)]
pub struct Tunnel {
    /// To the port that the server listens on.
    pub to_tcp: u16,
    /// To the server's socket.
    pub to_unix: u16,
}

/// Two key exchanges and a login; a busy host may take its time.
const READY_WITHIN: Duration = Duration::from_secs(20);
const STOP_WITHIN: Duration = Duration::from_secs(2);
/// Where sshd, run by root, wants an empty directory to lock its unprivileged half into.
const EMPTY_DIR: &str = "/run/sshd";

impl Tunnel {
    /// Starts sshd and ssh, and returns once both ports answer as the server does. The journal ends
    /// them with the run. Files go to `dir`.
    pub fn open(journal: &Journal, dir: &Path, port: u16, socket: &str) -> anyhow::Result<Self> {
        let dir = dir.join("ssh");
        DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .with_context(|| format!("cannot make {}", dir.display()))?;
        let user =
            nix::unistd::User::from_uid(nix::unistd::geteuid())?.context("this user has no name")?.name;
        for key in ["host_key", "client_key"] {
            make_key(&dir.join(key))?;
        }
        let [ssh_port, to_tcp, to_unix] = free_ports()?;
        let mut sshd = start_sshd(journal, &dir, ssh_port)?;
        wait(&mut sshd, &dir.join("sshd.log"), "sshd", || answers(ssh_port, b"SSH-"))?;

        let host_key = std::fs::read_to_string(dir.join("host_key.pub"))?;
        std::fs::write(dir.join("known_hosts"), format!("[127.0.0.1]:{ssh_port} {host_key}"))?;
        let log = dir.join("ssh.log");
        let mut command = child::command("ssh");
        command.args(["-F", "none", "-N", "-T", "-p", &ssh_port.to_string()]);
        for option in
            ["BatchMode=yes", "IdentitiesOnly=yes", "IdentityAgent=none", "ExitOnForwardFailure=yes"]
        {
            command.args(["-o", option]);
        }
        for (option, file) in [("IdentityFile", "client_key"), ("UserKnownHostsFile", "known_hosts")] {
            command.arg("-o").arg(format!("{option}={}", quoted(&without_tokens(&dir.join(file)))));
        }
        command.arg("-L").arg(format!("127.0.0.1:{to_tcp}:127.0.0.1:{port}"));
        command.arg("-L").arg(format!("127.0.0.1:{to_unix}:{socket}"));
        command.arg(format!("{user}@127.0.0.1"));
        log_to(&mut command, &log)?;
        command.stdin(Stdio::null());
        let (mut ssh, _) = journal.spawn(&mut command, "ssh -L", None, STOP_WITHIN)?;
        wait(&mut ssh, &log, "ssh -L", || greets(to_tcp) && greets(to_unix))?;
        Ok(Self { to_tcp, to_unix })
    }
}

fn make_key(path: &Path) -> anyhow::Result<()> {
    let made = child::command("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "toll", "-f"])
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .context("cannot run ssh-keygen: install openssh-client")?;
    if !made.status.success() {
        bail!("ssh-keygen: {}", String::from_utf8_lossy(&made.stderr).trim());
    }
    Ok(())
}

fn start_sshd(journal: &Journal, dir: &Path, port: u16) -> anyhow::Result<Child> {
    if nix::unistd::geteuid().is_root() && !Path::new(EMPTY_DIR).exists() {
        journal.record(Undo::Path { path: PathBuf::from(EMPTY_DIR) })?;
        std::fs::create_dir_all(EMPTY_DIR).with_context(|| format!("cannot make {EMPTY_DIR}"))?;
    }
    let config = dir.join("sshd_config");
    let text = format!(
        "ListenAddress 127.0.0.1:{port}\n\
         HostKey {}\n\
         AuthorizedKeysFile {}\n\
         PidFile none\n\
         PermitRootLogin prohibit-password\n\
         PasswordAuthentication no\n\
         KbdInteractiveAuthentication no\n\
         UsePAM no\n\
         AllowTcpForwarding yes\n\
         AllowStreamLocalForwarding yes\n\
         # The directories above it may be anybody's; the keys' own is private.\n\
         StrictModes no\n\
         LogLevel ERROR\n",
        quoted(&dir.join("host_key").display().to_string()),
        quoted(&without_tokens(&dir.join("client_key.pub")))
    );
    std::fs::write(&config, text).with_context(|| format!("cannot write {}", config.display()))?;
    // It starts itself anew for each connection, and wants to be called by its full path for that.
    let program = on_path("sshd").context("no sshd: install openssh-server")?;
    let mut command = held::command(program);
    command.args(["-D", "-e", "-f"]).arg(&config);
    log_to(&mut command, &dir.join("sshd.log"))?;
    journal.spawn_held(&mut command, "sshd", None, STOP_WITHIN).map(|(child, _)| child)
}

/// A path for OpenSSH, which puts something in the place of `%h` and the like.
fn without_tokens(path: &Path) -> String {
    path.display().to_string().replace('%', "%%")
}

/// As one word of an OpenSSH configuration.
fn quoted(path: &str) -> String {
    format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\""))
}

fn log_to(command: &mut Command, log: &Path) -> anyhow::Result<()> {
    let words = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    command.stdout(words.try_clone()?).stderr(words);
    Ok(())
}

fn wait(child: &mut Child, log: &Path, what: &str, mut ready: impl FnMut() -> bool) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !ready() {
        let ended = child.try_wait()?;
        if ended.is_some() || begun.elapsed() > READY_WITHIN {
            let said = std::fs::read_to_string(log).unwrap_or_default();
            bail!(
                "the SSH tunnel does not open: {what} {}; it said: {}; leave the ssh arms out with --arms",
                ended.map_or("is not ready".to_owned(), |status| format!("ended ({status})")),
                said.trim()
            );
        }
        signals::check()?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A MySQL server's first packet: a header of four bytes, then protocol version 10.
fn greets(port: u16) -> bool {
    first_bytes(port).is_some_and(|bytes| bytes[4] == 10)
}

fn answers(port: u16, beginning: &[u8]) -> bool {
    first_bytes(port).is_some_and(|bytes| bytes.starts_with(beginning))
}

fn first_bytes(port: u16) -> Option<[u8; 5]> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    let mut bytes = [0; 5];
    stream.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

/// Three ports that nobody listens on now.
fn free_ports() -> anyhow::Result<[u16; 3]> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free TCP port");
    // All held until the last is found, so that they differ.
    let held = [bind()?, bind()?, bind()?];
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(&held) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}
