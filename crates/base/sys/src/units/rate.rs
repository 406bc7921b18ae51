//! Rate parser: `250`, `2.5k`, `100k`, `1M`.

/// Events a second, above 0. Thousands and millions, not the powers of two of sizes.
pub fn rate(text: &str) -> Result<f64, String> {
    let (number, factor) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1e3),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1.0), |number| (number, 1e6)),
    };
    match number.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number * factor),
        _ => Err(format!("{text:?} is not a rate above 0: write 250, 2.5k or 1M events a second")),
    }
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn rates_are_counts_and_above_zero() {
        for (text, per_s) in [("250", 250.0), ("2.5k", 2_500.0), ("100K", 1e5), ("1M", 1e6), ("3m", 3e6)] {
            assert_eq!(rate(text), Ok(per_s));
        }
        for text in ["0", "fast", "-1", "", "k", "inf", "1G"] {
            let said = rate(text).unwrap_err();
            assert!(said.contains("is not a rate above 0"), "{said}");
        }
    }
}
