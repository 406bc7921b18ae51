//! Figures of a run while it goes on, for Prometheus: its text format over HTTP.
//!
//! Served by the guard, which lives as long as a method may be on. Holds numbers alone: no query, name or address.

use super::messages::Look;
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A client has asked, and has read its answer, within this time: one after another is served.
const TIMEOUT: Duration = Duration::from_secs(1);
const LONGEST_REQUEST: u64 = 8 << 10;

/// What is served; the last look.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    look: Look,
    probes: u64,
    has_tripped: bool,
}

impl Metrics {
    /// Listens until the process ends.
    ///
    /// # Errors
    /// Somebody else has the address: nothing may be switched on.
    pub fn serve(at: SocketAddr) -> Result<Self> {
        let metrics = Self::default();
        let listener = TcpListener::bind(at).with_context(|| format!("cannot serve metrics at {at}"))?;
        let shared = metrics.clone();
        std::thread::Builder::new().name("metrics".into()).spawn(move || {
            for client in listener.incoming().flatten() {
                // One that hangs up or says nothing has no answer.
                let _ = shared.answer(&client);
            }
        })?;
        Ok(metrics)
    }

    pub fn set(&self, look: Look) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.look = look;
        known.probes += look.probes;
    }

    /// The method goes off for good.
    pub fn set_tripped(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        (known.has_tripped, known.look.is_on) = (true, false);
    }

    fn answer(&self, client: &TcpStream) -> std::io::Result<()> {
        client.set_read_timeout(Some(TIMEOUT))?;
        client.set_write_timeout(Some(TIMEOUT))?;
        let mut from = BufReader::new(Read::take(client, LONGEST_REQUEST));
        let mut asked = String::new();
        from.read_line(&mut asked)?;
        let mut header = String::new();
        // A client whose request is not read whole may lose the answer to a reset.
        while from.read_line(&mut header)? > 2 {
            header.clear();
        }
        let is_metrics = asked.starts_with("GET /metrics ");
        let (status, body) = match is_metrics {
            true => ("200 OK", self.text()),
            false => ("404 Not Found", "figures are at /metrics\n".to_owned()),
        };
        let mut to = client;
        write!(
            to,
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        )
    }

    fn text(&self) -> String {
        let Known { look, probes, has_tripped } = *self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = String::new();
        let mut metric = |name: &str, kind: &str, help: &str, values: &[(&str, f64)]| {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (label, value) in values {
                let _ = writeln!(out, "{name}{label} {value}");
            }
        };
        let of = |value: bool| [("", f64::from(u8::from(value)))];
        metric("toll_live_method_on", "gauge", "Whether a method is switched on.", &of(look.is_on));
        metric("toll_live_breaker_tripped", "gauge", "Whether the breaker has tripped.", &of(has_tripped));
        metric(
            "toll_live_probe_seconds",
            "gauge",
            "Latency of the probe queries of the last two seconds.",
            &[
                ("{quantile=\"0.5\"}", look.probe_p50_us / 1e6),
                ("{quantile=\"0.99\"}", look.probe_p99_us / 1e6),
            ],
        );
        metric("toll_live_probes_total", "counter", "Probe queries answered.", &[("", probes as f64)]);
        if let Some(running) = look.threads_running {
            metric("toll_live_threads_running", "gauge", "Threads_running.", &[("", running as f64)]);
        }
        let written = [("", look.written_bytes as f64)];
        metric("toll_live_written_bytes_total", "counter", "Bytes that the method has written.", &written);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(at: SocketAddr, request: &str) -> String {
        let mut client = TcpStream::connect(at).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let mut said = String::new();
        client.read_to_string(&mut said).unwrap();
        said
    }

    #[test]
    fn the_last_look_is_served_and_a_client_that_says_nothing_keeps_nobody_out() {
        let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let metrics = Metrics::serve(at).unwrap();
        assert!(Metrics::serve(at).unwrap_err().to_string().contains("cannot serve metrics"));
        let look =
            Look { probes: 3, probe_p99_us: 1_500.0, is_on: true, written_bytes: 7, ..Look::default() };
        metrics.set(look);
        metrics.set(Look { probes: 2, ..look });
        let _silent = TcpStream::connect(at).unwrap();
        let text = get(at, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        for line in [
            "HTTP/1.1 200 OK",
            "toll_live_method_on 1",
            "toll_live_breaker_tripped 0",
            "toll_live_probe_seconds{quantile=\"0.99\"} 0.0015",
            "toll_live_probes_total 5",
            "toll_live_written_bytes_total 7",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(!text.contains("threads_running"), "{text}");
        metrics.set_tripped();
        let text = get(at, "GET /metrics HTTP/1.0\r\n\r\n");
        assert!(text.contains("method_on 0") && text.contains("tripped 1"), "{text}");
        assert!(get(at, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        // A request without an end is given up.
        let mut endless = TcpStream::connect(at).unwrap();
        while endless.write_all(&[b'x'; 4_096]).is_ok() {}
        assert!(get(at, "GET /metrics HTTP/1.1\r\n\r\n").contains("toll_live_probes_total 5"));
    }
}
