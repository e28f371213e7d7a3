//! What is being measured, on the terminal; plain lines where there is none.

use std::sync::Mutex;
use std::time::Duration;

use indicatif::ProgressBar;

use super::lock;
use crate::terminal;

/// Shows how far the run has come, on the standard error.
pub(super) struct Progress {
    bar: ProgressBar,
    running: Mutex<Vec<String>>,
}

impl Progress {
    /// Of a run of `cells` cells.
    pub(super) fn new(cells: usize) -> Self {
        let template = "[{elapsed}] {bar:25} {pos}/{len} {msg}";
        let bar = terminal::bar(template);
        bar.set_length(cells as u64);
        bar.enable_steady_tick(Duration::from_millis(250));
        Self { bar, running: Mutex::default() }
    }

    /// A cell is being measured.
    pub(super) fn begin(&self, cell: &str) {
        lock(&self.running).push(cell.to_owned());
        self.refresh();
    }

    /// A cell is done.
    pub(super) fn end(&self, cell: &str, summary: &str) {
        lock(&self.running).retain(|running| running != cell);
        let line = format!("{cell:<28} {summary}");
        terminal::line(&self.bar, &line);
        self.bar.inc(1);
        self.refresh();
    }

    fn refresh(&self) {
        self.bar.set_message(lock(&self.running).join(", "));
    }

    /// Nothing more comes.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
