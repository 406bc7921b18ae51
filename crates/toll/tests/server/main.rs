//! Tests with a real server of their own: runs, loads, backups, and all changes that toll undoes.
//!
//! Tests whose name or module begins with `system_` belong to `make test-system`. They kill at random
//! moments, fill disks, or depend on the host's CPU scheduling.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod backup;
mod backup_load;
mod consent;
mod cost;
mod counting;
mod dry_run;
mod explain;
mod external;
mod live;
mod load;
mod pages;
mod run;
mod safety;
mod server;
mod sets;
mod settings;
mod testbed;
mod throttle;

use std::path::Path;
use toll_server::{DatasetSpec, Sandbox, SandboxSpec};
use toll_testkit::lab;

/// A sandbox for tests of other features: its empty data is generated once and cloned for each.
fn sandbox(journal: &toll_journal::Journal) -> Sandbox {
    let cache = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache/toll"));
    let spec = SandboxSpec { cache, ..SandboxSpec::default() };
    let data = DatasetSpec { key: "test-empty".into(), bytes: 64 << 20, what: "nothing".into() };
    Sandbox::start_prepared(&spec, &data, journal, &|_| {}, |_| Ok(())).expect("a sandbox")
}
