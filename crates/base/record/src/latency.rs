//! Latency histograms of each window on disk: writer and reader of `latency.hlog`.
//!
//! `latency.hlog` is an HdrHistogram interval log (<https://github.com/HdrHistogram/HdrHistogram>,
//! `HistogramLogWriter`; V2, compressed, base64). Other tools of that family read it too, after `zstd -d`.
//! Base64 adds a third to the size, and zstd removes it again. Never interprets a percentile: it stores
//! counts.

use crate::series::{LATENCIES, SeriesWriter};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{
    IntervalLogIterator, IntervalLogWriterBuilder, IntervalLogWriterError, LogEntry, Tag,
};
use hdrhistogram::serialization::{Deserializer, V2DeflateSerializer};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Latencies of one window, in microseconds, every event that completed inside it.
#[derive(Debug, Clone)]
pub struct LatencyWindow {
    pub arm: String,
    pub trial: u32,
    /// CLOCK_MONOTONIC, to the millisecond.
    pub begin_mono_us: u64,
    pub duration_us: u64,
    pub histogram: Histogram<u64>,
}

/// An empty histogram in the one shape that runs use: 1 us to one hour, three significant digits.
/// Longer latencies belong in its last bucket: record with `saturating_record`.
pub fn latency_histogram() -> Histogram<u64> {
    match Histogram::new_with_bounds(1, 3_600_000_000, 3) {
        Ok(histogram) => histogram,
        Err(e) => unreachable!("constant bounds are valid: {e:?}"),
    }
}

/// `latency.hlog` being written: one line for each window, on disk as soon as it is added.
pub struct LatencyLog {
    file: SeriesWriter,
    serializer: V2DeflateSerializer,
    line: Vec<u8>,
}

impl std::fmt::Debug for LatencyLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LatencyLog").field("file", &self.file).finish_non_exhaustive()
    }
}

impl LatencyLog {
    /// Begins the latency log of the run directory `root`.
    pub fn create(root: &Path) -> io::Result<Self> {
        let mut file = SeriesWriter::create(&root.join(LATENCIES.compressed))?;
        file.add(
            b"#[Histogram log format version 1.3]\n\
              #toll: event latency in us, a line a window, Tag=ARM#TRIAL, start on CLOCK_MONOTONIC\n\
              \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n",
        )?;
        Ok(Self { file, serializer: V2DeflateSerializer::new(), line: Vec::new() })
    }

    /// Adds one window. Fails on an arm name that the format cannot carry (comma, blank, line end).
    pub fn add(
        &mut self,
        arm: &str,
        trial: u32,
        begin_mono_us: u64,
        duration_us: u64,
        histogram: &Histogram<u64>,
    ) -> io::Result<()> {
        let tag = format!("{arm}#{trial}");
        let Some(tag) = Tag::new(&tag) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "variant name {arm:?} is not valid in latency.hlog: use no comma, space or line break"
                ),
            ));
        };
        self.line.clear();
        IntervalLogWriterBuilder::new()
            .begin_log_with(&mut self.line, &mut self.serializer)?
            .write_histogram(
                histogram,
                Duration::from_micros(begin_mono_us),
                Duration::from_micros(duration_us),
                Some(tag),
            )
            .map_err(|e| match e {
                IntervalLogWriterError::IoError(e) => e,
                IntervalLogWriterError::SerializeError(e) => io::Error::other(e.to_string()),
            })?;
        self.file.add(&self.line)?;
        self.file.flush()
    }

    /// Ends the compressed file; see [`RunWriter::finish`](crate::RunWriter::finish).
    pub fn finish(&mut self) -> io::Result<()> {
        self.file.finish()
    }
}

/// Why a line of the interval log could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LatencyError(String);

/// Every window in an interval log. A last line cut short by a crash is left out.
pub(crate) fn parse_interval_log(log: &[u8]) -> Result<Vec<LatencyWindow>, LatencyError> {
    let whole = log.iter().rposition(|byte| *byte == b'\n').map_or(&log[..0], |end| &log[..=end]);
    let mut deserializer = Deserializer::new();
    let mut windows = Vec::new();
    for entry in IntervalLogIterator::new(whole) {
        let entry = entry.map_err(|e| LatencyError(format!("not an interval log: {e:?}")))?;
        let LogEntry::Interval(interval) = entry else { continue };
        let tag = interval.tag();
        let tag = tag.as_deref().unwrap_or_default();
        let (arm, trial) = tag
            .rsplit_once('#')
            .and_then(|(arm, trial)| Some((arm, trial.parse().ok()?)))
            .ok_or_else(|| LatencyError(format!("tag {tag:?} is not ARM#TRIAL")))?;
        let bytes = base64::Engine::decode(
            &base64::engine::general_purpose::STANDARD,
            interval.encoded_histogram().as_bytes(),
        )
        .map_err(|e| LatencyError(format!("histogram of {tag}: {e}")))?;
        let histogram = deserializer
            .deserialize(&mut bytes.as_slice())
            .map_err(|e| LatencyError(format!("histogram of {tag}: {e}")))?;
        windows.push(LatencyWindow {
            arm: arm.to_owned(),
            trial,
            begin_mono_us: interval.start_timestamp().as_micros() as u64,
            duration_us: interval.duration().as_micros() as u64,
            histogram,
        });
    }
    Ok(windows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_log_with(windows: &[(&str, u32, &[u64])]) -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        let mut log = LatencyLog::create(dir.path()).unwrap();
        for (i, (arm, trial, values)) in windows.iter().enumerate() {
            let mut h = latency_histogram();
            values.iter().for_each(|v| h.saturating_record(*v));
            log.add(arm, *trial, 100_000 * (i as u64 + 1), 5_000_000, &h).unwrap();
        }
        log.finish().unwrap();
        let file = std::fs::File::open(dir.path().join("latency.hlog.zst")).unwrap();
        let text = String::from_utf8(zstd::decode_all(file).unwrap()).unwrap();
        (dir, text)
    }

    #[test]
    fn what_was_added_is_read_back_bucket_for_bucket() {
        let (_dir, text) =
            a_log_with(&[("none", 0, &[900, 1_000, 250_000]), ("tcp-64", 1, &[7, 4_000_000_000])]);
        let back = parse_interval_log(text.as_bytes()).unwrap();
        assert_eq!(back.len(), 2);
        assert_eq!((back[0].arm.as_str(), back[0].trial), ("none", 0));
        assert_eq!((back[0].begin_mono_us, back[0].duration_us), (100_000, 5_000_000));
        assert_eq!(back[0].histogram.len(), 3);
        assert_eq!(back[0].histogram.value_at_quantile(0.5), 1_000);
        assert_eq!((back[1].arm.as_str(), back[1].trial), ("tcp-64", 1));
        assert!(back[1].histogram.max() >= 3_600_000_000, "an hour and more stays, in the last bucket");
    }

    #[test]
    fn a_line_cut_short_by_a_crash_is_left_out() {
        let (_dir, text) = a_log_with(&[("none", 0, &[900]), ("B", 1, &[950])]);
        let cut = &text[..text.len() - 9];
        let back = parse_interval_log(cut.as_bytes()).unwrap();
        assert_eq!(back.len(), 1);
        assert_eq!(back[0].arm, "none");
    }

    #[test]
    fn an_arm_name_that_the_format_cannot_carry_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = LatencyLog::create(dir.path()).unwrap();
        let e = log.add("a b", 0, 0, 1, &latency_histogram()).unwrap_err();
        assert!(e.to_string().contains("a b"), "{e}");
    }

    #[test]
    fn a_broken_line_in_the_middle_is_an_error_that_names_the_window() {
        let (_dir, text) = a_log_with(&[("none", 0, &[900]), ("B", 1, &[950])]);
        let broken = text.replace("HISTF", "BROKE");
        let e = parse_interval_log(broken.as_bytes()).unwrap_err();
        assert!(e.to_string().contains("none#0"), "{e}");
    }
}
