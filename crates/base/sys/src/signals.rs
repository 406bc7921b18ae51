//! Signal handling for an orderly shutdown.
//!
//! HUP (a closed terminal) and QUIT (the quit key) count like INT and TERM.

use crate::cancel::CancelToken;
use crate::proc_file;
use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Signals within this time of the first are the same request: timeout(1) signals its child, and then the child's group.
const ONE_REQUEST: Duration = Duration::from_secs(1);

/// Cancels at the first shutdown signal. No such signal ends the process by itself. A second signal does not
/// interrupt the restoring of settings: `again` is called for it, and can print what is still in progress.
pub fn cancel_on_signals(cancel: &CancelToken, again: impl Fn() + Send + 'static) -> anyhow::Result<()> {
    let mut signals = Signals::new(shutdown_signals()).context("cannot install the signal handler")?;
    let cancel = cancel.clone();
    std::thread::spawn(move || {
        for _ in &mut signals {
            if cancel.cancel() {
                again();
            }
        }
    });
    Ok(())
}

/// Sets `end` at the first of the `signals`, so that the process ends in good order. One that comes more than a second
/// later ends it at once.
pub fn end_in_good_order(signals: &[i32], end: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let failed = "cannot install the signal handler";
    let at_once = Arc::new(AtomicBool::new(false));
    let (mut first, handler) = UnixStream::pair().context(failed)?;
    for &signal in signals {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&at_once)).context(failed)?;
        signal_hook::flag::register(signal, Arc::clone(end)).context(failed)?;
        signal_hook::low_level::pipe::register(signal, handler.try_clone().context(failed)?)
            .context(failed)?;
    }
    let waiter = move || {
        if first.read_exact(&mut [0]).is_ok() {
            std::thread::sleep(ONE_REQUEST);
            at_once.store(true, Ordering::Relaxed);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(waiter).context(failed)?;
    Ok(())
}

/// Shutdown signals of this process. HUP is not one of them if it was ignored at the start (nohup): such a
/// process must outlive its terminal. Call this before a handler is installed.
pub fn shutdown_signals() -> Vec<i32> {
    parse_shutdown_signals(&proc_file::status("self"))
}

fn parse_shutdown_signals(status: &str) -> Vec<i32> {
    let ignored = proc_file::bits(status, "SigIgn").unwrap_or(0);
    let hup_ignored = ignored & (1 << (SIGHUP - 1)) != 0;
    [SIGINT, SIGTERM, SIGHUP, SIGQUIT].into_iter().filter(|s| *s != SIGHUP || !hup_ignored).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hangup_ends_toll_unless_it_was_started_to_outlive_it() {
        assert!(shutdown_signals().contains(&SIGTERM) && shutdown_signals().contains(&SIGQUIT));
        // As written under nohup, and without it (Rust itself ignores PIPE).
        assert!(
            !parse_shutdown_signals("SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n")
                .contains(&SIGHUP)
        );
        assert!(parse_shutdown_signals("SigIgn:\t0000000000001000\n").contains(&SIGHUP));
        assert_eq!(parse_shutdown_signals("").len(), 4);
    }
}
