//! How is a figure written for people?
//!
//! Three digits say all that an interval allows. Never computes: it only writes.

use toll_record::{Outcome, Verdict};

/// `-12.3%`, `+41%`: a sign always, one decimal below ten.
pub fn percent(value: f64) -> String {
    if value.abs() < 9.95 { format!("{value:+.1}%") } else { format!("{value:+.0}%") }
}

/// `-12% [-14, -9.8] costly`; the absolute mean for the baseline.
pub fn toll(outcome: &Outcome) -> String {
    if outcome.verdict == Verdict::Baseline {
        return absolute(outcome.mean, &outcome.unit);
    }
    let Some(toll) = outcome.toll_pct else { return "-".into() };
    let word = crate::analyse::word(outcome.verdict);
    match outcome.ci95_pct {
        Some([low, high]) => {
            let bare = |v: f64| percent(v).trim_end_matches('%').to_owned();
            format!("{} [{},{}] {word}", percent(toll), bare(low), bare(high))
        }
        None => format!("{} {word}", percent(toll)),
    }
}

/// A mean with its unit, `8,012/s`, `12.1 ms`, `250 us`.
pub fn absolute(value: f64, unit: &str) -> String {
    match unit {
        "us" => duration_us(value),
        "s" => format!("{value:.2} s"),
        _ => match unit.strip_suffix("/s") {
            Some("bytes") => format!("{} MB/s", megabytes(value)),
            Some(_) => format!("{}/s", grouped(value)),
            None => format!("{} {unit}", grouped(value)),
        },
    }
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
            (absolute(12_130.0, "us"), "12.1 ms"),
            (absolute(249.6, "us"), "250 us"),
            (absolute(1_050_000.0, "us"), "1.05 s"),
            (absolute(105e6, "bytes/s"), "105 MB/s"),
            (duration_s(245.2), "4 min 05 s"),
            (duration_s(4_920.0), "1 h 22 min"),
            (grouped(1_234_567.0), "1,234,567"),
            (grouped(-999.6), "-1,000"),
        ];
        for (got, want) in cases {
            assert_eq!(got, want);
        }
    }
}
