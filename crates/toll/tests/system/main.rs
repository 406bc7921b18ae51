//! Tests of `make test-system`: whole captures, network namespaces, kernel settings, kills at any moment.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod budgets;
mod capture;
mod captures;
#[path = "../pure/receive/tabled.rs"]
mod delivery;
#[path = "../pure/receive/ends.rs"]
#[allow(dead_code, reason = "the tests of `pure` use the rest")]
mod ends;
mod exact;
mod exported;
mod figures;
mod jailed;
mod journal;
mod kills;
mod league;
mod ledger;
mod received;
mod replay;
mod sysctl;
mod tabled;

use toll_testkit::lab;
