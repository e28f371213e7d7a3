//! What is being measured, on the terminal; plain lines where there is none.

use std::sync::Mutex;
use std::time::Duration;

use indicatif::ProgressBar;
use lasthop_units::Rate;

use super::lock;
use crate::terminal;

/// How wide a bar is that is full.
const BAR: usize = 24;

/// A rate as a bar, which is full at another rate.
pub(super) fn bar(rate: Rate, full: Rate) -> String {
    let share = rate.as_bps() as f64 / full.as_bps().max(1) as f64;
    let mut long = (share * BAR as f64).round() as usize;
    if rate > Rate::ZERO {
        // Little is not nothing.
        long = long.max(1);
    }
    let long = long.min(BAR);
    format!("{}{}", "█".repeat(long), "·".repeat(BAR - long))
}

/// A picture that moves, on the standard error; a title where there is no terminal.
pub(super) struct Live(ProgressBar);

impl Live {
    /// Nothing is drawn yet.
    pub(super) fn new(title: &str) -> Self {
        let bar = terminal::bar("{msg}");
        if bar.is_hidden() {
            eprintln!("{title}");
        }
        Self(bar)
    }

    /// How things stand.
    pub(super) fn show(&self, drawing: impl FnOnce() -> String) {
        if !self.0.is_hidden() {
            self.0.set_message(drawing());
            self.0.tick();
        }
    }

    /// A line that stays.
    pub(super) fn line(&self, line: &str) {
        terminal::line(&self.0, line);
    }

    /// Does something else with the terminal.
    pub(super) fn suspend(&self, f: impl FnOnce()) {
        self.0.suspend(f);
    }

    /// Nothing more comes.
    pub(super) fn finish(&self) {
        self.0.finish_and_clear();
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_rate() {
        let filled = |mbps| {
            let bar = bar(Rate::from_mbps(mbps), Rate::from_mbps(20));
            (bar.matches('█').count(), bar.chars().count())
        };
        assert_eq!([filled(0), filled(10), filled(30)], [(0, BAR), (BAR / 2, BAR), (BAR, BAR)]);
        assert!(bar(Rate::from_bps(1), Rate::from_mbps(20)).starts_with('█'));
    }
}
