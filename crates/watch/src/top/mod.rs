//! The terminal view.

mod app;
mod tables;
#[cfg(test)]
mod tests;
mod view;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crossterm::event::{self, Event};
use lasthop_control::grid::printable;
use lasthop_control::{self as control, Report, Request, Target};
use lasthop_units::Time;
use ratatui::DefaultTerminal;

pub use self::app::{Action, App, List, Sort};
use crate::sample::Sample;

/// How long the view may go on after the request to stop.
const TICK: Duration = Duration::from_millis(100);
/// Changes of priorities that wait for the process; more are refused.
const ASKED_MAX: usize = 64;

/// Shows the process behind `control` in this terminal, asking it every `interval`, until a key ends
/// it or `stop` is set. However that happens, the terminal is as it was before.
///
/// # Errors
///
/// There is no terminal, or no thread can be had.
pub fn run(control: &Path, interval: Duration, stop: &AtomicBool) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let result = converse(&mut terminal, control, interval, stop);
    ratatui::restore();
    result
}

/// The process's report, and when it came.
type PollResult = (Time, Result<Box<Report>, String>);
/// A change of priority, and what came of it.
type Answer = (Target, Option<u32>, Result<(), String>);

fn converse(
    terminal: &mut DefaultTerminal,
    control: &Path,
    interval: Duration,
    stop: &AtomicBool,
) -> io::Result<()> {
    let looks = poll_control(control, interval)?;
    let asked = asker(control)?;
    let process = control.display().to_string();
    let mut app = App::new(interval);
    loop {
        for (at, report) in looks.try_iter() {
            app.handle_report(at, report.as_deref().map_err(String::as_str));
        }
        for (of, priority, answer) in asked.answers.try_iter() {
            app.handle_answer(&of, priority, answer);
        }
        terminal.draw(|frame| view::draw(frame, &app, &process))?;
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        // A signal ends the wait, and a resize is an event after which everything is drawn anew.
        match event::poll(TICK) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        }
        let Event::Key(key) = event::read()? else { continue };
        match app.handle_key(key) {
            Some(Action::Quit) => return Ok(()),
            Some(Action::Priority { of, priority }) => {
                if let Err(TrySendError::Full((of, priority))) =
                    asked.requests.try_send((of, priority))
                {
                    let why = "the process does not answer".to_owned();
                    app.handle_answer(&of, priority, Err(why));
                }
            }
            None => {}
        }
    }
}

/// Asks the process again and again, in a thread that ends when nobody listens.
fn poll_control(control: &Path, interval: Duration) -> io::Result<Receiver<PollResult>> {
    let (tell, looks) = sync_channel(1);
    let control = control.to_owned();
    let start = Instant::now();
    let mut is_first = true;
    thread::Builder::new().name("look".into()).spawn(move || {
        loop {
            let begun = Instant::now();
            let query = if is_first { control::query_with_past } else { control::query };
            let report = query(&control).map(Box::new);
            is_first &= report.is_err();
            let report =
                report.map_err(|e| format!("nobody answers on {}: {e}", control.display()));
            if tell.send((Time::ZERO + start.elapsed(), report)).is_err() {
                return;
            }
            thread::sleep(interval.saturating_sub(begun.elapsed()));
        }
    })?;
    Ok(looks)
}

/// Where changes of priorities are asked for, and answered.
struct Asker {
    requests: SyncSender<(Target, Option<u32>)>,
    answers: Receiver<Answer>,
}

fn asker(control: &Path) -> io::Result<Asker> {
    let (requests, asked) = sync_channel::<(Target, Option<u32>)>(ASKED_MAX);
    let (tell, answers) = sync_channel(ASKED_MAX);
    let control = control.to_owned();
    thread::Builder::new().name("ask".into()).spawn(move || {
        for (of, priority) in asked {
            let request = Request::Priority { of: of.clone(), priority };
            let answer = control::request(&control, &request);
            let answer = answer.map(|_| ()).map_err(|e| e.to_string());
            if tell.send((of, priority, answer)).is_err() {
                return;
            }
        }
    })?;
    Ok(Asker { requests, answers })
}

/// A sample as text for people: everything, in one table after the other.
pub fn to_text(sample: &Sample) -> String {
    let line = |text: &str| format!("{}\n", printable(text));
    let mut out = line(&tables::title(sample));
    out.push_str(&line(&tables::total(sample)));
    out.extend(tables::packets(sample).map(|text| line(&text)));
    out.extend(tables::handoffs(sample).map(|text| line(&text)));
    let mut grids = vec![tables::associations(sample), tables::paths(sample, None)];
    if let Some(agent) = &sample.agent {
        grids.extend([tables::interfaces(agent), tables::counters(agent)]);
    }
    grids.extend([
        tables::bases(sample),
        tables::programs(sample, &app::programs(sample, Sort::Rate), None),
        tables::connections(sample, &app::connections(sample, Sort::Rate), None),
    ]);
    for grid in grids.iter().filter(|grid| grid.rows() > 0) {
        out.push('\n');
        out.push_str(&grid.to_text());
    }
    out
}
