//! How is a figure written for people?
//!
//! Three digits say all that an interval allows. Never computes: it only writes.

use toll_record::{Outcome, Pause, Verdict};

/// `-12.3%`, `+41%`: a sign always, one decimal below ten.
pub fn percent(value: f64) -> String {
    if value.abs() < 9.95 { format!("{value:+.1}%") } else { format!("{value:+.0}%") }
}

/// A difference, with its sign: `+0.60 s`, `-12.0 MB/s`.
pub fn signed(value: f64, unit: &str) -> String {
    // Between two shares: percent would be taken for a share of the share.
    let size = match unit {
        "%" => format!("{:.1} points", value.abs()),
        _ => absolute(value.abs(), unit),
    };
    // What rounds to nothing has no side.
    let is_below = value < 0.0 && size.contains(|c| matches!(c, '1'..='9'));
    format!("{}{size}", if is_below { '-' } else { '+' })
}

/// With a capital first letter.
pub fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

/// In which measure an outcome's estimate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Measure {
    Percent,
    Difference,
    Absolute,
}

/// What was estimated, between which ends; `None`: only a mean is known.
fn estimate(outcome: &Outcome) -> Option<(Measure, f64, Option<[f64; 2]>)> {
    match (outcome.toll_pct, outcome.effect) {
        (Some(toll), _) => Some((Measure::Percent, toll, outcome.ci95_pct)),
        (None, Some(effect)) if outcome.verdict == Verdict::NotCompared => {
            Some((Measure::Absolute, effect, outcome.ci95))
        }
        (None, Some(effect)) => Some((Measure::Difference, effect, outcome.ci95)),
        (None, None) => None,
    }
}

/// The estimate alone, with one decimal; `None`: only a mean is known.
pub fn estimated(outcome: &Outcome) -> Option<String> {
    estimate(outcome).map(|(measure, value, _)| match measure {
        Measure::Percent => format!("{value:+.1}%"),
        Measure::Difference => signed(value, &outcome.unit),
        Measure::Absolute => absolute(value, &outcome.unit),
    })
}

/// The interval alone: `-1.2% to +3.4%`, `+0.10 s to +0.30 s`.
pub fn span(outcome: &Outcome) -> Option<String> {
    let (measure, _, interval) = estimate(outcome)?;
    let [low, high] = interval?.map(|end| match measure {
        Measure::Percent => format!("{end:+.1}%"),
        Measure::Difference => signed(end, &outcome.unit),
        Measure::Absolute => absolute(end, &outcome.unit),
    });
    Some(format!("{low} to {high}"))
}

/// In a sentence: `-12.3% [-14.0, -10.1]`, `+0.60 s [+0.55, +0.65]`.
pub fn told(outcome: &Outcome) -> String {
    let Some((measure, estimate, interval)) = estimate(outcome) else { return "not compared".into() };
    let write = |value: f64| match measure {
        Measure::Percent => format!("{value:+.1}%"),
        Measure::Difference => signed(value, &outcome.unit),
        Measure::Absolute => absolute(value, &outcome.unit),
    };
    let estimate = write(estimate);
    match interval {
        Some(ends) => {
            let [low, high] = like(&estimate, ends.map(write));
            format!("{estimate} [{low}, {high}]")
        }
        None => format!("{estimate} (no interval)"),
    }
}

/// In a table: `-12% [-14,-9.8] costly`; the mean where nothing was estimated.
pub fn cell(outcome: &Outcome) -> String {
    let estimated = brief(outcome);
    let Some((measure, _, interval)) = estimate(outcome) else { return estimated };
    let write = |value: f64| match measure {
        Measure::Percent => percent(value),
        Measure::Difference => signed(value, &outcome.unit),
        Measure::Absolute => absolute(value, &outcome.unit),
    };
    let interval = interval.map_or(String::new(), |ends| {
        let [low, high] = like(&estimated, ends.map(write));
        format!(" [{low},{high}]")
    });
    match measure {
        Measure::Absolute => estimated + &interval,
        _ => format!("{estimated}{interval} {}", word(outcome.verdict)),
    }
}

/// Ends of an interval without their unit, where it is the estimate's.
fn like(estimate: &str, ends: [String; 2]) -> [String; 2] {
    let in_number = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | ',');
    let unit = estimate.trim_start_matches(in_number);
    let same = ends.iter().all(|end| end.trim_start_matches(in_number) == unit);
    if same { ends.map(|end| end[..end.len() - unit.len()].to_owned()) } else { ends }
}

/// The estimate alone, or the mean: `-12%`, `+0.60 s`, `8,012/s`.
pub fn brief(outcome: &Outcome) -> String {
    match estimate(outcome) {
        Some((Measure::Percent, toll, _)) => percent(toll),
        Some((Measure::Difference, effect, _)) => signed(effect, &outcome.unit),
        // Of what is told as a median that, and not the mean beside the median's interval.
        Some((Measure::Absolute, effect, _)) => absolute(effect, &outcome.unit),
        _ => absolute(outcome.mean, &outcome.unit),
    }
}

/// The verdict in a word or two.
pub fn word(verdict: Verdict) -> &'static str {
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

/// `round 2, mariadb-dump 3, from 31.0 s; meanwhile disk_reads_per_s 0.00 (else 310)`: all but its arm and length.
pub fn pause(pause: &Pause) -> String {
    let at = format!("round {}, {}, from {:.1} s", pause.round + 1, pause.process, pause.begin_s);
    let beside = pause.beside.iter();
    let beside: Vec<String> = beside
        .map(|beside| format!("{} {} (else {})", beside.name, short(beside.during), short(beside.otherwise)))
        .collect();
    if beside.is_empty() { at } else { format!("{at}; meanwhile {}", beside.join(", ")) }
}

/// A value in its unit: `8,012/s`, `12.1 ms`, `250 us`, `0.25 tasks`.
pub fn absolute(value: f64, unit: &str) -> String {
    match unit {
        "us" => duration_us(value),
        "s" => format!("{value:.2} s"),
        "%" => format!("{value:.1}%"),
        "bytes" => format!("{} MB", megabytes(value)),
        _ => match unit.strip_suffix("/s") {
            Some("bytes") => format!("{} MB/s", megabytes(value)),
            Some("Mb") => format!("{} Mb/s", short(value)),
            Some(_) => format!("{}/s", short(value)),
            None => format!("{} {unit}", short(value)),
        },
    }
}

/// A value in a table whose head says the unit; what is written in a unit of its own size keeps that.
pub fn bare(value: f64, unit: &str) -> String {
    match unit {
        "us" | "bytes" | "bytes/s" => absolute(value, unit),
        _ => short(value),
    }
}

/// Three digits of small values; large ones whole, in groups.
fn short(value: f64) -> String {
    if value.abs() < 99.95 { three(value) } else { grouped(value) }
}

pub fn duration_us(us: f64) -> String {
    match us {
        us if us < 1_000.0 => format!("{} us", three(us)),
        us if us < 1e6 => format!("{} ms", three(us / 1e3)),
        us => format!("{} s", three(us / 1e6)),
    }
}

/// `4 min 05 s`, `1 h 22 min`.
pub fn duration_s(s: f64) -> String {
    let whole = s.round().max(0.0) as u64;
    match whole {
        s if s < 60 => format!("{s} s"),
        s if s < 3_600 => format!("{} min {:02} s", s / 60, s % 60),
        s => format!("{} h {:02} min", s / 3_600, s / 60 % 60),
    }
}

/// Millions of bytes, three digits.
pub fn megabytes(bytes: f64) -> String {
    three(bytes / 1e6)
}

/// Three digits at most behind the leading zeros, none beyond the point from 100 on.
fn three(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        // Nothing has no sign.
        v if v < 0.005 => format!("{v:.2}"),
        _ => format!("{value:.2}"),
    }
}

/// Whole, in groups of three: `1,234,567`.
pub fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if value < 0.0 && digits != "0" {
        out.push('-');
    }
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_three_digits() {
        let cases = [
            (percent(-0.04), "-0.0%"),
            (percent(9.94), "+9.9%"),
            (percent(9.96), "+10%"),
            (percent(-41.23), "-41%"),
            (absolute(8_012.4, "statements/s"), "8,012/s"),
            (absolute(2_891.4, "Mb/s"), "2,891 Mb/s"),
            (absolute(12_130.0, "us"), "12.1 ms"),
            (absolute(249.6, "us"), "250 us"),
            (absolute(1_050_000.0, "us"), "1.05 s"),
            (absolute(105e6, "bytes/s"), "105 MB/s"),
            (absolute(21.5e6, "bytes"), "21.5 MB"),
            (absolute(0.25, "tasks"), "0.25 tasks"),
            (absolute(99.96, "requests/s"), "100/s"),
            (absolute(62.04, "%"), "62.0%"),
            (bare(62.04, "%"), "62.0"),
            (bare(9_413.0, "Mb/s"), "9,413"),
            (bare(12_130.0, "us"), "12.1 ms"),
            (signed(0.6, "s"), "+0.60 s"),
            (signed(-12e6, "bytes/s"), "-12.0 MB/s"),
            (signed(-1_500.0, "us"), "-1.50 ms"),
            (signed(-1e-12, "s"), "+0.00 s"),
            (signed(-1.25, "%"), "-1.2 points"),
            (duration_s(245.2), "4 min 05 s"),
            (duration_s(4_920.0), "1 h 22 min"),
            (grouped(1_234_567.0), "1,234,567"),
            (grouped(-999.6), "-1,000"),
        ];
        for (got, want) in cases {
            assert_eq!(got, want);
        }
    }

    #[test]
    fn a_unit_is_written_once_unless_it_changes() {
        let ends = |estimate: &str, low: &str, high: &str| like(estimate, [low.into(), high.into()]);
        assert_eq!(ends("+0.60 s", "+0.55 s", "+0.65 s"), ["+0.55", "+0.65"]);
        assert_eq!(ends("-12%", "-14%", "-9.8%"), ["-14", "-9.8"]);
        assert_eq!(ends("+1.02 ms", "+980 us", "+1.10 ms"), ["+980 us", "+1.10 ms"]);
        assert_eq!(ends("8,012/s", "7,900/s", "8,100/s"), ["7,900", "8,100"]);
    }
}
