//! Where are the pieces, and what if it does not answer?
//!
//! A folder or a bucket, behind one set of calls that block. Whatever fails for a reason that passes (a
//! store that is down, slow, or answers 500 or 503; a connection that is cut) is tried again, with growing
//! pauses, until the user's patience ends. Never overwrites what it was asked to put only if new.

use crate::{Error, Result, profile};
use futures::StreamExt;
use object_store::aws::{AmazonS3Builder, Checksum};
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions, RetryConfig};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// A folder, or a place in a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    Folder(PathBuf),
    S3 { bucket: String, prefix: String },
}

impl Destination {
    /// `s3://bucket/prefix`, or the path of a folder.
    pub fn parse(text: &str) -> Result<Self> {
        if let Some(place) = text.strip_prefix("s3://") {
            let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
            if bucket.is_empty() || bucket.contains(['@', ':', '?']) {
                // Not repeated: somebody may have written a key into it.
                return Err(Error::Destination(
                    "that names no bucket: write s3://BUCKET/PREFIX; endpoint and credentials come from the environment \
                     (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, ...) or a profile (AWS_PROFILE)"
                        .into(),
                ));
            }
            let prefix = prefix.trim_matches('/').to_owned();
            return Ok(Self::S3 { bucket: bucket.to_owned(), prefix });
        }
        if let Some((scheme, _)) = text.split_once("://") {
            return Err(Error::Destination(format!(
                "{scheme}:// is no store that toll knows: a folder, or s3://"
            )));
        }
        Ok(Self::Folder(PathBuf::from(text)))
    }
}

impl std::fmt::Display for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Folder(path) => write!(f, "{}", path.display()),
            Self::S3 { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            Self::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}

/// How long a store is waited for.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// From the first failure of a request on.
    pub retry_for: Duration,
    /// True once the user wants an end.
    pub stop: fn() -> bool,
}

/// An object, as listed.
#[derive(Debug, Clone)]
pub struct Object {
    /// Below the store's prefix.
    pub path: String,
    pub bytes: u64,
    /// By the store's clock.
    pub modified_unix_ms: u64,
}

/// A store that was opened.
pub struct Store {
    runtime: Runtime,
    inner: Arc<dyn ObjectStore>,
    prefix: ObjectPath,
    destination: Destination,
    patience: Patience,
    retries: AtomicU64,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({self})")
    }
}

impl std::fmt::Display for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.destination.fmt(f)
    }
}

/// A request that takes longer is given up and made anew.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// For what is asked of a store on the way out.
const LAST_TRY: Duration = Duration::from_secs(5);
/// Pauses between tries: doubled from the first to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

impl Store {
    /// Opens it. `make`: a folder that is not there is made, for its owner alone.
    pub fn open(destination: Destination, make: bool, patience: Patience) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("store")
            .enable_all()
            .build()
            .map_err(|cause| Error::Write { what: "a thread", cause })?;
        let (inner, prefix): (Arc<dyn ObjectStore>, _) = match &destination {
            Destination::Folder(path) => (Arc::new(folder(path, make)?), String::new()),
            Destination::S3 { bucket, prefix } => (Arc::new(bucket_named(bucket)?), prefix.clone()),
        };
        let prefix = ObjectPath::parse(&prefix)
            .map_err(|reason| Error::Destination(format!("{destination} cannot be a prefix: {reason}")))?;
        Ok(Self { runtime, inner, prefix, destination, patience, retries: AtomicU64::new(0) })
    }

    /// Requests that had to be made again so far.
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Puts an object, in the place of one that may be there.
    pub fn put(&self, path: &str, bytes: Vec<u8>) -> Result<()> {
        let at = self.at(path);
        let payload = object_store::PutPayload::from(bytes);
        self.again(&format!("putting {path}"), || async {
            self.inner.put(&at, payload.clone()).await.map(drop)
        })
    }

    /// Puts an object unless one is there; false: one was. Where the store cannot do that in one step, it is
    /// looked for first.
    pub fn put_new(&self, path: &str, bytes: Vec<u8>) -> Result<bool> {
        let at = self.at(path);
        let payload = object_store::PutPayload::from(bytes);
        self.again(&format!("putting {path}"), || async {
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            match self.inner.put_opts(&at, payload.clone(), options).await {
                Ok(_) => Ok(true),
                Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                    Ok(false)
                }
                Err(error) if is_unsupported(&error) => match self.inner.head(&at).await {
                    Ok(_) => Ok(false),
                    Err(object_store::Error::NotFound { .. }) => {
                        self.inner.put(&at, payload.clone()).await.map(|_| true)
                    }
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            }
        })
    }

    pub fn get(&self, path: &str) -> Result<Vec<u8>> {
        self.get_if_there(path)?.ok_or_else(|| self.failed(&format!("getting {path}"), "it is not there"))
    }

    pub fn get_if_there(&self, path: &str) -> Result<Option<Vec<u8>>> {
        let at = self.at(path);
        self.again(&format!("getting {path}"), || async {
            let got = match self.inner.get(&at).await {
                Ok(got) => got,
                Err(object_store::Error::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(error),
            };
            got.bytes().await.map(|bytes| Some(bytes.to_vec()))
        })
    }

    /// Removes an object; one that is gone already is no error.
    pub fn delete(&self, path: &str) -> Result<()> {
        let at = self.at(path);
        self.again(&format!("deleting {path}"), || async {
            match self.inner.delete(&at).await {
                Err(object_store::Error::NotFound { .. }) => Ok(()),
                other => other,
            }
        })
    }

    /// The same on the way out: one try, also after the user has asked for an end.
    pub(crate) fn delete_at_last(&self, path: &str) {
        let at = self.at(path);
        // Whatever stays is told by its age.
        let _ = self.runtime.block_on(async { tokio::time::timeout(LAST_TRY, self.inner.delete(&at)).await });
    }

    /// Removes many objects, in as few requests as the store allows.
    pub fn delete_all(&self, paths: Vec<String>) -> Result<()> {
        let paths: Vec<ObjectPath> = paths.iter().map(|path| self.at(path)).collect();
        self.again("deleting pieces", || async {
            let locations = futures::stream::iter(paths.clone()).map(Ok).boxed();
            let mut deleted = self.inner.delete_stream(locations);
            while let Some(one) = deleted.next().await {
                match one {
                    Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })
    }

    /// Hands every object below a folder to `take`, in no order. An error in the middle begins the list
    /// anew, so objects may come twice.
    pub fn list(&self, folder: &str, mut take: impl FnMut(Object) -> Result<()>) -> Result<()> {
        let below = self.at(folder);
        let own = self.prefix.as_ref().len();
        let mut refused = None;
        let take = std::sync::Mutex::new(&mut take);
        let stopped = std::sync::Mutex::new(&mut refused);
        self.again(&format!("listing {folder}"), || async {
            let mut objects = self.inner.list(Some(&below));
            while let Some(object) = objects.next().await {
                let object = object?;
                let path = object.location.as_ref();
                let path = path.get(own..).unwrap_or(path).trim_start_matches('/').to_owned();
                let modified_unix_ms = object.last_modified.timestamp_millis().max(0) as u64;
                let Ok(mut take) = take.lock() else { break };
                if let Err(error) = take(Object { path, bytes: object.size, modified_unix_ms }) {
                    if let Ok(mut stopped) = stopped.lock() {
                        **stopped = Some(error);
                    }
                    break;
                }
            }
            Ok(())
        })?;
        match refused {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Returns once what was put survives a power failure. A bucket answers only then by itself.
    pub fn settle(&self) -> Result<()> {
        let Destination::Folder(path) = &self.destination else { return Ok(()) };
        std::fs::File::open(path)
            .and_then(|folder| nix::unistd::syncfs(&folder).map_err(std::io::Error::from))
            .map_err(|cause| self.failed("writing to disk", &cause.to_string()))
    }

    /// Files that a killed process had not finished, where the store is a folder: they have no name yet
    /// and belong to nobody. Only while no backup goes on.
    pub fn remove_unfinished(&self) -> Result<u64> {
        let Destination::Folder(path) = &self.destination else { return Ok(0) };
        unfinished_below(path)
            .map_err(|cause| self.failed("looking for unfinished files", &cause.to_string()))
    }

    fn at(&self, path: &str) -> ObjectPath {
        path.split('/').fold(self.prefix.clone(), |at, part| at.join(part))
    }

    fn again<T, F: Future<Output = object_store::Result<T>>>(
        &self,
        doing: &str,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T> {
        let mut pause = FIRST_PAUSE;
        let mut failing: Option<Instant> = None;
        loop {
            let attempted = self.runtime.block_on(async {
                tokio::select! {
                    done = attempt() => Some(done),
                    () = stopped(self.patience.stop) => None,
                }
            });
            let error = match attempted {
                None => return Err(Error::Interrupted),
                Some(Ok(done)) => return Ok(done),
                Some(Err(error)) => error,
            };
            let since = *failing.get_or_insert_with(Instant::now);
            if !passes(&error) || since.elapsed() + pause > self.patience.retry_for {
                return Err(self.failed(doing, &told(&error)));
            }
            self.retries.fetch_add(1, Ordering::Relaxed);
            self.runtime.block_on(async {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = stopped(self.patience.stop) => {}
                }
            });
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn failed(&self, doing: &str, cause: &str) -> Error {
        Error::Store { store: self.to_string(), doing: doing.to_owned(), cause: cause.to_owned() }
    }
}

async fn stopped(stop: fn() -> bool) {
    while !stop() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn folder(path: &Path, make: bool) -> Result<LocalFileSystem> {
    let failed = |reason: &dyn std::fmt::Display| {
        Error::Destination(format!("cannot use the folder {} as a store: {reason}", path.display()))
    };
    if make {
        // What is in a backup is for its owner alone.
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|reason| failed(&reason))?;
    }
    LocalFileSystem::new_with_prefix(path).map_err(|reason| failed(&reason))
}

fn bucket_named(bucket: &str) -> Result<object_store::aws::AmazonS3> {
    // An error says that there is one already, which does as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let settings = profile::settings(|name| std::env::var(name).ok());
    let client = ClientOptions::new().with_timeout(REQUEST_TIMEOUT).with_connect_timeout(CONNECT_TIMEOUT);
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        .with_checksum_algorithm(Checksum::SHA256)
        // One place decides what is tried again, and for how long: `Store::again`.
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
        .with_region(settings.get("AWS_REGION").map_or("us-east-1", String::as_str));
    let is_plain = settings.get("AWS_ENDPOINT_URL").is_some_and(|url| url.starts_with("http://"));
    builder = builder.with_client_options(client.with_allow_http(is_plain));
    if let Some(endpoint) = settings.get("AWS_ENDPOINT_URL") {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(key) = settings.get("AWS_ACCESS_KEY_ID") {
        builder = builder.with_access_key_id(key);
    }
    if let Some(secret) = settings.get("AWS_SECRET_ACCESS_KEY") {
        builder = builder.with_secret_access_key(secret);
    }
    if let Some(token) = settings.get("AWS_SESSION_TOKEN") {
        builder = builder.with_token(token);
    }
    builder.build().map_err(|reason| Error::Destination(format!("cannot use the bucket {bucket}: {reason}")))
}

/// Does it make sense to try again? Not where the store has understood and said no.
fn passes(error: &object_store::Error) -> bool {
    use object_store::Error as E;
    match error {
        E::NotFound { .. }
        | E::InvalidPath { .. }
        | E::NotSupported { .. }
        | E::AlreadyExists { .. }
        | E::Precondition { .. }
        | E::NotModified { .. }
        | E::PermissionDenied { .. }
        | E::Unauthenticated { .. }
        | E::UnknownConfigurationKey { .. } => false,
        _ => {
            let text = told(error);
            // Out of space, or not allowed to write: a folder's disk does not mend itself.
            let of_disk =
                ["No space left", "Permission denied", "Read-only file system", "File name too long"];
            let refused = text.contains("status code: 4")
                && !["408", "409", "429"].iter().any(|c| text.contains(&format!("status code: {c}")));
            !refused && !of_disk.iter().any(|words| text.contains(words))
        }
    }
}

fn is_unsupported(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. })
        || told(error).contains("status code: 501")
}

/// An error with its causes, each once: outer ones often repeat inner ones.
fn told(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let words = inner.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = inner.source();
    }
    in_words(&text)
}

/// What a store says in XML, without the XML: its code and message.
fn in_words(text: &str) -> String {
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(value, _)| value)
    };
    match (text.split_once('<'), element("Code"), element("Message")) {
        (Some((before, _)), Some(code), message) => {
            let before = before.trim_end().trim_end_matches(':');
            format!("{before}: {code}{}", message.map_or(String::new(), |message| format!(", {message}")))
        }
        _ => text.to_owned(),
    }
}

/// The local store writes `NAME#1` and renames it.
fn unfinished_below(folder: &Path) -> std::io::Result<u64> {
    let mut removed = 0;
    for entry in std::fs::read_dir(folder)?.flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            removed += unfinished_below(&path)?;
            continue;
        }
        let name = entry.file_name();
        let is_unfinished =
            name.to_str().and_then(|name| name.rsplit_once('#')).is_some_and(|(_, number)| {
                !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
            });
        if is_unfinished {
            std::fs::remove_file(&path)?;
            removed += 1;
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_a_folder_or_a_place_in_a_bucket_and_names_no_secret() {
        let told = |text: &str| Destination::parse(text).map(|place| place.to_string());
        assert_eq!(told("s3://b/a/c/").unwrap(), "s3://b/a/c");
        assert_eq!(told("s3://b").unwrap(), "s3://b");
        assert_eq!(Destination::parse("/a b").unwrap(), Destination::Folder("/a b".into()));
        for refused in ["s3://", "s3:///x", "s3://key:secret@b/x", "ftp://x/y"] {
            let error = told(refused).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn what_a_store_says_is_told_without_its_markup() {
        let said = "PUT failed - 404 Not Found: <?xml?>\n<Error><Code>NoSuchBucket</Code><Message>It is not there.\
                    </Message><RequestId>1</RequestId></Error>";
        assert_eq!(in_words(said), "PUT failed - 404 Not Found: NoSuchBucket, It is not there.");
        assert_eq!(in_words("a < b"), "a < b");
    }
}
