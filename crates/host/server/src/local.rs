//! Lookup of the local server process behind a target. Read-only.

use std::collections::BTreeMap;
use toll_mysql::{Address, Target};
use toll_sys::server_process::Local;

/// The server behind `target`, if it runs on this host; `variables` are its own.
pub fn find_local(target: &Target, variables: &BTreeMap<String, String>) -> Option<Local> {
    match &target.address {
        // Whoever listens: not so where another process (systemd) holds the socket for it.
        Address::Unix(socket) => {
            Local::listening_at(socket).or_else(|| Local::all().find(|s| s.is_named_by(variables)))
        }
        Address::Tcp { host, port } => {
            let local =
                host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
            // A tunnel to another host also ends on loopback: a server must own the port. Whose
            // it is, only root is told; others go by the user and the pid file.
            let owns = |server: &Local| match server.listens_on(*port) {
                Some(listens) => listens,
                None => server.is_named_by(variables),
            };
            if local { Local::all().find(owns) } else { None }
        }
    }
}
