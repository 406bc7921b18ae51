//! Tests of captures whose digests go to an OpenTelemetry collector.

use crate::ends::wait_until;
use crate::lab::Lab;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use prost::Message;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::process::Child;
use std::time::Duration;
use toll_mysql::{Connection, Target};
use toll_testkit::http_receiver::{HttpAnswer, HttpReceiver, HttpRequest};
use toll_testkit::server::make_certificates;

pub const QUERIES: u64 = 900;

/// Statements of three classes, over some seconds.
pub fn work(port: u16) {
    let target = Target::parse_dsn(&format!("mysql://root@127.0.0.1:{port}/")).unwrap();
    let mut connection = Connection::connect(&target).unwrap();
    for number in 0..QUERIES / 3 {
        connection.exec_drop(&format!("SELECT {number}, 'hush{number}'")).unwrap();
        connection.exec_drop(&format!("SELECT REPEAT('x', {number})")).unwrap();
        connection.exec_drop(&format!("DO SLEEP(0.01), {number}")).unwrap();
    }
}

/// A capture with a digest of each second, which go to a collector.
struct Exporting {
    child: Child,
    output: String,
    words: String,
}

/// What a capture printed.
struct Printed {
    digests: Vec<Value>,
    ledger: Value,
    words: String,
}

impl Exporting {
    fn start(lab: &Lab, port: u16, url: &str, variables: &[(&str, &str)]) -> Self {
        let (output, words) = (lab.path("digests"), lab.path("words"));
        let port = port.to_string();
        let args =
            ["capture", "-i", "lo", "--port", &port, "--digest", "--every", "1s", "--json", "--otlp", url];
        let [out, err] = [&output, &words].map(|path| std::fs::File::create(path).unwrap());
        let mut command = lab.command(&args);
        let child = command.envs(variables.iter().copied()).stdout(out).stderr(err).spawn().unwrap();
        let heard = || std::fs::read_to_string(&words).unwrap_or_default();
        wait_until("it captures", || heard().contains("listening on"));
        Self { child, output, words }
    }

    fn end(mut self, lab: &Lab) -> Printed {
        // Packets come out of the kernel's ring within a fifth of a second.
        std::thread::sleep(Duration::from_millis(300));
        lab.signal(&self.child, "INT");
        let words = || std::fs::read_to_string(&self.words).unwrap_or_default();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{}", words());
        let output = std::fs::read_to_string(&self.output).unwrap();
        let mut digests: Vec<Value> =
            serde_json::Deserializer::from_str(&output).into_iter().map(Result::unwrap).collect();
        let ledger = digests.pop().unwrap();
        Printed { digests, ledger, words: words() }
    }
}

impl Printed {
    fn queries(&self) -> u64 {
        self.digests.iter().map(|digest| digest["totals"]["queries"].as_u64().unwrap()).sum()
    }

    fn otlp(&self, name: &str) -> u64 {
        self.ledger["otlp"][name].as_u64().unwrap_or_else(|| panic!("{name} in {}", self.ledger))
    }
}

fn attribute(attributes: &[KeyValue], key: &str) -> Option<AnyValue> {
    attributes.iter().find(|attribute| attribute.key == key)?.value.clone()?.value
}

fn class_id(attributes: &[KeyValue]) -> String {
    match attribute(attributes, "toll.class.id") {
        Some(AnyValue::StringValue(id)) => id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_collector_gets_what_the_printed_digests_count() {
    let lab = toll_testkit::lab!();
    if !lab.is_root {
        toll_testkit::skip!("captures need root");
        return;
    }
    let server = lab.start_server();
    let receiver = HttpReceiver::start(|_| HttpAnswer::of("200 OK"));
    let capture = Exporting::start(&lab, server.port, &receiver.url(), &[]);
    work(server.port);
    let printed = capture.end(&lab);
    assert!(printed.queries() >= QUERIES && printed.digests.len() > 2, "{}", printed.words);
    let requests: Vec<HttpRequest> = std::iter::from_fn(|| receiver.try_next()).collect();
    for secret in ["hush", "xxx"] {
        let has =
            |request: &HttpRequest| request.body.windows(secret.len()).any(|part| part == secret.as_bytes());
        assert!(!requests.iter().any(has), "{secret} was sent");
    }
    let of = |path: &str| requests.iter().filter(|request| request.path == path).collect::<Vec<_>>();

    // Sums from the start: the last request holds all.
    let (metrics, logs) = (of("/v1/metrics"), of("/v1/logs"));
    assert_eq!(metrics.len(), printed.digests.len(), "one for each digest: {}", printed.words);
    let last = ExportMetricsServiceRequest::decode(metrics.last().unwrap().body.as_slice()).unwrap();
    let found = &last.resource_metrics[0].scope_metrics[0].metrics;
    let duration = found.iter().find(|metric| metric.name == "db.client.operation.duration").unwrap();
    let Some(Data::Histogram(histogram)) = &duration.data else { panic!("{duration:?}") };
    let measured: u64 = histogram.data_points.iter().map(|point| point.count).sum();
    let times = |digest: &Value| digest["totals"]["query_time_us"].clone();
    let counted: u64 = printed.digests.iter().filter_map(|digest| times(digest)["count"].as_u64()).sum();
    assert_eq!(measured, counted);
    let measured_s: f64 = histogram.data_points.iter().filter_map(|point| point.sum).sum();
    let counted_us: f64 = printed.digests.iter().filter_map(|digest| times(digest)["sum"].as_f64()).sum();
    assert!((measured_s - counted_us / 1e6).abs() < 1e-3, "{measured_s} s, {counted_us} us");
    let sleeps = histogram.data_points.iter().find(|point| {
        attribute(&point.attributes, "db.query.text") == Some(AnyValue::StringValue("do sleep(?), ?".into()))
    });
    assert_eq!(sleeps.map(|point| point.count), Some(QUERIES / 3), "{duration:?}");

    // Each digest's classes are log records.
    let mut recorded: BTreeMap<String, u64> = BTreeMap::new();
    for request in logs {
        let decoded = ExportLogsServiceRequest::decode(request.body.as_slice()).unwrap();
        for record in &decoded.resource_logs[0].scope_logs[0].log_records {
            let is_others = attribute(&record.attributes, "db.query.text").is_none();
            let Some(AnyValue::IntValue(count)) = attribute(&record.attributes, "toll.class.commands") else {
                panic!("{record:?}")
            };
            let id = if is_others { "(others)".to_owned() } else { class_id(&record.attributes) };
            *recorded.entry(id).or_default() += count as u64;
        }
    }
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for digest in &printed.digests {
        for class in digest["classes"].as_array().unwrap() {
            *expected.entry(class["id"].as_str().unwrap().into()).or_default() +=
                class["count"].as_u64().unwrap();
        }
        *expected.entry("(others)".into()).or_default() += digest["other"]["count"].as_u64().unwrap();
    }
    expected.retain(|_, count| *count > 0);
    assert_eq!(recorded, expected);
    let dropped = ["dropped_queue", "dropped_refused", "dropped_unsent"].map(|name| printed.otlp(name));
    assert_eq!(dropped, [0; 3], "{}", printed.ledger);
}

#[test]
fn a_capture_without_a_collector_prints_every_digest_and_counts_what_was_dropped() {
    let lab = toll_testkit::lab!();
    if !lab.is_root {
        toll_testkit::skip!("captures need root");
        return;
    }
    let server = lab.start_server();
    // Nobody listens there any more.
    let url = format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let capture = Exporting::start(&lab, server.port, &url, &[]);
    work(server.port);
    let printed = capture.end(&lab);
    assert!(printed.queries() >= QUERIES && printed.digests.len() > 2, "{}", printed.words);
    assert_eq!(printed.ledger["lost"]["kernel"], 0, "{}", printed.ledger);
    assert_eq!((printed.otlp("exported"), printed.otlp("dropped_refused")), (0, 0));
    assert!(printed.otlp("dropped_unsent") > 0, "{}", printed.ledger);
    // Of metrics and of log records, not of each digest.
    let warnings = printed.words.matches("takes no records now").count();
    assert_eq!(warnings, 2, "{}", printed.words);
}

#[test]
fn a_collector_is_reached_over_tls_by_its_certificate_alone() {
    let lab = toll_testkit::lab!();
    let certificates = lab.path("");
    if !lab.is_root || !make_certificates(Path::new(&certificates)) {
        toll_testkit::skip!("captures need root, and certificates openssl");
        return;
    }
    let server = lab.start_server();
    let receiver = HttpReceiver::start_with_tls(Path::new(&certificates), |_| HttpAnswer::of("200 OK"));
    let known = [("SSL_CERT_FILE", lab.path("ca.pem"))];
    let known = known.each_ref().map(|(name, path)| (*name, path.as_str()));
    for (variables, is_known) in [(&known[..], true), (&[][..], false)] {
        let capture = Exporting::start(&lab, server.port, &receiver.url(), variables);
        work(server.port);
        let printed = capture.end(&lab);
        let (exported, unsent) = (printed.otlp("exported"), printed.otlp("dropped_unsent"));
        assert_eq!(
            (exported > 0, unsent > 0),
            (is_known, !is_known),
            "{}: {}",
            printed.ledger,
            printed.words
        );
    }
    assert!(receiver.next().path.starts_with("/v1/"));
}
