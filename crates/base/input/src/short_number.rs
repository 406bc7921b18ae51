//! Human-readable numbers: `1.2ms`, `4.5k`, `12M`. Rounding only.

use toll_wire::attribute::Unit;

/// A value of an attribute: ns as time, the rest with a magnitude.
pub fn format_attribute(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Time => format_time(value),
        Unit::Count | Unit::Bytes => format_magnitude(value, 1024.0),
    }
}

/// ns as `17us`, `3ms`, `12s`.
pub fn format_time(ns: f64) -> String {
    let us = ns / 1_000.0;
    if us < 0.5 {
        "0".to_owned()
    } else if us < 999.5 {
        format!("{us:.0}us")
    } else if us < 999_500.0 {
        format!("{:.0}ms", us / 1_000.0)
    } else {
        format!("{:.0}s", us / 1_000_000.0)
    }
}

/// `4.50k`; whole numbers below the first magnitude stay whole.
pub fn format_magnitude(value: f64, step: f64) -> String {
    const NAMES: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    let mut value = value;
    let mut name = 0;
    while value >= step && name + 1 < NAMES.len() {
        value /= step;
        name += 1;
    }
    if name == 0 && value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}{}", NAMES[name])
    }
}

/// A share in percent, whole.
pub fn format_share(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.0}", (part * 100.0 / whole).floor()) } else { "0".to_owned() }
}
