//! Response times from the server's own counters: counts and sums of `performance_schema` by kind of statement, read each half second.
//!
//! A class's times are its mean's: the server keeps no logarithms. Statements of toll's own account are left out: probe queries of a
//! fixed rate would be a class of their own.

use super::{STRETCH_US, SeenClass, SeenStretch, Taker};
use anyhow::{Context, ensure};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use toll_mysql::{Connection, Target};
use toll_record::ClassTimes;
use toll_sys::clock;

/// What is read so soon after a stretch's end is taken for what it ended with.
const LATE_US: u64 = 5_000;
const TIMEOUT: Duration = Duration::from_secs(5);
/// Kinds of statement that users send, text or prepared; what monitoring sends most is left out. Some 150 rows for each account, which
/// are in memory. The server's own threads have no user; its accounts are by the name and host of the login, as USER() is.
const READ: &str = "SELECT EVENT_NAME, SUM(COUNT_STAR), SUM(SUM_TIMER_WAIT) \
    FROM performance_schema.events_statements_summary_by_account_by_event_name \
    WHERE COUNT_STAR > 0 AND CONCAT(USER, '@', HOST) <> USER() \
    AND (EVENT_NAME IN ('statement/com/Execute', 'statement/com/Bulk_execute') \
        OR EVENT_NAME LIKE 'statement/sql/%' AND EVENT_NAME NOT LIKE 'statement/sql/show%' \
        AND EVENT_NAME NOT IN ('statement/sql/set_option', 'statement/sql/error')) \
    GROUP BY EVENT_NAME";

/// Count, and sum in picoseconds, by name.
type Totals = BTreeMap<String, (u64, u64)>;

pub fn start(target: &Target, stop: &Arc<AtomicBool>, mut taker: Taker) -> anyhow::Result<JoinHandle<()>> {
    let mut connection =
        Connection::connect(target).with_context(|| format!("cannot reach {}", target.address))?;
    connection.set_read_timeout(Some(TIMEOUT))?;
    let mut last_us = clock::next_multiple_us(STRETCH_US);
    clock::sleep_until(last_us);
    let mut last = read(&mut connection).context("performance_schema cannot be read")?;
    ensure!(
        !last.is_empty(),
        "performance_schema counts no statements but toll's own: it or its instruments are off, or users share toll's account"
    );
    let stop = Arc::clone(stop);
    let reader = std::thread::Builder::new().name("class-counters".into()).spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            let due_us = clock::next_multiple_us(STRETCH_US);
            clock::sleep_until(due_us);
            let Ok(now) = read(&mut connection) else { return };
            let mut now_us = clock::mono_us();
            if now_us - due_us < LATE_US {
                now_us = due_us;
            }
            let classes = grown(&last, &now);
            taker(SeenStretch { mono_us: now_us, width_us: now_us - last_us, classes });
            (last, last_us) = (now, now_us);
        }
    })?;
    Ok(reader)
}

fn read(connection: &mut Connection) -> Result<Totals, toll_mysql::Error> {
    let rows = connection.query(READ)?;
    let number = |value: &Option<String>| value.as_ref().and_then(|text| text.parse().ok());
    let row = |row: &Vec<Option<String>>| match row.as_slice() {
        [Some(name), count, sum] => Some((name.clone(), (number(count)?, number(sum)?))),
        _ => None,
    };
    Ok(rows.rows.iter().filter_map(row).collect())
}

/// What came between two readings. Tables that were truncated meanwhile say nothing.
fn grown(before: &Totals, after: &Totals) -> Vec<SeenClass> {
    let of_class = |(name, (count, sum)): (&String, &(u64, u64))| {
        let (count_before, sum_before) = before.get(name).copied().unwrap_or_default();
        let count = count.checked_sub(count_before).filter(|count| *count > 0)?;
        let mean_us = sum.checked_sub(sum_before)? as f64 / 1e6 / count as f64;
        let ln_us_sum = count as f64 * mean_us.max(1e-3).ln();
        let title = name.rsplit('/').next().unwrap_or(name).to_owned();
        Some(SeenClass { name: name.clone(), title, times: ClassTimes { count, ln_us_sum } })
    };
    after.iter().filter_map(of_class).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grew_is_a_count_and_the_logarithm_of_a_mean() {
        let totals = |rows: &[(&str, u64, u64)]| -> Totals {
            rows.iter().map(|(name, count, sum)| ((*name).to_owned(), (*count, *sum))).collect()
        };
        let before = totals(&[("statement/sql/select", 10, 5_000_000), ("statement/sql/update", 4, 9)]);
        let after = totals(&[
            ("statement/sql/select", 14, 805_000_000),
            ("statement/sql/update", 4, 9),
            ("statement/sql/insert", 1, 7_000_000),
        ]);
        let found = grown(&before, &after);
        let titles: Vec<&str> = found.iter().map(|class| class.title.as_str()).collect();
        assert_eq!(titles, ["insert", "select"]);
        assert_eq!(found[1].times.count, 4);
        assert!((found[1].times.ln_us_sum - 4.0 * 200_f64.ln()).abs() < 1e-9, "{found:?}");
        let truncated = totals(&[("statement/sql/select", 3, 1)]);
        assert!(grown(&before, &truncated).is_empty());
    }
}
