//! Parsers of a rate, a percentage and a duration on the command line.

use std::time::Duration;
use toll_sys::units::Percent;

/// `250`, `2.5k`, `100k`, `1M`: events a second.
pub fn rate(text: &str) -> Result<f64, String> {
    let (number, factor) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1e3),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1.0), |number| (number, 1e6)),
    };
    match number.parse::<f64>() {
        Ok(n) if n.is_finite() && n > 0.0 => Ok(n * factor),
        _ => Err("write events a second, above 0: 250, 2.5k, 100k".into()),
    }
}

/// `2%`, `0.5%`: percent.
pub fn percent(text: &str) -> Result<f64, String> {
    text.parse::<Percent>().map(|Percent(percent)| percent).map_err(|error| error.to_string())
}

/// `60s`, `100ms`, `5m`, `2h`; a bare number is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("write a number and ms, s, m or h: 100ms, 60s, 5m".into()),
    };
    let bad = |_| "write a number and ms, s, m or h: 100ms, 60s, 5m".to_owned();
    let value: f64 = number.parse().map_err(|_| bad(()))?;
    Duration::try_from_secs_f64(value * seconds).map_err(|_| bad(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_times_are_read_with_their_units() {
        assert_eq!(rate("100k"), Ok(100_000.0));
        assert_eq!(rate("2.5k"), Ok(2500.0));
        assert!(rate("0").is_err() && rate("fast").is_err() && rate("-1").is_err());
        assert_eq!(duration("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("7"), Ok(Duration::from_secs(7)));
        assert_eq!(percent("2%"), Ok(2.0));
        assert!(duration("-1s").is_err() && duration("x").is_err() && duration("1y").is_err());
    }
}
