//! Writer of one host's digests: collects stretches, and writes them as files of each hour, then a manifest.
//!
//! Memory is bounded: what takes more is written at once.

use super::place;
use super::row_set::{ReplacedFiles, RowSet, WriteOptions};
use super::rows::{CoverageRow, DigestRow, RowContext, TextRow};
use super::store::Store;
use anyhow::ensure;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use toll_digest::classes::{Class, Digest, GroupBy};

/// Memory of what waits: beyond the first it is written, and beyond the second dropped where it cannot be. After a failure
/// it is tried again once as much more has come, or as much time has passed, as makes a flush due.
const PENDING_BYTES_DUE: usize = 16 << 20;
const PENDING_BYTES_MAX: usize = 64 << 20;
/// Classes whose texts are known to be written today.
const TEXTS_KNOWN_MAX: usize = 65_536;
/// Class of what a digest did not keep apart.
const FOLDED: [u8; 16] = [0; 16];

/// Host of the digests, and what they are made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    pub host: String,
    pub cluster: String,
    /// `packets`, `sockets`, or the type of a file.
    pub source: &'static str,
    /// Sets the names of the files: digested again, the same source writes the same ones.
    pub id: [u8; 16],
}

/// A digest, and the time that it is of.
pub struct Stretch<'a> {
    /// Unix time.
    pub begin_us: i64,
    pub width_us: i64,
    pub digest: &'a Digest,
    /// Packets or calls lost meanwhile.
    pub lost: u64,
    /// Of the connections that were looked at.
    pub sampled_share: f64,
}

/// Collects and writes.
pub struct TableWriter {
    store: Arc<dyn Store>,
    source: Source,
    /// In the names of files, whatever host the digests are of.
    file_host: String,
    /// Time that one set of files covers.
    flush_every_us: i64,
    flushes: u64,
    /// Written so far.
    rows: u64,
    waiting: RowSet,
    /// Memory of what waits, about.
    pending_bytes: usize,
    /// What `pending_bytes` must exceed, or the end of a stretch must reach, for the next flush.
    due_bytes: usize,
    due_us: i64,
    /// Stretches that could not be written and were dropped.
    dropped: u64,
    /// Since 1970; and the classes whose text that day's files have.
    texts_day: i64,
    texts_known: HashSet<[u8; 16]>,
    options: WriteOptions,
}

impl TableWriter {
    /// For files of a store; each set of them covers `flush_every`.
    ///
    /// # Errors
    /// Nothing can be written there.
    pub fn open(store: Arc<dyn Store>, source: Source, flush_every: Duration) -> anyhow::Result<Self> {
        store.check_writable()?;
        Ok(Self {
            store,
            file_host: source.host.clone(),
            source,
            flush_every_us: i64::try_from(flush_every.as_micros()).unwrap_or(i64::MAX),
            flushes: 0,
            rows: 0,
            waiting: RowSet::default(),
            pending_bytes: 0,
            due_bytes: PENDING_BYTES_DUE,
            due_us: 0,
            dropped: 0,
            texts_day: i64::MIN,
            texts_known: HashSet::new(),
            options: WriteOptions::default(),
        })
    }

    /// Adds a settled digest by fingerprint, and writes what is due.
    ///
    /// # Errors
    /// It is grouped by something else, or files cannot be written: what waits is kept for the next call, up to a limit
    /// of memory.
    pub fn add(&mut self, stretch: &Stretch<'_>) -> anyhow::Result<()> {
        let digest = stretch.digest;
        ensure!(
            digest.settings().group_by == GroupBy::Fingerprint,
            "tables hold classes by fingerprint: leave out --group-by"
        );
        let Source { host, cluster, source, .. } = self.source.clone();
        let context = RowContext {
            ts_us: stretch.begin_us,
            width_us: stretch.width_us,
            host: &host,
            cluster: &cluster,
            source,
        };
        for class in digest.classes() {
            self.add_row(DigestRow::of(class, class.id.0, digest, &context));
            if self.is_new_text(class.id.0, stretch.begin_us) {
                self.add_text(text_of(class, &cluster, stretch.begin_us));
            }
        }
        if digest.folded.count > 0 {
            self.add_row(DigestRow::of(&digest.folded, FOLDED, digest, &context));
        }
        self.add_coverage(CoverageRow {
            ts_us: stretch.begin_us,
            width_us: stretch.width_us,
            host,
            cluster,
            source: source.into(),
            commands: i64::try_from(digest.totals.commands).unwrap_or(i64::MAX),
            tainted: i64::try_from(digest.totals.tainted).unwrap_or(i64::MAX),
            lost: i64::try_from(stretch.lost).unwrap_or(i64::MAX),
            sampled_share: stretch.sampled_share,
            toll_version: env!("CARGO_PKG_VERSION").into(),
        })
    }

    /// Adds rows that were made elsewhere, whatever host they are of, and writes what is due.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn add_rows(&mut self, rows: RowSet) -> anyhow::Result<()> {
        rows.digests.into_iter().for_each(|row| self.add_row(row));
        for text in rows.texts {
            if self.is_new_text(text.class, text.first_us) {
                self.add_text(text);
            }
        }
        rows.coverage.into_iter().try_for_each(|row| self.add_coverage(row))
    }

    /// Of a stretch whose other rows are added. Writes what is due.
    fn add_coverage(&mut self, row: CoverageRow) -> anyhow::Result<()> {
        let (begin_us, end_us) = (row.ts_us, row.ts_us.saturating_add(row.width_us));
        if self.waiting.coverage.is_empty() {
            self.due_us = begin_us.saturating_add(self.flush_every_us);
        }
        self.waiting.coverage.push(row);
        // A clock that was set back by more makes it due at once.
        let is_due = end_us >= self.due_us
            || self.due_us.saturating_sub(end_us) > self.flush_every_us.saturating_mul(2);
        if !is_due && self.pending_bytes <= self.due_bytes {
            return Ok(());
        }
        let flushed = self.flush();
        if flushed.is_err() {
            self.due_us = end_us.saturating_add(self.flush_every_us);
            self.due_bytes = self.pending_bytes + PENDING_BYTES_DUE;
            if self.pending_bytes > PENDING_BYTES_MAX {
                self.dropped += self.waiting.coverage.len() as u64;
                // The texts of what is dropped are in no file.
                self.texts_known.clear();
                self.begin_next_flush();
            }
        }
        flushed
    }

    /// Stretches that were dropped, since they could not be written for long. Their time is not in `coverage`.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// From now on digests are made from this.
    pub fn set_source(&mut self, source: &'static str) {
        self.source.source = source;
    }

    /// The files may be there from an earlier reading of the same source, and merged since.
    pub(super) fn set_replaced(&mut self, replaced: ReplacedFiles) {
        self.options.replaced = replaced;
    }

    /// From now on digests are of this host.
    pub(super) fn set_host(&mut self, host: &str) {
        host.clone_into(&mut self.source.host);
    }

    /// Rows of digests written.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Stretches that wait to be written.
    pub fn pending(&self) -> usize {
        self.waiting.coverage.len()
    }

    /// Its files have another name than those of the one before, of which some may be there.
    fn begin_next_flush(&mut self) {
        self.flushes += 1;
        self.pending_bytes = 0;
        self.due_bytes = PENDING_BYTES_DUE;
        self.waiting = RowSet::default();
    }

    fn add_row(&mut self, row: DigestRow) {
        self.pending_bytes += row.bytes();
        self.waiting.digests.push(row);
    }

    /// True once a day for each class, and again where there were very many.
    fn is_new_text(&mut self, class: [u8; 16], ts_us: i64) -> bool {
        let day = ts_us.div_euclid(86_400_000_000);
        if day != self.texts_day || self.texts_known.len() >= TEXTS_KNOWN_MAX {
            self.texts_day = day;
            self.texts_known.clear();
        }
        self.texts_known.insert(class)
    }

    fn add_text(&mut self, row: TextRow) {
        self.pending_bytes += row.fingerprint.len() + row.summary.len() + size_of::<TextRow>();
        self.waiting.texts.push(row);
    }

    /// Writes what waits.
    ///
    /// # Errors
    /// Files cannot be written; they are tried again, under the same names, by the next call.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        if self.waiting.coverage.is_empty() {
            return Ok(());
        }
        let name = place::file_name(&self.file_host, self.source.id, self.flushes);
        self.waiting.write(&*self.store, &name, self.options)?;
        self.rows += self.waiting.digests.len() as u64;
        self.begin_next_flush();
        Ok(())
    }
}

fn text_of(class: &Class, cluster: &str, first_us: i64) -> TextRow {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    TextRow {
        class: class.id.0,
        cluster: cluster.to_owned(),
        fingerprint: text(&class.text),
        summary: text(&class.distill),
        tables: class.tables.iter().map(|table| text(table)).collect(),
        first_us,
    }
}
