//! Programs that a machine needs, found on this host.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use toll_sys::child_process;
use toll_sys::program::find_program;

const EMULATOR: &str = "qemu-system-x86_64";
const INSTALL_EMULATOR: &str = "apt-get install --no-install-recommends qemu-system-x86";
const INSTALL_BUSYBOX: &str = "apt-get install busybox-static";
/// Applets that busybox must have, on the host and in the machine. Debian's package `busybox` has fewer than its
/// `busybox-static`.
const APPLETS: [&str; 19] = [
    "cat",
    "depmod",
    "env",
    "grep",
    "gunzip",
    "insmod",
    "ip",
    "ln",
    "mkdir",
    "modprobe",
    "mount",
    "printf",
    "sh",
    "sleep",
    "stty",
    "switch_root",
    "sync",
    "umount",
    "unxz",
];

/// A requirement that this host does not meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingPart {
    pub what: String,
    /// The command or step that provides it.
    pub remedy: String,
}

impl MissingPart {
    pub(crate) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: remedy.into() }
    }
}

#[derive(Debug, Clone)]
pub struct Tools {
    pub qemu: PathBuf,
    /// First line of its version.
    pub emulator: String,
    pub busybox: PathBuf,
    pub setpriv: PathBuf,
}

/// The programs, or what is missing of them.
pub fn find_tools() -> Result<Tools, Vec<MissingPart>> {
    if std::env::consts::ARCH != "x86_64" {
        let what = format!("an x86_64 host (this one is {})", std::env::consts::ARCH);
        return Err(vec![MissingPart::new(what, "run it on an x86_64 host")]);
    }
    let found = (find_qemu(), find_busybox(), find_setpriv());
    match found {
        (Ok((qemu, emulator)), Ok(busybox), Ok(setpriv)) => Ok(Tools { qemu, emulator, busybox, setpriv }),
        (qemu, busybox, setpriv) => {
            Err([qemu.err(), busybox.err(), setpriv.err()].into_iter().flatten().collect())
        }
    }
}

fn find_qemu() -> Result<(PathBuf, String), MissingPart> {
    let missing = || MissingPart::new(EMULATOR, INSTALL_EMULATOR);
    let qemu = find_program(EMULATOR).ok_or_else(missing)?;
    let version = output_of(&qemu, &["--version"]).ok_or_else(missing)?;
    let devices = output_of(&qemu, &["-machine", "none", "-device", "help"]).unwrap_or_default();
    if !devices.contains("virtio-9p-pci") {
        let what = format!("sharing of directories (virtfs) in {}", qemu.display());
        return Err(MissingPart::new(what, format!("install a QEMU built with virtfs: {INSTALL_EMULATOR}")));
    }
    Ok((qemu, version.lines().next().unwrap_or_default().trim().to_owned()))
}

fn find_busybox() -> Result<PathBuf, MissingPart> {
    let missing = |what: String| MissingPart::new(what, INSTALL_BUSYBOX);
    let busybox = find_program("busybox").ok_or_else(|| missing("busybox".to_owned()))?;
    if !is_static(&busybox) {
        return Err(missing(format!("a statically linked busybox ({} is not)", busybox.display())));
    }
    let listed = output_of(&busybox, &["--list"]).unwrap_or_default();
    let lacking: Vec<_> =
        APPLETS.iter().copied().filter(|applet| !listed.lines().any(|line| line == *applet)).collect();
    if !lacking.is_empty() {
        return Err(missing(format!("a busybox with {}", lacking.join(", "))));
    }
    Ok(busybox)
}

fn find_setpriv() -> Result<PathBuf, MissingPart> {
    find_program("setpriv").ok_or_else(|| MissingPart::new("setpriv", "apt-get install util-linux"))
}

fn output_of(program: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = child_process::clean_env_command(program);
    let output = command.args(arguments).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// True if the program needs no loader, which a machine does not have before it has its root.
fn is_static(program: &Path) -> bool {
    std::fs::read(program).is_ok_and(|elf| has_interpreter(&elf) == Some(false))
}

/// True if an ELF file of 64 bits names a loader (a segment of type `PT_INTERP`). `None`: it is no such file.
fn has_interpreter(elf: &[u8]) -> Option<bool> {
    const PT_INTERP: u32 = 3;
    let half = |at: usize| Some(usize::from(u16::from_le_bytes(elf.get(at..at + 2)?.try_into().ok()?)));
    if elf.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let table = usize::try_from(u64::from_le_bytes(elf.get(32..40)?.try_into().ok()?)).ok()?;
    let (size, count) = (half(54)?, half(56)?);
    for segment in 0..count {
        let at = table.checked_add(segment * size)?;
        let kind = elf.get(at..at.checked_add(4)?)?;
        if u32::from_le_bytes(kind.try_into().ok()?) == PT_INTERP {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_needs_a_loader_is_recognised() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(has_interpreter(&own), Some(true));
        assert_eq!(has_interpreter(b"#!/bin/sh\n"), None);
        let mut header = own[..64].to_vec();
        assert_eq!(has_interpreter(&header), None, "its segments are cut off");
        header[56..58].copy_from_slice(&[0, 0]);
        assert_eq!(has_interpreter(&header), Some(false), "no segments");
    }
}
