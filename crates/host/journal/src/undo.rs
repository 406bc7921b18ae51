//! Journal entries: the changes toll makes, and the undo action of each.
//!
//! Each change is undone at most once with effect. Undoing it again does nothing.

use super::server::{self, Credentials, ServerRef};
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use std::path::{Component, Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use toll_sys::process::{self, ProcessId, Termination};
use toll_sys::{cgroup, child_process, sysctl};

/// One change to the host or to a server. Journal lines hold these: a kind may be added, never
/// given another meaning.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "undo", rename_all = "kebab-case")]
pub enum Undo {
    /// A process group was started. Ended by `signal`, then TERM, then KILL.
    ProcessGroup {
        leader: ProcessId,
        /// Description for messages: `tcpdump of arm B`.
        what: String,
        /// By its name, `SIGINT`; absent: SIGTERM.
        #[serde(default)]
        signal: Option<String>,
        /// Timeout of each signal, milliseconds.
        grace_ms: u64,
    },
    /// A server of toll's own was started. Ended after everything that uses it.
    Sandbox { leader: ProcessId, what: String },
    /// A file or directory was made, to be removed with all that is in it.
    Path { path: PathBuf },
    /// A control group was made.
    Cgroup { path: PathBuf },
    /// Settings of a server were changed; these statements bring the old ones back, in this order.
    Settings { server: ServerRef, statements: Vec<String>, what: String },
    /// A schema was made.
    Schema {
        server: ServerRef,
        name: String,
        /// The run whose mark it bears; absent in journals of older versions.
        #[serde(default)]
        owner: Option<String>,
        /// Past the binary log, and to be dropped so.
        #[serde(default)]
        unlogged: bool,
    },
    /// A network namespace was made (`ip netns add`).
    Netns { name: String },
    /// A network interface was made (the near end of a veth pair takes the far end with it).
    Link { name: String },
    /// A root queueing discipline was set on an interface.
    Qdisc { device: String },
    /// Settings of the kernel were changed: names and the values that bring the old ones back, in this order.
    Sysctl { settings: Vec<(String, String)> },
}

/// Time for a sandbox server to flush its pages before it is killed.
const SANDBOX_GRACE: Duration = Duration::from_secs(30);

impl Undo {
    /// Later orders are undone later, whatever their place in the journal: what a treatment holds
    /// open or still writes to must not be put back under its hands.
    pub(super) fn undo_order(&self) -> u8 {
        match self {
            Self::ProcessGroup { .. } => 0,
            // After the groups, each of which ends in its own way; before whatever they use.
            Self::Cgroup { .. } => 1,
            Self::Settings { .. }
            | Self::Schema { .. }
            | Self::Netns { .. }
            | Self::Link { .. }
            | Self::Qdisc { .. }
            | Self::Sysctl { .. } => 2,
            Self::Sandbox { .. } => 3,
            Self::Path { .. } => 4,
        }
    }

    /// The server that was changed.
    pub fn server(&self) -> Option<&ServerRef> {
        match self {
            Self::Settings { server, .. } | Self::Schema { server, .. } => Some(server),
            _ => None,
        }
    }

    /// Leader of the server that this started.
    pub(super) fn sandbox_leader(&self) -> Option<ProcessId> {
        match self {
            Self::Sandbox { leader, .. } => Some(*leader),
            _ => None,
        }
    }

    /// Puts it back. The answer says what was done, none where nothing was left to do.
    pub(super) fn apply(
        &self,
        run_id: &str,
        same_boot: bool,
        credentials: &Credentials,
    ) -> Result<Option<String>> {
        match self {
            Self::ProcessGroup { leader, what, signal, grace_ms } if same_boot => {
                let first = signal.as_deref().and_then(|s| s.parse().ok()).unwrap_or(Signal::SIGTERM);
                describe_ending(
                    what,
                    process::terminate_group(*leader, run_id, first, Duration::from_millis(*grace_ms)),
                )
            }
            Self::Sandbox { leader, what } if same_boot => describe_ending(
                what,
                process::terminate_group(*leader, run_id, Signal::SIGTERM, SANDBOX_GRACE),
            ),
            // Neither processes nor network devices nor settings outlive the kernel that had them.
            Self::ProcessGroup { .. } | Self::Sandbox { .. } => Ok(None),
            Self::Netns { .. }
            | Self::Link { .. }
            | Self::Qdisc { .. }
            | Self::Cgroup { .. }
            | Self::Sysctl { .. }
                if !same_boot =>
            {
                Ok(None)
            }
            Self::Settings { server, statements, what } => {
                server::run_statements(server, statements, credentials)?;
                Ok(Some(format!("restored the {what}: {}", statements.join("; "))))
            }
            Self::Schema { server, name, owner, unlogged } => {
                let was_there = server::drop_schema(server, name, owner.as_deref(), *unlogged, credentials)?;
                Ok(was_there.then(|| format!("dropped schema {name} at {server}")))
            }
            Self::Path { path } => remove_path(path),
            Self::Cgroup { path } => {
                let ended = cgroup::remove(path)?;
                Ok(ended.map(|ended| match ended {
                    0 => format!("removed control group {}", path.display()),
                    n => format!("ended {n} processes of control group {} and removed it", path.display()),
                }))
            }
            Self::Netns { name } => {
                if !Path::new("/run/netns").join(name).exists() {
                    return Ok(None);
                }
                run_ip(&["netns", "delete", name])?;
                Ok(Some(format!("deleted network namespace {name}")))
            }
            Self::Link { name } => {
                if !Path::new("/sys/class/net").join(name).exists() {
                    return Ok(None);
                }
                run_ip(&["link", "delete", name])?;
                Ok(Some(format!("deleted network interface {name}")))
            }
            Self::Qdisc { device } => {
                if !Path::new("/sys/class/net").join(device).exists() {
                    return Ok(None);
                }
                // Fails with "no such file" where only the kernel's default is left: nothing to do.
                let gone = run_tool("tc", &["qdisc", "del", "dev", device, "root"])?;
                Ok(gone.is_none().then(|| format!("removed the queueing discipline of {device}")))
            }
            Self::Sysctl { settings } => {
                // One that cannot be had any more must not keep the others.
                let written: Vec<_> =
                    settings.iter().map(|(name, value)| sysctl::write(name, value)).collect();
                written.into_iter().collect::<Result<()>>()?;
                Ok(Some(format!("restored {}", describe_settings(settings))))
            }
        }
    }
}

/// For messages: what the change was.
impl std::fmt::Display for Undo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ProcessGroup { leader, what, .. } | Self::Sandbox { leader, what } => {
                write!(f, "{what} (process group {})", leader.pid)
            }
            Self::Settings { server, statements, what } => {
                write!(f, "{what} at {server}: {}", statements.join("; "))
            }
            Self::Schema { server, name, .. } => write!(f, "schema {name} at {server}"),
            Self::Path { path } => write!(f, "{}", path.display()),
            Self::Cgroup { path } => write!(f, "control group {}", path.display()),
            Self::Netns { name } => write!(f, "network namespace {name}"),
            Self::Link { name } => write!(f, "network interface {name}"),
            Self::Qdisc { device } => write!(f, "queueing discipline of {device}"),
            Self::Sysctl { settings } => write!(f, "settings of the kernel: {}", describe_settings(settings)),
        }
    }
}

fn describe_settings(settings: &[(String, String)]) -> String {
    let pairs: Vec<_> = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join(", ")
}

fn describe_ending(what: &str, ending: Termination) -> Result<Option<String>> {
    match ending {
        Termination::AlreadyExited => Ok(None),
        Termination::Stuck => bail!("{what}: {ending}"),
        _ => Ok(Some(format!("{what}: {ending}"))),
    }
}

/// As an identifier in SQL.
pub fn quoted_name(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// A journal with a mistake in it must not be able to empty a disk: only absolute paths at least
/// two names deep are removed.
///
/// # Errors
/// The path is another: nothing may be made there.
pub fn check_removable(path: &Path) -> Result<()> {
    let names = path.components().filter(|c| matches!(c, Component::Normal(_))).count();
    ensure!(
        path.is_absolute() && names >= 2 && !path.components().any(|c| c == Component::ParentDir),
        "will not remove {}: toll makes only absolute paths of two names or more, without `..`",
        path.display()
    );
    Ok(())
}

/// Links are not followed.
fn remove_path(path: &Path) -> Result<Option<String>> {
    check_removable(path)?;
    let kind = match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.with_context(|| format!("cannot look at {}", path.display()))?.file_type(),
    };
    let removed = if kind.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    removed.with_context(|| format!("cannot remove {}: remove it by hand", path.display()))?;
    Ok(Some(format!("removed {}", path.display())))
}

fn run_ip(arguments: &[&str]) -> Result<()> {
    match run_tool("ip", arguments)? {
        None => Ok(()),
        Some(complaint) => bail!("ip {}: {complaint}", arguments.join(" ")),
    }
}

/// None when it went well, else what it complained of.
fn run_tool(program: &str, arguments: &[&str]) -> Result<Option<String>> {
    let output = child_process::clean_env_command(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {program} (package iproute2)"))?;
    let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Ok((!output.status.success()).then_some(complaint))
}
