//! Invented analysis of an invented run.
//!
//! Means and a plain normal interval: enough to draw from. Never the statistics that toll claims with.

use crate::recording::WrittenData;
use crate::scene::{FixtureArm, OWN_OUTCOME, Shape};
use std::collections::BTreeMap;
use toll_record::{
    AaCheck, ArmResult, ArtefactResult, Axis, Chart, ChartKind, ChartSeries, ControlCheck, FORMAT, Mde,
    Outcome, ParetoArm, ParetoResult, Role, RunResult, SelfCost, StallTotals, Verdict, Warning,
};

pub fn result(shape: &Shape, recorded: &WrittenData) -> anyhow::Result<RunResult> {
    let Some(plan) = recorded.plan.clone() else { anyhow::bail!("nothing was recorded") };
    let baseline = recorded.latency_us.first().cloned().unwrap_or_default();
    let arms: Vec<ArmResult> = recorded
        .made
        .iter()
        .zip(&recorded.latency_us)
        .map(|(made, latency_us)| arm(made, latency_us, &baseline, recorded, shape))
        .collect();
    let toll = |name: &str| {
        let outcome = arms.iter().find(|a| a.name == name).and_then(|a| a.outcomes.get("latency_us_mean"));
        (outcome.and_then(|o| o.toll_pct), outcome.and_then(|o| o.ci95_pct))
    };
    let note = shape.hostile.unwrap_or("invented figures, for trying the page");
    Ok(RunResult {
        format: FORMAT,
        toll_version: plan.toll_version.clone(),
        scenario: plan.scenario.clone(),
        question: plan.question.clone(),
        answer: format!(
            "{note}: the slow log (A) raises mean response time by {:.0}%, and captures every query.",
            toll("A").0.unwrap_or_default()
        ),
        profile: plan.profile.clone(),
        command: plan.command.clone(),
        seed: plan.seed,
        baseline: plan.baseline.clone(),
        primary: plan.primary.clone(),
        definitions: plan.outcomes.clone(),
        columns: plan.columns.clone(),
        panels: plan.panels.clone(),
        margin_pct: plan.margin_pct,
        alpha: plan.alpha,
        rounds_planned: plan.rounds,
        rounds_done: plan.rounds,
        window_s: plan.window_s,
        long: None,
        started_wall_us: plan.started_wall_us,
        duration_s: recorded.duration_s,
        complete: true,
        host: recorded.host.clone(),
        server: plan.server.clone(),
        held_in: None,
        workload: recorded.made[0].arm.workload.clone(),
        aa: Some(AaCheck {
            arm: "none2".into(),
            toll_pct: toll("none2").0,
            ci95_pct: toll("none2").1,
            effect: None,
            ci95: None,
            ok: Some(true),
        }),
        doses: Vec::new(),
        controls: vec![
            control("sleep", 0.0, toll("sleep"), "a process that does nothing costs nothing"),
            control("burn", 25.0 * shape.effect, toll("burn"), "half of one CPU must be found"),
        ],
        mde: Some(Mde {
            planned_pct: Some(4.1),
            achieved_pct: Some(3.6),
            achieved: None,
            rounds_for_margin: Some(5),
        }),
        contrasts: Vec::new(),
        limits: Vec::new(),
        pareto: Some(pareto(&arms)),
        stalls: recorded.stalls.clone(),
        pauses: Vec::new(),
        self_cost: SelfCost {
            cpu_s: recorded.duration_s * 0.006,
            cpu_pct_of_one_core: 0.61,
            memory_peak_bytes: 21 << 20,
            written_bytes: 9 << 20,
            while_off: None,
        },
        warnings: vec![Warning {
            code: "dependence".into(),
            arm: Some(shape.hostile.unwrap_or("H").into()),
            text: note.into(),
            advice: "Use longer windows: --window 10s.".into(),
        }],
        advice: vec![
            "Full picture: A. Least cost for nearly all queries: B.".into(),
            "A 100 Mb/s link would not carry H.".into(),
        ],
        parts: None,
        charts: charts(note),
        arms,
    })
}

fn control(arm: &str, expected_pct: f64, found: (Option<f64>, Option<[f64; 2]>), text: &str) -> ControlCheck {
    ControlCheck {
        arm: arm.into(),
        outcome: "latency_us_mean".into(),
        expected_pct,
        toll_pct: found.0,
        ci95_pct: found.1,
        effect: None,
        ci95: None,
        ok: Some(true),
        text: text.into(),
    }
}

fn arm(
    made: &FixtureArm,
    latency_us: &[f64],
    baseline: &[f64],
    recorded: &WrittenData,
    shape: &Shape,
) -> ArmResult {
    let power = |k: f64| latency_us.iter().map(|v| v.powf(k)).collect::<Vec<_>>();
    let times = |v: &[f64], f: f64| v.iter().map(|v| v * f).collect::<Vec<_>>();
    let mut outcomes = BTreeMap::new();
    if made.arm.unavailable.is_none() {
        let mut add = |name: &str, unit: &str, up: bool, values: Vec<f64>, base: Vec<f64>| {
            outcomes.insert(name.to_owned(), outcome(unit, up, &values, &base, made.arm.role));
        };
        let base_qps: Vec<f64> = baseline.iter().map(|v| 128e6 / v).collect();
        add("qps", "statements/s", true, times(&power(-1.0), 128e6), base_qps);
        add("latency_us_mean", "us", false, latency_us.to_vec(), baseline.to_vec());
        let tail = if made.stalls { 30.0 } else { 2.6 };
        add("latency_us_p99", "us", false, times(latency_us, tail), times(baseline, 2.6));
        let sqrt = baseline.iter().map(|v| v.sqrt()).collect::<Vec<_>>();
        add("cpu_us_per_query", "us", false, power(0.5), sqrt);
        outcomes.insert(OWN_OUTCOME.to_owned(), difference(latency_us, baseline, made.arm.role));
    }
    let mine: Vec<_> = recorded.artefacts.iter().filter(|a| a.arm == made.arm.name).collect();
    let executed: u64 = mine.iter().map(|a| a.executed).sum();
    let queries: u64 = mine.iter().filter_map(|a| a.queries.as_ref().map(|q| q.queries)).sum();
    let bytes: u64 = mine.iter().map(|a| a.window_bytes).sum();
    let packets = |f: fn(&toll_record::PacketCounts) -> u64| {
        let counted: Vec<u64> = mine.iter().filter_map(|a| a.window_packets.as_ref().map(f)).collect();
        (!counted.is_empty()).then(|| counted.iter().sum())
    };
    let stalls: Vec<f64> = recorded
        .stalls
        .iter()
        .filter(|s| s.arm == made.arm.name)
        .map(|s| (s.end_mono_us - s.begin_mono_us) as f64 / 1e6)
        .collect();
    let middle = latency_us.iter().sum::<f64>() / latency_us.len().max(1) as f64;
    ArmResult {
        name: made.arm.name.clone(),
        title: made.arm.title.clone(),
        role: made.arm.role,
        command: made.arm.command.clone(),
        against: (made.arm.role != Role::Baseline).then(|| "none".to_owned()),
        judged_by: None,
        unavailable: made.arm.unavailable.clone(),
        windows: latency_us.len() as u32,
        outcomes,
        artefact: made.arm.artefact.map(|kind| ArtefactResult {
            kind,
            bytes,
            bytes_per_s: made.bytes_per_s,
            link_mbit_per_s: made.bytes_per_s * 8e-6,
            packets: packets(|p| p.captured),
            received: packets(|p| p.received),
            dropped: packets(|p| p.dropped),
            packet_counts: None,
            queries: made.caught.map(|_| queries),
            counted_by: made.caught.map(|_| "toll".into()),
            pt_query_digest: None,
            encrypted: false,
        }),
        ledger: None,
        executed,
        captured_ratio: made.caught.map(|_| queries as f64 / executed.max(1) as f64),
        stalls: StallTotals {
            count: stalls.len() as u32,
            total_s: stalls.iter().sum(),
            longest_s: stalls.iter().copied().fold(0.0, f64::max),
        },
        latency_curve: if latency_us.is_empty() { Vec::new() } else { curve(middle, made.stalls) },
        notes: shape.hostile.map(String::from).into_iter().collect(),
    }
}

fn outcome(unit: &str, higher_is_better: bool, values: &[f64], base: &[f64], role: Role) -> Outcome {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let d: Vec<f64> = values.iter().zip(base).map(|(a, b)| (a / b).ln()).collect();
    let middle = d.iter().sum::<f64>() / n;
    let sd = (d.iter().map(|v| (v - middle).powi(2)).sum::<f64>() / (n - 1.0).max(1.0)).sqrt();
    let pct = |ln: f64| 100.0 * ln.exp_m1();
    let half = 2.4 * sd / n.sqrt();
    let compared = role != Role::Baseline;
    let ci95_pct = (compared && values.len() >= 6).then(|| [pct(middle - half), pct(middle + half)]);
    let sign = if higher_is_better { -1.0 } else { 1.0 };
    let verdict = match ci95_pct {
        _ if !compared => Verdict::Baseline,
        None => Verdict::NoInterval,
        Some([low, high]) if low.abs() < 5.0 && high.abs() < 5.0 => Verdict::NoEffect,
        Some([low, high]) if low <= 0.0 && high >= 0.0 => Verdict::Unclear,
        Some([low, _]) if low * sign > 0.0 => Verdict::Costly,
        Some(_) => Verdict::Cheaper,
    };
    Outcome {
        unit: unit.into(),
        higher_is_better,
        mean,
        sd: sd * mean,
        values: values.to_vec(),
        toll_pct: compared.then(|| pct(middle)),
        ci95_pct,
        effect: None,
        ci95: None,
        method: if values.len() >= 6 { "normal (invented run)".into() } else { "too few rounds".into() },
        p: None,
        standard_error: None,
        p_adjusted: None,
        planned_ci95_pct: None,
        verdict,
    }
}

/// An outcome in thousandths of the latency, compared as a difference.
fn difference(latency_us: &[f64], baseline: &[f64], role: Role) -> Outcome {
    let values: Vec<f64> = latency_us.iter().map(|us| us / 1e3).collect();
    let of_ratio = outcome("ms", false, latency_us, baseline, role);
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let effect = mean - baseline.iter().sum::<f64>() / 1e3 / n;
    Outcome {
        mean,
        sd: of_ratio.sd / 1e3,
        values,
        toll_pct: None,
        ci95_pct: None,
        effect: of_ratio.toll_pct.map(|_| effect),
        ci95: of_ratio.ci95_pct.map(|_| [effect - 0.2, effect + 0.2]),
        ..of_ratio
    }
}

fn curve(mean_us: f64, stalls: bool) -> Vec<(f64, f64)> {
    let quantiles = (1..=90).map(|i| f64::from(i) / 100.0);
    let tail = [0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999];
    quantiles
        .chain(tail)
        .map(|q: f64| {
            let nines = -(1.0 - q).log10();
            let pause = if stalls && q > 0.99 { 40.0 * (nines - 2.0) + 1.0 } else { 1.0 };
            (q, mean_us * (0.6 + 0.9 * nines) * pause)
        })
        .collect()
}

fn charts(note: &str) -> Vec<Chart> {
    let axis = |label: &str, unit: &str, log: bool, categories: &[&str]| Axis {
        label: label.into(),
        unit: unit.into(),
        log,
        categories: categories.iter().map(|c| (*c).into()).collect(),
    };
    let chart = |id: &str, title: &str, kind, x, y, series| Chart {
        id: id.into(),
        title: title.into(),
        kind,
        x,
        y,
        series,
        note: note.into(),
    };
    let series = |name: &str, f: &dyn Fn(f64) -> (f64, f64), interval: bool, n: u32| ChartSeries {
        name: name.into(),
        points: (0..n)
            .map(|i| {
                let (x, y) = f(f64::from(i));
                (x, y, interval.then_some(y * 0.9), interval.then_some(y * 1.1))
            })
            .collect(),
    };
    vec![
        chart(
            "load-latency",
            "Response time against load",
            ChartKind::Line,
            axis("load", "queries/s", false, &[]),
            axis("p99 response time", "ms", true, &[]),
            vec![
                series("socket", &|i| (25e3 * (i + 1.0), 0.2 * 1.3f64.powf(i)), true, 10),
                series("tcp", &|i| (25e3 * (i + 1.0), 0.25 * 1.7f64.powf(i)), true, 10),
            ],
        ),
        chart(
            "loss",
            "Packets lost by system",
            ChartKind::Bar,
            axis("bit rate", "Mb/s", false, &["100", "300", "500", "700", "900"]),
            axis("loss", "%", false, &[]),
            vec![
                series("small ring", &|i| (i, 1.2 * i * i), true, 5),
                series("large ring", &|i| (i, 0.4 * i * i), true, 5),
            ],
        ),
        chart(
            "packet-length",
            "Packet lengths",
            ChartKind::Histogram,
            axis("length", "bytes", false, &[]),
            axis("share", "%", false, &[]),
            vec![
                series("TCP", &|i| (100.0 * i, 30.0 / (1.0 + (i - 14.0).abs())), false, 16),
                series("UDP", &|i| (100.0 * i, 30.0 / (1.0 + (i - 2.0).abs())), false, 16),
            ],
        ),
        chart(
            "backup",
            "Backup progress",
            ChartKind::Timeline,
            axis("since its start", "s", false, &[]),
            axis("written", "MiB", false, &[]),
            vec![
                series("dump", &|i| (i, 40.0 * i), false, 60),
                series("upload", &|i| (i + 5.0, 30.0 * i), false, 60),
            ],
        ),
        chart(
            "dumps",
            "Dumps side by side",
            ChartKind::Table,
            axis("way", "", false, &["direct", "ssh"]),
            axis("time", "s", false, &[]),
            vec![
                series("once", &|i| (i, 1620.0 - 120.0 * i), false, 2),
                series("five", &|i| (i, 11e3), false, 2),
            ],
        ),
    ]
}

/// An invented trade-off of the arms: the most expensive is dominated by the first cheaper one.
fn pareto(arms: &[ArmResult]) -> ParetoResult {
    let outcomes = ["latency_us_mean", "cpu_us_per_query", "qps"];
    let of = |arm: &ArmResult| -> Option<ParetoArm> {
        let found: Vec<&Outcome> =
            outcomes.iter().map(|name| arm.outcomes.get(*name)).collect::<Option<_>>()?;
        Some(ParetoArm {
            name: arm.name.clone(),
            beaten_by: (arm.name == "H").then(|| "A".to_owned()),
            values: found.iter().map(|outcome| outcome.mean).collect(),
            ci95: found.iter().map(|outcome| Some([outcome.mean * 0.98, outcome.mean * 1.03])).collect(),
        })
    };
    ParetoResult {
        outcomes: outcomes.map(String::from).to_vec(),
        arms: arms.iter().filter(|arm| arm.role == Role::Treatment).filter_map(of).collect(),
        advised: Some("A".into()),
        text: "Advised: the slow log (A), invented figures.".into(),
    }
}
