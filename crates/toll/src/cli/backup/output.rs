//! Output of `toll backup`, as text and JSON.

use super::super::console::{eprint_line, print_line};
use anyhow::Result;
use serde::Serialize;
use serde_json::json;
use std::path::Path;
use toll_backup::archive::prune::PruneSummary;
use toll_backup::archive::{Manifest, Totals};
use toll_backup::{
    BackupOptions, BackupOrigin, BackupSummary, RestoreSummary, Source, StageCost, VerifySummary,
};
use toll_mysql::Target;
use toll_store::Error;
use toll_sys::count_format::format_count;
use toll_sys::number_format::{format_duration_s, format_grouped, format_megabytes, format_value};

/// A taken backup as JSON.
pub fn taken_json(taken: &BackupSummary) -> Result<String> {
    let source = &taken.source;
    let value = json!({
        "id": taken.id,
        "server": {
            "flavour": source.flavour.name(),
            "version": source.version.to_string(),
            "address": source.address,
            "host": source.identity.host,
            "id": source.identity.id,
        },
        "source": source.label,
        "source_is_new": source.identity.is_new,
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
        "notes": taken.notes,
        "cost": taken.cost,
        "promise": taken.throttle,
    });
    Ok(serde_json::to_string_pretty(&value)?)
}

/// A taken backup as text.
pub fn print_taken(taken: &BackupSummary) {
    let (source, cost) = (&taken.source, &taken.cost);
    print_line!(
        "backup {} of {} {} at {}: {}, {} rows, {} MB in {}",
        taken.id,
        source.flavour.name(),
        source.version,
        source.address,
        format_count(taken.tables, "table"),
        format_grouped(taken.rows as f64),
        format_mb(taken.bytes),
        format_seconds(cost.total_s)
    );
    if source.identity.is_new {
        print_line!(
            "  source: {} is new here; if this server was backed up before, name it with --source",
            source.label
        );
    }
    if let Some(totals) = &taken.stored {
        print_line!(
            "  store: {} of {} pieces are new, {} MB of {} MB; {} old ones were read again",
            format_grouped(totals.new_pieces as f64),
            format_grouped(totals.pieces as f64),
            format_mb(totals.new_stored_bytes),
            format_mb(totals.stored_bytes),
            format_grouped(totals.reread_pieces as f64)
        );
    }
    if let Some(git) = &taken.committed {
        let commit = git.commit.get(..12).unwrap_or(&git.commit);
        if git.unchanged {
            print_line!("  git: nothing has changed since {commit}");
        } else {
            let grown = git.repository_bytes.saturating_sub(git.repository_bytes_before);
            print_line!(
                "  git: {commit}, the repository grew by {} MB to {} MB",
                format_mb(grown),
                format_mb(git.repository_bytes)
            );
        }
    }
    print_line!(
        "  {:<8} {:>9} {:>9} {:>10} {:>10} {:>10}",
        "cost",
        "time",
        "CPU",
        "read",
        "stored",
        "memory"
    );
    print_stage("dump", Some(&cost.dump));
    print_stage("split", Some(&cost.split));
    print_stage("commit", cost.commit.as_ref());
    print_stage("upload", cost.upload.as_ref());
    if let Some(removed) = &taken.pruned {
        print_pruned(removed, false);
    }
    if taken.retries > 0 {
        print_line!("  requests to the store were retried {}", format_count(taken.retries, "time"));
    }
    if let Some(promise) = &taken.throttle {
        eprint_line!("{}", promise.render_text());
    }
    for note in &taken.notes {
        eprint_line!("toll: note: {note}");
    }
    for warning in &taken.warnings {
        eprint_line!("toll: warning: {warning}");
    }
}

/// A backup that was not taken.
pub fn print_backup_preview(asked: &BackupOptions, source: &Source, program: &Path) {
    print_line!("Dry run: no backup was taken, and nothing was changed.\n");
    print_line!(
        "Server    {} {} at {}, as {}",
        source.flavour.name(),
        source.version,
        source.address,
        asked.server.user
    );
    print_line!(
        "Dump      {}, about {} MB, by {}",
        source.schemas.join(", "),
        format_mb(source.estimated_bytes),
        program.display()
    );
    let limit = asked.throttle.as_ref();
    let limit = limit.map(|limit| {
        format!("p99 latency at most {} higher", format_value(limit.max_p99_overhead * 100.0, "%"))
    });
    print_line!("Limit     {}", limit.as_deref().unwrap_or("none: the dump runs at full speed"));
    if let Some(store) = &asked.store {
        print_line!("Store     {}", store.destination);
    }
    if let Some((dir, branch)) = &asked.git {
        print_line!("Git       {}, branch {branch}", dir.display());
    }
    let new = "new: the server gets an id in toll's state directory with its first backup";
    let is_unnamed = source.identity.is_new && source.name.is_none();
    print_line!("Source    {}", if is_unnamed { new } else { source.label.as_str() });
    print_line!("Changed   nothing on the server; option files with its password are removed at the end");
    for note in &source.notes {
        eprint_line!("toll: note: {note}");
    }
    for warning in &source.warnings {
        eprint_line!("toll: warning: {warning}");
    }
}

/// A restore that was not made, with what the server holds already.
pub fn print_restore_preview(origin: &BackupOrigin, target: &Target, existing: &[String]) {
    print_line!("Dry run: nothing was restored or changed.\n");
    print_line!("Server    {}, as {}", target.address, target.user);
    print_line!(
        "Restore   {}: {} rows, {} MB",
        origin.schemas().join(", "),
        format_grouped(origin.rows() as f64),
        format_mb(origin.bytes())
    );
    if existing.is_empty() {
        print_line!("Existing  nothing in these schemas");
        return;
    }
    print_line!(
        "Existing  {}; with --overwrite, those that the backup holds are dropped and replaced:",
        format_count(existing.len() as u64, "object")
    );
    existing.iter().for_each(|object| print_line!("          {object}"));
}

fn print_stage(name: &str, stage: Option<&StageCost>) {
    let Some(stage) = stage else { return };
    print_line!(
        "  {name:<8} {:>9} {:>9} {:>7} MB {:>7} MB {:>7} MB",
        format_seconds(stage.time_s),
        format_seconds(stage.cpu_s),
        format_mb(stage.bytes_read),
        format_mb(stage.bytes_stored),
        format_mb(stage.memory_peak_bytes)
    );
}

fn format_mb(bytes: u64) -> String {
    format_megabytes(bytes as f64)
}

fn format_seconds(s: f64) -> String {
    if s < 60.0 { format!("{s:.2} s") } else { format_duration_s(s) }
}

/// A backup in a list.
#[derive(Debug, Serialize)]
pub struct BackupLine {
    id: String,
    encrypted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
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

pub fn to_list_line(id: &str, encrypted: bool, manifest: Result<Manifest, Error>) -> BackupLine {
    let (manifest, unreadable) = match manifest {
        Ok(manifest) => (Some(manifest), None),
        Err(error) => (None, Some(error.to_string())),
    };
    BackupLine {
        id: id.to_owned(),
        encrypted,
        server: manifest.as_ref().map(|m| format!("{} {}", m.source.flavour, m.source.version)),
        host: manifest.as_ref().map(|m| m.source.host.clone()),
        schemas: manifest.as_ref().map(|m| m.schemas.clone()),
        totals: manifest.as_ref().map(|m| m.totals),
        warnings: manifest.map(|m| m.warnings).unwrap_or_default(),
        unreadable,
    }
}

pub fn print_list(lines: &[BackupLine]) {
    if lines.is_empty() {
        print_line!("no backups");
    }
    for line in lines {
        let lock = if line.encrypted { ", encrypted" } else { "" };
        match (&line.totals, &line.unreadable) {
            (Some(totals), _) => print_line!(
                "{}  {} on {}{lock}: {}; {} rows, {} MB, {} MB stored of which {} MB were new",
                line.id,
                line.server.as_deref().unwrap_or_default(),
                line.host.as_deref().unwrap_or_default(),
                line.schemas.as_deref().unwrap_or_default().join(", "),
                format_grouped(totals.rows as f64),
                format_mb(totals.bytes),
                format_mb(totals.stored_bytes),
                format_mb(totals.new_stored_bytes)
            ),
            (None, reason) => print_line!("{}{lock}: {}", line.id, reason.as_deref().unwrap_or_default()),
        }
    }
}

pub fn print_verified(verified: &VerifySummary) {
    print_line!(
        "{}: {} and {} rows ({} MB) restored to {} in {}",
        verified.backup,
        format_count(verified.tables, "table"),
        format_grouped(verified.rows as f64),
        format_mb(verified.bytes),
        verified.server,
        format_seconds(verified.restore_s)
    );
    for difference in &verified.differences {
        eprint_line!("toll: DIFFERS: {difference}");
    }
    if verified.differences.is_empty() {
        print_line!(
            "  identical to the dump: row counts and row checksums of each table{}",
            if verified.definitions_compared {
                ", all definitions, triggers, routines and events"
            } else {
                " (definitions were not compared: the scratch server is of another version)"
            }
        );
    }
}

pub fn print_restored(restored: &RestoreSummary) {
    // The dump itself may be on standard output.
    eprint_line!(
        "{}: {} rows, {} MB, {} restored in {}",
        restored.backup,
        format_grouped(restored.rows as f64),
        format_mb(restored.bytes),
        restored.schemas.join(", "),
        format_seconds(restored.time_s)
    );
}

pub fn print_pruned(pruned: &PruneSummary, dry_run: bool) {
    let verb = if dry_run { "would remove" } else { "removed" };
    print_line!(
        "  {verb} {} and {} ({} MB); {} and {} ({} MB) are left",
        format_count(pruned.backups.len() as u64, "backup"),
        format_count(pruned.pieces, "piece"),
        format_mb(pruned.bytes),
        format_count(pruned.backups_left, "backup"),
        format_count(pruned.pieces_left, "piece"),
        format_mb(pruned.bytes_left)
    );
}
