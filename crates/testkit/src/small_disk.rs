//! A file system that is soon full.

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::path::{Path, PathBuf};

/// A tmpfs of a test's own, gone with it.
#[derive(Debug)]
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one of `size` (such as `400k`) at `path`, which is made. `None`, with a reason that is shown: not without root,
    /// and not in every container.
    pub fn mount(path: impl AsRef<Path>, size: &str) -> Option<Self> {
        let path = path.as_ref();
        std::fs::create_dir_all(path).unwrap();
        let options = format!("size={size},mode=0700");
        if let Err(why) = mount(Some("tmpfs"), path, Some("tmpfs"), MsFlags::empty(), Some(options.as_str()))
        {
            crate::skip!("a small disk of the test's own: {why}");
            return None;
        }
        Some(Self(path.to_owned()))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Gives it another size.
    pub fn resize(&self, size: &str) {
        let options = format!("size={size}");
        mount(Some("tmpfs"), &self.0, Some("tmpfs"), MsFlags::MS_REMOUNT, Some(options.as_str())).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}
