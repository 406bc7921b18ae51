//! Reader and writer of a run directory. A crash loses at most the last second, and the rest stays readable.

use crate::series::{
    ARTEFACTS, LATENCIES, PROFILES, SAMPLES, SeriesFiles, SeriesReader, SeriesWriter, TRIALS,
};
use crate::{Artefact, FORMAT, Host, LatencyLog, LatencyWindow, OLDEST_FORMAT, Plan, Sample, TrialLine};
use hdrhistogram::Histogram;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// File with the profiles of the captures that a run sent: hundreds of kilobytes of which a tenth is left.
pub const CAPTURES_FILE: &str = PROFILES.compressed;

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read {path}: {cause}")]
    Io { path: PathBuf, cause: std::io::Error },
    #[error("{path}, line {line}: {cause}")]
    Json { path: PathBuf, line: usize, cause: serde_json::Error },
    #[error("{path} has run format {found}, this toll reads up to {FORMAT}: use a newer toll")]
    TooNew { path: PathBuf, found: u32 },
    #[error(
        "{path} has run format {found}, this toll reads {OLDEST_FORMAT} to {FORMAT}: read it with a toll that writes \
         format 2, which reads 1 too (0.1.0 from sources before 2026-11-25)"
    )]
    TooOld { path: PathBuf, found: u32 },
    #[error("{path}: {cause}")]
    Latency { path: PathBuf, cause: crate::LatencyError },
    #[error("{path}: {what}: not a plan of toll")]
    Plan { path: PathBuf, what: String },
    #[error("{path} is not a run directory: it has no plan.json")]
    NotARun { path: PathBuf },
}

/// A run directory to read from.
#[derive(Debug, Clone)]
pub struct RunDir {
    root: PathBuf,
}

/// Directory of the measured run within a counted one's.
pub const MEASURED: &str = "measured";

impl RunDir {
    /// Fails when `root` holds no plan.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, ReadError> {
        let root = root.into();
        if !root.join("plan.json").is_file() {
            return Err(ReadError::NotARun { path: root });
        }
        Ok(Self { root })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The run in measured time beside a counted one, of a run on both clocks.
    pub fn measured(&self) -> Option<Self> {
        Self::open(self.root.join(MEASURED)).ok()
    }

    pub fn plan(&self) -> Result<Plan, ReadError> {
        read_plan(&self.root.join("plan.json"))
    }

    pub fn host(&self) -> Result<Host, ReadError> {
        self.json("host.json")
    }

    /// Profiles of the captures that the run sent, in the format of `toll pcap profile --json`. `None`: it
    /// sent none.
    pub fn captures(&self) -> Result<Option<serde_json::Value>, ReadError> {
        let Some((path, text)) = self.whole(PROFILES)? else { return Ok(None) };
        json_of(path, &text).map(Some)
    }

    /// Steps of all trials. None if the file is missing. A last line truncated by a crash is left out.
    pub fn trials(&self) -> Result<Vec<TrialLine>, ReadError> {
        self.lines(TRIALS)
    }

    pub fn samples(&self) -> Result<Vec<Sample>, ReadError> {
        self.lines(SAMPLES)
    }

    /// One for each trial: a later line about the same trial, which knows more, stands for it.
    pub fn artefacts(&self) -> Result<Vec<Artefact>, ReadError> {
        let mut by_trial = std::collections::BTreeMap::new();
        for line in self.lines::<Artefact>(ARTEFACTS)? {
            by_trial.insert(line.trial, line);
        }
        Ok(by_trial.into_values().collect())
    }

    /// Latency histogram of each window, in the order written. Missing file: none.
    pub fn latencies(&self) -> Result<Vec<LatencyWindow>, ReadError> {
        let Some((path, log)) = self.whole(LATENCIES)? else { return Ok(Vec::new()) };
        crate::latency::parse_interval_log(&log).map_err(|cause| ReadError::Latency { path, cause })
    }

    /// Series that end inside a line or inside compressed data: the writer was killed, or the file was
    /// truncated later.
    pub fn truncated_series(&self) -> Vec<&'static str> {
        let mut cut = Vec::new();
        for series in [TRIALS, SAMPLES, LATENCIES, ARTEFACTS] {
            let Ok(Some(mut series)) = self.open_series(series) else { continue };
            while let Ok(Some(_)) = series.next_line() {}
            if !series.is_complete() {
                cut.push(series.name);
            }
        }
        cut
    }

    fn json<T: DeserializeOwned>(&self, name: &str) -> Result<T, ReadError> {
        read_json(&self.root.join(name))
    }

    fn open_series(&self, series: SeriesFiles) -> Result<Option<SeriesReader>, ReadError> {
        series.open(&self.root).map_err(|(path, cause)| ReadError::Io { path, cause })
    }

    /// All whole lines of a file, and its path. None if the file is missing.
    fn whole(&self, series: SeriesFiles) -> Result<Option<(PathBuf, Vec<u8>)>, ReadError> {
        let Some(mut series) = self.open_series(series)? else { return Ok(None) };
        let mut whole = Vec::new();
        loop {
            match series.next_line() {
                Ok(Some(line)) => whole.extend_from_slice(line),
                Ok(None) => return Ok(Some((series.path, whole))),
                Err(cause) => return Err(ReadError::Io { path: series.path, cause }),
            }
        }
    }

    fn lines<T: DeserializeOwned>(&self, series: SeriesFiles) -> Result<Vec<T>, ReadError> {
        let Some(mut series) = self.open_series(series)? else { return Ok(Vec::new()) };
        let mut rows = Vec::new();
        let mut number = 0;
        loop {
            let line = match series.next_line() {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(rows),
                Err(cause) => return Err(ReadError::Io { path: series.path, cause }),
            };
            number += 1;
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match serde_json::from_slice(line) {
                Ok(row) => rows.push(row),
                Err(cause) => return Err(ReadError::Json { path: series.path, line: number, cause }),
            }
        }
    }
}

/// A plan of a format that this toll reads.
pub fn read_plan(path: &Path) -> Result<Plan, ReadError> {
    let value: serde_json::Value = read_json(path)?;
    let found = value["format"].as_u64().and_then(|format| u32::try_from(format).ok()).unwrap_or(0);
    if found > FORMAT {
        return Err(ReadError::TooNew { path: path.to_owned(), found });
    }
    if (1..OLDEST_FORMAT).contains(&found) {
        return Err(ReadError::TooOld { path: path.to_owned(), found });
    }
    let plan: Plan = serde_json::from_value(value)
        .map_err(|cause| ReadError::Plan { path: path.to_owned(), what: cause.to_string() })?;
    if !plan.arms.iter().any(|arm| arm.name == plan.baseline) {
        let what = format!("its baseline `{}` is not among its arms", plan.baseline);
        return Err(ReadError::Plan { path: path.to_owned(), what });
    }
    Ok(plan)
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, ReadError> {
    let text = std::fs::read(path).map_err(|cause| ReadError::Io { path: path.to_owned(), cause })?;
    json_of(path.to_owned(), &text)
}

fn json_of<T: DeserializeOwned>(path: PathBuf, text: &[u8]) -> Result<T, ReadError> {
    serde_json::from_slice(text).map_err(|cause| ReadError::Json { path, line: cause.line(), cause })
}

/// A run directory being written: append-only lines, flushed by the caller at least each second.
///
/// Steps and artefacts are few, each goes to the kernel at once, and people follow a run by them: compressed line by
/// line they would be half as large, and hard to follow. Samples, nine tenths of a run, and latencies are compressed.
#[derive(Debug)]
pub struct RunWriter {
    root: PathBuf,
    trials: BufWriter<File>,
    samples: SeriesWriter,
    artefacts: BufWriter<File>,
    latencies: LatencyLog,
}

impl RunWriter {
    /// Makes the directory; fails if it already holds a run.
    pub fn create(root: impl Into<PathBuf>) -> std::io::Result<Self> {
        let root = root.into();
        std::fs::create_dir_all(root.join("artefacts"))?;
        if root.join("plan.json").exists() {
            return Err(std::io::Error::new(
                std::io::ErrorKind::AlreadyExists,
                format!("{} already holds a run: choose another --out", root.display()),
            ));
        }
        // Begun anew: what is there is of a run that ended before it had a plan.
        let plain = |series: SeriesFiles| File::create(root.join(series.plain)).map(BufWriter::new);
        Ok(Self {
            trials: plain(TRIALS)?,
            samples: SeriesWriter::create(&root.join(SAMPLES.compressed))?,
            artefacts: plain(ARTEFACTS)?,
            latencies: LatencyLog::create(&root)?,
            root,
        })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn write_json<T: Serialize>(&self, name: &str, value: &T) -> std::io::Result<()> {
        write_json(&self.root, name, value)
    }

    /// Profiles of the captures that the run sends, as [`RunDir::captures`] reads them.
    pub fn write_captures<T: Serialize>(&self, profiles: &T) -> std::io::Result<()> {
        write_whole(&self.root, CAPTURES_FILE, |file| {
            let mut frame = zstd::Encoder::new(file, zstd::DEFAULT_COMPRESSION_LEVEL)?;
            frame.include_checksum(true)?;
            serde_json::to_writer(&mut frame, profiles)?;
            frame.write_all(b"\n")?;
            frame.finish().map(drop)
        })
    }

    /// Steps are few and matter most: each reaches the kernel at once.
    pub fn write_trial(&mut self, line: &TrialLine) -> std::io::Result<()> {
        append_line(&mut self.trials, line)?;
        self.trials.flush()
    }

    pub fn write_sample(&mut self, line: &Sample) -> std::io::Result<()> {
        self.samples.add_json(line)
    }

    pub fn write_artefact(&mut self, line: &Artefact) -> std::io::Result<()> {
        append_line(&mut self.artefacts, line)?;
        self.artefacts.flush()
    }

    /// The latency histogram of one window, in us; see [`LatencyLog::add`].
    pub fn write_latency(
        &mut self,
        arm: &str,
        trial: u32,
        begin_mono_us: u64,
        duration_us: u64,
        histogram: &Histogram<u64>,
    ) -> std::io::Result<()> {
        self.latencies.add(arm, trial, begin_mono_us, duration_us, histogram)
    }

    pub fn flush(&mut self) -> std::io::Result<()> {
        self.samples.flush()
    }

    /// Ends the compressed files, so that a reader knows that nothing is missing. Dropping the writer does so
    /// too, but ignores errors.
    pub fn finish(mut self) -> std::io::Result<()> {
        self.samples.finish()?;
        self.latencies.finish()
    }
}

fn append_line<T: Serialize>(out: &mut BufWriter<File>, value: &T) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// Temporary path of a file until it gets its name. A killed writer leaves it there.
pub fn temporary_path(root: &Path, name: &str) -> PathBuf {
    root.join(format!(".{name}.tmp"))
}

/// Writes a whole file (plan, host, result) atomically: a reader sees the old or the new one.
pub fn write_json<T: Serialize>(root: &Path, name: &str, value: &T) -> std::io::Result<()> {
    write_whole(root, name, |file| {
        serde_json::to_writer_pretty(&mut *file, value)?;
        file.write_all(b"\n")
    })
}

fn write_whole(
    root: &Path,
    name: &str,
    write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let tmp = temporary_path(root, name);
    let mut file = BufWriter::new(File::create(&tmp)?);
    write(&mut file)?;
    file.into_inner().map_err(|e| e.into_error())?.sync_all()?;
    std::fs::rename(tmp, root.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_of_a_newer_toll_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        write_json(dir.path(), "plan.json", &serde_json::json!({ "format": FORMAT + 1 })).unwrap();
        let error = read_plan(&dir.path().join("plan.json")).unwrap_err();
        assert!(error.to_string().contains("use a newer toll"), "{error}");
    }

    #[test]
    fn a_plan_of_format_1_is_refused_and_what_reads_it_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.json");
        std::fs::write(&path, r#"{"format":1,"arms":[]}"#).unwrap();
        let error = read_plan(&path).unwrap_err();
        assert!(matches!(error, ReadError::TooOld { found: 1, .. }), "{error}");
        assert!(error.to_string().contains("this toll reads 2 to 3"), "{error}");
        assert!(error.to_string().contains("a toll that writes format 2"), "{error}");
    }

    #[test]
    fn a_plan_that_lacks_what_toll_always_writes_is_refused() {
        let stored =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../../runs/2026-11-22-4-core-vm/hour/plan.json");
        let whole: serde_json::Value = read_json(Path::new(stored)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.json");
        let without = |place: &str, field: &str| {
            let mut plan = whole.clone();
            plan.pointer_mut(place).unwrap().as_object_mut().unwrap().remove(field).expect("was there");
            write_json(dir.path(), "plan.json", &plan).unwrap();
            read_plan(&path).map_err(|error| error.to_string())
        };
        for (place, field) in [("", "outcomes"), ("", "panels"), ("", "setup"), ("/arms/0", "settle_s")] {
            let Err(error) = without(place, field) else { panic!("read without {field}") };
            assert!(error.contains(&format!("missing field `{field}`")), "{error}");
        }
        assert!(without("/arms/0", "artefact").is_ok(), "absent is as good as null");
    }

    #[test]
    fn profiles_of_captures_are_compressed_and_plain_ones_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let writer = RunWriter::create(dir.path()).unwrap();
        writer.write_json("plan.json", &()).unwrap();
        let run = RunDir::open(dir.path()).unwrap();
        assert_eq!(run.captures().unwrap(), None);
        let mut profiles = serde_json::json!({ "profiles": [{ "packets": 1 }] });
        writer.write_json("captures.json", &profiles).unwrap();
        assert_eq!(run.captures().unwrap().as_ref(), Some(&profiles));
        profiles["profiles"][0]["packets"] = 2.into();
        writer.write_captures(&profiles).unwrap();
        assert_eq!(run.captures().unwrap().as_ref(), Some(&profiles));
        let path = dir.path().join(CAPTURES_FILE);
        let frame = std::fs::read(&path).unwrap();
        std::fs::write(&path, &frame[..frame.len() / 2]).unwrap();
        let error = run.captures().unwrap_err().to_string();
        assert!(error.contains("captures.json.zst"), "{error}");
    }

    #[test]
    fn what_was_flushed_is_there_and_named_as_cut_short_until_the_writer_has_finished() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = RunWriter::create(dir.path()).unwrap();
        std::fs::write(dir.path().join("plan.json"), "{}").unwrap();
        let run = RunDir::open(dir.path()).unwrap();
        let tick = Sample::Tick(crate::Tick { mono_us: 1, late_us: 2 });
        writer.write_sample(&tick).unwrap();
        writer.write_latency("none", 0, 1_000, 2_000, &crate::latency_histogram()).unwrap();
        assert_eq!((run.samples().unwrap(), run.latencies().unwrap().len()), (vec![], 1));
        assert_eq!(run.truncated_series(), ["latency.hlog.zst"]);
        writer.flush().unwrap();
        assert_eq!(run.samples().unwrap(), std::slice::from_ref(&tick));
        assert_eq!(run.truncated_series(), ["samples.ndjson.zst", "latency.hlog.zst"]);
        writer.finish().unwrap();
        assert_eq!((run.samples().unwrap(), run.truncated_series()), (vec![tick], vec![]));
    }

    #[test]
    fn a_run_written_where_another_came_to_nothing_holds_none_of_its_lines() {
        let dir = tempfile::tempdir().unwrap();
        for late_us in [1, 2] {
            let mut writer = RunWriter::create(dir.path()).unwrap();
            writer.write_sample(&Sample::Tick(crate::Tick { mono_us: 1, late_us })).unwrap();
        }
        std::fs::write(dir.path().join("plan.json"), "{}").unwrap();
        let samples = RunDir::open(dir.path()).unwrap().samples().unwrap();
        assert_eq!(samples, [Sample::Tick(crate::Tick { mono_us: 1, late_us: 2 })]);
    }
}
