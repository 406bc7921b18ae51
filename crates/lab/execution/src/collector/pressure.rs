//! Reader of pressure stall information (PSI) and of pages under writeback.

use toll_record::PressureSample;
use toll_sys::clock;
use toll_sys::proc_file::{self, ProcFile};

#[derive(Debug)]
pub struct PressureReader {
    cpu: ProcFile,
    io: ProcFile,
    memory: ProcFile,
    meminfo: ProcFile,
    last: Option<(u64, [Option<u64>; 3])>,
}

impl PressureReader {
    pub fn new() -> Self {
        Self {
            cpu: ProcFile::open("/proc/pressure/cpu"),
            io: ProcFile::open("/proc/pressure/io"),
            memory: ProcFile::open("/proc/pressure/memory"),
            meminfo: ProcFile::open("/proc/meminfo"),
            last: None,
        }
    }

    /// Pressure since the last reading. `None` at the first reading: a share needs an interval.
    pub fn read(&mut self) -> Option<PressureSample> {
        let now = clock::mono_us();
        let totals = [
            parse_stall_us(self.cpu.read_text()),
            parse_stall_us(self.io.read_text()),
            parse_stall_us(self.memory.read_text()),
        ];
        let meminfo = self.meminfo.read_text();
        let [dirty_bytes, writeback_bytes] =
            ["Dirty", "Writeback"].map(|field| proc_file::bytes(meminfo, field).unwrap_or(0));
        let (then, before) = self.last.replace((now, totals))?;
        let share = |i: usize| {
            let waited = totals[i]?.saturating_sub(before[i]?) as f64;
            Some((100.0 * waited / (now - then).max(1) as f64).min(100.0))
        };
        Some(PressureSample {
            mono_us: now,
            psi_cpu_pct: share(0),
            psi_io_pct: share(1),
            psi_memory_pct: share(2),
            dirty_bytes,
            writeback_bytes,
        })
    }
}

/// `total=` of the `some` line: microseconds in which at least one task waited.
///
/// `None` if the kernel has no PSI, or if PSI is off.
fn parse_stall_us(text: &str) -> Option<u64> {
    text.lines()
        .find(|l| l.starts_with("some"))
        .and_then(|l| l.rsplit_once("total="))
        .and_then(|(_, n)| n.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_read_as_the_kernel_writes_it() {
        let psi = "some avg10=0.60 avg60=0.80 avg300=0.23 total=977286\nfull avg10=0.00 total=5\n";
        assert_eq!(parse_stall_us(psi), Some(977_286));
    }

    #[test]
    fn a_kernel_without_pressure_gives_none_and_never_zero() {
        let mut reader = PressureReader::new();
        for file in [&mut reader.cpu, &mut reader.io, &mut reader.memory] {
            *file = ProcFile::open("/nowhere/pressure");
        }
        assert!(reader.read().is_none());
        let sample = reader.read().unwrap();
        assert_eq!((sample.psi_cpu_pct, sample.psi_io_pct, sample.psi_memory_pct), (None, None, None));
    }
}
