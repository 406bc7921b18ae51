//! Test support: servers from a template, private environments for runs, ports, captures and synthetic
//! packets.
//!
//! # Invariants
//!
//! Never depends on the package `toll`: a test program passes the path of the program that it tests. Never
//! linked into what users get: only ever a dev-dependency.

// A test fails by panicking, its support included.
#![allow(clippy::unwrap_used)]

pub mod hostile_server;
pub mod http_receiver;
pub mod lab;
pub mod own;
pub mod pages;
pub mod port;
pub mod printed;
pub mod report_page;
pub mod server;
pub mod skip;
pub mod small_disk;
pub mod tcpdump;
pub mod template;
pub mod wire;

use std::path::PathBuf;
use std::time::Duration;

/// No host is so busy that something that gets there takes this long.
pub const HANG_TIMEOUT: Duration = Duration::from_secs(600);

/// The path of a program on PATH, or where distributions put servers.
pub fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let beyond = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(beyond).map(|dir| dir.join(program)).find(|path| path.is_file())
}
