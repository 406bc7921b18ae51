//! Conversion of a real workload's digest or event dump into a mix of the same shape.
//!
//! The mix repeats statements, their proportions, and (from events) their order and arrival times. It does
//! not repeat the assignment of statements to sessions. Statements that depend on their session (transaction
//! brackets, SET, USE, administrator commands) are left out and counted.

use super::{Distribution, Event, Mix, MixError, Param, Statement, Step, TableSet};
use serde::Deserialize;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use toll_mysql::placeholder::substitute_params;

/// A workload taken from a recording.
#[derive(Debug)]
pub struct RecordedWorkload {
    pub mix: Mix,
    /// Events a second in the recording, where it says.
    pub rate_per_s: Option<f64>,
    /// Arrival times from the first event on, ns, rising; empty for a digest.
    pub offsets_ns: Vec<u64>,
    /// Statements left out: count and an example.
    pub unsupported: Vec<(u64, String)>,
}

/// A recording is held in memory; this many events are 16 bytes each, and their texts once each.
const MAX_EVENTS: usize = 50_000_000;
const MAX_TEXTS: usize = 1_000_000;

#[derive(Debug, Deserialize)]
struct Digest {
    #[serde(default)]
    totals: Totals,
    classes: Vec<Class>,
}

#[derive(Debug, Default, Deserialize)]
struct Totals {
    #[serde(default)]
    commands: u64,
    #[serde(default)]
    qps: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Class {
    fingerprint: String,
    count: u64,
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    sample: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Line {
    /// RFC 3339; absent where the recording tells no times.
    time: Option<String>,
    query: String,
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    params: Option<String>,
    #[serde(default)]
    query_cut: u64,
}

impl Line {
    fn start_ns(&self) -> Option<i64> {
        i64::try_from(self.time.as_ref()?.parse::<jiff::Timestamp>().ok()?.as_nanosecond()).ok()
    }

    /// The statement with its values, or why it cannot be sent.
    fn statement(&self) -> Result<String, &'static str> {
        if self.query_cut > 0 {
            return Err("was not recorded whole");
        }
        if !matches!(self.kind.as_deref(), None | Some("query" | "execute"))
            || !is_self_contained(&self.query)
        {
            return Err("makes sense only inside its session");
        }
        if self.kind.as_deref() == Some("execute") && self.query.contains('?') {
            let values = self.params.as_deref().unwrap_or_default();
            return substitute_params(&self.query, values).ok_or("has lost its parameters");
        }
        Ok(self.query.clone())
    }
}

/// Reads the JSON of `toll digest`. A class with a sample sends the sample; one without sends its
/// fingerprint, with ids of `table` for its values, where that still makes a statement.
pub fn from_digest(path: &Path, table: TableSet) -> Result<RecordedWorkload, MixError> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|cause| MixError::Io { path: name.clone(), cause })?;
    let digest: Digest = serde_json::from_reader(BufReader::new(file)).map_err(|e| {
        MixError::Invalid(format!(
            "{name} is no digest in JSON ({e}): make one with toll digest --format json"
        ))
    })?;
    let mut statements = Vec::new();
    let mut events = Vec::new();
    let mut left_out = Vec::new();
    let mut kept = 0;
    for class in digest.classes {
        let sent = !matches!(class.kind.as_deref(), Some("prepare" | "close" | "reset" | "admin"));
        let statement = match &class.sample {
            Some(sample) if sent && is_self_contained(sample) => Ok(Statement::literal(sample.as_str())),
            None if sent && is_self_contained(&class.fingerprint) => {
                from_fingerprint(&class.fingerprint, table)
            }
            _ => Err("makes sense only inside its session".to_owned()),
        };
        match statement {
            Ok(statement) => {
                kept += class.count;
                let steps = vec![Step::Fixed(statements.len())];
                statements.push(statement);
                events.push(Event {
                    name: class.fingerprint,
                    weight: class.count as f64,
                    steps,
                    transaction: false,
                });
            }
            Err(reason) => left_out.push((class.count, format!("{}: {reason}", shorten(&class.fingerprint)))),
        }
    }
    if events.is_empty() {
        return Err(MixError::Invalid(format!(
            "{name} holds no class that can be sent: make the digest with --literals, so that it keeps samples"
        )));
    }
    let share = if digest.totals.commands > 0 { kept as f64 / digest.totals.commands as f64 } else { 1.0 };
    let rate_per_s = digest.totals.qps.map(|qps| qps * share.min(1.0)).filter(|rate| *rate > 0.0);
    Ok(RecordedWorkload {
        mix: Mix::new(statements, events, 1)?,
        rate_per_s,
        offsets_ns: Vec::new(),
        unsupported: left_out,
    })
}

/// Reads the lines of `toll digest --events --literals --format ndjson`; they may be a little out of order.
pub fn from_events(path: &Path) -> Result<RecordedWorkload, MixError> {
    let name = path.display().to_string();
    let io = |cause| MixError::Io { path: name.clone(), cause };
    let mut reader = BufReader::with_capacity(1 << 18, File::open(path).map_err(io)?);
    let mut texts: HashMap<String, u32> = HashMap::new();
    let mut arrivals: Vec<(i64, u32)> = Vec::new();
    let mut left_out: HashMap<&'static str, (u64, String)> = HashMap::new();
    let (mut line, mut number) = (String::new(), 0_u64);
    loop {
        line.clear();
        if reader.read_line(&mut line).map_err(io)? == 0 {
            break;
        }
        number += 1;
        if line.trim().is_empty() {
            continue;
        }
        let event: Line = match serde_json::from_str(&line) {
            Ok(event) => event,
            Err(_) if number > 1 => {
                left_out.entry("is no event").or_insert((0, shorten(&line))).0 += 1;
                continue;
            }
            Err(e) => {
                let reason = format!(
                    "{name}, line {number}: {e}; events come from toll digest --events --literals --format ndjson"
                );
                return Err(MixError::Invalid(reason));
            }
        };
        let sent = event.statement().and_then(|text| Ok((event.start_ns().ok_or("has no time")?, text)));
        let (start_ns, text) = match sent {
            Ok(sent) => sent,
            Err(reason) => {
                left_out.entry(reason).or_insert((0, shorten(&event.query))).0 += 1;
                continue;
            }
        };
        if arrivals.len() == MAX_EVENTS || (texts.len() == MAX_TEXTS && !texts.contains_key(&text)) {
            return Err(MixError::Invalid(format!(
                "{name} holds more than {MAX_EVENTS} events or {MAX_TEXTS} different texts: replay a shorter stretch"
            )));
        }
        let next = texts.len() as u32;
        arrivals.push((start_ns, *texts.entry(text).or_insert(next)));
    }
    if arrivals.is_empty() {
        return Err(MixError::Invalid(format!("{name} holds no event that can be sent")));
    }
    let left_out =
        left_out.into_iter().map(|(reason, (n, example))| (n, format!("{example}: {reason}"))).collect();
    build_recorded(texts, arrivals, left_out)
}

fn build_recorded(
    texts: HashMap<String, u32>,
    mut arrivals: Vec<(i64, u32)>,
    left_out: Vec<(u64, String)>,
) -> Result<RecordedWorkload, MixError> {
    arrivals.sort_by_key(|(start_ns, _)| *start_ns);
    let first_ns = arrivals[0].0;
    let offsets_ns: Vec<u64> = arrivals.iter().map(|(start_ns, _)| start_ns.abs_diff(first_ns)).collect();
    let length_s = offsets_ns.last().map_or(0.0, |last| *last as f64 / 1e9);
    let mut in_order: Vec<(u32, String)> = texts.into_iter().map(|(text, index)| (index, text)).collect();
    in_order.sort();
    let mut events = Vec::with_capacity(in_order.len());
    let mut statements = Vec::with_capacity(in_order.len());
    for (index, text) in in_order {
        let steps = vec![Step::Fixed(index as usize)];
        events.push(Event { name: shorten(&text), weight: 1.0, steps, transaction: false });
        statements.push(Statement::literal(text));
    }
    let mut mix = Mix::new(statements, events, 1)?;
    mix.sequence = Some(arrivals.iter().map(|(_, index)| *index).collect());
    let rate_per_s = (length_s > 0.0).then(|| arrivals.len() as f64 / length_s);
    Ok(RecordedWorkload { mix, rate_per_s, offsets_ns, unsupported: left_out })
}

/// True if a statement has the same meaning on any session.
fn is_self_contained(text: &str) -> bool {
    let word = text.trim_start().split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    !matches!(
        word.to_ascii_lowercase().as_str(),
        "" | "begin"
            | "start"
            | "commit"
            | "rollback"
            | "savepoint"
            | "release"
            | "set"
            | "use"
            | "administrator"
            | "prepare"
            | "execute"
            | "deallocate"
            | "lock"
            | "unlock"
            | "xa"
            | "shutdown"
            | "kill"
    )
}

/// A statement out of a fingerprint: `?` after a letter is a table's number, after LIMIT a small
/// number, else an id. Lists (`?+`) have lost their length, and with it their statement.
fn from_fingerprint(fingerprint: &str, table: TableSet) -> Result<Statement, String> {
    let insert =
        fingerprint.trim_start().starts_with("insert") || fingerprint.trim_start().starts_with("replace");
    if insert && fingerprint.contains("?+") {
        return Err("the length of its list is lost: make the digest with --literals".into());
    }
    // A list of one has the list's meaning, if not its size.
    let text = fingerprint.replace("?+", "?");
    let mut params = Vec::new();
    for (at, _) in text.match_indices('?') {
        let before = text[..at].trim_end();
        params.push(if text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            Param::Uniform { low: 1, high: i64::from(table.tables) }
        } else if before.ends_with("limit") || before.ends_with("offset") {
            Param::Uniform { low: 1, high: 10 }
        } else {
            Param::Id { rows: table.rows, distribution: Distribution::default() }
        });
    }
    Statement::new(text, params).map(Statement::as_text)
}

fn shorten(text: &str) -> String {
    let mut short: String = text.trim().chars().take(60).collect();
    if short.len() < text.trim().len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use toll_stats::random::Rng;

    const TABLE: TableSet = TableSet { tables: 3, rows: 10, distribution: Distribution::Special };

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn a_digest_keeps_statements_and_weights_and_says_what_it_leaves_out() {
        let digest = file(
            r#"{"totals": {"commands": 100, "qps": 50.0}, "classes": [
            {"fingerprint": "select c from sbtest? where id=?", "count": 60, "kind": "query", "rank": 1},
            {"fingerprint": "select ?", "count": 20, "kind": "query", "sample": "SELECT 'it?'"},
            {"fingerprint": "commit", "count": 10, "kind": "query"},
            {"fingerprint": "insert into t values(?+)", "count": 10, "kind": "query"}]}"#,
        );
        let recorded = from_digest(digest.path(), TABLE).unwrap();
        assert_eq!(recorded.mix.events.iter().map(|e| e.weight).collect::<Vec<_>>(), [60.0, 20.0]);
        assert_eq!(recorded.unsupported.iter().map(|(n, _)| n).sum::<u64>(), 20);
        assert_eq!(recorded.rate_per_s, Some(40.0));
        let mut out = Vec::new();
        recorded.mix.statements[0].write_query(&mut out, &mut Rng::new(1, 1), &mut 0);
        let text = String::from_utf8(out[5..].to_vec()).unwrap();
        assert!(text.starts_with("select c from sbtest") && !text.contains('?'), "{text}");
        assert_eq!(recorded.mix.statements[1].sql, "SELECT 'it?'");
    }

    #[test]
    fn events_keep_their_order_and_spacing() {
        let events = file(
            r#"{"time": "2026-11-21T10:00:00.000001Z", "kind": "query", "query": "SELECT 1"}
{"time": "2026-11-21T10:00:00.000005Z", "kind": "execute", "query": "SELECT ? + ?", "params": "7, 'a,b'"}
{"time": "2026-11-21T10:00:00.000004Z", "kind": "query", "query": "SELECT 1"}
{"time": "2026-11-21T10:00:00.000006Z", "kind": "query", "query": "BEGIN"}
{"time": "2026-11-21T10:00:00.000007Z", "kind": "execute", "query": "SELECT ?"}
{"time": "2026-11-21T10:00:00.000008Z", "kind": "query", "query": "SELECT '", "query_cut": 9}
{"time": null, "kind": "query", "query": "SELECT 2"}
{"ledger": {}}
"#,
        );
        let recorded = from_events(events.path()).unwrap();
        assert_eq!(recorded.offsets_ns, [0, 3000, 4000]);
        assert_eq!(recorded.mix.sequence.as_deref(), Some([0, 0, 1].as_slice()));
        assert_eq!(recorded.mix.statements[1].sql, "SELECT 7 + 'a,b'");
        assert_eq!(recorded.unsupported.iter().map(|(n, _)| n).sum::<u64>(), 5);
    }

    #[test]
    fn a_file_of_another_kind_is_refused_in_words() {
        let wrong = file("SELECT 1;\n");
        assert!(from_events(wrong.path()).unwrap_err().to_string().contains("line 1"));
        assert!(from_digest(wrong.path(), TABLE).unwrap_err().to_string().contains("no digest"));
        let empty = file(r#"{"classes": []}"#);
        assert!(from_digest(empty.path(), TABLE).unwrap_err().to_string().contains("--literals"));
    }
}
