//! Invented record of a run: load, host and trials from a seed. Never measures anything.

use crate::scene::{self, FixtureArm, STARTED_WALL_US, Shape};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::path::Path;
use toll_record::{
    Artefact, ArtefactKind, Bin, Cpu, Host, HostSample, PacketCounts, Plan, PressureSample, QueryCount,
    RunWriter, Sample, Second, ServerSample, StallSpan, Step, TrialLine,
};

/// Input of the invented analysis.
#[derive(Debug, Default)]
pub struct WrittenData {
    pub plan: Option<Plan>,
    pub host: Host,
    pub made: Vec<FixtureArm>,
    /// Mean response time by arm and round, us.
    pub latency_us: Vec<Vec<f64>>,
    pub artefacts: Vec<Artefact>,
    pub stalls: Vec<StallSpan>,
    pub duration_s: f64,
}

const BEGIN_MONO_US: u64 = 86_400_000_000;
const BIN_US: u64 = 100_000;

pub fn write(root: &Path, shape: &Shape) -> anyhow::Result<WrittenData> {
    let mut rng = ChaCha8Rng::seed_from_u64(shape.seed);
    let made = scene::arms(shape);
    let mut order = Vec::new();
    for _ in 0..shape.rounds {
        let mut names: Vec<String> =
            made.iter().filter(|m| m.arm.unavailable.is_none()).map(|m| m.arm.name.clone()).collect();
        names.shuffle(&mut rng);
        order.push(names);
    }
    let plan = scene::plan(shape, &made, order);
    let host = scene::host(shape);
    let run = RunWriter::create(root)?;
    run.write_json("plan.json", &plan)?;
    if shape.dies_after_s.is_none() {
        run.write_json("host.json", &host)?;
    }
    let mut made_run = FixtureWriter {
        rng,
        run,
        now_us: BEGIN_MONO_US,
        drift: 0.0,
        dirty: 40e6,
        recorded: WrittenData { latency_us: vec![Vec::new(); made.len()], ..WrittenData::default() },
        dies_us: shape.dies_after_s.map(|s| BEGIN_MONO_US + (s * 1e6) as u64),
    };
    'run: for (round, names) in plan.order.iter().enumerate() {
        for name in names {
            let at = made.iter().position(|m| &m.arm.name == name).unwrap_or_default();
            let trial =
                (round * names.len() + names.iter().position(|n| n == name).unwrap_or_default()) as u32;
            if !made_run.trial(shape, &made[at], at, trial, round as u32)? {
                break 'run;
            }
        }
    }
    made_run.run.flush()?;
    let duration_s = (made_run.now_us - BEGIN_MONO_US) as f64 / 1e6;
    Ok(WrittenData { plan: Some(plan), host, made, duration_s, ..made_run.recorded })
}

struct FixtureWriter {
    rng: ChaCha8Rng,
    run: RunWriter,
    now_us: u64,
    drift: f64,
    dirty: f64,
    recorded: WrittenData,
    dies_us: Option<u64>,
}

impl FixtureWriter {
    /// False if the run died in this trial.
    fn trial(
        &mut self,
        shape: &Shape,
        made: &FixtureArm,
        at: usize,
        trial: u32,
        round: u32,
    ) -> anyhow::Result<bool> {
        let line = |step, now: u64, cpu, note: Option<String>| TrialLine {
            mono_us: now,
            wall_us: STARTED_WALL_US + now - BEGIN_MONO_US,
            trial,
            round,
            arm: made.arm.name.clone(),
            step,
            cpu,
            artefact_bytes: None,
            runs: None,
            runs_us: None,
            processes: Vec::new(),
            stages: Vec::new(),
            note,
        };
        self.run.write_trial(&line(Step::Start, self.now_us, None, None))?;
        self.stretch(made, shape.settle_s, trial, shape)?;
        self.run.write_trial(&line(Step::WindowBegin, self.now_us, Some(Cpu::default()), None))?;
        let (events, latency_us_sum) = self.stretch(made, shape.window_s, trial, shape)?;
        if self.dies_us.is_some_and(|dies| self.now_us >= dies) {
            return Ok(false);
        }
        self.run.write_trial(&line(Step::WindowEnd, self.now_us, Some(Cpu::default()), None))?;
        self.recorded.latency_us[at].push(latency_us_sum as f64 / events.max(1) as f64);
        let note = (made.arm.name == "L" && round == 1).then(|| {
            shape.hostile.map_or("killed after TERM was ignored for 2 s", |hostile| hostile).to_owned()
        });
        self.run.write_trial(&line(Step::Stopped, self.now_us + 20_000, None, note))?;
        if let Some(kind) = made.arm.artefact {
            let executed = events * 16;
            let found = made.caught.map(|share| QueryCount {
                queries: (executed as f64 * (share * (1.0 - self.rng.random::<f64>() * 0.04)).min(1.0))
                    as u64,
                by: "toll".into(),
                bytes_read: (made.bytes_per_s * shape.window_s) as u64,
                executed: None,
                by_toll: None,
            });
            let packets = (kind == ArtefactKind::Pcap).then(|| PacketCounts {
                captured: executed * 2,
                received: executed * 4,
                dropped: if made.stalls { executed / 50 } else { 0 },
            });
            let artefact = Artefact {
                trial,
                round,
                arm: made.arm.name.clone(),
                kind,
                file: None,
                bytes: (made.bytes_per_s * (shape.window_s + shape.settle_s)) as u64,
                window_bytes: (made.bytes_per_s * shape.window_s) as u64,
                packets,
                window_packets: packets,
                held: None,
                losses: None,
                queries: found,
                pt_query_digest: None,
                encrypted: false,
                executed,
                note: None,
            };
            self.run.write_artefact(&artefact)?;
            self.recorded.artefacts.push(artefact);
        }
        self.stretch(
            &FixtureArm { cost: 0.0, bytes_per_s: 0.0, stalls: false, ..made.clone() },
            shape.gap_s,
            trial,
            shape,
        )?;
        Ok(true)
    }

    /// Load and host for that long. Returns events completed and the sum of their latencies.
    fn stretch(
        &mut self,
        made: &FixtureArm,
        seconds: f64,
        trial: u32,
        shape: &Shape,
    ) -> anyhow::Result<(u64, u64)> {
        let bins = (seconds * 1e6 / BIN_US as f64).round() as u64;
        // A stall now and then, where dirty pages pile up.
        let stall = (made.stalls && bins > 8 && self.rng.random::<f64>() < 0.35)
            .then(|| self.rng.random_range(2..bins - 5))
            .map(|first| first..first + self.rng.random_range(2..5));
        let (mut events_sum, mut latency_sum) = (0, 0);
        for bin in 0..bins {
            if self.dies_us.is_some_and(|dies| self.now_us >= dies) {
                return Ok((events_sum, latency_sum));
            }
            self.now_us += BIN_US;
            self.drift = self.drift * 0.995 + (self.rng.random::<f64>() - 0.5) * 0.02;
            let stalled = stall.as_ref().is_some_and(|s| s.contains(&bin));
            let noise = 1.0 + self.drift + (self.rng.random::<f64>() - 0.5) * 0.06;
            let latency_us = 5_300.0 * noise * (1.0 + made.cost);
            let events = if stalled { 0 } else { (8e6 / latency_us * 0.1).round() as u64 };
            let sum = (events as f64 * latency_us) as u64;
            events_sum += events;
            latency_sum += sum;
            self.run.write_sample(&Sample::Bin(Bin {
                mono_us: self.now_us,
                width_us: BIN_US,
                statements: events * 16,
                events,
                errors: 0,
                errors_by_code: BTreeMap::new(),
                latency_us_sum: sum,
                latency_us_max: Some((latency_us * (2.0 + 3.0 * self.rng.random::<f64>())) as u64),
                in_flight: 8,
                oldest_us: if stalled {
                    (bin - stall.as_ref().map_or(0, |s| s.start) + 1) * BIN_US
                } else {
                    4_000
                },
            }))?;
            self.dirty = (self.dirty + made.bytes_per_s / 10.0) * if stalled { 0.5 } else { 0.985 };
            self.run.write_sample(&Sample::Pressure(PressureSample {
                mono_us: self.now_us,
                psi_cpu_pct: Some(62.0 + 20.0 * self.rng.random::<f64>()),
                psi_io_pct: Some(if stalled { 91.0 } else { 2.0 * self.rng.random::<f64>() }),
                psi_memory_pct: Some(0.0),
                dirty_bytes: self.dirty as u64,
                writeback_bytes: if stalled { (self.dirty * 0.8) as u64 } else { 0 },
            }))?;
            if (self.now_us - BEGIN_MONO_US).is_multiple_of(1_000_000) {
                self.second(made, latency_us)?;
            }
        }
        if let Some(stall) = stall {
            let begin = self.now_us - (bins - stall.start) * BIN_US;
            self.recorded.stalls.push(StallSpan {
                arm: made.arm.name.clone(),
                trial,
                kind: shape.hostile.unwrap_or("throughput").into(),
                begin_mono_us: begin,
                end_mono_us: begin + (stall.end - stall.start) * BIN_US,
                dirty_bytes: Some((self.dirty * 2.0) as u64),
                writeback_bytes: Some(self.dirty as u64),
                psi_cpu_pct: Some(70.0),
                psi_io_pct: Some(91.0),
                psi_memory_pct: Some(0.0),
                disk_write_await_ms: Some(140.0),
            });
        }
        Ok((events_sum, latency_sum))
    }

    fn second(&mut self, made: &FixtureArm, latency_us: f64) -> anyhow::Result<()> {
        let mono_us = self.now_us;
        let mut noise = |base: f64| base * (0.9 + 0.2 * self.rng.random::<f64>());
        self.run.write_sample(&Sample::Second(Second {
            mono_us,
            width_us: 1_000_000,
            events: (8e6 / latency_us) as u64,
            statements: (16.0 * 8e6 / latency_us) as u64,
            latency_us_mean: latency_us,
            latency_us_p50: Some((latency_us * 0.9) as u64),
            latency_us_p95: Some((latency_us * 1.7) as u64),
            latency_us_p99: Some(noise(latency_us * 2.6) as u64),
            latency_us_max: Some(noise(latency_us * 5.0) as u64),
        }))?;
        self.run.write_sample(&Sample::Host(HostSample {
            mono_us,
            cpu_user_pct: noise(68.0),
            cpu_system_pct: noise(22.0 + 6.0 * made.cost),
            cpu_iowait_pct: noise(if made.stalls { 3.0 } else { 0.3 }),
            cpu_steal_pct: noise(0.4),
            mem_used_bytes: noise(3.4e9) as u64,
            mem_used_pct: Some(21.3),
            mem_cached_bytes: noise(9.1e9) as u64,
            net_rx_bytes_per_s: noise(2e3),
            net_tx_bytes_per_s: noise(if made.arm.title.contains(" | ") { 6e7 } else { 3e3 }),
            lo_bytes_per_s: noise(9e7),
            disk_reads_per_s: noise(2.0),
            disk_writes_per_s: noise(30.0 + made.bytes_per_s / 4e5),
            disk_read_bytes_per_s: noise(2e4),
            disk_write_bytes_per_s: noise(4e5 + made.bytes_per_s),
            disk_read_await_ms: noise(0.3),
            disk_write_await_ms: noise(if made.stalls { 20.0 } else { 0.8 }),
            disk_queue: noise(if made.stalls { 4.0 } else { 0.1 }),
            load_1: noise(8.2),
            load_5: noise(7.9),
            load_15: noise(6.0),
            context_switches_per_s: noise(95e3),
        }))?;
        let values =
            [("Threads_running", noise(8.0)), ("Questions", noise(24e3)), ("Innodb_rows_read", noise(1.1e6))];
        let values = values.into_iter().map(|(name, v)| (name.to_owned(), v)).collect();
        self.run.write_sample(&Sample::Server(ServerSample { mono_us, server: 0, values }))?;
        self.run.flush()?;
        Ok(())
    }
}
