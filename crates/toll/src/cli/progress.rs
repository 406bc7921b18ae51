//! Progress displays: bars on a terminal, lines elsewhere, for what the libraries report while they work.

mod dump;
mod loading;
mod run;

pub use dump::DumpProgress;
pub use loading::LoadingBar;
pub use run::RunProgress;
pub use toll_commands::reading_progress::reading_progress;
