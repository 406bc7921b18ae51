//! Export of digests to OpenTelemetry, by OTLP over HTTP: metrics, and a log record for each class.
//!
//! The digest printer's thread makes requests, and a thread for each signal sends them. The queues between them are bounded. A
//! collector that is slow or away costs records, which are counted.
//!
//! # Invariants
//! Never delays the capture. Never sends a statement as it was written: fingerprints alone.

mod attributes;
mod client;
mod logs_request;
mod metrics_request;
mod queue;
mod sender;
mod series;
mod settings;

pub use metrics_request::OTLP_METRICS;
pub use queue::ExportCounters;
pub use settings::{OtlpSettings, Temporality, VARIABLES};

use anyhow::{Context, Result};
use attributes::text;
use client::OtlpClient;
use metrics_request::{CaptureCounters, MetricsBuilder};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use queue::{ExportQueue, ExportRequest};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use toll_digest::DigestResult;
use toll_digest::classes::{GroupBy, Limit};
use toll_sys::private_dir;

/// At the end of a capture, what the collector has not taken within this time is dropped.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

/// Kind of records, each with its own path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Metrics,
    Logs,
}

impl Signal {
    fn path(self) -> &'static str {
        match self {
            Self::Metrics => "/v1/metrics",
            Self::Logs => "/v1/logs",
        }
    }
}

/// The senders of a capture.
pub struct OtlpExporter {
    settings: OtlpSettings,
    resource: Resource,
    queues: Vec<(Signal, Arc<ExportQueue>)>,
    counters: Arc<Mutex<CaptureCounters>>,
}

impl OtlpExporter {
    /// Starts a sender for each signal. `instance`: what is captured, unique on this host.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(settings: &OtlpSettings, instance: &str) -> Result<Self> {
        let mut queues = Vec::new();
        for signal in settings.signals.iter().copied() {
            let queue = Arc::new(ExportQueue::default());
            let (sent, client) = (Arc::clone(&queue), OtlpClient::new(settings, signal));
            let seed = u128::from_le_bytes(private_dir::random_bytes()?) as u64;
            std::thread::Builder::new()
                .name("toll-otlp".into())
                .spawn(move || sender::run_sender(&sent, &client, seed))
                .context("cannot start a thread to send records with")?;
            queues.push((signal, queue));
        }
        if settings.is_in_the_clear() {
            tracing::warn!(
                "the headers for {} cross the network in the clear: use https://",
                settings.endpoint()
            );
        }
        let resource = describe_resource(settings, instance);
        Ok(Self { settings: settings.clone(), resource, queues, counters: Arc::default() })
    }

    /// What makes requests of digests, on another thread. `now_ns`: the start of the first digest, Unix time.
    pub fn feed(&self, now_ns: u64) -> OtlpFeed {
        OtlpFeed {
            temporality: self.settings.temporality,
            resource: self.resource.clone(),
            queues: self.queues.clone(),
            counters: Arc::clone(&self.counters),
            metrics: None,
            since_ns: now_ns,
        }
    }

    /// Sets the counters of the capture, for the next request.
    pub fn set_counters(&self, tap: super::tap::TapCounters, output: super::output::OutputCounters) {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner) =
            CaptureCounters { tap, output, export: self.export_counters() };
    }

    /// What became of all records so far.
    pub fn export_counters(&self) -> ExportCounters {
        let mut sum = ExportCounters::default();
        self.queues.iter().for_each(|(_, queue)| sum.add(&queue.counters()));
        sum
    }

    /// Waits until all is sent, and no longer than [`FINISH_TIMEOUT`]. The rest is dropped.
    pub fn finish(&self) {
        let until = Instant::now() + FINISH_TIMEOUT;
        self.queues.iter().for_each(|(_, queue)| queue.close());
        self.queues.iter().for_each(|(_, queue)| queue.abandon_at(until));
    }
}

/// Makes requests of digests.
pub struct OtlpFeed {
    temporality: Temporality,
    resource: Resource,
    queues: Vec<(Signal, Arc<ExportQueue>)>,
    counters: Arc<Mutex<CaptureCounters>>,
    /// Made with the first digest, which knows its grouping.
    metrics: Option<MetricsBuilder>,
    since_ns: u64,
}

impl OtlpFeed {
    /// Queues a digest of the time since the last one. `limit`: the classes that get records of their own.
    pub fn add(&mut self, done: &DigestResult, limit: Limit, now_ns: u64) {
        let group_by: GroupBy = done.digest.settings().group_by;
        for (signal, queue) in &self.queues {
            let (body, records) = match signal {
                Signal::Metrics => {
                    let (resource, since_ns) = (&self.resource, self.since_ns);
                    let builder = self.metrics.get_or_insert_with(|| {
                        MetricsBuilder::new(self.temporality, resource.clone(), group_by, limit, since_ns)
                    });
                    let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    let (request, points) = builder.add(done, &counters, now_ns);
                    (request.encode_to_vec(), points)
                }
                Signal::Logs => {
                    let (request, records) =
                        logs_request::build_request(done, limit, &self.resource, self.since_ns, now_ns);
                    (request.encode_to_vec(), records)
                }
            };
            // A digest without queries has no log records.
            if records > 0 {
                queue.push(ExportRequest { body, records });
            }
        }
        self.since_ns = now_ns;
    }
}

/// What the records are of. The settings have the last word.
fn describe_resource(settings: &OtlpSettings, instance: &str) -> Resource {
    let host = toll_sys::read_trimmed("/proc/sys/kernel/hostname");
    let own = [
        ("host.name", host.clone()),
        ("service.instance.id", format!("{host}:{instance}")),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    let is_given = |name: &str| settings.resource.iter().any(|(given, _)| given == name);
    let own = own.into_iter().filter(|(name, _)| !is_given(name)).map(|(name, value)| text(name, value));
    let given = settings.resource.iter().map(|(name, value)| text(name, value.as_str()));
    Resource { attributes: given.chain(own).collect(), ..Resource::default() }
}

#[cfg(test)]
mod tests;
