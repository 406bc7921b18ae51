//! Tests of the wait for writeback before a trial.

use super::*;
use crate::trial_loop::writeback::WritebackBarrier;
use std::time::Duration;

const MIB: u64 = 1 << 20;

#[test]
fn a_trial_waits_until_no_more_is_unwritten_than_under_the_baseline() {
    let mut sim = SimEnv::new(Fault::None);
    sim.barrier = WritebackBarrier::from_samples(
        [10, 40, 20, 30].map(|mib| mib * MIB).to_vec(),
        Duration::from_secs(5),
    );
    sim.unwritten = |now_us| (190 * MIB).saturating_sub((now_us - 1_000_030) / 100_000 * 30 * MIB);
    run(&plan(vec![timed("none")], 1), &mut sim).unwrap();
    let start = &sim.lines[0];
    assert_eq!((start.mono_us - 1_000_030, start.note.as_deref()), (300_000, None));
}

#[test]
fn a_disk_that_never_catches_up_is_noted_and_not_waited_for_for_ever() {
    let mut sim = SimEnv::new(Fault::None);
    sim.barrier = WritebackBarrier::from_samples(vec![0], Duration::from_millis(75));
    sim.unwritten = |_| 900 * MIB;
    run(&plan(vec![timed("none")], 1), &mut sim).unwrap();
    let start = &sim.lines[0];
    assert_eq!(start.mono_us - 1_000_030, 200_000);
    assert!(start.note.as_ref().is_some_and(|note| note.contains("943 MB") && note.contains("--gap")));
    assert!(WritebackBarrier::from_samples(Vec::new(), Duration::from_secs(1)).is_none());
}
