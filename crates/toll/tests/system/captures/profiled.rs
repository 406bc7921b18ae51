//! Tests that a profile has the same counts as capinfos and tshark. Captures of this host, in all forms.

use super::own::{has, printed, profile, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running capture, stopped with the test.
struct RunningCapture {
    child: Child,
    file: PathBuf,
}

impl Drop for RunningCapture {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Time limit for a capture to begin, far above that of the busiest host.
const HUNG: Duration = Duration::from_secs(300);

impl RunningCapture {
    fn begin(dir: &Path, name: &str, program: &str, options: &[&str]) -> Self {
        let file = dir.join(name);
        let child = Command::new(program)
            .args(options)
            .arg("-w")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, file }
    }

    /// True if its file holds some packets.
    fn has_some(&mut self) -> bool {
        assert!(self.child.try_wait().unwrap().is_none(), "{} has ended", self.file.display());
        std::fs::metadata(&self.file).is_ok_and(|found| found.len() > 20_000)
    }

    fn end(mut self) -> PathBuf {
        let sent = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        self.child.wait().unwrap();
        self.file.clone()
    }
}

/// Connections and datagrams of all sizes between this host and itself.
fn talk(ip: IpAddr) {
    let Ok(listener) = TcpListener::bind((ip, 0)) else { return };
    let there = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        for stream in listener.incoming().take(3) {
            let mut stream = stream.unwrap();
            let mut asked = [0; 100];
            stream.read_exact(&mut asked).unwrap();
            stream.write_all(&[b'x'; 30_000]).unwrap();
        }
    });
    for _ in 0..3 {
        let mut stream = TcpStream::connect(there).unwrap();
        stream.write_all(&[b'y'; 100]).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
    }
    server.join().unwrap();
    let socket = UdpSocket::bind((ip, 0)).unwrap();
    // 9999 and the like mean nothing to tshark; nobody need listen there.
    for length in [0, 1, 57, 58, 100, 500, 1400] {
        let _ = socket.send_to(&vec![b'z'; length], SocketAddr::new(ip, 39_999));
    }
}

/// Captures of the same minute, one of each form.
fn captured(dir: &Path) -> Vec<PathBuf> {
    let lo = ["-i", "lo", "-U", "-Z", "root"];
    let tcpdump = |name, options: &[&str]| RunningCapture::begin(dir, name, "tcpdump", options);
    let mut all = vec![
        tcpdump("microseconds.pcap", &lo),
        tcpdump("nanoseconds.pcap", &[&lo[..], &["--time-stamp-precision=nano"]].concat()),
        tcpdump("snapped.pcap", &[&lo[..], &["-s", "68"]].concat()),
        tcpdump("cooked-1.pcap", &["-i", "any", "-y", "LINUX_SLL", "-U", "-Z", "root"]),
        tcpdump("cooked-2.pcap", &["-i", "any", "-y", "LINUX_SLL2", "-U", "-Z", "root"]),
        RunningCapture::begin(dir, "one.pcapng", "dumpcap", &["-q", "-i", "lo"]),
        RunningCapture::begin(dir, "two.pcapng", "dumpcap", &["-q", "-i", "lo", "-i", "any"]),
        RunningCapture::begin(dir, "dumpcap.pcap", "dumpcap", &["-q", "-P", "-i", "lo"]),
        RunningCapture::begin(dir, "tshark.pcapng", "tshark", &["-q", "-i", "lo"]),
    ];
    let begun = Instant::now();
    loop {
        for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)] {
            talk(ip);
        }
        // All of them ask: each tells by itself whether it has ended.
        if all.iter_mut().map(RunningCapture::has_some).filter(|has| !has).count() == 0 {
            break;
        }
        assert!(begun.elapsed() < HUNG, "a capture does not begin");
        std::thread::sleep(Duration::from_millis(100));
    }
    all.into_iter().map(RunningCapture::end).collect()
}

/// A pcap of this host (little-endian) with its fields in big-endian order.
fn swapped(capture: &[u8]) -> Vec<u8> {
    let mut turned = capture.to_vec();
    let mut turn = |at: usize, length: usize| turned[at..at + length].reverse();
    for (at, length) in [(0, 4), (4, 2), (6, 2), (8, 4), (12, 4), (16, 4), (20, 4)] {
        turn(at, length);
    }
    let mut at = 24;
    while let Some(length) = capture.get(at + 8..at + 12) {
        (0..4).for_each(|field| turn(at + 4 * field, 4));
        at += 16 + u32::from_le_bytes(length.try_into().unwrap()) as usize;
    }
    turned
}

/// The same pcap with a VLAN tag behind each pair of addresses.
fn tagged(capture: &[u8]) -> Vec<u8> {
    let mut out = capture[..24].to_vec();
    let mut at = 24;
    while let Some(head) = capture.get(at..at + 16) {
        let field = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
        let frame = &capture[at + 16..at + 16 + field(8) as usize];
        out.extend(&head[..8]);
        out.extend((field(8) + 4).to_le_bytes());
        out.extend((field(12) + 4).to_le_bytes());
        out.extend(&frame[..12]);
        out.extend([0x81, 0, 0, 42]);
        out.extend(&frame[12..]);
        at += 16 + frame.len();
    }
    out
}

/// Fields of capinfos with exact numbers.
fn capinfos(file: &Path) -> BTreeMap<String, String> {
    let said = printed("capinfos", &["-M", "-c", "-d", "-a", "-e", "-u", "-o", "-S", text(file)]);
    let pair = |line: &str| {
        line.split_once(':').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
    };
    said.lines().filter_map(pair).collect()
}

/// Fields of tshark for each packet.
fn by_packet(file: &Path) -> Vec<Vec<String>> {
    let fields = [
        "frame.len",
        "frame.protocols",
        "ip.src",
        "ipv6.src",
        "ip.dst",
        "ipv6.dst",
        "tcp.srcport",
        "tcp.dstport",
        "udp.srcport",
        "udp.dstport",
    ];
    let mut arguments =
        vec!["-r", text(file), "-n", "-T", "fields", "-E", "occurrence=f", "-E", "separator=|"];
    // A packet is to be told of by itself, whatever came before it.
    arguments.extend(["-o", "tcp.desegment_tcp_streams:FALSE", "-o", "ip.defragment:FALSE"]);
    arguments.extend(fields.iter().flat_map(|field| ["-e", *field]));
    let rows = printed("tshark", &arguments);
    rows.lines().map(|row| row.split('|').map(str::to_owned).collect()).collect()
}

/// The earliest or latest timestamp (RFC 3339), in ns since 1970.
fn moment_ns(profile: &Value, name: &str) -> u128 {
    let moment: jiff::Timestamp = profile[name].as_str().unwrap().parse().unwrap();
    moment.as_nanosecond() as u128
}

/// `1700000000.123456` in ns.
fn seconds_ns(text: &str) -> u128 {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    seconds.parse::<u128>().unwrap() * 1_000_000_000 + format!("{fraction:0<9}")[..9].parse::<u128>().unwrap()
}

fn check(file: &Path) {
    let name = file.file_name().unwrap().to_str().unwrap().to_owned();
    let profile = profile(file);
    let said = capinfos(file);
    let figure = |key: &str| {
        // Before version 4.2 it called the earliest packet the first.
        let former = key.replace("Earliest", "First").replace("Latest", "Last");
        let found = said.get(key).or_else(|| said.get(&former));
        let found = found.unwrap_or_else(|| panic!("{name}: capinfos says no {key}: {said:?}"));
        found.split(' ').next().unwrap().to_owned()
    };
    assert_eq!(figure("Number of packets"), profile["packets"].to_string(), "{name}");
    assert_eq!(figure("Data size"), profile["bytes"].to_string(), "{name}");
    assert_eq!(seconds_ns(&figure("Earliest packet time")), moment_ns(&profile, "first_seen"), "{name}");
    assert_eq!(seconds_ns(&figure("Latest packet time")), moment_ns(&profile, "last_seen"), "{name}");
    let is_ordered = profile["disordered_packets"] == 0;
    assert_eq!(figure("Strict time order") == "True", is_ordered, "{name}");

    let rows = by_packet(file);
    let (mut counts, mut bytes) = ([0_u64; 2], [0_u64; 2]);
    let mut bins: BTreeMap<u64, [u64; 3]> = BTreeMap::new();
    let mut flows = [BTreeSet::new(), BTreeSet::new()];
    for row in &rows {
        let length: u64 = row[0].parse().unwrap();
        // What an ICMP error quotes is no packet of its own.
        let outer: Vec<&str> = row[1].split(':').take_while(|name| !name.starts_with("icmp")).collect();
        let kind = ["tcp", "udp"].iter().position(|name| outer.contains(name));
        bins.entry(length / 100).or_default()[kind.unwrap_or(2)] += 1;
        let Some(kind) = kind else { continue };
        counts[kind] += 1;
        bytes[kind] += length;
        let port = |at: usize| row[6 + 2 * kind + at].clone();
        let address = |at: usize| format!("{}{}", row[at], row[at + 1]);
        let mut ends = [(address(2), port(0)), (address(4), port(1))];
        ends.sort();
        flows[kind].insert(ends);
    }
    assert_eq!(rows.len().to_string(), profile["packets"].to_string(), "{name}");
    for (kind, protocol) in ["tcp", "udp"].into_iter().enumerate() {
        assert!(counts[kind] > 10, "{name}: too little to tell anything");
        assert_eq!(profile["protocols"][protocol]["packets"], counts[kind], "{name}: {protocol}");
        assert_eq!(profile["protocols"][protocol]["bytes"], bytes[kind], "{name}: {protocol}");
        assert_eq!(profile["flows"][protocol], flows[kind].len() as u64, "{name}: {protocol}");
    }
    let found = profile["length_bins"].as_array().unwrap();
    let found: BTreeMap<u64, [u64; 3]> = found
        .iter()
        .map(|bin| {
            let of = |key: &str| bin[key].as_u64().unwrap();
            (of("from") / 100, [of("tcp"), of("udp"), of("other")])
        })
        .collect();
    assert_eq!(found, bins, "{name}");
    assert_eq!(profile["ledger"]["adds_up"], true, "{name}");
    assert_eq!(profile["ledger"]["damage"].as_array().unwrap().len(), 0, "{name}");
}

#[test]
fn profiles_of_real_captures_count_what_capinfos_and_tshark_count() {
    if !has(&["tcpdump", "dumpcap", "tshark", "capinfos", "editcap"]) {
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        toll_testkit::skip!("captures need root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // Tools that give up root read and write there.
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let mut files = captured(dir.path());
    let first = std::fs::read(&files[0]).unwrap();
    let mut write = |name: &str, bytes: &[u8]| {
        files.push(dir.path().join(name));
        std::fs::write(dir.path().join(name), bytes).unwrap();
    };
    write("swapped.pcap", &swapped(&first));
    write("vlan.pcap", &tagged(&first));
    for format in ["modpcap", "nsecpcap", "pcapng"] {
        let out = dir.path().join(format!("editcap.{format}"));
        printed("editcap", &["-F", format, text(&files[0]), text(&out)]);
        files.push(out);
    }
    assert_eq!(files.len(), 14);
    for file in &files {
        check(file);
    }
    let snapped = profile(&files[2]);
    assert!(snapped["cut_packets"].as_u64().unwrap() > 10);
    assert!(snapped["captured_bytes"].as_u64() < snapped["bytes"].as_u64());
}
