//! Prometheus endpoint of a capture: captured and dropped traffic, and the cost.
//!
//! A thread of its own takes connections, and each is answered in one more: a slow client keeps no other waiting. The
//! capture only stores numbers there. Names and types follow Prometheus
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use super::otlp::ExportCounters;
use super::output::{ClassTotals, OutputCounters};
use super::tap::TapCounters;
use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use std::fmt::{Display, Write as _};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use toll_sys::proc_file;

/// Where nothing is said of the address.
const LOOPBACK: &str = "127.0.0.1";
/// An asker has said what it wants within this time, and takes the answer in as long.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// Clients that are served at once.
const MAX_CLIENTS: usize = 16;
/// Bytes of a request, at most.
const MAX_REQUEST_BYTES: usize = 8 << 10;
/// Between two attempts to take a connection where there are no files to be had.
const ACCEPT_RETRY: Duration = Duration::from_millis(200);

/// Name, type and help of every metric, in the order of the page. The reference in `docs` is made from it.
pub const METRICS: [(&str, &str, &str); 17] = [
    (PASSED, "counter", "Packets or calls that the kernel's filter let pass."),
    (TAKEN, "counter", "Packets or calls that the kernel handed on."),
    (LOST, "counter", "Packets or calls that are not in the output, by where they got lost."),
    (ITEMS, "counter", "Packets or calls that were written, printed or sent."),
    (QUERIES, "counter", "Queries that were decoded."),
    (WRITTEN, "counter", "Bytes handed to the file, the printer or the stream."),
    (FIRST_LOSS, "gauge", "When something was first lost."),
    (LAST_LOSS, "gauge", "When something was last lost."),
    (BUFFER, "gauge", "Compressed bytes that wait for the receiver."),
    (ROOM, "gauge", "Compressed bytes that may wait."),
    (CLASS_QUERIES, "gauge", "Queries of the costliest classes, in the digest being made."),
    (CLASS_SECONDS, "gauge", "Query time of these classes, in the digest being made."),
    (OTLP_EXPORTED, "counter", "Data points and log records that the OpenTelemetry collector took (--otlp)."),
    (OTLP_DROPPED, "counter", "Data points and log records that it did not get, by reason."),
    (CPU, "counter", "CPU time of the capture, user and system."),
    (MEMORY, "gauge", "Resident memory of the capture."),
    (BUILD, "gauge", "Always 1; the version is in the label."),
];
const PASSED: &str = "toll_capture_passed_total";
const TAKEN: &str = "toll_capture_taken_total";
const LOST: &str = "toll_capture_lost_total";
const ITEMS: &str = "toll_capture_items_total";
const QUERIES: &str = "toll_capture_queries_total";
const WRITTEN: &str = "toll_capture_written_bytes_total";
const FIRST_LOSS: &str = "toll_capture_first_loss_timestamp_seconds";
const LAST_LOSS: &str = "toll_capture_last_loss_timestamp_seconds";
const BUFFER: &str = "toll_capture_stream_buffer_bytes";
const ROOM: &str = "toll_capture_stream_buffer_room_bytes";
const CLASS_QUERIES: &str = "toll_capture_class_queries";
const CLASS_SECONDS: &str = "toll_capture_class_seconds";
const OTLP_EXPORTED: &str = "toll_capture_otlp_exported_total";
const OTLP_DROPPED: &str = "toll_capture_otlp_dropped_total";
const CPU: &str = "process_cpu_seconds_total";
const MEMORY: &str = "process_resident_memory_bytes";
const BUILD: &str = "toll_build_info";

/// An endpoint that lasts as long as the process.
pub struct MetricsServer {
    state: Arc<Mutex<MetricsState>>,
    address: SocketAddr,
}

/// What the capture last said.
#[derive(Debug, Clone, Default)]
struct MetricsState {
    tap: TapCounters,
    output: OutputCounters,
    buffer: Option<(usize, usize)>,
    classes: Vec<ClassTotals>,
    export: Option<ExportCounters>,
}

/// An address that is taken, at which nobody answers yet: the thread that does reads what strangers send, and is to be begun once
/// rights are given up.
pub struct MetricsListener(TcpListener);

impl MetricsListener {
    /// `address`: `ADDRESS:PORT`, or a port alone on 127.0.0.1.
    ///
    /// # Errors
    /// It cannot listen there.
    pub fn bind(address: &str) -> Result<Self> {
        let port = address.strip_prefix(':').unwrap_or(address).parse::<u16>();
        let whole = port.map_or_else(|_| address.to_owned(), |port| format!("{LOOPBACK}:{port}"));
        let listener = TcpListener::bind(&whole)
            .with_context(|| format!("cannot offer metrics at {whole}: write it as ADDRESS:PORT or PORT"))?;
        Ok(Self(listener))
    }
}

impl MetricsServer {
    /// Starts to answer requests.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(MetricsListener(listener): MetricsListener) -> Result<Self> {
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(MetricsState::default()));
        let server_state = Arc::clone(&state);
        std::thread::Builder::new()
            .name("toll-metrics".into())
            .spawn(move || {
                let served = Arc::new(AtomicUsize::new(0));
                for asker in listener.incoming() {
                    match asker {
                        Ok(asker) => serve_beside_others(asker, &server_state, &served),
                        Err(_) => std::thread::sleep(ACCEPT_RETRY),
                    }
                }
            })
            .context("cannot start a thread to offer metrics with")?;
        Ok(Self { state, address })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the counters of the tap and the output.
    pub fn set_counters(&self, seen: &TapCounters, account: &OutputCounters) {
        self.update_state(|told| (told.tap, told.output) = (*seen, account.clone()));
    }

    /// Sets the bytes in the buffer and its capacity.
    pub fn set_buffer(&self, used: usize, room: usize) {
        self.update_state(|told| told.buffer = Some((used, room)));
    }

    /// Sets the slowest classes of the digest.
    pub fn set_classes(&self, classes: Vec<ClassTotals>) {
        self.update_state(|told| told.classes = classes);
    }

    /// Sets what became of the records for OpenTelemetry; absent: none are sent.
    pub fn set_export(&self, export: Option<ExportCounters>) {
        self.update_state(|told| told.export = export);
    }

    /// Whoever answers holds the lock for a copy of it, no longer.
    fn update_state(&self, change: impl FnOnce(&mut MetricsState)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Whoever hangs up, takes too long or comes when too many are there has no answer.
fn serve_beside_others(asker: TcpStream, state: &Arc<Mutex<MetricsState>>, served: &Arc<AtomicUsize>) {
    let place = ClientPlace::take(served);
    if place.number > MAX_CLIENTS {
        return;
    }
    let state = Arc::clone(state);
    let serve = move || {
        let _place = place;
        let _ = serve_client(&asker, &state);
    };
    // Without a thread, none: the next one asks again.
    let _ = std::thread::Builder::new().name("toll-metrics".into()).spawn(serve);
}

/// A client's place among those that are served now.
struct ClientPlace {
    number: usize,
    served: Arc<AtomicUsize>,
}

impl ClientPlace {
    fn take(served: &Arc<AtomicUsize>) -> Self {
        Self { number: served.fetch_add(1, Ordering::Relaxed) + 1, served: Arc::clone(served) }
    }
}

impl Drop for ClientPlace {
    fn drop(&mut self) {
        self.served.fetch_sub(1, Ordering::Relaxed);
    }
}

fn serve_client(asker: &TcpStream, state: &Mutex<MetricsState>) -> std::io::Result<()> {
    asker.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let request = read_request(asker)?;
    let mut words = request.split(|byte| *byte == b' ' || *byte == b'\r' || *byte == b'\n');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
    let (status, body) = match (method, path) {
        (b"GET" | b"HEAD", b"/metrics") => {
            let snapshot = state.lock().unwrap_or_else(PoisonError::into_inner).clone();
            ("200 OK", render_page(&snapshot))
        }
        (b"GET" | b"HEAD", _) => ("404 Not Found", "toll capture: the metrics are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "toll capture: GET /metrics\n".to_owned()),
    };
    let mut whole = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    if method != b"HEAD" {
        whole += &body;
    }
    let mut to = asker;
    to.write_all(whole.as_bytes())
}

/// A request up to its empty line, or as far as it is worth reading.
fn read_request(asker: &TcpStream) -> std::io::Result<Vec<u8>> {
    let until = Instant::now() + CLIENT_TIMEOUT;
    let (mut from, mut request, mut some) = (asker, Vec::new(), [0; 1_024]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        asker.set_read_timeout(Some(left))?;
        let read = from.read(&mut some)?;
        request.extend_from_slice(&some[..read]);
        let ends = |end: &[u8]| request.windows(end.len()).any(|seen| seen == end);
        if read == 0 || request.len() >= MAX_REQUEST_BYTES || ends(b"\r\n\r\n") || ends(b"\n\n") {
            return Ok(request);
        }
    }
}

fn render_page(state: &MetricsState) -> String {
    let MetricsState { tap: seen, output: account, buffer, classes, export } = state;
    let mut page = Page(String::new());
    page.add_metric(PASSED, seen.passed);
    page.add_metric(TAKEN, seen.delivered);
    page.add_family(LOST);
    let lost = [
        ("kernel", seen.lost_kernel),
        ("queue", account.lost_queue),
        ("disk", account.lost_disk),
        ("network", account.lost_network),
        ("budget", account.shed),
    ];
    for (place, count) in lost {
        page.add_value(LOST, &[("where", place)], count);
    }
    page.add_metric(ITEMS, account.items.saturating_sub(account.lost_items() + account.waiting));
    if let Some(queries) = account.queries {
        page.add_metric(QUERIES, queries);
    }
    page.add_metric(WRITTEN, account.bytes_written);
    for (name, moment) in [(FIRST_LOSS, account.first_loss_ns), (LAST_LOSS, account.last_loss_ns)] {
        if let Some(ns) = moment {
            page.add_metric(name, ns as f64 / 1e9);
        }
    }
    if let Some((used, room)) = *buffer {
        page.add_metric(BUFFER, used);
        page.add_metric(ROOM, room);
    }
    if !classes.is_empty() {
        page.add_family(CLASS_QUERIES);
        for class in classes {
            page.add_value(
                CLASS_QUERIES,
                &[("class", &class.id), ("query", &class.fingerprint)],
                class.queries,
            );
        }
        page.add_family(CLASS_SECONDS);
        for class in classes {
            page.add_value(
                CLASS_SECONDS,
                &[("class", &class.id), ("query", &class.fingerprint)],
                class.seconds,
            );
        }
    }
    if let Some(export) = export {
        page.add_metric(OTLP_EXPORTED, export.exported);
        page.add_family(OTLP_DROPPED);
        for (reason, count) in [
            ("queue", export.dropped_queue),
            ("refused", export.dropped_refused),
            ("unsent", export.dropped_unsent),
        ] {
            page.add_value(OTLP_DROPPED, &[("reason", reason)], count);
        }
    }
    add_process_metrics(&mut page);
    page.0
}

/// What the capture itself takes of the host, under the names that every exporter uses.
fn add_process_metrics(page: &mut Page) {
    if let Ok(used) = getrusage(UsageWho::RUSAGE_SELF) {
        let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        page.add_metric(CPU, seconds(used.user_time()) + seconds(used.system_time()));
    }
    if let Some(bytes) = proc_file::bytes(&proc_file::status("self"), "VmRSS") {
        page.add_metric(MEMORY, bytes);
    }
    page.add_family(BUILD);
    page.add_value(BUILD, &[("version", env!("CARGO_PKG_VERSION"))], 1);
}

/// Text in the exposition format.
struct Page(String);

impl Page {
    fn add_metric(&mut self, name: &str, value: impl Display) {
        self.add_family(name);
        self.add_value(name, &[], value);
    }

    fn add_family(&mut self, name: &str) {
        for (name, kind, help) in METRICS.iter().filter(|(listed, ..)| *listed == name) {
            // Writing to a string does not fail.
            let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
    }

    fn add_value(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let text = text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
            let _ = write!(self.0, "{before}{label}=\"{text}\"");
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{after} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(metrics: &MetricsServer, request: &str) -> String {
        let mut asker = TcpStream::connect(metrics.address()).unwrap();
        asker.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        asker.read_to_string(&mut answer).unwrap();
        answer
    }

    fn told() -> MetricsServer {
        let metrics = MetricsServer::start(MetricsListener::bind("0").unwrap()).unwrap();
        assert!(metrics.address().ip().is_loopback());
        let seen = TapCounters { passed: 1_000, delivered: 990, lost_kernel: 7 };
        let mut account = OutputCounters {
            items: 990,
            lost_network: 5,
            bytes_written: 12_345,
            ..OutputCounters::default()
        };
        account.note_loss(1_700_000_000_500_000_000, 1_700_000_001_000_000_000);
        metrics.set_counters(&seen, &account);
        metrics
    }

    #[test]
    fn what_was_last_said_is_told_by_the_rules_of_the_format() {
        let metrics = told();
        metrics.set_buffer(3, 64);
        metrics.set_export(Some(ExportCounters {
            exported: 8,
            dropped_refused: 2,
            ..ExportCounters::default()
        }));
        let fingerprint = "select \"a\\b\"\nfrom t".to_owned();
        metrics.set_classes(vec![ClassTotals { id: "AB".into(), fingerprint, queries: 4, seconds: 0.5 }]);
        let answer = ask(&metrics, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("version=0.0.4"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
        for line in [
            "toll_capture_passed_total 1000",
            "toll_capture_lost_total{where=\"kernel\"} 7",
            "toll_capture_lost_total{where=\"network\"} 5",
            "toll_capture_written_bytes_total 12345",
            "toll_capture_first_loss_timestamp_seconds 1700000000.5",
            "toll_capture_stream_buffer_bytes 3",
            r#"toll_capture_class_queries{class="AB",query="select \"a\\b\"\nfrom t"} 4"#,
            "toll_capture_otlp_exported_total 8",
            "toll_capture_otlp_dropped_total{reason=\"refused\"} 2",
            r#"toll_capture_class_seconds{class="AB",query="select \"a\\b\"\nfrom t"} 0.5"#,
        ] {
            assert!(body.lines().any(|told| told == line), "{line} in {body}");
        }
        assert!(
            !body.contains("toll_capture_queries_total"),
            "a capture of packets counts no queries: {body}"
        );
        // Each sample belongs to the family that was last described, and counters say so in their names.
        let mut family = "";
        for line in body.lines() {
            if let Some(described) = line.strip_prefix("# TYPE ") {
                let (name, kind) = described.split_once(' ').unwrap();
                assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
                assert_eq!(body.matches(&format!("# TYPE {name} ")).count(), 1, "{name}");
                family = name;
            } else if !line.starts_with('#') {
                let (sample, value) = line.rsplit_once(' ').unwrap();
                assert_eq!(sample.split('{').next(), Some(family));
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
        assert!(
            body.contains("process_cpu_seconds_total ") && body.contains("process_resident_memory_bytes ")
        );
    }

    #[test]
    fn strangers_have_an_answer_and_keep_nobody_waiting_for_long() {
        let metrics = told();
        // These say nothing, and hold on: all but one of the places are theirs.
        let silent: Vec<_> =
            (1..MAX_CLIENTS).map(|_| TcpStream::connect(metrics.address()).unwrap()).collect();
        let asked = Instant::now();
        assert!(ask(&metrics, "GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(ask(&metrics, "POST /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 405 "));
        assert!(
            ask(&metrics, &format!("{}\n\n", "x".repeat(MAX_REQUEST_BYTES - 2))).starts_with("HTTP/1.1 405 ")
        );
        let head = ask(&metrics, "HEAD /metrics HTTP/1.0\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
        assert!(ask(&metrics, "GET /metrics?x=1 HTTP/1.0\n\n").contains("toll_capture_taken_total 990\n"));
        // One after the other they would be heard out for half a minute first.
        assert!(asked.elapsed() < CLIENT_TIMEOUT * (MAX_CLIENTS as u32 - 1));
        drop(silent);
        assert!(MetricsListener::bind("nowhere:x").is_err());
        let taken = metrics.address().to_string();
        let refused = MetricsListener::bind(&taken).err().unwrap();
        assert!(format!("{refused:#}").contains(&format!("cannot offer metrics at {taken}")), "{refused:#}");
    }
}
