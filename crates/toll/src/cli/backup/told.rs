//! Output of `toll backup`, as text and JSON.

use super::super::console::{show, tell};
use anyhow::Result;
use serde::Serialize;
use serde_json::json;
use toll_backup::archive::prune::PruneSummary;
use toll_backup::archive::{Manifest, Totals};
use toll_backup::{BackupSummary, RestoreSummary, StageCost, VerifySummary};
use toll_store::Error;
use toll_sys::count_format::format_count;
use toll_sys::number_format::{format_duration_s, format_grouped, format_megabytes};

/// A taken backup as JSON.
pub fn json(taken: &BackupSummary) -> Result<String> {
    let source = &taken.source;
    let value = json!({
        "id": taken.id,
        "server": { "flavour": source.flavour.name(), "version": source.version.to_string(), "address": source.address },
        "dump_program": taken.program,
        "schemas": source.schemas,
        "tables": taken.tables,
        "rows": taken.rows,
        "bytes": taken.bytes,
        "stored": taken.stored,
        "git": taken.committed,
        "pruned": taken.pruned,
        "store_retries": taken.retries,
        "warnings": taken.warnings,
        "cost": taken.cost,
        "promise": taken.throttle,
    });
    Ok(serde_json::to_string_pretty(&value)?)
}

/// A taken backup as text.
pub fn text(taken: &BackupSummary) {
    let (source, cost) = (&taken.source, &taken.cost);
    show!(
        "backup {} of {} {} at {}: {}, {} rows, {} MB in {}",
        taken.id,
        source.flavour.name(),
        source.version,
        source.address,
        format_count(taken.tables, "table"),
        format_grouped(taken.rows as f64),
        mb(taken.bytes),
        time(cost.total_s)
    );
    if let Some(totals) = &taken.stored {
        show!(
            "  store: {} of {} pieces are new, {} MB of {} MB",
            format_grouped(totals.new_pieces as f64),
            format_grouped(totals.pieces as f64),
            mb(totals.new_stored_bytes),
            mb(totals.stored_bytes)
        );
    }
    if let Some(git) = &taken.committed {
        let commit = git.commit.get(..12).unwrap_or(&git.commit);
        if git.unchanged {
            show!("  git: nothing has changed since {commit}");
        } else {
            let grown = git.repository_bytes.saturating_sub(git.repository_bytes_before);
            show!(
                "  git: {commit}, the repository grew by {} MB to {} MB",
                mb(grown),
                mb(git.repository_bytes)
            );
        }
    }
    show!("  {:<8} {:>9} {:>9} {:>10} {:>10} {:>10}", "cost", "time", "CPU", "read", "stored", "memory");
    stage("dump", Some(&cost.dump));
    stage("split", Some(&cost.split));
    stage("commit", cost.commit.as_ref());
    stage("upload", cost.upload.as_ref());
    if let Some(removed) = &taken.pruned {
        pruned(removed, false);
    }
    if taken.retries > 0 {
        show!("  the store had to be asked again {}", format_count(taken.retries, "time"));
    }
    if let Some(promise) = &taken.throttle {
        tell!("{}", promise.render_text());
    }
    for warning in &taken.warnings {
        tell!("toll: {warning}");
    }
}

fn stage(name: &str, stage: Option<&StageCost>) {
    let Some(stage) = stage else { return };
    show!(
        "  {name:<8} {:>9} {:>9} {:>7} MB {:>7} MB {:>7} MB",
        time(stage.time_s),
        time(stage.cpu_s),
        mb(stage.bytes_read),
        mb(stage.bytes_stored),
        mb(stage.memory_peak_bytes)
    );
}

fn mb(bytes: u64) -> String {
    format_megabytes(bytes as f64)
}

fn time(s: f64) -> String {
    if s < 60.0 { format!("{s:.2} s") } else { format_duration_s(s) }
}

/// A backup in a list.
#[derive(Debug, Serialize)]
pub struct Line {
    id: String,
    encrypted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schemas: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    totals: Option<Totals>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    /// The reason why nothing more is known about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<String>,
}

pub fn listed(id: &str, encrypted: bool, manifest: Result<Manifest, Error>) -> Line {
    let (manifest, unreadable) = match manifest {
        Ok(manifest) => (Some(manifest), None),
        Err(error) => (None, Some(error.to_string())),
    };
    Line {
        id: id.to_owned(),
        encrypted,
        server: manifest.as_ref().map(|m| format!("{} {}", m.source.flavour, m.source.version)),
        schemas: manifest.as_ref().map(|m| m.schemas.clone()),
        totals: manifest.as_ref().map(|m| m.totals),
        warnings: manifest.map(|m| m.warnings).unwrap_or_default(),
        unreadable,
    }
}

pub fn list(lines: &[Line]) {
    if lines.is_empty() {
        show!("no backups");
    }
    for line in lines {
        let lock = if line.encrypted { ", encrypted" } else { "" };
        match (&line.totals, &line.unreadable) {
            (Some(totals), _) => show!(
                "{}  {}{lock}: {}; {} rows, {} MB, {} MB stored of which {} MB were new",
                line.id,
                line.server.as_deref().unwrap_or_default(),
                line.schemas.as_deref().unwrap_or_default().join(", "),
                format_grouped(totals.rows as f64),
                mb(totals.bytes),
                mb(totals.stored_bytes),
                mb(totals.new_stored_bytes)
            ),
            (None, reason) => show!("{}{lock}: {}", line.id, reason.as_deref().unwrap_or_default()),
        }
    }
}

pub fn verified(verified: &VerifySummary) {
    show!(
        "{}: {} and {} rows ({} MB) restored to {} in {}",
        verified.backup,
        format_count(verified.tables, "table"),
        format_grouped(verified.rows as f64),
        mb(verified.bytes),
        verified.server,
        time(verified.restore_s)
    );
    for difference in &verified.differences {
        tell!("toll: DIFFERS: {difference}");
    }
    if verified.differences.is_empty() {
        show!(
            "  it is what was dumped: row counts and the checksum of the rows of each table{}",
            if verified.definitions_compared {
                ", all definitions, triggers, routines and events"
            } else {
                " (definitions were not compared: the scratch server is of another version)"
            }
        );
    }
}

pub fn restored(restored: &RestoreSummary) {
    // The dump itself may be on standard output.
    tell!(
        "{}: {} rows, {} MB, {} restored in {}",
        restored.backup,
        format_grouped(restored.rows as f64),
        mb(restored.bytes),
        restored.schemas.join(", "),
        time(restored.time_s)
    );
}

pub fn pruned(pruned: &PruneSummary, dry_run: bool) {
    let verb = if dry_run { "would remove" } else { "removed" };
    show!(
        "  {verb} {} and {} ({} MB); {} and {} ({} MB) are left",
        format_count(pruned.backups.len() as u64, "backup"),
        format_count(pruned.pieces, "piece"),
        mb(pruned.bytes),
        format_count(pruned.backups_left, "backup"),
        format_count(pruned.pieces_left, "piece"),
        mb(pruned.bytes_left)
    );
}
