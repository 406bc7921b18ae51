//! Progress display of a throttled dump.

use std::fmt::Debug;
use toll_sys::number_format;

/// Where progress is shown.
pub trait Progress: Debug + Send + Sync {
    /// Called ten times a second.
    fn show(&self, now: &ProgressSnapshot);

    /// A line that stays.
    fn show_message(&self, text: &str);

    /// Leaves the terminal as it was.
    fn finish(&self);
}

/// What is known at a moment.
#[derive(Debug, Clone)]
pub struct ProgressSnapshot {
    pub bytes: u64,
    pub bytes_per_s: f64,
    /// What the reader may do and why, in words.
    pub limit_text: String,
    /// Probe p99, microseconds: recent, and undisturbed.
    pub p99_us: Option<(f64, f64)>,
    pub max_p99_overhead_pct: f64,
    pub windows_within_limit: u32,
    pub windows_judged: u32,
}

impl ProgressSnapshot {
    pub fn render_line(&self) -> String {
        let latency = match self.p99_us {
            Some((now, base)) => format!(
                "probe p99 {}, undisturbed {} ({})",
                number_format::format_duration_us(now),
                number_format::format_duration_us(base),
                number_format::format_signed_percent(100.0 * (now / base - 1.0))
            ),
            None => "probe latency not known yet".into(),
        };
        format!(
            "{} MB, {} MB/s ({}), {latency}, within +{}% in {} of {} windows",
            number_format::format_megabytes(self.bytes as f64),
            number_format::format_megabytes(self.bytes_per_s),
            self.limit_text,
            self.max_p99_overhead_pct,
            self.windows_within_limit,
            self.windows_judged
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_the_progress_of_the_dump_and_its_compliance() {
        let now = ProgressSnapshot {
            bytes: 120_000_000,
            bytes_per_s: 12_500_000.0,
            limit_text: "climbing, 13.0 MB/s allowed".into(),
            p99_us: Some((1_050.0, 1_000.0)),
            max_p99_overhead_pct: 10.0,
            windows_within_limit: 3,
            windows_judged: 4,
        };
        assert_eq!(
            now.render_line(),
            "120 MB, 12.5 MB/s (climbing, 13.0 MB/s allowed), probe p99 1.05 ms, undisturbed 1.00 ms \
             (+5.0%), within +10% in 3 of 4 windows"
        );
        assert!(ProgressSnapshot { p99_us: None, ..now }.render_line().contains("not known yet"));
    }
}
