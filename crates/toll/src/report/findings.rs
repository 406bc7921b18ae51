//! What was found of arms together, and of what they wrote?
//!
//! One line each, for text and Markdown alike: contrasts, and pauses.

use crate::analyse::multiple;
use crate::counted::counted;
use crate::figures;
use toll_record::{ContrastResult, Pause, RunResult};

/// (name, what it came to).
pub fn contrasts(run: &RunResult) -> Vec<(&str, String)> {
    run.contrasts.iter().map(|contrast| (contrast.name.as_str(), told(contrast))).collect()
}

fn told(contrast: &ContrastResult) -> String {
    let found = match (contrast.ratio, contrast.ci95) {
        (Some(ratio), Some([low, high])) => format!("{ratio:.2} [{low:.2}, {high:.2}]"),
        (Some(ratio), None) => format!("{ratio:.2} (no interval)"),
        (None, _) => "not known".to_owned(),
    };
    format!(
        "{}: {found}, {} of {} over {}, {}",
        contrast.title,
        contrast.outcome,
        contrast.of,
        multiple(contrast),
        counted(contrast.pairs.into(), "round")
    )
}

/// (arm, how often it paused, and the longest of it).
pub fn pauses(run: &RunResult) -> Vec<(&str, String)> {
    let of_arm = |name: &str| run.pauses.iter().filter(|pause| pause.arm == name).collect::<Vec<_>>();
    let arms = run.arms.iter().map(|arm| (arm.name.as_str(), of_arm(&arm.name)));
    arms.filter_map(|(name, pauses)| Some((name, of_one_arm(&pauses)?))).collect()
}

fn of_one_arm(pauses: &[&Pause]) -> Option<String> {
    let seconds = |pause: &Pause| (pause.end_mono_us - pause.begin_mono_us) as f64 / 1e6;
    let longest = pauses.iter().max_by(|a, b| seconds(a).total_cmp(&seconds(b)))?;
    let all: f64 = pauses.iter().map(|pause| seconds(pause)).sum();
    Some(format!(
        "{} of a second or more in what its commands write, {all:.1} s in all; the longest {:.1} s: {}",
        counted(pauses.len() as u64, "pause"),
        seconds(longest),
        figures::pause(longest)
    ))
}
