//! Guard of the run directory: trips once it cannot be written, or when its disk is nearly full.

use crate::guard::{Guard, Tripped};
use crate::recorder::Recorder;
use std::path::{Path, PathBuf};
use toll_sys::disk;

/// A capture writes 100 MB a second, and the space is read once a second: two seconds of it, and 50 MB for the lines
/// that the recorder still holds and the analysis.
const LEAST_FREE_BYTES: u64 = 250_000_000;
const READ_EVERY_US: u64 = 1_000_000;

pub struct RunDirGuard<'a> {
    recorder: &'a Recorder,
    dir: PathBuf,
    next_us: u64,
}

impl<'a> RunDirGuard<'a> {
    pub fn new(recorder: &'a Recorder, dir: PathBuf) -> Self {
        Self { recorder, dir, next_us: 0 }
    }

    fn check_space(
        &mut self,
        now_us: u64,
        free_bytes: impl FnOnce(&Path) -> anyhow::Result<u64>,
    ) -> anyhow::Result<()> {
        if now_us < self.next_us {
            return Ok(());
        }
        self.next_us = now_us + READ_EVERY_US;
        let free = free_bytes(&self.dir)?;
        anyhow::ensure!(
            free >= LEAST_FREE_BYTES,
            "the disk of {} is nearly full ({} MB left): free space or use --out on another disk",
            self.dir.display(),
            free / 1_000_000
        );
        Ok(())
    }
}

impl Guard for RunDirGuard<'_> {
    fn check(&mut self, now_us: u64) -> Result<(), Tripped> {
        let checked = self.recorder.check().and_then(|()| self.check_space(now_us, disk::free_bytes));
        checked.map_err(|error| Tripped { reason: format!("{error:#}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toll_record::RunWriter;

    #[test]
    fn a_disk_with_too_little_space_trips_within_a_second_and_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let (recorder, recording) = Recorder::start(RunWriter::create(dir.path()).unwrap());
        let mut guard = RunDirGuard::new(&recorder, "/runs/a".into());
        assert!(guard.check_space(5, |_| Ok(LEAST_FREE_BYTES)).is_ok());
        let unread = |_: &Path| panic!("read twice within a second");
        assert!(guard.check_space(1_000_004, unread).is_ok());
        let error = guard.check_space(1_000_005, |_| Ok(249_999_999)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the disk of /runs/a is nearly full (249 MB left): free space or use --out on another disk"
        );
        drop(guard);
        recording.finish(&recorder).unwrap();
    }

    #[test]
    fn a_run_directory_that_is_gone_trips() {
        let dir = tempfile::tempdir().unwrap();
        let (recorder, recording) = Recorder::start(RunWriter::create(dir.path()).unwrap());
        let tripped = RunDirGuard::new(&recorder, dir.path().join("gone")).check(0).unwrap_err();
        assert!(tripped.reason.starts_with("cannot read the free space of"), "{tripped}");
        recording.finish(&recorder).unwrap();
    }
}
