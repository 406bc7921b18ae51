//! Analysis of invented runs in blocks.

use super::*;
use serde_json::{Value, json};
use toll_record::{ClassSample, ClassTimes, Sample};
use toll_stats::SeededRng;

/// A ramp block, and blocks of the baseline with one of two treatments or, each fifth time, the A/A. The second treatment comes a third as
/// often. Windows vary by 10%, those of shams not at all; what follows `log` is slower by `leftover` (ln).
fn blocks(count: usize, leftover: f64) -> RunData {
    let others = ["log", "log", "trace", "log", "again"];
    let order: Vec<Vec<&str>> = toll_stats::draw_orders(3, 2, count)
        .iter()
        .enumerate()
        .map(|(block, order)| order.iter().map(|&i| ["off", others[block % 5]][i]).collect())
        .collect();
    let arm = |name: &str, role: &str| {
        json!({
            "name": name, "title": name, "role": role, "command": "", "artefact": null, "unavailable": null,
            "burn_share": null, "meter": "none", "window": { "until": "time", "s": 2.0 }, "settle_s": 1.0,
            "workload": { "driver": "none", "profile": "", "transport": "tcp", "threads": 1, "tables": 1, "rows": 1,
                          "prepared": false, "rate_per_s": null },
        })
    };
    let arms = [("off", "baseline"), ("again", "aa"), ("log", "treatment"), ("trace", "treatment")]
        .map(|(n, r)| arm(n, r));
    let plan = json!({
        "format": FORMAT, "toll_version": "0", "command": [], "scenario": "x", "question": "?", "profile": "live", "seed": 1,
        "baseline": "off", "primary": "probe_us", "columns": ["probe_us"], "panels": [], "margin_pct": 2.0, "alpha": 0.05,
        "setup": {}, "rounds": count, "window_s": 2.0, "settle_s": 1.0, "gap_s": 0.0, "pilot_s": 0.0, "early_stop": true,
        "arms": arms, "order": order, "jitter": 0.2, "started_wall_us": 0,
        "design": { "blocks": { "ramp_s": [2.0] } },
        "outcomes": [{ "name": "probe_us", "unit": "us", "title": "probe", "higher_is_better": false, "aggregate": "mean",
                       "source": { "from": "by-class", "of": "probe" }, "compare": "log-ratio" }],
    });
    let mut recorded = RunData::without_samples(serde_json::from_value(plan).unwrap());
    let (mut draws, mut before) = (SeededRng::new(5, 0), "");
    for (trial, (round, name)) in (0u64..)
        .zip(order.iter().enumerate().flat_map(|(round, names)| names.iter().map(move |name| (round, *name))))
    {
        let begin_us = 4_000_000 * (trial + 1);
        let line = |step: &str, mono_us: u64| -> Value {
            json!({ "mono_us": mono_us, "wall_us": mono_us, "trial": trial, "round": round, "arm": name, "step": step })
        };
        let steps = [("ready", 0), ("window-begin", 1), ("window-end", 3), ("stopped", 3)];
        let lines = steps.map(|(step, s)| line(step, begin_us + 1_000_000 * s));
        recorded.trials.extend(lines.map(|line| serde_json::from_value(line).unwrap()));
        let noise = if round % 5 == 4 { 0.0 } else { 0.2 * (draws.next_fraction() - 0.5) };
        let ln_us = 6.0 + noise + if before == "log" { leftover } else { 0.0 };
        let times = ClassTimes { count: 20, ln_us_sum: 20.0 * ln_us };
        recorded.add_samples(vec![Sample::Classes(ClassSample {
            mono_us: begin_us + 3_000_000,
            width_us: 2_000_000,
            server: 0,
            classes: [(ClassSample::PROBE.to_owned(), times)].into(),
        })]);
        before = name;
    }
    recorded
}

fn warning<'r>(result: &'r RunResult, code: &str) -> Option<&'r Warning> {
    result.warnings.iter().find(|warning| warning.code == code)
}

#[test]
fn the_detectable_effect_of_blocks_is_that_of_the_treatment_with_the_fewest() {
    let recorded = blocks(60, 0.0);
    let result = analyse(&recorded);
    let windows = |name: &str| result.arms.iter().find(|arm| arm.name == name).unwrap().windows;
    assert_eq!([windows("log"), windows("trace"), windows("again")], [35, 12, 12]);
    let found = toll_stats::pct_to_log_ratio(result.mde.as_ref().unwrap().achieved_pct.unwrap());
    // Differences of two values that are spread evenly over 0.2.
    let expected = toll_stats::sequence_mde(12, 0.025).unwrap() * 0.2 / 6.0_f64.sqrt();
    assert!((found / expected - 1.0).abs() < 0.3, "{found} {expected}");
    let low = warning(&result, "low-power").unwrap();
    assert_eq!(low.advice, "give the run more time (--time)");
}

#[test]
fn carry_over_between_blocks_is_reported_and_its_absence_is_not() {
    let found = analyse(&blocks(80, 0.15));
    let found = warning(&found, "carry-over").unwrap();
    assert_eq!(found.arm.as_deref(), Some("log"));
    assert!(found.advice.contains("--guard-interval"), "{}", found.advice);
    assert!(warning(&analyse(&blocks(80, 0.0)), "carry-over").is_none());
}
