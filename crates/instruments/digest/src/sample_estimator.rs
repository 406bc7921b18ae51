//! Estimator of totals from a sample of connections, with confidence intervals.
//!
//! Each connection is sampled with a known probability p (its share), and a value counts divided by p
//! (Horvitz and Thompson, 1952). Client commands are counted in packets on all connections, sampled or not.
//! The ratio of this true count to its estimate corrects each sum (the ratio estimator; Cochran, Sampling
//! Techniques, chapter 6).
//!
//! The variance is the sum over connections of e^2 (1 - p) / p^2. Here e is the part of a connection's value
//! that its commands do not predict. A command in progress at a change of the share starts before it and ends
//! after it, and counts with the wrong one of the two. So each connection adds one such command at each
//! change to the variance. Where the share changed during a connection, the roots of its parts' terms are
//! added before they are squared. This treats the parts as wholly dependent: too wide rather than too narrow.

use crate::classes::Digest;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use toll_stats::student_t_quantile;
use toll_wire::event::{CommandKind, Event, RequestCounts, SampleShare, Sink};

/// Connections held apart at once. Beyond, all so far are settled; one that goes on then counts as two.
const CONNECTIONS_MAX: usize = 65_536;
/// From here on, Student's t is the normal distribution in three digits.
const DF_MAX: u64 = 1_000;

/// Sink that digests events and tracks the share of connections they come from.
pub struct SamplingSink<'a> {
    pub digest: &'a mut Digest,
    pub sampled: &'a mut SampleEstimator,
}

impl Sink for SamplingSink<'_> {
    fn on_event(&mut self, event: &Event<'_>) {
        self.sampled.add_event(event);
        self.digest.on_event(event);
    }

    fn on_sample_share(&mut self, share: &SampleShare) {
        self.sampled.set_share(share);
    }
}

/// Sums over the connections that were kept.
#[derive(Debug, Clone)]
pub struct SampleEstimator {
    share: f64,
    /// Of the stretch of time with that share; Unix ns, 0: nothing was seen yet.
    share_since_ns: u64,
    last_ns: u64,
    /// Stretches that are over.
    elapsed_ns: f64,
    sampled_ns: f64,
    share_min: f64,
    /// As told last.
    asked: Option<RequestCounts>,
    requests_all: f64,
    /// As those kept would let expect.
    requests_expected: f64,
    /// Over the changes of the share: squares of by how much that changed what an event counts.
    changes: f64,
    queries: SampledSum,
    query_ns: SampledSum,
    commands: SampledSum,
    connections: u64,
    open: HashMap<u64, ConnectionParts>,
}

/// What is in all of one connection, each value times sqrt(1 - p) / p.
#[derive(Debug, Clone, Copy, Default)]
struct ConnectionParts {
    queries: f64,
    query_ns: f64,
    commands: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct SampledSum {
    /// While all connections were looked at.
    unsampled: f64,
    /// While a share was: divided by it.
    sampled: f64,
    /// Over connections that are settled: squares of their parts, and products with those of commands.
    squares: f64,
    products: f64,
}

impl SampledSum {
    fn add(&mut self, value: f64, kept: f64) {
        *(if kept < 1.0 { &mut self.sampled } else { &mut self.unsampled }) += value / kept;
    }

    fn settle(&mut self, part: f64, commands: f64) {
        self.squares += part * part;
        self.products += part * commands;
    }

    fn merge(&mut self, other: &Self) {
        self.unsampled += other.unsampled;
        self.sampled += other.sampled;
        self.squares += other.squares;
        self.products += other.products;
    }
}

/// Estimated totals.
#[derive(Debug, Clone, Copy)]
pub struct SampledTotals {
    pub share_min: f64,
    /// Over the time.
    pub share_mean: f64,
    /// Connections met while not all were looked at.
    pub connections: u64,
    pub queries: Estimate,
    pub query_ns: Estimate,
}

#[derive(Debug, Clone, Copy)]
pub struct Estimate {
    pub total: f64,
    /// 95%; `None`: fewer than two connections tell of it.
    pub interval: Option<(f64, f64)>,
}

impl Default for SampleEstimator {
    fn default() -> Self {
        Self {
            share: 1.0,
            share_since_ns: 0,
            last_ns: 0,
            elapsed_ns: 0.0,
            sampled_ns: 0.0,
            share_min: 1.0,
            asked: None,
            requests_all: 0.0,
            requests_expected: 0.0,
            changes: 0.0,
            queries: SampledSum::default(),
            query_ns: SampledSum::default(),
            commands: SampledSum::default(),
            connections: 0,
            open: HashMap::new(),
        }
    }
}

impl SampleEstimator {
    fn add_event(&mut self, event: &Event<'_>) {
        if event.start_ns > 0 {
            self.last_ns = self.last_ns.max(event.start_ns);
            if self.share_since_ns == 0 {
                self.share_since_ns = event.start_ns;
            }
        }
        let query_ns = event.query_ns.unwrap_or(0) as f64;
        let queries = f64::from(u8::from(matches!(event.kind, CommandKind::Query | CommandKind::Execute)));
        self.queries.add(queries, self.share);
        self.query_ns.add(query_ns, self.share);
        self.commands.add(1.0, self.share);
        if self.share < 1.0 {
            let weight = (1.0 - self.share).sqrt() / self.share;
            let parts = self.connection_parts(event);
            parts.queries += queries * weight;
            parts.query_ns += query_ns * weight;
            parts.commands += weight;
        }
    }

    fn connection_parts(&mut self, event: &Event<'_>) -> &mut ConnectionParts {
        if self.open.len() >= CONNECTIONS_MAX {
            self.settle_connections();
        }
        // Two connections whose hashes collide would count as one.
        let mut hasher = DefaultHasher::new();
        (event.host, event.port, event.connection_id).hash(&mut hasher);
        self.open.entry(hasher.finish()).or_default()
    }

    fn settle_connections(&mut self) {
        self.connections += self.open.len() as u64;
        for (_, parts) in self.open.drain() {
            self.queries.settle(parts.queries, parts.commands);
            self.query_ns.settle(parts.query_ns, parts.commands);
            self.commands.settle(parts.commands, parts.commands);
        }
    }

    /// See [`Sink::on_sample_share`].
    pub fn set_share(&mut self, share: &SampleShare) {
        self.end_interval(share.time_ns);
        if let Some(now) = share.requests {
            // Only what came since the last time is of this share. Another capture begins at nothing.
            if let Some(before) = self.asked
                && now.total >= before.total
                && now.sampled >= before.sampled
            {
                self.requests_all += (now.total - before.total) as f64;
                self.requests_expected += (now.sampled - before.sampled) as f64 / self.share;
            }
            self.asked = Some(now);
        }
        // Nothing is drawn with probability 0: whoever says so says it of a time without events.
        let before = std::mem::replace(&mut self.share, share.fraction.clamp(1e-9, 1.0));
        self.changes += (1.0 / self.share - 1.0 / before).powi(2);
        self.share_min = self.share_min.min(self.share);
    }

    fn end_interval(&mut self, time_ns: u64) {
        if self.share_since_ns > 0 {
            let passed_ns = time_ns.saturating_sub(self.share_since_ns) as f64;
            self.elapsed_ns += passed_ns;
            self.sampled_ns += passed_ns * self.share;
        }
        self.share_since_ns = time_ns;
        self.last_ns = self.last_ns.max(time_ns);
    }

    /// Begins anew with the share that holds now.
    pub fn restart(&self) -> Self {
        Self {
            share: self.share,
            share_min: self.share,
            share_since_ns: self.last_ns,
            asked: self.asked,
            ..Self::default()
        }
    }

    /// Adds the sums of another reader of the same capture, or of another.
    pub fn merge(&mut self, other: &Self) {
        let mut other = other.clone();
        other.end_interval(other.last_ns);
        self.elapsed_ns += other.elapsed_ns;
        self.sampled_ns += other.sampled_ns;
        self.share_min = self.share_min.min(other.share_min);
        self.requests_all += other.requests_all;
        self.requests_expected += other.requests_expected;
        self.changes += other.changes;
        self.connections += other.connections;
        self.queries.merge(&other.queries);
        self.query_ns.merge(&other.query_ns);
        self.commands.merge(&other.commands);
        for (key, parts) in other.open {
            let mine = self.open.entry(key).or_default();
            mine.queries += parts.queries;
            mine.query_ns += parts.query_ns;
            mine.commands += parts.commands;
        }
        if self.open.len() > CONNECTIONS_MAX {
            self.settle_connections();
        }
    }

    /// `None`: all connections were looked at, all the time.
    pub fn totals(&self) -> Option<SampledTotals> {
        if self.share_min >= 1.0 {
            return None;
        }
        let mut all = self.clone();
        all.end_interval(all.last_ns);
        all.settle_connections();
        Some(SampledTotals {
            share_min: all.share_min,
            share_mean: if all.elapsed_ns > 0.0 { all.sampled_ns / all.elapsed_ns } else { all.share },
            connections: all.connections,
            queries: all.estimate(&all.queries),
            query_ns: all.estimate(&all.query_ns),
        })
    }

    /// Of what is settled.
    fn estimate(&self, sum: &SampledSum) -> Estimate {
        let (mut correction, mut variance) = (1.0, sum.squares);
        if self.requests_expected > 0.0 && self.commands.sampled > 0.0 {
            correction = self.requests_all / self.requests_expected;
            let each = sum.sampled / self.commands.sampled;
            let beyond = sum.squares - 2.0 * each * sum.products + each * each * self.commands.squares;
            let under_way = (self.connections as f64 * each).powi(2) * self.changes;
            variance = correction * correction * (beyond.max(0.0) + under_way);
        }
        let total = sum.unsampled + correction * sum.sampled;
        let df = self.connections.saturating_sub(1).min(DF_MAX) as u32;
        let half = (df > 0).then(|| student_t_quantile(0.975, df) * variance.sqrt());
        Estimate { total, interval: half.map(|half| ((total - half).max(0.0), total + half)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toll_stats::SeededRng;

    const CONNECTIONS: u64 = 60;

    /// Queries of a connection in each half: some have ten times as many as others.
    fn queries(connection: u64) -> u64 {
        10 + connection % 7 * 15
    }

    /// Its query time in each half, ns: slower ones too.
    fn query_ns(connection: u64) -> u64 {
        queries(connection) * (1_000 + connection % 5 * 100)
    }

    fn query(connection: u64, start_ns: u64) -> Event<'static> {
        Event {
            host: b"10.0.0.1",
            port: connection as u16,
            start_ns,
            query_ns: Some(query_ns(connection) / queries(connection)),
            ..Event::default()
        }
    }

    fn told(time_ns: u64, kept: f64) -> SampleShare {
        SampleShare { time_ns, fraction: kept, requests: None }
    }

    /// What is found where each connection is kept by a draw against the share of each of two halves; with what
    /// clients asked, each query in two packets, or without.
    fn drawn(seed: u64, shares: [f64; 2], is_asked_told: bool) -> SampledTotals {
        let mut draws = SeededRng::new(seed, 0);
        let luck: Vec<f64> = (0..CONNECTIONS).map(|_| draws.next_fraction()).collect();
        let mut sampled = SampleEstimator::default();
        let mut asked = RequestCounts::default();
        for (half, share) in (1..).zip(shares) {
            let from_ns = half * 1_000_000;
            sampled
                .set_share(&SampleShare { requests: is_asked_told.then_some(asked), ..told(from_ns, share) });
            for connection in 0..CONNECTIONS {
                let is_kept = luck[connection as usize] < share;
                if share < 1.0 {
                    asked.total += queries(connection) * 2;
                    asked.sampled += if is_kept { queries(connection) * 2 } else { 0 };
                }
                if is_kept {
                    (0..queries(connection)).for_each(|n| sampled.add_event(&query(connection, from_ns + n)));
                }
            }
        }
        sampled.set_share(&SampleShare {
            requests: is_asked_told.then_some(asked),
            ..told(3_000_000, shares[1])
        });
        sampled.totals().unwrap()
    }

    /// Of 400 draws: how many intervals held the truth, the mean of the estimates over the truth, and the mean
    /// of the intervals' halves over it.
    fn coverage(
        shares: [f64; 2],
        is_asked_told: bool,
        of: fn(&SampledTotals) -> Estimate,
        truth: fn(u64) -> u64,
    ) -> (u32, f64, f64) {
        let truth = (0..CONNECTIONS).map(truth).sum::<u64>() as f64 * 2.0;
        let (mut held, mut mean, mut wide) = (0, 0.0, 0.0);
        for seed in 0..400 {
            let found = of(&drawn(seed, shares, is_asked_told));
            let (low, high) = found.interval.unwrap();
            held += u32::from((low - 1e-6..=high + 1e-6).contains(&truth));
            mean += found.total / truth / 400.0;
            wide += (high - low) / 2.0 / truth / 400.0;
        }
        (held, mean, wide)
    }

    #[test]
    fn totals_are_right_on_average_and_their_intervals_hold_the_truth() {
        for shares in [[0.5, 0.5], [0.3, 0.3], [0.8, 0.3], [0.3, 1.0]] {
            for is_asked_told in [false, true] {
                let of_time = coverage(shares, is_asked_told, |found| found.query_ns, query_ns);
                let of_count = coverage(shares, is_asked_told, |found| found.queries, queries);
                for (what, (held, mean, _)) in [("time", of_time), ("count", of_count)] {
                    assert!((0.97..1.03).contains(&mean), "{what} {shares:?} {is_asked_told}: {mean}");
                    // 95% of 400, less three times the error of such a count, and some for so few connections.
                    assert!(held >= 360, "{what} {shares:?} {is_asked_told}: {held} of 400");
                }
            }
        }
    }

    #[test]
    fn what_clients_asked_on_all_connections_makes_the_interval_narrow() {
        let of_time = |is_asked_told| coverage([0.3, 0.3], is_asked_told, |found| found.query_ns, query_ns).2;
        let (without, with) = (of_time(false), of_time(true));
        assert!(with * 4.0 < without, "{with} and {without} of the truth");
        // As many queries as half the packets, on each connection: then nothing is uncertain.
        let found = drawn(1, [0.3, 0.3], true).queries;
        let truth = (0..CONNECTIONS).map(queries).sum::<u64>() as f64 * 2.0;
        assert!((found.total / truth - 1.0).abs() < 1e-9, "{found:?} of {truth}");
    }

    #[test]
    fn parts_that_are_read_apart_come_to_the_same() {
        let mut whole = SampleEstimator::default();
        let mut parts = [SampleEstimator::default(), SampleEstimator::default()];
        for (at, part) in (0_u64..).zip(&mut parts) {
            for sampled in [&mut whole, part] {
                sampled.set_share(&told(1_000 + at * 500, 0.25));
                (0..10).for_each(|n| sampled.add_event(&query(n % 3, 1_000 + at * 500 + n)));
            }
        }
        let mut merged = SampleEstimator::default();
        parts.iter().rev().for_each(|part| merged.merge(part));
        let (whole, merged) = (whole.totals().unwrap(), merged.totals().unwrap());
        assert_eq!(whole.queries.total, 80.0);
        assert_eq!((whole.connections, merged.connections), (3, 3));
        assert_eq!(whole.queries.total, merged.queries.total);
        let ends = |found: SampledTotals| found.query_ns.interval.unwrap();
        assert!((ends(whole).1 / ends(merged).1 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn where_all_was_looked_at_nothing_is_said_and_of_one_connection_no_interval() {
        let mut sampled = SampleEstimator::default();
        sampled.add_event(&query(1, 5));
        assert!(sampled.totals().is_none());
        sampled.set_share(&told(10, 0.5));
        sampled.add_event(&query(1, 20));
        sampled.set_share(&told(30, 1.0));
        sampled.add_event(&query(2, 50));
        let found = sampled.totals().unwrap();
        assert_eq!((found.queries.total, found.connections), (4.0, 1));
        assert!(found.queries.interval.is_none());
        // 5 to 10 and 30 to 50 whole, 10 to 30 half.
        assert!((found.share_mean - 35.0 / 45.0).abs() < 1e-9, "{}", found.share_mean);
        // A digest that is begun anew goes on with the share that holds.
        sampled.set_share(&told(60, 0.25));
        let mut next = sampled.restart();
        next.add_event(&query(1, 70));
        assert_eq!(next.totals().unwrap().queries.total, 4.0);
    }
}
