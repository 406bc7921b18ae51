//! What is needed to start a machine: programs of this host, and a kernel with its modules.

use crate::boot;
use crate::cache::{self, Source};
use crate::tools::{MissingPart, Tools, find_tools};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use toll_sys::cancel::CancelToken;

/// What is needed to start a machine, found on this host.
#[derive(Debug)]
pub struct Kit {
    pub(crate) tools: Tools,
    version: String,
    /// The kernel's entry in the cache.
    entry: PathBuf,
    /// First root of all machines with this kernel; each adds its own part.
    pub(crate) base_archive: Vec<u8>,
}

impl Kit {
    /// `kernel`: a `.deb`, a kernel image (with its modules in `../lib/modules/VERSION` beside it or in
    /// `/lib/modules/VERSION`), or the name of a package, which apt downloads into `cache`. Absent: the newest
    /// kernel in the cache, else the newest in /boot that is readable and has modules, else the newest of apt.
    ///
    /// `tell` hears what takes time.
    pub fn prepare(
        kernel: Option<&str>,
        cache: &Path,
        cancel: &CancelToken,
        tell: &dyn Fn(&str),
    ) -> Result<Self> {
        let tools = match find_tools() {
            Ok(tools) => tools,
            Err(missing) => {
                let parts: Vec<_> =
                    missing.iter().map(|part| format!("{}: {}", part.what, part.remedy)).collect();
                bail!("cannot start a virtual machine here: it needs {}", parts.join("; "));
            }
        };
        // Its path is seen in the machine, too.
        let cache = std::path::absolute(cache).context("the current directory is gone")?;
        let source = Source::choose(kernel, &cache)?;
        let version = cache::prepare(source, &cache, &tools, cancel, tell)?;
        let entry = cache::entry(&cache, &version);
        let own = cache::modules(&entry, &version);
        let read = |path: String| {
            let content = std::fs::read(own.join(&path));
            let content = content.with_context(|| format!("cannot read the module {path} of {version}"))?;
            Ok((path.rsplit('/').next().unwrap_or(&path).to_owned(), content))
        };
        let modules =
            cache::load_order(&entry, &version)?.into_iter().map(read).collect::<Result<Vec<_>>>()?;
        let base_archive = boot::base_archive(&tools.busybox, &modules)?;
        Ok(Self { tools, version, entry, base_archive })
    }

    /// What is missing here. Downloads and changes nothing.
    pub fn missing(cache: &Path) -> Vec<MissingPart> {
        let mut missing = find_tools().err().unwrap_or_default();
        if let Err(error) = Source::choose(None, cache) {
            missing.push(MissingPart::new("a Linux kernel for the virtual machine", format!("{error:#}")));
        }
        missing
    }

    /// First line of `qemu-system-x86_64 --version`.
    pub fn emulator(&self) -> &str {
        &self.tools.emulator
    }

    /// As `uname -r` says it in the machine: `6.12.111+deb12-amd64`.
    pub fn kernel_version(&self) -> &str {
        &self.version
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.entry.join("vmlinuz")
    }

    pub(crate) fn modules(&self) -> PathBuf {
        cache::modules(&self.entry, &self.version)
    }
}
