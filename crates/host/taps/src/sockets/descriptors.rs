//! Client connections among the file descriptors of a process, and their listeners. Only reads /proc.

use super::error::TapError;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The sockets of a server that matter.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Descriptors {
    pub listening: Vec<u32>,
    /// TCP ports among these.
    pub ports: Vec<u16>,
    /// Connections that are open, with the clients of those over TCP.
    pub clients: Vec<(u32, Option<SocketAddr>)>,
    /// What is followed, in words, and what else the process listens on.
    pub followed: Vec<String>,
    pub others: Vec<String>,
}

/// Ports where a server speaks something else: the X protocol, and Galera's replication. They are followed only
/// where they are asked for.
const OTHER_PROTOCOL_PORTS: [u16; 3] = [33060, 4567, 4568];
/// The X protocol's socket, by the beginning of its name.
const OTHER_SOCKET: &str = "mysqlx";

/// A TCP socket as /proc/net/tcp lists it.
#[derive(Debug, PartialEq, Eq)]
struct Tcp {
    local: SocketAddr,
    remote: SocketAddr,
    listens: bool,
    inode: u64,
}

/// A Unix stream socket as /proc/net/unix lists it.
#[derive(Debug, PartialEq, Eq)]
struct Unix<'a> {
    path: &'a str,
    listens: bool,
    inode: u64,
}

/// Whether a process listens on one of these TCP ports, as far as it can be read.
pub fn listens_on(pid: u32, ports: &[u16]) -> bool {
    !ports.is_empty() && Descriptors::of_process(pid, ports).is_ok_and(|found| !found.ports.is_empty())
}

impl Descriptors {
    /// Of process `pid`. `ports`: those of TCP that count; empty: all where queries may come in.
    ///
    /// # Errors
    /// No such process, or no permission to read its descriptors.
    pub fn of_process(pid: u32, ports: &[u16]) -> Result<Self, TapError> {
        let inodes = socket_inodes(pid)?;
        let table = |name: &str| {
            let path = format!("/proc/{pid}/net/{name}");
            match std::fs::read_to_string(&path) {
                Ok(text) => Ok(text),
                // A kernel without IPv6.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
                Err(source) => Err(TapError::Unreadable { path, source }),
            }
        };
        Ok(Self::classify(&inodes, &[table("tcp")?, table("tcp6")?], &table("unix")?, ports))
    }

    fn classify(inodes: &HashMap<u64, u32>, tcp: &[String; 2], unix: &str, ports: &[u16]) -> Self {
        let mut found = Self::default();
        let sockets: Vec<Tcp> = tcp.iter().flat_map(|table| table.lines().filter_map(parse_tcp)).collect();
        for socket in sockets.iter().filter(|socket| socket.listens) {
            let Some(&fd) = inodes.get(&socket.inode) else { continue };
            let port = socket.local.port();
            let wanted =
                if ports.is_empty() { !OTHER_PROTOCOL_PORTS.contains(&port) } else { ports.contains(&port) };
            found.add_description(wanted, format!("TCP port {port}"));
            if wanted {
                found.listening.push(fd);
                if !found.ports.contains(&port) {
                    found.ports.push(port);
                }
            }
        }
        for socket in sockets.iter().filter(|socket| !socket.listens) {
            if let (Some(&fd), true) = (inodes.get(&socket.inode), found.ports.contains(&socket.local.port()))
            {
                found.clients.push((fd, Some(socket.remote)));
            }
        }
        let sockets: Vec<Unix<'_>> = unix.lines().filter_map(parse_unix).collect();
        let mut paths: Vec<&str> = Vec::new();
        for socket in sockets.iter().filter(|socket| socket.listens) {
            let Some(&fd) = inodes.get(&socket.inode) else { continue };
            let name = socket.path.rsplit('/').next().unwrap_or(socket.path);
            let wanted = !name.starts_with(OTHER_SOCKET);
            found.add_description(wanted, socket.path.to_owned());
            if wanted {
                found.listening.push(fd);
                paths.push(socket.path);
            }
        }
        for socket in sockets.iter().filter(|socket| !socket.listens) {
            if let (Some(&fd), true) = (inodes.get(&socket.inode), paths.contains(&socket.path)) {
                found.clients.push((fd, None));
            }
        }
        found
    }

    /// Once, though a port may be listened on for IPv4 and for IPv6.
    fn add_description(&mut self, followed: bool, what: String) {
        let names = if followed { &mut self.followed } else { &mut self.others };
        if !names.contains(&what) {
            names.push(what);
        }
    }
}

/// Descriptors of the process that are sockets, by inode.
fn socket_inodes(pid: u32) -> Result<HashMap<u64, u32>, TapError> {
    let path = format!("/proc/{pid}/fd");
    let entries = std::fs::read_dir(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => TapError::NoProcess(pid),
        _ => TapError::from_kernel("look at the server's descriptors", error),
    })?;
    let mut inodes = HashMap::new();
    for entry in entries.flatten() {
        let Some(fd) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        match std::fs::read_link(entry.path()) {
            Ok(link) => {
                if let Some(inode) = link.to_str().and_then(parse_inode) {
                    inodes.insert(inode, fd);
                }
            }
            // Closed since.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(TapError::from_kernel("look at the server's descriptors", error)),
        }
    }
    Ok(inodes)
}

/// True if a descriptor of the process still is a socket.
pub fn is_socket(pid: u32, fd: u32) -> bool {
    std::fs::read_link(format!("/proc/{pid}/fd/{fd}"))
        .is_ok_and(|link| link.to_str().is_some_and(|l| parse_inode(l).is_some()))
}

fn parse_inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// proc_net_tcp(5): number, local and remote address, state, queues, timers, ..., inode in the tenth column.
fn parse_tcp(line: &str) -> Option<Tcp> {
    let columns: Vec<&str> = line.split_ascii_whitespace().collect();
    // TCP_ESTABLISHED, TCP_CLOSE_WAIT: the server may still have commands to read; TCP_LISTEN.
    let listens = match *columns.get(3)? {
        "0A" => true,
        "01" | "08" => false,
        _ => return None,
    };
    let (local, remote) = (parse_address(columns.get(1)?)?, parse_address(columns.get(2)?)?);
    Some(Tcp { local, remote, listens, inode: columns.get(9)?.parse().ok()? })
}

/// Words of 32 bits in the machine's own order, and a port.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| Some(u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut octets = [0; 16];
            for (at, bytes) in octets.chunks_exact_mut(4).enumerate() {
                bytes.copy_from_slice(&word(8 * at)?);
            }
            IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// unix(7): address, references, protocol, flags, type, state, inode, path.
fn parse_unix(line: &str) -> Option<Unix<'_>> {
    /// __SO_ACCEPTCON
    const LISTENS: u32 = 1 << 16;
    let (mut columns, mut rest) = ([""; 7], line);
    for column in &mut columns {
        (*column, rest) = rest.trim_start().split_once(' ')?;
    }
    let [_, _, _, flags, "0001", _, inode] = columns else { return None };
    Some(Unix {
        path: rest,
        listens: u32::from_str_radix(flags, 16).ok()? & LISTENS != 0,
        inode: inode.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
        0: 0100007F:0CEA 00000000:0000 0A 00000000:00000000 00:00000000 00000000 102 0 11 1 0 100 0 0 10 0\n\
        1: 0100007F:0CEA 0100007F:9C40 01 00000000:00000000 00:00000000 00000000 102 0 12 1 0 20 4 30 10 -1\n\
        2: 0100007F:9C40 0100007F:0CEA 01 00000000:00000000 00:00000000 00000000 102 0 13 1 0 20 4 30 10 -1\n\
        3: 0100007F:8124 0200007F:0CEA 01 00000000:00000000 00:00000000 00000000 102 0 14 1 0 20 4 30 10 -1\n\
        4: 00000000:8124 00000000:0000 0A 00000000:00000000 00:00000000 00000000 102 0 15 1 0 20 4 30 10 -1\n\
        5: 0100007F:0CEA 0100007F:9C41 06 00000000:00000000 00:00000000 00000000 102 0 0 1 0 20 4 30 10 -1\n";
    const TCP6: &str = "header\n\
        0: 0000000000000000FFFF00000100007F:0CEA 0000000000000000FFFF00000200007F:9C42 01 0:0 0:0 0 102 0 16 1\n\
        1: 00000000000000000000000001000000:0CEA 00000000000000000000000001000000:9C43 08 0:0 0:0 0 102 0 17 1\n";
    const UNIX: &str = "Num       RefCount Protocol Flags    Type St Inode Path\n\
        ffff8881: 00000002 00000000 00010000 0001 01 21 /run/mysqld/mysqld.sock\n\
        ffff8882: 00000003 00000000 00000000 0001 03 22 /run/mysqld/mysqld.sock\n\
        ffff8883: 00000003 00000000 00000000 0001 03 23\n\
        ffff8884: 00000002 00000000 00010000 0001 01 24 /run/mysqld/mysqlx.sock\n\
        ffff8885: 00000002 00000000 00000000 0002 01 25 /run/systemd/notify\n\
        ffff8886: 00000002 00000000 00010000 0001 01    26 /srv/my sql/s\n";

    /// The server's are 11 (listens), 12, 14 (its own connection to another), 15 (X protocol), 16, 17, 21, 22, 23, 24, 26.
    fn found(ports: &[u16]) -> Descriptors {
        let inodes = [11, 12, 14, 15, 16, 17, 21, 22, 23, 24, 26].map(|inode| (inode, inode as u32 + 100));
        Descriptors::classify(&HashMap::from(inodes), &[TCP.into(), TCP6.into()], UNIX, ports)
    }

    #[test]
    fn clients_are_those_who_came_in_where_the_server_listens() {
        let all = found(&[]);
        assert_eq!(all.listening, [111, 121, 126]);
        let peer = |text: &str| Some(text.parse().unwrap());
        assert_eq!(
            all.clients,
            [
                (112, peer("127.0.0.1:40000")),
                (116, peer("127.0.0.2:40002")),
                (117, peer("[::1]:40003")),
                (122, None)
            ]
        );
        assert_eq!(all.followed, ["TCP port 3306", "/run/mysqld/mysqld.sock", "/srv/my sql/s"]);
        assert_eq!(all.others, ["TCP port 33060", "/run/mysqld/mysqlx.sock"]);
    }

    #[test]
    fn ports_choose_among_those_of_tcp_alone() {
        assert_eq!(found(&[33060]).listening, [115, 121, 126]);
        assert_eq!(found(&[3307]).clients, [(122, None)]);
    }

    #[test]
    fn a_process_that_is_not_there_is_said_to_be_not_there() {
        let error = Descriptors::of_process(u32::MAX - 1, &[]).unwrap_err();
        assert!(matches!(error, TapError::NoProcess(_)), "{error}");
    }
}
