//! Destination and options of an OTLP export, from an address and the standard variables of OpenTelemetry.
//!
//! Never reads the environment itself.

use super::Signal;
use anyhow::{Context, Result, bail, ensure};
use percent_encoding::percent_decode_str;
use std::fmt;
use std::time::Duration;
use ureq::http::{HeaderName, HeaderValue, Uri};

/// Of a collector on the same host, as the specification has it.
const DEFAULT_ENDPOINT: &str = "http://localhost:4318";
/// Of one request, as the specification has it.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_TIMEOUT: Duration = Duration::from_secs(600);
const SERVICE: &str = "toll-capture";

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const TIMEOUT: &str = "OTEL_EXPORTER_OTLP_TIMEOUT";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const TEMPORALITY: &str = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE";
const METRICS: &str = "OTEL_METRICS_EXPORTER";
const LOGS: &str = "OTEL_LOGS_EXPORTER";
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
const RESOURCE: &str = "OTEL_RESOURCE_ATTRIBUTES";
/// The variables that are read; `docs/reference/files.md` lists them.
pub const VARIABLES: [&str; 9] =
    [ENDPOINT, HEADERS, TIMEOUT, PROTOCOL, TEMPORALITY, METRICS, LOGS, SERVICE_NAME, RESOURCE];

/// What the points of a metric count from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Temporality {
    /// The first one: a request that is lost costs no counts.
    Cumulative,
    /// The one before.
    Delta,
}

/// Destination and options of an export.
#[derive(Clone)]
pub struct OtlpSettings {
    /// Of the collector, without the path of a signal.
    endpoint: String,
    /// Secrets, mostly.
    headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) timeout: Duration,
    pub(super) temporality: Temporality,
    pub(super) signals: Vec<Signal>,
    /// Attributes of the resource beyond what the capture knows of itself.
    pub(super) resource: Vec<(String, String)>,
    /// Headers cross the network in the clear.
    is_in_the_clear: bool,
}

/// Without the values of headers.
impl fmt::Debug for OtlpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtlpSettings").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl OtlpSettings {
    /// `address`: as the user gave it; absent: what the variables say. `variable`: the value of an environment variable.
    ///
    /// # Errors
    /// An address or a variable cannot be used; no header's value is in the message.
    pub fn new(address: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        // An empty variable is one that is not set.
        let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        if let Some(protocol) = variable(PROTOCOL).filter(|protocol| protocol != "http/protobuf") {
            bail!(
                "{PROTOCOL} is `{}`: toll sends http/protobuf alone. Unset it, and name the collector's HTTP port (4318).",
                protocol.escape_debug()
            );
        }
        let (endpoint, is_local) = match (address, variable(ENDPOINT)) {
            (Some(address), _) => check_endpoint(address)?,
            (None, Some(address)) => check_endpoint(&address).with_context(|| format!("wrong {ENDPOINT}"))?,
            (None, None) => check_endpoint(DEFAULT_ENDPOINT)?,
        };
        let headers = match variable(HEADERS) {
            Some(text) => parse_headers(&text).with_context(|| format!("wrong {HEADERS}"))?,
            None => Vec::new(),
        };
        let timeout = match variable(TIMEOUT) {
            Some(text) => parse_timeout(&text).with_context(|| format!("wrong {TIMEOUT}"))?,
            None => DEFAULT_TIMEOUT,
        };
        let temporality = match variable(TEMPORALITY).map(|text| text.to_ascii_lowercase()).as_deref() {
            None | Some("cumulative") => Temporality::Cumulative,
            Some("delta" | "lowmemory") => Temporality::Delta,
            Some(other) => bail!("{TEMPORALITY} is `{}`: set cumulative or delta", other.escape_debug()),
        };
        let mut signals = Vec::new();
        for (signal, name) in [(Signal::Metrics, METRICS), (Signal::Logs, LOGS)] {
            match variable(name).as_deref() {
                None | Some("otlp") => signals.push(signal),
                Some("none") => {}
                Some(other) => bail!("{name} is `{}`: set otlp or none", other.escape_debug()),
            }
        }
        ensure!(!signals.is_empty(), "{METRICS} and {LOGS} are none: nothing is left to send");
        let mut resource = match variable(RESOURCE) {
            Some(text) => parse_pairs(&text).with_context(|| format!("wrong {RESOURCE}"))?,
            None => Vec::new(),
        };
        // The name of its own variable has the last word.
        let named = variable(SERVICE_NAME);
        if named.is_some() || !resource.iter().any(|(name, _)| name == "service.name") {
            resource.retain(|(name, _)| name != "service.name");
            resource.push(("service.name".into(), named.unwrap_or_else(|| SERVICE.into())));
        }
        let is_in_the_clear = !headers.is_empty() && endpoint.starts_with("http://") && !is_local;
        Ok(Self { endpoint, headers, timeout, temporality, signals, resource, is_in_the_clear })
    }

    /// Of the collector, for messages.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// True if the headers cross a network without TLS.
    pub fn is_in_the_clear(&self) -> bool {
        self.is_in_the_clear
    }

    pub(super) fn url(&self, signal: Signal) -> String {
        format!("{}{}", self.endpoint, signal.path())
    }

    pub(super) fn headers(&self) -> &[(HeaderName, HeaderValue)] {
        &self.headers
    }
}

/// The endpoint without a slash at its end, and whether its host is this one.
fn check_endpoint(address: &str) -> Result<(String, bool)> {
    const WRITE: &str = "write it as http://HOST:PORT or https://HOST:PORT";
    let shown = address.escape_debug();
    let is_plain = |byte: u8| byte.is_ascii_graphic();
    let uri = Some(address).filter(|address| address.bytes().all(is_plain)).and_then(|it| it.parse().ok());
    let uri: Uri = uri.with_context(|| format!("`{shown}` is no URL of a collector: {WRITE}"))?;
    ensure!(
        matches!(uri.scheme_str(), Some("http" | "https")),
        "`{shown}` is no URL of a collector: {WRITE}"
    );
    // A password in it would be on the command line.
    ensure!(
        uri.authority().is_some_and(|authority| !authority.as_str().contains('@')),
        "a collector's URL with a user or password is refused: set {HEADERS}=authorization=..."
    );
    let host = uri.host().unwrap_or_default();
    ensure!(!host.is_empty(), "`{shown}` names no host: {WRITE}");
    ensure!(uri.query().is_none() && !address.contains('#'), "`{shown}` has a query: {WRITE}");
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_local =
        bare == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    Ok((address.trim_end_matches('/').to_owned(), is_local))
}

/// `name=value,name=value`, with values in percent encoding.
fn parse_pairs(text: &str) -> Result<Vec<(String, String)>> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let parse = |(at, pair): (usize, &str)| {
        let (name, value) =
            pair.split_once('=').with_context(|| format!("no `=` in pair {}: write name=value", at + 1))?;
        let value = percent_decode_str(value.trim()).decode_utf8();
        let value = value.with_context(|| format!("the value of `{}` is no text", name.escape_debug()))?;
        Ok((name.trim().to_owned(), value.into_owned()))
    };
    pairs.enumerate().map(parse).collect()
}

fn parse_headers(text: &str) -> Result<Vec<(HeaderName, HeaderValue)>> {
    let parse = |(name, value): (String, String)| {
        let shown = name.escape_debug();
        let header = HeaderName::try_from(name.as_str());
        let header = header.ok().with_context(|| format!("`{shown}` is no name of a header"))?;
        let mut value = HeaderValue::try_from(value).ok().with_context(|| {
            format!("the value of the header `{shown}` has characters that no header has")
        })?;
        value.set_sensitive(true);
        Ok((header, value))
    };
    parse_pairs(text)?.into_iter().map(parse).collect()
}

/// Milliseconds.
fn parse_timeout(text: &str) -> Result<Duration> {
    let timeout = text.trim().parse().ok().map(Duration::from_millis);
    timeout
        .filter(|timeout| !timeout.is_zero() && *timeout <= MAX_TIMEOUT)
        .with_context(|| format!("write milliseconds, from 1 to {}", MAX_TIMEOUT.as_millis()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(address: Option<&str>, variables: &[(&str, &str)]) -> Result<OtlpSettings> {
        OtlpSettings::new(address, |name| {
            assert!(VARIABLES.contains(&name), "{name} is not listed");
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn refused(address: Option<&str>, variables: &[(&str, &str)]) -> String {
        format!("{:#}", settings(address, variables).unwrap_err())
    }

    #[test]
    fn the_option_comes_before_the_variable_and_both_before_the_collector_of_this_host() {
        let url = |address, variables: &[_]| settings(address, variables).unwrap().url(Signal::Metrics);
        assert_eq!(url(None, &[]), "http://localhost:4318/v1/metrics");
        assert_eq!(url(None, &[(ENDPOINT, "")]), "http://localhost:4318/v1/metrics");
        let other = [(ENDPOINT, "https://otel.example.com/prefix/")];
        assert_eq!(url(None, &other), "https://otel.example.com/prefix/v1/metrics");
        assert_eq!(url(Some("http://[::1]:1"), &other), "http://[::1]:1/v1/metrics");
        assert_eq!(
            settings(None, &other).unwrap().url(Signal::Logs),
            "https://otel.example.com/prefix/v1/logs"
        );
    }

    #[test]
    fn an_address_is_a_url_without_secrets() {
        for wrong in [
            "",
            "otel:4318",
            "ftp://otel",
            "http://",
            "http:///x",
            "http://a b",
            "http://a\r\nX: y",
            "http://ä",
        ] {
            assert!(refused(Some(wrong), &[]).contains("collector"), "{wrong}");
        }
        for wrong in ["http://user:secret@otel:4318", "https://secret@otel"] {
            let why = refused(Some(wrong), &[]);
            assert!(why.contains(HEADERS) && !why.contains("secret"), "{why}");
        }
        assert!(refused(Some("http://otel/?a=b"), &[]).contains("query"));
        assert!(refused(Some("http://otel/#a"), &[]).contains("query"));
        assert!(
            refused(None, &[(ENDPOINT, "otel:4318")])
                .starts_with("wrong OTEL_EXPORTER_OTLP_ENDPOINT: `otel:4318`")
        );
    }

    #[test]
    fn headers_are_read_and_never_shown() {
        let variables = [(HEADERS, "Authorization=Basic%20c2VjcmV0, x-scope = a%2Cb,")];
        let found = settings(None, &variables).unwrap();
        let texts: Vec<_> =
            found.headers().iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(texts, [("authorization", "Basic c2VjcmV0"), ("x-scope", "a,b")]);
        assert!(!format!("{found:?} {:?}", found.headers()).contains("c2VjcmV0"));
        for wrong in ["secret", "a b=secret", "a=secret%0D%0AX: y", "a=secret%FF"] {
            let why = refused(None, &[(HEADERS, wrong)]);
            assert!(
                why.starts_with("wrong OTEL_EXPORTER_OTLP_HEADERS: ") && !why.contains("secret"),
                "{why}"
            );
        }
        for (address, is_in_the_clear) in [
            ("http://otel", true),
            ("https://otel", false),
            ("http://127.0.0.2:1", false),
            ("http://[::1]", false),
        ] {
            assert_eq!(
                settings(Some(address), &variables).unwrap().is_in_the_clear(),
                is_in_the_clear,
                "{address}"
            );
            assert!(!settings(Some(address), &[]).unwrap().is_in_the_clear());
        }
    }

    #[test]
    fn the_other_variables_are_followed_or_refused_by_name() {
        let found = settings(None, &[]).unwrap();
        assert_eq!((found.timeout, found.temporality), (DEFAULT_TIMEOUT, Temporality::Cumulative));
        assert_eq!(found.signals, [Signal::Metrics, Signal::Logs]);
        assert_eq!(found.resource, [("service.name".to_owned(), SERVICE.to_owned())]);
        let all = [
            (TIMEOUT, "1500"),
            (TEMPORALITY, "DELTA"),
            (LOGS, "none"),
            (PROTOCOL, "http/protobuf"),
            (RESOURCE, "service.name=db,deployment.environment.name=pro%3Dd"),
        ];
        let found = settings(None, &all).unwrap();
        assert_eq!((found.timeout, found.temporality), (Duration::from_millis(1_500), Temporality::Delta));
        assert_eq!(found.signals, [Signal::Metrics]);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            found.resource,
            [pair("service.name", "db"), pair("deployment.environment.name", "pro=d")]
        );
        let found = settings(None, &[&all[..], &[(SERVICE_NAME, "shop")]].concat()).unwrap();
        assert_eq!(found.resource[1], pair("service.name", "shop"));
        for (name, value) in [
            (TIMEOUT, "0"),
            (TIMEOUT, "1s"),
            (TIMEOUT, "600001"),
            (TEMPORALITY, "both"),
            (METRICS, "prometheus"),
            (PROTOCOL, "grpc"),
            (RESOURCE, "a"),
        ] {
            assert!(refused(None, &[(name, value)]).contains(name), "{name}={value}");
        }
        assert!(refused(None, &[(METRICS, "none"), (LOGS, "none")]).contains("nothing is left"));
    }
}
