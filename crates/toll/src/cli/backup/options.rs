//! Options that several commands of `toll backup` share: stores, keys, sources and retention.

use super::super::console::eprint_line;
use anyhow::{Result, bail};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use toll_backup::archive::Backups;
use toll_backup::archive::prune::Retention;
use toll_backup::{BackupOrigin, KeyOptions, Repository, StoreLocation};
use toll_store::Destination;
use toll_sys::cancel::CancelToken;
use toll_sys::units;

/// Without any of them no backup is removed.
#[derive(Debug, Args)]
pub struct RetentionArgs {
    /// Keep the latest N backups of each source (server and --schema), and remove what no --keep option keeps
    #[arg(long, alias = "keep-last", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(help_heading = "Retention")]
    keep: Option<u32>,
    /// Keep the newest backup of each of the last N days (UTC) that have one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Retention")]
    keep_daily: Option<u32>,
    /// Keep the newest backup of each of the last N weeks that have one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Retention")]
    keep_weekly: Option<u32>,
    /// Keep the newest backup of each of the last N months that have one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Retention")]
    keep_monthly: Option<u32>,
}

impl RetentionArgs {
    pub fn to_retention(&self) -> Retention {
        let count = |given: Option<u32>| given.map_or(0, |count| count as usize);
        Retention {
            latest: count(self.keep),
            daily: count(self.keep_daily),
            weekly: count(self.keep_weekly),
            monthly: count(self.keep_monthly),
        }
    }
}

#[derive(Debug, Args)]
pub struct StoreArgs {
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
pub struct KeyArgs {
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
pub struct SourceArgs {
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

impl KeyArgs {
    pub fn to_keys(&self) -> KeyOptions {
        KeyOptions {
            passphrase_file: self.passphrase_file.clone(),
            identity_file: self.identity.clone(),
            verify_key_file: self.verify_key.clone(),
            ..KeyOptions::default()
        }
    }
}

impl StoreArgs {
    pub fn open(
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
    pub fn find_origin(&self, cancel: &CancelToken) -> Result<BackupOrigin> {
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

pub fn parse_store_location(text: &str, retry_for: Duration) -> Result<StoreLocation> {
    Ok(StoreLocation { destination: Destination::parse(text)?, retry_for })
}
