//! Facts of the host that a plan is made of: the model never looks for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use toll_model::plan::{HostFacts, Required};
use toll_record::HeldIn;
use toll_sys::program::{missing_program_error, missing_variable_error};
use toll_sys::{clock, cpu, sysctl};

/// The facts that need no arm. What arms require is looked for by [`missing`], once they are resolved.
pub fn for_planning(held_in: HeldIn) -> HostFacts {
    HostFacts {
        is_root: nix::unistd::geteuid().is_root(),
        cpus: cpu::available(),
        wall_us: clock::wall_us(),
        held_in,
        missing: BTreeMap::new(),
    }
}

/// What the host lacks of what is required, each with the reason and the remedy.
pub fn missing(required: BTreeSet<Required>) -> BTreeMap<Required, String> {
    required.into_iter().filter_map(|required| why_missing(&required).map(|why| (required, why))).collect()
}

fn why_missing(required: &Required) -> Option<String> {
    match required {
        Required::Program(name) => missing_program_error(name),
        Required::File(path) => (!Path::new(path).exists()).then(|| missing_program_error(path)).flatten(),
        Required::Variable(name) => std::env::var_os(name).is_none().then(|| missing_variable_error(name)),
        Required::Setting(name) => {
            let is_there = sysctl::path(name).is_some_and(|path| path.exists());
            (!is_there).then(|| format!("this kernel has no setting {name}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_not_missing_and_what_is_not_is_named() {
        let program = |name: &str| Required::Program(name.to_owned());
        let file = |path: &str| Required::File(path.to_owned());
        let variable = |name: &str| Required::Variable(name.to_owned());
        let setting = |name: &str| Required::Setting(name.to_owned());
        // /proc/stat is no program.
        let there = [program("sh"), file("/proc/stat"), variable("PATH"), setting("vm.swappiness")];
        assert_eq!(missing(there.into()), BTreeMap::new());
        let absent = [program("/proc/stat"), file("/nowhere"), variable("TOLL_NOT_SET"), setting("vm.none")];
        let reasons = missing(absent.clone().into());
        for (required, expected) in
            absent.iter().zip(["cannot be executed", "there is no", "is not set", "vm.none"])
        {
            assert!(reasons[required].contains(expected), "{reasons:?}");
        }
    }
}
