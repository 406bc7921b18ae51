//! Interning of user, host and schema names as small numbers. Bounded: all further names share one number.

use toll_wire::accounting::saturating_add_to;
use toll_wire::text_hash::TextMap;

/// Names kept in all, bytes of one, and bytes of all: clients choose names, even those that the server refuses.
const NAMES_MAX: usize = 65_536;
const NAME_MAX: usize = 512;
const NAMES_BYTES_MAX: usize = 8 << 20;
/// Names counted apart in one class.
const COUNTED_MAX: usize = 32;
/// Stands for all names beyond.
pub(super) const OVERFLOW_ID: u32 = 0;
const OTHERS: &[u8] = b"(others)";
/// Stands for no name.
pub(super) const EMPTY_ID: u32 = 1;

#[derive(Debug, Clone, Copy)]
pub(super) enum NameKind {
    User,
    Host,
    Db,
}

/// Texts by number. 0 is every name there was no room for, 1 is the empty one.
#[derive(Default)]
pub(super) struct NameTable {
    texts: Vec<Box<[u8]>>,
    index: TextMap<u32>,
    /// Of all texts.
    bytes: usize,
    /// The last name of each kind: events in a row mostly share them.
    last: [u32; 3],
}

impl NameTable {
    pub(super) fn id(&mut self, of: NameKind, text: &[u8]) -> u32 {
        let text = &text[..text.len().min(NAME_MAX)];
        if text.is_empty() {
            return EMPTY_ID;
        }
        let last = self.last[of as usize];
        if last > EMPTY_ID && *self.texts[last as usize] == *text {
            return last;
        }
        let id = self.intern(text);
        self.last[of as usize] = id;
        id
    }

    pub(super) fn intern(&mut self, text: &[u8]) -> u32 {
        if self.texts.is_empty() {
            self.texts = vec![OTHERS.into(), b"".as_slice().into()];
        }
        let text = &text[..text.len().min(NAME_MAX)];
        if text.is_empty() {
            return EMPTY_ID;
        }
        if let Some(&id) = self.index.get(text) {
            return id;
        }
        if self.texts.len() >= NAMES_MAX || self.bytes + text.len() > NAMES_BYTES_MAX {
            return OVERFLOW_ID;
        }
        self.bytes += text.len();
        let id = u32::try_from(self.texts.len()).unwrap_or(OVERFLOW_ID);
        self.texts.push(text.into());
        self.index.insert(text.into(), id);
        id
    }

    /// As [`Self::text`] gave it: names beyond stay that.
    pub(super) fn intern_again(&mut self, text: &[u8]) -> u32 {
        let id = self.intern(if text == OTHERS { b"" } else { text });
        if text == OTHERS { OVERFLOW_ID } else { id }
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
pub struct NameCounts {
    counts: Vec<(u32, u64)>,
}

impl NameCounts {
    /// `id`: as [`super::Digest::name_id`] gives it.
    pub fn add(&mut self, id: u32, count: u64) {
        if id == EMPTY_ID {
            return;
        }
        if let Some((_, n)) = self.counts.iter_mut().find(|(i, _)| *i == id) {
            saturating_add_to(n, count);
        } else if id != OVERFLOW_ID
            && self.counts.iter().filter(|(i, _)| *i != OVERFLOW_ID).count() < COUNTED_MAX
        {
            self.counts.push((id, count));
        } else {
            self.add_overflow(count);
        }
    }

    fn add_overflow(&mut self, count: u64) {
        match self.counts.iter_mut().find(|(i, _)| *i == OVERFLOW_ID) {
            Some((_, n)) => saturating_add_to(n, count),
            None => self.counts.push((OVERFLOW_ID, count)),
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
