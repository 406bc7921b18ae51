//! Tests of the windows that the analysis excludes, and of the reported reasons.

use super::arm;
use super::synthetic::{SyntheticArm, SyntheticRun};
use toll_analysis as analyse;
use toll_analysis::RunData;
use toll_record::*;

fn a_record(rounds: u32) -> RunData {
    SyntheticRun::with(6, rounds, SyntheticArm::usual()).record()
}

fn warning<'a>(run: &'a RunResult, code: &str) -> Option<&'a Warning> {
    run.warnings.iter().find(|w| w.code == code)
}

fn text<'a>(run: &'a RunResult, code: &str) -> &'a str {
    warning(run, code).map_or("", |w| &w.text)
}

/// Begin and end of a window.
fn window(recorded: &RunData, arm: &str, round: u32) -> (u64, u64) {
    let at = |step: Step| {
        let mut lines = recorded.trials.iter().filter(|l| l.arm == arm && l.round == round);
        lines.find(|l| l.step == step).expect("every window has both steps").mono_us
    };
    (at(Step::WindowBegin), at(Step::WindowEnd))
}

/// The server's `Uptime` once a second, as it was started `age_s` before the run and, if ever, anew.
fn uptimes(recorded: &mut RunData, age_s: u64, restarted_us: Option<u64>) {
    let first = recorded.trials[0].mono_us;
    let last = recorded.trials.last().expect("a run has steps").mono_us;
    let samples = (first..=last).step_by(1_000_000).filter_map(|mono_us| {
        let since_us = match restarted_us {
            // It is away for a second and a half.
            Some(at) if mono_us + 1_500_000 > at && mono_us < at => return None,
            Some(at) if mono_us >= at => mono_us - at,
            _ => mono_us - first + age_s * 1_000_000,
        };
        let values = [("Uptime".to_owned(), (since_us / 1_000_000) as f64)].into();
        Some(Sample::Server(ServerSample { mono_us, server: 0, values }))
    });
    recorded.add_samples(samples.collect());
}

/// Makes the trial fail instead of closing its window.
fn fail(recorded: &mut RunData, arm: &str, round: u32, why: &str) {
    let of = |l: &TrialLine| l.arm == arm && l.round == round;
    recorded.trials.retain(|l| !(of(l) && l.step == Step::Stopped));
    let line = recorded.trials.iter_mut().find(|l| of(l) && l.step == Step::WindowEnd).expect("a window");
    line.step = Step::Failed;
    line.note = Some(why.into());
}

#[test]
fn a_restart_of_the_server_is_dated_and_its_windows_are_left_out_and_named() {
    let mut recorded = a_record(8);
    let (begin, end) = window(&recorded, "K", 3);
    let into_s = (begin + end) / 2_000_000;
    uptimes(&mut recorded, 5_000, Some(into_s * 1_000_000));
    let run = analyse::analyse(&recorded);
    let said = text(&run, "server-restarted");
    assert!(said.contains("the window of K in round 4 is left out"), "{:#?}", run.warnings);
    // The synthetic host's monotonic clock began 1,700,000,000 s after 1970, a thousand before the run.
    assert!(said.contains(&format!("({into_s} s into the run)")), "{said}");
    let clock = jiff::Timestamp::from_second(1_700_000_000 + into_s as i64).unwrap().strftime("%H:%M:%S UTC");
    assert!(said.starts_with(&format!("the server restarted at {clock}")), "{said}");
    assert_eq!((arm(&run, "K").windows, arm(&run, "none").windows), (7, 8));
    assert!(!run.complete && run.rounds_done == 7);
    assert!(text(&run, "incomplete").contains("missing: K in round 4"), "{:#?}", run.warnings);
}

#[test]
fn a_server_that_goes_on_is_no_restart() {
    let mut recorded = a_record(6);
    uptimes(&mut recorded, 5_000, None);
    assert!(warning(&analyse::analyse(&recorded), "server-restarted").is_none());

    // A host that stood still for four seconds answers late, with the uptime of when it was asked.
    let mut samples = recorded.servers.clone();
    samples[20].mono_us += 4_000_000;
    samples.drain(21..25);
    let mut late = recorded.clone();
    late.servers = samples;
    assert!(warning(&analyse::analyse(&late), "server-restarted").is_none());

    // Somebody set the clock: `Uptime` follows it, and the steps of trials show it a little later.
    let middle = recorded.trials[recorded.trials.len() / 2].mono_us;
    for by_s in [-3_600_i64, 3_600] {
        let mut set = recorded.clone();
        for line in set.trials.iter_mut().filter(|l| l.mono_us >= middle) {
            line.wall_us = line.wall_us.checked_add_signed(by_s * 1_000_000).unwrap();
        }
        for sample in set.servers.iter_mut().filter(|s| s.mono_us + 400_000 >= middle) {
            *sample.values.get_mut("Uptime").unwrap() += by_s as f64;
        }
        let run = analyse::analyse(&set);
        assert!(warning(&run, "server-restarted").is_none(), "{by_s}: {:#?}", run.warnings);
    }
}

#[test]
fn a_restart_among_missing_samples_is_found() {
    let mut recorded = a_record(8);
    let (begin, _) = window(&recorded, "K", 3);
    let (_, end) = window(&recorded, "K", 4);
    // The server is young, and older by the next sample than it was by the one before.
    uptimes(&mut recorded, 3, Some(begin));
    recorded.servers.retain(|s| s.mono_us < begin - 1_000_000 || s.mono_us > end + 20_000_000);
    let run = analyse::analyse(&recorded);
    assert!(text(&run, "server-restarted").contains("in round 4, all of round 5"), "{:#?}", run.warnings);
    assert!(arm(&run, "K").windows < 7);
}

#[test]
fn what_failed_in_a_restart_is_no_fault_of_the_arm() {
    let mut recorded = a_record(8);
    let (begin, end) = window(&recorded, "B", 2);
    uptimes(&mut recorded, 5_000, Some((begin + end) / 2));
    fail(&mut recorded, "B", 2, "the load driver toll ended by itself (exit status: 1)");
    let run = analyse::analyse(&recorded);
    assert!(
        text(&run, "server-restarted").contains("the trial of B in round 3 failed in it"),
        "{:#?}",
        run.warnings
    );
    assert!(warning(&run, "trial-failed").is_none(), "{:#?}", run.warnings);
    assert!(!run.complete && run.rounds_done == 7);
    assert!(
        !arm(&run, "B").notes.iter().any(|n| n.contains("ended by itself")),
        "{:?}",
        arm(&run, "B").notes
    );
}

#[test]
fn a_trial_whose_note_tells_of_a_restart_needs_no_sample_of_it() {
    let mut recorded = a_record(7);
    fail(&mut recorded, "K", 1, "the server restarted while K was on; its settings are put back");
    let run = analyse::analyse(&recorded);
    assert!(
        text(&run, "server-restarted").contains("the trial of K in round 2 failed in it"),
        "{:#?}",
        run.warnings
    );
    assert!(warning(&run, "trial-failed").is_none(), "{:#?}", run.warnings);
}

#[test]
fn cpu_of_a_server_that_went_away_is_absent_and_never_zero() {
    let mut recorded = a_record(8);
    let (_, end) = window(&recorded, "K", 3);
    // As a run of an older toll has it: no uptime, and no process by that id from then on.
    for line in recorded.trials.iter_mut().filter(|l| l.mono_us >= end) {
        if let Some(cpu) = &mut line.cpu {
            cpu.server_us = Some(0);
        }
    }
    let run = analyse::analyse(&recorded);
    let of = |name: &str, outcome: &str| arm(&run, name).outcomes[outcome].values.clone();
    for name in ["none", "B", "K"] {
        let values = of(name, "server_cpu_us_per_query");
        assert!(values.iter().all(|v| *v > 0.0), "{name}: {values:?}");
        assert!(values.len() < 8, "{name}: {values:?}");
    }
    assert_eq!(of("none", "qps").len(), 8, "windows after it count in all else");
    let said = text(&run, "server-restarted");
    assert!(said.contains("the window of K in round 4 is left out"), "{:#?}", run.warnings);

    // Of a server elsewhere nothing is known at all.
    for unknown in [None, Some(0)] {
        let mut elsewhere = a_record(6);
        elsewhere.trials.iter_mut().filter_map(|l| l.cpu.as_mut()).for_each(|cpu| cpu.server_us = unknown);
        let run = analyse::analyse(&elsewhere);
        assert!(!arm(&run, "none").outcomes.contains_key("server_cpu_us_per_query"));
        assert!(arm(&run, "none").outcomes.contains_key("cpu_us_per_query"));
        assert!(warning(&run, "server-restarted").is_none());
    }
}

#[test]
fn a_kernel_without_pressure_leaves_it_out_of_stalls() {
    let mut recorded = a_record(6);
    for sample in &mut recorded.pressures {
        (sample.psi_cpu_pct, sample.psi_io_pct, sample.psi_memory_pct) = (None, None, None);
    }
    let run = analyse::analyse(&recorded);
    assert!(!run.stalls.is_empty());
    for stall in &run.stalls {
        assert_eq!((stall.psi_cpu_pct, stall.psi_io_pct, stall.psi_memory_pct), (None, None, None));
        assert!(stall.dirty_bytes.is_some(), "what is known beside it is told");
    }
}

#[test]
fn windows_without_samples_do_not_count() {
    let mut recorded = a_record(6);
    let middle = window(&recorded, "none", 2).1;
    recorded.bins.retain(|b| b.mono_us <= middle);
    recorded.seconds.retain(|b| b.mono_us <= middle);
    let run = analyse::analyse(&recorded);
    assert!(!run.complete && (2..=3).contains(&run.rounds_done), "{} rounds", run.rounds_done);
    let said = text(&run, "samples-missing");
    assert!(
        said.starts_with("samples are missing in ") && said.contains("all of round 6"),
        "{:#?}",
        run.warnings
    );
    assert!(text(&run, "incomplete").contains("of 6 rounds are complete"), "{:#?}", run.warnings);
    for arm in &run.arms {
        assert!(!arm.outcomes.contains_key("elapsed_s"), "{} is no dump", arm.name);
        assert!(arm.windows <= 3, "{}: {}", arm.name, arm.windows);
    }
}

#[test]
fn a_window_half_of_whose_samples_are_lost_does_not_count() {
    let mut recorded = a_record(6);
    let (begin, end) = window(&recorded, "B", 2);
    recorded.bins.retain(|b| b.mono_us <= begin || b.mono_us > (begin + end) / 2);
    let run = analyse::analyse(&recorded);
    assert_eq!((arm(&run, "B").windows, run.rounds_done, run.complete), (5, 5, false));
    assert!(
        text(&run, "samples-missing").starts_with("samples are missing in 1 window: B in round 3"),
        "{:#?}",
        run.warnings
    );
}

#[test]
fn a_driver_with_bins_of_a_second_covers_its_windows_all_the_same() {
    let mut host = SyntheticRun::with(9, 6, SyntheticArm::usual());
    host.driver = "sysbench";
    let mut recorded = host.record();
    // As sysbench reports: once a second, whatever the windows' edges are.
    let mut whole: Vec<Bin> = Vec::new();
    for ten in recorded.bins.chunks(10) {
        let mut bin = ten.last().unwrap().clone();
        bin.width_us = ten.iter().map(|b| b.width_us).sum();
        bin.statements = ten.iter().map(|b| b.statements).sum();
        bin.events = ten.iter().map(|b| b.events).sum();
        whole.push(bin);
    }
    recorded.bins = whole;
    let run = analyse::analyse(&recorded);
    assert!(run.complete && run.rounds_done == 6, "{:#?}", run.warnings);
}

#[test]
fn an_arm_without_a_load_needs_no_samples() {
    let mut recorded = a_record(6);
    let dump = recorded.plan.arms.iter_mut().find(|a| a.name == "C").unwrap();
    dump.workload.driver = "none".into();
    dump.meter = toll_record::Meter::None;
    dump.window = toll_record::Window::Done { at_most_s: 60.0 };
    let windows: Vec<_> = (0..6).map(|round| window(&recorded, "C", round)).collect();
    recorded.bins.retain(|b| !windows.iter().any(|(begin, end)| *begin < b.mono_us && b.mono_us <= *end));
    recorded.latencies.retain(|l| l.arm != "C");
    let run = analyse::analyse(&recorded);
    assert!(run.complete && arm(&run, "C").outcomes.contains_key("elapsed_s"), "{:#?}", run.warnings);
    assert!(warning(&run, "latency-missing").is_none());
}

#[test]
fn latencies_that_are_missing_are_a_doubt_and_no_percentile_of_another_kind() {
    let mut recorded = a_record(6);
    let all = recorded.latencies.len();
    recorded.latencies.truncate(all / 2);
    let run = analyse::analyse(&recorded);
    let said = text(&run, "latency-missing");
    assert!(said.contains(&format!("of {all} windows")), "{:#?}", run.warnings);
    assert!(said.contains(&format!("rest on the other {}", all / 2)), "{said}");
    let p95 = &arm(&run, "B").outcomes["latency_us_p95"];
    assert!(p95.values.len() < 6 && !p95.method.contains("one-second"), "{p95:?}");

    recorded.latencies.clear();
    let run = analyse::analyse(&recorded);
    assert!(!text(&run, "latency-missing").is_empty(), "{:#?}", run.warnings);
    assert!(!arm(&run, "B").outcomes.contains_key("latency_us_p95"));
    assert!(arm(&run, "B").outcomes.contains_key("latency_us_mean"), "bins tell it");
}

#[test]
fn what_cannot_be_read_because_it_is_encrypted_is_no_share_of_zero() {
    let mut recorded = a_record(8);
    for line in recorded.artefacts.iter_mut().filter(|l| l.arm == "B") {
        line.encrypted = true;
        line.queries.as_mut().unwrap().queries = 0;
    }
    let run = analyse::analyse(&recorded);
    let b = arm(&run, "B");
    assert_eq!(b.captured_ratio, None);
    assert!(b.artefact.as_ref().unwrap().encrypted && b.artefact.as_ref().unwrap().bytes > 0);
    let note = "the session is encrypted (TLS): queries cannot be read from packets; its size and cost hold";
    assert!(b.notes.iter().any(|n| n == note), "{:?}", b.notes);
    let shown =
        toll_report::text::text(&run, toll_report::text::ColourMode::Plain, toll_report::text::Detail::All);
    let row = |shown: &str, begin: &str| shown.lines().find(|l| l.starts_with(begin)).unwrap().to_owned();
    assert!(row(&shown, "  B ").contains(" - ") && !row(&shown, "  B ").contains("0.0%"), "{shown}");
    assert!(!b.outcomes.contains_key("caught_pct"));
    assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
    let markdown = toll_report::markdown::markdown(&run);
    assert!(row(&markdown, "| B ").contains("| - |"), "{markdown}");
    assert!(warning(&run, "artefact-not-counted").is_none(), "{:#?}", run.warnings);

    let mut arms = SyntheticArm::usual();
    arms.retain(|a| a.name == "B" || a.name == "K");
    let mut both = SyntheticRun::with(6, 8, arms).record();
    both.artefacts.iter_mut().for_each(|line| line.encrypted = true);
    let run = analyse::analyse(&both);
    let cheap = run.advice.iter().find(|a| a.starts_with("Lowest overhead: B")).expect("advice");
    assert!(cheap.ends_with("no query can be read from its packets."), "{cheap}");
}

#[test]
fn an_arm_that_was_given_up_says_how_often_it_was_tried() {
    let mut recorded = a_record(6);
    for round in 0..2 {
        fail(&mut recorded, "B", round, "tcpdump: no such interface");
    }
    recorded.trials.retain(|l| l.arm != "B" || l.round < 2);
    let run = analyse::analyse(&recorded);
    assert_eq!(
        text(&run, "trial-failed"),
        "B failed in 2 of the 2 rounds in which it was tried; not tried in the other 4: tcpdump: no such interface"
    );

    let mut recorded = a_record(6);
    fail(&mut recorded, "B", 0, "tcpdump: no such interface");
    let run = analyse::analyse(&recorded);
    assert_eq!(text(&run, "trial-failed"), "B failed in 1 of 6 rounds: tcpdump: no such interface");
}

/// Withholds this share of the host's CPU time in a window, in which the load does half of its work.
fn steal_cpu(recorded: &mut RunData, arm: &str, round: u32, share: f64) {
    let (begin, end) = window(recorded, arm, round);
    let cpus = f64::from(recorded.host.as_ref().expect("a host").cpus);
    let stolen = (share * cpus * (end - begin) as f64) as u64;
    for line in recorded.trials.iter_mut().filter(|line| line.mono_us >= end) {
        if let Some(cpu) = &mut line.cpu {
            cpu.host_steal_us += stolen;
        }
    }
    for bin in recorded.bins.iter_mut().filter(|bin| bin.mono_us > begin && bin.mono_us <= end) {
        (bin.statements, bin.latency_us_sum) = (bin.statements / 2, bin.latency_us_sum * 2);
    }
}

#[test]
fn windows_whose_cpu_the_hypervisor_withheld_are_left_out_and_the_run_is_whole_without_them() {
    let undisturbed = analyse::analyse(&a_record(12));
    let mut recorded = a_record(12);
    for (arm, round) in [("K", 2), ("K", 7), ("B", 4), ("none", 9)] {
        steal_cpu(&mut recorded, arm, round, 0.4);
    }
    // A twentieth is what a neighbour takes at any time.
    steal_cpu(&mut recorded, "none-2", 5, 0.05);
    let run = analyse::analyse(&recorded);
    let windows = run.arms.iter().map(|arm| arm.windows).sum::<u32>();
    let said = text(&run, "cpu-withheld");
    assert!(said.contains(&format!("in 4 of {} windows", windows + 4)), "{said}");
    assert!(said.ends_with("(most of K: 2 of 12)"), "{said}");
    assert_eq!(
        (arm(&run, "K").windows, arm(&run, "none").windows, arm(&run, "none-2").windows),
        (10, 11, 12)
    );
    assert!(run.complete && run.rounds_done == 12, "{:#?}", run.warnings);
    // Its overhead is what it is without the neighbours: with those windows it would be ten points higher.
    let toll = |run: &RunResult| arm(run, "K").outcomes["latency_us_mean"].toll_pct.expect("an overhead");
    assert!((toll(&run) - toll(&undisturbed)).abs() < 5.0, "{} {}", toll(&run), toll(&undisturbed));
}

#[test]
fn a_host_that_is_always_short_of_cpu_keeps_its_windows() {
    let mut recorded = a_record(9);
    for round in 0..4 {
        steal_cpu(&mut recorded, "none", round, 0.3);
        steal_cpu(&mut recorded, "K", round, 0.3);
    }
    let run = analyse::analyse(&recorded);
    assert!(warning(&run, "cpu-withheld").is_none(), "{:#?}", run.warnings);
    assert!(warning(&run, "host-steal").is_some(), "{:#?}", run.warnings);
    assert_eq!((arm(&run, "K").windows, arm(&run, "none").windows), (9, 9));
}

#[test]
fn an_arm_that_would_lose_many_windows_keeps_them_and_is_named() {
    let mut recorded = a_record(9);
    (0..5).for_each(|round| steal_cpu(&mut recorded, "B", round, 0.3));
    steal_cpu(&mut recorded, "K", 6, 0.3);
    let run = analyse::analyse(&recorded);
    assert_eq!((arm(&run, "B").windows, arm(&run, "K").windows, arm(&run, "none").windows), (9, 8, 9));
    let said = text(&run, "cpu-withheld");
    assert!(said.ends_with("(most of K: 1 of 9); in too many windows to leave out of B: 5 of 9"), "{said}");
}
