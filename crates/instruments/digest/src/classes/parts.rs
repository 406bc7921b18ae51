//! Decomposition of a digest into parts for storage, and its reassembly. Never changes a count.

use super::Digest;
use super::class::Class;

/// Part of a digest beyond its listed classes.
#[derive(Debug, Clone)]
pub struct RestOfClasses {
    /// All of it together.
    pub class: Class,
    pub classes: u64,
    /// None of its classes has a greater count.
    pub count_max: u64,
}

impl Digest {
    /// True if events are grouped by their text alone; then [`Self::all`] is the sum of the classes.
    pub fn is_by_text(&self) -> bool {
        self.settings.group_by.depends_on_text_alone()
    }

    /// Number of a name, for [`NameCounts::add`](super::NameCounts::add).
    pub fn name_id(&mut self, text: &[u8]) -> u32 {
        self.names.intern_again(text)
    }

    /// Number of an attribute without a place of its own; `None`: there is no room for its name.
    pub fn other_id(&mut self, name: &str) -> Option<u8> {
        self.others.intern_name(name)
    }

    /// The class with the key of another digest's class.
    pub fn find_class(&self, like: &Class) -> Option<&Class> {
        self.index.get(&like.key).and_then(|&at| self.classes.get(at as usize))
    }

    /// Adds a class that it does not have yet; false: it has, or there is no room.
    pub fn insert(&mut self, class: Class) -> bool {
        if self.classes.len() >= self.settings.classes_max || self.index.contains_key(&class.key) {
            return false;
        }
        self.index.insert(class.key.clone(), u32::try_from(self.classes.len()).unwrap_or(u32::MAX));
        let bytes = class.bytes();
        self.classes.push(class);
        self.add_bytes(bytes);
        true
    }

    /// `beyond`: those of its classes that are not listed.
    pub fn merge_rest(&self, beyond: &[&Class]) -> RestOfClasses {
        let mut class = self.folded.clone();
        beyond.iter().for_each(|one| class.merge(one, |name| name, Some));
        RestOfClasses {
            class,
            classes: self.folded_classes.saturating_add(beyond.len() as u64),
            count_max: beyond.iter().map(|class| class.count_at_most()).fold(self.floor, u64::max),
        }
    }

    /// Adds what was not listed.
    pub fn insert_rest(&mut self, rest: RestOfClasses) {
        self.folded.merge(&rest.class, |name| name, Some);
        self.folded_classes = self.folded_classes.saturating_add(rest.classes);
        self.floor = self.floor.saturating_add(rest.count_max);
    }

    /// Puts all events of each class into one bin of time: what was stored of a digest has no single events.
    pub fn bin_whole(&mut self, time_ns: u64) {
        let (index, merges) = self.time_axis.extend(time_ns);
        self.coarsen_bins(merges);
        self.classes.iter_mut().for_each(|class| class.bin_whole(index));
        self.bytes = self.classes.iter().map(Class::bytes).sum();
    }

    /// Memory of the histograms of all classes.
    pub fn histogram_bytes(&self) -> usize {
        self.classes.iter().chain([&self.all, &self.folded]).map(Class::histogram_bytes).sum()
    }
}
