//! Text report of one class: attributes, users and hosts, and a distribution.

use super::json::lossy_text;
use super::report::WIDTH;
use super::{DigestResult, Request};
use crate::classes::{Class, Digest, FLAG_NAMES, GroupBy, Measure, NameCounts, Sample};
use std::io::{self, Write};
use toll_input::short_number::{format_attribute, format_magnitude, format_share};
use toll_wire::attribute::{Attribute, Unit};

pub fn write_class(
    request: &Request,
    done: &DigestResult,
    class: &Class,
    rank: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let digest = &done.digest;
    let seconds = class.last_ns.saturating_sub(class.first_ns) as f64 / 1e9;
    let busy = class.measure(Attribute::QueryTime).map_or(0.0, |measure| measure.sum as f64 / 1e9);
    let rate = |n: f64| if seconds > 0.0 { format_magnitude(n / seconds, 1_000.0) } else { "0".to_owned() };
    let by_fingerprint = digest.settings().group_by == GroupBy::Fingerprint;
    let line = format!(
        "# {} {rank}: {} QPS, {}x concurrency, ID 0x{} ",
        if by_fingerprint { "Query" } else { "Item" },
        rate(class.count as f64),
        rate(busy),
        class.id,
    );
    writeln!(out, "\n{line:_<WIDTH$}")?;
    writeln!(out, "# Scores: V/M = {:.2}", variance_to_mean(class))?;
    write_time_range(class.first_ns, class.last_ns, out)?;
    if class.tainted > 0 {
        writeln!(out, "# Tainted: {} events lost a part: counted, but without a time", class.tainted)?;
    }
    if class.count_short_by_at_most > 0 {
        writeln!(
            out,
            "# Short of at most {} events, counted before there was room",
            class.count_short_by_at_most
        )?;
    }
    AttributeTable::from_class(digest, class).write(out)?;
    write_strings(digest, class, out)?;
    write_distribution(class, out)?;
    if by_fingerprint {
        write_tables(class, out)?;
        let sample = class.sample.as_ref().filter(|_| request.literals);
        let text = sample.map_or_else(|| class.text.clone(), Sample::render);
        writeln!(out, "{}\\G", lossy_text(&text))?;
        done.plans.get(&class.id).map_or(Ok(()), |plan| plan.write_text(out))
    } else {
        writeln!(out, "{}", lossy_text(&class.text))
    }
}

/// Variance of the query time over its mean, in seconds: how steady a query is.
pub fn variance_to_mean(class: &Class) -> f64 {
    class.measure(Attribute::QueryTime).map_or(0.0, |measure| {
        let (stddev, mean) = (measure.stddev() / 1e9, measure.mean() / 1e9);
        if mean > 0.0 { stddev * stddev / mean } else { 0.0 }
    })
}

pub fn write_time_range(first_ns: u64, last_ns: u64, out: &mut dyn Write) -> io::Result<()> {
    match render_time_range(first_ns, last_ns) {
        Some(range) if range.contains(" to ") => writeln!(out, "# Time range: {range}"),
        Some(moment) => writeln!(out, "# Time range: all events occurred at {moment}"),
        None => Ok(()),
    }
}

/// `2026-11-21 10:00:00 to 10:10:00`, or the moment of all events; `None`: they have no times.
pub fn render_time_range(first_ns: u64, last_ns: u64) -> Option<String> {
    let zone = jiff::tz::TimeZone::system();
    let moment = |ns: u64| {
        let time = jiff::Timestamp::from_nanosecond(i128::from(ns)).ok()?;
        let format =
            if ns.is_multiple_of(1_000_000_000) { "%Y-%m-%d %H:%M:%S" } else { "%Y-%m-%d %H:%M:%S.%6f" };
        Some(time.to_zoned(zone.clone()).strftime(format).to_string())
    };
    let (first, last) = (moment(first_ns)?, moment(last_ns).filter(|_| last_ns > 0)?);
    if first == last {
        return Some(first);
    }
    let same_day = first[..10] == last[..10];
    Some(format!("{first} to {}", if same_day { &last[11..] } else { &last }))
}

/// Rows of attributes under a common head.
pub struct AttributeTable {
    rows: Vec<String>,
}

impl AttributeTable {
    pub fn from_totals(digest: &Digest) -> Self {
        let mut rows = vec![
            render_row(
                "Attribute",
                "",
                &["total", "min", "max", "avg", "95%", "stddev", "median"].map(str::to_owned),
            ),
            render_row("============", "", &std::array::from_fn(|_| "=======".to_owned())),
        ];
        for (label, measure, unit) in measures(digest, &digest.all) {
            rows.push(render_row(&label, "", &render_cells(measure, unit)));
        }
        rows.extend(flags(&digest.all));
        Self { rows }
    }

    pub fn from_class(digest: &Digest, class: &Class) -> Self {
        let mut rows = vec![
            render_row(
                "Attribute",
                "pct",
                &["total", "min", "max", "avg", "95%", "stddev", "median"].map(str::to_owned),
            ),
            render_row("============", "===", &std::array::from_fn(|_| "=======".to_owned())),
        ];
        let mut count: [String; 7] = Default::default();
        count[0] = class.count.to_string();
        rows.push(render_row("Count", &format_share(class.count as f64, digest.all.count as f64), &count));
        let wholes = measures(digest, &digest.all);
        for (label, measure, unit) in measures(digest, class) {
            let whole = wholes.iter().find(|(name, ..)| *name == label).map_or(0, |(_, whole, _)| whole.sum);
            rows.push(render_row(
                &label,
                &format_share(measure.sum as f64, whole as f64),
                &render_cells(measure, unit),
            ));
        }
        rows.extend(flags(class));
        Self { rows }
    }

    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        self.rows.iter().try_for_each(|row| writeln!(out, "{}", row.trim_end()))
    }
}

fn render_row(label: &str, share: &str, cells: &[String; 7]) -> String {
    let mut row = format!("# {label:<12} {share:>3}");
    for cell in cells {
        row.push_str(&format!(" {cell:>7}"));
    }
    row
}

fn render_cells(measure: &Measure, unit: Unit) -> [String; 7] {
    [
        measure.sum as f64,
        measure.min as f64,
        measure.max as f64,
        measure.mean(),
        measure.quantile(0.95) as f64,
        measure.stddev(),
        measure.quantile(0.5) as f64,
    ]
    .map(|value| format_attribute(value, unit))
}

fn measures<'a>(digest: &Digest, class: &'a Class) -> Vec<(String, &'a Measure, Unit)> {
    let own = Attribute::ALL.into_iter().filter_map(|attribute| {
        Some((label(attribute).to_owned(), class.measure(attribute)?, attribute.unit()))
    });
    let others = (0_u8..).zip(digest.other_attributes()).filter_map(|(id, (name, unit))| {
        let name = name.strip_prefix("InnoDB_").unwrap_or(name).replace('_', " ");
        Some((name.chars().take(12).collect(), class.other(id)?, *unit))
    });
    own.chain(others).collect()
}

fn label(attribute: Attribute) -> &'static str {
    match attribute {
        Attribute::QueryTime => "Exec time",
        Attribute::FirstByteTime => "First byte",
        Attribute::LockTime => "Lock time",
        Attribute::RowsSent => "Rows sent",
        Attribute::RowsExamined => "Rows examine",
        Attribute::RowsAffected => "Rows affecte",
        Attribute::Warnings => "Warnings",
        Attribute::BytesSent => "Bytes sent",
        Attribute::BytesReceived => "Bytes recv",
        Attribute::QuerySize => "Query size",
    }
}

fn flags(class: &Class) -> Vec<String> {
    let set: Vec<String> = FLAG_NAMES
        .into_iter()
        .zip(class.flags)
        .filter(|(_, (set, _))| *set > 0)
        .map(|(name, (set, told))| {
            let label: String = name.replace('_', " ").chars().take(12).collect();
            let (yes, no) =
                (format_share(set as f64, told as f64), format_share((told - set) as f64, told as f64));
            format!("# {label:<12} {yes:>3}% yes, {no:>3}% no")
        })
        .collect();
    if set.is_empty() { set } else { std::iter::once("# Boolean:".to_owned()).chain(set).collect() }
}

fn write_strings(digest: &Digest, class: &Class, out: &mut dyn Write) -> io::Result<()> {
    let listed = |names: &NameCounts| {
        let counts = names.by_count();
        if let [(id, _)] = counts[..] {
            return lossy_text(digest.name(id));
        }
        let shown: Vec<String> = counts
            .iter()
            .take(3)
            .map(|(id, n)| {
                format!(
                    "{} ({n}/{}%)",
                    lossy_text(digest.name(*id)),
                    format_share(*n as f64, class.count as f64)
                )
            })
            .collect();
        let more = counts.len().saturating_sub(3);
        shown.join(", ") + &if more > 0 { format!("... {more} more") } else { String::new() }
    };
    let lines: Vec<(&str, String)> =
        [("Databases", &class.dbs), ("Hosts", &class.hosts), ("Users", &class.users)]
            .into_iter()
            .map(|(label, names)| (label, listed(names)))
            .filter(|(_, list)| !list.is_empty())
            .collect();
    let mut errors = class.error_numbers.clone();
    errors.sort_by_key(|(number, n)| (std::cmp::Reverse(*n), *number));
    let errors: Vec<String> = errors.iter().take(5).map(|(number, n)| format!("{number} ({n})")).collect();
    if !lines.is_empty() || !errors.is_empty() {
        writeln!(out, "# String:")?;
    }
    for (label, list) in lines {
        writeln!(out, "# {label:<12} {list}")?;
    }
    if !errors.is_empty() {
        writeln!(out, "# {:<12} {}", "Errors", errors.join(", "))?;
    }
    Ok(())
}

fn write_distribution(class: &Class, out: &mut dyn Write) -> io::Result<()> {
    const LABELS: [&str; 8] = ["1us", "10us", "100us", "1ms", "10ms", "100ms", "1s", "10s+"];
    const BAR: f64 = 64.0;
    let Some(measure) = class.measure(Attribute::QueryTime) else { return Ok(()) };
    let mut counts = [0_u64; 8];
    measure.histogram.each_value(|ns, count| {
        if ns >= 1_000 {
            counts[((ns / 1_000).ilog10() as usize).min(7)] += count;
        }
    });
    let most = counts.iter().copied().max().unwrap_or(0);
    writeln!(out, "# Query_time distribution")?;
    for (label, count) in LABELS.into_iter().zip(counts) {
        let marks = if count > 0 { (count as f64 * BAR / most as f64).max(1.0) as usize } else { 0 };
        let bar = if marks > 0 { format!("  {}", "#".repeat(marks)) } else { String::new() };
        writeln!(out, "# {label:>5}{bar}")?;
    }
    Ok(())
}

fn write_tables(class: &Class, out: &mut dyn Write) -> io::Result<()> {
    if class.tables.is_empty() {
        return Ok(());
    }
    writeln!(out, "# Tables")?;
    for table in &class.tables {
        let table = lossy_text(table);
        let (db, name) = match table.split_once('.') {
            Some((db, name)) => (Some(db), name),
            None => (None, table.as_str()),
        };
        let (from, full) = match db {
            Some(db) => (format!(" FROM `{db}`"), format!("`{db}`.`{name}`")),
            None => (String::new(), format!("`{name}`")),
        };
        writeln!(out, "#    SHOW TABLE STATUS{from} LIKE '{name}'\\G")?;
        writeln!(out, "#    SHOW CREATE TABLE {full}\\G")?;
    }
    Ok(())
}
