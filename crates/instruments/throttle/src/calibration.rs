//! Probe calibration: the server's `net_write_timeout`, and the probe rate that users do not notice.
//!
//! Reads the server's counters for a second, and sends a few queries to measure their cost. Changes no
//! setting.

use anyhow::{Result, bail};
use std::time::{Duration, Instant};
use toll_mysql::{Connection, Target};
use toll_probe::ProbeQuery;
use toll_stats::random::Rng;

/// Bounds of the default probe rate: fewer queries estimate a p99 too slowly, more are a load.
const MIN_RATE_PER_S: f64 = 100.0;
const MAX_RATE_PER_S: f64 = 200.0;
/// Share of the server's statements that the probe may add: one hundredth.
const QUERY_BUDGET_SHARE: f64 = 0.01;
/// A question that goes to the disk costs as much as several that do not. Of tables larger than memory each does, as one in
/// twenty of the users' may: 200 of them a second, 15% more reads, made users' mean response time 5 to 8% longer.
const READ_BUDGET_SHARE: f64 = 0.05;
/// The latency limit still holds with as few (`simulation.rs`).
const MIN_DISK_RATE_PER_S: f64 = 25.0;
/// Asked to see how many go to the disk: so many, and no longer than this.
const TRIAL_QUERIES: u64 = 40;
const TRIAL_TIMEOUT: Duration = Duration::from_millis(400);
/// Questions that seldom go to the disk are not held up for it.
const RARE_READ_SHARE: f64 = 0.1;

/// Load of the server without the dump.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ServerLoad {
    /// Timeout of the server for a reader that does not read, seconds.
    pub net_write_timeout_s: f64,
    questions_per_s: f64,
    /// Pages that statements had to wait for the disk for; 0 where it does not say.
    reads_per_s: f64,
}

impl ServerLoad {
    /// Measures the rates; takes one second.
    pub fn measure(target: &Target) -> Result<Self> {
        let mut connection = Connection::connect(target)?;
        let net_write_timeout_s = query_number(&mut connection, "VARIABLES LIKE 'net_write_timeout'")?;
        let (questions, reads) = (query_question_count(&mut connection)?, query_disk_reads(&mut connection));
        let begun = Instant::now();
        std::thread::sleep(Duration::from_secs(1));
        let (more, reads_more) =
            (self::query_question_count(&mut connection)?, self::query_disk_reads(&mut connection));
        let per_s = |from: f64, to: f64| (to - from).max(0.0) / begun.elapsed().as_secs_f64();
        Ok(Self {
            net_write_timeout_s,
            questions_per_s: per_s(questions, more),
            reads_per_s: reads.zip(reads_more).map_or(0.0, |(from, to)| per_s(from, to)),
        })
    }

    /// Probe rate, queries a second: few compared with the server's load, and enough to estimate a p99.
    pub fn probe_rate_per_s(&self, target: &Target, query: &ProbeQuery, seed: u64) -> Result<f64> {
        Ok(self.rate_within_budget(self.measure_read_share(target, query, seed)?))
    }

    fn rate_within_budget(&self, read_share: f64) -> f64 {
        let by_questions = (self.questions_per_s * QUERY_BUDGET_SHARE).clamp(MIN_RATE_PER_S, MAX_RATE_PER_S);
        if read_share < RARE_READ_SHARE {
            return by_questions;
        }
        let by_reads = self.reads_per_s * READ_BUDGET_SHARE / read_share;
        by_questions.min(by_reads.max(MIN_DISK_RATE_PER_S))
    }

    /// The share of questions for which the server goes to the disk, others' reads meanwhile taken off.
    fn measure_read_share(&self, target: &Target, query: &ProbeQuery, seed: u64) -> Result<f64> {
        let mut connection = Connection::connect(target)?;
        let Some(before) = query_disk_reads(&mut connection) else { return Ok(0.0) };
        let (mut rng, mut tried, begun) = (Rng::new(seed, TRIAL_QUERIES), 0, Instant::now());
        // A failed query is reported when the probe runs it.
        while tried < TRIAL_QUERIES
            && begun.elapsed() < TRIAL_TIMEOUT
            && connection.query(&query.next_sql(&mut rng)).is_ok()
        {
            tried += 1;
        }
        let others = self.reads_per_s * begun.elapsed().as_secs_f64();
        let more = query_disk_reads(&mut connection).map_or(0.0, |after| after - before - others);
        Ok(if tried == 0 { 0.0 } else { (more / tried as f64).clamp(0.0, 1.0) })
    }
}

fn query_question_count(connection: &mut Connection) -> Result<f64> {
    query_number(connection, "STATUS LIKE 'Questions'")
}

fn query_disk_reads(connection: &mut Connection) -> Option<f64> {
    query_number(connection, "STATUS LIKE 'Innodb_buffer_pool_reads'").ok()
}

fn query_number(connection: &mut Connection, what: &str) -> Result<f64> {
    let sql = format!("SHOW GLOBAL {what}");
    let rows = connection.query(&sql)?;
    let pair = rows.pairs().next().map(|(_, value)| value.parse::<f64>());
    match pair {
        Some(Ok(number)) => Ok(number),
        _ => bail!("the server returned no value for {sql}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_rate_is_a_hundredth_of_the_questions_and_a_twentieth_of_the_reads() {
        for (questions_per_s, reads_per_s, read_share, expected) in [
            (0.0, 0.0, 0.0, 100.0),
            (15_000.0, 0.0, 0.0, 150.0),
            (90_000.0, 0.0, 0.0, 200.0),
            // Seldom enough not to matter.
            (90_000.0, 10.0, 0.05, 200.0),
            // Each question is a read: a twentieth of the server's.
            (21_000.0, 1_300.0, 1.0, 65.0),
            // Half of them are.
            (21_000.0, 1_300.0, 0.5, 130.0),
            // A server with many reads of its own, and one with reads for the probe only.
            (21_000.0, 50_000.0, 1.0, 200.0),
            (21_000.0, 0.0, 1.0, 25.0),
        ] {
            let load = ServerLoad { net_write_timeout_s: 60.0, questions_per_s, reads_per_s };
            let per_s = load.rate_within_budget(read_share);
            assert!((per_s - expected).abs() < 1e-9, "{load:?} {read_share}: {per_s}, not {expected}");
        }
    }
}
