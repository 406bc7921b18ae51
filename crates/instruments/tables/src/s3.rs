//! A bucket of an S3 server, without an async runtime: requests are signed by rusty-s3 and sent by ureq.

use super::store::{Listed, Location, Lock, Store};
use anyhow::{Context, Result, bail};
use rusty_s3::actions::list_objects_v2::ListObjectsV2Response;
use rusty_s3::actions::{ListObjectsV2, S3Action};
use rusty_s3::{Bucket, Credentials, UrlStyle};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use toll_sys::s3_settings::{plain_host, read_settings};
use ureq::tls::{RootCerts, TlsConfig, TlsProvider};

/// A request is valid so long: the two clocks may differ.
const SIGNED_FOR: Duration = Duration::from_secs(900);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Attempts at a request that the server could not take, and the first pause between them, doubled each time.
const ATTEMPTS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// A file of tables, or a list of a thousand names, is shorter.
const MAX_ANSWER_BYTES: u64 = 1 << 30;
/// Of a server's words.
const ERROR_CHARS: usize = 200;
/// Files that are fetched at once.
const FETCHES: usize = 16;
/// File that says that a compaction or pruning runs. One that is not renewed for so long is a killed process's.
const LOCK: &str = "compacting";
const LOCK_AGE: Duration = Duration::from_secs(900);
const RENEWAL_INTERVAL: Duration = Duration::from_secs(60);

/// TLS for HTTP clients, with the certificate authorities that this host trusts.
pub fn tls_config() -> TlsConfig {
    TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::PlatformVerifier)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build()
}

pub struct S3Store {
    agent: ureq::Agent,
    bucket: Bucket,
    credentials: Credentials,
    prefix: String,
}

impl Debug for S3Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.location())
    }
}

/// What is sent with a request.
#[derive(Clone, Copy)]
enum Method<'a> {
    Get,
    Put(&'a [u8]),
    /// Only where nothing has the name.
    Create(&'a [u8]),
    /// Only where the file has this tag.
    Replace(&'a [u8], &'a str),
    Delete,
}

struct Answer {
    status: u16,
    /// Of the file's content.
    tag: String,
    body: Vec<u8>,
}

impl Answer {
    fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The condition of the request did not hold.
    fn is_refused_by_condition(&self) -> bool {
        matches!(self.status, 409 | 412)
    }
}

impl S3Store {
    /// # Errors
    /// There are no credentials, or the endpoint is no address.
    pub fn open(name: &str, prefix: &str) -> Result<Self> {
        let settings = read_settings(|name| std::env::var(name).ok());
        let setting = |name: &str| settings.get(name).cloned();
        let (Some(key), Some(secret)) = (setting("AWS_ACCESS_KEY_ID"), setting("AWS_SECRET_ACCESS_KEY"))
        else {
            bail!(
                "no credentials for s3://{name}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile \
                 (AWS_PROFILE)"
            );
        };
        let credentials = match setting("AWS_SESSION_TOKEN") {
            Some(token) => Credentials::new_with_token(key, secret, token),
            None => Credentials::new(key, secret),
        };
        let region = setting("AWS_REGION").unwrap_or_else(|| "us-east-1".into());
        let endpoint = setting("AWS_ENDPOINT_URL");
        if let Some(host) = endpoint.as_deref().and_then(plain_host) {
            tracing::warn!(
                "the S3 server {host} is reached without TLS: tables cross the network in the clear"
            );
        }
        let (endpoint, style) = match endpoint {
            Some(endpoint) => (endpoint, UrlStyle::Path),
            None => (format!("https://s3.{region}.amazonaws.com"), UrlStyle::VirtualHost),
        };
        let url = endpoint.parse().with_context(|| format!("{endpoint} is no URL of an S3 server"))?;
        let bucket = Bucket::new(url, style, name.to_owned(), region)
            .map_err(|error| anyhow::anyhow!("{endpoint}: {error}"))?;
        let agent = ureq::Agent::config_builder()
            .tls_config(tls_config())
            .timeout_global(Some(REQUEST_TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("toll/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(Self { agent: agent.into(), bucket, credentials, prefix: prefix.to_owned() })
    }

    fn key(&self, path: &str) -> String {
        if self.prefix.is_empty() { path.to_owned() } else { format!("{}/{path}", self.prefix) }
    }

    /// A server that is away or overloaded is asked again.
    fn send(&self, method: Method<'_>, url: impl Fn() -> String) -> Result<Answer> {
        let mut pause = FIRST_PAUSE;
        for _ in 1..ATTEMPTS {
            match self.try_send(method, &url()) {
                Ok(answer) if answer.status < 500 && answer.status != 429 => return Ok(answer),
                _ => std::thread::sleep(pause),
            }
            pause *= 2;
        }
        self.try_send(method, &url()).with_context(|| {
            format!(
                "the S3 server of {} does not answer: AWS_ENDPOINT_URL and AWS_REGION say where it is",
                self.location()
            )
        })
    }

    fn try_send(&self, method: Method<'_>, url: &str) -> Result<Answer, ureq::Error> {
        let mut answer = match method {
            Method::Get => self.agent.get(url).call(),
            Method::Delete => self.agent.delete(url).call(),
            Method::Put(bytes) => self.agent.put(url).send(bytes),
            Method::Create(bytes) => self.agent.put(url).header("If-None-Match", "*").send(bytes),
            Method::Replace(bytes, tag) => self.agent.put(url).header("If-Match", tag).send(bytes),
        }?;
        let tag =
            answer.headers().get("etag").and_then(|tag| tag.to_str().ok()).unwrap_or_default().to_owned();
        let body = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_vec()?;
        Ok(Answer { status: answer.status().as_u16(), tag, body })
    }

    fn get_answer(&self, path: &str) -> Result<Option<Answer>> {
        let key = self.key(path);
        let url = || self.bucket.get_object(Some(&self.credentials), &key).sign(SIGNED_FOR).to_string();
        match self.send(Method::Get, url)? {
            answer if answer.is_success() => Ok(Some(answer)),
            // Where it is the bucket that is not there, no file of it is missing.
            answer if answer.status == 404 && !answer.names("NoSuchBucket") => Ok(None),
            answer => self.refused(&format!("read {path} from"), &answer),
        }
    }

    fn put_answer(&self, path: &str, method: Method<'_>) -> Result<Answer> {
        let key = self.key(path);
        self.send(method, || {
            self.bucket.put_object(Some(&self.credentials), &key).sign(SIGNED_FOR).to_string()
        })
    }

    /// Lists what is in a directory; without a delimiter, what is below it.
    fn for_each_page(
        &self,
        dir: &str,
        delimiter: Option<&'static str>,
        mut each: impl FnMut(ListObjectsV2Response),
    ) -> Result<()> {
        let prefix = format!("{}/", self.key(dir));
        let mut token = None::<String>;
        loop {
            let url = || {
                let mut asked = self.bucket.list_objects_v2(Some(&self.credentials));
                asked.with_prefix(prefix.as_str());
                if let Some(delimiter) = delimiter {
                    asked.with_delimiter(delimiter);
                }
                if let Some(token) = &token {
                    asked.with_continuation_token(token.as_str());
                }
                asked.sign(SIGNED_FOR).to_string()
            };
            let answer = self.send(Method::Get, url)?;
            if !answer.is_success() {
                return self.refused("list", &answer);
            }
            let text = String::from_utf8_lossy(&answer.body);
            let page = ListObjectsV2::parse_response(&text)
                .with_context(|| format!("{} answers with no list", self.location()))?;
            token.clone_from(&page.next_continuation_token);
            each(page);
            if token.is_none() {
                return Ok(());
            }
        }
    }

    fn refused<T>(&self, what: &str, answer: &Answer) -> Result<T> {
        let why = answer.element("Message").or_else(|| answer.element("Code")).unwrap_or_default();
        bail!("cannot {what} {}: HTTP status {} {why}", self.location(), answer.status)
    }
}

impl Answer {
    /// What a server says of an error in an XML element, in one line.
    fn element(&self, name: &str) -> Option<String> {
        let text = String::from_utf8_lossy(&self.body);
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(rest.split_once("</")?.0.chars().filter(|c| !c.is_control()).take(ERROR_CHARS).collect())
    }

    fn names(&self, code: &str) -> bool {
        self.element("Code").as_deref() == Some(code)
    }
}

impl Store for S3Store {
    fn location(&self) -> Location {
        Location::Bucket { name: self.bucket.name().to_owned(), prefix: self.prefix.clone() }
    }

    fn put(&self, path: &str, bytes: &[u8]) -> Result<()> {
        match self.put_answer(path, Method::Put(bytes))? {
            answer if answer.is_success() => Ok(()),
            answer => self.refused(&format!("write {path} to"), &answer),
        }
    }

    fn get(&self, path: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.get_answer(path)?.map(|answer| answer.body))
    }

    fn get_all(&self, paths: &[String]) -> Result<Vec<Option<Vec<u8>>>> {
        let shares = paths.chunks(paths.len().div_ceil(FETCHES).max(1));
        std::thread::scope(|scope| {
            let fetch =
                |share: &[String]| share.iter().map(|path| self.get(path)).collect::<Result<Vec<_>>>();
            let threads: Vec<_> = shares.map(|share| scope.spawn(move || fetch(share))).collect();
            let mut all = Vec::with_capacity(paths.len());
            for thread in threads {
                all.extend(thread.join().map_err(|_| anyhow::anyhow!("a thread that reads has failed"))??);
            }
            Ok(all)
        })
    }

    fn list(&self, dir: &str) -> Result<Listed> {
        let mut listed = Listed::default();
        let name = |key: String| Some(key.rsplit('/').find(|part| !part.is_empty())?.to_owned());
        self.for_each_page(dir, Some("/"), |page| {
            listed.files.extend(page.contents.into_iter().filter_map(|object| name(object.key)));
            listed
                .directories
                .extend(page.common_prefixes.into_iter().filter_map(|found| name(found.prefix)));
        })?;
        Ok(listed)
    }

    fn list_all(&self, dir: &str) -> Result<Vec<String>> {
        let mut paths = Vec::new();
        let root = self.key("");
        self.for_each_page(dir, None, |page| {
            let keys = page.contents.iter().map(|object| object.key.as_str());
            paths.extend(keys.filter_map(|key| key.strip_prefix(&root)).map(str::to_owned));
        })?;
        Ok(paths)
    }

    fn remove(&self, path: &str) -> Result<()> {
        let key = self.key(path);
        let url = || self.bucket.delete_object(Some(&self.credentials), &key).sign(SIGNED_FOR).to_string();
        match self.send(Method::Delete, url)? {
            answer if answer.is_success() || answer.status == 404 => Ok(()),
            answer => self.refused(&format!("remove {path} from"), &answer),
        }
    }

    fn check_writable(&self) -> Result<()> {
        let path = format!(".check-{:032x}", u128::from_le_bytes(toll_sys::private_dir::random_bytes()?));
        self.put(&path, b"")?;
        self.remove(&path)
    }

    /// A file that only one process can create, with the time of the last renewal.
    fn lock(self: Arc<Self>) -> Result<Box<dyn Lock>> {
        let text = lock_text()?;
        let found = self.get_answer(LOCK)?;
        let answer = match &found {
            None => self.put_answer(LOCK, Method::Create(&text))?,
            Some(found) if is_left_behind(&found.body) => {
                self.put_answer(LOCK, Method::Replace(&text, &found.tag))?
            }
            Some(_) => return self.is_locked(),
        };
        if answer.is_success() {
            return Ok(Box::new(S3Lock { tag: answer.tag, renewed: Instant::now(), store: self }));
        }
        if !answer.is_refused_by_condition() {
            return self.refused("lock", &answer);
        }
        // A first attempt may have arrived although its answer did not.
        match self.get_answer(LOCK)? {
            Some(own) if own.body == text => {
                Ok(Box::new(S3Lock { tag: own.tag, renewed: Instant::now(), store: self }))
            }
            _ => self.is_locked(),
        }
    }
}

impl S3Store {
    fn is_locked<T>(&self) -> Result<T> {
        bail!(
            "another process compacts or prunes {}: wait for its end; if it was killed, wait for {} minutes, or remove \
             the file {LOCK} there",
            self.location(),
            LOCK_AGE.as_secs() / 60
        )
    }
}

fn unix_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Seconds since 1970, and what tells it from another process's.
fn lock_text() -> Result<Vec<u8>> {
    let random = u128::from_le_bytes(toll_sys::private_dir::random_bytes()?);
    Ok(format!("{} {random:032x}", unix_time().as_secs()).into_bytes())
}

fn is_left_behind(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let renewed = text.split_whitespace().next().and_then(|seconds| seconds.parse().ok());
    renewed.is_none_or(|seconds| unix_time().saturating_sub(Duration::from_secs(seconds)) > LOCK_AGE)
}

struct S3Lock {
    store: Arc<S3Store>,
    /// Of the file as this process wrote it.
    tag: String,
    renewed: Instant,
}

impl Lock for S3Lock {
    fn renew(&mut self) -> Result<()> {
        if self.renewed.elapsed() < RENEWAL_INTERVAL {
            return Ok(());
        }
        let answer = self.store.put_answer(LOCK, Method::Replace(&lock_text()?, &self.tag))?;
        if !answer.is_success() {
            return self.store.refused("keep the lock of", &answer);
        }
        (self.tag, self.renewed) = (answer.tag, Instant::now());
        Ok(())
    }
}

impl Drop for S3Lock {
    fn drop(&mut self) {
        let own = self.store.get_answer(LOCK).map(|found| found.is_some_and(|found| found.tag == self.tag));
        if let Err(error) = own.and_then(|is_own| if is_own { self.store.remove(LOCK) } else { Ok(()) }) {
            tracing::warn!("{error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_left_behind_once_it_is_old_or_no_lock() {
        assert!(!is_left_behind(&lock_text().unwrap()));
        let old = unix_time() - LOCK_AGE - Duration::from_secs(2);
        assert!(is_left_behind(format!("{} 0", old.as_secs()).as_bytes()));
        assert!(is_left_behind(b"") && is_left_behind(b"soon"));
    }
}
