//! Cache from recent statement texts to their class. Stores whole texts, so it never confuses two.

use toll_wire::event::{CommandKind, Event};
use toll_wire::fingerprint::BackslashMode;
use toll_wire::text_hash::hash_text;

const SLOTS: usize = 4_096;
/// Longer texts are seldom repeated and would fill the cache of the processor.
const TEXT_MAX: usize = 2_048;

/// One place for each hash; a newer text takes an older one's.
pub(super) struct RecentTexts {
    slots: Vec<Slot>,
}

#[derive(Clone)]
struct Slot {
    text: Vec<u8>,
    kind: CommandKind,
    backslashes: BackslashMode,
    class: u32,
}

impl Default for Slot {
    fn default() -> Self {
        let (kind, backslashes) = Default::default();
        Self { text: Vec::new(), kind, backslashes, class: u32::MAX }
    }
}

impl RecentTexts {
    pub(super) fn new() -> Self {
        Self { slots: vec![Slot::default(); SLOTS] }
    }

    pub(super) fn find_class(&self, event: &Event<'_>) -> Option<u32> {
        let slot = &self.slots[slot_index(event.text)];
        let is_it =
            slot.text == event.text && slot.kind == event.kind && slot.backslashes == event.backslashes;
        (is_it && slot.class != u32::MAX).then_some(slot.class)
    }

    pub(super) fn remember(&mut self, event: &Event<'_>, class: u32) {
        if event.text.len() > TEXT_MAX {
            return;
        }
        let slot = &mut self.slots[slot_index(event.text)];
        slot.text.clear();
        slot.text.extend_from_slice(event.text);
        slot.kind = event.kind;
        slot.backslashes = event.backslashes;
        slot.class = class;
    }

    /// Classes have been numbered anew.
    pub(super) fn clear(&mut self) {
        for slot in &mut self.slots {
            slot.class = u32::MAX;
        }
    }
}

fn slot_index(text: &[u8]) -> usize {
    let kept = &text[..text.len().min(TEXT_MAX)];
    (hash_text(kept, 0) % SLOTS as u64) as usize
}
