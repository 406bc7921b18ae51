//! Scenarios that are built into the binary.

use super::Scenario;

/// A scenario file that is embedded in the binary.
#[derive(Debug)]
pub struct Preset {
    pub name: &'static str,
    pub text: &'static str,
}

impl Preset {
    pub fn named(name: &str) -> Option<&'static Self> {
        PRESETS.iter().find(|preset| preset.name == name)
    }

    /// # Errors
    /// As of [`Scenario::parse`].
    pub fn scenario(&self) -> anyhow::Result<Scenario> {
        Scenario::parse(self.text)
    }
}

pub const PRESETS: &[Preset] = &[
    Preset { name: "tcpdump-impact", text: include_str!("../../../../../scenarios/tcpdump-impact.toml") },
    Preset { name: "socket-vs-tcp", text: include_str!("../../../../../scenarios/socket-vs-tcp.toml") },
    Preset { name: "unix-socket", text: include_str!("../../../../../scenarios/unix-socket.toml") },
    Preset { name: "page-cache", text: include_str!("../../../../../scenarios/page-cache.toml") },
    Preset { name: "durability", text: include_str!("../../../../../scenarios/durability.toml") },
    Preset { name: "backup-load", text: include_str!("../../../../../scenarios/backup-load.toml") },
    Preset { name: "backup-users", text: include_str!("../../../../../scenarios/backup-users.toml") },
    Preset { name: "backup-options", text: include_str!("../../../../../scenarios/backup-options.toml") },
    Preset { name: "backup-tables", text: include_str!("../../../../../scenarios/backup-tables.toml") },
    Preset {
        name: "backup-compression",
        text: include_str!("../../../../../scenarios/backup-compression.toml"),
    },
    Preset { name: "backup-network", text: include_str!("../../../../../scenarios/backup-network.toml") },
    Preset { name: "backup-throttle", text: include_str!("../../../../../scenarios/backup-throttle.toml") },
    Preset { name: "calibration", text: include_str!("../../../../../scenarios/calibration.toml") },
    Preset { name: "drivers", text: include_str!("../../../../../scenarios/drivers.toml") },
    Preset { name: "packet-loss", text: include_str!("../../../../../scenarios/packet-loss.toml") },
    Preset { name: "capture-loss", text: include_str!("../../../../../scenarios/capture-loss.toml") },
    Preset { name: "capture-pressure", text: include_str!("../../../../../scenarios/capture-pressure.toml") },
    Preset { name: "zero-loss", text: include_str!("../../../../../scenarios/zero-loss.toml") },
    Preset { name: "replay-rate", text: include_str!("../../../../../scenarios/replay-rate.toml") },
    Preset { name: "load-curve", text: include_str!("../../../../../scenarios/load-curve.toml") },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_valid_and_bears_its_own_name() {
        for preset in PRESETS {
            let scenario = preset.scenario().unwrap();
            assert_eq!(scenario.name, preset.name);
        }
    }
}
