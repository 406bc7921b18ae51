//! Tests of which backups a prune keeps.

use super::{dump, keep_latest, open, owner, restore_backup, store_backup};
use toll_backup::archive::prune::{self, Retention, RetentionPolicy};
use toll_backup::archive::{ActivityMarker, PieceDecoder, PieceEncoder};

#[test]
fn a_backup_that_was_just_taken_stays_beside_one_that_a_wrong_clock_dated_ahead() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let ids = ["20260101T000000Z-0-x", "20260102T000000Z-0-x", "20990101T000000Z-0-x"];
    for (number, id) in ids.into_iter().enumerate() {
        store_backup(&store, &PieceEncoder::default(), id, &dump(1, 10 + number as u32, |_| false)).unwrap();
    }
    let alone = ActivityMarker::start_prune(store.clone(), "p", &owner(2), |_| Some(true)).unwrap();
    let stay = RetentionPolicy { keep_id: Some(ids[1]), ..keep_latest(1) };
    let pruned = prune::prune(&store, &PieceDecoder::default(), stay, false, &alone).unwrap();
    assert_eq!(pruned.backups, [ids[0]]);
    assert!(restore_backup(&store, &PieceDecoder::default(), ids[1]).is_ok());
}

#[test]
fn the_newest_of_each_day_week_and_month_stays_as_long_as_it_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    // Two on the last day; a week's end; a month's end within an ISO week; a gap of months; another source.
    let ids = [
        "20260301T020000Z-0-x",
        "20260629T020000Z-0-x",
        "20260630T020000Z-0-x",
        "20260701T020000Z-0-x",
        "20260705T020000Z-0-x",
        "20260706T020000Z-0-x",
        "20260706T140000Z-0-x",
        "20250101T000000Z-0-y",
    ];
    for (number, id) in ids.into_iter().enumerate() {
        store_backup(&store, &PieceEncoder::default(), id, &dump(1, 10 + number as u32, |_| false)).unwrap();
    }
    let removed = |retention| {
        let policy = RetentionPolicy { retention, keep_id: None };
        let alone = ActivityMarker::start_prune(store.clone(), "p", &owner(2), |_| Some(true)).unwrap();
        prune::prune(&store, &PieceDecoder::default(), policy, true, &alone).unwrap().backups
    };
    let none = Retention::default();
    assert!(removed(none).is_empty());
    assert_eq!(removed(Retention { daily: 3, ..none }), [ids[0], ids[1], ids[2], ids[5]]);
    // The week of 29 June ends with 5 July; 1 March is the end of another.
    assert_eq!(removed(Retention { weekly: 2, ..none }), [ids[0], ids[1], ids[2], ids[3], ids[5]]);
    assert_eq!(removed(Retention { monthly: 3, ..none }), [ids[1], ids[3], ids[4], ids[5]]);
    let all = Retention { latest: 2, daily: 2, weekly: 1, monthly: 2 };
    assert_eq!(removed(all), [ids[0], ids[1], ids[3]]);
}
