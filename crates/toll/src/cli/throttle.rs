//! Command `toll throttle -- COMMAND`: a dump with a limit on its latency overhead.

use super::console::{eprint_line, print_line};
use super::interrupt;
use super::named::named;
use super::progress::DumpProgress;
use super::target::TargetArgs;
use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use toll_commands::json_format::JsonFormat;
use toll_mysql::Target;
use toll_sys::cancel::CancelToken;
use toll_sys::units;
use toll_throttle::{LimitAction, ThrottleOptions, command, control_commands, control_socket};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "Examples:\n  \
    toll throttle --server my.cnf -- mariadb-dump --defaults-file=my.cnf \\\n      \
        --single-transaction --quick shop > shop.sql\n  \
    toll throttle --server my.cnf --control /run/toll.sock -- ./dump.sh > shop.sql\n  \
    toll throttle ctl /run/toll.sock max-p99-toll=5%\n\n\
    The dump goes to standard output, all else to standard error; the exit code is the \
    command's.\n\
    The probe queries go to the server; the command needs its own options to find it. The password comes from MYSQL_PWD, a \
    defaults file, TOLL_DSN or the prompt (--password).")]
pub struct Throttle {
    #[command(subcommand)]
    command: Option<ThrottleCommand>,
    #[command(flatten)]
    run: ThrottleRun,
}

#[derive(Debug, Subcommand)]
enum ThrottleCommand {
    /// Send a control command to a running throttle, and print its answer
    Ctl(Control),
}

#[derive(Debug, Args)]
struct Control {
    /// The socket of the throttle's --control
    #[arg(value_name = "SOCKET")]
    socket: PathBuf,
    /// status, pause, resume, max-p99-toll=5%, rate=10M, rate=auto or panic
    #[arg(value_name = "COMMAND")]
    order: String,
}

#[derive(Debug, Args)]
struct ThrottleRun {
    /// Limit for the p99 latency increase of a small query during the dump
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = control_commands::parse_max_p99_overhead)]
    #[arg(help_heading = "Latency limit")]
    max_p99_toll: f64,
    #[command(flatten)]
    target: TargetArgs,
    /// Schema that the probe queries read [default: the largest tables of all]
    #[arg(long, short = 'D', alias = "db", value_name = "NAME", help_heading = "Server")]
    database: Option<String>,
    #[command(flatten)]
    steering: LimiterArgs,
    /// Write the overhead as one line of JSON to FILE [default: standard error]
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,
    #[command(flatten)]
    format: JsonFormat,
    /// Give the command this environment variable of toll's own; may be repeated
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,
    /// The dump command and its arguments, run without a shell
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Options of the latency limit, for every subcommand that has one.
#[derive(Debug, Args)]
pub struct LimiterArgs {
    /// The probe query [default: a row by primary key, anywhere in the largest tables]
    #[arg(long, value_name = "SQL", help_heading = "Latency limit")]
    canary: Option<String>,
    /// Probe queries a second [default: a hundredth of the server's own, 100 to 200, and a
    /// twentieth of its reads from disk, 25 at least]
    #[arg(long, value_name = "RATE", value_parser = units::rate, help_heading = "Latency limit")]
    canary_rate: Option<f64>,
    /// Duration of the latency baseline before the dump
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = units::duration)]
    #[arg(help_heading = "Latency limit")]
    before: Duration,
    /// Lowest rate, bytes a second, whatever the latency [default: 128K, or what net_write_timeout asks for]
    #[arg(long, value_name = "RATE", value_parser = control_commands::parse_rate, help_heading = "Latency limit")]
    min_rate: Option<f64>,
    /// Highest rate, bytes a second: 512K, 10M
    #[arg(long, value_name = "RATE", value_parser = control_commands::parse_rate, help_heading = "Latency limit")]
    max_rate: Option<f64>,
    /// The dump pauses while this file exists
    #[arg(long, value_name = "FILE", help_heading = "Latency limit")]
    flag_file: Option<PathBuf>,
    /// Listen here for control commands (`toll throttle ctl`)
    #[arg(long, value_name = "SOCKET", help_heading = "Latency limit")]
    control: Option<PathBuf>,
    /// The oldest that the dump's snapshot may become: 2h
    #[arg(long, value_name = "DURATION", value_parser = units::duration, help_heading = "Latency limit")]
    max_time: Option<Duration>,
    /// The longest that InnoDB's history list may become
    #[arg(long, value_name = "N", help_heading = "Latency limit")]
    max_history: Option<u64>,
    /// Action past --max-time and --max-history
    #[arg(long, value_parser = named::<LimitAction>(), default_value = "open", help_heading = "Latency limit")]
    past_limit: LimitAction,
    /// Write a JSON line for each decision
    #[arg(long, value_name = "FILE", help_heading = "Latency limit")]
    log: Option<PathBuf>,
}

impl LimiterArgs {
    /// Resolves the options with the probed server and the latency limit.
    pub fn build_request(self, target: Target, max_toll: f64, cancel: &CancelToken) -> ThrottleOptions {
        ThrottleOptions {
            target,
            max_p99_overhead: max_toll,
            probe_query: self.canary,
            probe_rate_per_s: self.canary_rate,
            baseline_duration: self.before,
            min_rate: self.min_rate,
            max_rate: self.max_rate,
            flag_file: self.flag_file,
            control_socket: self.control,
            max_time: self.max_time,
            max_history: self.max_history,
            limit_action: self.past_limit,
            log: self.log,
            cancel: cancel.clone(),
            progress: Arc::new(DumpProgress::default()),
        }
    }

    /// True if options of a latency limit are set although there is none.
    pub fn is_set(&self) -> bool {
        let Self {
            canary,
            canary_rate,
            min_rate,
            max_rate,
            flag_file,
            control,
            max_time,
            max_history,
            log,
            ..
        } = self;
        let rates = [canary_rate, min_rate, max_rate].iter().any(|rate| rate.is_some());
        let files = [flag_file, control, log].iter().any(|file| file.is_some());
        rates || files || canary.is_some() || max_time.is_some() || max_history.is_some()
    }
}

pub fn run(arguments: Throttle) -> Result<ExitCode> {
    if let Some(ThrottleCommand::Ctl(Control { socket, order })) = &arguments.command {
        print_line!("{}", control_socket::send_command(socket, order)?);
        return Ok(ExitCode::SUCCESS);
    }
    let arguments = arguments.run;
    let mut target = arguments.target.resolve()?;
    target.db = arguments.database.or(target.db);
    let is_json = arguments.json.is_some() || arguments.format.is_json();
    // Created before the dump begins: hours later would be too late for an error.
    let json_file = match arguments.json.filter(|path| path.as_os_str() != "-") {
        Some(path) => {
            let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
            Some((file, path))
        }
        None => None,
    };
    let cancel = interrupt::new_signal_token()?;
    let asked = arguments.steering.build_request(target, arguments.max_p99_toll, &cancel);
    let ended = match command::run_command(asked, &arguments.command, &arguments.env, std::io::stdout()) {
        Ok(ended) => ended,
        Err(error) if cancel.is_cancelled() => {
            eprint_line!("toll: {error:#}");
            return Ok(ExitCode::from(super::exit_code::INTERRUPTED));
        }
        Err(error) => return Err(error),
    };
    let json = serde_json::to_string(&ended.summary).context("cannot write JSON")?;
    if is_json && json_file.is_none() {
        eprint_line!("{json}");
    } else {
        eprint_line!("{}", ended.summary.render_text());
    }
    if let Some((mut file, path)) = json_file {
        writeln!(file, "{json}").with_context(|| format!("cannot write to {}", path.display()))?;
    }
    Ok(ExitCode::from(ended.exit_code))
}
