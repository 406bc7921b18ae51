//! Cancellation by signals, for subcommands that put things back when they are interrupted.

use super::console::eprint_line;
use toll_sys::cancel::CancelToken;
use toll_sys::signals;

/// A token that the first signal cancels.
pub fn new_signal_token() -> anyhow::Result<CancelToken> {
    let cancel = CancelToken::new();
    cancel_on_signals(&cancel)?;
    Ok(cancel)
}

/// To be called once: for what holds the token before there is anything to put back.
pub fn cancel_on_signals(cancel: &CancelToken) -> anyhow::Result<()> {
    signals::cancel_on_signals(cancel, || {
        eprint_line!(
            "toll: still restoring; if that hangs, kill -9 {} and run `toll clean`",
            std::process::id()
        );
    })
}
