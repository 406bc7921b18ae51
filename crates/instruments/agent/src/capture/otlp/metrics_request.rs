//! Requests with the metrics of a capture: query times, rows and errors of each class, and the drop counters.

use super::attributes::{SCHEMA_URL, scope, text};
use super::series::{BucketCounts, DURATION_BOUNDS_NS, ROWS_BOUNDS, Series, SeriesTable};
use super::{ExportCounters, Temporality};
use crate::capture::output::OutputCounters;
use crate::capture::tap::TapCounters;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, number_data_point::Value,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use toll_digest::DigestResult;
use toll_digest::classes::{GroupBy, Limit};

/// Name, type, unit and description of every metric. The reference in `docs` is made from it.
pub const OTLP_METRICS: [(&str, &str, &str, &str); 7] = [
    (
        DURATION,
        "histogram",
        "s",
        "Query times of a class, from a query's first packet to the end of its answer.",
    ),
    (ROWS, "histogram", "{row}", "Rows that the queries of a class returned, where the capture sees them."),
    (ERRORS, "counter", "{error}", "Queries of a class that the server answered with an error."),
    (PASSED, "counter", "{item}", "Packets or calls that the kernel's filter let pass."),
    (LOST, "counter", "{item}", "Packets or calls that are not in the digests, by where they got lost."),
    (QUERIES, "counter", "{query}", "Queries that were decoded."),
    (
        DROPPED,
        "counter",
        "{record}",
        "Data points and log records that the collector did not get, by reason.",
    ),
];
const DURATION: &str = "db.client.operation.duration";
const ROWS: &str = "db.client.response.returned_rows";
const ERRORS: &str = "toll.class.errors";
const PASSED: &str = "toll.capture.passed";
const LOST: &str = "toll.capture.lost";
const QUERIES: &str = "toll.capture.queries";
const DROPPED: &str = "toll.capture.otlp.dropped";

/// Metric, its attribute, and its value.
type CounterValue = (&'static str, Option<(&'static str, &'static str)>, u64);

/// Counters of the capture itself.
#[derive(Debug, Clone, Default)]
pub struct CaptureCounters {
    pub tap: TapCounters,
    pub output: OutputCounters,
    pub export: ExportCounters,
}

impl CaptureCounters {
    /// Each value so far.
    fn values(&self) -> [CounterValue; 10] {
        let Self { tap, output, export } = self;
        let lost = |place| Some(("where", place));
        let dropped = |reason| Some(("reason", reason));
        [
            (PASSED, None, tap.passed),
            (LOST, lost("kernel"), tap.lost_kernel),
            (LOST, lost("queue"), output.lost_queue),
            (LOST, lost("disk"), output.lost_disk),
            (LOST, lost("network"), output.lost_network),
            (LOST, lost("budget"), output.shed),
            (QUERIES, None, output.queries.unwrap_or(0)),
            (DROPPED, dropped("queue"), export.dropped_queue),
            (DROPPED, dropped("refused"), export.dropped_refused),
            (DROPPED, dropped("unsent"), export.dropped_unsent),
        ]
    }
}

/// Adds digests up, and makes requests of them.
pub struct MetricsBuilder {
    temporality: Temporality,
    resource: Resource,
    table: SeriesTable,
    /// Since when the counters of the capture count, Unix ns.
    started_ns: u64,
    /// What was sent of them, in deltas.
    before: CaptureCounters,
    since_ns: u64,
}

impl MetricsBuilder {
    pub fn new(
        temporality: Temporality,
        resource: Resource,
        group_by: GroupBy,
        limit: Limit,
        now_ns: u64,
    ) -> Self {
        Self {
            temporality,
            resource,
            table: SeriesTable::new(group_by, limit),
            started_ns: now_ns,
            before: CaptureCounters::default(),
            since_ns: now_ns,
        }
    }

    /// Adds the digest of the time since the last one. Returns the request, and the number of its data points.
    pub fn add(
        &mut self,
        done: &DigestResult,
        counters: &CaptureCounters,
        now_ns: u64,
    ) -> (ExportMetricsServiceRequest, u64) {
        self.table.add(done, self.since_ns);
        let metrics = self.metrics(counters, now_ns);
        if self.temporality == Temporality::Delta {
            self.table.clear();
            self.before = counters.clone();
        }
        self.since_ns = now_ns;
        let points = metrics.iter().map(count_points).sum();
        let scope_metrics = ScopeMetrics { scope: Some(scope()), metrics, schema_url: SCHEMA_URL.into() };
        let resource_metrics = ResourceMetrics {
            resource: Some(self.resource.clone()),
            scope_metrics: vec![scope_metrics],
            schema_url: SCHEMA_URL.into(),
        };
        (ExportMetricsServiceRequest { resource_metrics: vec![resource_metrics] }, points)
    }

    fn metrics(&self, counters: &CaptureCounters, now_ns: u64) -> Vec<Metric> {
        let durations = |series: &Series| {
            let bounds = DURATION_BOUNDS_NS.map(|ns| ns as f64 / 1e9);
            histogram_point(series, &series.duration, &bounds, 1e9, now_ns)
        };
        let rows = |series: &Series| {
            histogram_point(series, &series.rows, &ROWS_BOUNDS.map(|rows| rows as f64), 1.0, now_ns)
        };
        let errors = |series: &Series| {
            (series.errors > 0)
                .then(|| sum_point(series.attributes.clone(), series.errors, series.since_ns, now_ns))
        };
        let mut metrics = vec![
            self.histogram(DURATION, self.table.iter().filter_map(durations).collect()),
            self.histogram(ROWS, self.table.iter().filter_map(rows).collect()),
            self.sum(ERRORS, self.table.iter().filter_map(errors).collect()),
        ];
        let since_ns = match self.temporality {
            Temporality::Cumulative => self.started_ns,
            Temporality::Delta => self.since_ns,
        };
        let values = counters.values().into_iter().zip(self.before.values());
        let points: Vec<(&str, NumberDataPoint)> = values
            .map(|((name, attribute, value), (.., before))| {
                let attributes = attribute.map(|(key, value)| text(key, value)).into_iter().collect();
                (name, sum_point(attributes, value.saturating_sub(before), since_ns, now_ns))
            })
            .collect();
        for name in [PASSED, LOST, QUERIES, DROPPED] {
            let points = points.iter().filter(|(of, _)| *of == name).map(|(_, point)| point.clone());
            metrics.push(self.sum(name, points.collect()));
        }
        metrics.retain(|metric| count_points(metric) > 0);
        metrics
    }

    fn histogram(&self, name: &str, data_points: Vec<HistogramDataPoint>) -> Metric {
        let aggregation_temporality = self.aggregation_temporality();
        metric(name, Data::Histogram(Histogram { data_points, aggregation_temporality }))
    }

    fn sum(&self, name: &str, data_points: Vec<NumberDataPoint>) -> Metric {
        let aggregation_temporality = self.aggregation_temporality();
        metric(name, Data::Sum(Sum { data_points, aggregation_temporality, is_monotonic: true }))
    }

    fn aggregation_temporality(&self) -> i32 {
        match self.temporality {
            Temporality::Cumulative => AggregationTemporality::Cumulative.into(),
            Temporality::Delta => AggregationTemporality::Delta.into(),
        }
    }
}

fn metric(name: &str, data: Data) -> Metric {
    let listed = OTLP_METRICS.iter().find(|(listed, ..)| *listed == name);
    let (unit, description) = listed.map_or(("", ""), |(_, _, unit, description)| (*unit, *description));
    Metric {
        name: name.into(),
        description: description.into(),
        unit: unit.into(),
        data: Some(data),
        ..Metric::default()
    }
}

/// `None`: a series without values. `scale`: of a value, in the unit of the sum.
fn histogram_point(
    series: &Series,
    values: &BucketCounts,
    bounds: &[f64],
    scale: f64,
    now_ns: u64,
) -> Option<HistogramDataPoint> {
    (values.count > 0).then(|| HistogramDataPoint {
        attributes: series.attributes.clone(),
        start_time_unix_nano: series.since_ns,
        time_unix_nano: now_ns,
        count: values.count,
        sum: Some(values.sum as f64 / scale),
        bucket_counts: values.counts.clone(),
        explicit_bounds: bounds.to_vec(),
        ..HistogramDataPoint::default()
    })
}

fn sum_point(attributes: Vec<KeyValue>, value: u64, since_ns: u64, now_ns: u64) -> NumberDataPoint {
    NumberDataPoint {
        attributes,
        start_time_unix_nano: since_ns,
        time_unix_nano: now_ns,
        value: Some(Value::AsInt(i64::try_from(value).unwrap_or(i64::MAX))),
        ..NumberDataPoint::default()
    }
}

fn count_points(metric: &Metric) -> u64 {
    match &metric.data {
        Some(Data::Histogram(histogram)) => histogram.data_points.len() as u64,
        Some(Data::Sum(sum)) => sum.data_points.len() as u64,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::digest_of;
    use super::*;

    fn builder(temporality: Temporality) -> MetricsBuilder {
        MetricsBuilder::new(temporality, Resource::default(), GroupBy::Fingerprint, Limit::default(), 100)
    }

    fn counters(passed: u64, dropped_queue: u64) -> CaptureCounters {
        CaptureCounters {
            tap: TapCounters { passed, ..TapCounters::default() },
            export: ExportCounters { dropped_queue, ..ExportCounters::default() },
            ..CaptureCounters::default()
        }
    }

    /// Start, end, count and sum in seconds.
    type Point = (u64, u64, u64, f64);

    /// The points of the one class, and the values of a counter.
    fn found(request: &ExportMetricsServiceRequest, counter: &str) -> (Vec<Point>, Vec<i64>) {
        let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
        let data =
            |name: &str| metrics.iter().find(|metric| metric.name == name).unwrap().data.clone().unwrap();
        let Data::Histogram(histogram) = data(DURATION) else { panic!("no histogram") };
        let point = |point: &HistogramDataPoint| {
            (point.start_time_unix_nano, point.time_unix_nano, point.count, point.sum.unwrap())
        };
        let Data::Sum(sum) = data(counter) else { panic!("no sum") };
        let value = |point: &NumberDataPoint| match point.value {
            Some(Value::AsInt(value)) => value,
            _ => panic!("{point:?}"),
        };
        (histogram.data_points.iter().map(point).collect(), sum.data_points.iter().map(value).collect())
    }

    #[test]
    fn sums_count_from_the_start_and_deltas_from_the_digest_before() {
        let one = [("select a", 2_000_000_000)];
        let cases =
            [(Temporality::Cumulative, (100, 300, 3, 6.0), 9), (Temporality::Delta, (200, 300, 2, 4.0), 4)];
        for (temporality, expected, passed) in cases {
            let mut builder = builder(temporality);
            let (first, points) = builder.add(&digest_of(&one), &counters(5, 0), 200);
            assert_eq!(found(&first, PASSED), (vec![(100, 200, 1, 2.0)], vec![5]));
            assert_eq!(points, 1 + 10, "a class, and the counters");
            let (second, _) = builder.add(&digest_of(&[one[0], one[0]]), &counters(9, 7), 300);
            assert_eq!(found(&second, PASSED), (vec![expected], vec![passed]));
            assert_eq!(found(&second, DROPPED).1, [7, 0, 0]);
        }
    }

    #[test]
    fn metrics_are_listed_with_their_types_and_units() {
        let mut builder = builder(Temporality::Cumulative);
        let (request, _) = builder.add(&digest_of(&[("select a", 1), ("fail", 1)]), &counters(0, 0), 200);
        let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
        for metric in metrics {
            let (_, kind, unit, _) = OTLP_METRICS.iter().find(|(name, ..)| *name == metric.name).unwrap();
            assert_eq!(metric.unit, *unit, "{}", metric.name);
            match &metric.data {
                Some(Data::Histogram(histogram)) => {
                    assert_eq!(*kind, "histogram");
                    assert!(histogram.data_points.iter().all(|point| {
                        point.bucket_counts.len() == point.explicit_bounds.len() + 1
                            && point.bucket_counts.iter().sum::<u64>() == point.count
                            && point.explicit_bounds.is_sorted()
                    }));
                }
                Some(Data::Sum(sum)) => assert!(*kind == "counter" && sum.is_monotonic, "{}", metric.name),
                other => panic!("{other:?}"),
            }
        }
        // All but rows, of which there are none.
        assert_eq!(metrics.len(), OTLP_METRICS.len() - 1);
    }
}
