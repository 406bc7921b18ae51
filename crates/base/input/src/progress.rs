//! Progress display for reading files: bytes read, and the estimated remaining time. Knows no decoder.

use std::fmt::Debug;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where progress is shown. Threads that read call it, often: it must be quick.
pub trait ProgressDisplay: Debug + Send + Sync {
    /// `bytes` of all were read so far.
    fn show(&self, bytes: u64);

    /// Leaves the terminal as it was.
    fn finish(&self);
}

/// Clones count together.
#[derive(Debug, Clone)]
pub struct Progress(Option<Arc<ProgressState>>);

#[derive(Debug)]
struct ProgressState {
    done: AtomicU64,
    display: Box<dyn ProgressDisplay>,
}

impl Progress {
    /// No display: for background work, or if the output itself goes to the terminal.
    pub fn hidden() -> Self {
        Self(None)
    }

    pub fn with_display(display: Box<dyn ProgressDisplay>) -> Self {
        Self(Some(Arc::new(ProgressState { done: AtomicU64::new(0), display })))
    }

    /// A reader whose bytes count; `readers`: so many read the same file to its end.
    pub fn meter_reader<R: Read + Send + 'static>(&self, reader: R, readers: u64) -> Box<dyn Read + Send> {
        match &self.0 {
            Some(inner) => Box::new(MeteredReader { reader, inner: Arc::clone(inner), readers }),
            None => Box::new(reader),
        }
    }

    pub fn finish(&self) {
        if let Some(inner) = &self.0 {
            inner.display.finish();
        }
    }
}

/// Bytes of all files, as they lie there; `None`: one of them is a stream, whose end is not known.
pub fn total_file_bytes(files: &[PathBuf]) -> Option<u64> {
    let length = |file: &PathBuf| {
        let is_file = |found: &std::fs::Metadata| file.as_os_str() != "-" && found.is_file();
        std::fs::metadata(file).ok().filter(is_file).map(|found| found.len())
    };
    files.iter().map(length).sum()
}

impl ProgressState {
    fn add(&self, bytes: u64) {
        self.display.show(self.done.fetch_add(bytes, Ordering::Relaxed) + bytes);
    }
}

struct MeteredReader<R> {
    reader: R,
    inner: Arc<ProgressState>,
    readers: u64,
}

impl<R: Read> Read for MeteredReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.inner.add(read as u64 / self.readers);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Last(Arc<AtomicU64>);

    impl ProgressDisplay for Last {
        fn show(&self, bytes: u64) {
            self.0.store(bytes, Ordering::Relaxed);
        }

        fn finish(&self) {}
    }

    #[test]
    fn bytes_count_once_however_many_read_them() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [0; 1000]).unwrap();
        let shown = Arc::new(AtomicU64::new(0));
        let progress = Progress::with_display(Box::new(Last(Arc::clone(&shown))));
        for _ in 0..2 {
            let mut reader = progress.meter_reader(std::fs::File::open(file.path()).unwrap(), 2);
            std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
        }
        assert_eq!(shown.load(Ordering::Relaxed), 1000);
        assert_eq!(total_file_bytes(&[file.path().to_owned()]), Some(1000));
        assert_eq!(total_file_bytes(&[file.path().to_owned(), "-".into()]), None);
    }
}
