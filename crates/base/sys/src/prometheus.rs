//! Prometheus endpoint: a page of metrics over HTTP, and the text format of the page.
//!
//! A thread takes connections, and each is answered in one more: a slow client keeps no other waiting. Names and types follow
//! Prometheus (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use anyhow::{Context, Result};
use std::fmt::{Display, Write as _};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Where nothing is said of the address.
const LOOPBACK: &str = "127.0.0.1";
/// An asker has said what it wants within this time, and takes the answer in as long.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// Clients that are served at once.
const MAX_CLIENTS: usize = 16;
/// Bytes of a request, at most.
const MAX_REQUEST_BYTES: usize = 8 << 10;
/// Between two attempts to take a connection where there are no files to be had.
const ACCEPT_RETRY: Duration = Duration::from_millis(200);

/// Name, type and help of a metric.
pub type MetricSpec = (&'static str, &'static str, &'static str);

/// An address that is taken, at which nobody answers yet: the thread that does reads what strangers send, and is to be begun once
/// rights are given up.
pub struct MetricsListener(TcpListener);

impl MetricsListener {
    /// `address`: `ADDRESS:PORT`, or a port alone on 127.0.0.1.
    ///
    /// # Errors
    /// It cannot listen there.
    pub fn bind(address: &str) -> Result<Self> {
        let port = address.strip_prefix(':').unwrap_or(address).parse::<u16>();
        let whole = port.map_or_else(|_| address.to_owned(), |port| format!("{LOOPBACK}:{port}"));
        let listener = TcpListener::bind(&whole)
            .with_context(|| format!("cannot offer metrics at {whole}: write it as ADDRESS:PORT or PORT"))?;
        Ok(Self(listener))
    }

    /// Starts to answer requests with `page`, for as long as the process lasts. The answer: where.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn serve(self, page: impl Fn() -> String + Send + Sync + 'static) -> Result<SocketAddr> {
        let address = self.0.local_addr()?;
        let page: SharedPage = Arc::new(page);
        std::thread::Builder::new()
            .name("toll-metrics".into())
            .spawn(move || {
                let served = Arc::new(AtomicUsize::new(0));
                for asker in self.0.incoming() {
                    match asker {
                        Ok(asker) => serve_beside_others(asker, &page, &served),
                        Err(_) => std::thread::sleep(ACCEPT_RETRY),
                    }
                }
            })
            .context("cannot start a thread to offer metrics with")?;
        Ok(address)
    }
}

type SharedPage = Arc<dyn Fn() -> String + Send + Sync>;

/// Whoever hangs up, takes too long or comes when too many are there has no answer.
fn serve_beside_others(asker: TcpStream, page: &SharedPage, served: &Arc<AtomicUsize>) {
    let place = ClientPlace::take(served);
    if place.number > MAX_CLIENTS {
        return;
    }
    let page = Arc::clone(page);
    let serve = move || {
        let _place = place;
        let _ = serve_client(&asker, &*page);
    };
    // Without a thread, none: the next one asks again.
    let _ = std::thread::Builder::new().name("toll-metrics".into()).spawn(serve);
}

/// A client's place among those that are served now.
struct ClientPlace {
    number: usize,
    served: Arc<AtomicUsize>,
}

impl ClientPlace {
    fn take(served: &Arc<AtomicUsize>) -> Self {
        Self { number: served.fetch_add(1, Ordering::Relaxed) + 1, served: Arc::clone(served) }
    }
}

impl Drop for ClientPlace {
    fn drop(&mut self) {
        self.served.fetch_sub(1, Ordering::Relaxed);
    }
}

fn serve_client(asker: &TcpStream, page: &dyn Fn() -> String) -> std::io::Result<()> {
    asker.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let request = read_request(asker)?;
    let mut words = request.split(|byte| *byte == b' ' || *byte == b'\r' || *byte == b'\n');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
    let (status, body) = match (method, path) {
        (b"GET" | b"HEAD", b"/metrics") => ("200 OK", page()),
        (b"GET" | b"HEAD", _) => ("404 Not Found", "the metrics are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "GET /metrics\n".to_owned()),
    };
    let mut whole = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    if method != b"HEAD" {
        whole += &body;
    }
    let mut to = asker;
    to.write_all(whole.as_bytes())
}

/// A request up to its empty line, or as far as it is worth reading.
fn read_request(asker: &TcpStream) -> std::io::Result<Vec<u8>> {
    let until = Instant::now() + CLIENT_TIMEOUT;
    let (mut from, mut request, mut some) = (asker, Vec::new(), [0; 1_024]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        asker.set_read_timeout(Some(left))?;
        let read = from.read(&mut some)?;
        request.extend_from_slice(&some[..read]);
        let ends = |end: &[u8]| request.windows(end.len()).any(|seen| seen == end);
        if read == 0 || request.len() >= MAX_REQUEST_BYTES || ends(b"\r\n\r\n") || ends(b"\n\n") {
            return Ok(request);
        }
    }
}

/// Text in the exposition format.
#[derive(Debug)]
pub struct MetricsPage {
    text: String,
    specs: &'static [MetricSpec],
}

impl MetricsPage {
    /// An empty one, of metrics among these.
    pub fn new(specs: &'static [MetricSpec]) -> Self {
        Self { text: String::new(), specs }
    }

    pub fn into_text(self) -> String {
        self.text
    }

    /// A metric with one value.
    pub fn add_metric(&mut self, name: &str, value: impl Display) {
        self.add_family(name);
        self.add_value(name, &[], value);
    }

    /// Name, type and help, before the values.
    pub fn add_family(&mut self, name: &str) {
        for (name, kind, help) in self.specs.iter().filter(|(listed, ..)| *listed == name) {
            // Writing to a string does not fail.
            let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
    }

    pub fn add_value(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let text = text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
            let _ = write!(self.text, "{before}{label}=\"{text}\"");
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{after} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut asker = TcpStream::connect(address).unwrap();
        asker.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        asker.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn strangers_have_an_answer_and_keep_nobody_waiting_for_long() {
        let page = || "toll_test_total 990\n".to_owned();
        let address = MetricsListener::bind("0").unwrap().serve(page).unwrap();
        assert!(address.ip().is_loopback());
        // These say nothing, and hold on: all but one of the places are theirs.
        let silent: Vec<_> = (1..MAX_CLIENTS).map(|_| TcpStream::connect(address).unwrap()).collect();
        let asked = Instant::now();
        assert!(ask(address, "GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(ask(address, "POST /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 405 "));
        assert!(
            ask(address, &format!("{}\n\n", "x".repeat(MAX_REQUEST_BYTES - 2))).starts_with("HTTP/1.1 405 ")
        );
        let head = ask(address, "HEAD /metrics HTTP/1.0\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
        assert!(ask(address, "GET /metrics?x=1 HTTP/1.0\n\n").contains("toll_test_total 990\n"));
        // One after the other they would be heard out for half a minute first.
        assert!(asked.elapsed() < CLIENT_TIMEOUT * (MAX_CLIENTS as u32 - 1));
        drop(silent);
        assert!(MetricsListener::bind("nowhere:x").is_err());
        let taken = address.to_string();
        let refused = MetricsListener::bind(&taken).err().unwrap();
        assert!(format!("{refused:#}").contains(&format!("cannot offer metrics at {taken}")), "{refused:#}");
    }

    #[test]
    fn a_label_is_written_by_the_rules_of_the_format() {
        const SPECS: [MetricSpec; 1] = [("toll_x", "gauge", "Of x.")];
        let mut page = MetricsPage::new(&SPECS);
        page.add_family("toll_x");
        page.add_value("toll_x", &[("query", "a\"b\\\n"), ("y", "")], 4);
        let text = page.into_text();
        assert_eq!(
            text,
            "# HELP toll_x Of x.\n# TYPE toll_x gauge\ntoll_x{query=\"a\\\"b\\\\\\n\",y=\"\"} 4\n"
        );
    }
}
