//! CPU time of the whole host since boot, and the number of usable CPUs.

use crate::read_trimmed;

/// One tick of /proc/stat; USER_HZ has been 100 on every Linux architecture toll runs on.
pub const TICK_US: u64 = 10_000;

/// CPU time of all CPUs since boot by mode, in ticks.
#[derive(Debug, Clone, Copy, Default)]
pub struct CpuTicks {
    pub user: u64,
    pub system: u64,
    pub idle: u64,
    pub iowait: u64,
    pub steal: u64,
}

impl CpuTicks {
    pub fn read() -> Self {
        Self::parse(&read_trimmed("/proc/stat"))
    }

    /// The first line: user nice system idle iowait irq softirq steal (guest is inside user).
    pub fn parse(stat: &str) -> Self {
        let line = stat.lines().next().unwrap_or("");
        let mut fields = [0u64; 8];
        for (field, text) in fields.iter_mut().zip(line.split_ascii_whitespace().skip(1)) {
            *field = text.parse().unwrap_or(0);
        }
        let [user, nice, system, idle, iowait, irq, softirq, steal] = fields;
        Self { user: user + nice, system: system + irq + softirq, idle, iowait, steal }
    }

    pub fn minus(self, before: Self) -> Self {
        Self {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            idle: self.idle.saturating_sub(before.idle),
            iowait: self.iowait.saturating_sub(before.iowait),
            steal: self.steal.saturating_sub(before.steal),
        }
    }

    pub fn total(self) -> u64 {
        self.user + self.system + self.idle + self.iowait + self.steal
    }
}

/// Time in which tasks had a CPU since boot, interrupts among it, microseconds; exact to a task's last switch. `None`: the
/// kernel does not say (CONFIG_SCHEDSTATS).
pub fn busy_us() -> Option<u64> {
    parse_schedstat_us(&read_trimmed("/proc/schedstat"))
}

/// Time in interrupts and softirqs since boot, microseconds. `None`: the kernel does not count it apart
/// (CONFIG_IRQ_TIME_ACCOUNTING).
pub fn interrupts_us() -> Option<u64> {
    let pressure = read_trimmed("/proc/pressure/irq");
    pressure.lines().find(|line| line.starts_with("full"))?.rsplit_once("total=")?.1.trim().parse().ok()
}

/// The seventh number of each `cpuN` line: nanoseconds in which that CPU ran tasks.
fn parse_schedstat_us(text: &str) -> Option<u64> {
    let cpus = text.lines().filter(|line| line.starts_with("cpu"));
    let run: Vec<u64> =
        cpus.map(|line| line.split_ascii_whitespace().nth(7)?.parse().ok()).collect::<Option<_>>()?;
    (!run.is_empty()).then(|| run.iter().sum::<u64>() / 1_000)
}

/// CPUs that programs may use here.
pub fn available() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_tasks_is_summed_over_cpus_in_microseconds() {
        let text = "version 15\ntimestamp 1\ncpu0 0 0 1 2 3 4 9000500 5 6\ndomain0 3 1 2\ncpu1 0 0 0 0 0 0 1000500 0 0";
        assert_eq!(parse_schedstat_us(text), Some(10_001));
        assert_eq!(parse_schedstat_us(""), None);
    }

    #[test]
    fn ticks_are_read_as_the_kernel_writes_them() {
        let cpu = CpuTicks::parse("cpu  10 1 5 100 7 2 3 4 0 0\ncpu0 1 1 1\n");
        assert_eq!((cpu.user, cpu.system, cpu.idle, cpu.iowait, cpu.steal), (11, 10, 100, 7, 4));
    }
}
