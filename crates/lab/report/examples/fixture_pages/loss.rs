//! Invented packet-loss runs over data sets and rates, on two platforms.
//!
//! Loss is invented and analysed like any other; sent packets are counted by toll's own profile. Never sends
//! a packet.

use std::path::Path;
use toll_analysis as analyse;
use toll_net::pcap::profile::json::{Document, build_document};
use toll_net::pcap::profile::{Input, InputProfile};
use toll_record::{Artefact, Host, Plan, RunDir, RunResult, RunWriter, Stage, Tool, TrialLine};
use toll_wire::packet_builder::{self, AddressPair, ETHERTYPE_V4, IpHeader, TcpHeader};
use toll_wire::pcap::{Frame, Link};

/// Data sets. Each loses a multiple of the previous one's packets.
const SETS: [&str; 4] = ["http", "flash", "skype", "mixed"];
const RATES: [&str; 5] = ["100", "300", "600", "900", "topspeed"];
const ROUNDS: u32 = 8;
const WINDOW_US: u64 = 1_000_000;

/// Platform of a run.
pub struct Platform {
    pub kernel: &'static str,
    pub libpcap: &'static str,
    /// Size of the capture's ring, as in tcpdump's `-B`.
    pub ring: &'static str,
    /// Multiple of the packets lost.
    pub times: f64,
}

/// Writes a run. Returns it with its analysis.
pub fn write(root: &Path, platform: &Platform) -> anyhow::Result<(RunDir, RunResult)> {
    if root.exists() {
        std::fs::remove_dir_all(root)?;
    }
    let plan = plan(platform)?;
    let mut run = RunWriter::create(root)?;
    run.write_json("plan.json", &plan)?;
    run.write_json("host.json", &host(platform))?;
    run.write_captures(&captures())?;
    let mut now_us = 50_000_000;
    let mut trial = 0;
    for (round, names) in (0..).zip(&plan.order) {
        for name in names {
            let steps =
                [("start", 0), ("window-begin", 0), ("window-end", WINDOW_US), ("stopped", WINDOW_US + 9)];
            for (step, after_us) in steps {
                let mut line = line(trial, round, name, step, now_us + after_us)?;
                if step == "stopped" {
                    line.stages = stages(share(name, round, platform));
                }
                run.write_trial(&line)?;
            }
            run.write_artefact(&artefact(trial, round, name, platform)?)?;
            now_us += 2 * WINDOW_US;
            trial += 1;
        }
    }
    run.flush()?;
    let run = RunDir::open(root)?;
    let result = analyse::analyse_run_dir(&run)?;
    Ok((run, result))
}

fn plan(platform: &Platform) -> anyhow::Result<Plan> {
    let pairs = RATES.iter().flat_map(|mbps| SETS.iter().map(move |set| (*set, *mbps)));
    let arms: Vec<serde_json::Value> = pairs.map(|(set, mbps)| arm(set, mbps, platform)).collect();
    let names: Vec<String> =
        RATES.iter().flat_map(|mbps| SETS.iter().map(move |set| format!("{set}-{mbps}"))).collect();
    let outcome = |name: &str, compare: &str| {
        serde_json::json!({
            "name": name, "unit": "%", "title": "packets lost", "higher_is_better": false,
            "source": {"from": "artefact", "column": "dropped-share"}, "aggregate": "mean", "compare": compare,
        })
    };
    Ok(serde_json::from_value(serde_json::json!({
        "format": toll_record::FORMAT, "toll_version": env!("CARGO_PKG_VERSION"),
        "command": ["toll", "run", "packet-loss", "--seed", "5"], "scenario": "packet-loss (invented figures)",
        "question": "How many packets does a capture lose, at which rate?", "profile": "fixture", "seed": 5,
        "baseline": "http-100", "primary": "dropped_pct", "margin_pct": 5.0, "alpha": 0.05, "rounds": ROUNDS,
        "outcomes": [outcome("dropped_pct", "difference"), outcome("loss_pct", "median")],
        "columns": ["loss_pct", "dropped_pct"], "panels": ["loss_pct", "dropped_pct"],
        "charts": [{
            "name": "loss-by-rate", "title": "Packets lost by rate", "outcomes": ["loss_pct"], "x": "mbps",
            "x_title": "rate asked for, Mb/s", "lines": ["set"],
        }],
        "window_s": 1.0, "settle_s": 0.0, "gap_s": 0.0, "pilot_s": 0.0, "early_stop": false, "arms": arms,
        "setup": {"rig": [{"kind": "link", "receive_cpu": "1"}]},
        "order": vec![names; ROUNDS as usize], "jitter": 0.2, "started_wall_us": super::scene::STARTED_WALL_US,
    }))?)
}

fn arm(set: &str, mbps: &str, platform: &Platform) -> serde_json::Value {
    let words = ["tcpdump", "-B", platform.ring, "-w", "{artefact}"];
    serde_json::json!({
        "name": format!("{set}-{mbps}"), "title": format!("{set} at {mbps}"), "varied": [["set", set], ["mbps", mbps]],
        "role": if mbps == RATES[0] { "baseline" } else { "treatment" },
        "against": (mbps != RATES[0]).then(|| format!("{set}-{}", RATES[0])),
        "command": words.join(" "), "meter": "none", "window": {"until": "done", "at_most_s": 60.0}, "settle_s": 0.0,
        "artefact": "pcap",
        "workload": {"driver": "none", "profile": "read-only", "transport": "tcp", "threads": 1, "tables": 1, "rows": 1,
            "prepared": true},
        "treatment": {"processes": [{"name": "tcpdump", "stages": [words], "stop": "INT", "after_s": 0.0}]},
    })
}

fn host(platform: &Platform) -> Host {
    let tool = |name: &str, version: &str| Tool {
        name: name.into(),
        version: Some(format!("{name} version {version}")),
    };
    Host {
        label: "2-core x86_64 vm".into(),
        os: "Debian GNU/Linux 12".into(),
        kernel: platform.kernel.into(),
        tools: vec![tool("tcpdump", "4.99.3"), tool("libpcap", platform.libpcap)],
        ..Host::default()
    }
}

fn line(trial: u32, round: u32, arm: &str, step: &str, mono_us: u64) -> anyhow::Result<TrialLine> {
    let ended = (step == "window-end").then_some((1, WINDOW_US));
    Ok(serde_json::from_value(serde_json::json!({
        "mono_us": mono_us, "wall_us": super::scene::STARTED_WALL_US + mono_us, "trial": trial, "round": round, "arm": arm,
        "step": step, "runs": ended.map(|(runs, _)| runs), "runs_us": ended.map(|(_, us)| us),
    }))?)
}

/// Nothing at the lowest rate, then more with each rate and each set.
fn share(name: &str, round: u32, platform: &Platform) -> f64 {
    let (set, rate) = name.split_once('-').unwrap_or((name, ""));
    let place =
        |all: &[&str], wanted: &str| all.iter().position(|one| *one == wanted).unwrap_or_default() as f64;
    let (set, rate) = (place(&SETS, set), place(&RATES, rate));
    0.002 * rate * rate * (1.0 + set) * platform.times * (1.0 + f64::from(round) / 20.0)
}

fn stages(share: f64) -> Vec<Stage> {
    let lost = (100_000.0 * share) as u64;
    let stage = |name: &str, packets: u64, lost: Option<u64>| Stage { name: name.into(), packets, lost };
    vec![
        stage("sent", 100_000, None),
        // A tenth of it before the capture saw it.
        stage("seen", 100_000 - lost / 10, Some(lost / 10)),
        stage("written", 100_000 - lost, Some(lost - lost / 10)),
    ]
}

fn artefact(trial: u32, round: u32, name: &str, platform: &Platform) -> anyhow::Result<Artefact> {
    let dropped = (100_000.0 * share(name, round, platform)) as u64;
    let counts = serde_json::json!({"captured": 100_000, "received": 100_000, "dropped": dropped});
    Ok(serde_json::from_value(serde_json::json!({
        "trial": trial, "round": round, "arm": name, "kind": "pcap", "bytes": 9_000_000, "window_bytes": 9_000_000,
        "packets": counts, "window_packets": counts, "executed": 0,
    }))?)
}

/// TCP of two lengths and some UDP, in each set's shares.
pub fn captures() -> Document {
    let sets =
        SETS.iter().enumerate().map(|(set, name)| capture(&format!("{name}.pcap"), 100 - 30 * set as u64));
    build_document(&sets.collect::<Vec<_>>())
}

/// Profile of the capture `name` with `tcp` percent of TCP packets.
pub fn capture(name: &str, tcp: u64) -> InputProfile {
    let mut profiled = InputProfile::default();
    profiled.inputs.push(Input { name: name.into(), r#type: "pcap".into(), bytes: 1_000_000 });
    for n in 0..1_000_u64 {
        let (is_tcp, length) = (n % 100 < tcp, if n % 3 == 0 { 1_400 } else { 12 + (n % 200) as usize });
        let bytes = frame(is_tcp, length);
        let wire_len = bytes.len() as u32;
        let frame = Frame {
            time_ns: 1_700_000_000_000_000_000 + n * 1_000_000,
            link: Link::Ethernet,
            wire_len,
            bytes: &bytes,
        };
        profiled.profile.add_frame(&frame);
    }
    profiled
}

fn frame(is_tcp: bool, length: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    packet_builder::append_ethernet(&mut frame, [2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], None, ETHERTYPE_V4);
    let address = |last: u8, port: u16| std::net::SocketAddr::from(([192, 0, 2, last], port));
    let ip = IpHeader {
        addresses: AddressPair { source: address(1, 40_000), destination: address(2, 80) },
        ttl: 64,
        id: 0,
    };
    if is_tcp {
        let head = TcpHeader { seq: 1, ack: 1, flags: 0x10, window: 1_000, options: &[] };
        packet_builder::append_tcp(&mut frame, &ip, &head, &vec![0; length]);
    } else {
        packet_builder::append_udp(&mut frame, &ip, &vec![0; length]);
    }
    frame
}
