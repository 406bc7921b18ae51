//! Command `toll backup`: takes, lists, verifies, restores and prunes backups.

mod output;

use super::console::{eprint_line, print_line};
use super::interrupt::cancel_on_signals;
use super::login::Login;
use super::throttle::LimiterArgs;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use toll_backup::archive::Backups;
use toll_backup::archive::prune::RetentionPolicy;
use toll_backup::{BackupOptions, BackupOrigin, KeyOptions, Repository, RestoreTarget, StoreLocation};
use toll_commands::json_format::JsonFormat;
use toll_mysql::Target;
use toll_store::Destination;
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
    server: Option<String>,
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
    /// Afterwards remove all but the latest N backups of each source (server and --schema) from the store
    #[arg(long, alias = "keep-last", value_name = "N", requires = "to")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..), help_heading = "Store")]
    keep: Option<u32>,
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
struct StoreArgs {
    /// The folder or bucket
    #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX", help_heading = "Store")]
    from: String,
    #[command(flatten)]
    keys: KeyArgs,
    /// Time limit for retries if the store does not answer
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = units::duration, help_heading = "Store")]
    retry_for: Duration,
}

#[derive(Debug, Args)]
struct KeyArgs {
    /// age identities that decrypt (AGE-SECRET-KEY-1...)
    #[arg(long, value_name = "FILE", help_heading = "Keys")]
    identity: Option<PathBuf>,
    /// Decrypt, and check signatures, with the passphrase in the first line of this file
    #[arg(long, value_name = "FILE", conflicts_with = "identity", help_heading = "Keys")]
    passphrase_file: Option<PathBuf>,
    /// Refuse backups that are not signed with this key [openssl pkey -in SIGN_KEY -pubout -out FILE]
    #[arg(long, value_name = "FILE", conflicts_with = "passphrase_file", help_heading = "Keys")]
    verify_key: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct SourceArgs {
    /// The backup: `latest`, an id or the beginning of one; a commit in git
    #[arg(value_name = "BACKUP", default_value = "latest")]
    backup: String,
    /// The source, if there are several: its name, or the beginning of the end of its ids
    #[arg(long, value_name = "NAME", conflicts_with = "git", help_heading = "Store")]
    source: Option<String>,
    /// The folder or bucket
    #[arg(
        long,
        value_name = "DIR|s3://BUCKET/PREFIX",
        required_unless_present = "git",
        conflicts_with = "git",
        help_heading = "Store"
    )]
    from: Option<String>,
    /// The git repository
    #[arg(long, value_name = "DIR", help_heading = "Store")]
    git: Option<PathBuf>,
    /// Its branch with the backups
    #[arg(long, value_name = "NAME", default_value = "toll-backup", help_heading = "Store")]
    git_branch: String,
    #[command(flatten)]
    keys: KeyArgs,
    /// Time limit for retries if the store does not answer
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = units::duration, help_heading = "Store")]
    retry_for: Duration,
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
    #[arg(required_unless_present = "output", conflicts_with = "output")]
    server: Option<String>,
    /// Write the dump to this file instead; - for standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Drop and replace tables, views, triggers, routines and events that have the names of some in the backup; the command
    /// names the existing ones
    #[arg(long, alias = "replace-existing", requires = "server")]
    overwrite: bool,
    /// Restore although the server is not the one that was backed up
    #[arg(long, requires = "server")]
    yes: bool,
}

#[derive(Debug, Args)]
struct Prune {
    #[command(flatten)]
    from: StoreArgs,
    /// Remove all but the latest N backups of each source [default: none, only what no backup needs]
    #[arg(long, alias = "keep-last", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
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
    let Some(server) = &arguments.server else {
        return Ok(report_usage_error("--server is required (a DSN or an option file)"));
    };
    if arguments.to.is_none() && arguments.git.is_none() {
        return Ok(report_usage_error(
            "a destination is required: --to a folder or s3://bucket/prefix, --git a repository, or both",
        ));
    }
    let server = parse_target(server)?;
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
        keep: arguments.keep.map(|keep| keep as usize),
    };
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
    let origin = arguments.from.find_origin(cancel)?;
    eprint_line!("{}: {}", origin.name(), origin.describe());
    let bar = byte_progress_bar()?;
    let seen = |bytes, whole| {
        bar.set_length(whole);
        bar.set_position(bytes);
    };
    cancel_on_signals(cancel)?;
    let restored = match (&arguments.server, &arguments.output) {
        (Some(server), _) => {
            let target = parse_target(server)?;
            toll_backup::restore(
                &origin,
                RestoreTarget::Server {
                    target: &target,
                    overwrite: arguments.overwrite,
                    other_server: arguments.yes,
                },
                cancel,
                &seen,
            )
        }
        (None, Some(path)) if path.as_os_str() == "-" => {
            toll_backup::restore(&origin, RestoreTarget::Output(&mut std::io::stdout().lock()), cancel, &seen)
        }
        (None, Some(path)) => toll_backup::restore(&origin, RestoreTarget::File(path), cancel, &seen),
        (None, None) => bail!("a destination is required: --server or --output"),
    };
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
    let stay = RetentionPolicy { keep_latest: arguments.keep.map(|keep| keep as usize), keep_id: None };
    let pruned = toll_backup::prune_store(&store, &opening, stay, arguments.dry_run)?;
    if arguments.json || arguments.format.is_json() {
        print_line!("{}", serde_json::to_string_pretty(&pruned)?);
    } else {
        output::print_pruned(&pruned, arguments.dry_run);
    }
    Ok(ExitCode::SUCCESS)
}

impl KeyArgs {
    fn to_keys(&self) -> KeyOptions {
        KeyOptions {
            passphrase_file: self.passphrase_file.clone(),
            identity_file: self.identity.clone(),
            verify_key_file: self.verify_key.clone(),
            ..KeyOptions::default()
        }
    }
}

impl StoreArgs {
    fn open(
        &self,
        cancel: &CancelToken,
    ) -> Result<(std::sync::Arc<toll_store::Store>, toll_backup::archive::PieceDecoder)> {
        let store =
            toll_backup::open_store(&parse_store_location(&self.from, self.retry_for)?, false, cancel)?;
        let opening = self.keys.to_keys().for_reading(&store)?;
        Ok((store, opening))
    }
}

impl SourceArgs {
    fn find_origin(&self, cancel: &CancelToken) -> Result<BackupOrigin> {
        if let Some(dir) = &self.git {
            let repository = Repository::open(dir, &self.git_branch)?;
            let revision = (self.backup != "latest").then_some(self.backup.as_str());
            let verify_key = self.keys.to_keys().verify_key()?;
            let (tree, commit) = repository.read_tree(revision, verify_key.as_ref())?;
            let unix_s = repository.commit_time(&commit)?;
            return Ok(BackupOrigin::Git { repository, commit, tree: Box::new(tree), unix_s });
        }
        let Some(from) = &self.from else { bail!("a store is required: --from or --git") };
        let store = toll_backup::open_store(&parse_store_location(from, self.retry_for)?, false, cancel)?;
        let opening = self.keys.to_keys().for_reading(&store)?;
        let backups = Backups::list(&store)?;
        if let Some(doubt) = toll_backup::warn_future_backups(&backups).filter(|_| self.backup == "latest") {
            eprint_line!("toll: {doubt}");
        }
        let manifest = backups.find(&self.backup, self.source.as_deref())?.read_manifest(&store, &opening)?;
        Ok(BackupOrigin::Store { store, opening, manifest: Box::new(manifest) })
    }
}

fn parse_store_location(text: &str, retry_for: Duration) -> Result<StoreLocation> {
    Ok(StoreLocation { destination: Destination::parse(text)?, retry_for })
}

fn parse_target(named: &str) -> Result<Target> {
    Ok(Login::parse(named).context("in --server")?.target)
}

/// Progress bar with bytes, rate and time left. Hidden if standard error is not a terminal.
fn byte_progress_bar() -> Result<ProgressBar> {
    let bar = ProgressBar::new(0);
    let style = "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    bar.set_style(ProgressStyle::with_template(style)?);
    Ok(bar)
}
