//! Options `--exact` of `toll run` and `toll cost`, and the hidden command that a virtual machine runs.

use super::console::print_line;
use super::report::Format;
use super::{interrupt, progress};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use toll_exact::ExactRequest;
use toll_execution::run::RunRequest;
use toll_report::bound::Bound;

#[derive(Debug, Args)]
pub struct ExactArgs {
    /// Count instructions in virtual machines instead of measuring time: precise on any host, needs no root
    ///
    /// With --time, two thirds of that go to the counted clock, and the rest measures the same in time.
    #[arg(long, conflicts_with_all = ["find", "schema", "allow_schema", "allow_replica"])]
    #[arg(help_heading = "Counted clock")]
    pub exact: bool,
    /// Linux kernel of the virtual machines: a Debian package, a .deb or an image [default: the newest at hand]
    #[arg(long, value_name = "FILE|PACKAGE", requires = "exact", help_heading = "Counted clock")]
    pub kernel: Option<String>,
    /// With --exact: end once the 95% intervals of nearly all variants are as narrow as this, to either side
    #[arg(long, value_name = "PERCENT", value_parser = super::run::percent, default_value = "0.5%")]
    #[arg(help_heading = "Counted clock")]
    pub precision: f64,
}

/// Carries out a run by the clock, or clocks, that were asked for, and shows its report. `scenario_text` is the scenario
/// in full.
pub fn run(
    exact: ExactArgs,
    asked: RunRequest,
    scenario_text: String,
    format: Format,
    bounds: &[Bound],
) -> anyhow::Result<ExitCode> {
    let (progress, cancel) = (progress::RunProgress::on_stderr(), interrupt::new_signal_token()?);
    let finished = if exact.exact {
        let request =
            ExactRequest { asked, scenario_text, kernel: exact.kernel, precision_pct: exact.precision };
        toll_exact::run(&request, &progress, &cancel)?
    } else {
        toll_execution::run::run(asked, &progress, &cancel)?
    };
    super::run::finish_run(finished, format, bounds)
}

/// Prints what the run would do (`--dry-run`). `is_agreed`: a load at full speed needs no question.
pub fn print_preview(asked: RunRequest, exact: &ExactArgs, is_agreed: bool) -> anyhow::Result<ExitCode> {
    let precision = exact.exact.then_some(exact.precision);
    super::report::print_report(&toll_consent::dry_run::render(asked, precision, is_agreed)?)?;
    Ok(ExitCode::SUCCESS)
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
