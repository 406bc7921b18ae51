//! HTTP client of a collector: one request, and what its answer means by the specification of OTLP/HTTP.
//!
//! Never repeats a request, and never follows a redirect: a collector cannot send records elsewhere.

use super::{OtlpSettings, Signal};
use crate::receive::strip_control;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message;
use rustls::crypto::ring;
use std::sync::Arc;
use std::time::Duration;
use ureq::http::{HeaderMap, StatusCode, header};
use ureq::tls::{RootCerts, TlsConfig, TlsProvider};

/// Bytes of an answer that are read: counters and a message.
const MAX_ANSWER_BYTES: u64 = 64 << 10;
/// However long a collector asks to be left alone.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Taken, but for `refused` records.
    Accepted { refused: u64, message: String },
    /// Not taken, and not to be sent again.
    Refused(String),
    /// Not taken now.
    Retry { why: String, after: Option<Duration> },
}

/// Sends the requests of one signal.
pub struct OtlpClient {
    agent: ureq::Agent,
    url: String,
    settings: OtlpSettings,
    signal: Signal,
}

/// An answer to a request that was not taken (`google.rpc.Status`).
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(string, tag = "2")]
    message: String,
}

impl OtlpClient {
    pub fn new(settings: &OtlpSettings, signal: Signal) -> Self {
        // The provider of the process is not this library's to choose.
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .root_certs(RootCerts::PlatformVerifier)
            .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
            .build();
        let agent = ureq::Agent::config_builder()
            .tls_config(tls)
            .timeout_global(Some(settings.timeout))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("toll/", env!("CARGO_PKG_VERSION")))
            // Receivers close connections that are idle for the time between two digests.
            .max_idle_connections(0)
            .build();
        Self { agent: agent.into(), url: settings.url(signal), settings: settings.clone(), signal }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Sends a request, and waits for its answer as long as the timeout says.
    pub fn post(&self, body: &[u8]) -> Outcome {
        let mut request = self.agent.post(&self.url).content_type("application/x-protobuf");
        for (name, value) in self.settings.headers() {
            request = request.header(name, value);
        }
        let retry =
            |error: ureq::Error| Outcome::Retry { why: strip_control(&error.to_string()), after: None };
        match request.send(body) {
            Ok(mut answer) => {
                let (status, after) = (answer.status(), retry_after(answer.headers(), Timestamp::now()));
                match answer.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_vec() {
                    Ok(body) => judge(self.signal, status, after, &body),
                    // The status alone says whether it was taken; whether in part, nobody knows.
                    Err(_) if status.is_success() => judge(self.signal, status, after, &[]),
                    Err(error) => retry(error),
                }
            }
            Err(error) => retry(error),
        }
    }
}

/// <https://opentelemetry.io/docs/specs/otlp/#otlphttp-response>
fn judge(signal: Signal, status: StatusCode, after: Option<Duration>, body: &[u8]) -> Outcome {
    if status.is_success() {
        let (refused, message) = partial_success(signal, body).unwrap_or_default();
        return Outcome::Accepted {
            refused: u64::try_from(refused).unwrap_or(0),
            message: strip_control(&message),
        };
    }
    let said = RpcStatus::decode(body).map(|status| strip_control(&status.message)).unwrap_or_default();
    let why = match said.as_str() {
        "" => format!("HTTP status {}", status.as_u16()),
        said => format!("HTTP status {}: {said}", status.as_u16()),
    };
    match status {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Outcome::Retry { why, after },
        _ => Outcome::Refused(why),
    }
}

/// Records that the collector refused, and why. `None`: it took all of them.
fn partial_success(signal: Signal, body: &[u8]) -> Option<(i64, String)> {
    match signal {
        Signal::Metrics => {
            let answer = ExportMetricsServiceResponse::decode(body).ok()?.partial_success?;
            Some((answer.rejected_data_points, answer.error_message))
        }
        Signal::Logs => {
            let answer = ExportLogsServiceResponse::decode(body).ok()?.partial_success?;
            Some((answer.rejected_log_records, answer.error_message))
        }
    }
}

/// Seconds, or a date.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    static DATES: DateTimeParser = DateTimeParser::new();
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let seconds = match text.parse::<u64>() {
        Ok(seconds) => seconds,
        Err(_) => {
            let moment = DATES.parse_timestamp(text).ok()?;
            u64::try_from(moment.duration_since(now).as_secs()).unwrap_or(0)
        }
    };
    Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsPartialSuccess;

    #[test]
    fn a_collectors_wish_for_a_pause_is_followed_within_bounds() {
        let now: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
        let pause = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers, now).map(|pause| pause.as_secs())
        };
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
        assert_eq!((pause("0"), pause(" 7 "), pause("99999999999")), (Some(0), Some(7), Some(300)));
        assert_eq!(pause("Sat, 21 Nov 2026 10:00:09 GMT"), Some(9));
        assert_eq!(pause("Sat, 21 Nov 2026 09:00:00 GMT"), Some(0));
        assert_eq!((pause("-1"), pause("soon"), pause("")), (None, None, None));
    }

    #[test]
    fn only_what_the_specification_names_is_sent_again() {
        let judged = |status: u16, body: &[u8]| {
            judge(Signal::Logs, StatusCode::from_u16(status).unwrap(), Some(Duration::from_secs(3)), body)
        };
        let taken = |refused, message: &str| Outcome::Accepted { refused, message: message.to_owned() };
        assert_eq!(judged(200, b""), taken(0, ""));
        assert_eq!(judged(202, b"{\"no\": \"protobuf\"}"), taken(0, ""));
        let partial = |rejected_log_records: i64, message: &str| {
            let partial =
                ExportLogsPartialSuccess { rejected_log_records, error_message: message.to_owned() };
            ExportLogsServiceResponse { partial_success: Some(partial) }.encode_to_vec()
        };
        assert_eq!(judged(200, &partial(4, "too\x1b[2J old")), taken(4, "too[2J old"));
        assert_eq!(judged(200, &partial(-4, "")), taken(0, ""));
        for status in [429, 502, 503, 504] {
            let expected =
                Outcome::Retry { why: format!("HTTP status {status}"), after: Some(Duration::from_secs(3)) };
            assert_eq!(judged(status, b""), expected);
        }
        for status in [301, 400, 401, 404, 413, 500, 501] {
            assert_eq!(judged(status, b"<html>"), Outcome::Refused(format!("HTTP status {status}")));
        }
        let body = RpcStatus { message: "no such\ntenant".into() }.encode_to_vec();
        assert_eq!(judged(401, &body), Outcome::Refused("HTTP status 401: no suchtenant".into()));
    }
}
