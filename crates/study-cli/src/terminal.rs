//! What commands do with the terminal: text, progress, interrupts.

use std::io::{self, Write};
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

/// A bar on the standard error, drawn by this template; hidden where that is no terminal.
pub(crate) fn bar(template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// A line that stays, above the bar or without one.
pub(crate) fn line(bar: &ProgressBar, line: &str) {
    bar.suspend(|| eprintln!("{line}"));
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
