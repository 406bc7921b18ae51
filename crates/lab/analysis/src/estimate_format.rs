//! Formatting of estimates, intervals and verdicts.
//!
//! Three digits are as many as an interval supports. Never computes an estimate.

use toll_record::catalogue::find_definition;
use toll_record::{LoadColumn, Outcome, Pause, RunResult, Source, TrialColumn, Verdict};
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

/// Overhead from which on it is a multiple, percent.
const MULTIPLE_PCT: f64 = 300.0;

/// `-12%`; from +300% on as a multiple of the baseline, `x4.1`.
pub fn format_overhead(pct: f64) -> String {
    match 1.0 + pct / 100.0 {
        multiple if pct < MULTIPLE_PCT || !multiple.is_finite() => format_signed_percent(pct),
        multiple if multiple < 9.95 => format!("x{multiple:.1}"),
        multiple => format!("x{}", toll_sys::number_format::format_grouped(multiple)),
    }
}

/// `-12.3%`; from +300% on as a multiple of the baseline.
fn format_precise(pct: f64) -> String {
    if pct < MULTIPLE_PCT { format!("{pct:+.1}%") } else { format_overhead(pct) }
}

/// The estimate alone, with one decimal. `None` if only a mean is known.
pub fn format_estimate(outcome: &Outcome) -> Option<String> {
    extract_estimate(outcome).map(|(measure, value, _)| match measure {
        Measure::Percent => format_precise(value),
        Measure::Difference => format_signed(value, &outcome.unit),
        Measure::Absolute => format_value(value, &outcome.unit),
    })
}

/// The interval alone: `-1.2% to +3.4%`, `+0.10 s to +0.30 s`.
pub fn format_interval(outcome: &Outcome) -> Option<String> {
    let (measure, _, interval) = extract_estimate(outcome)?;
    let [low, high] = interval?.map(|end| match measure {
        Measure::Percent => format_precise(end),
        Measure::Difference => format_signed(end, &outcome.unit),
        Measure::Absolute => format_value(end, &outcome.unit),
    });
    Some(format!("{low} to {high}"))
}

/// In a sentence: `-12.3% [-14.0, -10.1]`, `+0.60 s [+0.55, +0.65]`.
pub fn describe_estimate(outcome: &Outcome) -> String {
    let Some((measure, estimate, interval)) = extract_estimate(outcome) else { return "not compared".into() };
    let write = |value: f64| match measure {
        Measure::Percent => format_precise(value),
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

/// In a table: `-12% [-14,-9.8]`. The mean if there is no estimate.
pub fn format_cell(outcome: &Outcome) -> String {
    let interval = format_ends(outcome).map_or(String::new(), |[low, high]| format!(" [{low},{high}]"));
    format_brief(outcome) + &interval
}

/// Ends of the interval, in a table: `["+1.0%", "+2.3%"]`, without the unit if it is the estimate's.
pub fn format_ends(outcome: &Outcome) -> Option<[String; 2]> {
    let (measure, _, interval) = extract_estimate(outcome)?;
    let ends = interval?.map(|end| match measure {
        Measure::Percent => format_overhead(end),
        Measure::Difference => format_signed(end, &outcome.unit),
        Measure::Absolute => format_value(end, &outcome.unit),
    });
    Some(drop_common_unit(&format_brief(outcome), ends))
}

/// The interval around the estimate: percent for ratios, otherwise in the outcome's unit.
pub fn interval_of(outcome: &Outcome) -> Option<[f64; 2]> {
    extract_estimate(outcome)?.2
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
        Some((Measure::Percent, toll, _)) => format_overhead(toll),
        Some((Measure::Difference, effect, _)) => format_signed(effect, &outcome.unit),
        // An outcome estimated by a median: the median, not the mean beside the median's interval.
        Some((Measure::Absolute, effect, _)) => format_value(effect, &outcome.unit),
        _ => format_value(outcome.mean, &outcome.unit),
    }
}

/// The verdict in a word or two. "Slower" and "faster" are for times and rates of the load, "more work" and
/// "less work" for CPU time, "worse" and "better" for all else.
pub fn verdict_word(run: &RunResult, outcome: &str, verdict: Verdict) -> &'static str {
    let source = find_definition(&run.definitions, outcome).map(|definition| &definition.source);
    let [worse, better] = match source {
        Some(Source::Latency | Source::ByClass { .. } | Source::Trial { column: TrialColumn::Seconds }) => {
            ["slower", "faster"]
        }
        Some(Source::Load { column: LoadColumn::Statements | LoadColumn::Events }) => ["slower", "faster"],
        Some(Source::Cpu { .. }) => ["more work", "less work"],
        _ => ["worse", "better"],
    };
    match verdict {
        Verdict::Baseline => "baseline",
        Verdict::Costly => worse,
        Verdict::Cheaper => better,
        Verdict::NoEffect => "equivalent",
        Verdict::Unclear => "inconclusive",
        Verdict::NoInterval => "undecided",
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
