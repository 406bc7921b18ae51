//! Query digest: events grouped by class. Bounded, mergeable, exact where documented.
//!
//! # Invariants
//! Never prints. Never stores a statement's literals, except with the option for it.

mod class;
mod comment_tag;
mod fold;
mod group;
mod histogram;
mod measure;
mod names;
mod parts;
mod rank;
mod recent;
mod recent_shapes;
mod shape;
mod time_bins;

pub use class::{Class, FLAG_NAMES, Sample, TEXT_MAX};
pub use comment_tag::TagName;
pub use group::{Description, GroupBy};
pub use histogram::{BUCKETS, HISTOGRAM_SCHEME, Histogram};
pub use measure::Measure;
pub use names::NameCounts;
pub use parts::RestOfClasses;
pub use rank::{Aggregate, Limit, Rank, RankError};
pub use time_bins::{BINS_MAX, TimeBin, TimeBins};
pub use toll_wire::attribute::{Attribute, Unit};

use class::EventNames;
use group::GroupKeys;
use names::NameTable;
use recent::RecentTexts;
use recent_shapes::RecentShapes;
use time_bins::{BinnedTimes, TimeAxis};
use toll_wire::attribute::{ExtraAttribute, ExtraAttributes};
use toll_wire::event::{CommandKind, Event, Sink};
use toll_wire::text_hash::TextMap;

/// Classes kept apart. When there are more, the lower half is folded into [`Digest::folded`].
pub const CLASSES_MAX: usize = 8_192;

/// Memory of the classes kept apart, bytes. Clients choose texts and times, and a class whose values spread widely takes
/// hundreds of KiB. When they take more, the lowest are folded until half of it is free.
pub const CLASSES_BYTES_MAX: usize = 128 << 20;

/// Options of a digest.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub group_by: GroupBy,
    pub rank: Rank,
    /// Keep the slowest statement of each class as it was written.
    pub keep_samples: bool,
    /// Keep the query times of each class over time, for a comparison.
    pub keep_time_bins: bool,
    /// Keep of each class its count and query times alone, at two thirds of the CPU. Classes that the text tells apart.
    pub times_alone: bool,
    pub classes_max: usize,
    pub classes_bytes_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            group_by: GroupBy::Fingerprint,
            rank: Rank::default(),
            keep_samples: false,
            keep_time_bins: false,
            times_alone: false,
            classes_max: CLASSES_MAX,
            classes_bytes_max: CLASSES_BYTES_MAX,
        }
    }
}

/// Counts of everything, classes or not.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    pub commands: u64,
    /// Statements run: queries and executions of prepared ones.
    pub queries: u64,
    pub prepares: u64,
    pub admin: u64,
    pub errors: u64,
    pub tainted: u64,
    /// Unix ns; 0: no event had a time.
    pub first_ns: u64,
    pub last_ns: u64,
}

/// Aggregates events by class.
pub struct Digest {
    settings: Settings,
    pub totals: Totals,
    /// Over all events. With classes that tell events apart by their text alone it is their sum,
    /// which [`Self::settle`] takes.
    pub all: Class,
    /// Classes that there was no room for, or that a stored digest did not list, together.
    pub folded: Class,
    pub folded_classes: u64,
    /// No class that was folded had a greater count.
    floor: u64,
    classes: Vec<Class>,
    /// Memory of the classes, as [`Class::bytes`] counts it.
    bytes: usize,
    index: TextMap<u32>,
    recent: RecentTexts,
    shapes: RecentShapes,
    keys: GroupKeys,
    names: NameTable,
    others: ExtraAttributes,
    time_axis: TimeAxis,
}

impl Digest {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            totals: Totals::default(),
            all: Class::new(b"", 0),
            folded: Class::new(b"", 0),
            folded_classes: 0,
            floor: 0,
            classes: Vec::new(),
            bytes: 0,
            index: TextMap::default(),
            recent: RecentTexts::default(),
            shapes: RecentShapes::default(),
            keys: GroupKeys::default(),
            names: NameTable::default(),
            others: ExtraAttributes::default(),
            time_axis: TimeAxis::default(),
        }
    }

    /// An empty one with the same settings, for the events that follow: buffers and the texts that this one knows go on in it.
    pub fn successor(&mut self) -> Self {
        let mut next = Self::new(self.settings);
        std::mem::swap(&mut next.keys, &mut self.keys);
        std::mem::swap(&mut next.recent, &mut self.recent);
        std::mem::swap(&mut next.shapes, &mut self.shapes);
        next.renumber();
        next
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// Classes seen, as far as they were kept apart: one that was folded more than once counts as often.
    pub fn unique(&self) -> u64 {
        (self.classes.len() as u64).saturating_add(self.folded_classes)
    }

    /// Text of a name that a class counts.
    pub fn name(&self, id: u32) -> &[u8] {
        self.names.text(id)
    }

    /// Names of log attributes without a place of their own (`Rows_read`), with their units.
    pub fn other_attributes(&self) -> &[(Box<str>, Unit)] {
        self.others.names()
    }

    /// The classes of rank at most `limit`, costliest first, and how many are beyond.
    pub fn ranked(&self, limit: Limit) -> (Vec<&Class>, Vec<&Class>) {
        rank::rank_classes(self, limit)
    }

    /// Adds the events of another digest with the same settings.
    pub fn merge(&mut self, other: &Self) {
        fold::merge_digests(self, other, b"");
    }

    /// As [`Self::merge`], for the part of a slow log that follows: `db` is the schema that its
    /// first entries inherit.
    pub fn merge_following(&mut self, other: &Self, db: &[u8]) {
        fold::merge_digests(self, other, db);
    }

    /// After the last event or merge: brings [`Self::all`] up to date.
    pub fn settle(&mut self) {
        if self.settings.group_by.depends_on_text_alone() && !self.settings.times_alone {
            let mut all = Class::new(b"", 0);
            for class in self.classes.iter().chain([&self.folded]) {
                all.merge(class, |name| name, Some);
            }
            self.all = all;
        }
    }

    fn count(&mut self, event: &Event<'_>) {
        let totals = &mut self.totals;
        totals.commands += 1;
        match event.kind {
            CommandKind::Query | CommandKind::Execute => totals.queries += 1,
            CommandKind::Prepare => totals.prepares += 1,
            CommandKind::Close | CommandKind::Reset | CommandKind::Admin => totals.admin += 1,
        }
        totals.errors += u64::from(event.error.is_some());
        totals.tainted += u64::from(event.tainted);
        if event.start_ns > 0 {
            totals.last_ns = totals.last_ns.max(event.start_ns);
            if totals.first_ns == 0 || event.start_ns < totals.first_ns {
                totals.first_ns = event.start_ns;
            }
        }
    }

    /// Bin of an event, where bins are kept and it has a time.
    fn bin_of(&mut self, event: &Event<'_>) -> Option<(u64, BinnedTimes)> {
        if !self.settings.keep_time_bins || event.start_ns == 0 {
            return None;
        }
        let (index, merges) = self.time_axis.extend(event.start_ns);
        self.coarsen_bins(merges);
        Some((index, BinnedTimes::of_event(event.query_ns)))
    }

    fn coarsen_bins(&mut self, merges: u32) {
        if merges > 0 {
            self.classes.iter_mut().for_each(|class| class.coarsen_bins(merges));
            self.bytes = self.classes.iter().map(Class::bytes).sum();
        }
    }

    fn add_to_class(
        &mut self,
        class: u32,
        event: &Event<'_>,
        seen: &EventNames,
        others: &[ExtraAttribute],
        bin: Option<(u64, BinnedTimes)>,
    ) {
        let class = &mut self.classes[class as usize];
        let mut bytes = class.add_sampled(event, seen, others, self.settings.keep_samples);
        if let Some((index, times)) = bin {
            bytes += class.add_to_bin(index, times);
        }
        self.add_bytes(bytes);
    }

    /// Where the text alone tells the class.
    fn class_by_text(&mut self, event: &Event<'_>) -> u32 {
        let place = RecentTexts::place_of(event);
        if let Some(class) = place.and_then(|place| self.recent.class_at(place, event)) {
            return class;
        }
        let by_shape = match self.settings.group_by {
            GroupBy::Fingerprint => RecentShapes::place_of(event),
            _ => None,
        };
        let known = by_shape.and_then(|place| self.shapes.class_at(place, event));
        let class = known.unwrap_or_else(|| {
            let mut keys = std::mem::take(&mut self.keys);
            let key = keys.of_text(self.settings.group_by, event);
            let class = self.class_of(key, event);
            self.keys = keys;
            if let Some(place) = by_shape {
                self.shapes.remember(place, event, class);
            }
            class
        });
        if let Some(place) = place {
            self.recent.remember(place, event, class);
        }
        class
    }

    /// Classes have been numbered anew.
    fn renumber(&mut self) {
        self.recent.clear();
        self.shapes.clear();
    }

    fn class_of(&mut self, key: &[u8], event: &Event<'_>) -> u32 {
        if let Some(&class) = self.index.get(key) {
            return class;
        }
        if self.classes.len() >= self.settings.classes_max {
            fold::fold_smallest(self);
        }
        let class = u32::try_from(self.classes.len()).unwrap_or(u32::MAX);
        let mut new = Class::new(key, self.floor);
        group::describe_class(&mut new, self.settings.group_by, event);
        self.index.insert(new.key.clone(), class);
        self.bytes += new.bytes();
        self.classes.push(new);
        class
    }

    /// A class has grown. Classes may be numbered anew.
    #[inline]
    fn add_bytes(&mut self, bytes: usize) {
        self.bytes += bytes;
        if bytes > 0 && self.bytes > self.settings.classes_bytes_max {
            fold::fold_smallest(self);
        }
    }
}

impl Sink for Digest {
    fn on_event(&mut self, event: &Event<'_>) {
        self.count(event);
        if self.settings.times_alone {
            let class = self.class_by_text(event);
            let bytes = self.classes[class as usize].add_time(event);
            self.add_bytes(bytes);
            return;
        }
        let seen = EventNames {
            user: self.names.id(names::NameKind::User, event.user),
            host: self.names.id(names::NameKind::Host, event.host),
            db: self.names.id(names::NameKind::Db, event.db),
        };
        let others = self.others.collect_from(event);
        let bin = self.bin_of(event);
        if self.settings.group_by.depends_on_text_alone() {
            let class = self.class_by_text(event);
            self.add_to_class(class, event, &seen, &others, bin);
            return;
        }
        // An event may be in several of these classes, or in none.
        self.all.add(event, &seen, &others);
        let mut keys = std::mem::take(&mut self.keys);
        for key in keys.of_event(self.settings.group_by, event) {
            let class = self.class_of(key, event);
            self.add_to_class(class, event, &seen, &others, bin);
        }
        self.keys = keys;
    }
}

#[cfg(test)]
mod tests;
