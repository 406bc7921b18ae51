//! Linux capabilities of this process.

use crate::proc_file;

/// A capability by its number in linux/capability.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    NetAdmin = 12,
    NetRaw = 13,
    SysPtrace = 19,
    SysAdmin = 21,
    Perfmon = 38,
    Bpf = 39,
}

impl Capability {
    pub const ALL: [Self; 6] =
        [Self::NetRaw, Self::NetAdmin, Self::SysAdmin, Self::SysPtrace, Self::Bpf, Self::Perfmon];

    pub fn name(self) -> &'static str {
        match self {
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::NetRaw => "CAP_NET_RAW",
            Self::SysPtrace => "CAP_SYS_PTRACE",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::Perfmon => "CAP_PERFMON",
            Self::Bpf => "CAP_BPF",
        }
    }

    /// True if the capability is in the effective set of this process.
    pub fn is_effective(self) -> bool {
        parse_effective_set(&proc_file::status("self")).is_some_and(|set| set >> (self as u32) & 1 == 1)
    }
}

fn parse_effective_set(status: &str) -> Option<u64> {
    proc_file::bits(status, "CapEff")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_set_is_read_as_bits() {
        let set = parse_effective_set("Name:\tx\nCapEff:\t0000000000002000\n").expect("parsed");
        assert_eq!(set >> (Capability::NetRaw as u32) & 1, 1);
        assert_eq!(set >> (Capability::NetAdmin as u32) & 1, 0);
    }
}
