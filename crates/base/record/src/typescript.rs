//! Generator of `viewer/src/record.ts`: TypeScript declarations of a run's types for the page.
//!
//! `make viewer` regenerates the file. Without `TOLL_RENEW` in the environment the test only compares.

use crate::{Artefact, Overlay, Plan, RunResult};
use std::collections::BTreeMap;
use std::path::Path;
use ts_rs::{Config, TS, TypeVisitor};

/// Declarations by name: of a type, and of all that it is made of.
struct Declarations {
    config: Config,
    found: BTreeMap<String, String>,
}

impl TypeVisitor for Declarations {
    fn visit<T: TS + 'static + ?Sized>(&mut self) {
        // Numbers, lists and the like need none.
        if T::output_path().is_none() || self.found.contains_key(&T::ident(&self.config)) {
            return;
        }
        let docs = T::docs().unwrap_or_default();
        let declaration = format!("{docs}export {}\n", T::decl(&self.config));
        self.found.insert(T::ident(&self.config), declaration);
        T::visit_dependencies(self);
    }
}

#[test]
fn the_page_knows_the_types_of_a_run_as_they_are() {
    // Not bigint, which JSON.parse never gives: what a browser would round, toll writes as text.
    let mut declarations =
        Declarations { config: Config::new().with_large_int("number"), found: BTreeMap::new() };
    declarations.visit::<RunResult>();
    declarations.visit::<Plan>();
    declarations.visit::<Artefact>();
    declarations.visit::<Overlay>();
    let made: Vec<String> = declarations.found.into_values().collect();
    let made =
        format!("// Made from crates/base/record: `make viewer` writes it anew.\n\n{}", made.join("\n"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../viewer/src/record.ts");
    if std::env::var_os("TOLL_RENEW").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "{} is not what the types say: `make viewer` writes it anew", path.display());
}
