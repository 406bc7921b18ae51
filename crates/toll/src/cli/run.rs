//! Command `toll run`: measures the overhead of a scenario's arms.

use super::consent;
use super::console::eprint_line;
use super::interrupt;
use super::progress;
use super::report::Format;
use super::scenario_file;
use anyhow::{Context, bail, ensure};
use clap::Args;
use nix::sys::stat::Mode;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::ExitCode;
use toll_execution::run::{self, RunRequest, RunSource};
use toll_execution::testbed::ServerChoice;
use toll_execution::trial_loop::RunEnd;
use toll_model::plan::{ResolvedScenario, RunOverrides};
use toll_model::scenario::{MAX_ROUNDS, Subject, sweep_percents};
use toll_record::{Clock, Role, RunDir, RunResult};
use toll_report::bound::Bound;
use toll_report::html;
use toll_report::text::Detail;
use toll_sys::units::{self, Percent, Seconds};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    toll run tcpdump-impact --profile quick --dry-run\n  \
    sudo toll run tcpdump-impact --profile quick\n  \
    toll run tcpdump-impact --time 30m --variants general-log,perf-schema\n  \
    toll run mine.toml --server toll.cnf --allow-schema toll_load --rate 300\n\n\
    `toll list` shows the scenarios, `toll list SCENARIO` one of them with its variants.")]
pub struct Run {
    /// A scenario's name (see `toll list`) or a TOML file
    #[arg(value_name = "SCENARIO|FILE", required_unless_present = "plan")]
    scenario: Option<String>,
    /// Length of the run: quick (minutes), standard (half an hour) or another of the scenario's
    #[arg(long, value_name = "NAME", help_heading = "Selection and order")]
    profile: Option<String>,
    /// Only these variants, and the baseline
    #[arg(
        long,
        alias = "arms",
        value_delimiter = ',',
        value_name = "NAMES",
        help_heading = "Selection and order"
    )]
    variants: Option<Vec<String>>,
    /// Repeat a run exactly, from its plan.json: same variants, order, jitter and statements
    #[arg(long, value_name = "RUN/plan.json", help_heading = "Selection and order", conflicts_with_all = [
        "scenario", "profile", "driver", "variants", "time", "find", "spread", "rounds", "window", "settle", "gap", "rows",
        "tables", "table_rows", "scale", "threads", "rate", "rates", "sweep", "receive_on", "seed", "early_stop",
        "server_bin", "exact",
    ])]
    plan: Option<PathBuf>,
    /// Seed of order, jitter and draws [default: from the clock, and written down]
    #[arg(long, value_name = "NUMBER", help_heading = "Selection and order")]
    seed: Option<u64>,
    /// Print what would be started, changed and loaded, and exit
    #[arg(long)]
    dry_run: bool,
    /// Time from the pilot to the last window; windows and rounds are chosen for it
    #[arg(long, alias = "duration", value_name = "DURATION", help_heading = "Time")]
    time: Option<Seconds>,
    /// Minimum detectable effect (80% power); without --time, the run takes as long as needed
    #[arg(long, value_name = "PERCENT", value_parser = percent, conflicts_with = "rounds", help_heading = "Time")]
    find: Option<f64>,
    /// Spread the run over this time in parts, without load between them, to measure the variation between parts
    #[arg(long, value_name = "DURATION", conflicts_with = "exact", help_heading = "Time")]
    spread: Option<Seconds>,
    /// Number of rounds; a 95% interval needs at least 6
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ROUNDS)))]
    #[arg(help_heading = "Time")]
    rounds: Option<u32>,
    /// Length of a window
    #[arg(long, value_name = "DURATION", help_heading = "Time")]
    window: Option<Seconds>,
    /// Warm-up before each window, the same for all variants [default: chosen per variant]
    #[arg(long, value_name = "DURATION", help_heading = "Time")]
    settle: Option<Seconds>,
    /// Pause between trials
    #[arg(long, value_name = "DURATION", help_heading = "Time")]
    gap: Option<Seconds>,
    /// End once every variant has a verdict by its confidence sequence (after 6 rounds or more)
    #[arg(long, conflicts_with = "exact", help_heading = "Time")]
    early_stop: bool,
    #[command(flatten)]
    server: super::server_choice::ServerArgs,
    /// Load generator
    #[arg(long, value_parser = ["toll", "sysbench"], help_heading = "Load and data")]
    driver: Option<String>,
    /// Connections of the load
    #[arg(long, value_name = "N", help_heading = "Load and data")]
    threads: Option<u32>,
    /// Events a second of the load, such as your server's own [default: the scenario's; most go as fast as they can]
    #[arg(long, value_name = "RATE", value_parser = units::rate, help_heading = "Load and data")]
    rate: Option<f64>,
    /// Rates in the place of the scenario's shares of capacity, in rising order
    #[arg(long, value_delimiter = ',', value_name = "RATES", help_heading = "Load and data")]
    rates: Option<Vec<f64>>,
    /// Run every variant again at these percents of capacity, for load-latency curves [default: 10 to 110]
    #[arg(long, value_name = "PERCENTS", value_delimiter = ',', num_args = 0.., require_equals = true,
          value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "Load and data")]
    sweep: Option<Vec<u32>>,
    /// Rows in each table
    #[arg(long, value_name = "N", help_heading = "Load and data")]
    rows: Option<u64>,
    /// Tables of the load
    #[arg(long, value_name = "N", help_heading = "Load and data")]
    tables: Option<u32>,
    /// Rows that tables hold, where that is more than the load touches (the dumped table)
    #[arg(long, value_name = "N", help_heading = "Load and data")]
    table_rows: Option<u64>,
    /// Size of the data, as a share of what its recipe makes in full (website): 0.05
    #[arg(long, value_name = "SHARE", help_heading = "Load and data")]
    scale: Option<f64>,
    /// Capture on this device what another host sends (`toll replay` there), in the place of a link of the run's own: one
    /// variant, by `--variants`
    #[arg(long, value_name = "DEVICE", conflicts_with = "exact", help_heading = "Load and data")]
    receive_on: Option<String>,
    #[command(flatten)]
    exact: super::exact::ExactArgs,
    /// Directory of the run [default: run-SCENARIO-TIME]
    #[arg(short, long, alias = "output", value_name = "DIR", help_heading = "Output")]
    out: Option<PathBuf>,
    /// Exit with 3 if a variant's overhead exceeds this bound: 'perf-schema.latency_us_p99>20%'; may be repeated
    #[arg(long, value_name = "BOUND", help_heading = "Output")]
    fail_if: Vec<Bound>,
    /// Keep captures and logs in the run directory
    #[arg(long, help_heading = "Output")]
    keep_artefacts: bool,
    #[command(flatten)]
    format: super::report::FormatArgs,
}

/// `2%`. Here a bare number is percent, too: no share of 1 is meant by it.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%');
    match format!("{number}%").parse() {
        Ok(Percent(pct)) if pct > 0.0 && pct <= 100.0 => Ok(pct),
        _ => Err("an effect is percent of the baseline, above 0% and at most 100%, such as 2%".to_owned()),
    }
}

pub fn run(arguments: Run) -> anyhow::Result<ExitCode> {
    let (Some(name), None) = (&arguments.scenario, &arguments.plan) else { return repeat_plan(arguments) };
    let (scenario, text) = scenario_file::load(name)?;
    let overrides = RunOverrides {
        clock: Clock::default(),
        profile: arguments.profile,
        driver: arguments.driver,
        arms: arguments.variants,
        time: arguments.time,
        find_pct: arguments.find,
        spread: arguments.spread,
        rounds: arguments.rounds,
        window: arguments.window,
        settle: arguments.settle,
        gap: arguments.gap,
        rows: arguments.rows,
        threads: arguments.threads,
        rate: arguments.rate,
        tables: arguments.tables,
        table_rows: arguments.table_rows,
        scale: arguments.scale,
        sweep: arguments.sweep.map(|given| if given.is_empty() { sweep_percents() } else { given }),
        rates: arguments.rates.unwrap_or_default(),
        receive_on: arguments.receive_on,
        seed: arguments.seed,
        early_stop: arguments.early_stop,
        design: toll_record::Design::default(),
    };
    let resolved = ResolvedScenario::new(scenario.clone(), &overrides)?;
    check_bounds(&arguments.fail_if, &resolved)?;
    let is_agreed = arguments.server.yes;
    let server = match scenario.subject {
        Subject::Server => arguments.server.resolve()?,
        Subject::Host => arguments.server.resolve_none()?,
    };
    let source = RunSource::Scenario(Box::new(scenario), Box::new(overrides));
    if !arguments.dry_run {
        consent::check_load(&source, &server, is_agreed)?;
    }
    let asked = RunRequest {
        source,
        text: text.clone(),
        server,
        out: arguments.out,
        keep_artefacts: arguments.keep_artefacts,
        live: None,
        readers: only_for_owner(),
        command: std::env::args().collect(),
    };
    if arguments.dry_run {
        return super::exact::print_preview(asked, &arguments.exact, is_agreed);
    }
    super::exact::run(arguments.exact, asked, text, arguments.format.chosen(), &arguments.fail_if)
}

/// Reports, before anything is started, bounds that no result could be judged by.
pub(super) fn check_bounds(bounds: &[Bound], resolved: &ResolvedScenario) -> anyhow::Result<()> {
    let outcomes = resolved.scenario.definitions();
    bounds.iter().try_for_each(|bound| {
        bound
            .check(&outcomes, &resolved.arms, &resolved.scenario.baseline)
            .with_context(|| format!("--fail-if '{bound}'"))
    })
}

/// Repeats a plan. A scenario file beside it is copied too.
fn repeat_plan(arguments: Run) -> anyhow::Result<ExitCode> {
    let path = arguments.plan.context("give a scenario, or a plan with --plan")?;
    let path = if path.is_dir() { path.join("plan.json") } else { path };
    let plan = toll_record::read_plan(&path)?;
    ensure!(
        plan.design.is_rounds(),
        "{} is the plan of a live run, which begins with consent and has a guard: repeat it with `toll live`",
        path.display()
    );
    // A plan of format 1 did not hold what arms do: brought to a later format, they would do nothing.
    if plan.setup.sandbox.is_none() && plan.server.as_ref().is_some_and(|server| server.kind == "sandbox") {
        bail!(
            "{} does not hold all of a plan (it has a sandbox, and not how it was made): run its scenario again",
            path.display()
        );
    }
    let is_agreed = arguments.server.yes;
    let server = match (&plan.server, &plan.setup.sandbox) {
        (None, _) => arguments.server.resolve_none()?,
        (Some(_), sandbox) => {
            let server = arguments.server.resolve()?;
            match (sandbox, server) {
                (Some(sandbox), ServerChoice::Sandbox { .. }) => {
                    ServerChoice::Sandbox { program: Some(PathBuf::from(&sandbox.program)) }
                }
                (None, server @ ServerChoice::External { .. }) => server,
                (Some(_), _) => bail!("the plan used a sandbox server: leave out --server"),
                (None, _) => bail!("the plan used an existing server: name it with --server"),
            }
        }
    };
    let text = std::fs::read_to_string(path.with_file_name("scenario.toml")).unwrap_or_default();
    let source = RunSource::Plan(Box::new(plan));
    if !arguments.dry_run {
        consent::check_load(&source, &server, is_agreed)?;
    }
    let asked = RunRequest {
        source,
        text,
        server,
        out: arguments.out,
        keep_artefacts: arguments.keep_artefacts,
        live: None,
        readers: only_for_owner(),
        command: std::env::args().collect(),
    };
    if arguments.dry_run {
        return super::exact::print_preview(asked, &arguments.exact, is_agreed);
    }
    finish_run(
        run::run(asked, &progress::RunProgress::on_stderr(), &interrupt::new_signal_token()?)?,
        arguments.format.chosen(),
        &arguments.fail_if,
    )
}

/// Makes all files that toll or its children create from now on private to this user. The answer: the mode that the
/// umask gave a file until then.
///
/// The umask is the whole process's: no library sets it.
pub(super) fn only_for_owner() -> u32 {
    let umask = nix::sys::stat::umask(Mode::from_bits_truncate(0o077));
    0o644 & !umask.bits()
}

/// Writes the page of a run, readable for the users that the umask allows.
fn write_page(run: &RunDir, result: &RunResult, readers: u32) -> anyhow::Result<()> {
    let path = run.root().join("report.html");
    html::html(std::slice::from_ref(run), std::slice::from_ref(result))
        .and_then(|page| Ok(std::fs::write(&path, page)?))
        .and_then(|()| Ok(std::fs::set_permissions(&path, Permissions::from_mode(readers))?))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Prints the report, writes the page, and prints the paths of both. The exit code depends on the bounds.
pub(super) fn finish_run(
    finished: run::FinishedRun,
    format: Format,
    bounds: &[Bound],
) -> anyhow::Result<ExitCode> {
    let results = [finished.result];
    let dirs = [RunDir::open(&finished.dir)?];
    super::report::print_report(&super::report::render(
        &dirs,
        &results,
        format,
        Detail::Brief { columns: super::report::terminal_columns() },
        true,
    )?)?;
    let shown = finished.dir.display();
    let unwritten =
        finished.write_error.or_else(|| write_page(&dirs[0], &results[0], finished.reader_mode).err());
    if let Some(error) = unwritten {
        eprint_line!("toll: {error:#}; `toll report {shown}` makes the report again from what was measured");
        return Ok(ExitCode::FAILURE);
    }
    eprint_line!(
        "toll: the run is in {shown}: `toll report {shown} --all` prints every metric, report.html has charts"
    );
    match finished.ending {
        RunEnd::Completed | RunEnd::EarlyStop => {}
        RunEnd::Interrupted => {
            super::report::judge_bounds(bounds, &dirs, &results)?;
            eprint_line!("toll: interrupted; the report covers the measurements up to then");
            return Ok(ExitCode::from(super::exit_code::INTERRUPTED));
        }
        RunEnd::Aborted(why) | RunEnd::NotRestored(why) => {
            eprint_line!("toll: the run ended early: {why}; the report covers the measurements up to then");
            return Ok(ExitCode::FAILURE);
        }
    }
    if let Some(why) = unmeasured_reason(&results[0]) {
        eprint_line!("toll: no treatment was measured: {why}");
        return Ok(ExitCode::FAILURE);
    }
    super::report::judge_bounds(bounds, &dirs, &results)
}

/// The reason why a run without a single treatment window failed. `None` if there is one, or no treatment is
/// planned.
fn unmeasured_reason(run: &RunResult) -> Option<String> {
    let asked: Vec<_> = run.arms.iter().filter(|arm| arm.role == Role::Treatment).collect();
    if asked.is_empty() || asked.iter().any(|arm| arm.windows > 0) {
        return None;
    }
    let of = |name: &str| {
        let failed = run.warnings.iter().find(|w| w.code == "trial-failed" && w.arm.as_deref() == Some(name));
        failed.map_or_else(|| format!("{name} gave no window"), |warning| warning.text.clone())
    };
    let reasons: Vec<String> = asked
        .iter()
        .map(|arm| match &arm.unavailable {
            Some(why) => format!("{} cannot run here ({why})", arm.name),
            None => of(&arm.name),
        })
        .collect();
    Some(reasons.join("; "))
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn an_effect_is_a_percentage_above_zero() {
        assert_eq!((percent("2%"), percent("0.5")), (Ok(2.0), Ok(0.5)));
        for text in ["0%", "-1%", "x", "", "NaN", "101%", "inf"] {
            assert!(percent(text).is_err(), "{text}");
        }
    }
}
