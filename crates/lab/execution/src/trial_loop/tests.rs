//! Tests of the trial loop on the simulated environment, with faults.

mod guard;
mod lengths;
mod writeback;

use super::sim_env::{BIN_US, Fault, RATE, SimEnv};
use super::{PilotTime, RunEnd, Timeouts, TrialLoop};
use toll_model::plan::noise::BinOutcome;
use toll_record::{Arm, Clock, Counted, Design, Meter as Counts, Pilot, Plan, Role, Step, Window};

fn arm(name: &str, meter: Counts, window: Window) -> Arm {
    let role = if name == "none" { "baseline" } else { "treatment" };
    let load = if meter == Counts::Driver { "toll" } else { "none" };
    let value = serde_json::json!({
        "name": name, "title": name, "role": role, "command": "", "meter": meter, "window": window, "settle_s": 0.5,
        "workload": {
            "driver": load, "profile": "read-only", "transport": "tcp", "threads": 8, "tables": 1, "rows": 9,
            "prepared": true
        },
    });
    serde_json::from_value(value).unwrap()
}

fn timed(name: &str) -> Arm {
    arm(name, Counts::Driver, Window::Time { s: 1.0 })
}

fn plan(arms: Vec<Arm>, rounds: usize) -> Plan {
    let order: Vec<String> = arms.iter().map(|arm| arm.name.clone()).collect();
    let value = serde_json::json!({
        "format": toll_record::FORMAT, "toll_version": "0", "command": [], "scenario": "x", "question": "?",
        "profile": "quick", "seed": 1, "baseline": "none", "primary": "qps", "outcomes": [], "columns": [],
        "panels": [], "margin_pct": 5.0, "alpha": 0.05, "setup": {},
        "rounds": rounds, "window_s": 1.0, "settle_s": 0.5, "gap_s": 0.0, "pilot_s": 12.0, "early_stop": false,
        "server": { "kind": "sandbox", "flavour": "mariadb", "version": "0", "address": "x", "config": [] },
        "arms": [], "order": vec![order; rounds], "jitter": 0.2, "started_wall_us": 0,
    });
    let mut plan: Plan = serde_json::from_value(value).unwrap();
    assert!(arms.iter().any(|arm| arm.role == Role::Baseline));
    plan.arms = arms;
    plan
}

fn run(plan: &Plan, sim: &mut SimEnv) -> anyhow::Result<RunEnd> {
    let mut enough = |_| Ok(false);
    TrialLoop { plan, env: sim, should_stop: &mut enough }.run()
}

use Step::{Failed, Ready, Start, Stopped, WindowBegin, WindowEnd};
const WHOLE: [Step; 5] = [Start, Ready, WindowBegin, WindowEnd, Stopped];

#[test]
fn trials_follow_the_order_of_the_plan_and_windows_lie_on_edges_after_settling() {
    let plan = plan(vec![timed("none"), timed("tool")], 2);
    let mut sim = SimEnv::new(Fault::None);
    assert_eq!(run(&plan, &mut sim).unwrap(), RunEnd::Completed);
    let arms: Vec<_> = sim.windows().iter().map(|window| window.0).collect();
    assert_eq!(arms, ["none", "tool", "none", "tool"]);
    for trial in 0..4 {
        assert_eq!(sim.steps(trial), WHOLE, "trial {trial}");
    }
    for (arm, begin, end) in sim.windows() {
        assert_eq!((begin % BIN_US, end - begin), (0, 1_000_000), "{arm}");
    }
    for ready in sim.lines.iter().filter(|line| line.step == Ready) {
        let begin = sim.lines.iter().find(|l| l.trial == ready.trial && l.step == WindowBegin).unwrap();
        let waited = begin.mono_us - ready.mono_us;
        // Settle, jitter of at most a fifth of the window, and at most two bins to the edge.
        assert!((500_000..=500_000 + 200_000 + 2 * BIN_US).contains(&waited), "{waited}");
    }
    let first: Vec<_> = sim.done.iter().take(4).map(String::as_str).collect();
    assert_eq!(first, ["load none", "on none 0", "off none", "count none"]);
    // The same plan, the same moments.
    let mut again = SimEnv::new(Fault::None);
    run(&plan, &mut again).unwrap();
    assert_eq!(again.windows(), sim.windows());
}

#[test]
fn on_the_counted_clock_a_window_waits_until_two_bins_agree() {
    let waited_us = |clock: Clock| {
        let mut tool = timed("tool");
        let process =
            serde_json::json!({ "name": "tool", "stages": [["tool"]], "stop": "TERM", "after_s": 0.0 });
        tool.treatment.processes.push(serde_json::from_value(process).unwrap());
        let mut plan = plan(vec![timed("none"), timed("slow"), tool], 1);
        (plan.clock, plan.jitter) = (clock, 0.0);
        let mut sim = SimEnv::new(Fault::None);
        sim.slow = vec![("slow", 950_000)];
        assert_eq!(run(&plan, &mut sim).unwrap(), RunEnd::Completed);
        ["none", "slow", "tool"].map(|arm| {
            let of = |step| sim.lines.iter().find(|l| l.arm == arm && l.step == step).unwrap().mono_us;
            of(WindowBegin) - of(Ready)
        })
    };
    let soon = 500_000..=500_000 + 2 * BIN_US;
    assert!(waited_us(Clock::Real).iter().all(|us| soon.contains(us)));
    let [none, slow, tool] = waited_us(Clock::Counted);
    assert!(soon.contains(&none), "{none}");
    assert!((950_000 + 2 * BIN_US..=950_000 + 5 * BIN_US).contains(&slow), "{slow}");
    // The load is paused for seven bins, and two more agree after that.
    assert!((500_000 + 9 * BIN_US..=500_000 + 12 * BIN_US).contains(&tool), "{tool}");
}

#[test]
fn sessions_that_began_under_an_arm_end_with_it() {
    let mut log = timed("log");
    log.treatment.fresh_sessions = true;
    let plan = plan(vec![timed("none"), log], 1);
    let mut sim = SimEnv::new(Fault::None);
    assert_eq!(run(&plan, &mut sim).unwrap(), RunEnd::Completed);
    let of = |what: &str| sim.done.iter().position(|done| done == what).unwrap();
    assert!(of("on log 1") < of("load log anew") && of("count log") < of("stop load"), "{:?}", sim.done);
}

#[test]
fn an_environment_without_a_load_has_whole_trials_with_a_meter_and_without_one() {
    for (counts, meter) in [(true, Counts::Driver), (false, Counts::None)] {
        let mut fresh = arm("tool", meter.clone(), Window::Time { s: 1.0 });
        fresh.treatment.fresh_sessions = true;
        let mut plan = plan(vec![arm("none", meter, Window::Time { s: 1.0 }), fresh], 4);
        // Between its parts nothing is there to be stopped.
        plan.spread = Some(toll_record::Spread { over_s: 100.0, begins: vec![2] });
        let mut sim = SimEnv::without_load(counts);
        assert_eq!(run(&plan, &mut sim).unwrap(), RunEnd::Completed);
        assert!((0..8).all(|trial| sim.steps(trial) == WHOLE), "{counts}");
        assert!(sim.done.iter().all(|done| !done.contains("load")), "{:?}", sim.done);
    }
}

#[test]
fn a_window_until_done_begins_with_its_treatment_and_ends_with_it() {
    for meter in [Counts::Driver, Counts::None] {
        let dump = arm("dump", meter.clone(), Window::Done { at_most_s: 60.0 });
        let plan = plan(vec![timed("none"), dump], 1);
        let mut sim = SimEnv::new(Fault::None);
        sim.takes = vec![("dump", 3_210_000)];
        assert_eq!(run(&plan, &mut sim).unwrap(), RunEnd::Completed);
        assert_eq!(sim.steps(1), [Start, WindowBegin, WindowEnd, Stopped]);
        let (_, begin, end) = sim.windows()[1];
        let process = sim.lines.iter().find_map(|line| line.processes.iter().find(|p| p.name == "dump"));
        let process = process.unwrap();
        assert!(begin <= process.begin_mono_us && process.begin_mono_us - begin < 20_000);
        assert!((3_210_000..3_210_000 + 2 * BIN_US).contains(&(end - process.begin_mono_us)), "{meter:?}");
        let done = sim.lines.iter().find(|l| l.trial == 1 && l.step == WindowEnd).unwrap();
        assert_eq!(done.runs, Some(1));
    }
}

#[test]
fn a_window_until_done_is_bounded() {
    let dump = arm("dump", Counts::Driver, Window::Done { at_most_s: 2.0 });
    let mut sim = SimEnv::new(Fault::None);
    run(&plan(vec![timed("none"), dump], 1), &mut sim).unwrap();
    let (_, begin, end) = sim.windows()[1];
    // From when it was on; it took 12 ms to come on.
    assert!((2_012_345..=2_012_345 + 2 * BIN_US).contains(&(end - begin)), "{}", end - begin);
}

#[test]
fn a_window_until_a_count_ends_once_the_meter_has_counted_so_much() {
    let window = Window::Count { of: Counted::Statements, count: 2_500, at_most_s: 60.0 };
    let mut sim = SimEnv::new(Fault::None);
    run(&plan(vec![timed("none"), arm("count", Counts::Driver, window)], 1), &mut sim).unwrap();
    let (_, begin, end) = sim.windows()[1];
    assert!((2_500_000..=2_500_000 + 2 * BIN_US).contains(&(end - begin)), "{}", end - begin);
}

#[test]
fn whatever_fails_the_treatment_is_off_and_the_next_trial_is_whole() {
    for (fault, steps) in [
        (Fault::Start("tool"), &[Start, Failed][..]),
        (Fault::Dies("tool", 100_000), &[Start, Ready, Stopped, Failed]),
        (Fault::Dies("tool", 900_000), &[Start, Ready, WindowBegin, Stopped, Failed]),
        (Fault::NoLoad("tool"), &[Failed]),
        (Fault::Silent("tool"), &[Start, Ready, WindowBegin, Stopped, Failed]),
    ] {
        let plan = plan(vec![timed("none"), timed("tool"), timed("count")], 3);
        let mut sim = SimEnv::new(fault);
        assert_eq!(run(&plan, &mut sim).unwrap(), RunEnd::Completed, "{fault:?}");
        assert!(sim.on.is_none());
        assert_eq!(sim.steps(1), steps, "{fault:?}");
        assert_eq!(sim.steps(2), WHOLE, "{fault:?}");
        // Twice tried, and given up: the third round goes without it.
        assert_eq!(sim.steps(4), steps, "{fault:?}");
        assert!(sim.steps(7).is_empty(), "{fault:?}");
        assert_eq!(sim.windows().len(), 6, "{fault:?}");
    }
}

#[test]
fn a_treatment_that_ends_by_itself_though_it_should_last_has_failed() {
    let mut sim = SimEnv::new(Fault::None);
    sim.takes = vec![("tool", 700_000)];
    run(&plan(vec![timed("none"), timed("tool")], 1), &mut sim).unwrap();
    assert_eq!(sim.steps(1), [Start, Ready, WindowBegin, Stopped, Failed]);
    let failed = sim.lines.iter().find(|line| line.step == Failed).unwrap();
    assert_eq!(failed.note.as_deref(), Some("it ended by itself"));
}

#[test]
fn an_interruption_at_any_moment_leaves_nothing_on() {
    let dump = arm("dump", Counts::None, Window::Done { at_most_s: 60.0 });
    let plan = plan(vec![timed("none"), timed("tool"), dump], 2);
    let mut whole = SimEnv::new(Fault::None);
    whole.takes = vec![("dump", 1_500_000)];
    run(&plan, &mut whole).unwrap();
    let (first, last) = (1_000_030, whole.now_us.get());
    for at in (first..last).step_by(37_003) {
        let mut sim = SimEnv::new(Fault::Interrupt(at));
        sim.takes = vec![("dump", 1_500_000)];
        assert_eq!(run(&plan, &mut sim).unwrap(), RunEnd::Interrupted, "{at}");
        assert!(sim.on.is_none(), "{at}");
        assert!(sim.now_us.get() - at < 20_000, "{at}: {} us late", sim.now_us.get() - at);
        // Every window that was closed is whole, and what was counted is what was measured.
        let counted = sim.done.iter().filter(|done| done.starts_with("count")).count();
        assert_eq!(counted, sim.windows().len(), "{at}");
    }
}

#[test]
fn a_baseline_that_fails_ends_the_run_and_one_that_worked_is_tried_again() {
    let plan = plan(vec![timed("none"), timed("tool")], 2);
    let mut sim = SimEnv::new(Fault::NoLoad("none"));
    let error = run(&plan, &mut sim).unwrap_err();
    assert!(
        format!("{error:#}").starts_with("the baseline failed: the driver delivers nothing"),
        "{error:#}"
    );
}

#[test]
fn what_cannot_be_put_back_ends_the_run_there() {
    let plan = plan(vec![timed("none"), timed("tool")], 3);
    let mut sim = SimEnv::new(Fault::StaysOn("tool"));
    let RunEnd::Aborted(why) = run(&plan, &mut sim).unwrap() else { panic!("it went on") };
    assert!(why.starts_with("arm tool stays on"), "{why}");
    assert!(sim.steps(2).is_empty());
    // Of the kernel's settings there is nothing that could be put back once more.
    let mut sim = SimEnv::new(Fault::KernelStaysOn("tool"));
    let RunEnd::Aborted(why) = run(&plan, &mut sim).unwrap() else { panic!("it went on") };
    assert!(why.starts_with("arm tool stays on") && why.contains("toll clean"), "{why}");
    assert!(sim.steps(2).is_empty());
}

#[test]
fn for_a_second_opinion_each_capture_is_on_once_more_with_new_sessions_and_nothing_reaches_the_run() {
    let mut capture = timed("tool");
    capture.artefact = Some(toll_record::ArtefactKind::Pcap);
    let plan = plan(vec![timed("none"), capture], 2);
    let mut sim = SimEnv::new(Fault::None);
    run(&plan, &mut sim).unwrap();
    let (lines, done) = (sim.lines.len(), sim.done.len());
    let mut enough = |_| Ok(false);
    TrialLoop { plan: &plan, env: &mut sim, should_stop: &mut enough }.cross_check_artefacts().unwrap();
    // Under a number that no trial of the plan has.
    let after = ["load tool", "on tool 4", "load tool anew", "off tool", "count tool", "stop load"];
    assert_eq!(sim.done[done..], after);
    assert_eq!(sim.lines.len(), lines);
}

#[test]
fn a_second_opinion_that_cannot_be_had_is_no_failure_but_a_treatment_that_stays_on_is() {
    let mut capture = timed("tool");
    capture.artefact = Some(toll_record::ArtefactKind::Pcap);
    let plan = plan(vec![timed("none"), capture], 1);
    let mut enough = |_| Ok(false);
    let mut opinion = |fault| {
        let mut sim = SimEnv::new(fault);
        TrialLoop { plan: &plan, env: &mut sim, should_stop: &mut enough }.cross_check_artefacts()
    };
    assert!(opinion(Fault::Start("tool")).is_ok());
    let error = opinion(Fault::StaysOn("tool")).unwrap_err();
    assert!(format!("{error:#}").starts_with("arm tool stays on"), "{error:#}");
}

#[test]
fn a_restart_is_not_the_arms_failure() {
    // The looks: before each trial, and after a failure.
    let plan = plan(vec![timed("none"), timed("tool")], 3);
    let mut sim = SimEnv::new(Fault::Restart(3));
    sim.takes = vec![("tool", 100_000)];
    run(&plan, &mut sim).unwrap();
    let failed: Vec<_> = sim.lines.iter().filter(|line| line.step == Failed).collect();
    assert!(failed[0].note.as_deref().unwrap().starts_with("the server restarted: "));
    // Two failures of its own, after the one that was not.
    assert_eq!(failed.len(), 3);
}

#[test]
fn capacity_and_rehearsal_are_trials_of_which_nothing_reaches_the_run() {
    let dump = arm("dump", Counts::Driver, Window::Time { s: 1.0 });
    let plan = plan(vec![timed("none"), dump], 1);
    let mut sim = SimEnv::new(Fault::None);
    sim.takes = vec![("dump", 400_000)];
    let mut enough = |_| Ok(false);
    let mut trial_loop = TrialLoop { plan: &plan, env: &mut sim, should_stop: &mut enough };
    let per_s = trial_loop.measure_capacity(plan.arms[0].clone()).unwrap();
    assert!((per_s - RATE as f64).abs() < 1.0, "{per_s}");
    let ends = toll_model::scenario::OnExit::Rehearse;
    let timeouts = Timeouts { try_s: 1.5, window_s: Some(1.0) };
    let dry_run = trial_loop.dry_run("dump", ends, timeouts).unwrap().unwrap();
    assert_eq!(dry_run.window, Window::Done { at_most_s: 1.0 });
    assert!(dry_run.switching.done_s.is_some_and(|s| (0.4..0.5).contains(&s)), "{dry_run:?}");
    // Without a window that the user gave, room for three of it.
    let timeouts = Timeouts { try_s: 1.5, window_s: None };
    let dry_run = trial_loop.dry_run("dump", ends, timeouts).unwrap().unwrap();
    assert_eq!(dry_run.window, Window::Done { at_most_s: 2.0 });
    sim.takes = vec![("dump", 10_000_000)];
    let mut trial_loop = TrialLoop { plan: &plan, env: &mut sim, should_stop: &mut enough };
    let dry_run = trial_loop.dry_run("dump", ends, timeouts).unwrap().unwrap();
    assert_eq!((dry_run.window, dry_run.switching.done_s), (Window::Time { s: 1.0 }, None));
    assert!(sim.lines.is_empty());
    assert!(sim.on.is_none());
}

/// The pilot of a plan in that sim.
fn pilot(plan: &Plan, sim: &mut SimEnv, time: PilotTime, ending: &[&str]) -> anyhow::Result<Pilot> {
    TrialLoop { plan, env: sim, should_stop: &mut |_| Ok(false) }.run_pilot(BinOutcome::Latency, time, ending)
}

#[test]
fn the_pilot_finds_the_noise_and_what_switching_each_arm_takes_and_nothing_of_it_reaches_the_run() {
    let plan = plan(vec![timed("none"), timed("tool"), timed("count"), timed("dump")], 1);
    let mut sim = SimEnv::new(Fault::None);
    sim.slow = vec![("tool", 2_500_000)];
    sim.counts_for_us = 70_000;
    let time = PilotTime { baseline_s: 30.0, arms_s: 30.0 };
    let begun = sim.now_us.get();
    let pilot = pilot(&plan, &mut sim, time, &["dump"]).unwrap();
    assert!(sim.lines.is_empty() && sim.on.is_none() && sim.barrier.is_some());
    let took_s = (sim.now_us.get() - begun) as f64 / 1e6;
    assert!((45.0..=66.0).contains(&took_s), "{took_s}");

    let noise = pilot.noise.unwrap();
    // A hundredth up and down: about .6% in bins of 0.1 s.
    let near = toll_model::plan::noise::difference_variance(&noise, 0.1, 0.1).sqrt();
    assert!((0.004..0.02).contains(&near), "{noise:?}");
    assert!(pilot.events_per_s.is_some_and(|per_s| (per_s - RATE as f64).abs() < 1.0));

    let names: Vec<_> = pilot.arms.keys().map(String::as_str).collect();
    assert_eq!(names, ["count", "none", "tool"], "what may end is rehearsed, not tried");
    let tool = &pilot.arms["tool"];
    assert!(tool.settle_s.is_some_and(|s| (1.6..=2.6).contains(&s)), "{tool:?}");
    assert_eq!(pilot.arms["count"].settle_s, Some(0.5), "never less than the plan says");
    for (name, arm) in &pilot.arms {
        assert!((0.012..0.4).contains(&arm.around_s) && arm.start_s == Some(0.012345), "{name} {arm:?}");
        assert!(arm.leave_s.is_some_and(|s| s < 0.3) && arm.count_s_per_s > 0.005, "{name} {arm:?}");
    }
}

#[test]
fn a_short_pilot_looks_at_the_baseline_alone_and_one_of_nothing_at_nothing() {
    let plan = plan(vec![timed("none"), timed("tool")], 1);
    let mut sim = SimEnv::new(Fault::None);
    let found = pilot(&plan, &mut sim, PilotTime { baseline_s: 5.0, arms_s: 1.0 }, &[]).unwrap();
    assert!(found.noise.is_some() && found.arms.is_empty());
    let mut sim = SimEnv::new(Fault::None);
    let found = pilot(&plan, &mut sim, PilotTime { baseline_s: 0.0, arms_s: 0.0 }, &[]).unwrap();
    assert_eq!((found.noise, sim.done.len()), (None, 0));
}

#[test]
fn an_arm_that_fails_in_the_pilot_is_left_to_its_rounds_and_one_that_stays_on_ends_the_run() {
    let plan = plan(vec![timed("none"), timed("tool"), timed("count")], 1);
    let time = PilotTime { baseline_s: 5.0, arms_s: 12.0 };
    let mut sim = SimEnv::new(Fault::Start("tool"));
    let found = pilot(&plan, &mut sim, time, &[]).unwrap();
    assert_eq!(found.arms.keys().collect::<Vec<_>>(), ["count", "none"]);
    let error = pilot(&plan, &mut SimEnv::new(Fault::StaysOn("tool")), time, &[]).unwrap_err();
    assert!(format!("{error:#}").starts_with("variant tool failed in the pilot"), "{error:#}");
    let error = pilot(&plan, &mut SimEnv::new(Fault::NoLoad("none")), time, &[]).unwrap_err();
    assert!(format!("{error:#}").contains("the driver delivers nothing"), "{error:#}");
}

#[test]
fn a_pilot_that_is_interrupted_at_any_moment_leaves_nothing_on() {
    let plan = plan(vec![timed("none"), timed("tool")], 1);
    let time = PilotTime { baseline_s: 6.0, arms_s: 10.0 };
    let mut whole = SimEnv::new(Fault::None);
    pilot(&plan, &mut whole, time, &[]).unwrap();
    for at in (1_000_030..whole.now_us.get()).step_by(137_003) {
        let mut sim = SimEnv::new(Fault::Interrupt(at));
        pilot(&plan, &mut sim, time, &[]).unwrap();
        assert!(sim.on.is_none() && sim.lines.is_empty(), "{at}");
        assert!(sim.now_us.get() - at < 20_000, "{at}: {} us late", sim.now_us.get() - at);
    }
}

#[test]
fn a_round_that_would_not_end_in_the_time_given_is_not_begun() {
    // .5 + .1 + 1 and what lies around it, twice: about 3.5 s.
    let mut plan = plan(vec![timed("none"), timed("tool")], 20);
    plan.time_s = Some(20.0);
    let mut sim = SimEnv::new(Fault::None);
    let begun = sim.now_us.get();
    assert_eq!(run(&plan, &mut sim).unwrap(), RunEnd::Completed);
    let took_s = (sim.now_us.get() - begun) as f64 / 1e6;
    let windows = sim.windows().len();
    assert!(windows.is_multiple_of(2) && (15.0..=20.0).contains(&took_s), "{windows} {took_s}");
    // Trials that take longer than predicted take rounds with them.
    let mut slow = SimEnv::new(Fault::None);
    slow.counts_for_us = 3_000_000;
    run(&plan, &mut slow).unwrap();
    assert!((slow.now_us.get() - begun) as f64 / 1e6 <= 20.0 && slow.windows().len() == 4);
    // One round is carried out in any case, and all of a plan without a time.
    plan.time_s = Some(0.1);
    let mut one = SimEnv::new(Fault::None);
    run(&plan, &mut one).unwrap();
    assert_eq!(one.windows().len(), 2);
    plan.time_s = None;
    let mut all = SimEnv::new(Fault::None);
    run(&plan, &mut all).unwrap();
    assert_eq!(all.windows().len(), 40);
}

#[test]
fn each_arm_settles_for_its_own_time() {
    let mut plan = plan(vec![timed("none"), Arm { settle_s: 3.0, ..timed("tool") }], 2);
    plan.jitter = 0.0;
    let mut sim = SimEnv::new(Fault::None);
    run(&plan, &mut sim).unwrap();
    for ready in sim.lines.iter().filter(|line| line.step == Ready) {
        let begin = sim.lines.iter().find(|l| l.trial == ready.trial && l.step == WindowBegin).unwrap();
        let asked = if ready.arm == "tool" { 3_000_000 } else { 500_000 };
        assert!((asked..=asked + 2 * BIN_US).contains(&(begin.mono_us - ready.mono_us)), "{}", ready.arm);
    }
}

#[test]
fn how_small_an_effect_is_found_is_shown_from_the_first_rounds_that_can_tell() {
    let mut plan = plan(vec![timed("none"), timed("tool"), timed("other")], 12);
    plan.outcomes.clone_from(&toll_record::catalogue::CATALOGUE.outcomes);
    let mut sim = SimEnv::new(Fault::None);
    run(&plan, &mut sim).unwrap();
    // Six rounds are the fewest; the simulated load never varies.
    assert_eq!(*sim.shown.borrow(), [0.0; 7]);
    plan.primary = "cpu_us_per_query".into();
    let mut sim = SimEnv::new(Fault::None);
    run(&plan, &mut sim).unwrap();
    assert!(sim.shown.borrow().is_empty(), "the load's bins say nothing of CPU");
}

#[test]
fn parts_of_a_run_begin_when_they_are_due_with_the_load_at_rest_between_them() {
    let mut plan = plan(vec![timed("none"), timed("tool")], 6);
    plan.spread = Some(toll_record::Spread { over_s: 3_000.0, begins: vec![2, 4] });
    // What lies between the parts is not of the time that is given.
    plan.time_s = Some(60.0);
    let mut sim = SimEnv::new(Fault::None);
    let begun_us = sim.now_us.get();
    assert_eq!(run(&plan, &mut sim).unwrap(), RunEnd::Completed);
    let begins: Vec<u64> = sim.windows().iter().map(|window| window.1 - begun_us).collect();
    assert_eq!(begins.len(), 12);
    assert!(begins[3] < 10_000_000 && begins[7] < 1_020_000_000, "{begins:?}");
    for (window, due_us) in [(4, 1_000_000_000), (8, 2_000_000_000)] {
        // Warmed up for five seconds, then settled.
        let late_us = begins[window] - due_us;
        assert!((5_000_000..9_000_000).contains(&late_us), "{window}: {late_us}");
    }
    assert_eq!(sim.done.iter().filter(|done| *done == "stop load").count(), 2, "{:?}", sim.done);

    let mut interrupted = SimEnv::new(Fault::Interrupt(500_000_000));
    assert_eq!(run(&plan, &mut interrupted).unwrap(), RunEnd::Interrupted);
    assert_eq!(interrupted.windows().len(), 4, "the first part");
}

#[test]
fn each_part_of_a_run_that_is_slower_than_predicted_has_its_rounds() {
    let mut plan = plan(vec![timed("none"), timed("tool")], 12);
    plan.spread = Some(toll_record::Spread { over_s: 3_000.0, begins: vec![4, 8] });
    // Half of what twelve rounds take.
    plan.time_s = Some(21.0);
    let mut sim = SimEnv::new(Fault::None);
    assert_eq!(run(&plan, &mut sim).unwrap(), RunEnd::Completed);
    let mut rounds = [0; 3];
    for line in sim.lines.iter().filter(|line| line.step == WindowEnd) {
        rounds[plan.part_index(line.round)] += 1;
        assert_eq!(line.trial / 2, line.round);
    }
    assert!(rounds.iter().all(|windows| (4..=6).contains(windows)), "{rounds:?}");
}
