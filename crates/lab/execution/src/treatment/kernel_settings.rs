//! Kernel settings of an arm: set and restored.

use anyhow::{Context, ensure};
use toll_journal::{Journal, Undo, UndoId};
use toll_sys::{paths, sysctl};

/// Error: kernel settings stay changed, so that nothing can be measured on this host.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("cannot restore kernel settings. Run `toll clean` to retry")]
pub struct KernelNotRestored;

/// Settings that are in force for an arm.
#[derive(Debug)]
pub struct AppliedKernelSettings {
    undo: UndoId,
}

impl AppliedKernelSettings {
    /// Sets them in order. The old values are in the journal before the first is changed.
    ///
    /// # Errors
    /// The kernel has no such setting or refuses its value, or a killed run has left settings changed.
    pub fn switch_on(settings: &[(String, String)], journal: &Journal) -> anyhow::Result<Self> {
        for waiting in toll_journal::pending_runs(&paths::journal_dir()?) {
            let is_changed = waiting.changes.iter().any(|change| matches!(change, Undo::Sysctl { .. }));
            // What holds now is not the host's own.
            ensure!(
                !is_changed,
                "run {} was killed and has left settings of the kernel changed: `toll clean` first",
                waiting.run_id
            );
            ensure!(
                waiting.unreadable.is_empty(),
                "an undo journal cannot be read, and may hold settings of the kernel: `toll clean` first. {}: {}",
                waiting.run_id,
                waiting.unreadable.join("; ")
            );
        }
        let back = settings.iter().rev().map(|(name, _)| sysctl::snapshot(name));
        let settings_before = back.collect::<anyhow::Result<Vec<_>>>()?;
        let kernel = Self { undo: journal.record(Undo::Sysctl { settings: settings_before })? };
        for (name, value) in settings {
            if let Err(error) = sysctl::write(name, value) {
                kernel.switch_off(journal)?;
                return Err(error);
            }
        }
        Ok(kernel)
    }

    /// Restores the old values.
    ///
    /// # Errors
    /// Something could not be restored ([`KernelNotRestored`]); it stays in the journal.
    pub fn switch_off(self, journal: &Journal) -> anyhow::Result<()> {
        journal.undo(self.undo).context(KernelNotRestored)?;
        Ok(())
    }
}
