//! TCP port selection of a sandbox server.
//!
//! The port is always 2 modulo 8, as 3306 is. The capture filters of the tcpdump scenario test the low three
//! bits of both ports, and would mean something else on another port.

use anyhow::{Result, bail};
use std::net::{IpAddr, SocketAddr, TcpListener};

/// Where the search begins: clear of well-known ports and below Linux's ephemeral range (32768 up
/// is ephemeral by default, so a client may hold one; the next is taken then).
pub const FIRST_PORT: u16 = 33002;

/// The first free port from `from` upwards, in steps of 8.
pub fn find_free_port(from: u16, addresses: &[IpAddr]) -> Result<u16> {
    debug_assert_eq!(from % 8, 2);
    match (from..=u16::MAX).step_by(8).find(|&port| is_free(port, addresses)) {
        Some(port) => Ok(port),
        None => bail!("no free TCP port that is 2 modulo 8 from {from} up: end other sandboxes (toll clean)"),
    }
}

/// Refuses a port whose low bits are wrong, or that something listens on.
pub fn check_port(port: u16, addresses: &[IpAddr]) -> Result<()> {
    if port % 8 != 2 {
        bail!(
            "port {port} is not 2 modulo 8, which the capture filters rely on: choose --port {}",
            nearest_free_port(port)
        );
    }
    if !is_free(port, addresses) {
        bail!("port {port} is taken: choose another --port, or none to let toll find a free one");
    }
    Ok(())
}

/// The closest port at or above `port` that may be used.
fn nearest_free_port(port: u16) -> u16 {
    let base = port.clamp(1026, u16::MAX - 13);
    base + (10 - base % 8) % 8
}

/// True if a server's error log reports that its port is in use. Two may bind to one port at the same time
/// (SO_REUSEADDR); the second is refused only when it listens, and has another word for it.
pub fn is_port_conflict(error_log: &str) -> bool {
    // Both families put the system's own words behind theirs.
    ["Do you already have another", "listen() on TCP/IP port"].iter().any(|words| error_log.contains(words))
}

fn is_free(port: u16, addresses: &[IpAddr]) -> bool {
    addresses.iter().all(|&address| TcpListener::bind(SocketAddr::new(address, port)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const LOCAL: [IpAddr; 1] = [IpAddr::V4(Ipv4Addr::LOCALHOST)];

    #[test]
    fn a_taken_port_is_passed_over_and_the_next_is_again_2_modulo_8() {
        // Others on this host may take a port that was found free, so it is one that we hold.
        let mut ports = (FIRST_PORT..=u16::MAX).step_by(8);
        let held =
            ports.find_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()).expect("a port");
        let first = held.local_addr().expect("bound").port();
        let next = find_free_port(first, &LOCAL).expect("another free port");
        assert!(next > first && next % 8 == 2, "{first} then {next}");
        let refused = check_port(first, &LOCAL).expect_err("taken").to_string();
        assert!(refused.contains("taken"), "{refused}");
    }

    #[test]
    fn a_port_is_taken_whether_it_shows_at_bind_or_at_listen() {
        for log in [
            "[ERROR] Can't start server: Bind on TCP/IP port: Address already in use\n\
             [ERROR] Do you already have another server running on port: 33002 ?",
            "[ERROR] Can't start server: listen() on TCP/IP port: Address already in use\n\
             [ERROR] listen() on TCP/IP failed with error 98",
        ] {
            assert!(is_port_conflict(log), "{log}");
        }
        assert!(!is_port_conflict("[Note] Server socket created on IP: '127.0.0.1', port: '33002'."));
    }

    #[test]
    fn a_port_with_other_low_bits_is_refused_with_the_nearest_that_will_do() {
        let refused = check_port(3307, &LOCAL).expect_err("3307 is 3 modulo 8").to_string();
        assert!(refused.contains("--port 3314"), "{refused}");
        assert!([0, 1, 1026, 3306, 65_535].iter().all(|&p| nearest_free_port(p) % 8 == 2));
    }
}
