//! Summary of a throttled dump: cost of the latency limit, and whether it was kept.

use super::compliance::WindowCounts;
use super::control_commands::share_to_percent;
use super::rate_limiter::ReaderTimes;
use super::sketch::Sketch;
use serde::Serialize;
use std::fmt::Write;
use toll_sys::number_format;

/// Summary at the end of a throttled dump. The names contain the units: seconds, bytes, microseconds and
/// percent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThrottleSummary {
    pub max_p99_toll_pct: f64,
    pub elapsed_s: f64,
    pub bytes: u64,
    pub bytes_per_s: f64,
    /// Time without reads: pauses that measure the undisturbed latency, and pauses requested by the user.
    pub paused_s: f64,
    /// Time in which the dump was ready, but the rate limiter made it wait.
    pub slowed_s: f64,
    /// Time in which the reader waited for the dump.
    pub waited_for_dump_s: f64,
    /// Time in which the consumer of the dump was not ready.
    pub waited_for_taker_s: f64,
    pub unthrottled: Unthrottled,
    pub canary: ProbeSummary,
    pub windows: WindowCounts,
    pub history: HistoryListSummary,
    /// Warnings about the figures above, one sentence each.
    pub doubts: Vec<String>,
}

/// Duration of the dump without a throttle, estimated from the stretches without any wait.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Unthrottled {
    /// `None`: the dump never ran at its own speed for long enough.
    pub elapsed_s: Option<f64>,
    /// Time at full speed that the estimate rests on.
    pub seen_s: f64,
    pub seen_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProbeSummary {
    pub question: String,
    pub questions_per_s: f64,
    pub questions: u64,
    pub refused: u64,
    /// Before the dump and in its pauses.
    pub undisturbed: LatencyQuantiles,
    /// While the dump moved.
    pub with_dump: LatencyQuantiles,
    /// Change of the undisturbed median since before the dump.
    pub undisturbed_moved_pct: Option<f64>,
    /// Variation between undisturbed seconds beyond chance: standard deviation of the p95.
    pub undisturbed_wobble_pct: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LatencyQuantiles {
    pub answers: u64,
    pub latency_us_p50: Option<f64>,
    pub latency_us_p99: Option<f64>,
}

/// Length of InnoDB's history list; `None` without the privilege to query it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct HistoryListSummary {
    pub at_begin: Option<u64>,
    pub most: Option<u64>,
}

impl LatencyQuantiles {
    pub fn from_sketch(answers: &Sketch) -> Self {
        let us = |p| answers.quantile(p).map(f64::exp);
        Self { answers: answers.count().round() as u64, latency_us_p50: us(0.5), latency_us_p99: us(0.99) }
    }

    fn describe(&self) -> String {
        match (self.latency_us_p50, self.latency_us_p99) {
            (Some(p50), Some(p99)) => {
                format!(
                    "p50 {}, p99 {}",
                    number_format::format_duration_us(p50),
                    number_format::format_duration_us(p99)
                )
            }
            _ => "no answers".into(),
        }
    }
}

/// Less full speed than this says nothing of the whole.
const FULL_SPEED_MIN_S: f64 = 3.0;

impl Unthrottled {
    pub fn estimate(times: &ReaderTimes, bytes: u64) -> Self {
        let seen_s = times.full_speed.as_secs_f64();
        let rate = times.full_speed_bytes as f64 / seen_s.max(1e-9);
        let known = seen_s >= FULL_SPEED_MIN_S && times.full_speed_bytes > 0;
        Self { elapsed_s: known.then(|| bytes as f64 / rate), seen_s, seen_bytes: times.full_speed_bytes }
    }
}

impl ThrottleSummary {
    /// A few lines, for people.
    pub fn render_text(&self) -> String {
        let mut text = String::new();
        let took = number_format::format_duration_s(self.elapsed_s);
        let (bytes, rate) = (
            number_format::format_megabytes(self.bytes as f64),
            number_format::format_megabytes(self.bytes_per_s),
        );
        let _ = writeln!(text, "toll: {bytes} MB in {took}, {rate} MB/s");
        let _ = writeln!(
            text,
            "toll: paused {}, slowed {}, waited for the dump {}, for the consumer {}",
            number_format::format_duration_s(self.paused_s),
            number_format::format_duration_s(self.slowed_s),
            number_format::format_duration_s(self.waited_for_dump_s),
            number_format::format_duration_s(self.waited_for_taker_s)
        );
        let seen = number_format::format_duration_s(self.unthrottled.seen_s);
        let _ = match self.unthrottled.elapsed_s {
            Some(alone_s) => writeln!(
                text,
                "toll: estimated duration without the throttle {} (from {seen} at full speed)",
                number_format::format_duration_s(alone_s)
            ),
            None => writeln!(text, "toll: duration without the throttle unknown: only {seen} at full speed"),
        };
        let probe = &self.canary;
        let _ = writeln!(
            text,
            "toll: probe ({}; {} queries, {:.0}/s): undisturbed {}; during the dump {}{}",
            probe.question,
            number_format::format_grouped(probe.questions as f64),
            probe.questions_per_s,
            probe.undisturbed.describe(),
            probe.with_dump.describe(),
            self.p99_overhead_pct().map_or_else(String::new, |toll| format!(
                " ({})",
                number_format::format_signed_percent(toll)
            ))
        );
        let _ = writeln!(text, "toll: {}", self.describe_compliance());
        if let HistoryListSummary { at_begin: Some(begin), most: Some(most) } = self.history {
            let (begin, most) =
                (number_format::format_grouped(begin as f64), number_format::format_grouped(most as f64));
            let _ = writeln!(text, "toll: history list {begin} at the beginning, {most} at most");
        }
        for doubt in &self.doubts {
            let _ = writeln!(text, "toll: {doubt}");
        }
        text.trim_end().to_owned()
    }

    /// All answers with the dump against all undisturbed ones.
    fn p99_overhead_pct(&self) -> Option<f64> {
        let with = self.canary.with_dump.latency_us_p99?;
        Some(100.0 * (with / self.canary.undisturbed.latency_us_p99? - 1.0))
    }

    fn describe_compliance(&self) -> String {
        let WindowCounts { length_s, judged, kept, broken_surely, kept_pct, kept_undisturbed_pct } =
            self.windows;
        let (Some(kept_pct), Some(by_chance)) = (kept_pct, kept_undisturbed_pct) else {
            return format!("too short to judge the latency limit: a window is {length_s:.0} s");
        };
        format!(
            "p99 within +{}% in {kept} of {judged} windows of {length_s:.0} s ({kept_pct:.0}%; \
             {by_chance:.0}% expected without a dump); significantly above it in {broken_surely}",
            share_to_percent(self.max_p99_toll_pct / 100.0)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn account(times: &ReaderTimes) -> ThrottleSummary {
        let latency =
            |p50, p99| LatencyQuantiles { answers: 9, latency_us_p50: Some(p50), latency_us_p99: Some(p99) };
        ThrottleSummary {
            max_p99_toll_pct: 10.0,
            elapsed_s: 245.0,
            bytes: 1_200_000_000,
            bytes_per_s: 4_900_000.0,
            paused_s: 20.0,
            slowed_s: 200.0,
            waited_for_dump_s: 24.0,
            waited_for_taker_s: 1.0,
            unthrottled: Unthrottled::estimate(times, 1_200_000_000),
            canary: ProbeSummary {
                question: "SELECT 1".into(),
                questions_per_s: 100.0,
                questions: 24_500,
                refused: 0,
                undisturbed: latency(400.0, 1_000.0),
                with_dump: latency(410.0, 1_070.0),
                undisturbed_moved_pct: Some(1.0),
                undisturbed_wobble_pct: 3.0,
            },
            windows: WindowCounts {
                length_s: 10.0,
                judged: 24,
                kept: 23,
                broken_surely: 0,
                kept_pct: Some(95.8),
                kept_undisturbed_pct: Some(97.0),
            },
            history: HistoryListSummary { at_begin: Some(12), most: Some(34_567) },
            doubts: vec!["1 probe query failed".into()],
        }
    }

    #[test]
    fn the_summary_has_the_cost_and_compliance_of_the_latency_limit() {
        let seen = ReaderTimes {
            full_speed_bytes: 200_000_000,
            full_speed: Duration::from_secs(4),
            ..ReaderTimes::default()
        };
        let text = account(&seen).render_text();
        for words in [
            "1200 MB in 4 min 05 s, 4.90 MB/s",
            "paused 20 s, slowed 3 min 20 s",
            "without the throttle 24 s (from 4 s at full speed)",
            "p99 1.07 ms (+7.0%)",
            "within +10% in 23 of 24 windows of 10 s (96%; 97% expected without a dump)",
            "history list 12 at the beginning, 34,567 at most",
            "1 probe query failed",
        ] {
            assert!(text.contains(words), "{words:?} is not in\n{text}");
        }
        let text = account(&ReaderTimes::default()).render_text();
        assert!(text.contains("unknown: only 0 s at full speed"), "{text}");
    }
}
