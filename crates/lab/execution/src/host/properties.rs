//! Properties of the host that affect results.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use toll_record::Host;
use toll_sys::cgroup::Own;
use toll_sys::{device, memory, read_trimmed};

/// All of `host.json` but its tools, whose version commands take longer than everything else. `data` is a directory on the
/// disk that the run writes to.
///
/// `server_variables` may hold all variables. Those that affect results are kept.
pub fn describe_host(data: &Path, server_variables: &BTreeMap<String, String>) -> Host {
    let arch = std::env::consts::ARCH;
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let virtualisation = detect_virtualisation(&cpuinfo);
    let kind = if virtualisation.is_some() { "vm" } else { "machine" };
    Host {
        label: format!("{cpus}-core {arch} {kind}"),
        os: parse_os_release(&read_trimmed("/etc/os-release")),
        kernel: read_trimmed("/proc/sys/kernel/osrelease"),
        arch: arch.to_owned(),
        cpu_model: parse_cpu_model(&cpuinfo).unwrap_or_else(|| "unknown".to_owned()),
        cpus,
        virtualisation,
        memory_bytes: memory::total_bytes(),
        disk: device::describe_device(data),
        cgroup: describe_cgroup(),
        settings: read_kernel_settings(),
        tools: Vec::new(),
        server_variables: select_variables(server_variables),
        counted: None,
    }
}

fn parse_os_release(text: &str) -> String {
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| "Linux".to_owned(), |name| name.trim_matches('"').to_owned())
}

/// x86 calls it `model name`, some ARM kernels `Model`, others only give a part number.
fn parse_cpu_model(cpuinfo: &str) -> Option<String> {
    ["model name", "Model", "CPU part"].iter().find_map(|key| {
        let line = cpuinfo.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    })
}

/// The product that firmware names, else `vm` where the CPU says that it has a hypervisor.
fn detect_virtualisation(cpuinfo: &str) -> Option<String> {
    let firmware = format!(
        "{} {}",
        read_trimmed("/sys/class/dmi/id/sys_vendor"),
        read_trimmed("/sys/class/dmi/id/product_name")
    );
    let known = ["KVM", "QEMU", "VMware", "VirtualBox", "Xen", "Amazon EC2", "Google", "Microsoft", "Bochs"];
    if let Some(name) = known.iter().find(|name| firmware.contains(**name)) {
        return Some(name.to_lowercase());
    }
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"))?;
    flags.split_ascii_whitespace().any(|flag| flag == "hypervisor").then(|| "vm".to_owned())
}

/// Hierarchy and limits of this process's control group. The path is left out: it would name containers.
fn describe_cgroup() -> String {
    let own = Own::read().ok();
    if own.as_ref().is_some_and(|own| own.legacy("memory").is_some()) {
        return "v1".to_owned();
    }
    let group = own.and_then(|own| own.unified());
    let limit = |name: &str| {
        let text = group.as_ref().and_then(|group| fs::read_to_string(group.join(name)).ok());
        match text.as_deref().map(str::trim) {
            None | Some("") => format!("{name} not set"),
            Some(text) => format!("{name} {text}"),
        }
    };
    format!("v2, {}, {}", limit("cpu.max"), limit("memory.max"))
}

/// Kernel settings that change the overhead of a capture or a log.
const KERNEL_SETTINGS: [&str; 16] = [
    "/proc/sys/vm/dirty_ratio",
    "/proc/sys/vm/dirty_bytes",
    "/proc/sys/vm/dirty_background_ratio",
    "/proc/sys/vm/dirty_background_bytes",
    "/proc/sys/vm/dirty_expire_centisecs",
    "/proc/sys/vm/dirty_writeback_centisecs",
    "/proc/sys/vm/swappiness",
    "/proc/sys/net/core/rmem_default",
    "/proc/sys/net/core/rmem_max",
    "/proc/sys/net/core/netdev_max_backlog",
    "/proc/sys/net/core/bpf_jit_enable",
    "/proc/sys/kernel/sched_autogroup_enabled",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "/sys/devices/system/cpu/smt/active",
];

fn read_kernel_settings() -> BTreeMap<String, String> {
    let given =
        KERNEL_SETTINGS.iter().map(|path| (path, read_trimmed(path))).filter(|(_, value)| !value.is_empty());
    given
        .map(|(path, value)| {
            let name = path.trim_start_matches("/proc/sys/").trim_start_matches("/sys/").replace('/', ".");
            // `always [madvise] never`: the one in brackets is in force.
            let chosen = value.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
            let value = chosen.map_or_else(|| value.clone(), |(chosen, _)| chosen.to_owned());
            (name, value)
        })
        .collect()
}

/// Server variables that affect throughput, latency or logging. None holds a path or name.
const SERVER_VARIABLES: [&str; 34] = [
    "binlog_format",
    "general_log",
    "have_ssl",
    "innodb_adaptive_hash_index",
    "innodb_buffer_pool_instances",
    "innodb_buffer_pool_size",
    "innodb_doublewrite",
    "innodb_flush_log_at_trx_commit",
    "innodb_flush_method",
    "innodb_io_capacity",
    "innodb_log_file_size",
    "innodb_page_size",
    "innodb_redo_log_capacity",
    "innodb_use_native_aio",
    "log_bin",
    "log_output",
    "log_slow_filter",
    "log_slow_rate_limit",
    "log_slow_verbosity",
    "long_query_time",
    "max_connections",
    "performance_schema",
    "query_cache_type",
    "skip_name_resolve",
    "slow_query_log",
    "sync_binlog",
    "table_open_cache",
    "thread_cache_size",
    "thread_handling",
    "tx_isolation",
    "transaction_isolation",
    "userstat",
    "version",
    "version_comment",
];

fn select_variables(all: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let kept = all.iter().filter(|(name, _)| SERVER_VARIABLES.contains(&name.as_str()));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_described_without_its_name() {
        let name = read_trimmed("/proc/sys/kernel/hostname");
        let all = BTreeMap::from([
            ("hostname".to_owned(), name.clone()),
            ("datadir".to_owned(), "/home/someone/data".to_owned()),
            ("innodb_page_size".to_owned(), "16384".to_owned()),
        ]);
        let host = describe_host(Path::new("/"), &all);
        assert_eq!(host.server_variables.keys().collect::<Vec<_>>(), ["innodb_page_size"]);
        assert!(host.cpus > 0 && host.memory_bytes > 0 && !host.kernel.is_empty());
        let text = serde_json::to_string(&host).expect("serialised");
        // A host that is merely called `vm` or `debian` would be found in every description.
        assert!(name.len() < 8 || !text.contains(&name), "{text}");
    }

    #[test]
    fn the_model_of_a_cpu_is_found_on_x86_and_arm() {
        assert_eq!(parse_cpu_model("model name\t: Some Xeon\n").as_deref(), Some("Some Xeon"));
        assert_eq!(parse_cpu_model("CPU part\t: 0xd0c\n").as_deref(), Some("0xd0c"));
        assert_eq!(parse_os_release("PRETTY_NAME=\"Debian GNU/Linux 12\"\n"), "Debian GNU/Linux 12");
    }
}
