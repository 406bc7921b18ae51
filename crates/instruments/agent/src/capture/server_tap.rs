//! Tap on a server's sockets: selects the server and passes its calls to the decoder. `toll-taps` does the
//! capturing.

use super::output::CaptureOutput;
use super::socket_chunk::to_socket_chunk;
use super::tap::{Tap, TapCounters};
use anyhow::{Context, anyhow, bail};
use std::time::Duration;
use toll_sys::clock::wall_us;
use toll_sys::server_process::ServerProcess;
use toll_taps::sockets::{SocketTap, SocketTapOptions, TapError, check_return_probes, listens_on};

/// What to do where sockets cannot be looked at.
const PACKETS_INSTEAD: &str =
    "collect packets instead (--tap packets), which needs cap_net_raw alone and sees TCP alone";

/// Options of the socket tap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTapOptions {
    /// The server's process; `None`: the only one of this host, or the only one that listens on the ports.
    pub pid: Option<u32>,
    /// Ports of TCP that count; empty: all on which queries may come in. Unix sockets always do.
    pub ports: Vec<u16>,
    /// Bytes kept of one call by which the server receives.
    pub keep_client: usize,
    /// Bytes kept of one call by which it sends.
    pub keep_server: usize,
    /// Between the kernel and toll.
    pub buffer_bytes: usize,
    /// Probe the server's TLS library even where the kernel may kill the server for it.
    pub force_return_probes: bool,
}

/// The sockets of one server.
#[derive(Debug)]
pub struct ServerTap {
    tap: SocketTap,
    server: u32,
    loss_tracker: LossTracker,
}

/// When records were lost, as far as looks at the counters tell.
#[derive(Debug, Default, Clone, Copy)]
struct LossTracker {
    count: u64,
    checked_ns: u64,
    interval: Option<(u64, u64)>,
}

impl ServerTap {
    /// # Errors
    /// No server, or several; not permitted or not possible, with the packet tap as the way out.
    pub fn open(options: &ServerTapOptions) -> anyhow::Result<Self> {
        let server = match options.pid {
            Some(pid) => pid,
            None => find_only_server(&on_ports(servers(), &options.ports))?,
        };
        let tap = SocketTap::open(&SocketTapOptions {
            ports: options.ports.clone(),
            keep_client: options.keep_client,
            keep_server: options.keep_server,
            buffer_bytes: options.buffer_bytes,
            check_return_probes: if options.force_return_probes { |_| Ok(()) } else { check_or_name_option },
            ..SocketTapOptions::for_server(server)
        })
        .map_err(describe_error)
        .context("cannot attach to the server's sockets")?;
        let lost = LossTracker { checked_ns: wall_us() * 1_000, ..LossTracker::default() };
        Ok(Self { tap, server, loss_tracker: lost })
    }

    /// Description of the tap, a sentence without its full stop.
    pub fn describe(&self) -> String {
        let hooks = self.tap.hook_kind();
        let why = self.tap.fallback_reason().map_or_else(String::new, |why| format!(", since {why}"));
        let follows = self.tap.followed_sockets().join(", ");
        let tls = match self.tap.tls_library() {
            Ok(library) => format!("inside TLS too ({library})"),
            Err(why) => format!("nothing inside TLS, since {why}"),
        };
        format!("process {}: {follows}; by {hooks}{why}; {tls}", self.server)
    }

    fn read_counters(&mut self, now_ns: u64) -> TapCounters {
        let counters = self.tap.counters();
        // Those that the kernel left out were never counted as seen.
        let lost = counters.lost + counters.missed_runs;
        self.loss_tracker.update(lost, now_ns);
        TapCounters {
            passed: counters.passed + counters.missed_runs,
            delivered: counters.delivered,
            lost_kernel: lost,
        }
    }
}

impl LossTracker {
    fn update(&mut self, count: u64, now_ns: u64) {
        if count > self.count {
            // Somewhere since the look before.
            let first = self.interval.map_or(self.checked_ns, |(first, _)| first);
            self.interval = Some((first, now_ns));
            self.count = count;
        }
        self.checked_ns = now_ns;
    }
}

impl Tap for ServerTap {
    fn poll(&mut self, wait: Duration, to: &mut dyn CaptureOutput) -> anyhow::Result<()> {
        self.tap.poll_records(wait, |record| to.socket_chunk(&to_socket_chunk(record)))
    }

    fn close(&mut self) -> anyhow::Result<()> {
        self.tap.close();
        Ok(())
    }

    fn counters(&mut self) -> anyhow::Result<TapCounters> {
        Ok(self.read_counters(wall_us() * 1_000))
    }

    fn loss_interval(&self) -> Option<(u64, u64)> {
        self.loss_tracker.interval
    }
}

fn check_or_name_option(server: u32) -> Result<(), String> {
    check_return_probes(server).map_err(|why| format!("{why}, or pass --force-return-probes"))
}

/// With the way out, where another server or port would be none.
fn describe_error(error: TapError) -> anyhow::Error {
    match error {
        TapError::NoProcess(_) | TapError::DoesNotListen { .. } | TapError::Ended { .. } => error.into(),
        error => anyhow!("{error}; or {PACKETS_INSTEAD}"),
    }
}

/// Servers of this host: process, and by what they are told apart.
fn servers() -> Vec<(u32, String)> {
    let pid = |server: &ServerProcess| u32::try_from(server.process.pid).ok();
    ServerProcess::find_all()
        .filter_map(|server| Some((pid(&server)?, command_line(pid(&server)?))))
        .collect()
}

/// Those that listen on one of the ports; all where there is nothing to choose by.
fn on_ports(servers: Vec<(u32, String)>, ports: &[u16]) -> Vec<(u32, String)> {
    if servers.len() < 2 || ports.is_empty() {
        return servers;
    }
    let chosen: Vec<_> = servers.iter().filter(|(pid, _)| listens_on(*pid, ports)).cloned().collect();
    if chosen.is_empty() { servers } else { chosen }
}

fn command_line(pid: u32) -> String {
    shorten(&std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default())
}

/// The program, and where it listens and keeps its data.
fn shorten(command_line: &[u8]) -> String {
    let words = command_line.split(|&byte| byte == 0).map(String::from_utf8_lossy).enumerate();
    let tells = |word: &str| {
        ["--port=", "--socket=", "--datadir=", "--defaults-"].iter().any(|o| word.starts_with(o))
    };
    let words = words.filter(|(number, word)| *number == 0 || tells(word)).map(|(_, word)| word);
    words.collect::<Vec<_>>().join(" ")
}

fn find_only_server(servers: &[(u32, String)]) -> anyhow::Result<u32> {
    match servers {
        [(pid, _)] => Ok(*pid),
        [] => bail!(
            "there is no mariadbd or mysqld on this host: start one, name its process with --server-pid, or {PACKETS_INSTEAD}"
        ),
        several => {
            let list: Vec<String> =
                several.iter().map(|(pid, words)| format!("\n  {pid}  {words}")).collect();
            bail!(
                "there are several servers on this host: choose one with --server-pid or --port{}",
                list.concat()
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toll_taps::sockets::{Record, RecordKind};
    use toll_wire::decoder::CallDirection;

    #[test]
    fn one_server_is_taken_and_several_are_listed() {
        let servers = [(42, "mariadbd --port=3306".to_owned()), (43, "mysqld".to_owned())];
        assert_eq!(find_only_server(&servers[..1]).unwrap(), 42);
        let several = find_only_server(&servers).unwrap_err().to_string();
        assert_eq!(
            several,
            "there are several servers on this host: choose one with --server-pid or --port\n  42  mariadbd --port=3306\n  43  mysqld"
        );
        let none = find_only_server(&[]).unwrap_err().to_string();
        assert!(none.contains("--server-pid") && none.contains("--tap packets"), "{none}");
    }

    #[test]
    fn of_several_servers_a_port_chooses() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (own, init) = ((std::process::id(), "mariadbd".to_owned()), (u32::MAX, "mysqld".to_owned()));
        let both = vec![init, own.clone()];
        assert_eq!(on_ports(both.clone(), &[port]), [own]);
        drop(listener);
        assert_eq!(on_ports(both.clone(), &[port]), both, "none of them");
        assert_eq!(on_ports(both.clone(), &[]), both);
    }

    #[test]
    fn losses_are_dated_by_the_looks_between_which_they_fell() {
        let mut lost = LossTracker::default();
        lost.update(0, 100);
        assert_eq!(lost.interval, None);
        lost.update(5, 200);
        lost.update(5, 300);
        assert_eq!(lost.interval, Some((100, 200)));
        lost.update(6, 400);
        assert_eq!(lost.interval, Some((100, 400)));
    }

    #[test]
    fn a_record_becomes_what_the_decoder_takes() {
        let record = Record {
            time_ns: 1,
            socket: 2,
            kind: RecordKind::Server,
            position: 3,
            after: 4,
            length: 5,
            bytes: b"ab",
            decrypted: true,
            peer: None,
        };
        let said = to_socket_chunk(&record);
        assert_eq!(
            (said.time_ns, said.socket, said.direction, said.stream_offset),
            (1, 2, CallDirection::FromServer, 3)
        );
        assert_eq!((said.peer_offset, said.full_len, said.bytes, said.decrypted), (4, 5, &b"ab"[..], true));
        assert!(!said.opened && !said.closed);
        assert!(to_socket_chunk(&Record { kind: RecordKind::Opened, ..record }).opened);
        assert!(to_socket_chunk(&Record { kind: RecordKind::Closed, ..record }).closed);
        assert_eq!(
            to_socket_chunk(&Record { kind: RecordKind::Existing, ..record }).direction,
            CallDirection::FromClient
        );
    }

    #[test]
    fn servers_are_told_apart_by_where_they_listen_and_keep_their_data() {
        let words =
            b"/usr/sbin/mariadbd\0--no-defaults\0--port=3307\0--socket=/run/b.sock\0--datadir=/srv/b\0";
        assert_eq!(shorten(words), "/usr/sbin/mariadbd --port=3307 --socket=/run/b.sock --datadir=/srv/b");
        assert_eq!(shorten(b""), "");
    }

    #[test]
    fn where_sockets_cannot_be_looked_at_packets_are_the_way_out() {
        let no_ring = describe_error(TapError::Unsupported(
            "this kernel has no ring for programs: Linux 5.8 brought it".into(),
        ));
        assert!(no_ring.to_string().ends_with("Linux 5.8 brought it; or collect packets instead (--tap packets), which needs cap_net_raw alone and sees TCP alone"), "{no_ring}");
        // Not so where another process was meant.
        let (pid, ports) = (Some(u32::MAX - 1), Vec::new());
        let options = ServerTapOptions {
            pid,
            ports,
            keep_client: 1,
            keep_server: 1,
            buffer_bytes: 1,
            force_return_probes: false,
        };
        let error = format!("{:#}", ServerTap::open(&options).unwrap_err());
        assert!(error.contains("there is no process") && !error.contains("--tap packets"), "{error}");
    }
}
