//! Cache of unpacked kernels: `CACHE/vm/kernel-VERSION`, each with its image and its modules.
//!
//! An entry is made beside its place and renamed: there is no half-made one, and of two processes that make the same
//! entry the first gives it its name.

use crate::kernel;
use crate::module_order;
use crate::step::run_step;
use crate::tools::Tools;
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use toll_sys::cancel::CancelToken;
use toll_sys::child_process::clean_env_command;
use toll_sys::process::ProcessId;
use toll_sys::program::find_program;

const PREFIX: &str = "kernel-";
const PART_PREFIX: &str = "part-";
/// Drivers of hardware that no such machine has: nine tenths of all modules' bytes.
const HARDWARE: [&str; 14] = [
    "drivers/gpu",
    "drivers/hid",
    "drivers/iio",
    "drivers/infiniband",
    "drivers/input",
    "drivers/media",
    "drivers/mtd",
    "drivers/net/ethernet",
    "drivers/net/wireless",
    "drivers/scsi",
    "drivers/staging",
    "drivers/usb",
    "drivers/video",
    "sound",
];

/// Where a kernel comes from.
#[derive(Debug, PartialEq, Eq)]
pub enum Source {
    /// An entry of the cache, by its version.
    Unpacked(String),
    Image {
        image: PathBuf,
        modules: PathBuf,
    },
    Deb(PathBuf),
    /// A package that apt downloads.
    Package(String),
}

impl Source {
    /// What the user names, or the best that there is. Asks apt for names, downloads nothing.
    pub fn choose(kernel: Option<&str>, cache: &Path) -> Result<Self> {
        match kernel {
            Some(deb) if deb.ends_with(".deb") => Ok(Self::Deb(absolute(deb)?)),
            Some(image) if image.contains('/') || Path::new(image).is_file() => {
                Self::image(&absolute(image)?)
            }
            Some(package) => {
                let unpacked = kernel::version_of_package(package)
                    .filter(|version| entry(cache, version).is_dir())
                    .map(|version| Self::Unpacked(version.to_owned()));
                Ok(unpacked.unwrap_or_else(|| Self::Package(package.to_owned())))
            }
            None => newest_unpacked(cache)
                .map(Self::Unpacked)
                .or_else(newest_installed)
                .map_or_else(|| Ok(Self::Package(newest_offered()?)), Ok),
        }
    }

    fn image(image: &Path) -> Result<Self> {
        let content = std::fs::read(image).with_context(|| {
            format!("cannot read the kernel {}: give a readable copy of it", image.display())
        })?;
        let Some(version) = kernel::version_of_image(&content) else {
            bail!("{} is no kernel image for x86: give a vmlinuz file or a .deb", image.display());
        };
        let beside = image.parent().map(|dir| dir.join("../lib/modules").join(version));
        let installed = Path::new("/lib/modules").join(version);
        let Some(modules) = beside.into_iter().chain([installed.clone()]).find(|dir| dir.is_dir()) else {
            bail!(
                "the kernel {} has no modules in ../lib/modules/{version} beside it nor in {}: put them there, \
                 or give the package that holds both",
                image.display(),
                installed.display()
            );
        };
        Ok(Self::Image { image: image.to_owned(), modules })
    }
}

fn absolute(path: &str) -> Result<PathBuf> {
    std::fs::canonicalize(path).with_context(|| format!("cannot find the kernel {path}"))
}

pub fn entry(cache: &Path, version: &str) -> PathBuf {
    cache.join("vm").join(format!("{PREFIX}{version}"))
}

/// Modules of an entry.
pub fn modules(entry: &Path, version: &str) -> PathBuf {
    entry.join("lib/modules").join(version)
}

fn newest_unpacked(cache: &Path) -> Option<String> {
    let names = names_in(&cache.join("vm"));
    kernel::newest(names.filter_map(|name| name.strip_prefix(PREFIX).map(str::to_owned)))
}

fn newest_installed() -> Option<Source> {
    let boot = Path::new("/boot");
    let versions = names_in(boot).filter_map(|name| name.strip_prefix("vmlinuz-").map(str::to_owned));
    let source = |version: String| Source::image(&boot.join(format!("vmlinuz-{version}"))).ok();
    let mut versions: Vec<_> = versions.collect();
    versions.sort_by(|a, b| kernel::compare(b, a));
    versions.into_iter().find_map(source)
}

fn names_in(dir: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

/// Name of the package with the newest kernel that apt knows.
fn newest_offered() -> Result<String> {
    for program in ["apt-cache", "apt-get", "dpkg-deb"] {
        if find_program(program).is_none() {
            bail!(
                "there is no kernel here and no {program} to fetch one: give a kernel image with its modules"
            );
        }
    }
    let output = clean_env_command("apt-cache")
        .args(["search", "--names-only", "^linux-image-[0-9].*-(amd64|generic)$"])
        .output()
        .context("cannot run apt-cache")?;
    let version = kernel::newest_offered(&String::from_utf8_lossy(&output.stdout));
    let Some(version) = version else {
        bail!(
            "there is no kernel here and apt knows none: run `apt-get update` for its package lists, or give a \
             kernel image with its modules"
        );
    };
    Ok(format!("linux-image-{version}"))
}

/// Version of the entry that holds this kernel, which is made if it is not there yet.
pub fn prepare(
    source: Source,
    cache: &Path,
    tools: &Tools,
    cancel: &CancelToken,
    tell: &dyn Fn(&str),
) -> Result<String> {
    if let Source::Unpacked(version) = source {
        return Ok(version);
    }
    let dir = cache.join("vm");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    remove_orphaned_parts(&dir);
    let owner = ProcessId::current().context("cannot read /proc/self/stat: is /proc mounted?")?;
    let part = tempfile::Builder::new()
        .prefix(&format!("{PART_PREFIX}{}-{}-", owner.pid, owner.start_ticks))
        .tempdir_in(&dir)
        .with_context(|| format!("cannot make a directory in {}", dir.display()))?;
    // A file that the user names may hold another kernel of the same version than it did before.
    let is_named_file = !matches!(source, Source::Package(_));
    let build = Build { part, tools, cancel };
    let (image, modules) = build.unpack(source, tell)?;
    let version = build.make_entry(&image, &modules, tell)?;
    let target = entry(cache, &version);
    build.publish(&target, is_named_file)?;
    Ok(version)
}

/// Parts of processes that were killed.
fn remove_orphaned_parts(dir: &Path) {
    for name in names_in(dir) {
        let owner = name.strip_prefix(PART_PREFIX).and_then(|rest| {
            let mut words = rest.splitn(3, '-');
            Some(ProcessId { pid: words.next()?.parse().ok()?, start_ticks: words.next()?.parse().ok()? })
        });
        if owner.is_some_and(|owner| !owner.is_alive()) {
            // Whoever is first removes it; the cache is used without that.
            let _ = std::fs::remove_dir_all(dir.join(name));
        }
    }
}

/// An entry that is being made.
struct Build<'a> {
    part: TempDir,
    tools: &'a Tools,
    cancel: &'a CancelToken,
}

impl Build<'_> {
    fn run(&self, command: &mut Command, what: &str) -> Result<()> {
        run_step(command, what, &self.part.path().join("log"), self.cancel)
    }

    /// Where the entry is made.
    fn entry(&self) -> PathBuf {
        self.part.path().join("entry")
    }

    /// Paths of a kernel image and of its modules.
    fn unpack(&self, source: Source, tell: &dyn Fn(&str)) -> Result<(PathBuf, PathBuf)> {
        let packages = self.part.path().join("packages");
        std::fs::create_dir_all(&packages)?;
        let packages: Vec<PathBuf> = match source {
            Source::Image { image, modules } => return Ok((image, modules)),
            Source::Unpacked(version) => bail!("the kernel {version} is unpacked already"),
            Source::Deb(path) => vec![path],
            Source::Package(name) => {
                tell(&format!("downloading {name}"));
                let mut command = clean_env_command("apt-get");
                command.args(["download", "--quiet", &name]).current_dir(&packages);
                // Ubuntu has them apart.
                if let Some(version) = name.strip_prefix("linux-image-").filter(|v| v.ends_with("-generic")) {
                    command.arg(format!("linux-modules-{version}"));
                }
                self.run(&mut command, &format!("download the package {name}")).context(
                    "the kernel of the virtual machine is missing: run `apt-get update` and try again, or give a \
                     kernel that is here",
                )?;
                names_in(&packages).map(|name| packages.join(name)).collect()
            }
        };
        let root = self.part.path().join("root");
        for package in &packages {
            tell(&format!("unpacking {}", package.display()));
            let mut command = clean_env_command("dpkg-deb");
            command.arg("-x").arg(package).arg(&root);
            self.run(&mut command, &format!("unpack {}", package.display()))?;
        }
        let find = |dirs: [&str; 2], prefix: &str| {
            dirs.iter().map(|dir| root.join(dir)).find_map(|dir| {
                names_in(&dir).find(|name| name.starts_with(prefix)).map(|name| dir.join(name))
            })
        };
        let image = find(["boot", "usr/boot"], "vmlinuz");
        let modules = find(["lib/modules", "usr/lib/modules"], "");
        match (image, modules) {
            (Some(image), Some(modules)) => Ok((image, modules)),
            (image, _) => bail!(
                "the package {} holds no {}: name one like linux-image-6.12.117+deb12-amd64",
                packages.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "),
                if image.is_some() { "modules" } else { "kernel" }
            ),
        }
    }

    fn make_entry(&self, image: &Path, modules: &Path, tell: &dyn Fn(&str)) -> Result<String> {
        let entry = self.entry();
        let content = std::fs::read(image).with_context(|| format!("cannot read {}", image.display()))?;
        let version = kernel::version_of_image(&content)
            .with_context(|| format!("{} is no kernel image for x86", image.display()))?;
        let own = self::modules(&entry, version);
        std::fs::create_dir_all(&own)?;
        std::fs::write(entry.join("vmlinuz"), &content)
            .with_context(|| format!("cannot write {}: is the disk full?", entry.display()))?;
        tell(&format!("preparing the modules of Linux {version}"));
        let mut copy = clean_env_command("cp");
        copy.args(["--recursive", "--"]);
        copy.args(["kernel", "modules.builtin", "modules.order"].map(|name| modules.join(name))).arg(&own);
        self.run(&mut copy, "copy the modules of the kernel")?;
        for hardware in HARDWARE {
            match std::fs::remove_dir_all(own.join("kernel").join(hardware)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        self.decompress(&own)?;
        let mut depmod = clean_env_command(&self.tools.busybox);
        depmod.args(["depmod", "-b"]).arg(&entry).arg(version);
        self.run(&mut depmod, "list what the modules of the kernel need")?;
        // A kernel that cannot start a machine is no entry.
        load_order(&entry, version)?;
        Ok(version.to_owned())
    }

    /// Modules as busybox and every kernel can load them.
    fn decompress(&self, modules: &Path) -> Result<()> {
        /// Well below the longest command line.
        const AT_ONCE: usize = 500;
        let busybox = |applet: &str| {
            let mut command = clean_env_command(&self.tools.busybox);
            command.arg(applet);
            command
        };
        let zstd = || {
            let mut command = clean_env_command("zstd");
            command.args(["-d", "-q", "--rm"]);
            command
        };
        let kinds: [(&str, &dyn Fn() -> Command); 3] =
            [("xz", &|| busybox("unxz")), ("gz", &|| busybox("gunzip")), ("zst", &zstd)];
        for (extension, command) in kinds {
            let mut files = Vec::new();
            find_files(modules, OsStr::new(extension), &mut files)?;
            for files in files.chunks(AT_ONCE) {
                self.run(command().args(files), &format!("decompress the kernel's .{extension} modules"))?;
            }
        }
        Ok(())
    }

    /// Gives the entry its name. One that is there stays, unless the user named a file that holds another kernel.
    fn publish(&self, target: &Path, may_replace: bool) -> Result<()> {
        let entry = self.entry();
        let failed = || format!("cannot make {}", target.display());
        if may_replace && target.is_dir() {
            let image = |dir: &Path| std::fs::read(dir.join("vmlinuz"));
            if image(target).with_context(failed)? == image(&entry).with_context(failed)? {
                return Ok(());
            }
            std::fs::rename(target, self.part.path().join("replaced")).with_context(failed)?;
        }
        match std::fs::rename(&entry, target) {
            // Another process was faster.
            Err(_) if target.is_dir() => Ok(()),
            other => other.with_context(failed),
        }
    }
}

fn find_files(dir: &Path, extension: &OsStr, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            find_files(&entry.path(), extension, found)?;
        } else if entry.path().extension() == Some(extension) {
            found.push(entry.path());
        }
    }
    Ok(())
}

/// Paths, below the entry's modules, of those that a machine loads before it has its root.
pub fn load_order(entry: &Path, version: &str) -> Result<Vec<String>> {
    let read = |name: &str| {
        let path = modules(entry, version).join(name);
        std::fs::read_to_string(&path).with_context(|| {
            format!("cannot read {}: delete {} to have it made anew", path.display(), entry.display())
        })
    };
    module_order::load_order(&module_order::WANTED, &read("modules.dep")?, &read("modules.builtin")?)
        .with_context(|| format!("Linux {version} cannot start a virtual machine"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_unpacked_kernel_is_taken_and_a_named_package_is_not_fetched_twice() {
        let cache = tempfile::tempdir().unwrap();
        for version in ["6.1.0-56-amd64", "6.12.117+deb12-amd64", "6.12.99+deb12-amd64"] {
            std::fs::create_dir_all(entry(cache.path(), version)).unwrap();
        }
        std::fs::create_dir_all(cache.path().join("vm/part-1-1-x")).unwrap();
        let choose = |kernel| Source::choose(kernel, cache.path()).unwrap();
        assert_eq!(choose(None), Source::Unpacked("6.12.117+deb12-amd64".into()));
        assert_eq!(choose(Some("linux-image-6.1.0-56-amd64")), Source::Unpacked("6.1.0-56-amd64".into()));
        let other = "linux-image-6.1.0-55-amd64";
        assert_eq!(choose(Some(other)), Source::Package(other.into()));
    }

    #[test]
    fn a_file_that_is_no_kernel_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("vmlinuz");
        std::fs::write(&file, "text").unwrap();
        let refused = |file: &Path| {
            format!("{:#}", Source::choose(Some(file.to_str().unwrap()), dir.path()).unwrap_err())
        };
        assert!(refused(&file).contains("is no kernel image"), "{}", refused(&file));
        assert!(refused(&dir.path().join("none.deb")).contains("cannot find the kernel"));
    }

    #[test]
    fn parts_of_killed_processes_are_removed_and_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let own = ProcessId::current().unwrap();
        let mine = format!("part-{}-{}-a", own.pid, own.start_ticks);
        let killed = format!("part-{}-{}-b", own.pid, own.start_ticks + 1);
        for name in [&mine, &killed, "kernel-6.1.0-56-amd64", "part-x"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        remove_orphaned_parts(dir.path());
        let mut left: Vec<_> = names_in(dir.path()).collect();
        left.sort();
        assert_eq!(left, ["kernel-6.1.0-56-amd64".to_owned(), mine, "part-x".to_owned()]);
    }
}
