//! Progress displays: bars on a terminal, lines elsewhere, for what the libraries report while they work.

mod dump;
mod loading;
mod reading;
mod run;

pub use dump::DumpProgress;
pub use loading::LoadingBar;
pub use reading::reading_progress;
pub use run::RunProgress;
