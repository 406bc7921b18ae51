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

    /// The preset whose name is most like `name`, if one is like it at all.
    pub fn most_like(name: &str) -> Option<&'static Self> {
        // A letter in three may be wrong. Fewer letters than these are in many names.
        let most = name.chars().count().div_ceil(3);
        let is_part = |whole: &str| name.len() > 3 && whole.contains(name);
        let distances = PRESETS.iter().map(|preset| (edit_distance(name, preset.name), preset));
        let is_like = |(distance, preset): &(usize, &Self)| *distance <= most || is_part(preset.name);
        distances.filter(is_like).min_by_key(|(distance, _)| *distance).map(|(_, preset)| preset)
    }

    /// # Errors
    /// As of [`Scenario::parse`].
    pub fn scenario(&self) -> anyhow::Result<Scenario> {
        Scenario::parse(self.text)
    }
}

/// Letters to insert, remove or replace until one word is the other.
fn edit_distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, letter) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
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
    Preset { name: "capture-league", text: include_str!("../../../../../scenarios/capture-league.toml") },
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
            let title = scenario.title.expect(preset.name);
            assert!(title.chars().count() <= 47 && scenario.group.is_some(), "{}: {title}", preset.name);
        }
    }

    #[test]
    fn a_name_that_is_nearly_one_finds_it() {
        let found = |name: &str| Preset::most_like(name).map(|preset| preset.name);
        for (name, expected) in [
            ("tcpdump-inpact", Some("tcpdump-impact")),
            ("tcpdump", Some("tcpdump-impact")),
            ("unix_socket", Some("unix-socket")),
            ("backup-user", Some("backup-users")),
            ("frobnicate", None),
            ("x", None),
        ] {
            assert_eq!(found(name), expected, "{name}");
        }
        assert_eq!((edit_distance("kitten", "sitting"), edit_distance("", "abc")), (3, 3));
    }
}
