//! Command `toll doctor`: abilities of this host, missing requirements, and noise.

use super::console::{eprint_line, print_line};
use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use toll_execution::host::noise::{self, NoiseBenchmark};
use toll_execution::host::{describe_host, readiness, tools};
use toll_record::Host;
use toll_sys::capability::Capability;
use toll_sys::program::find_program;
use toll_sys::{disk, memory, paths, units};
use toll_vm::Kit;

#[derive(Debug, Args)]
pub struct Doctor {
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Time to watch the host's own noise, 1s to 1h
    #[arg(long, aliases = ["duration", "time"], value_name = "DURATION", default_value = "10s", value_parser = pilot)]
    pilot: Duration,
    /// Do not watch the host's own noise
    #[arg(long, conflicts_with = "pilot")]
    no_pilot: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Output of `--format json`.
#[derive(Debug, Serialize)]
struct DoctorReport {
    /// True if `toll run tcpdump-impact` can be carried out.
    ready: bool,
    host: Host,
    capabilities: BTreeMap<&'static str, bool>,
    memory_available_bytes: u64,
    cache_dir: PathBuf,
    cache_free_bytes: u64,
    cache_used_bytes: u64,
    abilities: Vec<readiness::Ability>,
    /// Absent with `--no-pilot`.
    noise: Option<NoiseBenchmark>,
}

/// Exit code 1 if the main job cannot be carried out here.
pub fn run(arguments: &Doctor) -> Result<ExitCode> {
    let format = if arguments.json { Format::Json } else { arguments.format };
    let cache_dir = paths::cache_dir()?;
    let there = cache_dir.ancestors().find(|dir| dir.is_dir()).map(PathBuf::from).unwrap_or_default();
    let host = Host { tools: tools::detect_tools(), ..describe_host(&cache_dir, &BTreeMap::new()) };
    let mut abilities = readiness::check_abilities(&host.tools);
    abilities.push(check_counting(&cache_dir));
    let noise = (!arguments.no_pilot).then(|| {
        if format == Format::Text {
            eprint_line!("watching this host for {} s ...", arguments.pilot.as_secs_f64());
        }
        noise::run_noise_benchmark(arguments.pilot)
    });
    let findings = DoctorReport {
        ready: abilities.iter().all(|ability| ability.is_available() || !ability.essential),
        capabilities: Capability::ALL.iter().map(|c| (c.name(), c.is_effective())).collect(),
        memory_available_bytes: memory::available_bytes(),
        cache_free_bytes: disk::free_bytes(&there)?,
        cache_used_bytes: disk::used_bytes(&cache_dir),
        cache_dir,
        host,
        abilities,
        noise,
    };
    match format {
        Format::Json => print_line!("{}", serde_json::to_string_pretty(&findings)?),
        Format::Text => print_report(&findings),
    }
    Ok(if findings.ready { ExitCode::SUCCESS } else { ExitCode::from(super::exit_code::FAILED) })
}

/// Ability to measure on a clock that counts instructions.
fn check_counting(cache_dir: &Path) -> readiness::Ability {
    let missing = Kit::missing(cache_dir).into_iter();
    readiness::Ability {
        what: "counting instructions (--exact)".to_owned(),
        essential: false,
        missing: missing.map(|part| readiness::Missing { what: part.what, remedy: part.remedy }).collect(),
    }
}

fn print_report(findings: &DoctorReport) {
    let host = &findings.host;
    print_line!("host");
    print_line!("  {}, {}, Linux {}", host.label, host.os, host.kernel);
    print_line!("  cpu       {} x {}", host.cpus, host.cpu_model);
    print_line!(
        "  memory    {} of {} available",
        format_gib(findings.memory_available_bytes),
        format_gib(host.memory_bytes)
    );
    print_line!("  disk      {}", host.disk);
    print_line!(
        "  cache     {} in {}, {} free",
        format_gib(findings.cache_used_bytes),
        findings.cache_dir.display(),
        format_gib(findings.cache_free_bytes)
    );
    print_line!("  cgroup    {}", host.cgroup);
    let held = |wanted: bool| {
        let names = findings.capabilities.iter().filter(|(_, held)| **held == wanted).map(|(name, _)| *name);
        names.collect::<Vec<_>>().join(" ")
    };
    print_line!("  may       {}", text_or_none(&held(true)));
    print_line!("  may not   {}", text_or_none(&held(false)));

    print_line!("tools");
    for tool in &host.tools {
        print_line!("  {:<18} {}", tool.name, tool.version.as_deref().unwrap_or("-"));
    }

    print_line!("can be measured here");
    for ability in &findings.abilities {
        let mark = match (ability.is_available(), ability.essential) {
            (true, _) => "yes",
            (false, true) => "NO ",
            (false, false) => "no ",
        };
        print_line!("  {mark}  {}", ability.what);
        for missing in &ability.missing {
            print_line!("         needs {}: {}", missing.what, missing.remedy);
        }
    }

    if let Some(noise) = &findings.noise {
        print_line!("noise");
        print_line!("  {}", noise.verdict());
        print_line!(
            "  a fixed piece of work: median {:.2} ms, p95 {:.2} ms, max {:.2} ms, spread {:.1}% ({} times in {:.0} s)",
            noise.unit_us_median / 1e3,
            noise.unit_us_p95 / 1e3,
            noise.unit_us_max / 1e3,
            noise.unit_cv_pct,
            noise.units,
            noise.seconds
        );
        print_line!(
            "  timers late: p95 {:.2} ms, max {:.2} ms; stolen {:.1}%, busy with others {:.1}% of all CPUs",
            noise.late_us_p95 / 1e3,
            noise.late_us_max / 1e3,
            noise.steal_pct,
            noise.busy_pct
        );
    }
    if findings.ready {
        print_line!("ready: toll run tcpdump-impact --profile quick");
    } else if find_program("apt-get").is_some() {
        print_line!("not ready: install or allow what is marked NO, then run toll doctor again");
    } else {
        print_line!("not ready: what is marked NO is missing (package names are Debian's)");
    }
}

fn text_or_none(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

fn format_gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

fn pilot(text: &str) -> Result<Duration, String> {
    let pilot = units::duration(text)?;
    let range = Duration::from_secs(1)..=Duration::from_secs(3_600);
    range.contains(&pilot).then_some(pilot).ok_or_else(|| format!("{text:?} is not between 1s and 1h"))
}
