//! Output of `toll load`: text, JSON lines, or bins for a program.

use super::super::console::eprint_line;
use super::LoadRun;
use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::time::Duration;
use toll_load::bins::BinLine;
use toll_load::engine::{Bin, Totals};
use toll_load::summary::Summary;

pub struct Output {
    form: OutputForm,
    hdr: Option<HdrLog>,
    warned: bool,
    /// The error after which standard output is not written any more.
    write_error: Option<std::io::Error>,
    threads: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OutputForm {
    Text,
    Json,
    Bins,
}

impl Output {
    pub fn new(arguments: &LoadRun) -> Result<Self> {
        let form = match (arguments.bins, arguments.is_json()) {
            (Some(_), _) => OutputForm::Bins,
            (None, true) => OutputForm::Json,
            (None, false) => OutputForm::Text,
        };
        let hdr = arguments.hdr.as_ref().map(|path| {
            let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
            HdrLog::begin(file)
        });
        Ok(Self { form, hdr: hdr.transpose()?, warned: false, write_error: None, threads: arguments.threads })
    }

    /// Prints a complete bin. Breaks if the reader has gone.
    pub fn write_bin(&mut self, bin: &Bin) -> ControlFlow<()> {
        if bin.overloaded && !self.warned {
            self.warned = true;
            eprint_line!(
                "toll: the backlog grows without bound ({} events wait): this rate is beyond what the server does; \
                 latency now measures how long the run has lasted",
                bin.backlog
            );
        }
        let line = match self.form {
            OutputForm::Bins => serde_json::to_string(&BinLine::from_bin(bin)).unwrap_or_default(),
            OutputForm::Json => serde_json::to_string(&Summary::from_bin(bin)).unwrap_or_default(),
            OutputForm::Text => self.format_second(bin),
        };
        // A logged histogram is worth no run: say so, and go on without.
        if let Some(hdr) = &mut self.hdr
            && !bin.warmup
            && let Err(error) = hdr.write_bin(bin)
        {
            eprint_line!("toll: the histogram log ends here: {error:#}");
            self.hdr = None;
        }
        // What is not a whole second is in the totals; as a line of rates it would only confuse.
        if self.form == OutputForm::Text && !bin.is_complete {
            return ControlFlow::Continue(());
        }
        self.write_line(&line);
        if self.write_error.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn write_line(&mut self, line: &str) {
        if self.write_error.is_none() {
            let mut out = std::io::stdout().lock();
            self.write_error = writeln!(out, "{line}").and_then(|()| out.flush()).err();
        }
    }

    fn format_second(&self, bin: &Bin) -> String {
        let s = Summary::from_bin(bin);
        let ms = |us: Option<f64>| us.map_or_else(|| "-".to_owned(), |us| format!("{:.2}", us / 1000.0));
        let mut line = format!(
            "[ {:.0}s ] thds: {} tps: {} qps: {} lat (ms): p50 {} p95 {} p99 {} max {} err/s: {:.2} reconn/s: {:.2}",
            s.end_s,
            self.threads,
            format_rate(s.tps),
            format_rate(s.qps),
            ms(s.latency_us_p50),
            ms(s.latency_us_p95),
            ms(s.latency_us_p99),
            ms(s.latency_us_max),
            s.errors as f64 / s.time_s,
            s.reconnects as f64 / s.time_s,
        );
        if let Some(lag) = s.lag_us_p99 {
            line += &format!(" lag p99: {:.2} ms, waiting: {}", lag / 1000.0, s.backlog);
        }
        if s.events == 0 && s.in_flight > 0 {
            line += &format!(" STALLED for {:.1} s", s.oldest_us as f64 / 1e6);
        }
        if bin.warmup {
            line += " (warm-up)";
        }
        line
    }

    pub fn write_totals(&mut self, totals: &Totals) -> Result<()> {
        let summary = Summary::from_totals(totals);
        let text = match self.form {
            OutputForm::Json | OutputForm::Bins => serde_json::to_string(&summary)?,
            OutputForm::Text => format_report(&summary, totals),
        };
        self.write_line(&text);
        match self.write_error.take() {
            // Whoever has stopped listening needs no last word.
            Some(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(error).context("the load ended because its output cannot be written")
            }
            _ => Ok(()),
        }
    }
}

fn format_rate(per_s: Option<f64>) -> String {
    per_s.map_or_else(|| "-".to_owned(), |per_s| format!("{per_s:.2}"))
}

fn format_report(s: &Summary, totals: &Totals) -> String {
    let mut text = format!(
        "\nin {:.2} s: {} events ({}/s), {} statements ({}/s), {} errors, {} reconnects\n",
        s.time_s,
        s.events,
        format_rate(s.tps),
        s.statements,
        format_rate(s.qps),
        s.errors,
        s.reconnects
    );
    if s.reconnects_asked > 0 {
        text += &format!("{} connections made anew as asked\n", s.reconnects_asked);
    }
    let mut row = |name: &str, mean: Option<f64>, histogram: &Histogram<u64>| {
        let ms = |us: f64| format!("{:.3}", us / 1000.0);
        if histogram.is_empty() {
            text += &format!("{name:<22} nothing completed\n");
            return;
        }
        text += &format!("{name:<22} mean {}", mean.map_or_else(|| "-".into(), ms));
        for (label, q) in [
            ("p50", 0.5),
            ("p75", 0.75),
            ("p90", 0.9),
            ("p95", 0.95),
            ("p99", 0.99),
            ("p99.9", 0.999),
            ("p99.99", 0.9999),
        ] {
            text += &format!("  {label} {}", ms(histogram.value_at_quantile(q) as f64 / 1000.0));
        }
        text += &format!("  max {}\n", ms(histogram.max() as f64 / 1000.0));
    };
    row("latency (ms)", s.latency_us_mean, &totals.latency);
    if let (Some(service), Some(lag)) = (&totals.service, &totals.lag) {
        row("  service time (ms)", s.service_us_mean, service);
        row("  schedule lag (ms)", s.lag_us_mean, lag);
    }
    if let Some(due) = s.due_per_s {
        text += &format!(
            "due {due:.2} events/s, done {}/s, left waiting at the end {}\n",
            format_rate(s.tps),
            s.backlog
        );
    }
    if s.overloaded {
        text +=
            "the backlog grew without bound: beyond capacity, latencies depend on how long the run lasted\n";
    }
    if s.in_flight > s.backlog {
        text += &format!(
            "{} events begun and not done at the end, the oldest {:.3} s old\n",
            s.in_flight - s.backlog,
            s.oldest_us as f64 / 1e6
        );
    }
    for (code, n) in &s.errors_by_code {
        text += &format!("error {code}: {n} times: {}\n", s.messages.get(code).map_or("", String::as_str));
    }
    text += &format!(
        "generator: {:.2} s CPU{}",
        s.cpu_s,
        s.cpu_us_per_query.map_or_else(String::new, |us| format!(", {us:.2} µs a statement"))
    );
    text
}

/// HdrHistogram interval log (V2, compressed): event latency in µs, a line for each bin.
struct HdrLog {
    file: BufWriter<File>,
    serializer: V2DeflateSerializer,
}

impl HdrLog {
    fn begin(file: File) -> Result<Self> {
        let mut file = BufWriter::new(file);
        file.write_all(
            b"#[Histogram log format version 1.3]\n\
              #toll load: event latency from the intended start, us; times in seconds from the run's start\n\
              \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n",
        )?;
        Ok(Self { file, serializer: V2DeflateSerializer::new() })
    }

    fn write_bin(&mut self, bin: &Bin) -> Result<()> {
        let mut us = Histogram::<u64>::new_with_bounds(1, 3_600_000_000, 3)?;
        for (ns, count) in bin.tally.latency.iter() {
            us.saturating_record_n((ns + 500) / 1000, count);
        }
        let (begin, end) = (
            Duration::from_nanos(bin.begin_ns - bin.load_began_ns),
            Duration::from_nanos(bin.end_ns - bin.load_began_ns),
        );
        let mut line = Vec::new();
        IntervalLogWriterBuilder::new()
            .begin_log_with(&mut line, &mut self.serializer)?
            .write_histogram(&us, begin, end - begin, None)
            .map_err(|e| anyhow::anyhow!("{e:?}"))?;
        self.file.write_all(&line)?;
        Ok(self.file.flush()?)
    }
}
