//! Tests of what toll says that it took itself.

use super::synthetic::{SyntheticArm, SyntheticRun};
use toll_analysis as analyse;
use toll_record::*;
use toll_report::text::{ColourMode, Detail, text};

/// Between two readings, microseconds.
const BEAT_US: u64 = 500_000;

#[test]
fn on_a_server_with_users_it_is_told_by_process_and_only_while_no_method_is_on() {
    let host = SyntheticRun::with(3, 12, vec![SyntheticArm::new("B", Role::Treatment, 1.05)]);
    let mut recorded = host.record();
    assert_eq!(analyse::analyse(&recorded).self_cost.while_off, None);

    let of_b: Vec<(u64, u64)> = {
        let at = |step| {
            let lines = recorded.trials.iter().filter(move |line| line.arm == "B" && line.step == step);
            lines.map(|line| line.mono_us).collect::<Vec<_>>()
        };
        at(Step::WindowBegin).into_iter().zip(at(Step::WindowEnd)).collect()
    };
    let end_us = recorded.trials.last().unwrap().mono_us;
    let mut own = Footprint { connections: 7, ..Footprint::default() };
    let mut samples = Vec::new();
    while own.mono_us < end_us {
        own.mono_us += BEAT_US;
        let is_on = of_b.iter().any(|(begin, end)| own.mono_us > *begin && own.mono_us - BEAT_US < *end);
        own.toll_cpu_us += BEAT_US / 1_000;
        own.guard_cpu_us += BEAT_US / 500;
        // A tap that reads what the method does, too.
        own.tap_cpu_us += if is_on { BEAT_US / 2 } else { BEAT_US / 250 };
        own.queries += if is_on { 1_000 } else { 15 };
        samples.push(Sample::Footprint(own));
        let values = [("Questions_per_s".to_owned(), if is_on { 9e9 } else { 3_000.0 })].into();
        samples.push(Sample::Server(ServerSample { mono_us: own.mono_us, server: 0, values }));
    }
    recorded.add_samples(samples);
    let run = analyse::analyse(&recorded);
    let off = run.self_cost.while_off.unwrap();
    let cpus = f64::from(run.host.cpus);
    assert_close(off.toll_cpu_pct, 0.1 / cpus);
    assert_close(off.guard_cpu_pct, 0.2 / cpus);
    assert_close(off.tap_cpu_pct, 0.4 / cpus);
    assert_close(off.queries_per_s, 30.0);
    assert_close(off.queries_pct.unwrap(), 1.0);
    assert_eq!(off.connections, 7);
    let text = text(&run, ColourMode::Plain, Detail::All).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("30 queries a second (1.0% of all), 7 connections"), "{text}");
}

fn assert_close(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 1e-9, "{found} {expected}");
}
