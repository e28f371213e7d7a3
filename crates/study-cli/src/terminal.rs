//! What commands do with the terminal: text, progress, interrupts.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Prints; a reader that has seen enough is no error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

/// What is drawn of `bar` on the standard error by this template; none where that is no terminal.
pub(crate) fn shown(bar: fn() -> ProgressBar, template: &str) -> Option<ProgressBar> {
    io::stderr().is_terminal().then(|| {
        let bar = bar();
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar
    })
}

/// The first interrupt sets the flag, so that the run ends in order; the second ends the command at
/// once, with a status by the signal's number.
pub(crate) fn stop_on_signals(
    stop: &Arc<AtomicBool>,
    status: fn(i32) -> i32,
) -> anyhow::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, status(signal), Arc::clone(stop))
            .and_then(|_| flag::register(signal, Arc::clone(stop)))
            .context("listening to signals")?;
    }
    Ok(())
}
