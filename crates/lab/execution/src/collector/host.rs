//! Reader of the host's counters: CPU, memory, network, disk and load in the last second.
//!
//! Reads /proc only, with the formulas of the kernel's iostats.rst. Files stay open between readings, and
//! only the needed fields are parsed by hand. The procfs crate opens, allocates and parses the whole file
//! each time, a cost that would be part of the measurement.

use std::path::Path;
use toll_record::HostSample;
use toll_sys::clock;
use toll_sys::cpu::{CpuTicks, TICK_US};
use toll_sys::proc_file::{self, ProcFile};

/// Sectors of /proc/diskstats are 512 bytes whatever the device.
const SECTOR_BYTES: f64 = 512.0;

#[derive(Debug)]
pub struct HostReader {
    stat: ProcFile,
    meminfo: ProcFile,
    loadavg: ProcFile,
    netdev: ProcFile,
    diskstats: ProcFile,
    disk: String,
    last: Option<Counters>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    mono_us: u64,
    cpu: CpuTicks,
    switches: u64,
    net: [u64; 3],
    disk: [u64; 11],
}

/// CPU time of all CPUs since boot, busy and stolen, microseconds.
pub fn busy_and_steal_us() -> (u64, u64) {
    let ticks = CpuTicks::read();
    ((ticks.user + ticks.system) * TICK_US, ticks.steal * TICK_US)
}

/// Name in /proc/diskstats of the device under `path`. Empty if there is none (tmpfs).
pub fn disk_under(path: &Path) -> String {
    use std::os::linux::fs::MetadataExt;
    let Ok(meta) = std::fs::metadata(path) else { return String::new() };
    let device = meta.st_dev();
    let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
    let text = std::fs::read_to_string("/proc/diskstats").unwrap_or_default();
    text.lines()
        .map(|l| l.split_ascii_whitespace().collect::<Vec<_>>())
        .find(|f| f.len() > 2 && f[0] == major.to_string() && f[1] == minor.to_string())
        .map_or_else(String::new, |f| f[2].to_owned())
}

impl HostReader {
    pub fn new(disk: &str) -> Self {
        Self {
            stat: ProcFile::open("/proc/stat"),
            meminfo: ProcFile::open("/proc/meminfo"),
            loadavg: ProcFile::open("/proc/loadavg"),
            netdev: ProcFile::open("/proc/net/dev"),
            diskstats: ProcFile::open("/proc/diskstats"),
            disk: disk.to_owned(),
            last: None,
        }
    }

    /// The host's rates since the last reading. `None` at the first reading: rates need an interval.
    pub fn read(&mut self) -> Option<HostSample> {
        let stat = self.stat.read_text();
        let now = Counters {
            mono_us: clock::mono_us(),
            cpu: CpuTicks::parse(stat),
            switches: stat.lines().find_map(|l| l.strip_prefix("ctxt ")?.trim().parse().ok()).unwrap_or(0),
            net: parse_net_bytes(self.netdev.read_text()),
            disk: parse_disk_fields(self.diskstats.read_text(), &self.disk),
        };
        let before = self.last.replace(now)?;
        let seconds = ((now.mono_us - before.mono_us) as f64 / 1e6).max(1e-3);
        let cpu = now.cpu.minus(before.cpu);
        let share = |ticks: u64| 100.0 * ticks as f64 / cpu.total().max(1) as f64;
        // The kernel's counters may wrap: a wrapped difference is a plain one in modular arithmetic.
        let disk = |i: usize| now.disk[i].wrapping_sub(before.disk[i]) as f64;
        let rate = |v: f64| v / seconds;
        let net = |i: usize| rate(now.net[i].wrapping_sub(before.net[i]) as f64);
        let per = |time_ms: f64, count: f64| if count > 0.0 { time_ms / count } else { 0.0 };
        let meminfo = self.meminfo.read_text();
        let total = proc_file::bytes(meminfo, "MemTotal").unwrap_or(0);
        let available = proc_file::bytes(meminfo, "MemAvailable").unwrap_or(0);
        let cached = proc_file::bytes(meminfo, "Cached").unwrap_or(0);
        let load: Vec<f64> = self
            .loadavg
            .read_text()
            .split_ascii_whitespace()
            .take(3)
            .filter_map(|t| t.parse().ok())
            .collect();
        let load = |i: usize| load.get(i).copied().unwrap_or(0.0);
        Some(HostSample {
            mono_us: now.mono_us,
            cpu_user_pct: share(cpu.user),
            cpu_system_pct: share(cpu.system),
            cpu_iowait_pct: share(cpu.iowait),
            cpu_steal_pct: share(cpu.steal),
            mem_used_bytes: total.saturating_sub(available),
            mem_used_pct: (total > 0).then(|| 100.0 * total.saturating_sub(available) as f64 / total as f64),
            mem_cached_bytes: cached,
            net_rx_bytes_per_s: net(0),
            net_tx_bytes_per_s: net(1),
            lo_bytes_per_s: net(2),
            disk_reads_per_s: rate(disk(0)),
            disk_writes_per_s: rate(disk(4)),
            disk_read_bytes_per_s: rate(disk(2) * SECTOR_BYTES),
            disk_write_bytes_per_s: rate(disk(6) * SECTOR_BYTES),
            disk_read_await_ms: per(disk(3), disk(0)),
            disk_write_await_ms: per(disk(7), disk(4)),
            disk_queue: disk(10) / (seconds * 1000.0),
            load_1: load(0),
            load_5: load(1),
            load_15: load(2),
            context_switches_per_s: rate(now.switches.wrapping_sub(before.switches) as f64),
        })
    }
}

/// Bytes received and sent on everything but loopback, and through loopback.
fn parse_net_bytes(netdev: &str) -> [u64; 3] {
    let mut sums = [0u64; 3];
    for line in netdev.lines() {
        let Some((name, fields)) = line.split_once(':') else { continue };
        let numbers: Vec<u64> = fields.split_ascii_whitespace().filter_map(|f| f.parse().ok()).collect();
        let (Some(rx), Some(tx)) = (numbers.first(), numbers.get(8)) else { continue };
        if name.trim() == "lo" {
            sums[2] += rx;
        } else {
            sums[0] += rx;
            sums[1] += tx;
        }
    }
    sums
}

/// The eleven fields of a device: reads, merged, sectors, ms; writes, merged, sectors, ms;
/// in flight, busy ms, weighted ms.
fn parse_disk_fields(diskstats: &str, device: &str) -> [u64; 11] {
    let mut fields = [0u64; 11];
    let line = diskstats.lines().find(|l| l.split_ascii_whitespace().nth(2) == Some(device));
    for (field, text) in fields.iter_mut().zip(line.unwrap_or("").split_ascii_whitespace().skip(3)) {
        *field = text.parse().unwrap_or(0);
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_as_the_kernel_writes_them() {
        let net = "Inter-|\n face |\n  lo: 50 1 0 0 0 0 0 0 50 1 0 0 0 0 0 0\n eth0: 7 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n";
        assert_eq!(parse_net_bytes(net), [7, 9, 50]);
        let disks = " 254 0 vda 1 2 3 4 5 6 7 8 9 10 11 0 0\n 254 1 vda1 9 9 9 9 9 9 9 9 9 9 9\n";
        assert_eq!(parse_disk_fields(disks, "vda"), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
        assert_eq!(parse_disk_fields(disks, ""), [0; 11]);
    }

    #[test]
    fn a_second_reading_of_this_host_adds_up() {
        let mut reader = HostReader::new("");
        assert!(reader.read().is_none());
        std::thread::sleep(std::time::Duration::from_millis(60));
        let sample = reader.read().unwrap();
        let cpu = sample.cpu_user_pct + sample.cpu_system_pct + sample.cpu_iowait_pct + sample.cpu_steal_pct;
        assert!((0.0..=100.0001).contains(&cpu), "{sample:?}");
        assert!(sample.mem_used_bytes > 0);
        assert!(sample.mem_used_pct.is_some_and(|pct| pct > 0.0 && pct < 100.0), "{sample:?}");
    }
}
