//! How many virtual machines, and how much memory each.

use anyhow::bail;
use toll_model::plan::ResolvedScenario;
use toll_record::Setup;
use toll_sys::{cpu, memory};

/// Kernel, programs and their page cache, artefacts of a window: measured 1.2 GB with all arms of `tcpdump-impact`.
const BASE_BYTES: u64 = 2 << 30;
/// Data lie in memory twice, as files and in the buffer pool, and once more while they are cloned.
const COPIES_OF_DATA: u64 = 3;
/// More machines than this share rounds too few to be worth a boot.
const MOST: usize = 16;

/// Machines and the memory of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineSizing {
    pub machines: usize,
    pub memory_bytes: u64,
}

/// As many machines as there are CPUs, rounds, and memory.
///
/// # Errors
/// There is no memory for one.
pub fn choose(resolved: &ResolvedScenario, setup: &Setup) -> anyhow::Result<MachineSizing> {
    let data_bytes = match &setup.data {
        Some(data) => toll_execution::testbed::data::build_spec(data)?.bytes,
        None => 0,
    };
    let servers = setup.sandbox.as_ref().map_or(0, |sandbox| sandbox.servers.len() as u64);
    let memory_bytes = BASE_BYTES + data_bytes * COPIES_OF_DATA * servers.max(1);
    let rounds = resolved.times.rounds.unwrap_or(1) as usize;
    fit(memory_bytes, memory::available_bytes(), (cpu::available() as usize).clamp(1, MOST).min(rounds))
}

fn fit(memory_bytes: u64, available_bytes: u64, most: usize) -> anyhow::Result<MachineSizing> {
    let machines = most.min((available_bytes / memory_bytes) as usize);
    if machines == 0 {
        bail!(
            "a virtual machine for this scenario needs {:.1} GB of memory, and {:.1} GB are free: free some, or use fewer \
             --rows or --tables",
            memory_bytes as f64 / 1e9,
            available_bytes as f64 / 1e9
        );
    }
    Ok(MachineSizing { machines, memory_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_as_many_as_memory_allows_and_none_is_an_error_with_the_amount() {
        let of = |available: u64, most: usize| fit(2_000_000_000, available, most).map(|fit| fit.machines);
        assert_eq!(of(9_000_000_000, 2).unwrap(), 2);
        assert_eq!(of(3_000_000_000, 2).unwrap(), 1);
        let said = of(1_000_000_000, 2).unwrap_err().to_string();
        assert!(said.contains("needs 2.0 GB") && said.contains("1.0 GB are free"), "{said}");
    }
}
