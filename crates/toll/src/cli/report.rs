//! Command `toll report`: prints results of runs as text, JSON, Markdown or HTML.

use super::console::eprint_line;
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use toll_analysis::{AnalysedRun, CombinedRuns};
use toll_record::{Plan, RunDir, RunResult};
use toll_report::bound::Bound;
use toll_report::text::{self, ColourMode, Detail};
use toll_report::{combined, forest_plot, html, json, markdown, names};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toll report run-tcpdump-impact-20261122-101500
  toll report RUN --format html -o report.html
  toll report RUN --fail-if 'pfs.latency_us_p99>20%'
  toll report monday tuesday   # like runs are pooled
  toll report debian fedora    # one scenario on two platforms: side by side")]
pub struct Report {
    /// Run directories
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    #[command(flatten)]
    format: FormatArgs,
    /// Print every metric, the notes, and the warnings in full
    #[arg(long, help_heading = "Output")]
    all: bool,
    /// Write to this file instead of standard output
    #[arg(short, long, alias = "out", value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Exit with 3 if an overhead exceeds this bound: 'pfs.latency_us_p99>20%'; may be repeated
    ///
    /// A bound is VARIANT.METRIC>N%, or 'pfs.qps<-10%' for outcomes of which more is better. A bound is exceeded
    /// if the overhead is beyond it and its interval excludes zero (of a bound that only a gain keeps, the
    /// bound). Without an interval (too few rounds),
    /// the estimate alone decides.
    #[arg(long, value_name = "BOUND", help_heading = "Output")]
    fail_if: Vec<Bound>,
}

/// Form of a report, for every subcommand that prints one.
#[derive(Debug, Args)]
pub struct FormatArgs {
    /// Form of the report
    #[arg(long, value_enum, default_value_t = Format::Text, help_heading = "Output")]
    format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format", help_heading = "Output")]
    json: bool,
}

impl FormatArgs {
    pub fn chosen(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text for a terminal
    Text,
    /// JSON, with every figure
    Json,
    /// Markdown
    Md,
    /// One page with charts, which opens offline
    Html,
    /// A picture of one run's overheads
    Svg,
}

/// Analyses the runs again from their raw lines and prints the results.
pub fn run(args: &Report) -> Result<ExitCode> {
    let dirs: Vec<RunDir> =
        args.runs.iter().map(RunDir::open).collect::<Result<_, _>>().context("cannot report")?;
    let results: Vec<RunResult> =
        dirs.iter().map(toll_analysis::analyse_run_dir).collect::<Result<_, _>>().context("cannot report")?;
    let detail = if args.all { Detail::All } else { Detail::Brief { columns: terminal_columns() } };
    let content = render(&dirs, &results, args.format.chosen(), detail, args.output.is_none())?;
    match &args.output {
        Some(path) => std::fs::write(path, content)
            .with_context(|| format!("cannot write the report to {}", path.display()))?,
        None => print_report(&content)?,
    }
    if args.format.chosen() == Format::Text && !args.all && std::io::stdout().is_terminal() {
        eprint_line!(
            "toll: --all prints every metric, the notes, and all warnings; --format html draws charts"
        );
    }
    judge_bounds(&args.fail_if, &results)
}

/// The report in one of its forms.
pub fn render(
    dirs: &[RunDir],
    results: &[RunResult],
    format: Format,
    detail: Detail,
    to_standard_output: bool,
) -> Result<String> {
    let plans: Vec<Plan> =
        dirs.iter().map(RunDir::plan).collect::<Result<_, _>>().context("cannot report")?;
    let together = combine_results(dirs, &plans, results);
    Ok(match format {
        Format::Text => {
            let ink = choose_colour_mode(to_standard_output);
            let runs = results.iter().map(|run| text::text(run, ink, detail));
            runs.chain(together.as_ref().map(combined::text)).collect::<Vec<_>>().join("\n")
        }
        Format::Md => {
            let runs = results.iter().map(markdown::markdown);
            runs.chain(together.as_ref().map(combined::markdown)).collect::<Vec<_>>().join("\n")
        }
        Format::Json => json::json(results, together.as_ref())?,
        Format::Html => html::html(dirs, results)?,
        Format::Svg => match results {
            [run] => forest_plot::svg(run)?,
            _ => anyhow::bail!("a picture shows one run: name one, or use --format html"),
        },
    })
}

/// Results of several runs together, in addition to each run's own.
fn combine_results(dirs: &[RunDir], plans: &[Plan], results: &[RunResult]) -> Option<CombinedRuns> {
    let made: Vec<AnalysedRun> =
        plans.iter().zip(results).map(|(plan, result)| AnalysedRun { plan, result }).collect();
    toll_analysis::combine_runs(&made, &names::distinguish_runs(dirs, &made))
}

/// Prints the result of each bound to standard error. Exit code 3 if one failed.
pub fn judge_bounds(bounds: &[Bound], runs: &[RunResult]) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for run in runs {
        for bound in bounds {
            let judgement = bound.judge(run).with_context(|| format!("cannot judge --fail-if '{bound}'"))?;
            eprint_line!("{}", judgement.text);
            if judgement.broken {
                code = ExitCode::from(super::exit_code::ATTENTION);
            }
        }
    }
    Ok(code)
}

/// Columns of the terminal: as COLUMNS or the terminal itself says.
pub fn terminal_columns() -> usize {
    let named = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let shown = || terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| usize::from(width.0));
    named.or_else(shown).unwrap_or(usize::MAX)
}

/// Colours if standard output is a terminal, unless disabled (<https://no-color.org>).
fn choose_colour_mode(to_standard_output: bool) -> ColourMode {
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
        && std::env::var_os("TERM").is_none_or(|v| v != "dumb");
    if to_standard_output && wanted && std::io::stdout().is_terminal() {
        ColourMode::Ansi
    } else {
        ColourMode::Plain
    }
}

/// Ignores a reader that closes the pipe early (`| head`).
pub fn print_report(content: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(content.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write the report"),
    }
}
