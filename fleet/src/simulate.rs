//! Command `simulate`: tables of many hosts like those that were seen, to try queries and storage at a size.
//!
//! What a host runs is the average of the hosts seen: their classes, rates and histograms. Hosts differ in how much they do and in how fast
//! they are, the day has a curve, and counts are drawn (Poisson).

use anyhow::ensure;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use toll_digest::classes::{BUCKETS, Histogram};
use toll_stats::random::Rng;
use toll_tables::{CoverageRow, DigestRow, Location, RowSet, TextRow, WriteOptions, merge_digests, shard_of};

const HOUR_US: i64 = 3_600_000_000;
const CLUSTER_HOSTS: u32 = 10;
/// Standard deviation of the logarithm of a host's activity, and of its query times.
const ACTIVITY_SIGMA: f64 = 0.5;
const SPEED_SIGMA: f64 = 0.2;
/// By how much the busiest hour of the day exceeds the mean.
const DAY_SWING: f64 = 0.5;
/// Buckets of an octave.
const OCTAVE: i32 = 64;
/// Rows of a file.
const FILE_ROWS: usize = 1 << 18;
/// Expected counts from here on are drawn from a normal distribution.
const POISSON_MAX: f64 = 30.0;

/// What to simulate.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub hosts: u32,
    pub days: u32,
    /// Begin of the first day, Unix time in microseconds.
    pub begin_us: i64,
    pub seed: u64,
}

impl Plan {
    fn hours(self) -> i64 {
        i64::from(self.days) * 24
    }
}

/// Writes rows of each class, host and hour to `root`, as a compaction leaves them. `progress` gets the hours done, and all.
///
/// # Errors
/// The tables `like` have no digests, or the others are there already or cannot be written.
pub fn simulate(
    like: &Location,
    root: &Location,
    plan: Plan,
    stop: &AtomicBool,
    mut progress: impl FnMut(i64, i64),
) -> anyhow::Result<()> {
    let typical = Typical::read(like)?;
    root.create()?;
    let store = root.open()?;
    store.check_writable()?;
    let there = store.list("")?;
    ensure!(
        there.files.is_empty() && there.directories.is_empty(),
        "{root} is not empty: simulated rows may not lie among others; name a new place"
    );
    let clusters = plan.hosts.div_ceil(CLUSTER_HOSTS);
    let mut shards = BTreeMap::<u8, Vec<u32>>::new();
    for cluster in 0..clusters {
        shards.entry(shard_of(&cluster_name(cluster))).or_default().push(cluster);
    }
    let cluster_rows = typical.classes.len().max(1) * CLUSTER_HOSTS as usize;
    let options = WriteOptions { grain_us: HOUR_US, ..WriteOptions::default() };
    for hour in 0..plan.hours() {
        progress(hour, plan.hours());
        for clusters in shards.values().flat_map(|of| of.chunks(FILE_ROWS.div_ceil(cluster_rows))) {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let rows = typical.rows(plan, hour, clusters);
            // A manifest of the day has this name: none of another hour or file may have it.
            let name = format!("{hour:016x}{:016x}", clusters.first().unwrap_or(&0));
            rows.write(&*store, &name, options)?;
        }
    }
    Ok(())
}

fn cluster_name(cluster: u32) -> String {
    format!("cluster{cluster}")
}

/// What the hosts seen have in common.
struct Typical {
    /// Each once; their counts are those of an hour of one host.
    classes: Vec<DigestRow>,
    /// By which those of `classes` are to be multiplied.
    share_of_hour: f64,
    texts: Vec<TextRow>,
    /// Value of each bucket.
    values: Vec<i64>,
}

impl Typical {
    fn read(like: &Location) -> anyhow::Result<Self> {
        let RowSet { mut digests, mut texts, coverage } = RowSet::read(&*like.open()?)?;
        let seen_us: i64 = coverage.iter().map(|row| row.width_us).sum();
        ensure!(!digests.is_empty() && seen_us > 0, "{like} has no digests of a host");
        for row in &mut digests {
            (row.host, row.cluster, row.source) = (String::new(), String::new(), "simulated".into());
            (row.ts_us, row.width_us) = (0, HOUR_US);
        }
        texts.sort_by_key(|text| text.class);
        texts.dedup_by_key(|text| text.class);
        let value = |bucket| Histogram::of_buckets(&[(bucket, 1)]).map_or(0, |one| one.quantile(0.5));
        Ok(Self {
            classes: merge_digests(digests, HOUR_US),
            share_of_hour: HOUR_US as f64 / seen_us as f64,
            texts,
            values: (0..BUCKETS).map(|bucket| i64::try_from(value(bucket)).unwrap_or(i64::MAX)).collect(),
        })
    }

    fn rows(&self, plan: Plan, hour: i64, clusters: &[u32]) -> RowSet {
        let mut rows = RowSet::default();
        let ts_us = plan.begin_us + hour * HOUR_US;
        let of_day = 1.0 + DAY_SWING * (std::f64::consts::TAU * (hour % 24) as f64 / 24.0).sin();
        for &cluster in clusters {
            let name = cluster_name(cluster);
            if hour % 24 == 0 {
                rows.texts.extend(self.texts.iter().map(|text| TextRow {
                    cluster: name.clone(),
                    first_us: ts_us,
                    ..text.clone()
                }));
            }
            let first = cluster * CLUSTER_HOSTS;
            for host in first..(first + CLUSTER_HOSTS).min(plan.hosts) {
                let mut draws = Draws(Rng::new(plan.seed, u64::from(host)));
                let activity = (ACTIVITY_SIGMA * draws.normal()).exp() * of_day * self.share_of_hour;
                let shift =
                    (SPEED_SIGMA * draws.normal() * std::f64::consts::LOG2_E * f64::from(OCTAVE)) as i32;
                // Another stream for each hour.
                draws = Draws(Rng::new(plan.seed, u64::from(host) << 32 | (hour + 1).cast_unsigned()));
                let host = format!("db{host}");
                let mut commands = 0;
                for class in &self.classes {
                    let of = HostHour { ts_us, host: &host, cluster: &name, activity, shift };
                    if let Some(row) = self.row(class, &of, &mut draws) {
                        commands += row.n;
                        rows.digests.push(row);
                    }
                }
                rows.coverage.push(CoverageRow {
                    ts_us,
                    width_us: HOUR_US,
                    host,
                    cluster: name.clone(),
                    source: "simulated".into(),
                    commands,
                    tainted: 0,
                    lost: 0,
                    sampled_share: 1.0,
                    toll_version: env!("CARGO_PKG_VERSION").into(),
                });
            }
        }
        rows
    }

    /// `None`: the class did not run.
    fn row(&self, class: &DigestRow, of: &HostHour<'_>, draws: &mut Draws) -> Option<DigestRow> {
        let mut histogram = Vec::with_capacity(class.histogram.len());
        let (mut n, mut time_ns) = (0_i64, 0_i64);
        for &(bucket, seen) in &class.histogram {
            let found = draws.poisson(seen as f64 * of.activity);
            if found > 0 {
                let bucket = shifted(bucket, of.shift);
                let count = i64::try_from(found).unwrap_or(i64::MAX);
                n += count;
                time_ns = time_ns.saturating_add(count.saturating_mul(self.values[usize::from(bucket)]));
                match histogram.last_mut() {
                    Some((last, sum)) if *last == bucket => *sum += found,
                    _ => histogram.push((bucket, found)),
                }
            }
        }
        let max_ns = self.values[usize::from(histogram.last()?.0)];
        let share = n as f64 / class.n.max(1) as f64;
        let part = |sum: i64| (sum as f64 * share).round() as i64;
        let names = |names: &[(String, i64)]| {
            names.iter().map(|(name, n)| (name.clone(), part(*n))).filter(|(_, n)| *n > 0).collect()
        };
        Some(DigestRow {
            ts_us: of.ts_us,
            width_us: HOUR_US,
            host: of.host.to_owned(),
            cluster: of.cluster.to_owned(),
            source: class.source.clone(),
            class: class.class,
            n,
            errors: part(class.errors),
            tainted: 0,
            time_ns,
            max_ns,
            lock_ns: class.lock_ns.map(part),
            rows_sent: class.rows_sent.map(part),
            rows_examined: class.rows_examined.map(part),
            rows_affected: class.rows_affected.map(part),
            bytes_sent: class.bytes_sent.map(part),
            bytes_received: class.bytes_received.map(part),
            dbs: names(&class.dbs),
            users: names(&class.users),
            histogram,
        })
    }
}

/// One host in one hour.
struct HostHour<'a> {
    ts_us: i64,
    host: &'a str,
    cluster: &'a str,
    /// By which counts are multiplied.
    activity: f64,
    /// By which buckets are moved.
    shift: i32,
}

/// The first octave has no fractions to move by.
fn shifted(bucket: u16, shift: i32) -> u16 {
    if i32::from(bucket) < OCTAVE {
        return bucket;
    }
    (i32::from(bucket) + shift).clamp(OCTAVE, i32::from(BUCKETS) - 1) as u16
}

struct Draws(Rng);

impl Draws {
    /// Box and Muller's.
    fn normal(&mut self) -> f64 {
        (-2.0 * self.0.unit().ln()).sqrt() * (std::f64::consts::TAU * self.0.unit()).cos()
    }

    /// Knuth's for few, and the normal approximation for many.
    fn poisson(&mut self, mean: f64) -> u64 {
        if mean >= POISSON_MAX {
            return (mean + mean.sqrt() * self.normal()).round().max(0.0) as u64;
        }
        let (limit, mut product, mut count) = ((-mean).exp(), self.0.unit(), 0);
        while product > limit {
            product *= self.0.unit();
            count += 1;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_their_mean_on_both_sides_of_the_change_of_method() {
        let mut draws = Draws(Rng::new(1, 1));
        for mean in [0.01, 0.7, 5.0, 29.9, 30.1, 400.0] {
            let sum: u64 = (0..20_000).map(|_| draws.poisson(mean)).sum();
            let deviations = (sum as f64 / 20_000.0 - mean) / (mean / 20_000.0).sqrt();
            assert!(deviations.abs() < 4.0, "{mean}: off by {deviations} standard errors");
        }
        assert_eq!((shifted(63, 9), shifted(64, -9), shifted(BUCKETS - 1, 9)), (63, 64, BUCKETS - 1));
    }
}
