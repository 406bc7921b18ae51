//! Tests of a guard that ends the run, and leaves nothing on.

use super::*;
use crate::trial_loop::sim_env::TripAt;
use crate::trial_loop::writeback::WritebackBarrier;
use std::time::Duration;

/// So late at most is it known that a guard has tripped.
const LATE_US: u64 = 250_000;

/// When a step of a trial was.
fn step_us(sim: &SimEnv, trial: u32, step: Step) -> u64 {
    sim.lines.iter().find(|line| line.trial == trial && line.step == step).unwrap().mono_us
}

#[test]
fn a_guard_that_trips_has_the_treatment_off_the_reason_recorded_and_no_later_arm_on() {
    let mut plan = plan(vec![timed("none"), timed("tool"), timed("count")], 2);
    plan.gap_s = 1.0;
    let mut whole = SimEnv::new(Fault::None);
    run(&plan, &mut whole).unwrap();
    let [ready, begin, stopped] = [Ready, WindowBegin, Stopped].map(|step| step_us(&whole, 1, step));
    for (at, steps, last) in [
        (ready + 100_000, &[Start, Ready, Stopped, Failed][..], "discard tool"),
        (begin + 310_000, &[Start, Ready, WindowBegin, Stopped, Failed], "discard tool"),
        // What was measured before it holds.
        (stopped + 500_000, &WHOLE, "count tool"),
    ] {
        let mut sim = SimEnv::new(Fault::None);
        sim.guard = Some(TripAt::new(at));
        assert_eq!(run(&plan, &mut sim).unwrap(), RunEnd::Aborted("too slow".into()), "{last}");
        assert_eq!(sim.steps(1), steps);
        assert_eq!(sim.cuts, ["too slow"], "{last}");
        assert!(sim.on.is_none() && sim.steps(2).is_empty());
        assert_eq!(sim.done.last().unwrap(), last);
        assert!(sim.now_us.get() - at <= LATE_US, "{} us late", sim.now_us.get() - at);
        let failed = sim.lines.iter().find(|line| line.step == Failed);
        assert!(failed.is_none_or(|line| line.note.as_deref() == Some("too slow")), "{failed:?}");
    }
}

#[test]
fn a_guard_that_trips_at_any_moment_leaves_nothing_on() {
    let dump = arm("dump", Counts::None, Window::Done { at_most_s: 60.0 });
    let mut plan = plan(vec![timed("none"), timed("tool"), dump], 2);
    plan.gap_s = 0.3;
    let mut whole = SimEnv::new(Fault::None);
    whole.takes = vec![("dump", 1_500_000)];
    // One that never trips changes no moment, and is asked again and again.
    let mut guarded = SimEnv::new(Fault::None);
    guarded.takes.clone_from(&whole.takes);
    guarded.guard = Some(TripAt::new(u64::MAX));
    run(&plan, &mut whole).unwrap();
    run(&plan, &mut guarded).unwrap();
    assert_eq!(guarded.windows(), whole.windows());
    let asked_us = &guarded.guard.as_ref().unwrap().asked_us;
    assert!(asked_us.windows(2).all(|pair| pair[1] - pair[0] <= LATE_US));
    let (first, last) = (1_000_030, *asked_us.last().unwrap());
    for at in (first..last).step_by(37_003) {
        let mut sim = SimEnv::new(Fault::None);
        sim.takes.clone_from(&whole.takes);
        sim.guard = Some(TripAt::new(at));
        match run(&plan, &mut sim) {
            Ok(ending) => assert_eq!(ending, RunEnd::Aborted("too slow".into()), "{at}"),
            // Nothing was measured yet.
            Err(error) => assert!(error.to_string() == "too slow" && sim.windows().is_empty(), "{at}"),
        }
        assert!(sim.on.is_none(), "{at}");
        assert!(sim.now_us.get().saturating_sub(at) <= LATE_US, "{at}: {} us late", sim.now_us.get() - at);
        let counted = sim.done.iter().filter(|done| done.starts_with("count")).count();
        assert_eq!(counted, sim.windows().len(), "{at}");
    }
}

#[test]
fn a_guard_that_trips_between_two_windows_has_no_other_switched_on() {
    // Without a rest between two trials nothing waits there; artefacts are counted meanwhile.
    let plan = plan(vec![timed("none"), timed("tool"), timed("other")], 2);
    let mut whole = SimEnv::new(Fault::None);
    whole.counts_for_us = 400_000;
    run(&plan, &mut whole).unwrap();
    let (first, last) = (step_us(&whole, 0, Stopped), step_us(&whole, 5, Start));
    for at in (first..last).step_by(50_021) {
        let mut sim = SimEnv::new(Fault::None);
        sim.counts_for_us = whole.counts_for_us;
        sim.guard = Some(TripAt::new(at));
        // What is switched on after the trip fails in the simulation.
        assert_eq!(run(&plan, &mut sim).unwrap(), RunEnd::Aborted("too slow".into()), "{at}");
        assert!(sim.on.is_none(), "{at}");
    }
}

#[test]
fn a_treatment_that_the_guard_has_ended_has_not_failed_by_itself() {
    let plan = plan(vec![timed("none"), timed("tool")], 2);
    let mut whole = SimEnv::new(Fault::None);
    run(&plan, &mut whole).unwrap();
    let [ready, stopped] = [Ready, Stopped].map(|step| step_us(&whole, 1, step));
    for at in (ready + 1_000..stopped - 100_000).step_by(7_001) {
        let mut sim = SimEnv::new(Fault::Dies("tool", at + 1 - ready));
        sim.guard = Some(TripAt::new(at));
        assert_eq!(run(&plan, &mut sim).unwrap(), RunEnd::Aborted("too slow".into()), "{at}");
        let failed = sim.lines.iter().find(|line| line.step == Failed).unwrap();
        assert_eq!(failed.note.as_deref(), Some("too slow"), "{at}");
    }
}

#[test]
fn a_guard_that_trips_while_a_trial_waits_for_writeback_keeps_its_arm_off() {
    let mut sim = SimEnv::new(Fault::None);
    sim.barrier = WritebackBarrier::from_samples(vec![0], Duration::from_secs(5));
    sim.unwritten = |now_us| if now_us > 2_000_000 { 1 << 30 } else { 0 };
    sim.guard = Some(TripAt::new(5_000_000));
    let ending = run(&plan(vec![timed("none"), timed("tool")], 2), &mut sim).unwrap();
    assert_eq!(ending, RunEnd::Aborted("too slow".into()));
    assert_eq!((sim.steps(1), sim.steps(2)), (vec![Failed], vec![]));
    assert!(!sim.done.contains(&"on tool 1".to_owned()) && sim.now_us.get() <= 5_000_000 + LATE_US);
}

#[test]
fn a_guard_that_trips_while_a_treatment_stays_on_ends_the_run_with_both_reasons() {
    let plan = plan(vec![timed("none"), timed("tool")], 3);
    let mut whole = SimEnv::new(Fault::None);
    run(&plan, &mut whole).unwrap();
    let mut sim = SimEnv::new(Fault::StaysOn("tool"));
    sim.guard = Some(TripAt::new(step_us(&whole, 1, WindowBegin) + 300_000));
    let RunEnd::Aborted(why) = run(&plan, &mut sim).unwrap() else { panic!("it went on") };
    assert!(why.starts_with("too slow: ") && why.contains("arm tool stays on"), "{why}");
}

#[test]
fn a_guard_that_trips_in_the_pilot_a_rehearsal_or_a_second_opinion_ends_the_run() {
    let mut capture = timed("tool");
    capture.artefact = Some(toll_record::ArtefactKind::Pcap);
    let plan = plan(vec![timed("none"), capture], 1);
    let tripping = |at_us| {
        let mut sim = SimEnv::new(Fault::None);
        sim.guard = Some(TripAt::new(at_us));
        sim
    };
    let time = PilotTime { baseline_s: 6.0, arms_s: 10.0 };
    for at_us in (2_000_000..14_000_000).step_by(330_007) {
        let mut sim = tripping(at_us);
        assert_eq!(pilot(&plan, &mut sim, time, &[]).unwrap_err().to_string(), "too slow");
        assert!(sim.on.is_none() && sim.lines.is_empty() && sim.now_us.get() <= at_us + LATE_US);
    }

    let mut enough = |_| Ok(false);
    let mut sim = tripping(2_000_000);
    let mut trial_loop = TrialLoop { plan: &plan, env: &mut sim, should_stop: &mut enough };
    let timeouts = Timeouts { try_s: 5.0, window_s: None };
    let error = trial_loop.dry_run("tool", toll_model::scenario::OnExit::Rehearse, timeouts).unwrap_err();
    assert_eq!(format!("{error:#}"), "too slow");
    assert!(sim.on.is_none());

    let mut sim = tripping(2_000_000);
    let error = TrialLoop { plan: &plan, env: &mut sim, should_stop: &mut enough }
        .cross_check_artefacts()
        .unwrap_err();
    assert_eq!(error.to_string(), "too slow");
    assert!(sim.on.is_none());
}

#[test]
fn a_guard_that_trips_between_two_parts_of_a_run_ends_it_there() {
    let mut plan = plan(vec![timed("none"), timed("tool")], 4);
    plan.spread = Some(toll_record::Spread { over_s: 1_000.0, begins: vec![2] });
    let mut sim = SimEnv::new(Fault::None);
    sim.guard = Some(TripAt::new(300_000_000));
    assert_eq!(run(&plan, &mut sim).unwrap(), RunEnd::Aborted("too slow".into()));
    assert_eq!(sim.cuts, ["too slow"]);
    assert!(sim.windows().len() == 4 && sim.now_us.get() <= 300_000_000 + LATE_US, "{}", sim.now_us.get());
}
