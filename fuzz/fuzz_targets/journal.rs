#![no_main]

//! Fuzz target of undo journals.
//!
//! Whatever the lines before it, a whole line at the end is read.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use toll_journal::{Undo, pending_runs};
use toll_sys::private_dir::PrivateDir;

/// Another boot's: its owner is not looked for.
const BEGIN: &[u8] = b"{\"line\":\"begin\",\"run_id\":\"r\",\"boot_id\":\"none\",\"namespace\":\"\",\
    \"owner\":{\"pid\":1,\"start_ticks\":1}}\n";
const CHANGE: &[u8] =
    b"\n{\"line\":\"change\",\"id\":18446744073709551615,\"change\":{\"undo\":\"path\",\"path\":\"/the/last\"}}\n";

static PLACE: LazyLock<PathBuf> = LazyLock::new(|| {
    let place = std::env::temp_dir().join(format!("toll-fuzz-journal-{}", std::process::id()));
    PrivateDir::create(&place).expect("a directory of its own");
    place
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    std::fs::write(PLACE.join("r.ndjson"), [BEGIN, input, CHANGE].concat()).expect("written");
    let found = pending_runs(&PLACE);
    let [run] = &found[..] else { panic!("one journal: {found:?}") };
    let is_it = |change: &Undo| matches!(change, Undo::Path { path } if path == Path::new("/the/last"));
    assert!(run.changes.iter().any(is_it), "{run:?}");
});
