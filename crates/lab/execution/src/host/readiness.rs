//! Abilities of toll on this host, and the remedy for each missing one.

use super::tools::TOOLS;
use serde::Serialize;
use std::path::Path;
use toll_record::Tool;
use toll_sys::capability::Capability;

/// One ability of toll, and what it lacks on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ability {
    pub what: String,
    /// True if the main job, `toll run tcpdump-impact`, makes no sense without it.
    pub essential: bool,
    /// Empty if nothing is missing.
    pub missing: Vec<Missing>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missing {
    pub what: String,
    /// The command or step that provides it.
    pub remedy: String,
}

impl Ability {
    pub fn is_available(&self) -> bool {
        self.missing.is_empty()
    }
}

/// Requirement of an ability.
enum Requirement {
    Tool(&'static str),
    /// Any of these tools is enough; the first is advised.
    AnyTool(&'static [&'static str]),
    Capability(Capability),
    Path(&'static str, &'static str),
}

use Requirement::{AnyTool, Capability as Cap, Path as File, Tool as Program};

const ABILITIES: [(&str, bool, &[Requirement]); 10] = [
    ("a private server (sandbox)", true, &[AnyTool(&["mariadbd", "mysqld"])]),
    ("captures by tcpdump", true, &[Program("tcpdump"), Cap(Capability::NetRaw)]),
    ("streaming a capture to a remote end by nc", false, &[Program("nc")]),
    (
        "a remote end behind a link of 1 Gb/s",
        false,
        &[Program("ip"), Program("tc"), Cap(Capability::NetAdmin), Cap(Capability::SysAdmin)],
    ),
    ("counting by pt-query-digest", false, &[Program("pt-query-digest")]),
    ("sysbench as the driver", false, &[Program("sysbench")]),
    ("captures by dumpcap", false, &[Program("dumpcap"), Cap(Capability::NetRaw)]),
    (
        "tracing by bpftrace",
        false,
        &[
            Program("bpftrace"),
            Cap(Capability::SysAdmin),
            File("/sys/kernel/tracing", "mount -t tracefs tracefs /sys/kernel/tracing"),
        ],
    ),
    ("dumps and transfers over SSH", false, &[Program("ssh"), Program("sshd")]),
    (
        "pressure beside stalls (PSI)",
        false,
        &[File("/proc/pressure/cpu", "boot with psi=1, on a kernel with CONFIG_PSI")],
    ),
];

/// All abilities in order of importance.
pub fn check_abilities(tools: &[Tool]) -> Vec<Ability> {
    let all = ABILITIES.iter().map(|(what, essential, needs)| Ability {
        what: (*what).to_owned(),
        essential: *essential,
        missing: needs.iter().filter_map(|need| find_missing(need, tools)).collect(),
    });
    all.collect()
}

fn find_missing(need: &Requirement, tools: &[Tool]) -> Option<Missing> {
    let there = |name: &str| tools.iter().any(|tool| tool.name == name && tool.version.is_some());
    match need {
        Program(name) => (!there(name)).then(|| missing_program(name, name)),
        AnyTool(names) => {
            let first = names.first()?;
            (!names.iter().any(|name| there(name))).then(|| missing_program(first, &names.join(" or ")))
        }
        Cap(capability) => (!capability.is_effective())
            .then(|| Missing { what: capability.name().to_owned(), remedy: "run as root (sudo)".to_owned() }),
        File(path, remedy) => (!Path::new(path).exists())
            .then(|| Missing { what: (*path).to_owned(), remedy: (*remedy).to_owned() }),
    }
}

fn missing_program(name: &str, shown: &str) -> Missing {
    let package = TOOLS.iter().find(|tool| tool.name == name).map_or(name, |tool| tool.package);
    Missing { what: shown.to_owned(), remedy: format!("apt-get install {package}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_comes_with_the_command_that_installs_it() {
        let none: Vec<Tool> = Vec::new();
        let found = check_abilities(&none);
        let server = &found[0];
        assert!(server.essential && !server.is_available());
        assert_eq!(server.missing[0].remedy, "apt-get install mariadb-server");
        assert_eq!(server.missing[0].what, "mariadbd or mysqld");
    }

    #[test]
    fn either_server_will_do() {
        let one = [Tool { name: "mysqld".into(), version: Some("8.0.15".into()) }];
        assert!(check_abilities(&one)[0].is_available());
    }

    #[test]
    fn every_tool_that_is_needed_has_a_package() {
        for (_, _, needs) in &ABILITIES {
            for need in *needs {
                if let Program(name) = need {
                    assert!(TOOLS.iter().any(|tool| tool.name == *name), "{name}");
                }
            }
        }
    }
}
