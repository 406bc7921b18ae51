//! Statistics of one query class. Counts, sums and histograms merge exactly. Lists are bounded, and exact
//! until they are full.

use super::Measure;
use super::names::NameCounts;
use super::time_bins::{BinnedTimes, TimeBins};
use toll_wire::accounting::saturating_add_to;
use toll_wire::attribute::{Attribute, ExtraAttribute};
use toll_wire::event::{CommandKind, Event, Flags};
use toll_wire::fingerprint::QueryId;

/// Text kept of a fingerprint or a sample, bytes. The identifier is of the whole.
pub const TEXT_MAX: usize = 4_096;

/// Names of [`Class::flags`], as slow logs write them.
pub const FLAG_NAMES: [&str; 9] = [
    "No_index_used",
    "No_good_index_used",
    "Full_scan",
    "Full_join",
    "Tmp_table",
    "Tmp_table_on_disk",
    "Filesort",
    "Filesort_on_disk",
    "QC_hit",
];

/// A statement as it was written.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    pub text: Vec<u8>,
    /// Values of a prepared statement, as SQL.
    pub params: Vec<u8>,
    /// Text or values are longer than the sample.
    pub is_cut: bool,
    /// Schema of the session; empty: none, or not known.
    pub db: Vec<u8>,
    pub query_ns: u64,
    pub start_ns: u64,
}

impl Sample {
    /// The statement, with its values in a comment.
    pub fn render(&self) -> Vec<u8> {
        if self.params.is_empty() {
            return self.text.clone();
        }
        [self.text.as_slice(), b" /* ", &self.params, b" */"].concat()
    }

    fn bytes(&self) -> usize {
        self.text.len() + self.params.len() + self.db.len()
    }

    fn replace(&mut self, event: &Event<'_>, query_ns: u64) {
        let parts =
            [(&mut self.text, event.text), (&mut self.params, event.params), (&mut self.db, event.db)];
        for (kept, whole) in parts {
            kept.clear();
            kept.extend_from_slice(&whole[..whole.len().min(TEXT_MAX)]);
        }
        self.is_cut = event.text_cut > 0 || event.text.len().max(event.params.len()) > TEXT_MAX;
        self.query_ns = query_ns;
        self.start_ns = event.start_ns;
    }
}

#[derive(Debug, Clone)]
pub struct Class {
    /// Key of the class; long keys are truncated and rely on their identifier.
    pub(super) key: Box<[u8]>,
    pub id: QueryId,
    /// Fingerprint (or whatever it is grouped by), at most 4 KiB of it.
    pub text: Vec<u8>,
    pub distill: Vec<u8>,
    pub tables: Vec<Vec<u8>>,
    pub kind: CommandKind,
    pub count: u64,
    pub errors: u64,
    pub tainted: u64,
    /// At most so many more may have been counted before the class was last folded.
    pub count_short_by_at_most: u64,
    measures: [Option<Box<Measure>>; Attribute::ALL.len()],
    others: Vec<(u8, Measure)>,
    /// For each of [`FLAG_NAMES`]: how often it was set, and how often it was told.
    pub flags: [(u64, u64); FLAG_NAMES.len()],
    pub users: NameCounts,
    pub hosts: NameCounts,
    pub dbs: NameCounts,
    /// Error numbers and their counts.
    pub error_numbers: Vec<(u16, u64)>,
    /// Unix ns; 0: unknown.
    pub first_ns: u64,
    pub last_ns: u64,
    pub sample: Option<Sample>,
    /// Query times over time, where they are kept.
    time_bins: Option<Box<TimeBins>>,
}

/// Names of an event, as numbers.
pub(super) struct EventNames {
    pub user: u32,
    pub host: u32,
    pub db: u32,
}

/// Error numbers counted apart.
const ERRORS_MAX: usize = 32;

impl Class {
    /// An empty one of no text, for what was stored of several.
    pub fn new_merged() -> Self {
        Self::new(b"", 0)
    }

    /// An empty one of its own text, for what was stored; `None`: the text has another identifier.
    pub fn from_text(text: &[u8], id: QueryId) -> Option<Self> {
        if text.len() <= TEXT_MAX && QueryId::from_fingerprint(text) == id {
            return Some(Self::new(text, 0));
        }
        (text.len() == TEXT_MAX).then(|| Self::new(&[text, &id.0].concat(), 0))
    }

    /// `key`: as [`bound_key`] leaves it.
    pub(super) fn new(key: &[u8], short_by: u64) -> Self {
        let (text, id) = match key.split_at_checked(TEXT_MAX) {
            Some((head, id)) if let Ok(id) = id.try_into() => (head, QueryId(id)),
            _ => (key, QueryId::from_fingerprint(key)),
        };
        Self {
            key: key.into(),
            id,
            text: text.to_vec(),
            distill: Vec::new(),
            tables: Vec::new(),
            kind: CommandKind::Query,
            count: 0,
            errors: 0,
            tainted: 0,
            count_short_by_at_most: short_by,
            measures: Default::default(),
            others: Vec::new(),
            flags: Default::default(),
            users: NameCounts::default(),
            hosts: NameCounts::default(),
            dbs: NameCounts::default(),
            error_numbers: Vec::new(),
            first_ns: 0,
            last_ns: 0,
            sample: None,
            time_bins: None,
        }
    }

    pub fn measure(&self, attribute: Attribute) -> Option<&Measure> {
        self.measures[attribute as usize].as_deref()
    }

    /// Attributes of logs by the number of their name, see [`super::Digest::other_attributes`].
    pub fn other(&self, id: u8) -> Option<&Measure> {
        self.others.iter().find(|(n, _)| *n == id).map(|(_, measure)| measure)
    }

    pub fn set_measure(&mut self, attribute: Attribute, measure: Measure) {
        self.measures[attribute as usize] = Some(Box::new(measure));
    }

    /// `id`: as [`super::Digest::other_id`] gives it.
    pub fn set_other(&mut self, id: u8, measure: Measure) {
        *self.other_mut(id) = measure;
    }

    pub fn time_bins(&self) -> Option<&TimeBins> {
        self.time_bins.as_deref()
    }

    /// Returns by how many bytes it has grown.
    pub(super) fn add_to_bin(&mut self, index: u64, times: BinnedTimes) -> usize {
        let mut bytes = 0;
        let bins = self.time_bins.get_or_insert_with(|| {
            bytes = size_of::<TimeBins>();
            Box::default()
        });
        bytes + bins.add(index, times)
    }

    /// Puts all its events into one bin.
    pub(super) fn bin_whole(&mut self, index: u64) {
        let mut times = BinnedTimes { events: self.count, ..BinnedTimes::default() };
        if let Some(measure) = self.measure(Attribute::QueryTime) {
            measure.histogram.each_value(|query_ns, count| times.add_time(query_ns, count));
        }
        self.add_to_bin(index, times);
    }

    pub(super) fn coarsen_bins(&mut self, merges: u32) {
        if let Some(bins) = &mut self.time_bins {
            bins.coarsen(merges);
        }
    }

    /// Adds the bins of another that have to be merged in pairs `merges` times first.
    pub(super) fn merge_bins(&mut self, from: &Self, merges: u32) {
        if let Some(bins) = &from.time_bins {
            self.time_bins.get_or_insert_default().merge(bins, merges);
        }
    }

    /// With all that may have been counted elsewhere.
    pub(super) fn count_at_most(&self) -> u64 {
        self.count.saturating_add(self.count_short_by_at_most)
    }

    /// Memory that clients can make it take, but for its lists of names and errors, which are short.
    pub(super) fn bytes(&self) -> usize {
        let tables: usize = self.tables.iter().map(|table| table.len() + size_of::<Vec<u8>>()).sum();
        // The key is in the index, too.
        let texts = 2 * self.key.len() + self.text.len() + self.distill.len() + tables;
        let measures = self.measures.iter().flatten().count() + self.others.len();
        size_of::<Self>()
            + texts
            + self.sample_bytes()
            + measures * size_of::<Measure>()
            + self.histogram_bytes()
            + self.time_bins.as_ref().map_or(0, |bins| size_of::<TimeBins>() + bins.bytes())
    }

    fn sample_bytes(&self) -> usize {
        self.sample.as_ref().map_or(0, Sample::bytes)
    }

    /// Memory of its histograms.
    pub(super) fn histogram_bytes(&self) -> usize {
        let own = self.measures.iter().flatten().map(|measure| measure.histogram.bytes());
        let others = self.others.iter().map(|(_, measure)| measure.histogram.bytes());
        own.chain(others).sum()
    }

    /// Returns by how many bytes it has grown.
    pub(super) fn add_sampled(
        &mut self,
        event: &Event<'_>,
        seen: &EventNames,
        others: &[ExtraAttribute],
        keep: bool,
    ) -> usize {
        let mut bytes = 0;
        if keep {
            let before = self.sample_bytes();
            self.keep_sample(event);
            bytes += self.sample_bytes().saturating_sub(before);
        }
        bytes + self.add(event, seen, others)
    }

    /// Nothing but its count and query time. Returns by how many bytes it has grown.
    pub(super) fn add_time(&mut self, event: &Event<'_>) -> usize {
        self.count += 1;
        self.extend_times(event.start_ns, event.start_ns);
        event.query_ns.map_or(0, |query_ns| self.record(Attribute::QueryTime, query_ns))
    }

    fn record(&mut self, attribute: Attribute, value: u64) -> usize {
        let mut bytes = 0;
        let measure = self.measures[attribute as usize].get_or_insert_with(|| {
            bytes = size_of::<Measure>();
            Box::default()
        });
        bytes + measure.record(value)
    }

    pub(super) fn add(&mut self, event: &Event<'_>, seen: &EventNames, others: &[ExtraAttribute]) -> usize {
        let mut bytes = 0;
        self.count += 1;
        self.tainted += u64::from(event.tainted);
        for attribute in Attribute::ALL {
            if let Some(value) = attribute.value_in(event) {
                bytes += self.record(attribute, value);
            }
        }
        for &(id, value) in others {
            let measures = self.others.len();
            bytes += self.other_mut(id).record(value);
            bytes += (self.others.len() - measures) * size_of::<Measure>();
        }
        if event.flags != Flags::default() {
            self.add_flags(&event.flags);
        }
        self.users.add(seen.user, 1);
        self.hosts.add(seen.host, 1);
        self.dbs.add(seen.db, 1);
        if let Some(error) = event.error {
            self.errors += 1;
            self.add_error(error.number, 1);
        }
        self.extend_times(event.start_ns, event.start_ns);
        bytes
    }

    /// The slowest; of statements without a time the first.
    fn keep_sample(&mut self, event: &Event<'_>) {
        let query_ns = event.query_ns.unwrap_or(0);
        if self.sample.as_ref().is_some_and(|sample| sample.query_ns >= query_ns) {
            return;
        }
        self.sample.get_or_insert_default().replace(event, query_ns);
    }

    fn other_mut(&mut self, id: u8) -> &mut Measure {
        let at = self.others.iter().position(|(n, _)| *n == id).unwrap_or_else(|| {
            self.others.push((id, Measure::default()));
            self.others.len() - 1
        });
        &mut self.others[at].1
    }

    fn add_flags(&mut self, flags: &Flags) {
        let known = [
            flags.no_index_used,
            flags.no_good_index_used,
            flags.full_scan,
            flags.full_join,
            flags.tmp_table,
            flags.tmp_table_on_disk,
            flags.filesort,
            flags.filesort_on_disk,
            flags.qc_hit,
        ];
        for (counts, flag) in self.flags.iter_mut().zip(known) {
            counts.0 += u64::from(flag == Some(true));
            counts.1 += u64::from(flag.is_some());
        }
    }

    fn add_error(&mut self, number: u16, count: u64) {
        if let Some((_, n)) = self.error_numbers.iter_mut().find(|(n, _)| *n == number) {
            saturating_add_to(n, count);
        } else if self.error_numbers.len() < ERRORS_MAX {
            self.error_numbers.push((number, count));
        }
    }

    fn extend_times(&mut self, first_ns: u64, last_ns: u64) {
        if first_ns > 0 && (self.first_ns == 0 || first_ns < self.first_ns) {
            self.first_ns = first_ns;
        }
        self.last_ns = self.last_ns.max(last_ns);
    }

    /// `name` and `other`: the numbers here of names and attributes there.
    pub(super) fn merge(&mut self, from: &Self, name: impl Fn(u32) -> u32, other: impl Fn(u8) -> Option<u8>) {
        saturating_add_to(&mut self.count, from.count);
        saturating_add_to(&mut self.errors, from.errors);
        saturating_add_to(&mut self.tainted, from.tainted);
        saturating_add_to(&mut self.count_short_by_at_most, from.count_short_by_at_most);
        for (mine, theirs) in self.measures.iter_mut().zip(&from.measures) {
            if let Some(theirs) = theirs {
                mine.get_or_insert_default().merge(theirs);
            }
        }
        for (id, measure) in &from.others {
            if let Some(id) = other(*id) {
                self.other_mut(id).merge(measure);
            }
        }
        for (mine, theirs) in self.flags.iter_mut().zip(&from.flags) {
            saturating_add_to(&mut mine.0, theirs.0);
            saturating_add_to(&mut mine.1, theirs.1);
        }
        self.users.merge(&from.users, &name);
        self.hosts.merge(&from.hosts, &name);
        self.dbs.merge(&from.dbs, &name);
        for &(number, count) in &from.error_numbers {
            self.add_error(number, count);
        }
        self.extend_times(from.first_ns, from.last_ns);
        if let Some(sample) = &from.sample
            && self.sample.as_ref().is_none_or(|mine| mine.query_ns < sample.query_ns)
        {
            self.sample = Some(sample.clone());
        }
    }
}

/// Cuts a long key to its head and its identifier, so that memory stays bounded.
pub(super) fn bound_key(key: &mut Vec<u8>) {
    if key.len() > TEXT_MAX {
        let id = QueryId::from_fingerprint(key);
        key.truncate(TEXT_MAX);
        key.extend_from_slice(&id.0);
    }
}
