//! Discovery of MySQL and MariaDB server processes on this host, and path translation for chroots and
//! containers.
//!
//! A server in a chroot or a container reports paths and its pid as it sees them itself. Read-only.

use crate::proc_file;
use crate::process::ProcessId;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// A server process of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerProcess {
    pub process: ProcessId,
    /// Owner of the process: this user may write where the server may write.
    pub uid: u32,
    pub gid: u32,
}

impl ServerProcess {
    /// Server processes of this host.
    pub fn find_all() -> impl Iterator<Item = Self> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter_map(Self::from_pid)
    }

    /// True if the pid file holds the pid of this process, both as the server sees them.
    pub fn matches_pid_file(&self, variables: &BTreeMap<String, String>) -> bool {
        let value = |name: &str| variables.get(name).map(String::as_str).unwrap_or_default();
        let pid_file = Path::new(value("datadir")).join(value("pid_file"));
        let said = std::fs::read_to_string(self.path_in_root(&pid_file)).unwrap_or_default();
        said.trim().parse::<i32>().is_ok_and(|pid| Some(pid) == self.namespace_pid())
    }

    pub fn find_by_socket(socket: &Path) -> Option<Self> {
        let stream = UnixStream::connect(socket).ok()?;
        let pid = getsockopt(&stream, PeerCredentials).ok()?.pid();
        Self::from_pid(pid)
    }

    fn from_pid(pid: i32) -> Option<Self> {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        if !["mysqld", "mariadbd"].iter().any(|server| name.trim().starts_with(server)) {
            return None;
        }
        let owner = std::fs::metadata(format!("/proc/{pid}")).ok()?;
        Some(Self { process: ProcessId::from_pid(pid).ok()?, uid: owner.uid(), gid: owner.gid() })
    }

    /// Pid of the server in its own PID namespace.
    fn namespace_pid(&self) -> Option<i32> {
        let status = proc_file::status(self.process.pid);
        proc_file::field(&status, "NSpid")?.split_ascii_whitespace().last()?.parse().ok()
    }

    /// True if the server listens on TCP `port`. `None` if a process of the same user listens there, but its
    /// file descriptors are not readable.
    pub fn listens_on(&self, port: u16) -> Option<bool> {
        let proc = PathBuf::from(format!("/proc/{}", self.process.pid));
        let network = |of: &Path| std::fs::read_link(of.join("ns/net")).ok();
        let tables =
            ["net/tcp", "net/tcp6"].map(|t| std::fs::read_to_string(proc.join(t)).unwrap_or_default());
        let sockets: Vec<String> =
            tables.iter().flat_map(|table| listening_inodes(table, port, self.uid)).collect();
        if sockets.is_empty() {
            return Some(false);
        }
        let fds = std::fs::read_dir(proc.join("fd")).ok()?.flatten();
        let mut links = fds.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        let has = links
            .any(|link| sockets.iter().any(|inode| link.as_os_str() == format!("socket:[{inode}]").as_str()));
        Some(has && network(&proc) == network(Path::new("/proc/self")))
    }

    /// Path of a file of the server, seen through the server's root directory.
    fn path_in_root(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.process.pid));
        root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Translates a path of the server to a path of this process. The path stays as it is if both name the
    /// same file.
    pub fn to_host_path(&self, path: &Path) -> PathBuf {
        let theirs = self.path_in_root(path);
        if is_same_file(path, &theirs) { path.to_owned() } else { theirs }
    }

    /// The server's program, for probes.
    pub fn program_path(&self) -> PathBuf {
        let exe = PathBuf::from(format!("/proc/{}/exe", self.process.pid));
        // Replaced by an upgrade while the server runs: the link itself still leads to the old one.
        let Ok(named) = std::fs::read_link(&exe) else { return exe };
        [named.clone(), self.path_in_root(&named)]
            .into_iter()
            .find(|path| is_same_file(path, &exe))
            .unwrap_or(exe)
    }
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    let id = |path: &Path| std::fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    id(a).is_some() && id(a) == id(b)
}

/// Inodes of the sockets of user `uid` that listen on `port`, from a table as `/proc/net/tcp` is.
fn listening_inodes(table: &str, port: u16, uid: u32) -> Vec<String> {
    const LISTEN: &str = "0A";
    let (port, uid) = (format!(":{port:04X}"), uid.to_string());
    let rows = table.lines().skip(1).map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let ours = rows.filter(|f| f.len() > 9 && f[1].ends_with(&port) && f[3] == LISTEN && f[7] == uid);
    ours.map(|f| f[9].to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_socket_is_found_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:0CEA 00000000:0000 0A 00000000:00000000 00:00000000 00000000 102 0 4711 1 0 100 0 0 10 0\n\
            1: 0100007F:0CEA 0100007F:9C40 01 00000000:00000000 00:00000000 00000000 102 0 4712 1 0 20 4 30 10 -1\n";
        assert_eq!(listening_inodes(table, 3306, 102), ["4711"]);
        assert!(listening_inodes(table, 3307, 102).is_empty() && listening_inodes(table, 3306, 0).is_empty());
    }
}
