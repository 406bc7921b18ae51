//! Windows of rounds that have lengths of their own.

use super::*;

#[test]
fn long_rounds_have_long_windows_for_what_lasts_for_a_time() {
    let dump = arm("dump", Counts::Driver, Window::Done { at_most_s: 60.0 });
    let mut plan = plan(vec![timed("none"), timed("tool"), dump], 3);
    plan.long = Some(toll_record::Long { window_s: 4.0, rounds: vec![1] });
    let mut sim = SimEnv::new(Fault::None);
    sim.takes = vec![("dump", 700_000)];
    run(&plan, &mut sim).unwrap();
    let lengths: Vec<u64> =
        sim.windows().iter().filter(|w| w.0 != "dump").map(|w| (w.2 - w.1) / 100_000).collect();
    assert_eq!(lengths, [10, 10, 40, 40, 10, 10]);
    assert!(sim.windows().iter().all(|w| w.0 != "dump" || w.2 - w.1 < 1_000_000));
}

#[test]
fn the_first_blocks_have_the_short_windows_that_raise_the_exposure() {
    let mut plan = plan(vec![timed("none"), timed("tool")], 3);
    plan.design = Design::Blocks { ramp_s: vec![0.2, 0.5] };
    let mut sim = SimEnv::new(Fault::None);
    run(&plan, &mut sim).unwrap();
    let lengths = sim.windows().into_iter().map(|(_, begin, end)| (end - begin) / 1_000);
    assert!(lengths.eq([200, 200, 500, 500, 1_000, 1_000]), "{:?}", sim.windows());
}

#[test]
fn blocks_end_within_the_time_given_whatever_the_short_ones_before_took() {
    let mut plan = plan(vec![timed("none"), timed("tool")], 20);
    plan.design = Design::Blocks { ramp_s: vec![0.1; 4] };
    plan.jitter = 0.0;
    for tenths in 100..300 {
        plan.time_s = Some(f64::from(tenths) / 10.0);
        let mut sim = SimEnv::new(Fault::None);
        let begun_us = sim.now_us.get();
        assert_eq!(run(&plan, &mut sim).unwrap(), RunEnd::Completed);
        let took_s = (sim.now_us.get() - begun_us) as f64 / 1e6;
        assert!(sim.windows().len() < 40 && Some(took_s) <= plan.time_s, "{:?}: {took_s} s", plan.time_s);
    }
}
