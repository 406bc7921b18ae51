//! Tests of exports to a collector on loopback, which decodes what it gets. Nothing is captured.

use super::*;
use crate::capture::tap::TapCounters;
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsPartialSuccess, ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::HistogramDataPoint;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use std::net::TcpListener;
use toll_digest::classes::Settings;
use toll_testkit::http_receiver::{HttpAnswer, HttpReceiver, HttpRequest};
use toll_wire::event::{ErrorInfo, Event, Sink};

/// A digest of statements and their times in ns; the statement `fail` ends with an error.
pub(super) fn digest_of(events: &[(&str, u64)]) -> DigestResult {
    let mut done = DigestResult::new(Settings::default());
    for (statement, query_ns) in events {
        let error = ErrorInfo { number: 1_062, message: b"Duplicate entry 'secret'", ..ErrorInfo::default() };
        done.digest.on_event(&Event {
            start_ns: 5,
            query_ns: Some(*query_ns),
            text: statement.as_bytes(),
            db: b"shop",
            error: (*statement == "fail").then_some(error),
            ..Event::default()
        });
    }
    done.digest.settle();
    done
}

pub(super) fn attribute(attributes: &[KeyValue], key: &str) -> Option<Value> {
    attributes.iter().find(|attribute| attribute.key == key)?.value.clone()?.value
}

fn settings(url: &str, more: &[(&str, &str)]) -> OtlpSettings {
    let variable = |name: &str| {
        let given = more.iter().find(|(known, _)| *known == name);
        given.map(|(_, value)| (*value).to_owned())
    };
    OtlpSettings::new(Some(url), variable).unwrap()
}

/// An exporter of logs alone, whose requests are easier to count.
fn logs_to(url: &str) -> (OtlpExporter, OtlpFeed) {
    let exporter = OtlpExporter::start(&settings(url, &[("OTEL_METRICS_EXPORTER", "none")]), "3306").unwrap();
    let feed = exporter.feed(1_000);
    (exporter, feed)
}

fn exported(records: u64) -> ExportCounters {
    ExportCounters { exported: records, ..ExportCounters::default() }
}

/// As many records as digests, since each has one class.
fn one_class() -> DigestResult {
    digest_of(&[("select a from t where b = 'secret'", 2_000_000)])
}

/// The histogram's points, by the text of their fingerprints.
fn durations(request: &HttpRequest) -> Vec<(Option<Value>, HistogramDataPoint)> {
    let decoded = ExportMetricsServiceRequest::decode(request.body.as_slice()).unwrap();
    let metrics = &decoded.resource_metrics[0].scope_metrics[0].metrics;
    let duration = metrics.iter().find(|metric| metric.name == "db.client.operation.duration").unwrap();
    assert_eq!(duration.unit, "s");
    let Some(Data::Histogram(histogram)) = &duration.data else { panic!("{duration:?}") };
    let named = |point: &HistogramDataPoint| (attribute(&point.attributes, "db.query.text"), point.clone());
    histogram.data_points.iter().map(named).collect()
}

#[test]
fn a_collector_gets_what_the_digests_count_without_literals() {
    let receiver = HttpReceiver::start(|_| HttpAnswer::of("200 OK"));
    let variables = [
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20of-bad-news"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test"),
    ];
    let exporter = OtlpExporter::start(&settings(&receiver.url(), &variables), "3306").unwrap();
    let mut feed = exporter.feed(1_000);
    exporter.set_counters(TapCounters { passed: 77, ..TapCounters::default() }, Default::default());
    let limit = Limit { share: None, count: Some(1) };
    let digest = digest_of(&[
        ("select a from t where b = 'secret'", 2_000_000),
        ("select a from t where b = 'secret too'", 700_000_000),
        ("fail", 20_000_000),
    ]);
    feed.add(&digest, limit, 2_000);
    feed.add(&digest, limit, 3_000);
    exporter.finish();
    let mut requests: Vec<HttpRequest> = std::iter::from_fn(|| receiver.try_next()).collect();
    assert_eq!(requests.len(), 4);
    for request in &requests {
        assert!(!request.body.windows(6).any(|six| six == b"secret"), "{}", request.path);
        let header = |name: &str| request.header(name).unwrap_or_default();
        assert_eq!(header("content-type"), "application/x-protobuf");
        assert_eq!(header("authorization"), "Bearer of-bad-news");
        assert_eq!(header("user-agent"), concat!("toll/", env!("CARGO_PKG_VERSION")));
    }
    requests.sort_by_key(|request| (request.path.clone(), request.at));
    let [first_logs, _, _, last_metrics] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!((first_logs.path.as_str(), last_metrics.path.as_str()), ("/v1/logs", "/v1/metrics"));
    let logs = ExportLogsServiceRequest::decode(first_logs.body.as_slice()).unwrap();
    let resource = &logs.resource_logs[0].resource.clone().unwrap().attributes;
    let text = |text: &str| Some(Value::StringValue(text.to_owned()));
    assert_eq!(attribute(resource, "service.name"), text("toll-capture"));
    assert_eq!(attribute(resource, "deployment.environment.name"), text("test"));
    let host = toll_sys::read_trimmed("/proc/sys/kernel/hostname");
    assert_eq!(attribute(resource, "service.instance.id"), text(&format!("{host}:3306")));
    let durations = durations(last_metrics);
    let [(select, point), (None, others)] = &durations[..] else { panic!("{durations:?}") };
    assert_eq!(*select, text("select a from t where b = ?"));
    assert_eq!(attribute(&point.attributes, "db.query.summary"), text("SELECT t"));
    assert_eq!((point.count, others.count), (4, 2), "of both digests");
    assert!((point.sum.unwrap() - 1.404).abs() < 1e-9, "{point:?}");
    // Each metric's points, and the records of two digests, have arrived.
    let decoded = ExportMetricsServiceRequest::decode(last_metrics.body.as_slice()).unwrap();
    let metrics = &decoded.resource_metrics[0].scope_metrics[0].metrics;
    let passed = metrics.iter().find(|metric| metric.name == "toll.capture.passed").unwrap();
    let Some(Data::Sum(sum)) = &passed.data else { panic!("{passed:?}") };
    let value = opentelemetry_proto::tonic::metrics::v1::number_data_point::Value::AsInt(77);
    assert_eq!(sum.data_points[0].value, Some(value));
    let points: u64 = 2 + 1 + 10;
    assert_eq!(exporter.export_counters(), exported(2 * points + 2 * 2));
}

#[test]
fn a_collector_that_is_not_there_costs_its_records_and_nothing_else() {
    // Nobody listens there any more.
    let url = format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let (exporter, mut feed) = logs_to(&url);
    for moment in 0..3 {
        feed.add(&one_class(), Limit::default(), 2_000 + moment);
    }
    exporter.finish();
    let dropped = ExportCounters { dropped_unsent: 3, ..ExportCounters::default() };
    assert_eq!(exporter.export_counters(), dropped);
}

#[test]
fn a_collector_that_never_answers_holds_nobody_up() {
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let receiver = HttpReceiver::start(move |_| {
        // Until the test ends.
        let _ = held.recv();
        HttpAnswer::of("200 OK")
    });
    let (exporter, mut feed) = logs_to(&receiver.url());
    feed.add(&one_class(), Limit::default(), 2_000);
    receiver.next();
    for moment in 0..200 {
        feed.add(&one_class(), Limit::default(), 3_000 + moment);
    }
    let counters = exporter.export_counters();
    assert_eq!((counters.exported, counters.dropped_unsent), (0, 0));
    assert!(counters.dropped_queue > 100, "{counters:?}");
    exporter.finish();
    let counters = exporter.export_counters();
    assert_eq!((counters.exported, counters.dropped()), (0, 201), "{counters:?}");
    drop(hold);
}

/// Requests of one digest to a collector that answers the first of them so, and then takes them.
fn requests_after(first: HttpAnswer) -> (Vec<HttpRequest>, ExportCounters) {
    let mut answers = vec![HttpAnswer::of("200 OK"), first];
    let last = answers[0].clone();
    let receiver = HttpReceiver::start(move |_| answers.pop().unwrap_or_else(|| last.clone()));
    let (exporter, mut feed) = logs_to(&receiver.url());
    feed.add(&one_class(), Limit::default(), 2_000);
    let mut requests = vec![receiver.next()];
    // The end of a capture would cut the pause short.
    while exporter.export_counters() == ExportCounters::default() {
        std::thread::sleep(Duration::from_millis(5));
    }
    exporter.finish();
    requests.extend(std::iter::from_fn(|| receiver.try_next()));
    (requests, exporter.export_counters())
}

#[test]
fn a_collector_that_is_busy_gets_the_same_request_again_after_the_pause_it_asks_for() {
    let asks = |status: &str, seconds: &str| HttpAnswer {
        headers: vec![format!("Retry-After: {seconds}")],
        ..HttpAnswer::of(status)
    };
    let cases = [
        (asks("429 Too Many Requests", "2"), Duration::from_secs(2)),
        (asks("503 Service Unavailable", "1"), Duration::from_secs(1)),
        // Its own pause is between half a second and one and a half.
        (HttpAnswer::of("503 Service Unavailable"), Duration::from_millis(500)),
        (HttpAnswer::of("502 Bad Gateway"), Duration::from_millis(500)),
    ];
    for (answer, pause) in cases {
        let status = answer.status.clone();
        let (requests, counters) = requests_after(answer);
        let [first, second] = &requests[..] else { panic!("{status}: {} requests", requests.len()) };
        assert_eq!(first.body, second.body, "{status}");
        assert!(second.at - first.at >= pause, "{status}: after {:?}", second.at - first.at);
        assert_eq!(counters, exported(1), "{status}");
    }
}

#[test]
fn a_request_that_is_refused_is_dropped_and_counted_and_never_sent_again() {
    let elsewhere = HttpReceiver::start(|_| HttpAnswer::of("200 OK"));
    let redirect = HttpAnswer {
        headers: vec![format!("Location: {}/v1/logs", elsewhere.url())],
        ..HttpAnswer::of("307 Temporary Redirect")
    };
    for answer in [HttpAnswer::of("400 Bad Request"), HttpAnswer::of("404 Not Found"), redirect] {
        let status = answer.status.clone();
        let (requests, counters) = requests_after(answer);
        let refused = ExportCounters { dropped_refused: 1, ..ExportCounters::default() };
        assert_eq!((requests.len(), counters), (1, refused), "{status}");
    }
    assert!(elsewhere.try_next().is_none(), "a redirect was followed");
}

#[test]
fn what_a_collector_refuses_of_a_request_is_counted() {
    let partial = ExportLogsPartialSuccess { rejected_log_records: 2, error_message: "too old".into() };
    let body = ExportLogsServiceResponse { partial_success: Some(partial) }.encode_to_vec();
    let receiver =
        HttpReceiver::start(move |_| HttpAnswer { body: body.clone(), ..HttpAnswer::of("200 OK") });
    let (exporter, mut feed) = logs_to(&receiver.url());
    let three = [("select a", 1), ("select b from t", 2), ("update t set a = 1", 3)];
    feed.add(&digest_of(&three), Limit { share: None, count: None }, 2_000);
    exporter.finish();
    let counters = ExportCounters { exported: 1, dropped_refused: 2, ..ExportCounters::default() };
    assert_eq!(exporter.export_counters(), counters);
}

#[test]
fn a_digest_without_queries_has_no_log_records() {
    let receiver = HttpReceiver::start(|_| HttpAnswer::of("200 OK"));
    let (exporter, mut feed) = logs_to(&receiver.url());
    feed.add(&digest_of(&[]), Limit::default(), 2_000);
    exporter.finish();
    assert_eq!((exporter.export_counters(), receiver.try_next().is_none()), (exported(0), true));
}
