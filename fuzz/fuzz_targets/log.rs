//! Fuzz target of the log decoders: no panic, complete counters, the same result for input in any pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use toll_wire::event::{Event, Sink};
use toll_wire::log::{AuditLog, GeneralLog, Log, SlowLog, Utc};

#[derive(Default, PartialEq, Debug)]
struct Seen(Vec<(u64, Option<u64>, Vec<u8>, Vec<u8>)>);

impl Sink for Seen {
    fn on_event(&mut self, event: &Event<'_>) {
        self.0.push((event.start_ns, event.query_ns, event.text.to_vec(), event.db.to_vec()));
    }
}

fn read(log: &mut dyn Log, bytes: &[u8], piece: usize) -> Seen {
    let mut seen = Seen::default();
    let (mut start, mut filled) = (0, 0);
    while filled < bytes.len() {
        filled = (filled + piece).min(bytes.len());
        start += log.decode(&bytes[start..filled], false, &mut seen);
    }
    start += log.decode(&bytes[start..], true, &mut seen);
    assert_eq!(start, bytes.len());
    assert!(log.accounting().is_consistent(), "{:?}", log.accounting());
    assert_eq!(log.accounting().bytes, bytes.len() as u64);
    seen
}

fuzz_target!(|data: &[u8]| {
    let Some((&kind, bytes)) = data.split_first() else { return };
    let new = || -> Box<dyn Log> {
        match kind % 3 {
            0 => Box::new(SlowLog::new(Utc)),
            1 => Box::new(GeneralLog::new(Utc)),
            _ => Box::new(AuditLog::new(Utc)),
        }
    };
    let whole = read(&mut *new(), bytes, bytes.len().max(1));
    let pieces = read(&mut *new(), bytes, usize::from(kind / 3) + 1);
    assert_eq!(whole, pieces);
});
