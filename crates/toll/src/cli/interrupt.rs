//! Cancellation by signals, for subcommands that put things back when they are interrupted.

use super::console::tell;
use toll_sys::cancel::CancelToken;
use toll_sys::signals;

/// A token that the first signal cancels.
pub fn listen() -> anyhow::Result<CancelToken> {
    let cancel = CancelToken::new();
    cancelled_by_signals(&cancel)?;
    Ok(cancel)
}

/// To be called once: for what holds the token before there is anything to put back.
pub fn cancelled_by_signals(cancel: &CancelToken) -> anyhow::Result<()> {
    signals::cancel_on_signals(cancel, || {
        tell!(
            "toll: still putting things back; if that hangs, kill -9 {} and run `toll clean`",
            std::process::id()
        );
    })
}
