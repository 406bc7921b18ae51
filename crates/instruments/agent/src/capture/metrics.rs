//! Prometheus metrics of a capture: captured and dropped traffic, and the cost. The capture only stores numbers here.

use super::otlp::ExportCounters;
use super::output::{ClassTotals, OutputCounters};
use super::tap::TapCounters;
use anyhow::Result;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use toll_sys::proc_file;
use toll_sys::prometheus::{MetricSpec, MetricsListener, MetricsPage};

/// Name, type and help of every metric, in the order of the page. The reference in `docs` is made from it.
pub const METRICS: [MetricSpec; 17] = [
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

impl MetricsServer {
    /// Starts to answer requests.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(listener: MetricsListener) -> Result<Self> {
        let state = Arc::new(Mutex::new(MetricsState::default()));
        let served = Arc::clone(&state);
        let page = move || render_page(&served.lock().unwrap_or_else(PoisonError::into_inner).clone());
        Ok(Self { state, address: listener.serve(page)? })
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

fn render_page(state: &MetricsState) -> String {
    let MetricsState { tap: seen, output: account, buffer, classes, export } = state;
    let mut page = MetricsPage::new(&METRICS);
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
    page.into_text()
}

/// What the capture itself takes of the host, under the names that every exporter uses.
fn add_process_metrics(page: &mut MetricsPage) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

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
}
