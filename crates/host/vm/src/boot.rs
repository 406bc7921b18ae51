//! What a machine starts from: its first root, and the script that makes a host of it.

use crate::archive::Archive;
use crate::console::STATUS_MARK;
use crate::machine::MachineSpec;
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const INIT: &str = include_str!("init.sh");
const MACHINE: &str = include_str!("machine.sh");
/// Variables of a command that the caller gives none of. A console is no terminal that can draw.
const ENVIRONMENT: [(&str, &str); 3] = [
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/root"),
    ("TERM", "dumb"),
];
/// Directories that are the machine's own, in memory, unless something that it needs lies in them.
const MEMORY_DIRS: [&str; 2] = ["/run", "/tmp"];
/// Always the machine's own.
const OWN_DIRS: [&str; 3] = ["/dev", "/proc", "/sys"];

/// The part of a first root that all machines with one kernel share. `modules`: names and contents, in load order.
pub fn base_archive(busybox: &Path, modules: &[(String, Vec<u8>)]) -> Result<Vec<u8>> {
    let content = std::fs::read(busybox).with_context(|| format!("cannot read {}", busybox.display()))?;
    let mut archive = Archive::default();
    archive.add_file("busybox", &content);
    let busybox = quote(path_text(busybox)?);
    archive.add_file("init", format!("#!/busybox sh\nroot_busybox={busybox}\n{INIT}").as_bytes());
    archive.add_directory("modules");
    for (name, content) in modules {
        archive.add_file(&format!("modules/{name}"), content);
    }
    let order: String = modules.iter().map(|(name, _)| format!("{name}\n")).collect();
    archive.add_file("modules/order", order.as_bytes());
    Ok(archive.finish())
}

/// The part of a first root that is one machine's own.
pub fn machine_archive(script: &str) -> Vec<u8> {
    let mut archive = Archive::default();
    archive.add_file("machine", script.as_bytes());
    archive.finish()
}

/// The script that makes a host of a machine and runs its command.
pub fn machine_script(
    spec: &MachineSpec<'_>,
    busybox: &Path,
    version: &str,
    modules: &Path,
) -> Result<String> {
    let Some(program) = spec.command.first() else { bail!("{} has no command to run", spec.name) };
    if !spec.shared_dir.is_absolute() || !spec.dir.is_absolute() {
        bail!(
            "{}: {} and {} must be absolute paths",
            spec.name,
            spec.shared_dir.display(),
            spec.dir.display()
        );
    }
    let mut needed: Vec<PathBuf> =
        vec![spec.shared_dir.to_owned(), spec.dir.clone(), modules.to_owned(), busybox.to_owned()];
    if program.starts_with('/') {
        needed.push(program.into());
    }
    for path in &needed[1..] {
        let is_hidden =
            OWN_DIRS.iter().any(|dir| path.starts_with(dir)) && !path.starts_with(spec.shared_dir);
        if is_hidden {
            bail!(
                "{}: {} is not visible in a virtual machine, which has its own {}: move it to a directory on disk",
                spec.name,
                path.display(),
                OWN_DIRS.join(", ")
            );
        }
    }
    // Where a link leads counts, too.
    needed.extend(needed.clone().iter().filter_map(|path| path.canonicalize().ok()));
    let memory_dirs: Vec<_> =
        MEMORY_DIRS.into_iter().filter(|dir| !needed.iter().any(|path| path.starts_with(dir))).collect();

    let mut script = String::new();
    let variables = [
        ("b", path_text(busybox)?),
        ("version", version),
        ("modules", path_text(modules)?),
        ("memory_dirs", &memory_dirs.join(" ")),
        ("shared", path_text(spec.shared_dir)?),
        ("mark", STATUS_MARK),
    ];
    for (name, value) in variables {
        writeln!(script, "{name}={}", quote(value))?;
    }
    let defaults = ENVIRONMENT.iter().filter(|(name, _)| !spec.env.iter().any(|(own, _)| own == name));
    let own = spec.env.iter().map(|(name, value)| format!("{name}={value}"));
    let words = defaults.map(|(name, value)| format!("{name}={value}")).chain(own);
    let words: Vec<String> = words.chain(spec.command.iter().cloned()).map(|word| quote(&word)).collect();
    writeln!(
        script,
        "command() {{ cd {} && exec $b env -i {}; }}",
        quote(path_text(&spec.dir)?),
        words.join(" ")
    )?;
    script.push_str(MACHINE);
    if script.contains('\0') {
        bail!("{}: its command or environment contains a zero byte", spec.name);
    }
    Ok(script)
}

fn path_text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("the path {} is not UTF-8: move it", path.display()))
}

fn quote(text: &str) -> String {
    shell_words::quote(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(spec: &MachineSpec<'_>) -> Result<String> {
        let modules = Path::new("/var/cache/vm/lib/modules/6.1");
        machine_script(spec, Path::new("/usr/bin/busybox"), "6.1", modules)
    }

    fn spec(shared_dir: &Path) -> MachineSpec<'_> {
        MachineSpec {
            name: "virtual machine 1".into(),
            memory_bytes: 1 << 30,
            shared_dir,
            command: vec!["/usr/bin/it's".into(), "a b".into()],
            dir: "/".into(),
            env: vec![("HOME".into(), "/srv".into())],
        }
    }

    #[test]
    fn words_reach_the_command_as_they_were_given() {
        let script = script(&spec(Path::new("/srv/out"))).unwrap();
        let line = script.lines().find(|line| line.starts_with("command()")).unwrap();
        assert!(line.ends_with(r#" 'TERM=dumb' 'HOME=/srv' '/usr/bin/it'\''s' 'a b'; }"#), "{line}");
        assert!(!line.contains("HOME=/root"), "{line}");
    }

    #[test]
    fn a_directory_that_is_needed_is_not_hidden_by_memory() {
        let line = |spec: &MachineSpec<'_>| {
            let script = script(spec).unwrap();
            script.lines().find_map(|line| line.strip_prefix("memory_dirs=")).unwrap().to_owned()
        };
        let out = Path::new("/srv/out");
        assert_eq!(line(&spec(out)), "'/run /tmp'");
        assert_eq!(line(&spec(Path::new("/run/out"))), "/tmp");
        assert_eq!(line(&MachineSpec { dir: "/tmp/x".into(), ..spec(out) }), "/run");
        assert_eq!(line(&MachineSpec { command: vec!["/tmp/x".into()], ..spec(out) }), "/run");
        assert_eq!(line(&MachineSpec { command: vec!["/tmpx".into()], ..spec(out) }), "'/run /tmp'");
    }

    #[test]
    fn what_a_machine_cannot_see_is_refused() {
        let out = Path::new("/srv/out");
        let refused = |spec: MachineSpec<'_>| script(&spec).unwrap_err().to_string();
        let hidden = refused(MachineSpec { dir: "/dev/shm/x".into(), ..spec(out) });
        assert!(hidden.contains("/dev/shm/x is not visible"), "{hidden}");
        assert!(refused(MachineSpec { command: Vec::new(), ..spec(out) }).contains("no command"));
        assert!(refused(MachineSpec { dir: "x".into(), ..spec(out) }).contains("absolute"));
        let shared = Path::new("/dev/shm/out");
        assert!(script(&MachineSpec { dir: "/dev/shm/out/x".into(), ..spec(shared) }).is_ok());
    }
}
