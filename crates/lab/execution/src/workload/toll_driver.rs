//! Driver `toll`: starts toll's own load generator and parses its bins.

use super::DriverContext;
use super::bin_stream::{BinReader, ReportedBin};
use std::os::unix::process::CommandExt;
use std::process::Command;
use toll_load::bins::BinLine;
use toll_mysql::{Address, ClientFamily, Compression, PasswordOptIns, Target, Tls};
use toll_record::{Clock, Workload};
use toll_sys::program::OWN_PROGRAM;
use toll_sys::{child_process, private_file};

/// Width of its bins, microseconds.
const BIN_US: u64 = 100_000;

pub fn build_command(
    workload: &Workload,
    target: &Target,
    context: &DriverContext<'_>,
) -> anyhow::Result<(Command, BinReader)> {
    let mut command = child_process::clean_env_command(OWN_PROGRAM);
    command.arg0("toll").arg("load").arg(&workload.profile).args(["--time", "0"]);
    command.args(["--bins", &format!("{}ms", BIN_US / 1000)]);
    match &target.address {
        Address::Tcp { host, port } => {
            command.args(["--host", host, "--port", &port.to_string()]);
        }
        Address::Unix(path) => {
            command.arg("--socket").arg(path);
        }
    }
    command.args(["--user", &target.user]).env("MYSQL_PWD", target.password.expose());
    if let Some(schema) = &target.db {
        command.args(["--db", schema]);
    }
    for (name, value) in [
        ("--threads", u64::from(workload.threads)),
        ("--tables", u64::from(workload.tables)),
        ("--rows", workload.rows),
        ("--seed", context.seed),
        ("--reconnect", workload.reconnect_every),
    ] {
        command.args([name, &value.to_string()]);
    }
    let rests = rests_at_edges(workload, context.clock);
    if let Some(workers) = workload.workers.or(rests.then_some(workload.threads)) {
        command.args(["--workers", &workers.to_string()]);
    }
    if let Some(percent) = workload.delay_pct {
        command.args(["--delay", &format!("{percent}%")]);
    }
    if let Some(rate) = workload.rate_per_s {
        command.args(["--rate", &rate.to_string()]);
    }
    if rests {
        command.arg("--rest-at-edges");
    }
    if target.tls != Tls::Off || target.password_opt_ins != PasswordOptIns::default() {
        let path = context.dir.join("load.cnf");
        let lines = target.security_lines(ClientFamily::Mysql).join("\n");
        private_file::write(&path, &format!("[client]\n{lines}\n"))?;
        command.arg("--defaults-file").arg(path);
    }
    if target.compress != Compression::Off {
        command.arg("--compress");
    }
    if !target.session.is_empty() {
        command.arg("--no-binlog");
    }
    if !workload.prepared {
        command.arg("--text");
    }
    Ok((command, Box::new(parse_bin)))
}

/// Whether windows of this load hold whole transactions: on the counted clock, most of the noise was how their edges cut
/// them. Each connection has a worker of its own then, since one that serves several does not rest.
pub fn rests_at_edges(workload: &Workload, clock: Clock) -> bool {
    let has_worker_each = workload.workers.is_none_or(|workers| workers == workload.threads);
    !clock.is_real() && workload.driver == "toll" && workload.rate_per_s.is_none() && has_worker_each
}

fn parse_bin(line: &str) -> Option<ReportedBin> {
    let line: BinLine = serde_json::from_str(line).ok()?;
    Some(ReportedBin { bin: line.bin, histogram: line.hist, p99_us: None, bin_interval_us: BIN_US })
}
