//! Options `--exact` of `toll run` and `toll cost`, and the hidden command that a virtual machine runs.

use super::console::print_line;
use super::report::Format;
use super::{interrupt, progress};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use toll_exact::ExactRequest;
use toll_report::bound::Bound;

#[derive(Debug, Args)]
pub struct ExactArgs {
    /// Count instructions in virtual machines instead of measuring time: precise on any host, needs no root
    #[arg(long, conflicts_with_all = ["time", "find", "schema", "allow_schema", "allow_replica"])]
    exact: bool,
    /// Linux kernel of the virtual machines: a Debian package, a .deb or an image [default: the newest at hand]
    #[arg(long, value_name = "FILE|PACKAGE", requires = "exact")]
    pub kernel: Option<String>,
    /// With --exact: end once all 95% intervals are as narrow as this, to either side
    #[arg(long, value_name = "0.5%", value_parser = super::run::percent, default_value = "0.5%")]
    pub precision: f64,
}

impl ExactArgs {
    pub fn is_asked(&self) -> bool {
        self.exact
    }
}

/// Carries out a counted run and shows its report.
pub fn run(request: &ExactRequest, format: Format, bounds: &[Bound]) -> anyhow::Result<ExitCode> {
    let finished =
        toll_exact::run(request, &progress::RunProgress::on_stderr(), &interrupt::new_signal_token()?)?;
    super::run::finish_run(finished, format, bounds)
}

#[derive(Debug, Args)]
pub struct Inside {
    /// Directory that the host shares with this machine
    dir: PathBuf,
}

/// Carries out the request of the host, inside a virtual machine.
pub fn run_inside(arguments: &Inside) -> anyhow::Result<ExitCode> {
    super::run::only_for_owner();
    let print = |line: &str| print_line!("{line}");
    toll_exact::run_in_machine(&arguments.dir, &print, &interrupt::new_signal_token()?)?;
    Ok(ExitCode::SUCCESS)
}
