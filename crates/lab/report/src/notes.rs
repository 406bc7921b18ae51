//! Notes on the figures of single arms, and warnings.
//!
//! A note that several arms share is printed once; so is the advice of a warning.

use super::table;
use toll_record::{RunResult, Warning};
use toll_sys::count_format::format_count;

/// (arms, note), in order of first occurrence.
pub fn note_lines(run: &RunResult) -> Vec<(String, &str)> {
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

/// Source of the table's figures if a run has two kinds of windows.
pub fn describe_long_windows(run: &RunResult) -> Option<String> {
    let long = run.long.as_ref()?;
    let heads: Vec<&str> = table::columns(run)
        .into_iter()
        .filter(|column| column.long_windows)
        .map(|column| column.column_title())
        .collect();
    if heads.is_empty() {
        return None;
    }
    Some(format!(
        "Columns {}: {} with windows of {:.1} s. All others: {}, mostly of {:.1} s.",
        heads.join(", "),
        format_count(long.rounds_done.into(), "round"),
        long.window_s,
        format_count(run.rounds_done.into(), "round"),
        run.window_s
    ))
}

/// Warnings grouped by code and advice, in order of first occurrence.
pub fn group_warnings(run: &RunResult) -> Vec<Vec<&Warning>> {
    let mut groups: Vec<Vec<&Warning>> = Vec::new();
    for warning in &run.warnings {
        let same =
            |group: &&mut Vec<&Warning>| group[0].code == warning.code && group[0].advice == warning.advice;
        match groups.iter_mut().find(same) {
            Some(group) => group.push(warning),
            None => groups.push(vec![warning]),
        }
    }
    groups
}
