//! JSON lines output of a digest: an object for each class, then one for the rest.

use super::schema::Document;
use super::{DigestResult, Request, json};
use serde_json::json;
use std::io::Write;

pub fn write_lines(request: &Request, done: &DigestResult, out: &mut dyn Write) -> anyhow::Result<()> {
    let Document { schema, inputs, interrupted, merged, totals, sampled, classes, other, ledger } =
        json::build_document(request, done);
    for class in &classes {
        serde_json::to_writer(&mut *out, class)?;
        writeln!(out)?;
    }
    let mut rest = json!({
        "schema": schema, "inputs": inputs, "interrupted": interrupted, "totals": totals, "other": other,
        "ledger": ledger,
    });
    if let Some(merged) = merged {
        rest["merged"] = serde_json::to_value(merged)?;
    }
    if let Some(sampled) = sampled {
        rest["sampled"] = serde_json::to_value(sampled)?;
    }
    writeln!(out, "{rest}")?;
    Ok(())
}
