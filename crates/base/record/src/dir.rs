//! How is a run directory written so that a crash loses at most a second, and read back after one?

use crate::{Artefact, FORMAT, Host, LatencyLog, LatencyWindow, Plan, Sample, TrialLine};
use hdrhistogram::Histogram;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Holds what the captures are made of that a run sent.
pub const CAPTURES: &str = "captures.json";

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read {path}: {cause}")]
    Io { path: PathBuf, cause: std::io::Error },
    #[error("{path}, line {line}: {cause}")]
    Json { path: PathBuf, line: usize, cause: serde_json::Error },
    #[error("{path} has run format {found}, this toll reads up to {FORMAT}: use a newer toll")]
    TooNew { path: PathBuf, found: u32 },
    #[error("{path}: {cause}")]
    Latency { path: PathBuf, cause: crate::LatencyError },
    #[error("{path}: {what}: this plan was not written by toll")]
    Plan { path: PathBuf, what: String },
    #[error("{path} is not a run directory: it has no plan.json")]
    NotARun { path: PathBuf },
}

/// A run directory to read from.
#[derive(Debug, Clone)]
pub struct RunDir {
    root: PathBuf,
}

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

    pub fn plan(&self) -> Result<Plan, ReadError> {
        read_plan(&self.root.join("plan.json"))
    }

    pub fn host(&self) -> Result<Host, ReadError> {
        self.json("host.json")
    }

    /// What the captures are made of that the run sent, as `toll pcap profile --json` says it; `None`: it sent none.
    pub fn captures(&self) -> Result<Option<serde_json::Value>, ReadError> {
        if !self.root.join(CAPTURES).is_file() {
            return Ok(None);
        }
        self.json(CAPTURES).map(Some)
    }

    /// Missing file: none. A last line cut short by a crash is left out.
    pub fn trials(&self) -> Result<Vec<TrialLine>, ReadError> {
        self.lines("trials.ndjson")
    }

    pub fn samples(&self) -> Result<Vec<Sample>, ReadError> {
        self.lines("samples.ndjson")
    }

    /// One for each trial: a later line about the same trial, which knows more, stands for it.
    pub fn artefacts(&self) -> Result<Vec<Artefact>, ReadError> {
        let mut by_trial = std::collections::BTreeMap::new();
        for line in self.lines::<Artefact>("artefacts.ndjson")? {
            by_trial.insert(line.trial, line);
        }
        Ok(by_trial.into_values().collect())
    }

    /// Latency histogram of each window, in the order written. Missing file: none.
    pub fn latencies(&self) -> Result<Vec<LatencyWindow>, ReadError> {
        let path = self.root.join("latency.hlog");
        let text = match std::fs::read_to_string(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|cause| ReadError::Io { path: path.clone(), cause })?,
        };
        crate::latency::parse(&text).map_err(|cause| ReadError::Latency { path, cause })
    }

    /// Files of lines that end inside one: the writer died there, or the file was cut since.
    pub fn cut_short(&self) -> Vec<&'static str> {
        let mut cut = vec!["trials.ndjson", "samples.ndjson", "latency.hlog", "artefacts.ndjson"];
        cut.retain(|name| matches!(last_byte(&self.root.join(name)), Ok(Some(last)) if last != b'\n'));
        cut
    }

    fn json<T: DeserializeOwned>(&self, name: &str) -> Result<T, ReadError> {
        read_json(&self.root.join(name))
    }

    fn lines<T: DeserializeOwned>(&self, name: &str) -> Result<Vec<T>, ReadError> {
        let path = self.root.join(name);
        let file = match File::open(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(cause) => return Err(ReadError::Io { path, cause }),
            Ok(file) => file,
        };
        let mut reader = BufReader::with_capacity(1 << 18, file);
        let mut rows = Vec::new();
        let mut line = Vec::with_capacity(1024);
        let mut number = 0;
        loop {
            line.clear();
            let n = reader
                .read_until(b'\n', &mut line)
                .map_err(|cause| ReadError::Io { path: path.clone(), cause })?;
            if n == 0 {
                return Ok(rows);
            }
            number += 1;
            if line.last() != Some(&b'\n') {
                return Ok(rows); // the writer died inside this line
            }
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let row = serde_json::from_slice(&line).map_err(|cause| ReadError::Json {
                path: path.clone(),
                line: number,
                cause,
            })?;
            rows.push(row);
        }
    }
}

/// A plan, of this format or an older one.
pub fn read_plan(path: &Path) -> Result<Plan, ReadError> {
    let value: serde_json::Value = read_json(path)?;
    let found = value["format"].as_u64().and_then(|format| u32::try_from(format).ok()).unwrap_or(0);
    if found > FORMAT {
        return Err(ReadError::TooNew { path: path.to_owned(), found });
    }
    let plan: Plan = serde_json::from_value(crate::upgrade::plan(value))
        .map_err(|cause| ReadError::Plan { path: path.to_owned(), what: cause.to_string() })?;
    if !plan.arms.iter().any(|arm| arm.name == plan.baseline) {
        let what = format!("its baseline `{}` is not among its arms", plan.baseline);
        return Err(ReadError::Plan { path: path.to_owned(), what });
    }
    Ok(plan)
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, ReadError> {
    let text = std::fs::read(path).map_err(|cause| ReadError::Io { path: path.to_owned(), cause })?;
    serde_json::from_slice(&text).map_err(|cause| ReadError::Json {
        path: path.to_owned(),
        line: cause.line(),
        cause,
    })
}

/// `None`: the file is empty.
fn last_byte(path: &Path) -> std::io::Result<Option<u8>> {
    let mut file = File::open(path)?;
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(None);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(Some(last[0]))
}

/// A run directory being written: append-only lines, flushed by the caller at least each second.
#[derive(Debug)]
pub struct RunWriter {
    root: PathBuf,
    trials: BufWriter<File>,
    samples: BufWriter<File>,
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
        let append = |name: &str| {
            OpenOptions::new().create(true).append(true).open(root.join(name)).map(BufWriter::new)
        };
        Ok(Self {
            trials: append("trials.ndjson")?,
            samples: append("samples.ndjson")?,
            artefacts: append("artefacts.ndjson")?,
            latencies: LatencyLog::append(&root)?,
            root,
        })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn write_json<T: Serialize>(&self, name: &str, value: &T) -> std::io::Result<()> {
        write_json(&self.root, name, value)
    }

    /// Steps are few and matter most: each reaches the kernel at once.
    pub fn trial(&mut self, line: &TrialLine) -> std::io::Result<()> {
        append_line(&mut self.trials, line)?;
        self.trials.flush()
    }

    pub fn sample(&mut self, line: &Sample) -> std::io::Result<()> {
        append_line(&mut self.samples, line)
    }

    pub fn artefact(&mut self, line: &Artefact) -> std::io::Result<()> {
        append_line(&mut self.artefacts, line)?;
        self.artefacts.flush()
    }

    /// The latency histogram of one window, in us; see [`LatencyLog::add`].
    pub fn latency(
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
}

fn append_line<T: Serialize>(out: &mut BufWriter<File>, value: &T) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// Where a whole file lies until it gets its name; left there by a writer that was killed.
pub fn unfinished(root: &Path, name: &str) -> PathBuf {
    root.join(format!(".{name}.tmp"))
}

/// Writes a whole file (plan, host, result) so that a reader sees the old or the new one.
pub fn write_json<T: Serialize>(root: &Path, name: &str, value: &T) -> std::io::Result<()> {
    let tmp = unfinished(root, name);
    let mut file = BufWriter::new(File::create(&tmp)?);
    serde_json::to_writer_pretty(&mut file, value)?;
    file.write_all(b"\n")?;
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
}
