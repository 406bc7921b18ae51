//! Which windows does the analysis leave out, and does it say so and why?

use crate::arm;
use crate::synthetic::{Synthetic, SyntheticArm};
use toll::analyse::{self, Recorded};
use toll_record::*;

fn a_record(rounds: u32) -> Recorded {
    Synthetic::with(6, rounds, SyntheticArm::usual()).record()
}

fn warning<'a>(run: &'a RunResult, code: &str) -> Option<&'a Warning> {
    run.warnings.iter().find(|w| w.code == code)
}

fn text<'a>(run: &'a RunResult, code: &str) -> &'a str {
    warning(run, code).map_or("", |w| &w.text)
}

/// The trial fails instead of closing its window.
fn fail(recorded: &mut Recorded, arm: &str, round: u32, why: &str) {
    let of = |l: &TrialLine| l.arm == arm && l.round == round;
    recorded.trials.retain(|l| !(of(l) && l.step == Step::Stopped));
    let line = recorded.trials.iter_mut().find(|l| of(l) && l.step == Step::WindowEnd).expect("a window");
    line.step = Step::Failed;
    line.note = Some(why.into());
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
    let shown = toll::report::text::text(&run, toll::report::text::Ink::Plain);
    let row = |shown: &str, begin: &str| shown.lines().find(|l| l.starts_with(begin)).unwrap().to_owned();
    assert!(row(&shown, "B ").contains(" encrypted "), "{shown}");
    assert!(!row(&shown, "B ").contains("0.0%"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 120), "{shown}");
    let markdown = toll::report::markdown::markdown(&run);
    assert!(row(&markdown, "| B ").contains("| encrypted |"), "{markdown}");
    assert!(warning(&run, "artefact-not-counted").is_none(), "{:#?}", run.warnings);

    let mut arms = SyntheticArm::usual();
    arms.retain(|a| a.name == "B" || a.name == "K");
    let mut both = Synthetic::with(6, 8, arms).record();
    both.artefacts.iter_mut().for_each(|line| line.encrypted = true);
    let run = analyse::analyse(&both);
    let cheap = run.advice.iter().find(|a| a.starts_with("Least cost: B")).expect("advice");
    assert!(cheap.ends_with("catches nothing that can be read: the session is encrypted."), "{cheap}");
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
