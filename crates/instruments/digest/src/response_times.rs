//! Response times by class, from a digest that a running capture printed on one line of JSON.

use super::classes::Histogram;
use super::schema::{ClassRow, Document};
use anyhow::Context;
use toll_wire::attribute::Attribute;

/// One class in one digest.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassTimes {
    pub id: String,
    /// What its queries do, in a few words.
    pub title: String,
    pub fingerprint: String,
    pub count: u64,
    /// Sum of ln(response time in microseconds): within 0.8% of each, as the histogram's buckets are.
    pub ln_us_sum: f64,
    /// Begin of its last query, nanoseconds of Unix time.
    pub last_ns: u64,
}

/// The classes of one line that have response times.
///
/// # Errors
/// The line is no digest.
pub fn read_response_times(line: &[u8]) -> anyhow::Result<Vec<ClassTimes>> {
    let document: Document = serde_json::from_slice(line).context("a line of the capture is no digest")?;
    Ok(document.classes.into_iter().filter_map(class_times).collect())
}

fn class_times(row: ClassRow) -> Option<ClassTimes> {
    let times = row.exact.measures.iter().find(|measure| measure.name == Attribute::QueryTime.name())?;
    let (mut count, mut ln_us_sum) = (0, 0.0);
    Histogram::of_buckets(&times.histogram)?.each_value(|ns, n| {
        count += n;
        // Less than a nanosecond is none.
        ln_us_sum += n as f64 * (ns.max(1) as f64 / 1e3).ln();
    });
    let last_ns = row.exact.last_ns;
    Some(ClassTimes {
        id: row.id,
        title: row.distill,
        fingerprint: row.fingerprint,
        count,
        ln_us_sum,
        last_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::{Limit, Settings};
    use crate::{DigestResult, Format, Request, Type};
    use std::sync::atomic::AtomicBool;

    #[test]
    fn times_of_a_printed_digest_are_those_of_its_queries() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("slow.log");
        let query = |s: f64, sql: &str| {
            format!(
                "# Time: 2026-11-26T10:00:00.000000Z\n# Query_time: {s:.6}  Lock_time: 0.0 Rows_sent: 1  Rows_examined: 1\n{sql};\n"
            )
        };
        let text = [
            query(0.001, "SELECT a FROM t WHERE id = 1"),
            query(0.004, "SELECT a FROM t WHERE id = 2"),
            query(0.1, "DELETE FROM t"),
        ];
        std::fs::write(&log, text.concat()).unwrap();
        let request = Request {
            files: vec![log],
            kind: Some(Type::Slowlog),
            capture: toll_wire::decoder::Config::default(),
            settings: Settings::default(),
            limit: Limit { share: None, count: Some(10) },
            since: None,
            until: None,
            filter: None,
            format: Format::Json,
            literals: false,
            jobs: 1,
        };
        let done: DigestResult =
            crate::digest(&request, &crate::Progress::hidden(), &AtomicBool::new(false)).unwrap();
        let mut line = Vec::new();
        crate::print_line(&request, &done, &mut line).unwrap();
        let found = read_response_times(&line).unwrap();
        let select = found.iter().find(|class| class.title.starts_with("SELECT")).unwrap();
        assert_eq!((found.len(), select.count), (2, 2));
        assert!((select.ln_us_sum / 2.0 - 2_000_f64.ln()).abs() < 0.01, "{select:?}");
        assert!(select.last_ns > 0 && select.fingerprint.contains("where id"), "{select:?}");
        assert!(read_response_times(b"{\"schema\":7}\n").is_err());
    }
}
