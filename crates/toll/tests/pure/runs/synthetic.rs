//! Synthetic run of a host with known overheads.
//!
//! A closed loop on a host whose speed varies (AR(1) within seconds, a slow wave over minutes) and whose CPUs are the
//! bottleneck. An arm whose queries cost `f` times the CPU has 1/f of the throughput. Everything comes from the seed.

use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::path::Path;
use toll_analysis::RunData;
use toll_record::catalogue::CATALOGUE;
use toll_record::*;
use toll_stats::SeededRng;

const BIN_US: u64 = 100_000;
const CPUS: f64 = 2.0;
/// Statements in a transaction of sysbench's read-only mix.
const STATEMENTS: u64 = 16;

#[derive(Debug, Clone)]
pub struct SyntheticArm {
    pub name: &'static str,
    pub role: Role,
    /// CPU per query against the baseline's; throughput is its inverse.
    pub cost: f64,
    /// Share of its queries that the artefact holds, and bytes written per statement.
    pub caught: Option<(f64, f64)>,
    /// Begin within each window, and length, of a stretch in which nothing completes.
    pub stall: Option<(f64, f64)>,
    /// CPUs that it is set to burn. `burns` is the number that it burns.
    pub burn_share: Option<f64>,
    /// Seconds after it is switched on, and the factor on its overhead from then on.
    pub later: Option<(f64, f64)>,
    pub burns: Option<f64>,
    /// Server and driver use as much CPU time per query as without it.
    pub spares_others: bool,
    /// Delay of replies, percent of the response time.
    pub delay_pct: Option<f64>,
    pub unavailable: Option<&'static str>,
}

impl SyntheticArm {
    pub fn new(name: &'static str, role: Role, cost: f64) -> Self {
        SyntheticArm {
            name,
            role,
            cost,
            caught: None,
            stall: None,
            burn_share: None,
            later: None,
            burns: None,
            spares_others: false,
            delay_pct: None,
            unavailable: None,
        }
    }

    /// Arms of every kind: a fast capture, a slow one that stalls, an arm that cannot run, controls.
    pub fn usual() -> Vec<SyntheticArm> {
        use Role::*;
        let mut b = SyntheticArm::new("B", Treatment, 1.12);
        b.caught = Some((0.995, 1_100.0));
        let mut k = SyntheticArm::new("K", Treatment, 1.60);
        k.caught = Some((0.62, 4_000.0));
        k.stall = Some((1.0, 0.6));
        let mut burn = SyntheticArm::new("burn", PositiveControl, 1.0 / (1.0 - 0.25 / 2.0));
        burn.burn_share = Some(0.25);
        burn.burns = Some(0.25);
        let mut gone = SyntheticArm::new("P", Treatment, 1.0);
        gone.unavailable = Some("bpftrace is not installed");
        vec![
            b,
            SyntheticArm::new("C", Treatment, 1.0),
            k,
            gone,
            SyntheticArm::new("none-2", Aa, 1.0),
            SyntheticArm::new("sleep", Placebo, 1.0),
            burn,
        ]
    }
}

#[derive(Debug, Clone)]
pub struct SyntheticRun {
    pub seed: u64,
    pub rounds: u32,
    pub window_s: f64,
    /// Interval in rounds, and window length in seconds of these rounds.
    pub long: Option<(u32, f64)>,
    pub settle_s: f64,
    pub gap_s: f64,
    /// Statements a second of the undisturbed host.
    pub qps: f64,
    /// Standard deviation of the AR(1) part, and height of the slow wave, on the log scale.
    pub noise: (f64, f64),
    pub driver: &'static str,
    pub arms: Vec<SyntheticArm>,
}

impl SyntheticRun {
    /// The baseline and `arms` on a host as noisy as a 2-core virtual machine.
    pub fn with(seed: u64, rounds: u32, arms: Vec<SyntheticArm>) -> Self {
        let mut all = vec![SyntheticArm::new("none", Role::Baseline, 1.0)];
        all.extend(arms);
        SyntheticRun {
            seed,
            rounds,
            window_s: 3.0,
            long: None,
            settle_s: 0.5,
            gap_s: 0.3,
            qps: 8_000.0,
            noise: (0.05, 0.10),
            driver: "toll",
            arms: all,
        }
    }

    pub fn plan(&self) -> Plan {
        let present: Vec<&SyntheticArm> = self.arms.iter().filter(|a| a.unavailable.is_none()).collect();
        let order = toll_stats::draw_orders(self.seed, present.len(), self.rounds as usize);
        let workload = Workload {
            driver: self.driver.into(),
            profile: "read-only".into(),
            transport: "unix".into(),
            threads: 8,
            tables: 8,
            rows: 100_000,
            prepared: true,
            reconnect_every: 0,
            workers: None,
            delay_pct: None,
            rate_per_s: None,
        };
        Plan {
            format: FORMAT,
            toll_version: "0.1.0".into(),
            command: ["toll", "run", "tcpdump-impact", "--seed", &self.seed.to_string()]
                .map(String::from)
                .to_vec(),
            scenario: "tcpdump-impact".into(),
            question: "What does it cost a busy host to collect its queries?".into(),
            profile: "quick".into(),
            clock: toll_record::Clock::Real,
            seed: self.seed,
            baseline: "none".into(),
            primary: "qps".into(),
            outcomes: CATALOGUE.outcomes.clone(),
            columns: CATALOGUE.columns.clone(),
            panels: CATALOGUE.panels.clone(),
            contrasts: Vec::new(),
            limits: Vec::new(),
            pareto: None,
            charts: Vec::new(),
            margin_pct: 3.0,
            alpha: 0.05,
            rounds: self.rounds,
            time_s: None,
            long: None,
            window_s: self.window_s,
            settle_s: self.settle_s,
            gap_s: self.gap_s,
            pilot_s: 0.0,
            held_in: None,
            early_stop: false,
            design: toll_record::Design::default(),
            classes: Vec::new(),
            setup: Setup::default(),
            server: Some(Server {
                kind: "sandbox".into(),
                flavour: "mariadb".into(),
                version: "10.11.6".into(),
                address: "/run/toll/mysqld.sock".into(),
                config: vec![],
            }),
            arms: self
                .arms
                .iter()
                .map(|arm| Arm {
                    name: arm.name.into(),
                    title: format!("{:.2} times the CPU a query", arm.cost),
                    role: arm.role,
                    varied: Vec::new(),
                    command: format!("collect --as {}", arm.name),
                    workload: Workload { delay_pct: arm.delay_pct, ..workload.clone() },
                    against: None,
                    judged_by: None,
                    curve: None,
                    artefact: arm.caught.map(|_| ArtefactKind::Pcap),
                    count_with: vec![],
                    in_memory: false,
                    selects: false,
                    unavailable: arm.unavailable.map(String::from),
                    burn_share: arm.burn_share,
                    settle_s: self.settle_s,
                    meter: Meter::Driver,
                    window: Window::Time { s: self.window_s },
                    treatment: Default::default(),
                    needs: Default::default(),
                    server_options: BTreeMap::new(),
                })
                .collect(),
            order: order
                .iter()
                .map(|round| round.iter().map(|&i| present[i].name.to_owned()).collect())
                .collect(),
            jitter: 0.2,
            started_wall_us: 1_700_000_000_000_000,
            planned_mde_pct: None,
            spread: None,
            pilot: None,
        }
    }

    pub fn host() -> Host {
        Host {
            label: "2-core x86_64 vm".into(),
            os: "Debian 12".into(),
            kernel: "6.18".into(),
            arch: "x86_64".into(),
            cpus: CPUS as u32,
            memory_bytes: 8 << 30,
            ..Host::default()
        }
    }

    /// The whole run in memory.
    pub fn record(&self) -> RunData {
        let mut host = RunSimulator::new(self);
        let plan = self.plan();
        let mut trial = 0;
        for (round, order) in plan.order.iter().enumerate() {
            for name in order {
                let arm = self.arms.iter().find(|a| a.name == name).expect("the order names its arms");
                host.trial(trial, round as u32, arm);
                trial += 1;
            }
        }
        let mut recorded = RunData::without_samples(plan);
        recorded.host = Some(Self::host());
        recorded.trials = host.trials;
        recorded.artefacts = host.artefacts;
        recorded.latencies = host.latencies;
        recorded.add_samples(host.samples);
        recorded
    }

    /// Writes the run as a run directory.
    pub fn write(&self, root: &Path) -> std::io::Result<()> {
        let recorded = self.record();
        let mut run = RunWriter::create(root)?;
        run.write_json("plan.json", &recorded.plan)?;
        run.write_json("host.json", &recorded.host)?;
        for line in &recorded.trials {
            run.write_trial(line)?;
        }
        for line in &recorded.artefacts {
            run.write_artefact(line)?;
        }
        for w in &recorded.latencies {
            run.write_latency(&w.arm, w.trial, w.begin_mono_us, w.duration_us, &w.histogram)?;
        }
        let samples = (recorded.bins.into_iter().map(Sample::Bin))
            .chain(recorded.seconds.into_iter().map(Sample::Second))
            .chain(recorded.hosts.into_iter().map(Sample::Host))
            .chain(recorded.pressures.into_iter().map(Sample::Pressure))
            .chain(recorded.servers.into_iter().map(Sample::Server))
            .chain(recorded.own.into_iter().map(Sample::Own));
        for sample in samples {
            run.write_sample(&sample)?;
        }
        run.finish()
    }
}

/// State of the host, advanced bin by bin.
struct RunSimulator<'a> {
    of: &'a SyntheticRun,
    draws: SeededRng,
    now_us: u64,
    /// Time at which the arm was switched on.
    on_us: u64,
    level: f64,
    phase: f64,
    cpu: Cpu,
    trials: Vec<TrialLine>,
    samples: Vec<Sample>,
    artefacts: Vec<Artefact>,
    latencies: Vec<LatencyWindow>,
    /// Sums since the last full second: statements, events, latencies.
    second: (u64, u64, u64),
    written: f64,
}

impl<'a> RunSimulator<'a> {
    fn new(of: &'a SyntheticRun) -> Self {
        let mut draws = SeededRng::new(of.seed, 1_000);
        let phase = draws.next_fraction() * std::f64::consts::TAU;
        RunSimulator {
            of,
            draws,
            now_us: 1_000_000_000,
            on_us: 0,
            level: 0.0,
            phase,
            cpu: Cpu::default(),
            trials: vec![],
            samples: vec![],
            artefacts: vec![],
            latencies: vec![],
            second: (0, 0, 0),
            written: 0.0,
        }
    }

    fn trial(&mut self, trial: u32, round: u32, arm: &SyntheticArm) {
        self.step(trial, round, arm, Step::Start);
        self.step(trial, round, arm, Step::Ready);
        self.on_us = self.now_us;
        let long = self.of.long.filter(|(every, _)| round % every == every - 1);
        let window_s = long.map_or(self.of.window_s, |(_, window_s)| window_s);
        let jitter = (self.draws.next_fraction() * 0.2 * self.of.window_s * 10.0) as u64;
        self.bins((self.of.settle_s * 10.0) as u64 + jitter, arm, None);
        self.written = 0.0;
        self.step(trial, round, arm, Step::WindowBegin);
        let begin = self.now_us;
        let mut histogram = latency_histogram();
        let executed = self.bins((window_s * 10.0) as u64, arm, Some(&mut histogram));
        self.step(trial, round, arm, Step::WindowEnd);
        self.step(trial, round, arm, Step::Stopped);
        if self.of.driver == "toll" {
            self.latencies.push(LatencyWindow {
                arm: arm.name.into(),
                trial,
                begin_mono_us: begin,
                duration_us: self.now_us - begin,
                histogram,
            });
        }
        if let Some((share, _)) = arm.caught {
            let packets = PacketCounts { captured: executed * 2, received: executed * 4, dropped: 0 };
            self.artefacts.push(Artefact {
                trial,
                round,
                arm: arm.name.into(),
                kind: ArtefactKind::Pcap,
                file: None,
                bytes: self.written as u64,
                window_bytes: self.written as u64,
                packets: Some(packets),
                window_packets: Some(packets),
                held: None,
                losses: None,
                queries: Some(QueryCount {
                    queries: (executed as f64 * share).round() as u64,
                    by: "toll".into(),
                    bytes_read: self.written as u64,
                    executed: None,
                    by_toll: None,
                }),
                pt_query_digest: None,
                encrypted: false,
                executed,
                note: None,
            });
        }
        self.bins((self.of.gap_s * 10.0) as u64, &SyntheticArm::new("none", Role::Baseline, 1.0), None);
    }

    fn step(&mut self, trial: u32, round: u32, arm: &SyntheticArm, step: Step) {
        let edge = matches!(step, Step::WindowBegin | Step::WindowEnd);
        self.trials.push(TrialLine {
            mono_us: self.now_us,
            wall_us: 1_700_000_000_000_000 + self.now_us,
            trial,
            round,
            arm: arm.name.into(),
            step,
            cpu: edge.then_some(self.cpu),
            artefact_bytes: None,
            runs: None,
            runs_us: None,
            processes: Vec::new(),
            stages: Vec::new(),
            note: None,
        });
    }

    fn bins(&mut self, count: u64, arm: &SyntheticArm, mut histogram: Option<&mut Histogram<u64>>) -> u64 {
        let mut executed = 0;
        for i in 0..count {
            let at_s = i as f64 / 10.0;
            let stalled = histogram.is_some()
                && arm.stall.is_some_and(|(begin, length)| at_s >= begin && at_s < begin + length);
            let begun_s = if stalled { at_s - arm.stall.map_or(0.0, |s| s.0) } else { 0.0 };
            executed += self.bin(arm, stalled.then_some(begun_s), histogram.as_deref_mut());
        }
        executed
    }

    fn bin(&mut self, arm: &SyntheticArm, stalled: Option<f64>, into: Option<&mut Histogram<u64>>) -> u64 {
        let (sd, wave) = self.of.noise;
        // 0.99 a bin is 0.9 a second.
        self.level = 0.99 * self.level + sd * (1.0_f64 - 0.99 * 0.99).sqrt() * self.normal();
        let slow = wave * (self.now_us as f64 / 1e6 / 97.0 + self.phase).sin();
        let speed = (self.level + slow).exp();
        let since_s = self.now_us.saturating_sub(self.on_us) as f64 / 1e6;
        let cost =
            arm.cost * arm.later.filter(|(from_s, _)| since_s >= *from_s).map_or(1.0, |(_, times)| times);
        let mean = if stalled.is_some() { 0.0 } else { self.of.qps / 10.0 * speed / cost };
        let statements = (mean + mean.sqrt() * self.normal()).round().max(0.0) as u64;
        let events = statements / STATEMENTS;
        let latency_us = if events == 0 { 0.0 } else { 8.0 * BIN_US as f64 / events as f64 };
        if let Some(histogram) = into {
            for _ in 0..events {
                let x = latency_us * (0.3 * self.normal() - 0.045).exp();
                histogram.saturating_record(x as u64);
            }
        }
        self.now_us += BIN_US;
        let sum = (latency_us * (1.0 + arm.delay_pct.unwrap_or(0.0) / 100.0) * events as f64) as u64;
        self.samples.push(Sample::Bin(Bin {
            mono_us: self.now_us,
            width_us: BIN_US,
            statements,
            events,
            errors: 0,
            errors_by_code: BTreeMap::new(),
            latency_us_sum: sum,
            latency_us_max: (events > 0).then_some((latency_us * 2.5) as u64),
            in_flight: 8,
            oldest_us: stalled.map_or(latency_us as u64, |s| (s * 1e6) as u64 + BIN_US),
        }));
        self.samples.push(Sample::Pressure(PressureSample {
            mono_us: self.now_us,
            psi_cpu_pct: Some(30.0),
            psi_io_pct: Some(if stalled.is_some() { 80.0 } else { 0.0 }),
            psi_memory_pct: Some(0.0),
            dirty_bytes: if stalled.is_some() { 900 << 20 } else { 20 << 20 },
            writeback_bytes: if stalled.is_some() { 300 << 20 } else { 0 },
        }));
        self.written += statements as f64 * arm.caught.map_or(0.0, |c| c.1);
        self.spend(arm, stalled.is_some());
        self.second = (self.second.0 + statements, self.second.1 + events, self.second.2 + sum);
        if self.now_us.is_multiple_of(1_000_000) {
            self.full_second();
        }
        statements
    }

    /// Accounts CPU time. The CPUs are always busy, so that the cost of a query follows from their number.
    fn spend(&mut self, arm: &SyntheticArm, stalled: bool) {
        let busy = if stalled { 0.2 } else { CPUS } * BIN_US as f64;
        let treatment = match arm.burns {
            Some(share) => share * BIN_US as f64,
            None => busy * (1.0 - 1.0 / arm.cost.max(1.0)),
        };
        self.cpu.host_busy_us += busy as u64;
        self.cpu.treatment_us += treatment as u64;
        self.cpu.toll_us += (0.003 * BIN_US as f64) as u64;
        let others = if arm.spares_others { busy } else { busy - treatment };
        *self.cpu.server_us.get_or_insert(0) += (0.8 * others) as u64;
        self.cpu.driver_us += (0.18 * others) as u64;
    }

    fn full_second(&mut self) {
        let (statements, events, sum) = std::mem::take(&mut self.second);
        let mean = if events == 0 { 0.0 } else { sum as f64 / events as f64 };
        let of_mean = |factor: f64| (events > 0).then_some((mean * factor) as u64);
        self.samples.push(Sample::Second(Second {
            mono_us: self.now_us,
            width_us: 1_000_000,
            events,
            statements,
            latency_us_mean: mean,
            latency_us_p50: of_mean(0.95),
            latency_us_p95: of_mean(1.57),
            latency_us_p99: of_mean(1.92),
            latency_us_max: of_mean(2.5),
        }));
        self.samples.push(Sample::Host(HostSample {
            mono_us: self.now_us,
            cpu_user_pct: 70.0,
            cpu_system_pct: 28.0,
            disk_write_await_ms: 1.5,
            ..HostSample::default()
        }));
        self.samples.push(Sample::Own(OwnSample {
            mono_us: self.now_us,
            cpu_us: self.cpu.toll_us,
            memory_bytes: 24 << 20,
            written_bytes: self.now_us / 1_000 * 3,
        }));
    }

    fn normal(&mut self) -> f64 {
        let [radius, turn] = [self.draws.next_fraction(), self.draws.next_fraction()];
        (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * turn).cos()
    }
}
