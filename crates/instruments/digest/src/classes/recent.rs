//! Cache from recent statement texts to their class. Stores whole texts, so it never confuses two.

use toll_wire::event::{CommandKind, Event};
use toll_wire::fingerprint::BackslashMode;
use toll_wire::text_hash::hash_text;

const SLOTS: usize = 4_096;
/// Longer texts are seldom repeated and would fill the cache of the processor.
const TEXT_MAX: usize = 2_048;

/// One place for each hash; a newer text takes an older one's once it is seen again. A text with literals seldom is, and
/// leaves nothing but a few bits: its copy would cost more than its fingerprint.
#[derive(Default)]
pub(super) struct RecentTexts {
    /// Of each slot, more bits of the hash that was last there. Empty until the first text.
    seen: Vec<u32>,
    slots: Vec<Slot>,
    /// Since classes were last numbered.
    numbering: u64,
}

#[derive(Clone, Default)]
struct Slot {
    text: Vec<u8>,
    kind: CommandKind,
    backslashes: BackslashMode,
    class: u32,
    /// That `class` belongs to.
    numbering: Option<u64>,
}

/// Where a text belongs.
#[derive(Clone, Copy)]
pub(super) struct Place {
    slot: usize,
    seen: u32,
}

impl RecentTexts {
    /// Of a text that may be there; `None`: it is too long.
    pub(super) fn place_of(event: &Event<'_>) -> Option<Place> {
        if event.text.len() > TEXT_MAX {
            return None;
        }
        // Preparing a statement and running it are two classes of one text.
        let hash = hash_text(event.text, event.kind as u64);
        Some(Place { slot: (hash % SLOTS as u64) as usize, seen: (hash >> 32) as u32 })
    }

    pub(super) fn class_at(&self, place: Place, event: &Event<'_>) -> Option<u32> {
        if self.seen.get(place.slot) != Some(&place.seen) {
            return None;
        }
        let slot = &self.slots[place.slot];
        let is_it = slot.numbering == Some(self.numbering)
            && slot.text == event.text
            && slot.kind == event.kind
            && slot.backslashes == event.backslashes;
        is_it.then_some(slot.class)
    }

    pub(super) fn remember(&mut self, place: Place, event: &Event<'_>, class: u32) {
        if self.slots.is_empty() {
            self.seen = vec![0; SLOTS];
            self.slots = vec![Slot::default(); SLOTS];
        }
        if std::mem::replace(&mut self.seen[place.slot], place.seen) != place.seen {
            return;
        }
        let slot = &mut self.slots[place.slot];
        slot.text.clear();
        slot.text.extend_from_slice(event.text);
        slot.kind = event.kind;
        slot.backslashes = event.backslashes;
        slot.class = class;
        slot.numbering = Some(self.numbering);
    }

    /// Classes have been numbered anew.
    pub(super) fn clear(&mut self) {
        self.numbering += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, kind: CommandKind) -> Event<'_> {
        Event { text: text.as_bytes(), kind, ..Event::default() }
    }

    /// The class, after it was looked for and remembered as a digest does.
    fn look(recent: &mut RecentTexts, event: &Event<'_>, class: u32) -> Option<u32> {
        let place = RecentTexts::place_of(event)?;
        let found = recent.class_at(place, event);
        if found.is_none() {
            recent.remember(place, event, class);
        }
        found
    }

    #[test]
    fn a_text_is_known_from_its_third_time_on() {
        let mut recent = RecentTexts::default();
        let event = of("SELECT 1", CommandKind::Query);
        let found: Vec<_> = (0..4).map(|_| look(&mut recent, &event, 7)).collect();
        assert_eq!(found, [None, None, Some(7), Some(7)]);
        assert_eq!(recent.slots.iter().filter(|slot| !slot.text.is_empty()).count(), 1);
    }

    #[test]
    fn texts_that_come_once_are_not_kept() {
        let mut recent = RecentTexts::default();
        for id in 0..3 * SLOTS {
            let text = format!("SELECT c FROM t WHERE id = {id}");
            assert_eq!(look(&mut recent, &of(&text, CommandKind::Query), 1), None);
        }
        assert!(recent.slots.iter().all(|slot| slot.text.is_empty()));
    }

    #[test]
    fn classes_that_were_numbered_anew_are_looked_for_anew() {
        let mut recent = RecentTexts::default();
        let event = of("SELECT 1", CommandKind::Query);
        (0..2).for_each(|_| assert_eq!(look(&mut recent, &event, 7), None));
        recent.clear();
        // Its text is known, so once is enough.
        assert_eq!(look(&mut recent, &event, 3), None);
        assert_eq!(look(&mut recent, &event, 3), Some(3));
    }

    #[test]
    fn a_text_that_is_prepared_and_run_has_a_class_of_each() {
        let mut recent = RecentTexts::default();
        let (prepared, run) = (of("SELECT ?", CommandKind::Prepare), of("SELECT ?", CommandKind::Execute));
        for _ in 0..2 {
            look(&mut recent, &prepared, 1);
            look(&mut recent, &run, 2);
        }
        assert_eq!((look(&mut recent, &prepared, 9), look(&mut recent, &run, 9)), (Some(1), Some(2)));
    }
}
