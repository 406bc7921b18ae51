//! Host, workload and arms of an invented run, with each arm's overhead.

use std::collections::BTreeMap;
use toll_record::catalogue::CATALOGUE;
use toll_record::{
    Aggregate, Arm, ArtefactKind, Compare, Definition, FORMAT, Host, Meter, Plan, Role, Server, Setup,
    Source, Tool, Window, Workload, Zeros,
};

pub const STARTED_WALL_US: u64 = 1_790_000_000_000_000;

#[derive(Debug, Clone)]
pub struct Shape {
    pub seed: u64,
    pub host: &'static str,
    pub cpus: u32,
    pub rounds: u32,
    pub window_s: f64,
    pub settle_s: f64,
    pub gap_s: f64,
    /// Multiplies every arm's cost.
    pub effect: f64,
    /// Name of one more arm, and text of every other string in a run.
    pub hostile: Option<&'static str>,
    pub dies_after_s: Option<f64>,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            seed: 7,
            host: "2-core x86_64 vm",
            cpus: 2,
            rounds: 6,
            window_s: 1.0,
            settle_s: 0.5,
            gap_s: 0.0,
            effect: 1.0,
            hostile: None,
            dies_after_s: None,
        }
    }
}

/// An arm with its invented overhead and captured share.
#[derive(Debug, Clone)]
pub struct FixtureArm {
    pub arm: Arm,
    /// 0.3 = response time 30% above the baseline.
    pub cost: f64,
    /// Share of queries captured. `None` if the arm captures none.
    pub caught: Option<f64>,
    pub bytes_per_s: f64,
    pub stalls: bool,
}

/// Name, title, artefact, overhead, captured share, bytes/s, and true if it stalls.
type Letter = (&'static str, &'static str, ArtefactKind, f64, f64, f64, bool);

pub fn arms(shape: &Shape) -> Vec<FixtureArm> {
    use ArtefactKind::{Pcap, SlowLog, TcpdumpText};
    let e = shape.effect;
    let dump = "tcpdump -s 65535 -x -nn -q -tttt -i any";
    let row = |name: &str, title: &str, role, command: String, cost: f64| FixtureArm {
        arm: Arm {
            name: name.into(),
            title: title.into(),
            role,
            varied: Vec::new(),
            command,
            workload: workload(),
            artefact: None,
            count_with: vec![],
            in_memory: false,
            selects: false,
            against: None,
            judged_by: None,
            curve: None,
            unavailable: None,
            burn_share: None,
            settle_s: shape.settle_s,
            meter: Meter::Driver,
            window: Window::Time { s: 1.0 },
            treatment: Default::default(),
            needs: Default::default(),
            server_options: BTreeMap::new(),
        },
        cost: cost * e,
        caught: None,
        bytes_per_s: 0.0,
        stalls: false,
    };
    let mut made = vec![
        row("none", "load alone", Role::Baseline, String::new(), 0.0),
        row("none2", "load alone, again (A/A)", Role::Aa, String::new(), 0.0),
        row("sleep", "a process that does nothing", Role::Placebo, "sleep 5".into(), 0.0),
        row("burn", "a process that burns half a CPU", Role::PositiveControl, "toll burn".into(), 0.25),
    ];
    let letters: [Letter; 13] = [
        ("A", "slow log, every query", SlowLog, 0.31, 1.0, 9e6, false),
        ("B", "tcpdump -w file, plain", Pcap, 0.11, 0.99, 6e7, true),
        ("C", "tcpdump -w file, AND", Pcap, 0.09, 0.13, 1e7, true),
        ("D", "tcpdump -w file, OR", Pcap, 0.11, 0.99, 6e7, true),
        ("E", "tcpdump -U -w file, plain", Pcap, 0.16, 0.98, 6e7, true),
        ("F", "tcpdump -U -w file, AND", Pcap, 0.10, 0.13, 1e7, false),
        ("G", "tcpdump -U -w file, OR", Pcap, 0.17, 0.98, 6e7, true),
        ("H", "tcpdump -w - | nc, plain", Pcap, 0.22, 0.97, 6e7, false),
        ("I", "tcpdump -U -w - | nc, plain", Pcap, 0.25, 0.96, 6e7, false),
        ("J", "tcpdump -U -w - | nc, AND", Pcap, 0.12, 0.13, 1e7, false),
        ("K", "tcpdump text to file, plain", TcpdumpText, 0.62, 0.41, 8e7, false),
        ("L", "tcpdump text to file, AND", TcpdumpText, 0.24, 0.12, 1.4e7, false),
        ("M", "tcpdump text to file, OR", TcpdumpText, 0.66, 0.38, 8e7, false),
    ];
    for (name, title, artefact, cost, caught, bytes_per_s, stalls) in letters {
        let mut arm = row(name, title, Role::Treatment, format!("{dump} -w FILE 'port 13306'"), cost);
        arm.arm.artefact = Some(artefact);
        made.push(FixtureArm { caught: Some(caught), bytes_per_s, stalls, ..arm });
    }
    let mut absent = row("audit", "server_audit plugin", Role::Treatment, "INSTALL SONAME".into(), 0.0);
    absent.arm.unavailable = Some("the server has no plugin server_audit".into());
    made.push(absent);
    if let Some(hostile) = shape.hostile {
        let mut arm = row(hostile, hostile, Role::Treatment, hostile.into(), 0.2);
        arm.arm.artefact = Some(Pcap);
        made.push(FixtureArm { caught: Some(0.5), bytes_per_s: 1e6, stalls: true, ..arm });
    }
    made
}

fn workload() -> Workload {
    Workload {
        driver: "toll".into(),
        profile: "read-only".into(),
        transport: "tcp".into(),
        threads: 8,
        tables: 8,
        rows: 100_000,
        prepared: true,
        reconnect_every: 0,
        workers: None,
        delay_pct: None,
        rate_per_s: None,
    }
}

/// An outcome that is in no catalogue, compared as a difference.
pub const OWN_OUTCOME: &str = "log_wait_ms";

fn own_outcome(shape: &Shape) -> Definition {
    Definition {
        name: OWN_OUTCOME.into(),
        unit: "ms".into(),
        title: shape.hostile.unwrap_or("wait for the log").into(),
        head: None,
        higher_is_better: false,
        source: Source::Server { column: "Log_wait_ms".into() },
        aggregate: Aggregate::Mean,
        compare: Compare::Difference,
        zeros: Zeros::Refuse,
        margin: Some(0.5),
        by_rate: false,
        long_windows: false,
    }
}

pub fn plan(shape: &Shape, made: &[FixtureArm], order: Vec<Vec<String>>) -> Plan {
    Plan {
        format: FORMAT,
        toll_version: env!("CARGO_PKG_VERSION").into(),
        command: ["toll", "run", "tcpdump-impact", "--seed"]
            .map(String::from)
            .into_iter()
            .chain([shape.seed.to_string()])
            .collect(),
        scenario: "tcpdump-impact (invented figures)".into(),
        question: shape.hostile.map_or(
            "What does each way of collecting the queries of a busy host cost, and how many does it catch?"
                .into(),
            |hostile| format!("Does {hostile} stay text?"),
        ),
        profile: "fixture".into(),
        clock: toll_record::Clock::Real,
        seed: shape.seed,
        baseline: "none".into(),
        primary: "latency_us_mean".into(),
        outcomes: CATALOGUE.outcomes.iter().cloned().chain([own_outcome(shape)]).collect(),
        columns: CATALOGUE.columns.clone(),
        panels: CATALOGUE.panels.iter().cloned().chain([OWN_OUTCOME.into()]).collect(),
        contrasts: Vec::new(),
        limits: Vec::new(),
        pareto: None,
        charts: Vec::new(),
        margin_pct: 5.0,
        alpha: 0.05,
        rounds: shape.rounds,
        time_s: None,
        long: None,
        window_s: shape.window_s,
        settle_s: shape.settle_s,
        gap_s: shape.gap_s,
        pilot_s: 0.0,
        held_in: None,
        early_stop: false,
        design: toll_record::Design::default(),
        classes: Vec::new(),
        setup: Setup::default(),
        server: Some(Server {
            kind: "sandbox".into(),
            flavour: "mariadb".into(),
            version: "10.11.14".into(),
            address: "127.0.0.1:13306".into(),
            config: vec!["innodb_buffer_pool_size=2G".into(), "max_connections=200".into()],
        }),
        arms: made.iter().map(|m| m.arm.clone()).collect(),
        order,
        jitter: 0.2,
        planned_mde_pct: None,
        spread: None,
        pilot: None,
        started_wall_us: STARTED_WALL_US,
    }
}

pub fn host(shape: &Shape) -> Host {
    let pairs = |list: &[(&str, &str)]| list.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
    Host {
        label: shape.host.into(),
        os: "Debian GNU/Linux 12".into(),
        kernel: "6.18.1".into(),
        arch: "x86_64".into(),
        cpu_model: "invented".into(),
        cpus: shape.cpus,
        virtualisation: Some("kvm".into()),
        memory_bytes: 16 << 30,
        disk: "ext4 on vda".into(),
        cgroup: "v2".into(),
        settings: pairs(&[("vm.dirty_ratio", "20"), ("vm.swappiness", "60")]),
        tools: vec![
            Tool { name: "tcpdump".into(), version: Some("4.99.3".into()) },
            Tool { name: "bpftrace".into(), version: None },
        ],
        server_variables: pairs(&[("innodb_flush_log_at_trx_commit", "1"), ("query_cache_type", "OFF")]),
        counted: None,
    }
}
