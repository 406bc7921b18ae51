//! Which scenarios does the binary carry?

/// A scenario file that is embedded in the binary.
#[derive(Debug)]
pub struct Preset {
    pub name: &'static str,
    pub text: &'static str,
}

pub const PRESETS: &[Preset] = &[
    Preset { name: "tcpdump-impact", text: include_str!("../../../../scenarios/tcpdump-impact.toml") },
    Preset { name: "socket-vs-tcp", text: include_str!("../../../../scenarios/socket-vs-tcp.toml") },
    Preset { name: "durability", text: include_str!("../../../../scenarios/durability.toml") },
    Preset { name: "dump-beside-users", text: include_str!("../../../../scenarios/dump-beside-users.toml") },
    Preset { name: "backup-throttle", text: include_str!("../../../../scenarios/backup-throttle.toml") },
    Preset { name: "compression", text: include_str!("../../../../scenarios/compression.toml") },
    Preset { name: "calibration", text: include_str!("../../../../scenarios/calibration.toml") },
    Preset { name: "drivers", text: include_str!("../../../../scenarios/drivers.toml") },
    Preset { name: "packet-loss", text: include_str!("../../../../scenarios/packet-loss.toml") },
    Preset { name: "load-curve", text: include_str!("../../../../scenarios/load-curve.toml") },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn every_preset_is_valid_and_bears_its_own_name() {
        for preset in PRESETS {
            let scenario = Scenario::parse(preset.text).unwrap();
            assert_eq!(scenario.name, preset.name);
        }
    }
}
