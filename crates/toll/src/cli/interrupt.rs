//! Cancellation by signals, for subcommands that put things back when they are interrupted.

use super::console::tell;
use toll_sys::cancel::Cancel;
use toll_sys::signals;

/// A token that the first signal cancels.
pub fn listen() -> anyhow::Result<Cancel> {
    let cancel = Cancel::new();
    cancelled_by_signals(&cancel)?;
    Ok(cancel)
}

/// To be called once: for what holds the token before there is anything to put back.
pub fn cancelled_by_signals(cancel: &Cancel) -> anyhow::Result<()> {
    signals::listen(cancel, || {
        tell!(
            "toll: still putting things back; if that hangs, kill -9 {} and run `toll clean`",
            std::process::id()
        );
    })
}
