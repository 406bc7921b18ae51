//! Number formatting for people: three significant digits, as an interval allows no more. Never computes.

/// `-12.3%`, `+41%`: a sign always, one decimal below ten.
pub fn format_signed_percent(value: f64) -> String {
    if value.abs() < 9.95 { format!("{value:+.1}%") } else { format!("{value:+.0}%") }
}

/// A difference, with its sign: `+0.60 s`, `-12.0 MB/s`.
pub fn format_signed(value: f64, unit: &str) -> String {
    // Between two shares: percent would be taken for a share of the share.
    let size = match unit {
        "%" => format!("{:.1} points", value.abs()),
        _ => format_value(value.abs(), unit),
    };
    // What rounds to nothing has no side.
    let is_below = value < 0.0 && size.contains(|c| matches!(c, '1'..='9'));
    format!("{}{size}", if is_below { '-' } else { '+' })
}

/// With a capital first letter.
pub fn capitalise(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

/// A value in its unit: `8,012/s`, `12.1 ms`, `250 us`, `0.25 tasks`.
pub fn format_value(value: f64, unit: &str) -> String {
    match unit {
        "us" => format_duration_us(value),
        "k instructions" => format_instructions(value * 1e3),
        "M instructions" => format_instructions(value * 1e6),
        "G instructions" => format_instructions(value * 1e9),
        "s" => format!("{value:.2} s"),
        "%" => format!("{value:.1}%"),
        "bytes" => format!("{} MB", format_megabytes(value)),
        _ if unit.ends_with("/G instructions") => match unit.split('/').next() {
            Some("bytes") => format!("{} MB/G instr", format_megabytes(value)),
            _ => format!("{}/G instr", format_short(value)),
        },
        _ => match unit.strip_suffix("/s") {
            Some("bytes") => format!("{} MB/s", format_megabytes(value)),
            Some("Mb") => format!("{} Mb/s", format_short(value)),
            Some(_) => format!("{}/s", format_short(value)),
            None => format!("{} {unit}", format_short(value)),
        },
    }
}

/// A value for a table whose header names the unit. Values with a scaled unit (such as durations) keep it.
pub fn format_without_unit(value: f64, unit: &str) -> String {
    match unit {
        "us" | "bytes" | "bytes/s" => format_value(value, unit),
        _ if unit.ends_with("instructions") => format_value(value, unit),
        _ => format_short(value),
    }
}

/// Three digits of small values; large ones whole, in groups.
pub fn format_short(value: f64) -> String {
    if value.abs() < 99.95 { format_three_digits(value) } else { format_grouped(value) }
}

/// `284 k instr`, `36.3 M instr`: thousands, millions, 10^9.
pub fn format_instructions(count: f64) -> String {
    match count {
        count if count < 1e6 => format!("{} k instr", format_three_digits(count / 1e3)),
        count if count < 1e9 => format!("{} M instr", format_three_digits(count / 1e6)),
        count => format!("{} G instr", format_three_digits(count / 1e9)),
    }
}

pub fn format_duration_us(us: f64) -> String {
    match us {
        us if us < 1_000.0 => format!("{} us", format_three_digits(us)),
        us if us < 1e6 => format!("{} ms", format_three_digits(us / 1e3)),
        us => format!("{} s", format_three_digits(us / 1e6)),
    }
}

/// `4 min 05 s`, `1 h 22 min`.
pub fn format_duration_s(s: f64) -> String {
    let whole = s.round().max(0.0) as u64;
    match whole {
        s if s < 60 => format!("{s} s"),
        s if s < 3_600 => format!("{} min {:02} s", s / 60, s % 60),
        s => format!("{} h {:02} min", s / 3_600, s / 60 % 60),
    }
}

/// Millions of bytes, three digits.
pub fn format_megabytes(bytes: f64) -> String {
    format_three_digits(bytes / 1e6)
}

/// Three digits at most behind the leading zeros, none beyond the point from 100 on.
pub fn format_three_digits(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        // Nothing has no sign.
        v if v < 0.005 => format!("{v:.2}"),
        _ => format!("{value:.2}"),
    }
}

/// Whole, in groups of three: `1,234,567`.
pub fn format_grouped(value: f64) -> String {
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
            (format_signed_percent(-0.04), "-0.0%"),
            (format_signed_percent(9.94), "+9.9%"),
            (format_signed_percent(9.96), "+10%"),
            (format_signed_percent(-41.23), "-41%"),
            (format_value(8_012.4, "statements/s"), "8,012/s"),
            (format_value(2_891.4, "Mb/s"), "2,891 Mb/s"),
            (format_value(12_130.0, "us"), "12.1 ms"),
            (format_value(249.6, "us"), "250 us"),
            (format_value(1_050_000.0, "us"), "1.05 s"),
            (format_value(105e6, "bytes/s"), "105 MB/s"),
            (format_value(21.5e6, "bytes"), "21.5 MB"),
            (format_value(284.2, "k instructions"), "284 k instr"),
            (format_value(36_300.0, "k instructions"), "36.3 M instr"),
            (format_value(2.0, "G instructions"), "2.00 G instr"),
            (format_value(3_525.4, "statements/G instructions"), "3,525/G instr"),
            (format_value(8.68e6, "bytes/G instructions"), "8.68 MB/G instr"),
            (format_value(0.25, "tasks"), "0.25 tasks"),
            (format_value(99.96, "requests/s"), "100/s"),
            (format_value(62.04, "%"), "62.0%"),
            (format_without_unit(62.04, "%"), "62.0"),
            (format_without_unit(9_413.0, "Mb/s"), "9,413"),
            (format_without_unit(12_130.0, "us"), "12.1 ms"),
            (format_signed(0.6, "s"), "+0.60 s"),
            (format_signed(-12e6, "bytes/s"), "-12.0 MB/s"),
            (format_signed(-1_500.0, "us"), "-1.50 ms"),
            (format_signed(-1e-12, "s"), "+0.00 s"),
            (format_signed(-1.25, "%"), "-1.2 points"),
            (format_duration_s(245.2), "4 min 05 s"),
            (format_duration_s(4_920.0), "1 h 22 min"),
            (format_grouped(1_234_567.0), "1,234,567"),
            (format_grouped(-999.6), "-1,000"),
        ];
        for (got, want) in cases {
            assert_eq!(got, want);
        }
    }
}
