//! Response times by class on a line of JSON: what a running capture prints for who needs nothing else, and its reader.

use super::classes::{Attribute, Class, Digest, Limit};
use super::json::lossy_text;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::io::Write;

/// One class in one digest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    response_times: Vec<ClassTimes>,
}

/// Writes the classes that have response times, without the end of the line.
///
/// # Errors
/// The output failed.
pub fn write(digest: &Digest, limit: Limit, out: impl Write) -> serde_json::Result<()> {
    let (shown, _) = digest.ranked(limit);
    serde_json::to_writer(out, &Line { response_times: shown.into_iter().filter_map(class_times).collect() })
}

/// # Errors
/// The line holds no response times.
pub fn read(line: &[u8]) -> anyhow::Result<Vec<ClassTimes>> {
    let line: Line = serde_json::from_slice(line).context("a line of the capture holds no response times")?;
    Ok(line.response_times)
}

fn class_times(class: &Class) -> Option<ClassTimes> {
    let (mut count, mut ln_us_sum) = (0, 0.0);
    class.measure(Attribute::QueryTime)?.histogram.each_value(|ns, n| {
        count += n;
        // Less than a nanosecond is none.
        ln_us_sum += n as f64 * (ns.max(1) as f64 / 1e3).ln();
    });
    Some(ClassTimes {
        id: class.id.to_string(),
        title: lossy_text(&class.distill),
        fingerprint: lossy_text(&class.text),
        count,
        ln_us_sum,
        last_ns: class.last_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::super::classes::Settings;
    use super::*;
    use toll_wire::event::{Event, Sink};

    #[test]
    fn times_that_are_read_are_those_of_the_queries() {
        let mut digest = Digest::new(Settings { times_alone: true, ..Settings::default() });
        for (text, query_ns) in [
            ("SELECT a FROM t WHERE id = 1", Some(1_000_000)),
            ("SELECT a FROM t WHERE id = 2", Some(4_000_000)),
            ("DELETE FROM t", Some(100_000_000)),
            ("SELECT 1", None),
        ] {
            let event =
                Event { text: text.as_bytes(), start_ns: 7, query_ns, user: b"app", ..Event::default() };
            digest.on_event(&event);
        }
        let mut line = Vec::new();
        write(&digest, Limit { share: None, count: Some(10) }, &mut line).unwrap();
        let found = read(&line).unwrap();
        let select = found.iter().find(|class| class.title.starts_with("SELECT")).unwrap();
        assert_eq!((found.len(), select.count, select.last_ns), (2, 2, 7));
        assert!((select.ln_us_sum / 2.0 - 2_000_f64.ln()).abs() < 0.01, "{select:?}");
        assert_eq!(select.fingerprint, "select a from t where id = ?");
        // As a digest of everything has them.
        let mut whole = Digest::new(Settings::default());
        whole.on_event(&Event { text: b"DELETE FROM t", query_ns: Some(100_000_000), ..Event::default() });
        let delete = found.iter().find(|class| class.title.starts_with("DELETE")).unwrap();
        let expected = class_times(&whole.classes()[0]).unwrap();
        assert_eq!(delete, &ClassTimes { last_ns: 7, ..expected });
        assert!(read(b"{\"schema\":7}\n").is_err());
    }
}
