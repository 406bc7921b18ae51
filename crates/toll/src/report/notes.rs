//! What should be known beside single arms' figures?
//!
//! A note that several arms share is said once.

use toll_record::RunResult;

/// (arms, note), in the order in which they first occur.
pub fn notes(run: &RunResult) -> Vec<(String, &str)> {
    let mut notes: Vec<(Vec<&str>, &str)> = Vec::new();
    for arm in &run.arms {
        for note in &arm.notes {
            match notes.iter_mut().find(|(_, known)| known == note) {
                Some((arms, _)) => arms.push(&arm.name),
                None => notes.push((vec![&arm.name], note)),
            }
        }
    }
    let measured = run.arms.iter().filter(|arm| arm.windows > 0).count();
    let name = |arms: Vec<&str>| if arms.len() == measured { "all".to_owned() } else { arms.join(" ") };
    notes.into_iter().map(|(arms, note)| (name(arms), note)).collect()
}
