//! Formatting of estimates, intervals and verdicts.
//!
//! Three digits are as many as an interval supports. Never computes an estimate.

use toll_record::{Outcome, Pause, Verdict};
use toll_sys::number_format::{format_short, format_signed, format_signed_percent, format_value};

/// Measure of an outcome's estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Measure {
    Percent,
    Difference,
    Absolute,
}

/// The estimate and its interval. `None` if only a mean is known.
fn extract_estimate(outcome: &Outcome) -> Option<(Measure, f64, Option<[f64; 2]>)> {
    match (outcome.toll_pct, outcome.effect) {
        (Some(toll), _) => Some((Measure::Percent, toll, outcome.ci95_pct)),
        (None, Some(effect)) if outcome.verdict == Verdict::NotCompared => {
            Some((Measure::Absolute, effect, outcome.ci95))
        }
        (None, Some(effect)) => Some((Measure::Difference, effect, outcome.ci95)),
        (None, None) => None,
    }
}

/// The estimate alone, with one decimal. `None` if only a mean is known.
pub fn format_estimate(outcome: &Outcome) -> Option<String> {
    extract_estimate(outcome).map(|(measure, value, _)| match measure {
        Measure::Percent => format!("{value:+.1}%"),
        Measure::Difference => format_signed(value, &outcome.unit),
        Measure::Absolute => format_value(value, &outcome.unit),
    })
}

/// The interval alone: `-1.2% to +3.4%`, `+0.10 s to +0.30 s`.
pub fn format_interval(outcome: &Outcome) -> Option<String> {
    let (measure, _, interval) = extract_estimate(outcome)?;
    let [low, high] = interval?.map(|end| match measure {
        Measure::Percent => format!("{end:+.1}%"),
        Measure::Difference => format_signed(end, &outcome.unit),
        Measure::Absolute => format_value(end, &outcome.unit),
    });
    Some(format!("{low} to {high}"))
}

/// In a sentence: `-12.3% [-14.0, -10.1]`, `+0.60 s [+0.55, +0.65]`.
pub fn describe_estimate(outcome: &Outcome) -> String {
    let Some((measure, estimate, interval)) = extract_estimate(outcome) else { return "not compared".into() };
    let write = |value: f64| match measure {
        Measure::Percent => format!("{value:+.1}%"),
        Measure::Difference => format_signed(value, &outcome.unit),
        Measure::Absolute => format_value(value, &outcome.unit),
    };
    let estimate = write(estimate);
    match interval {
        Some(ends) => {
            let [low, high] = drop_common_unit(&estimate, ends.map(write));
            format!("{estimate} [{low}, {high}]")
        }
        None => format!("{estimate} (no interval)"),
    }
}

/// In a table: `-12% [-14,-9.8] costly`. The mean if there is no estimate.
pub fn format_cell(outcome: &Outcome) -> String {
    let estimated = format_brief(outcome);
    let Some((measure, _, interval)) = extract_estimate(outcome) else { return estimated };
    let write = |value: f64| match measure {
        Measure::Percent => format_signed_percent(value),
        Measure::Difference => format_signed(value, &outcome.unit),
        Measure::Absolute => format_value(value, &outcome.unit),
    };
    let interval = interval.map_or(String::new(), |ends| {
        let [low, high] = drop_common_unit(&estimated, ends.map(write));
        format!(" [{low},{high}]")
    });
    match measure {
        Measure::Absolute => estimated + &interval,
        _ => format!("{estimated}{interval} {}", format_verdict(outcome.verdict)),
    }
}

/// Ends of an interval, without their unit if it is the estimate's.
fn drop_common_unit(estimate: &str, ends: [String; 2]) -> [String; 2] {
    let in_number = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | ',');
    let unit = estimate.trim_start_matches(in_number);
    let same = ends.iter().all(|end| end.trim_start_matches(in_number) == unit);
    if same { ends.map(|end| end[..end.len() - unit.len()].to_owned()) } else { ends }
}

/// The estimate alone, or the mean: `-12%`, `+0.60 s`, `8,012/s`.
pub fn format_brief(outcome: &Outcome) -> String {
    match extract_estimate(outcome) {
        Some((Measure::Percent, toll, _)) => format_signed_percent(toll),
        Some((Measure::Difference, effect, _)) => format_signed(effect, &outcome.unit),
        // An outcome estimated by a median: the median, not the mean beside the median's interval.
        Some((Measure::Absolute, effect, _)) => format_value(effect, &outcome.unit),
        _ => format_value(outcome.mean, &outcome.unit),
    }
}

/// The verdict in a word or two.
pub fn format_verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Baseline => "baseline",
        Verdict::Costly => "costly",
        Verdict::Cheaper => "cheaper",
        Verdict::NoEffect => "no effect",
        Verdict::Unclear => "unclear",
        Verdict::NoInterval => "no interval",
        Verdict::NotCompared => "not compared",
    }
}

/// A pause without its arm and length.
///
/// Example: `round 2, mariadb-dump 3, from 31.0 s; meanwhile disk_reads_per_s 0.00 (else 310)`.
pub fn describe_pause(pause: &Pause) -> String {
    let at = format!("round {}, {}, from {:.1} s", pause.round + 1, pause.process, pause.begin_s);
    let beside = pause.beside.iter();
    let beside: Vec<String> = beside
        .map(|beside| {
            format!(
                "{} {} (else {})",
                beside.name,
                format_short(beside.during),
                format_short(beside.otherwise)
            )
        })
        .collect();
    if beside.is_empty() { at } else { format!("{at}; meanwhile {}", beside.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_written_once_unless_it_changes() {
        let ends =
            |estimate: &str, low: &str, high: &str| drop_common_unit(estimate, [low.into(), high.into()]);
        assert_eq!(ends("+0.60 s", "+0.55 s", "+0.65 s"), ["+0.55", "+0.65"]);
        assert_eq!(ends("-12%", "-14%", "-9.8%"), ["-14", "-9.8"]);
        assert_eq!(ends("+1.02 ms", "+980 us", "+1.10 ms"), ["+980 us", "+1.10 ms"]);
        assert_eq!(ends("8,012/s", "7,900/s", "8,100/s"), ["7,900", "8,100"]);
    }
}
