//! Cache from shapes of statements to their class: a text with new literals needs no fingerprint.

use super::shape::Shape;
use toll_wire::event::{CommandKind, Event};
use toll_wire::text_hash::hash_text;

const SETS: usize = 512;
/// Shapes of a set, which are tried one after another.
const WAYS: usize = 4;
/// Longer texts would take memory, and seldom share a shape.
const TEXT_MAX: usize = 1_024;
/// A set is chosen by the begin of a text up to the first `=` or `(`, which mostly has no literal. Those of `SELECT COUNT(` and
/// shorter are too common to tell texts apart.
const HEAD: usize = 13;
/// So many texts of a set are passed over after one that has no shape, or whose shape has taken another's place.
const PASSED_OVER: u8 = 32;

#[derive(Default)]
pub(super) struct RecentShapes {
    /// Empty until the first text.
    sets: Vec<Set>,
    /// Since classes were last numbered.
    numbering: u64,
}

#[derive(Default)]
struct Set {
    /// What fits moves forward.
    ways: [Option<Way>; WAYS],
    /// More bits of the hash of the last text that fitted none. A shape is made of the second: most are never seen again where
    /// few are.
    missed: u32,
    pass_over: u8,
}

struct Way {
    shape: Shape,
    kind: CommandKind,
    class: u32,
    /// That `class` belongs to.
    numbering: u64,
}

/// Where a text belongs.
#[derive(Clone, Copy)]
pub(super) struct Place {
    set: usize,
    missed: u32,
}

impl RecentShapes {
    /// Of a text that may be there; `None`: it is too long.
    pub(super) fn place_of(event: &Event<'_>) -> Option<Place> {
        let text = event.text;
        if text.len() > TEXT_MAX {
            return None;
        }
        let (head, rest) = text.split_at(text.len().min(HEAD));
        let length = head.len() + memchr::memchr2(b'=', b'(', rest).unwrap_or(0);
        let hash = hash_text(&text[..length], event.kind as u64);
        Some(Place { set: (hash % SETS as u64) as usize, missed: (hash >> 32) as u32 })
    }

    pub(super) fn class_at(&mut self, place: Place, event: &Event<'_>) -> Option<u32> {
        let set = self.sets.get_mut(place.set)?;
        let at = set.find(event)?;
        let way = set.ways[at].as_ref().filter(|way| way.numbering == self.numbering)?;
        let class = way.class;
        set.ways.swap(at, at.saturating_sub(1));
        Some(class)
    }

    pub(super) fn remember(&mut self, place: Place, event: &Event<'_>, class: u32) {
        if self.sets.is_empty() {
            self.sets.resize_with(SETS, Set::default);
        }
        let set = &mut self.sets[place.set];
        if let Some(way) = set.find(event).and_then(|at| set.ways[at].as_mut()) {
            (way.class, way.numbering) = (class, self.numbering);
            return;
        }
        if set.pass_over > 0 {
            set.pass_over -= 1;
            return;
        }
        if std::mem::replace(&mut set.missed, place.missed) != place.missed {
            return;
        }
        let way = Shape::of(event.text).map(|shape| Way {
            shape,
            kind: event.kind,
            class,
            numbering: self.numbering,
        });
        let free = set.ways.iter().position(Option::is_none);
        if way.is_none() || free.is_none() {
            set.pass_over = PASSED_OVER;
        }
        if way.is_some() {
            set.ways[free.unwrap_or(WAYS - 1)] = way;
        }
    }

    /// Classes have been numbered anew.
    pub(super) fn clear(&mut self) {
        self.numbering += 1;
    }
}

impl Set {
    fn find(&self, event: &Event<'_>) -> Option<usize> {
        let fits = |way: &Way| way.kind == event.kind && way.shape.fits(event.text);
        self.ways.iter().position(|way| way.as_ref().is_some_and(fits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The class, after it was looked for and remembered as a digest does.
    fn look(shapes: &mut RecentShapes, text: &str, kind: CommandKind, class: u32) -> Option<u32> {
        let event = Event { text: text.as_bytes(), kind, ..Event::default() };
        let place = RecentShapes::place_of(&event)?;
        let found = shapes.class_at(place, &event);
        if found.is_none() {
            shapes.remember(place, &event, class);
        }
        found
    }

    #[test]
    fn texts_of_a_shape_are_known_whatever_their_literals() {
        let mut shapes = RecentShapes::default();
        let found: Vec<_> = (0..4)
            .map(|id| look(&mut shapes, &format!("SELECT c FROM t WHERE id = {id}"), CommandKind::Query, 7))
            .collect();
        assert_eq!(found, [None, None, Some(7), Some(7)]);
        assert_eq!(look(&mut shapes, "SELECT c FROM t WHERE id = 5", CommandKind::Prepare, 8), None);
        assert_eq!(look(&mut shapes, "SELECT d FROM t WHERE id = 5", CommandKind::Query, 9), None);
        shapes.clear();
        assert_eq!(look(&mut shapes, "SELECT c FROM t WHERE id = 1", CommandKind::Query, 3), None);
        assert_eq!(look(&mut shapes, "SELECT c FROM t WHERE id = 2", CommandKind::Query, 3), Some(3));
    }

    #[test]
    fn more_shapes_than_a_set_has_room_for_never_give_a_wrong_class() {
        let mut shapes = RecentShapes::default();
        let mut known = 0;
        for round in 0..200 {
            for column in 0..12_u32 {
                let name = char::from(b'a' + column as u8);
                let text = format!("SELECT c FROM t WHERE id = {round} AND {name} = 1");
                if let Some(class) = look(&mut shapes, &text, CommandKind::Query, column) {
                    assert_eq!(class, column);
                    known += 1;
                }
            }
        }
        assert!(known > 400, "{known} of 2400");
        let kept: usize = shapes.sets.iter().map(|set| set.ways.iter().flatten().count()).sum();
        assert_eq!(kept, WAYS);
    }
}
