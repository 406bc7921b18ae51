//! Interning of user, host and schema names as small numbers. Bounded: all further names share one number.

use toll_wire::accounting::saturating_add_to;
use toll_wire::text_hash::TextMap;

/// Names kept in all.
const NAMES_MAX: usize = 65_536;
/// Names counted apart in one class.
const COUNTED_MAX: usize = 32;
/// Stands for all names beyond.
pub(super) const BEYOND: u32 = 0;
const OTHERS: &[u8] = b"(others)";
/// Stands for no name.
pub(super) const NONE: u32 = 1;

#[derive(Debug, Clone, Copy)]
pub(super) enum Of {
    User,
    Host,
    Db,
}

/// Texts by number. 0 is every name there was no room for, 1 is the empty one.
#[derive(Default)]
pub(super) struct Table {
    texts: Vec<Box<[u8]>>,
    index: TextMap<u32>,
    /// The last name of each kind: events in a row mostly share them.
    last: [u32; 3],
}

impl Table {
    pub(super) fn id(&mut self, of: Of, text: &[u8]) -> u32 {
        if text.is_empty() {
            return NONE;
        }
        let last = self.last[of as usize];
        if last > NONE && *self.texts[last as usize] == *text {
            return last;
        }
        let id = self.find(text);
        self.last[of as usize] = id;
        id
    }

    pub(super) fn find(&mut self, text: &[u8]) -> u32 {
        if self.texts.is_empty() {
            self.texts = vec![OTHERS.into(), b"".as_slice().into()];
        }
        if text.is_empty() {
            return NONE;
        }
        if let Some(&id) = self.index.get(text) {
            return id;
        }
        if self.texts.len() >= NAMES_MAX {
            return BEYOND;
        }
        let id = u32::try_from(self.texts.len()).unwrap_or(BEYOND);
        self.texts.push(text.into());
        self.index.insert(text.into(), id);
        id
    }

    /// As [`Self::text`] gave it: names beyond stay that.
    pub(super) fn find_again(&mut self, text: &[u8]) -> u32 {
        let id = self.find(if text == OTHERS { b"" } else { text });
        if text == OTHERS { BEYOND } else { id }
    }

    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.texts.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn text(&self, id: u32) -> &[u8] {
        self.texts.get(id as usize).map_or(b"", |text| text)
    }
}

/// Number of occurrences of each name.
#[derive(Debug, Clone, Default)]
pub struct Names {
    counts: Vec<(u32, u64)>,
}

impl Names {
    /// `id`: as [`super::Digest::name_id`] gives it.
    pub fn add(&mut self, id: u32, count: u64) {
        if id == NONE {
            return;
        }
        if let Some((_, n)) = self.counts.iter_mut().find(|(i, _)| *i == id) {
            saturating_add_to(n, count);
        } else if id != BEYOND && self.counts.iter().filter(|(i, _)| *i != BEYOND).count() < COUNTED_MAX {
            self.counts.push((id, count));
        } else {
            self.add_beyond(count);
        }
    }

    fn add_beyond(&mut self, count: u64) {
        match self.counts.iter_mut().find(|(i, _)| *i == BEYOND) {
            Some((_, n)) => saturating_add_to(n, count),
            None => self.counts.push((BEYOND, count)),
        }
    }

    /// Number of a name (see [`super::Digest::name`]) and its count, most frequent first.
    pub fn by_count(&self) -> Vec<(u32, u64)> {
        let mut counts = self.counts.clone();
        counts.sort_by_key(|(id, n)| (std::cmp::Reverse(*n), *id));
        counts
    }

    pub(super) fn merge(&mut self, other: &Self, renumber: impl Fn(u32) -> u32) {
        for &(id, count) in &other.counts {
            self.add(renumber(id), count);
        }
    }
}
