//! Lookup of the local server process behind a target. Read-only.

use std::collections::BTreeMap;
use toll_mysql::{Address, Target};
use toll_sys::server_process::ServerProcess;

/// The server behind `target`, if it runs on this host; `variables` are its own.
pub fn find_local(target: &Target, variables: &BTreeMap<String, String>) -> Option<ServerProcess> {
    match &target.address {
        // Whoever listens: not so where another process (systemd) holds the socket for it.
        Address::Unix(socket) => ServerProcess::find_by_socket(socket)
            .or_else(|| ServerProcess::find_all().find(|s| s.matches_pid_file(variables))),
        Address::Tcp { host, port } => {
            let local =
                host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
            // A tunnel to another host also ends on loopback: a server must own the port. Whose
            // it is, only root is told; others go by the user and the pid file.
            let owns = |server: &ServerProcess| match server.listens_on(*port) {
                Some(listens) => listens,
                None => server.matches_pid_file(variables),
            };
            if local { ServerProcess::find_all().find(owns) } else { None }
        }
    }
}
