//! Rig step `ssh`: forwarded ports through which loads and commands reach the server.
//!
//! It forwards as users do with `ssh -L`. Each server has one forward to its port, one to its socket, and a
//! compressed one (`ssh -C`) to its port. The sshd and both keys are the run's own.
//!
//! # Invariants
//! Never reads the user's keys, agent or configuration.

use super::StepBuilder;
use crate::testbed::Testbed;
use anyhow::{Context, bail, ensure};
use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use toll_journal::{Journal, deferred_start};
use toll_model::rig::{SSH_COMPRESSED_PORT, SSH_PORT, SSH_TO_TCP, SSH_TO_UNIX};
use toll_mysql::Address;
use toll_record::RigStep;
use toll_sys::cancel::CancelToken;
use toll_sys::child_process;
use toll_sys::program::find_program;

pub const BUILDER: StepBuilder =
    StepBuilder { kind: "ssh", programs: || &["ssh", "sshd", "ssh-keygen"], open };

/// Time limit for two key exchanges and a login on a busy host.
const READY_WITHIN: Duration = Duration::from_secs(20);
const STOP_WITHIN: Duration = Duration::from_secs(2);
/// Empty directory that sshd as root needs for its unprivileged half, as distributions make it at boot. It stays: the
/// host's own sshd may have been started meanwhile, and refuses logins without it.
const EMPTY_DIR: &str = "/run/sshd";
/// Attempts to find free ports: another process may take one between the check and the listen.
const TRIES: u32 = 5;

/// Returns once all ports answer as the servers do. The journal ends sshd and ssh with the run.
fn open(_: &RigStep, testbed: &mut Testbed) -> anyhow::Result<String> {
    let Testbed { journal, cancel, servers, work_dir, .. } = testbed;
    ensure!(
        servers.iter().all(|server| server.restart_detector.pid().is_some()),
        "a tunnel by SSH needs a server on this host"
    );
    let dir = work_dir.join("ssh");
    DirBuilder::new().mode(0o700).create(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    for key in ["host_key", "client_key"] {
        make_key(&dir.join(key))?;
    }
    let [ssh_port] = start_on_free_ports(&find_free_ports, |ports: &[u16; 1]| {
        start_sshd(journal, cancel, &dir, ports[0])
    })?;
    let host_key = std::fs::read_to_string(dir.join("host_key.pub"))?;
    std::fs::write(dir.join("known_hosts"), format!("[127.0.0.1]:{ssh_port} {host_key}"))?;
    for server in servers {
        let [to_tcp, to_unix] = start_on_free_ports(&find_free_ports, |ports: &[u16; 2]| {
            let [to_tcp, to_unix] = ports;
            let ends = [(*to_tcp, format!("127.0.0.1:{}", server.port)), (*to_unix, server.socket.clone())];
            start_ssh(journal, cancel, &dir, ssh_port, &[], &ends)
        })?;
        let [compressed] = start_on_free_ports(&find_free_ports, |ports: &[u16; 1]| {
            start_ssh(
                journal,
                cancel,
                &dir,
                ssh_port,
                &["-C"],
                &[(ports[0], format!("127.0.0.1:{}", server.port))],
            )
        })?;
        server.placeholders.set(SSH_PORT, to_tcp.to_string());
        server.placeholders.set(SSH_COMPRESSED_PORT, compressed.to_string());
        let at = |port| Address::Tcp { host: "127.0.0.1".into(), port };
        server.endpoints.by_rig_transport.insert(SSH_TO_TCP.into(), at(to_tcp));
        server.endpoints.by_rig_transport.insert(SSH_TO_UNIX.into(), at(to_unix));
    }
    Ok("tunnels by SSH: an sshd of the run's own on 127.0.0.1".into())
}

/// Starts something on free ports, and retries with others if they were taken meanwhile.
fn start_on_free_ports<const N: usize>(
    pick: &dyn Fn() -> anyhow::Result<[u16; N]>,
    mut start: impl FnMut(&[u16; N]) -> anyhow::Result<()>,
) -> anyhow::Result<[u16; N]> {
    let mut tries = 1;
    loop {
        let ports = pick()?;
        match start(&ports) {
            Ok(()) => return Ok(ports),
            Err(error) if tries < TRIES && format!("{error:#}").contains("ddress already in use") => {
                tries += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Starts `ssh -L` with these options, from local ports to a server's endpoints.
fn start_ssh(
    journal: &Journal,
    cancel: &CancelToken,
    dir: &Path,
    ssh_port: u16,
    options: &[&str],
    ends: &[(u16, String)],
) -> anyhow::Result<()> {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid())?.context("this user has no name")?.name;
    let log = dir.join(format!("ssh{}.log", options.concat()));
    let mut command = child_process::clean_env_command("ssh");
    command.args(["-F", "none", "-N", "-T", "-p", &ssh_port.to_string()]).args(options);
    for option in ["BatchMode=yes", "IdentitiesOnly=yes", "IdentityAgent=none", "ExitOnForwardFailure=yes"] {
        command.args(["-o", option]);
    }
    for (option, file) in [("IdentityFile", "client_key"), ("UserKnownHostsFile", "known_hosts")] {
        command.arg("-o").arg(format!("{option}={}", quote_path(&escape_tokens(&dir.join(file)))));
    }
    for (port, end) in ends {
        command.arg("-L").arg(format!("127.0.0.1:{port}:{end}"));
    }
    command.arg(format!("{user}@127.0.0.1"));
    redirect_to_log(&mut command, &log)?;
    command.stdin(Stdio::null());
    let (mut ssh, _) = journal.spawn(&mut command, "ssh -L", None, STOP_WITHIN)?;
    wait_until_ready(&mut ssh, cancel, &log, "ssh -L", || {
        ends.iter().all(|(port, _)| is_mysql_greeting(*port))
    })
}

fn make_key(path: &Path) -> anyhow::Result<()> {
    let made = child_process::clean_env_command("ssh-keygen")
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

fn start_sshd(journal: &Journal, cancel: &CancelToken, dir: &Path, port: u16) -> anyhow::Result<()> {
    if nix::unistd::geteuid().is_root() {
        make_empty_dir(Path::new(EMPTY_DIR)).with_context(|| format!("cannot make {EMPTY_DIR}"))?;
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
        quote_path(&dir.join("host_key").display().to_string()),
        quote_path(&escape_tokens(&dir.join("client_key.pub")))
    );
    std::fs::write(&config, text).with_context(|| format!("cannot write {}", config.display()))?;
    // It starts itself anew for each connection, and wants to be called by its full path for that.
    let program = find_program("sshd").context("no sshd: install openssh-server")?;
    let mut command = deferred_start::command(program);
    command.args(["-D", "-e", "-f"]).arg(&config);
    let log = dir.join("sshd.log");
    redirect_to_log(&mut command, &log)?;
    let (mut sshd, _) = journal.spawn_deferred(&mut command, "sshd", None, STOP_WITHIN)?;
    wait_until_ready(&mut sshd, cancel, &log, "sshd", || answers_with(port, b"SSH-"))
}

/// Writable by root alone, as sshd wants it, whatever the umask.
fn make_empty_dir(dir: &Path) -> std::io::Result<()> {
    match DirBuilder::new().mode(0o755).create(dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// A path with OpenSSH's tokens (`%h` and the like) escaped.
fn escape_tokens(path: &Path) -> String {
    path.display().to_string().replace('%', "%%")
}

/// Quotes a path as one word of an OpenSSH configuration.
fn quote_path(path: &str) -> String {
    format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\""))
}

fn redirect_to_log(command: &mut Command, log: &Path) -> anyhow::Result<()> {
    let words = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    command.stdout(words.try_clone()?).stderr(words);
    Ok(())
}

fn wait_until_ready(
    child: &mut Child,
    cancel: &CancelToken,
    log: &Path,
    what: &str,
    mut ready: impl FnMut() -> bool,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !ready() {
        let ended = child.try_wait()?;
        if ended.is_some() || begun.elapsed() > READY_WITHIN {
            let said = std::fs::read_to_string(log).unwrap_or_default();
            bail!(
                "the SSH tunnel does not open: {what} {}; its output: {}",
                ended.map_or("is not ready".to_owned(), |status| format!("ended ({status})")),
                said.trim()
            );
        }
        cancel.check()?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A MySQL server's first packet: a header of four bytes, then protocol version 10.
fn is_mysql_greeting(port: u16) -> bool {
    read_first_bytes(port).is_some_and(|bytes| bytes[4] == 10)
}

fn answers_with(port: u16, beginning: &[u8]) -> bool {
    read_first_bytes(port).is_some_and(|bytes| bytes.starts_with(beginning))
}

fn read_first_bytes(port: u16) -> Option<[u8; 5]> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    let mut bytes = [0; 5];
    stream.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

/// Ports that nobody listens on now.
fn find_free_ports<const N: usize>() -> anyhow::Result<[u16; N]> {
    // All held until the last is found, so that they differ.
    let mut held = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free TCP port")?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_port_that_somebody_else_took_meanwhile_is_passed_over() {
        if find_program("sshd").is_none() || find_program("ssh-keygen").is_none() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let run = format!("test-sshd-{}", std::process::id());
        let journal = Journal::begin_in(&dir.path().join("journal"), &run).unwrap();
        make_key(&dir.path().join("host_key")).unwrap();
        make_key(&dir.path().join("client_key")).unwrap();
        let theirs = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let taken = theirs.local_addr().unwrap().port();
        let first = Cell::new(true);
        let pick = || if first.take() { Ok([taken]) } else { find_free_ports() };
        let [port] =
            start_on_free_ports(&pick, |[port]| start_sshd(&journal, &CancelToken::new(), dir.path(), *port))
                .unwrap();
        assert_ne!(port, taken);
        let undone = journal.undo_all();
        assert!(undone.failures.is_empty());
        // The host's own sshd may need it by now.
        assert!(!undone.actions.iter().any(|action| action.contains(EMPTY_DIR)), "{undone:?}");
        assert!(Path::new(EMPTY_DIR).is_dir() || !nix::unistd::geteuid().is_root());
    }

    #[test]
    fn the_directory_of_an_sshd_that_is_there_stays_as_it_is() {
        let above = tempfile::tempdir().unwrap();
        let dir = above.path().join("sshd");
        make_empty_dir(&dir).unwrap();
        std::fs::write(dir.join("theirs"), "").unwrap();
        make_empty_dir(&dir).unwrap();
        assert!(dir.join("theirs").exists());
        assert!(make_empty_dir(&above.path().join("no/where")).is_err());
    }
}
