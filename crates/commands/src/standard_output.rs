//! Standard output as an open file, for libraries: none of them takes it by itself.

use std::fs::File;
use std::os::fd::AsFd;

/// # Errors
/// It is closed.
pub fn open() -> std::io::Result<File> {
    Ok(File::from(std::io::stdout().as_fd().try_clone_to_owned()?))
}
