//! What does a digest look like line by line? A JSON object for each class, then one for the rest.

use super::json::{self, Document};
use super::{Digested, Request};
use serde_json::json;
use std::io::Write;

pub fn write(request: &Request, done: &Digested, out: &mut dyn Write) -> anyhow::Result<()> {
    let Document { inputs, interrupted, totals, classes, other, ledger } = json::document(request, done);
    for class in &classes {
        serde_json::to_writer(&mut *out, class)?;
        writeln!(out)?;
    }
    let rest = json!({
        "inputs": inputs, "interrupted": interrupted, "totals": totals, "other": other, "ledger": ledger,
    });
    writeln!(out, "{rest}")?;
    Ok(())
}
