//! Object store or folder with retries, behind one blocking interface.
//!
//! Transient failures (a store that is down, slow, or answers 500 or 503; a broken connection) are retried
//! with growing pauses until the user's timeout. Never overwrites an object that was to be written only if
//! new.

use crate::connector::Connector;
use crate::{Destination, Error, Result, folder};
use futures::StreamExt;
use object_store::aws::{AmazonS3Builder, Checksum};
use object_store::path::Path as ObjectPath;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions, RetryConfig};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use toll_sys::s3_settings;

/// Retry policy of a store.
#[derive(Debug, Clone)]
pub struct RetryPolicy {
    /// From the first failure of a request on.
    pub retry_for: Duration,
    /// True once the user wants an end.
    pub stop: Arc<AtomicBool>,
    /// Callback with what the user is to know: the reason of repeated retries, at most once a minute, and whether others
    /// can read what is stored.
    pub report: fn(&str),
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
    retry_policy: RetryPolicy,
    retries: AtomicU64,
    last_reported: Mutex<Option<Instant>>,
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

/// A request to a bucket that takes longer is given up and made anew,
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// and of so many bytes a second is borne: a large database's manifest takes hundreds of MB.
const MIN_BYTES_PER_S: u64 = 64 << 10;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// For what is asked of a store on the way out.
const FINAL_DELETE_TIMEOUT: Duration = Duration::from_secs(5);
/// Pauses between tries: doubled from the first to the longest.
const INITIAL_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// Before so long a pause the user is told what it is for,
const REPORT_FROM_BACKOFF: Duration = Duration::from_secs(1);
/// and then this often at most.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

impl Store {
    /// Opens it. `make`: a folder that is not there is made, for its owner alone.
    pub fn open(destination: Destination, make: bool, retry_policy: RetryPolicy) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("store")
            .enable_all()
            .build()
            .map_err(|cause| Error::Write { what: "a thread", cause })?;
        let (inner, prefix): (Arc<dyn ObjectStore>, _) = match &destination {
            Destination::Folder(path) => {
                let folder = folder::open(path, make)?;
                if let Some(mode) = folder::mode_for_others(path) {
                    (retry_policy.report)(&format!(
                        "other users can read the backups in {destination} (mode {mode:03o}). Run chmod -R o= {destination}"
                    ));
                }
                (Arc::new(folder), String::new())
            }
            Destination::S3 { bucket, prefix } => {
                let settings = s3_settings::read_settings(|name| std::env::var(name).ok());
                if let Some(host) =
                    settings.get("AWS_ENDPOINT_URL").and_then(|url| s3_settings::plain_host(url))
                {
                    (retry_policy.report)(&format!(
                        "the connection to {host} is not encrypted (http://): others on the network can read and change \
                         what is stored. Use an endpoint with https://"
                    ));
                }
                (Arc::new(open_bucket(bucket, &settings)?), prefix.clone())
            }
        };
        let prefix = ObjectPath::parse(&prefix)
            .map_err(|reason| Error::Destination(format!("{destination} cannot be a prefix: {reason}")))?;
        Ok(Self {
            runtime,
            inner,
            prefix,
            destination,
            retry_policy,
            retries: AtomicU64::new(0),
            last_reported: Mutex::new(None),
        })
    }

    /// Requests that had to be made again so far.
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Puts an object, in the place of one that may be there.
    pub fn put(&self, path: &str, bytes: Vec<u8>) -> Result<()> {
        let at = self.object_path(path);
        let length = bytes.len() as u64;
        let payload = object_store::PutPayload::from(bytes);
        self.retry(&format!("putting {path}"), || async {
            self.with_timeout(length, self.inner.put(&at, payload.clone())).await.map(drop)
        })
    }

    /// Puts an object unless one is there; false: one was. Where the store cannot do that in one step, it is
    /// looked for first.
    pub fn put_if_absent(&self, path: &str, bytes: Vec<u8>) -> Result<bool> {
        let at = self.object_path(path);
        let payload = object_store::PutPayload::from(bytes);
        self.retry(&format!("putting {path}"), || async {
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            match self.with_timeout(0, self.inner.put_opts(&at, payload.clone(), options)).await {
                Ok(_) => Ok(true),
                Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                    Ok(false)
                }
                Err(error) if is_unsupported(&error) => {
                    match self.with_timeout(0, self.inner.head(&at)).await {
                        Ok(_) => Ok(false),
                        Err(object_store::Error::NotFound { .. }) => {
                            self.with_timeout(0, self.inner.put(&at, payload.clone())).await.map(|_| true)
                        }
                        Err(error) => Err(error),
                    }
                }
                Err(error) => Err(error),
            }
        })
    }

    /// One that is there. If it is longer than `most`, it is not fetched: whoever writes to a store must not
    /// decide how much memory a reader takes.
    pub fn get(&self, path: &str, most: u64) -> Result<Vec<u8>> {
        self.get_if_exists(path, most)?
            .ok_or_else(|| self.store_error(&format!("getting {path}"), "the object does not exist"))
    }

    /// The same; nothing where none is there.
    pub fn get_if_exists(&self, path: &str, most: u64) -> Result<Option<Vec<u8>>> {
        let (at, doing) = (self.object_path(path), format!("getting {path}"));
        let fetched = self.retry(&doing, || async {
            let got = match self.with_timeout(0, self.inner.get(&at)).await {
                Ok(got) => got,
                Err(object_store::Error::NotFound { .. }) => return Ok(Ok(None)),
                Err(error) => return Err(error),
            };
            let bytes = got.meta.size;
            if bytes > most {
                return Ok(Err(bytes));
            }
            self.with_timeout(bytes, got.bytes()).await.map(|bytes| Ok(Some(bytes.to_vec())))
        })?;
        fetched.map_err(|bytes| {
            self.store_error(&doing, &format!("it has {bytes} bytes; the maximum is {most}"))
        })
    }

    /// Removes an object; one that is gone already is no error.
    pub fn delete(&self, path: &str) -> Result<()> {
        let at = self.object_path(path);
        self.retry(&format!("deleting {path}"), || async {
            match self.with_timeout(0, self.inner.delete(&at)).await {
                Err(object_store::Error::NotFound { .. }) => Ok(()),
                other => other,
            }
        })
    }

    /// The same on the way out: one try, also after the user has asked for an end.
    pub fn delete_best_effort(&self, path: &str) {
        let at = self.object_path(path);
        // Whatever stays is told by its age.
        let _ = self
            .runtime
            .block_on(async { tokio::time::timeout(FINAL_DELETE_TIMEOUT, self.inner.delete(&at)).await });
    }

    /// Removes many objects, in as few requests as the store allows.
    pub fn delete_all(&self, paths: Vec<String>) -> Result<()> {
        let paths: Vec<ObjectPath> = paths.iter().map(|path| self.object_path(path)).collect();
        self.retry("deleting pieces", || async {
            let locations = futures::stream::iter(paths.clone()).map(Ok).boxed();
            let mut deleted = self.inner.delete_stream(locations);
            while let Some(one) = self.with_timeout(0, next_item(&mut deleted)).await? {
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
        let below = self.object_path(folder);
        let own = self.prefix.as_ref().len();
        let mut refused = None;
        let take = Mutex::new(&mut take);
        let stopped = Mutex::new(&mut refused);
        self.retry(&format!("listing {folder}"), || async {
            let mut objects = self.inner.list(Some(&below));
            while let Some(object) = self.with_timeout(0, next_item(&mut objects)).await? {
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

    /// A request that moves so many bytes, given up where a bucket takes too long for it.
    async fn with_timeout<T>(
        &self,
        bytes: u64,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> object_store::Result<T> {
        if matches!(self.destination, Destination::Folder(_)) {
            return request.await;
        }
        let limit = transfer_timeout(bytes);
        tokio::time::timeout(limit, request).await.unwrap_or_else(|_| {
            let source = format!("no answer within {} s", limit.as_secs()).into();
            Err(object_store::Error::Generic { store: "S3", source })
        })
    }

    /// Returns once what was put survives a power failure. A bucket answers only then by itself.
    pub fn sync_to_disk(&self) -> Result<()> {
        let Destination::Folder(path) = &self.destination else { return Ok(()) };
        std::fs::File::open(path)
            .and_then(|folder| nix::unistd::syncfs(&folder).map_err(std::io::Error::from))
            .map_err(|cause| self.store_error("writing to disk", &cause.to_string()))
    }

    /// Files that a killed process had not finished, where the store is a folder: they have no name yet
    /// and belong to nobody. Only while no backup goes on.
    pub fn remove_unfinished(&self) -> Result<u64> {
        let Destination::Folder(path) = &self.destination else { return Ok(0) };
        folder::remove_unfinished(path)
            .map_err(|cause| self.store_error("looking for unfinished files", &cause.to_string()))
    }

    fn object_path(&self, path: &str) -> ObjectPath {
        path.split('/').fold(self.prefix.clone(), |at, part| at.join(part))
    }

    fn retry<T, F: Future<Output = object_store::Result<T>>>(
        &self,
        doing: &str,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T> {
        let mut pause = INITIAL_BACKOFF;
        let mut failing: Option<Instant> = None;
        loop {
            let attempted = self.runtime.block_on(async {
                tokio::select! {
                    done = attempt() => Some(done),
                    () = wait_for_stop(&self.retry_policy.stop) => None,
                }
            });
            let error = match attempted {
                None => return Err(Error::Interrupted),
                Some(Ok(done)) => return Ok(done),
                Some(Err(error)) => error,
            };
            let since = *failing.get_or_insert_with(Instant::now);
            if !is_transient(&error) || since.elapsed() + pause > self.retry_policy.retry_for {
                return Err(self.store_error(doing, &describe_error(&error)));
            }
            self.retries.fetch_add(1, Ordering::Relaxed);
            if pause >= REPORT_FROM_BACKOFF {
                self.report_failure(doing, &error);
            }
            self.runtime.block_on(async {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = wait_for_stop(&self.retry_policy.stop) => {}
                }
            });
            pause = (pause * 2).min(MAX_BACKOFF);
        }
    }

    /// Whoever waits is to know for what.
    fn report_failure(&self, doing: &str, error: &object_store::Error) {
        let mut at = self.last_reported.lock().unwrap_or_else(PoisonError::into_inner);
        if at.is_none_or(|at| at.elapsed() > REPORT_INTERVAL) {
            *at = Some(Instant::now());
            let most_s = self.retry_policy.retry_for.as_secs();
            (self.retry_policy.report)(&format!(
                "{self} failed at {doing} ({}); retrying for up to {most_s} s",
                describe_error(error)
            ));
        }
    }

    fn store_error(&self, doing: &str, cause: &str) -> Error {
        Error::Store { store: self.to_string(), doing: doing.to_owned(), cause: cause.to_owned() }
    }
}

fn transfer_timeout(bytes: u64) -> Duration {
    REQUEST_TIMEOUT + Duration::from_secs(bytes / MIN_BYTES_PER_S)
}

/// Of a stream, whose items are results of their own.
async fn next_item<T>(
    stream: &mut (impl futures::Stream<Item = T> + Unpin),
) -> object_store::Result<Option<T>> {
    Ok(stream.next().await)
}

async fn wait_for_stop(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn open_bucket(
    bucket: &str,
    settings: &BTreeMap<&'static str, String>,
) -> Result<object_store::aws::AmazonS3> {
    // How long a request may take depends on its bytes: `Store::with_timeout`.
    let client = ClientOptions::new().with_timeout_disabled().with_connect_timeout(CONNECT_TIMEOUT);
    let mut builder = AmazonS3Builder::new()
        .with_http_connector(Connector)
        .with_bucket_name(bucket)
        .with_checksum_algorithm(Checksum::SHA256)
        // One place decides what is tried again, and for how long: `Store::retry`.
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

/// True if a retry makes sense. False if the store understood and refused the request.
fn is_transient(error: &object_store::Error) -> bool {
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
            let text = describe_error(error);
            // Out of space, or not allowed to write: a folder's disk does not mend itself.
            let of_disk =
                ["No space left", "Permission denied", "Read-only file system", "File name too long"];
            let refused = text.contains("status code: 4")
                && !["408", "409", "429"].iter().any(|c| text.contains(&format!("status code: {c}")));
            // To another region or host, which a later try finds no better.
            let sent_on = text.contains("status code: 3") || text.contains("redirect");
            !refused && !sent_on && !of_disk.iter().any(|words| text.contains(words))
        }
    }
}

fn is_unsupported(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. })
        || describe_error(error).contains("status code: 501")
}

/// An error with its causes, each once: outer ones often repeat inner ones.
fn describe_error(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let words = inner.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = inner.source();
    }
    describe_xml_error(&text)
}

/// Code and message of a store's XML error.
fn describe_xml_error(text: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_of_a_large_database_may_take_its_time() {
        assert_eq!(transfer_timeout(0), REQUEST_TIMEOUT);
        // 720 MB, of a terabyte in pieces of 128 KiB, at a megabit a second.
        assert!(transfer_timeout(720 << 20) > Duration::from_secs((720 << 20) / 125_000));
    }

    #[test]
    fn what_a_store_says_is_told_without_its_markup() {
        let said = "PUT failed - 404 Not Found: <?xml?>\n<Error><Code>NoSuchBucket</Code><Message>It is not there.\
                    </Message><RequestId>1</RequestId></Error>";
        assert_eq!(describe_xml_error(said), "PUT failed - 404 Not Found: NoSuchBucket, It is not there.");
        assert_eq!(describe_xml_error("a < b"), "a < b");
    }
}
