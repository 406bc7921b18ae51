//! Bar of rows that are loaded.

use indicatif::ProgressBar;
use std::sync::{Mutex, PoisonError};
use toll_execution::testbed::data::LoadProgress;

/// Shows nothing where there is no terminal.
#[derive(Debug, Default)]
pub struct LoadingBar(Mutex<Option<ProgressBar>>);

impl LoadProgress for LoadingBar {
    fn show_rows(&self, loaded: u64, whole: u64) {
        let mut bar = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bar.get_or_insert_with(|| ProgressBar::new(whole)).set_position(loaded);
    }

    fn finish_rows(&self) {
        if let Some(bar) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            bar.finish_and_clear();
        }
    }
}
