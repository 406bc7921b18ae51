//! Driver `sysbench`: starts real sysbench and parses its report of each second.
//!
//! sysbench reports no histogram and no maximum: one percentile (p99) each second is all there is.

use super::DriverContext;
use super::bin_stream::{BinReader, ReportedBin};
use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;
use toll_load::mix::Profile;
use toll_model::plan::{NO_SYSBENCH_RATE, NO_SYSBENCH_TLS};
use toll_mysql::{Address, Compression, Target, Tls};
use toll_record::{Bin, Workload};
use toll_sys::{child_process, clock, private_file};

const SCRIPT: &str = include_str!("bins.lua");

/// Interval of its reports, microseconds.
const REPORT_INTERVAL_US: u64 = 1_000_000;

#[derive(Debug, Deserialize)]
struct Line {
    seconds: f64,
    events: u64,
    statements: u64,
    errors: u64,
    p99_s: f64,
}

pub fn build_command(
    workload: &Workload,
    target: &Target,
    context: &DriverContext<'_>,
) -> anyhow::Result<(Command, BinReader)> {
    ensure!(workload.rate_per_s.is_none(), NO_SYSBENCH_RATE);
    let profile = Profile::from_name(&workload.profile)
        .with_context(|| format!("sysbench has no profile `{}`: see `toll list`", workload.profile))?;
    let script = context.dir.join("bins.lua");
    std::fs::write(&script, SCRIPT).with_context(|| format!("cannot write {}", script.display()))?;
    let settings = context.dir.join("sysbench.conf");
    write_settings(workload, target, context.seed, &settings)?;
    let mut command = child_process::clean_env_command("sysbench");
    command
        .arg(format!("--config-file={}", settings.display()))
        .arg(&script)
        .arg("run")
        .env("TOLL_SYSBENCH_PROFILE", profile.sysbench_name())
        .env("TOLL_SYSBENCH_RECONNECT", workload.reconnect_every.to_string());
    let threads = u64::from(workload.threads);
    let mut edge_us = None;
    let read = move |line: &str| {
        let line: Line = serde_json::from_str(line).ok()?;
        let width_us = (line.seconds * 1e6).round().max(1.0) as u64;
        // sysbench keeps its beat by absolute times: an edge is the first one plus whole seconds,
        // whatever the line took to arrive.
        let edge = edge_us.map_or_else(clock::mono_us, |edge: u64| edge + REPORT_INTERVAL_US);
        edge_us = Some(edge);
        Some(ReportedBin {
            bin: Bin {
                mono_us: edge,
                width_us: REPORT_INTERVAL_US,
                statements: line.statements,
                events: line.events,
                errors: line.errors,
                errors_by_code: BTreeMap::new(),
                // A closed loop's threads are always in a request: Little's law gives the sum.
                latency_us_sum: if line.events > 0 { threads * width_us } else { 0 },
                latency_us_max: None,
                in_flight: threads,
                oldest_us: 0,
            },
            histogram: Vec::new(),
            p99_us: Some((line.p99_s * 1e6).round() as u64),
            bin_interval_us: REPORT_INTERVAL_US,
        })
    };
    Ok((command, Box::new(read)))
}

/// Writes all settings, the password among them, to a file that only its owner may read.
fn write_settings(
    workload: &Workload,
    target: &Target,
    seed: u64,
    path: &std::path::Path,
) -> anyhow::Result<()> {
    let mut text = String::new();
    match &target.address {
        Address::Tcp { host, port } => writeln!(text, "mysql-host={host}\nmysql-port={port}")?,
        Address::Unix(socket) => writeln!(text, "mysql-socket={}", socket.display())?,
    }
    if target.tls != Tls::Off {
        bail!(NO_SYSBENCH_TLS);
    }
    if target.compress != Compression::Off {
        writeln!(text, "mysql-compression=on")?;
    }
    writeln!(text, "mysql-user={}", target.user)?;
    if !target.password.is_empty() {
        writeln!(text, "mysql-password={}", target.password.expose())?;
    }
    writeln!(text, "mysql-db={}", target.db.as_deref().unwrap_or("sbtest"))?;
    let mode = if workload.prepared { "auto" } else { "disable" };
    writeln!(text, "db-ps-mode={mode}\ntables={}\ntable-size={}", workload.tables, workload.rows)?;
    writeln!(text, "threads={}\ntime=0\nevents=0\nreport-interval=1", workload.threads)?;
    writeln!(text, "percentile=99\nrand-seed={}", seed % i32::MAX as u64)?;
    private_file::write(path, &text)
}
