//! Samples of a run: load in bins of 100 ms, host and server once per second.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// A line of `samples.ndjson`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Sample {
    Bin(Bin),
    Second(Second),
    Host(HostSample),
    Pressure(PressureSample),
    Server(ServerSample),
    Tick(Tick),
    Own(OwnSample),
    Output(OutputSample),
    Cut(Cut),
    Classes(ClassSample),
    Footprint(Footprint),
    /// Of a kind that a newer toll wrote.
    #[serde(other)]
    Unknown,
}

/// Completions of the load in one short bin. `mono_us` is the bin's *end*.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    pub mono_us: u64,
    pub width_us: u64,
    /// Statements completed in the bin.
    pub statements: u64,
    /// Events (transactions) completed in the bin.
    pub events: u64,
    pub errors: u64,
    /// Failures by the server's or the client's code, those of connections among them; empty where the
    /// driver does not say (sysbench).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "by_code")]
    pub errors_by_code: BTreeMap<u16, u64>,
    /// Sum over the events that completed, from the intended start.
    pub latency_us_sum: u64,
    /// Absent where the driver does not say (sysbench).
    pub latency_us_max: Option<u64>,
    /// Events begun (or due) and not completed at the bin's end.
    pub in_flight: u64,
    /// Age of the oldest of them.
    pub oldest_us: u64,
}

/// Codes are text in JSON, and in types that are tagged or flattened serde does not make them numbers
/// again by itself.
pub fn by_code<'de, D, T>(json: D) -> Result<BTreeMap<u16, T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let by_text = BTreeMap::<String, T>::deserialize(json)?;
    by_text.into_iter().map(|(code, value)| Ok((code.parse().map_err(D::Error::custom)?, value))).collect()
}

/// Percentiles of event latency over one second of load. `mono_us` is the second's *end*.
/// Absent: the driver does not say (sysbench gives one percentile, p99).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Second {
    pub mono_us: u64,
    pub width_us: u64,
    pub events: u64,
    pub statements: u64,
    pub latency_us_mean: f64,
    pub latency_us_p50: Option<u64>,
    pub latency_us_p95: Option<u64>,
    pub latency_us_p99: Option<u64>,
    pub latency_us_max: Option<u64>,
}

/// The host over the interval that ends at `mono_us`. Rates are per second of that interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostSample {
    pub mono_us: u64,
    /// Shares of all CPUs, 0..=100.
    pub cpu_user_pct: f64,
    pub cpu_system_pct: f64,
    pub cpu_iowait_pct: f64,
    pub cpu_steal_pct: f64,
    pub mem_used_bytes: u64,
    /// Of all the memory, 0..=100; absent in older runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mem_used_pct: Option<f64>,
    pub mem_cached_bytes: u64,
    /// All interfaces but loopback, then loopback.
    pub net_rx_bytes_per_s: f64,
    pub net_tx_bytes_per_s: f64,
    pub lo_bytes_per_s: f64,
    pub disk_reads_per_s: f64,
    pub disk_writes_per_s: f64,
    pub disk_read_bytes_per_s: f64,
    pub disk_write_bytes_per_s: f64,
    pub disk_read_await_ms: f64,
    pub disk_write_await_ms: f64,
    pub disk_queue: f64,
    pub load_1: f64,
    pub load_5: f64,
    pub load_15: f64,
    pub context_switches_per_s: f64,
}

/// Pressure (share of the interval in which some task waited; absent where the kernel does not say) and pages
/// on their way to disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PressureSample {
    pub mono_us: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub psi_cpu_pct: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub psi_io_pct: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub psi_memory_pct: Option<f64>,
    pub dirty_bytes: u64,
    pub writeback_bytes: u64,
}

/// Names of a sample's columns, and how each is read; absent is absent.
macro_rules! columns {
    ($sample:ty: $($column:ident),* $(,)?) => {
        impl $sample {
            /// Every column, in the order of the fields.
            pub const COLUMNS: &[&str] = &[$(stringify!($column)),*];

            /// One column by its name; also absent where there is no such column.
            pub fn column(&self, name: &str) -> Option<f64> {
                match name {
                    $(stringify!($column) => self.$column.reading(),)*
                    _ => None,
                }
            }
        }
    };
}

columns!(HostSample:
    cpu_user_pct, cpu_system_pct, cpu_iowait_pct, cpu_steal_pct, mem_used_bytes, mem_used_pct, mem_cached_bytes,
    net_rx_bytes_per_s, net_tx_bytes_per_s, lo_bytes_per_s, disk_reads_per_s, disk_writes_per_s,
    disk_read_bytes_per_s, disk_write_bytes_per_s, disk_read_await_ms, disk_write_await_ms, disk_queue,
    load_1, load_5, load_15, context_switches_per_s,
);
columns!(PressureSample: psi_cpu_pct, psi_io_pct, psi_memory_pct, dirty_bytes, writeback_bytes);

/// A field of a sample as a number.
trait Reading {
    fn reading(&self) -> Option<f64>;
}

impl Reading for f64 {
    fn reading(&self) -> Option<f64> {
        Some(*self)
    }
}

impl Reading for u64 {
    fn reading(&self) -> Option<f64> {
        Some(*self as f64)
    }
}

impl Reading for Option<f64> {
    fn reading(&self) -> Option<f64> {
        *self
    }
}

/// Server status counters over the interval, by their own names, as rates or levels.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerSample {
    pub mono_us: u64,
    /// Which of the run's servers, counted from 0 in the order of the plan's setup.
    #[serde(default, skip_serializing_if = "is_first")]
    pub server: u32,
    pub values: BTreeMap<String, f64>,
}

fn is_first(server: &u32) -> bool {
    *server == 0
}

/// toll's own 10 ms ticker came this late: a stall of the harness, not of the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tick {
    pub mono_us: u64,
    pub late_us: u64,
}

/// What one process of a treatment wrote, at a beat of 100 ms while its end is waited for, else of 200 ms.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OutputSample {
    pub mono_us: u64,
    pub width_us: u64,
    pub trial: u32,
    /// As the plan names it.
    pub process: String,
    /// Written in this stretch by the last command of its pipeline, to wherever: a file, a pipe, a connection
    /// (`wchar` of `/proc/PID/io`).
    pub output_bytes: u64,
}

/// toll's own processes (not the load driver), at a beat of about a second.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnSample {
    pub mono_us: u64,
    /// Cumulative.
    pub cpu_us: u64,
    /// Resident at this moment.
    pub memory_bytes: u64,
    /// Cumulative; what they wrote towards storage (`write_bytes` of `/proc/PID/io`).
    pub written_bytes: u64,
}

/// What toll takes of a server that serves users and of its host, in all its processes, at a beat of half a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    pub mono_us: u64,
    /// CPU time of toll itself, of its guard, and of its tap on the server's sockets (0: there is none); cumulative.
    pub toll_cpu_us: u64,
    pub guard_cpu_us: u64,
    pub tap_cpu_us: u64,
    /// That the server was asked; cumulative.
    pub queries: u64,
    /// Open at this moment.
    pub connections: u64,
}

/// Response times that a server's own users saw in a short stretch, by class of query, or those of toll's probe queries.
/// `mono_us` is the stretch's *end*.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassSample {
    pub mono_us: u64,
    pub width_us: u64,
    /// Of the run's servers, counted from 0.
    #[serde(default, skip_serializing_if = "is_first")]
    pub server: u32,
    /// Of the plan's classes, by their names there; of probe queries one, `probe`.
    pub classes: BTreeMap<String, ClassTimes>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassTimes {
    pub count: u64,
    /// Sum of ln(microseconds).
    pub ln_us_sum: f64,
}

impl ClassSample {
    /// Name of the class of toll's probe queries.
    pub const PROBE: &str = "probe";
}

/// End of a run that could not go on: at most one, after its last trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cut {
    pub mono_us: u64,
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_that_is_not_known_is_absent_and_that_of_older_runs_is_read() {
        let bare = r#"{"kind":"pressure","mono_us":1,"dirty_bytes":2,"writeback_bytes":3}"#;
        let read: Sample = serde_json::from_str(bare).unwrap();
        assert!(matches!(&read, Sample::Pressure(p) if p.psi_io_pct.is_none()), "{read:?}");
        assert_eq!(serde_json::to_string(&read).unwrap(), bare);
        let older =
            bare.replace(r#""dirty"#, r#""psi_cpu_pct":0.0,"psi_io_pct":1.5,"psi_memory_pct":0.0,"dirty"#);
        let read: Sample = serde_json::from_str(&older).unwrap();
        assert!(matches!(&read, Sample::Pressure(p) if p.psi_io_pct == Some(1.5)), "{read:?}");
    }

    #[test]
    fn every_field_of_a_sample_is_a_column_of_it() {
        let fields = |sample: serde_json::Value| -> std::collections::BTreeSet<String> {
            sample.as_object().unwrap().keys().filter(|key| *key != "mono_us").cloned().collect()
        };
        let names = |columns: &[&str]| columns.iter().map(|name| (*name).to_owned()).collect();
        let host = HostSample {
            disk_queue: 3.5,
            mem_used_bytes: 7,
            mem_used_pct: Some(1.0),
            ..HostSample::default()
        };
        assert_eq!(fields(serde_json::to_value(&host).unwrap()), names(HostSample::COLUMNS));
        assert_eq!((host.column("disk_queue"), host.column("mem_used_bytes")), (Some(3.5), Some(7.0)));
        let whole = PressureSample {
            psi_cpu_pct: Some(1.0),
            psi_io_pct: Some(2.0),
            psi_memory_pct: Some(3.0),
            ..PressureSample::default()
        };
        assert_eq!(fields(serde_json::to_value(&whole).unwrap()), names(PressureSample::COLUMNS));
        assert_eq!((whole.column("psi_io_pct"), whole.column("no_such")), (Some(2.0), None));
        assert_eq!(PressureSample::default().column("psi_io_pct"), None);
    }

    #[test]
    fn a_sample_of_an_unknown_kind_is_read_as_that_and_a_known_one_that_is_broken_is_not() {
        let newer = r#"{"kind":"gpu","mono_us":1,"busy_pct":2.5}"#;
        assert_eq!(serde_json::from_str::<Sample>(newer).unwrap(), Sample::Unknown);
        assert!(serde_json::from_str::<Sample>(r#"{"kind":"tick","late_us":1}"#).is_err());
    }

    #[test]
    fn codes_of_errors_read_back_as_numbers() {
        let bin = r#""mono_us":1,"width_us":1,"statements":1,"events":0,"errors":3,"latency_us_sum":0,"in_flight":0,"oldest_us":0"#;
        let read = |codes: &str| {
            let line = format!(r#"{{"kind":"bin",{bin}{codes}}}"#);
            match serde_json::from_str::<Sample>(&line) {
                Ok(Sample::Bin(bin)) => (bin.errors_by_code.clone(), serde_json::to_string(&bin).unwrap()),
                other => panic!("{other:?}"),
            }
        };
        let (codes, written) = read(r#","errors_by_code":{"1205":2,"1213":1}"#);
        assert_eq!(codes, BTreeMap::from([(1205, 2), (1213, 1)]));
        assert!(written.contains(r#""errors_by_code":{"1205":2,"1213":1}"#), "{written}");
        let (none, written) = read("");
        assert!(none.is_empty() && !written.contains("errors_by_code"), "{written}");
    }
}
