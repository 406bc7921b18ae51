//! Facts of the host that a plan is made of: the model never looks for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use toll_model::plan::{HostFacts, Required};
use toll_record::HeldIn;
use toll_sys::program::{find_program, missing_program_error, missing_variable_error};
use toll_sys::{child_process, clock, cpu, redact, sysctl};

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
        Required::Check(words) => failed_check(words),
    }
}

/// Reason that a command gave by failing: its last line. `None`: it succeeded.
fn failed_check(words: &[String]) -> Option<String> {
    const LIMIT: Duration = Duration::from_secs(20);
    let (program, arguments) = words.split_first()?;
    let Some(path) = find_program(program) else { return missing_program_error(program) };
    let mut command = child_process::clean_env_command(path);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |why: &str| Some(format!("`{}` {why}", redact::redact_words(words).join(" ")));
    let Ok(mut child) = command.spawn() else { return failed("cannot be started") };
    let begun = Instant::now();
    while child.try_wait().ok().flatten().is_none() {
        if begun.elapsed() > LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            return failed("did not end within 20 s");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().ok()?;
    if output.status.success() {
        return None;
    }
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let last = said.iter().find_map(|text| text.lines().map(str::trim).rfind(|line| !line.is_empty()));
    last.map(redact::redact_text).or_else(|| failed("failed"))
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
        let check = |words: &[&str]| Required::Check(words.iter().map(|word| (*word).to_owned()).collect());
        assert_eq!(missing([check(&["test", "-e", "/proc/stat"])].into()), BTreeMap::new());
        let failing = [
            check(&["sh", "-c", "echo at first; echo no headers of this kernel; exit 1"]),
            check(&["sh", "-c", "echo only an error >&2; exit 1"]),
            check(&["test", "-e", "/nowhere"]),
            check(&["no-such-program-at-all"]),
        ];
        let reasons = missing(failing.clone().into());
        for (required, expected) in failing.iter().zip([
            "no headers of this kernel",
            "only an error",
            "`test -e /nowhere` failed",
            "no-such-program-at-all is not installed",
        ]) {
            assert!(reasons[required].starts_with(expected), "{reasons:?}");
        }
        let reasons = missing(absent.clone().into());
        for (required, expected) in
            absent.iter().zip(["cannot be executed", "there is no", "is not set", "vm.none"])
        {
            assert!(reasons[required].contains(expected), "{reasons:?}");
        }
    }
}
