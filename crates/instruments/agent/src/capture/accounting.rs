//! Accounting of a capture: the outcome of everything the tap received. Sums and reports; counts nothing
//! itself.

use super::otlp::ExportCounters;
use super::output::OutputCounters;
use super::tap::TapCounters;
use serde::Serialize;
use toll_sys::count_format::format_count;
use toll_sys::number_format;

/// The accounting of a capture at a moment: `passed` = `captured` + everything lost + `shed` + `waiting`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CaptureAccounting {
    pub r#type: &'static str,
    /// Nothing more comes.
    pub ended: bool,
    pub elapsed_s: f64,
    /// What is counted: `packet`, or `call` of a socket.
    pub of: &'static str,
    /// Items that passed the kernel's filter.
    pub passed: u64,
    /// Items handed to the disk or the network.
    pub captured: u64,
    /// Items in the kernel's ring, in the queue, or being written.
    pub waiting: u64,
    pub lost: LostItems,
    /// Left out to stay within the budget.
    pub shed: u64,
    pub queries: Option<u64>,
    pub bytes_written: u64,
    /// Unix time, ns.
    pub first_loss_ns: Option<u64>,
    pub last_loss_ns: Option<u64>,
    /// What became of the records for OpenTelemetry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp: Option<ExportCounters>,
}

/// Lost items by place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LostItems {
    /// The ring was full: this process was too slow.
    pub kernel: u64,
    /// The queue was full: the writer did not keep up.
    pub queue: u64,
    /// The disk took no more.
    pub disk: u64,
    pub network: u64,
}

impl LostItems {
    fn sum(self) -> u64 {
        self.kernel + self.queue + self.disk + self.network
    }
}

impl CaptureAccounting {
    /// `kernel_lost`: between which moments the tap lost something, Unix time in ns.
    pub fn new(
        seen: &TapCounters,
        account: &OutputCounters,
        kernel_lost: Option<(u64, u64)>,
        of: &'static str,
        elapsed_s: f64,
        ended: bool,
    ) -> Self {
        let mut times = account.clone();
        if let Some((first, last)) = kernel_lost {
            times.note_loss(first, last);
        }
        let lost = LostItems {
            kernel: seen.lost_kernel,
            queue: account.lost_queue,
            disk: account.lost_disk,
            network: account.lost_network,
        };
        // Of items that the output was given, those that it still holds are not known to be out.
        let captured = account.items.saturating_sub(account.lost_items() + account.waiting);
        let known = captured + lost.sum() + account.shed;
        Self {
            r#type: "ledger",
            ended,
            elapsed_s,
            of,
            passed: seen.passed,
            captured,
            waiting: seen.passed.saturating_sub(known),
            lost,
            shed: account.shed,
            queries: account.queries,
            bytes_written: account.bytes_written,
            first_loss_ns: times.first_loss_ns,
            last_loss_ns: times.last_loss_ns,
            otlp: None,
        }
    }

    /// A line in tcpdump's words, and a line of what else there is to say.
    pub fn render_text(&self) -> String {
        let lost = self.lost;
        let items = |count: u64| format_count(count, self.of);
        let mut text = format!(
            "{} captured, {} received by filter, {} dropped by kernel",
            items(self.captured),
            items(self.passed),
            items(lost.kernel)
        );
        let mut more = Vec::new();
        if let Some(queries) = self.queries {
            more.push(format_count(queries, "statement"));
        }
        let (written, elapsed) = (self.bytes_written as f64, self.elapsed_s);
        more.push(format!(
            "{} MB written in {}",
            number_format::format_megabytes(written),
            number_format::format_duration_s(elapsed)
        ));
        for (count, why) in [
            (lost.queue, "lost in the queue to the writer"),
            (lost.disk, "lost on the disk"),
            (lost.network, "lost in the network"),
            (self.shed, "not sampled (CPU budget)"),
        ] {
            if count > 0 {
                more.push(format!("{count} {why}"));
            }
        }
        if let (Some(first), Some(last)) = (self.first_loss_ns, self.last_loss_ns) {
            more.push(format!("losses from {} to {}", clock_time(first), clock_time(last)));
        } else if lost.kernel + lost.queue + lost.disk + lost.network + self.shed == 0 {
            more.push("nothing lost".into());
        }
        if self.waiting > 0 {
            let what = if self.ended { "not accounted for" } else { "in progress" };
            more.push(format!("{} {what}", self.waiting));
        }
        if let Some(otlp) = &self.otlp {
            more.push(format!("{} for OpenTelemetry sent", format_count(otlp.exported, "record")));
            for (count, why) in [
                (otlp.dropped_queue, "dropped from a full queue"),
                (otlp.dropped_refused, "refused"),
                (otlp.dropped_unsent, "not sent before the end"),
            ] {
                if count > 0 {
                    more.push(format!("{count} {why}"));
                }
            }
        }
        text.push_str("; ");
        text.push_str(&more.join(", "));
        text
    }
}

/// As the host's clock shows it.
fn clock_time(ns: u64) -> String {
    let moment = jiff::Timestamp::from_nanosecond(i128::from(ns)).unwrap_or_default();
    moment.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S%.3f").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_adds_up_and_says_where_what_was_lost() {
        let seen = TapCounters { passed: 1000, delivered: 960, lost_kernel: 30 };
        let account = OutputCounters {
            items: 960,
            waiting: 60,
            bytes_written: 12_340_000,
            lost_queue: 100,
            lost_disk: 5,
            shed: 7,
            first_loss_ns: Some(1_700_000_001_000_000_000),
            last_loss_ns: Some(1_700_000_002_000_000_000),
            ..OutputCounters::default()
        };
        let lost_between = Some((1_700_000_000_000_000_000, 1_700_000_001_500_000_000));
        let ledger = CaptureAccounting::new(&seen, &account, lost_between, "packet", 65.0, false);
        assert_eq!(ledger.captured, 960 - 60 - 112);
        assert_eq!(ledger.passed, ledger.captured + ledger.lost.sum() + ledger.shed + ledger.waiting);
        // 60 in the queue, 10 in the ring.
        assert_eq!(ledger.waiting, 70);
        assert_eq!(ledger.first_loss_ns, Some(1_700_000_000_000_000_000));
        assert_eq!(ledger.last_loss_ns, Some(1_700_000_002_000_000_000));
        let text = ledger.render_text();
        let begin = "788 packets captured, 1000 packets received by filter, 30 packets dropped by kernel; \
                     12.3 MB written in 1 min 05 s, 100 lost in the queue to the writer, 5 lost on the \
                     disk, 7 not sampled (CPU budget), losses from 2023-11-1";
        assert!(text.starts_with(begin), "{text}");
        assert!(text.ends_with(", 70 in progress"), "{text}");
    }

    #[test]
    fn records_for_opentelemetry_are_accounted_for() {
        let seen = TapCounters::default();
        let mut ledger = CaptureAccounting::new(&seen, &OutputCounters::default(), None, "packet", 1.0, true);
        assert!(serde_json::to_value(&ledger).unwrap()["otlp"].is_null());
        ledger.otlp =
            Some(ExportCounters { exported: 1, dropped_queue: 2, dropped_refused: 3, dropped_unsent: 4 });
        let text = ledger.render_text();
        let end = "nothing lost, 1 record for OpenTelemetry sent, 2 dropped from a full queue, 3 refused, 4 not sent \
                   before the end";
        assert!(text.ends_with(end), "{text}");
        assert_eq!(serde_json::to_value(&ledger).unwrap()["otlp"]["dropped_unsent"], 4);
    }

    #[test]
    fn without_a_loss_that_is_said() {
        let seen = TapCounters { passed: 10, delivered: 10, lost_kernel: 0 };
        let account = OutputCounters { items: 10, queries: Some(1), ..OutputCounters::default() };
        let text = CaptureAccounting::new(&seen, &account, None, "packet", 1.0, true).render_text();
        let expected = "10 packets captured, 10 packets received by filter, 0 packets dropped by kernel; 1 statement, \
                        0.00 MB written in 1 s, nothing lost";
        assert_eq!(text, expected);
        let one =
            CaptureAccounting::new(&TapCounters { passed: 1, ..seen }, &account, None, "packet", 1.0, true)
                .render_text();
        assert!(one.contains("1 packet received by filter"), "{one}");
    }
}
