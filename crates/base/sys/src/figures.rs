//! Number formatting for people: three significant digits, as an interval allows no more. Never computes.

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

/// A value for a table whose header names the unit. Values with a scaled unit (such as durations) keep it.
pub fn bare(value: f64, unit: &str) -> String {
    match unit {
        "us" | "bytes" | "bytes/s" => absolute(value, unit),
        _ => short(value),
    }
}

/// Three digits of small values; large ones whole, in groups.
pub fn short(value: f64) -> String {
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
pub fn three(value: f64) -> String {
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
}
