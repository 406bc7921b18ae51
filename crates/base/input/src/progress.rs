//! Progress display for reading files: bytes read, and the estimated remaining time. Knows no decoder.

use super::scale::magnitude;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use toll_sys::tell;

/// What is over sooner shows nothing.
const SHORT: Duration = Duration::from_secs(1);
/// Without a terminal: a line so often, as pt-query-digest does.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// A bar on a terminal, a line now and then elsewhere, both on standard error. Clones are the same.
#[derive(Debug, Clone)]
pub struct Progress(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    begun: Instant,
    /// Bytes of all files, as they lie there; `None`: one of them is a stream, which tells no end.
    whole: Option<u64>,
    done: AtomicU64,
    /// Times that something was shown, at most one for each beat.
    shown: AtomicU64,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// No display: for background work, or if the output itself goes to the terminal.
    pub fn none() -> Self {
        Self(None)
    }

    pub fn over(files: &[PathBuf]) -> Self {
        let length = |file: &PathBuf| {
            let is_file = |found: &std::fs::Metadata| file.as_os_str() != "-" && found.is_file();
            std::fs::metadata(file).ok().filter(is_file).map(|found| found.len())
        };
        let whole: Option<u64> = files.iter().map(length).sum();
        let bar = std::io::stderr().is_terminal().then(|| bar(whole));
        let (done, shown) = (AtomicU64::new(0), AtomicU64::new(0));
        Self(Some(Arc::new(Inner { begun: Instant::now(), whole, done, shown, bar })))
    }

    /// A reader whose bytes count; `readers`: so many read the same file to its end.
    pub fn metered<R: Read + Send + 'static>(&self, reader: R, readers: u64) -> Box<dyn Read + Send> {
        match &self.0 {
            Some(inner) => Box::new(Metered { reader, inner: Arc::clone(inner), readers }),
            None => Box::new(reader),
        }
    }

    /// Leaves the terminal as it was.
    pub fn finish(&self) {
        if let Some(bar) = self.0.as_ref().and_then(|inner| inner.bar.as_ref()) {
            bar.finish_and_clear();
        }
    }
}

impl Inner {
    fn add(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let since_begin = self.begun.elapsed();
        let every = if self.bar.is_some() { SHORT } else { LINE_EVERY };
        let beat = (since_begin.as_nanos() / every.as_nanos()) as u64;
        let is_due = self.shown.fetch_max(beat, Ordering::Relaxed) < beat;
        match (&self.bar, self.whole) {
            (Some(bar), _) => {
                if is_due && bar.is_hidden() {
                    bar.set_draw_target(ProgressDrawTarget::stderr());
                }
                bar.set_position(done);
            }
            (None, Some(whole)) if is_due => tell!("toll: {}", line(done, whole, since_begin)),
            (None, _) => {}
        }
    }
}

fn bar(whole: Option<u64>) -> ProgressBar {
    let (length, template) = match whole {
        Some(_) => (whole, "{wide_bar} {bytes} of {total_bytes}  {eta} left"),
        None => (None, "{bytes} read, {bytes_per_sec}, {elapsed}; Ctrl-C ends it and prints what was seen"),
    };
    let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::hidden());
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn line(done: u64, whole: u64, since_begin: Duration) -> String {
    let share = done as f64 / whole.max(1) as f64;
    // A file may grow while it is read.
    let left = since_begin.mul_f64((1.0 / share - 1.0).clamp(0.0, 1e6)).as_secs();
    let whole = magnitude(whole as f64, 1024.0);
    format!("{:.0}% of {whole} read, {}:{:02} left", share * 100.0, left / 60, left % 60)
}

struct Metered<R> {
    reader: R,
    inner: Arc<Inner>,
    readers: u64,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.inner.add(read as u64 / self.readers);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_as_the_time_so_far() {
        let seconds = Duration::from_secs;
        assert_eq!(line(1 << 30, 4 << 30, seconds(30)), "25% of 4.00G read, 1:30 left");
        assert_eq!(line(5, 4, seconds(30)), "125% of 4 read, 0:00 left");
        assert!(line(0, 4, seconds(30)).ends_with("left"));
    }

    #[test]
    fn bytes_count_once_however_many_read_them() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [0; 1000]).unwrap();
        let progress = Progress::over(&[file.path().to_owned()]);
        for _ in 0..2 {
            let mut reader = progress.metered(std::fs::File::open(file.path()).unwrap(), 2);
            std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
        }
        let inner = progress.0.as_ref().unwrap();
        assert_eq!((inner.done.load(Ordering::Relaxed), inner.whole), (1000, Some(1000)));
        let stream = Progress::over(&[file.path().to_owned(), "-".into()]);
        assert_eq!(stream.0.unwrap().whole, None);
    }
}
