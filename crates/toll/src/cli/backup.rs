//! Command `toll backup`: takes, lists, verifies, restores and prunes backups.

mod options;
mod output;

use super::console::{eprint_line, print_line};
use super::interrupt::cancel_on_signals;
use super::login::Login;
use super::target::AddressArgs;
use super::throttle::LimiterArgs;
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use options::{RetentionArgs, SourceArgs, StoreArgs, parse_store_location};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use toll_backup::archive::Backups;
use toll_backup::archive::prune::RetentionPolicy;
use toll_backup::{BackupOptions, KeyOptions, RestoreTarget};
use toll_commands::json_format::JsonFormat;
use toll_sys::cancel::CancelToken;
use toll_sys::units;
use toll_throttle::control_commands;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:\n  \
    toll backup --server /etc/mysql/toll.cnf --to /srv/backups --keep 14\n  \
    toll backup --server toll.cnf --to s3://bucket/shop --git /srv/shop.git \\\n      \
        --max-p99-toll 10%\n  \
    toll backup verify --from /srv/backups\n  \
    toll backup restore latest --from /srv/backups --output dump.sql\n\n\
    S3: endpoint and credentials come from AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, \
    AWS_SECRET_ACCESS_KEY, AWS_REGION, or the profile AWS_PROFILE in ~/.aws.\n\
    The server's password comes from MYSQL_PWD or an option file.\n\n\
    Exit codes: 0 done; 1 failed; 2 wrong arguments; 3 the backup is taken, but something is missing or damaged (a \
    warning says what), or verify found differences; 130 interrupted.")]
pub struct Backup {
    #[command(subcommand)]
    verb: Option<BackupCommand>,
    #[command(flatten)]
    take: TakeArgs,
}

#[derive(Debug, Subcommand)]
enum BackupCommand {
    /// Take a backup; `toll backup` without a command does the same
    Create(Box<TakeArgs>),
    /// List the backups in a store
    List(List),
    /// Load a backup into a sandbox, and compare its content with the dump
    Verify(Verify),
    /// Load a backup into a server, or write the dump to a file
    Restore(Restore),
    /// Remove old backups, and pieces that no remaining backup needs
    Prune(Prune),
}

#[derive(Debug, Args)]
struct TakeArgs {
    /// The server: a DSN (mysql://user@host:port/?socket=/path) or an option file with a [client] section
    #[arg(long, aliases = ["dsn", "defaults-file"], value_name = "DSN|FILE", help_heading = "Server")]
    #[arg(conflicts_with = "address")]
    server: Option<String>,
    #[command(flatten)]
    address: AddressArgs,
    /// Schemas [default: all but the system's]
    #[arg(long, aliases = ["database", "databases"], value_name = "NAMES", num_args = 1.., value_delimiter = ',')]
    #[arg(help_heading = "Server")]
    schema: Vec<String>,
    /// mariadb-dump or mysqldump [default: the one that fits the server]
    #[arg(long, value_name = "PATH", help_heading = "Server")]
    dump_program: Option<PathBuf>,
    /// Keep the backup in this folder or bucket
    #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX", help_heading = "Store")]
    to: Option<String>,
    /// Commit the dump to this git repository, which is made where there is none
    #[arg(long, value_name = "DIR", help_heading = "Store")]
    git: Option<PathBuf>,
    /// The branch that holds nothing but backups
    #[arg(
        long,
        value_name = "NAME",
        default_value = "toll-backup",
        requires = "git",
        help_heading = "Store"
    )]
    git_branch: String,
    /// Name of the server among the backups [default: its server_uuid, or an id that this host keeps for it]
    #[arg(long, value_name = "NAME", help_heading = "Store")]
    source: Option<String>,
    #[command(flatten)]
    retention: RetentionArgs,
    /// Time limit for retries if the store does not answer
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = units::duration, help_heading = "Store")]
    retry_for: Duration,
    /// Encrypt for this age recipient (age1...), again for another
    #[arg(
        long,
        value_name = "RECIPIENT",
        requires = "to",
        conflicts_with = "passphrase_file",
        help_heading = "Keys"
    )]
    encrypt_to: Vec<String>,
    /// Encrypt and sign with the passphrase in the first line of this file
    #[arg(long, value_name = "FILE", requires = "to", help_heading = "Keys")]
    passphrase_file: Option<PathBuf>,
    /// Sign the backup with this Ed25519 key [openssl genpkey -algorithm ed25519 -out FILE]
    #[arg(long, value_name = "FILE", conflicts_with = "passphrase_file", help_heading = "Keys")]
    sign_key: Option<PathBuf>,
    /// Print what would be dumped and where it would go; take no backup
    #[arg(long)]
    dry_run: bool,
    /// Limit the p99 latency increase of a small query during the dump
    #[arg(long, value_name = "PERCENT", value_parser = control_commands::parse_max_p99_overhead)]
    #[arg(help_heading = "Latency limit")]
    max_p99_toll: Option<f64>,
    #[command(flatten)]
    steering: LimiterArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    format: JsonFormat,
}

#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    from: StoreArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    format: JsonFormat,
}

#[derive(Debug, Args)]
struct Verify {
    #[command(flatten)]
    from: SourceArgs,
    /// The mariadbd or mysqld of the sandbox [default: the first found]
    #[arg(long, value_name = "PATH")]
    server_bin: Option<PathBuf>,
    /// Only read and check what is stored, without a server
    #[arg(long, conflicts_with = "server_bin")]
    stored_only: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    format: JsonFormat,
}

#[derive(Debug, Args)]
struct Restore {
    #[command(flatten)]
    from: SourceArgs,
    /// The server: a DSN or an option file with a [client] section
    #[arg(long, aliases = ["dsn", "defaults-file"], value_name = "DSN|FILE")]
    #[arg(conflicts_with_all = ["address", "output"])]
    server: Option<String>,
    #[command(flatten)]
    address: AddressArgs,
    /// Write the dump to this file instead; - for standard output
    #[arg(long, short, value_name = "FILE")]
    #[arg(conflicts_with = "address")]
    output: Option<PathBuf>,
    /// Drop and replace tables, views, triggers, routines and events that have the names of some in the backup; the command
    /// names the existing ones
    #[arg(long, alias = "replace-existing", conflicts_with = "output")]
    overwrite: bool,
    /// Restore although the server is not the one that was backed up
    #[arg(long, conflicts_with = "output")]
    yes: bool,
    /// Only check the server, and print what a restore would replace there
    #[arg(long, conflicts_with = "output")]
    dry_run: bool,
}

#[derive(Debug, Args)]
struct Prune {
    #[command(flatten)]
    from: StoreArgs,
    #[command(flatten)]
    retention: RetentionArgs,
    /// Only print what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    format: JsonFormat,
}

pub fn run(arguments: Backup) -> Result<ExitCode> {
    let cancel = CancelToken::new();
    match dispatch(arguments, &cancel) {
        Err(error) if cancel.is_cancelled() => {
            eprint_line!("toll: {error:#}");
            Ok(ExitCode::from(super::exit_code::INTERRUPTED))
        }
        ended => ended,
    }
}

fn dispatch(arguments: Backup, cancel: &CancelToken) -> Result<ExitCode> {
    match arguments.verb {
        None => take_backup(arguments.take, cancel),
        Some(BackupCommand::Create(take)) => take_backup(*take, cancel),
        Some(BackupCommand::List(list)) => list_backups(list, cancel),
        Some(BackupCommand::Verify(verify)) => verify_one(verify, cancel),
        Some(BackupCommand::Restore(restore)) => restore_one(restore, cancel),
        Some(BackupCommand::Prune(prune)) => prune_store(prune, cancel),
    }
}

/// Reports missing arguments, which clap cannot check beside subcommands.
fn report_usage_error(what: &str) -> ExitCode {
    eprint_line!("toll: {what}; toll backup --help shows examples");
    ExitCode::from(super::exit_code::USAGE)
}

fn take_backup(arguments: TakeArgs, cancel: &CancelToken) -> Result<ExitCode> {
    if arguments.server.is_none() && !arguments.address.is_set() {
        return Ok(report_usage_error("--server is required (a DSN or an option file), or --host"));
    }
    if arguments.to.is_none() && arguments.git.is_none() {
        return Ok(report_usage_error(
            "a destination is required: --to a folder or s3://bucket/prefix, --git a repository, or both",
        ));
    }
    let retention = arguments.retention.to_retention();
    if retention.is_set() && arguments.to.is_none() {
        return Ok(report_usage_error("the --keep options remove backups of a store: --to is required"));
    }
    let Some(Login { target: server, .. }) = Login::choose(arguments.server.as_deref(), &arguments.address)?
    else {
        bail!("no server is named");
    };
    if arguments.max_p99_toll.is_none() && arguments.steering.is_set() {
        bail!("no latency limit: set --max-p99-toll, such as 10%; the other options only tune it");
    }
    let promise =
        arguments.max_p99_toll.map(|max| arguments.steering.build_request(server.clone(), max, cancel));
    let asked = BackupOptions {
        server,
        throttle: promise,
        schemas: arguments.schema,
        dump_program: arguments.dump_program,
        store: arguments.to.as_deref().map(|to| parse_store_location(to, arguments.retry_for)).transpose()?,
        keys: KeyOptions {
            encrypt_to: arguments.encrypt_to,
            passphrase_file: arguments.passphrase_file,
            sign_key_file: arguments.sign_key,
            ..KeyOptions::default()
        },
        source: arguments.source,
        git: arguments.git.map(|dir| (dir, arguments.git_branch)),
        retention,
    };
    if arguments.dry_run {
        let (source, program) = toll_backup::preview_backup(&asked)?;
        output::print_backup_preview(&asked, &source, &program);
        let is_whole = source.warnings.is_empty();
        return Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(super::exit_code::ATTENTION) });
    }
    // A throttle shows how far it is by itself.
    let bar = if asked.throttle.is_some() { ProgressBar::hidden() } else { byte_progress_bar()? };
    cancel_on_signals(cancel)?;
    let taken = toll_backup::create_backup(&asked, cancel, &|bytes, estimated| {
        // What the server estimates may be less than what comes.
        bar.set_length(estimated.max(bytes));
        bar.set_position(bytes);
    });
    bar.finish_and_clear();
    let taken = taken?;
    if arguments.json || arguments.format.is_json() {
        print_line!("{}", output::taken_json(&taken)?);
    } else {
        output::print_taken(&taken);
    }
    Ok(if taken.warnings.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(super::exit_code::ATTENTION)
    })
}

fn list_backups(arguments: List, cancel: &CancelToken) -> Result<ExitCode> {
    let (store, opening) = arguments.from.open(cancel)?;
    let backups = Backups::list(&store)?;
    let read = backups.valid.iter().map(|listed| (listed, listed.read_manifest(&store, &opening)));
    let mut lines = Vec::new();
    for (listed, manifest) in read {
        lines.push(output::to_list_line(&listed.id, listed.is_encrypted(), manifest));
    }
    for broken in &backups.invalid {
        eprint_line!("toll: {} is no backup: {}", broken.object, broken.reason);
    }
    if arguments.json || arguments.format.is_json() {
        print_line!("{}", serde_json::to_string_pretty(&lines)?);
    } else {
        output::print_list(&lines);
    }
    Ok(ExitCode::SUCCESS)
}

fn verify_one(arguments: Verify, cancel: &CancelToken) -> Result<ExitCode> {
    let origin = arguments.from.find_origin(cancel)?;
    eprint_line!("{}: {}", origin.name(), origin.describe());
    let bar = byte_progress_bar()?;
    let seen = |bytes, whole| {
        bar.set_length(whole);
        bar.set_position(bytes);
    };
    cancel_on_signals(cancel)?;
    if arguments.stored_only {
        let checked = toll_backup::check_stored(&origin, cancel, &seen);
        bar.finish_and_clear();
        checked?;
        print_line!("{}: every piece is what was stored, and every file what was dumped", origin.name());
        return Ok(ExitCode::SUCCESS);
    }
    let verified = toll_backup::verify(&origin, arguments.server_bin, cancel, &seen);
    bar.finish_and_clear();
    let verified = verified?;
    if arguments.json || arguments.format.is_json() {
        print_line!("{}", serde_json::to_string_pretty(&verified)?);
    } else {
        output::print_verified(&verified);
    }
    Ok(if verified.differences.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(super::exit_code::ATTENTION)
    })
}

fn restore_one(arguments: Restore, cancel: &CancelToken) -> Result<ExitCode> {
    let login = Login::choose(arguments.server.as_deref(), &arguments.address)?;
    if login.is_none() && arguments.output.is_none() {
        return Ok(report_usage_error(
            "a destination is required: --server (a DSN or an option file), --host or --output",
        ));
    }
    let origin = arguments.from.find_origin(cancel)?;
    eprint_line!("{}: {}", origin.name(), origin.describe());
    if let (true, Some(Login { target, .. })) = (arguments.dry_run, &login) {
        let existing = toll_backup::preview_restore(&origin, target, arguments.yes)?;
        output::print_restore_preview(&origin, target, &existing);
        return Ok(ExitCode::SUCCESS);
    }
    let bar = byte_progress_bar()?;
    let seen = |bytes, whole| {
        bar.set_length(whole);
        bar.set_position(bytes);
    };
    cancel_on_signals(cancel)?;
    let mut standard_output;
    let onto = match (&login, &arguments.output) {
        (Some(Login { target, .. }), _) => {
            RestoreTarget::Server { target, overwrite: arguments.overwrite, other_server: arguments.yes }
        }
        (None, Some(path)) if path.as_os_str() != "-" => RestoreTarget::File(path),
        (None, _) => {
            standard_output = std::io::stdout().lock();
            RestoreTarget::Output(&mut standard_output)
        }
    };
    let restored = toll_backup::restore(&origin, onto, cancel, &seen);
    bar.finish_and_clear();
    output::print_restored(&restored?);
    Ok(ExitCode::SUCCESS)
}

fn prune_store(arguments: Prune, cancel: &CancelToken) -> Result<ExitCode> {
    cancel_on_signals(cancel)?;
    let (store, opening) = arguments.from.open(cancel)?;
    if let Some(doubt) = toll_backup::warn_future_backups(&Backups::list(&store)?) {
        eprint_line!("toll: {doubt}");
    }
    let stay = RetentionPolicy { retention: arguments.retention.to_retention(), keep_id: None };
    let pruned = toll_backup::prune_store(&store, &opening, stay, arguments.dry_run)?;
    if arguments.json || arguments.format.is_json() {
        print_line!("{}", serde_json::to_string_pretty(&pruned)?);
    } else {
        output::print_pruned(&pruned, arguments.dry_run);
    }
    Ok(ExitCode::SUCCESS)
}

/// Progress bar with bytes, rate and time left. Hidden if standard error is not a terminal.
fn byte_progress_bar() -> Result<ProgressBar> {
    let bar = ProgressBar::new(0);
    let style = "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    bar.set_style(ProgressStyle::with_template(style)?);
    Ok(bar)
}
