//! Which signals end toll, and how often need they be sent?

use crate::say::tell;
use anyhow::{Context, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::atomic::{AtomicBool, Ordering};

/// True from the first signal on.
pub static RAISED: AtomicBool = AtomicBool::new(false);

/// An error once a signal came, for whoever waits in a loop.
pub fn check() -> anyhow::Result<()> {
    if RAISED.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    Ok(())
}

/// Raises [`RAISED`] at the first signal that asks toll to end; none of them ends the process by itself.
///
/// A lost SSH connection (HUP) is no other end than Ctrl-C: what was switched on is put back. Nor does
/// a second signal cut that short; it is answered with what is still going on.
pub fn listen() -> anyhow::Result<()> {
    let mut wanted = vec![SIGINT, SIGQUIT, SIGTERM];
    // `nohup` means it: who ignores HUP from the start goes on without a terminal.
    if !ignored_at_start(SIGHUP) {
        wanted.push(SIGHUP);
    }
    let mut signals = Signals::new(&wanted).context("cannot listen to signals")?;
    std::thread::spawn(move || {
        for _ in &mut signals {
            if RAISED.swap(true, Ordering::Relaxed) {
                tell!(
                    "toll: still putting things back; if that hangs, kill -9 {} and run `toll clean`",
                    std::process::id()
                );
            }
        }
    });
    Ok(())
}

fn ignored_at_start(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal - 1)) != 0
}
