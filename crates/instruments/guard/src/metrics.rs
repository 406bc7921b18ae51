//! Figures of a run while it goes on, for Prometheus.
//!
//! Served by the guard, which lives as long as a method may be on. Holds numbers alone: no query, name or address.

use super::messages::Look;
use anyhow::Result;
use std::sync::{Arc, Mutex, PoisonError};
use toll_sys::prometheus::{MetricSpec, MetricsListener, MetricsPage};

/// Name, type and help of every metric, in the order of the page. The reference in `docs` is made from it.
pub const METRICS: [MetricSpec; 6] = [
    (ON, "gauge", "1 while a method is on."),
    (TRIPPED, "gauge", "1 once the breaker has tripped."),
    (PROBE, "gauge", "Latency of the probe queries of the last two seconds."),
    (PROBES, "counter", "Probe queries that were answered."),
    (RUNNING, "gauge", "Threads_running of the server, without the guard's."),
    (WRITTEN, "counter", "Bytes that the method has written, in all windows."),
];
const ON: &str = "toll_live_method_on";
const TRIPPED: &str = "toll_live_breaker_tripped";
const PROBE: &str = "toll_live_probe_seconds";
const PROBES: &str = "toll_live_probes_total";
const RUNNING: &str = "toll_live_threads_running";
const WRITTEN: &str = "toll_live_written_bytes_total";

/// The last look, as it is served.
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
    /// Listens until the process ends. `address`: as [`MetricsListener::bind`] takes it.
    ///
    /// # Errors
    /// Somebody else has the address: nothing may be switched on.
    pub fn serve(address: &str) -> Result<Self> {
        let metrics = Self::default();
        let served = metrics.clone();
        MetricsListener::bind(address)?.serve(move || served.render_page())?;
        Ok(metrics)
    }

    pub fn set(&self, look: Look) {
        self.update(|known| {
            known.look = look;
            known.probes += look.probes;
        });
    }

    /// The method goes off for good.
    pub fn set_tripped(&self) {
        self.update(|known| (known.has_tripped, known.look.is_on) = (true, false));
    }

    fn update(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn render_page(&self) -> String {
        let Known { look, probes, has_tripped } = *self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut page = MetricsPage::new(&METRICS);
        page.add_metric(ON, u8::from(look.is_on));
        page.add_metric(TRIPPED, u8::from(has_tripped));
        page.add_family(PROBE);
        page.add_value(PROBE, &[("quantile", "0.5")], look.probe_p50_us / 1e6);
        page.add_value(PROBE, &[("quantile", "0.99")], look.probe_p99_us / 1e6);
        page.add_metric(PROBES, probes);
        if let Some(running) = look.threads_running {
            page.add_metric(RUNNING, running);
        }
        page.add_metric(WRITTEN, look.written_bytes);
        page.into_text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_last_look_and_what_came_before() {
        let metrics = Metrics::default();
        let look =
            Look { probes: 3, probe_p99_us: 1_500.0, is_on: true, written_bytes: 7, ..Look::default() };
        metrics.set(look);
        metrics.set(Look { probes: 2, ..look });
        let text = metrics.render_page();
        for line in [
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
        let text = metrics.render_page();
        assert!(text.contains("method_on 0") && text.contains("tripped 1"), "{text}");
    }
}
