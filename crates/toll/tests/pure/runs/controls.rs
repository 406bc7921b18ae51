//! Tests that controls are judged by their known effect, and that doses are found in their size.

use super::analysis::warning_codes;
use super::synthetic::{SyntheticArm, SyntheticRun};
use toll_analysis as analyse;
use toll_record::*;

#[test]
fn controls_are_found_as_expected() {
    let run = analyse::analyse(&SyntheticRun::with(11, 30, SyntheticArm::usual()).record());
    assert_eq!(run.aa.as_ref().unwrap().ok, Some(true));
    let [sleep, burn] = &run.controls[..] else { panic!("{:?}", run.controls) };
    assert_eq!((sleep.ok, burn.ok), (Some(true), Some(true)), "{sleep:?} {burn:?}");
    // A quarter of a CPU where two are busy: .25 / 1.75.
    assert_eq!(burn.outcome, "cpu_us_per_query");
    assert!((burn.expected_pct - 100.0 / 7.0).abs() < 0.01, "{}", burn.expected_pct);
}

#[test]
fn a_control_that_burns_nothing_is_missed() {
    let mut fake = SyntheticArm::new("burn", Role::PositiveControl, 1.0);
    (fake.burn_share, fake.burns) = (Some(0.5), Some(0.0));
    let run = analyse::analyse(&SyntheticRun::with(3, 10, vec![fake]).record());
    assert_eq!(run.controls[0].ok, Some(false));
    assert!(warning_codes(&run).contains(&"control-missed"));
    let says = "burn got 0.0% of the host's CPU time of the 25% that it was set to burn";
    assert!(run.controls[0].text.starts_with(says), "{}", run.controls[0].text);
}

#[test]
fn a_placebo_that_costs_less_than_the_margin_does_nothing() {
    let placebo = |cost: f64| {
        let arm = SyntheticArm::new("sleep", Role::Placebo, cost);
        let run = SyntheticRun { noise: (0.001, 0.002), ..SyntheticRun::with(3, 40, vec![arm]) };
        let result = analyse::analyse(&run.record());
        let [low, high] = result.controls[0].ci95_pct.unwrap();
        assert!(low > 0.0 || high < 0.0, "its interval contains zero: {low} {high}");
        result.controls[0].ok
    };
    assert_eq!(placebo(1.02), Some(true), "no effect by the margin of the run");
    assert_eq!(placebo(1.2), Some(false));
}

#[test]
fn a_bench_that_does_not_see_what_was_burnt_is_told_from_a_host_that_works_cheaper() {
    // The burner used its half of a CPU, and yet a query costs the host what it always does.
    let mut burn = SyntheticArm::new("burn", Role::PositiveControl, 1.0);
    (burn.burn_share, burn.burns, burn.spares_others) = (Some(0.5), Some(0.5), true);
    let blind = analyse::analyse(&SyntheticRun::with(3, 10, vec![burn.clone()]).record());
    assert!(
        blind.controls[0].ok == Some(false) && warning_codes(&blind).contains(&"control-missed"),
        "{:?}",
        blind.controls
    );
    // The same where server and driver used so much less.
    burn.spares_others = false;
    let cheaper = analyse::analyse(&SyntheticRun::with(3, 10, vec![burn]).record());
    let control = &cheaper.controls[0];
    assert!(control.ok == Some(true) && !warning_codes(&cheaper).contains(&"control-missed"), "{control:?}");
    assert!((control.expected_pct - 100.0 / 3.0).abs() < 0.01, "{control:?}");
    assert!(control.text.contains("expected +33.3%, measured "), "{}", control.text);
    assert!(control.text.contains("server and driver used 2"), "{}", control.text);
    assert!(
        control.text.ends_with("uses less CPU under contention, and the measurement contains both"),
        "{}",
        control.text
    );
}

#[test]
fn a_burner_that_the_host_starved_is_judged_by_what_it_used() {
    let mut burn = SyntheticArm::new("burn", Role::PositiveControl, 1.0 / (1.0 - 0.2 / 2.0));
    (burn.burn_share, burn.burns) = (Some(0.25), Some(0.2));
    let run = analyse::analyse(&SyntheticRun::with(3, 12, vec![burn]).record());
    let control = &run.controls[0];
    assert!(control.ok == Some(true) && (control.expected_pct - 100.0 / 9.0).abs() < 0.01, "{control:?}");
    let says = "burn got 10.0% of the host's CPU time of the 12.5% that it was set to burn: cpu_us_per_query";
    assert!(control.text.starts_with(says), "{}", control.text);
}

#[test]
fn doses_are_found_in_their_size_and_the_smallest_that_is_told_from_none_is_named() {
    let burn = |name, cpus: f64| {
        let mut arm = SyntheticArm::new(name, Role::PositiveControl, 1.0 / (1.0 - cpus / 2.0));
        (arm.burn_share, arm.burns) = (Some(cpus), Some(cpus));
        arm
    };
    let delay = |name, pct| {
        let mut arm = SyntheticArm::new(name, Role::PositiveControl, 1.0);
        arm.delay_pct = Some(pct);
        arm
    };
    let arms = vec![
        burn("b-5", 0.1),
        burn("b-20", 0.4),
        burn("b-0", 0.002),
        delay("d-20", 20.0),
        delay("d-40", 40.0),
    ];
    let run = analyse::analyse(&SyntheticRun::with(11, 14, arms).record());
    let [cpu, delay] = &run.doses[..] else { panic!("{:?}", run.doses) };
    let names: Vec<_> = cpu.doses.iter().map(|dose| dose.arm.as_str()).collect();
    assert_eq!(names, ["b-0", "b-5", "b-20"]);
    assert_eq!((cpu.outcome.as_str(), delay.outcome.as_str()), ("cpu_us_per_query", "latency_us_mean"));
    for line in [cpu, delay] {
        let [low, high] = line.ci95.unwrap();
        assert!(line.ok == Some(true) && low > 0.5 && low < 1.0 && 1.0 < high && high < 1.5, "{line:?}");
    }
    assert!(run.answer.starts_with("Doses of cpu_us_per_query: Measured is "), "{}", run.answer);
    assert!(run.advice.iter().all(|advice| !advice.contains("expected")), "{:?}", run.advice);
    // One thousandth is not told from nothing; a fifth is.
    assert!(cpu.doses[0].ci95_pct.unwrap()[0] < 0.0);
    let told: Vec<f64> = cpu.doses[1..].iter().map(|dose| dose.given_pct).collect();
    assert!(told.contains(&cpu.resolution_pct.unwrap()), "{cpu:?}");
    assert!((delay.doses[1].given_pct - 40.0).abs() < 1e-9 && delay.resolution_pct.is_some(), "{delay:?}");
    // A found slope that is not given is said.
    let mut recorded = SyntheticRun::with(11, 14, vec![burn("b-5", 0.1), burn("b-20", 0.4)]).record();
    for line in recorded.trials.iter_mut().filter(|line| line.arm.starts_with("b-")) {
        if let Some(cpu) = &mut line.cpu {
            cpu.treatment_us *= 2;
        }
    }
    let run = analyse::analyse(&recorded);
    assert_eq!(run.doses[0].ok, Some(false), "{:?}", run.doses);
    assert!(run.charts.iter().any(|chart| chart.id == "doses-cpu"));
}
