//! TypeScript declarations of the page's data: test and generator of `viewer/src/page.ts`.
//!
//! `make viewer` writes the file; without `TOLL_RENEW` in the environment the test only compares.

use super::captures::Captures;
use super::timeline::{Panel, Series, Span, Timeline};
use super::{Captured, Missing, Page, PageRun};
use std::path::Path;
use ts_rs::{Config, TS};

/// Types of a run come from `record.ts`, made from `crates/base/record`; `Shown` is what `make_showable` does to them.
const HEAD: &str = "\
// Made from crates/lab/report/src/page.rs: `make viewer` writes it anew.

import type * as record from './record';

/**
 * As the run holds it, but for a command as one line, and a seed that a browser would round as text.
 */
export type Shown<T> = Omit<T, 'command' | 'seed'> & { command: string; seed: number | string };
";

#[test]
fn the_page_knows_what_a_report_puts_into_it() {
    let made = [
        HEAD.to_owned(),
        declared::<Page>(),
        declared::<PageRun>(),
        declared::<Missing>(),
        declared::<Captured>(),
        declared::<Captures>(),
        declared::<Timeline>(),
        declared::<Span>(),
        declared::<Panel>(),
        declared::<Series>(),
    ]
    .join("\n");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../viewer/src/page.ts");
    if std::env::var_os("TOLL_RENEW").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "{} is not what the types say: `make viewer` writes it anew", path.display());
}

fn declared<T: TS>() -> String {
    // Not bigint, which JSON.parse never gives.
    let config = Config::new().with_large_int("number");
    format!("{}export {}\n", T::docs().unwrap_or_default(), T::decl(&config))
}
