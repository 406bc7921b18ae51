//! Reader of stored digests: JSON in, merged into a digest. Bounds what a file can cost, and refuses what does not
//! merge exactly.

use super::input::Input;
use super::json::{kind_name, unit_name};
use super::schema::{self, ClassRow, Document, ExactValues, MeasureRow, NameCount};
use super::{DigestResult, InputSource, Request};
use crate::classes::{Class, Digest, FLAG_NAMES, Measure, NameCounts, RestOfClasses, Sample, Settings};
use anyhow::{Context, bail, ensure};
use std::cell::Cell;
use std::io::{self, BufReader, Read};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use toll_wire::attribute::{Attribute, Unit};
use toll_wire::event::CommandKind;
use toll_wire::fingerprint::QueryId;

/// Bytes of one digest as JSON. 8,192 classes of a busy server are a fifth of it.
const DOCUMENT_MAX: u64 = 128 << 20;
/// Memory of the histograms of all classes: a pair of numbers in a file may open 64 buckets.
const HISTOGRAMS_MAX: usize = 1 << 30;

const KINDS: [CommandKind; 6] = [
    CommandKind::Query,
    CommandKind::Prepare,
    CommandKind::Execute,
    CommandKind::Close,
    CommandKind::Reset,
    CommandKind::Admin,
];

/// True if a file starts like a JSON digest, of this version or another.
pub fn is_digest(head: &[u8]) -> bool {
    let head = head.trim_ascii_start();
    let Some(object) = head.strip_prefix(b"{") else { return false };
    let object = object.trim_ascii_start();
    [b"\"schema\"".as_slice(), b"\"inputs\""].iter().any(|name| object.starts_with(name))
}

/// Adds all digests of an input, one behind the other. Objects that are no digest, such as the accounting that ends
/// the output of `toll capture --json`, are passed by.
pub fn merge_stored(
    request: &Request,
    input: Input,
    done: &mut DigestResult,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    ensure!(
        request.since.is_none() && request.until.is_none() && request.filter.is_none(),
        "a digest has no single events: omit --since, --until and --filter, or name the captures or logs \
         that it was made of"
    );
    let (left, read) = (Rc::new(Cell::new(DOCUMENT_MAX)), Rc::new(Cell::new(0)));
    let reader = BoundedReader { reader: input.reader, left: Rc::clone(&left), read: Rc::clone(&read) };
    let documents = serde_json::Deserializer::from_reader(BufReader::new(reader)).into_iter::<Document>();
    let before = done.merged.digests;
    for document in documents {
        let document = document.context("it cannot be read as a digest")?;
        if let Some(document) = check_document(document)? {
            merge_one(request.settings, document, done)?;
        }
        left.set(DOCUMENT_MAX);
        if stop.load(Ordering::Relaxed) {
            done.interrupted = true;
            break;
        }
    }
    ensure!(
        done.merged.digests > before || done.interrupted || read.get() == 0,
        "it holds no digest as --format json writes it"
    );
    done.inputs.push(InputSource { name: input.name, r#type: input.kind.name(), bytes: read.get() });
    Ok(())
}

/// `None`: another object.
fn check_document(document: Document) -> anyhow::Result<Option<Document>> {
    match (&document.schema, &document.totals) {
        (Some(_), Some(_)) => Ok(Some(document)),
        (None, None) => Ok(None),
        (Some(_), None) => bail!("its totals are not there"),
        (None, Some(_)) => bail!(
            "it holds no histograms, as digests of an older toll: write it again with this one, from the capture or log"
        ),
    }
}

fn merge_one(settings: Settings, document: Document, done: &mut DigestResult) -> anyhow::Result<()> {
    if document.sampled.is_some() {
        bail!(
            "its figures are of a share of the connections, and estimates do not add up: name the query events that \
             it is of, or capture without a budget"
        );
    }
    done.merged.digests += 1;
    done.merged.interrupted += u64::from(document.interrupted);
    done.merged.classes_not_listed = done.merged.classes_not_listed.saturating_add(document.other.classes);
    let (mut digest, ledger) = digest_of(settings, document)?;
    let (first_ns, last_ns) = (digest.totals.first_ns, digest.totals.last_ns);
    if settings.keep_time_bins && first_ns > 0 {
        digest.bin_whole(first_ns.midpoint(last_ns));
    }
    done.digest.merge(&digest);
    done.accounting.merge_row(ledger);
    let bytes = done.digest.histogram_bytes();
    ensure!(bytes <= HISTOGRAMS_MAX, "its histograms would take more than {} MiB", HISTOGRAMS_MAX >> 20);
    Ok(())
}

/// The digest that was written.
fn digest_of(settings: Settings, document: Document) -> anyhow::Result<(Digest, schema::AccountingRow)> {
    let (Some(schema), Some(totals)) = (document.schema, document.totals) else { bail!("it is no digest") };
    let group_by = settings.group_by.to_string();
    if schema.group_by != group_by {
        bail!(
            "its classes are grouped by {:.40}, not by {group_by}: digests merge if they are grouped alike (--group-by)",
            schema.group_by
        );
    }
    let mut digest = Digest::new(settings);
    digest.totals.commands = totals.commands;
    digest.totals.queries = totals.queries;
    digest.totals.prepares = totals.prepares;
    digest.totals.admin = totals.admin;
    digest.totals.errors = totals.errors;
    digest.totals.tainted = totals.tainted;
    digest.totals.first_ns = totals.exact.first_ns;
    digest.totals.last_ns = totals.exact.last_ns;
    let mut counted = u128::from(document.other.count);
    for row in document.classes {
        let id = row.id.clone();
        counted += u128::from(row.count);
        let class = parse_class(row, &mut digest).with_context(|| format!("class {id:.32}"))?;
        ensure!(digest.insert(class), "class {id:.32} is in it twice");
    }
    let other = document.other;
    let mut class = Class::new_merged();
    class.count = other.count;
    class.errors = other.errors;
    class.tainted = other.tainted;
    fill_class(&mut class, other.exact, &mut digest).context("the classes that are not listed")?;
    digest.insert_rest(RestOfClasses { class, classes: other.classes, count_max: other.count_max });
    let mut all = Class::new_merged();
    all.count = totals.commands;
    all.errors = totals.errors;
    all.tainted = totals.tainted;
    fill_class(&mut all, totals.exact, &mut digest).context("totals")?;
    digest.all = all;
    ensure!(
        !digest.is_by_text() || counted == u128::from(totals.commands),
        "its classes come to {counted} commands, its totals to {}",
        totals.commands
    );
    Ok((digest, document.ledger))
}

fn parse_class(row: ClassRow, digest: &mut Digest) -> anyhow::Result<Class> {
    let text = match &row.exact.fingerprint_hex {
        Some(digits) => parse_hex(digits).context("fingerprint_hex")?,
        None => row.fingerprint.into_bytes(),
    };
    let id = parse_hex(&row.id)
        .ok()
        .and_then(|id| id.try_into().ok())
        .context("its id is not 32 hexadecimal digits")?;
    let mut class = Class::from_text(&text, QueryId(id)).context("its id is not that of its fingerprint")?;
    class.distill = row.distill.into_bytes();
    class.tables = row.tables.into_iter().map(String::into_bytes).collect();
    let kind = KINDS.into_iter().find(|kind| kind_name(*kind) == row.kind);
    class.kind = kind.with_context(|| format!("`{:.40}` is no kind of command", row.kind))?;
    class.count = row.count;
    class.errors = row.errors;
    class.tainted = row.tainted;
    class.count_short_by_at_most = row.count_short_by_at_most;
    class.error_numbers = row.error_numbers.into_iter().collect();
    count_names(&mut class.users, &row.users, digest);
    count_names(&mut class.dbs, &row.dbs, digest);
    count_names(&mut class.hosts, &row.hosts, digest);
    if digest.settings().keep_samples
        && let Some(text) = row.sample
    {
        class.sample = Some(Sample {
            text: text.into_bytes(),
            query_ns: row.exact.sample_query_ns.unwrap_or(0),
            start_ns: row.exact.sample_start_ns.unwrap_or(0),
            ..Sample::default()
        });
    }
    fill_class(&mut class, row.exact, digest)?;
    Ok(class)
}

fn count_names(names: &mut NameCounts, rows: &[NameCount], digest: &mut Digest) {
    for row in rows {
        names.add(digest.name_id(row.name.as_bytes()), row.count);
    }
}

fn fill_class(class: &mut Class, exact: ExactValues, digest: &mut Digest) -> anyhow::Result<()> {
    class.first_ns = exact.first_ns;
    class.last_ns = exact.last_ns;
    for flag in exact.flags {
        let at = FLAG_NAMES.iter().position(|name| *name == flag.name);
        let at = at.with_context(|| format!("this toll does not know the flag `{:.40}`", flag.name))?;
        ensure!(flag.set <= flag.reported, "{} is set more often than it is reported", flag.name);
        class.flags[at] = (flag.set, flag.reported);
    }
    for row in exact.measures {
        let name = row.name.clone();
        add_measure(class, row, digest).with_context(|| format!("attribute `{name:.64}`"))?;
    }
    Ok(())
}

fn add_measure(class: &mut Class, row: MeasureRow, digest: &mut Digest) -> anyhow::Result<()> {
    let measure = Measure::of_parts(row.sum, row.sum_of_squares, row.min, row.max, &row.histogram)
        .filter(|measure| measure.count == row.count)
        .context("its sum, bounds, count and histogram contradict each other")?;
    let check_unit = |unit: Unit| {
        ensure!(row.unit == unit_name(unit), "its unit is `{:.40}`, not {}", row.unit, unit_name(unit));
        Ok(())
    };
    if let Some(attribute) = Attribute::ALL.into_iter().find(|attribute| attribute.name() == row.name) {
        check_unit(attribute.unit())?;
        ensure!(class.measure(attribute).is_none(), "it is there twice");
        class.set_measure(attribute, measure);
    } else if let Some(id) = digest.other_id(&row.name) {
        check_unit(digest.other_attributes()[usize::from(id)].1)?;
        ensure!(class.other(id).is_none(), "it is there twice");
        class.set_other(id, measure);
    }
    Ok(())
}

/// Of hexadecimal digits.
fn parse_hex(digits: &str) -> anyhow::Result<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    ensure!(rest.is_empty(), "an odd number of hexadecimal digits");
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    pairs
        .iter()
        .map(|[high, low]| digit(*high).zip(digit(*low)).map(|(high, low)| high << 4 | low))
        .collect::<Option<_>>()
        .context("it is not hexadecimal")
}

/// Ends in an error where one digest is too long to be one.
struct BoundedReader {
    reader: Box<dyn Read + Send>,
    left: Rc<Cell<u64>>,
    read: Rc<Cell<u64>>,
}

impl Read for BoundedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        if self.left.get() < read as u64 {
            let why = format!("one digest is longer than {} MiB", DOCUMENT_MAX >> 20);
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        self.left.set(self.left.get() - read as u64);
        self.read.set(self.read.get() + read as u64);
        Ok(read)
    }
}
