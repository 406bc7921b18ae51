//! Note on arms whose command ends by itself.

use super::windows::Window;
use toll_record::Arm;

/// Smallest spread that is noted, as a share of the mean.
const MIN_NOTED_SPREAD: f64 = 0.2;

/// A sentence for the arm's notes; `unit` is that of the run's clock. `None` for an arm whose command lasts.
pub fn describe_self_termination(arm: &Arm, windows: &[&Window], unit: &str) -> Option<String> {
    let runs: Vec<(u32, u64)> = windows.iter().filter_map(|window| window.runs).collect();
    if runs.is_empty() {
        return None;
    }
    if arm.treatment.again {
        return Some(describe_repeats(&runs, unit));
    }
    arm.window.is_until_done().then(|| describe_ends(&runs, arm.window.at_most_s(), unit))
}

fn describe_repeats(runs: &[(u32, u64)], unit: &str) -> String {
    let done: u32 = runs.iter().map(|run| run.0).sum();
    if done == 0 {
        return "its command did not end inside any window, and was not run again".to_owned();
    }
    let took_s = runs.iter().map(|run| run.1).sum::<u64>() as f64 / 1e6 / f64::from(done);
    let a_window = f64::from(done) / runs.len() as f64;
    let digits = usize::from(a_window < 10.0);
    format!("run again until the window ended: {a_window:.digits$} times a window, {took_s:.2} {unit} each")
}

fn describe_ends(runs: &[(u32, u64)], window_s: f64, unit: &str) -> String {
    let ended: Vec<f64> = runs.iter().filter(|run| run.0 > 0).map(|run| run.1 as f64 / 1e6).collect();
    let stopped = runs.len() - ended.len();
    let mut parts = Vec::new();
    if !ended.is_empty() {
        let low = ended.iter().copied().fold(f64::INFINITY, f64::min);
        let high = ended.iter().copied().fold(0.0, f64::max);
        let mean = toll_stats::mean(&ended);
        // Two figures of each, and the spread where it is worth a word: alike arms then share the note.
        let digits = 1 + usize::from(mean < 1.0);
        let spread = match high - low > MIN_NOTED_SPREAD * mean {
            true => format!(" ({low:.digits$} to {high:.digits$})"),
            false => String::new(),
        };
        parts.push(format!("its windows lasted until the command ended: {mean:.digits$} {unit}{spread}"));
    }
    if stopped > 0 {
        parts.push(format!(
            "in {stopped} of {} windows it had not ended after {window_s} {unit} and was stopped",
            runs.len()
        ));
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_says_how_long_and_how_often() {
        let short = describe_ends(&[(1, 280_000), (1, 400_000), (1, 250_000)], 2.0, "s");
        assert_eq!(short, "its windows lasted until the command ended: 0.31 s (0.25 to 0.40)");
        let alike = [(1, 1_050_000), (1, 1_110_000)];
        assert_eq!(describe_ends(&alike, 2.0, "s"), "its windows lasted until the command ended: 1.1 s");
        assert!(
            describe_ends(&[(0, 0), (1, 280_000)], 2.0, "s")
                .ends_with("in 1 of 2 windows it had not ended after 2 s and was stopped")
        );
        assert_eq!(
            describe_repeats(&[(14, 1_400_000), (14, 1_400_000)], "s"),
            "run again until the window ended: 14 times a window, 0.10 s each"
        );
        assert_eq!(
            describe_repeats(&[(0, 0)], "s"),
            "its command did not end inside any window, and was not run again"
        );
    }
}
