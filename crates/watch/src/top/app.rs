//! What the terminal shows, and what keys do. It touches neither terminal nor process.

use std::cmp::Ordering;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use lasthop_control::{PRIORITY_MAX, Report, Target};
use lasthop_units::Time;

use crate::history::History;
use crate::sample::Sample;

/// How far the keys for a page go.
const PAGE: usize = 10;

/// Which list is shown.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum List {
    /// Connections.
    #[default]
    Connections,
    /// The programs whose they are.
    Programs,
}

/// What the list is sorted by.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Sort {
    /// The fastest first.
    #[default]
    Rate,
    /// The one that has carried most first.
    Total,
    /// The one of the highest priority first.
    Priority,
    /// By program and target, in the order of the alphabet.
    Name,
    /// The youngest first.
    Age,
}

impl Sort {
    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Total => "total",
            Self::Priority => "priority",
            Self::Name => "name",
            Self::Age => "age",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Rate => Self::Total,
            Self::Total => Self::Priority,
            Self::Priority => Self::Name,
            Self::Name => Self::Age,
            Self::Age => Self::Rate,
        }
    }
}

/// What a key asks for beyond what is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// To end.
    Quit,
    /// That a priority is set; none is what the configuration says.
    Priority {
        /// Whose.
        of: Target,
        /// Which.
        priority: Option<u32>,
    },
}

/// The state of the terminal view.
#[derive(Debug, Default)]
pub struct App {
    pub(super) history: History,
    /// How often reports come, if not every second.
    interval: Option<Duration>,
    pub(super) sample: Option<Sample>,
    pub(super) list: List,
    pub(super) sort: Sort,
    pub(super) help: bool,
    /// What went wrong, or was done; until the next key.
    pub(super) message: Option<String>,
    /// Whether the process did not answer the last time.
    gone: bool,
    /// What is selected, in each list: by name, since rows move.
    selected: [Option<String>; 2],
    /// Where it was last, should it go.
    place: [usize; 2],
    /// Whether somebody selected it; until then it is the first row.
    chosen: [bool; 2],
    /// A priority that was requested and that the process has not reported yet.
    wanted: Option<(Target, u32)>,
}

impl App {
    /// One that takes a report every `interval`.
    pub fn new(interval: Duration) -> Self {
        Self { interval: Some(interval), ..Self::default() }
    }

    /// Takes what the process answered at `now`.
    pub fn handle_report(&mut self, now: Time, answer: Result<&Report, &str>) {
        match answer {
            Ok(report) => {
                if let Some(past) = &report.past {
                    self.history.remember(past, self.interval.unwrap_or(Duration::from_secs(1)));
                }
                let sample = self.history.feed(now, report);
                if std::mem::take(&mut self.gone) {
                    self.message = None;
                }
                if sample.restarted {
                    self.message = Some("the process was started again".to_owned());
                }
                self.sample = Some(sample);
                self.wanted = self.wanted.take().filter(|(of, priority)| {
                    self.target_and_priority().is_some_and(|(t, p)| t == *of && p != *priority)
                });
                self.keep_selection();
            }
            Err(why) => {
                self.gone = true;
                self.message = Some(why.to_owned());
            }
        }
    }

    /// Takes what came of an [`Action::Priority`].
    pub fn handle_answer(
        &mut self,
        of: &Target,
        priority: Option<u32>,
        answer: Result<(), String>,
    ) {
        self.message = Some(match (answer, priority) {
            (Ok(()), Some(priority)) => format!("{of} has priority {priority}"),
            (Ok(()), None) => format!("{of} has the priority that the configuration says"),
            (Err(why), _) => {
                self.wanted = None;
                why
            }
        });
    }

    /// Takes a key.
    pub fn handle_key(&mut self, key: KeyEvent) -> Option<Action> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && matches!(key.code, KeyCode::Char('c')) {
            return Some(Action::Quit);
        }
        self.message = None;
        if self.help {
            self.help = false;
            return matches!(key.code, KeyCode::Char('q')).then_some(Action::Quit);
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Some(Action::Quit),
            KeyCode::Char('?' | 'h') => self.help = true,
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                self.keep_selection();
            }
            KeyCode::Tab | KeyCode::BackTab => {
                self.list = match self.list {
                    List::Connections => List::Programs,
                    List::Programs => List::Connections,
                };
                self.keep_selection();
            }
            KeyCode::Down | KeyCode::Char('j') => self.move_selection(|at| at.saturating_add(1)),
            KeyCode::Up | KeyCode::Char('k') => self.move_selection(|at| at.saturating_sub(1)),
            KeyCode::PageDown => self.move_selection(|at| at.saturating_add(PAGE)),
            KeyCode::PageUp => self.move_selection(|at| at.saturating_sub(PAGE)),
            KeyCode::Home => self.move_selection(|_| 0),
            KeyCode::End => self.move_selection(|_| usize::MAX),
            KeyCode::Char('+' | '=') => return self.change(|p| p.saturating_add(1)),
            KeyCode::Char('-') => return self.change(|p| p.saturating_sub(1)),
            KeyCode::Char('0') => {
                let (of, _) = self.settable()?;
                self.wanted = None;
                return Some(Action::Priority { of, priority: None });
            }
            _ => {}
        }
        None
    }

    /// The rows of the list, as places in the sample, in the order in which they are shown.
    pub(super) fn order(&self) -> Vec<usize> {
        let Some(sample) = &self.sample else { return Vec::new() };
        match self.list {
            List::Connections => connections(sample, self.sort),
            List::Programs => programs(sample, self.sort),
        }
    }

    /// Which row of [`order`](Self::order) is selected.
    pub(super) fn selected(&self, order: &[usize]) -> Option<usize> {
        let wanted = self.selected.get(self.list as usize)?.as_ref()?;
        order.iter().position(|i| self.name(*i).as_ref() == Some(wanted))
    }

    fn name(&self, index: usize) -> Option<String> {
        let sample = self.sample.as_ref()?;
        match self.list {
            List::Connections => sample.connections.get(index).map(|c| c.name.clone()),
            // No program is called so: a name has at least one byte.
            List::Programs => {
                sample.programs.get(index).map(|p| p.name.clone().unwrap_or_default())
            }
        }
    }

    fn move_selection(&mut self, to: impl FnOnce(usize) -> usize) {
        self.choose();
        let order = self.order();
        let at = to(self.selected(&order).unwrap_or(0)).min(order.len().saturating_sub(1));
        self.select(&order, at);
    }

    fn select(&mut self, order: &[usize], at: usize) {
        let name = order.get(at).and_then(|i| self.name(*i));
        let list = self.list as usize;
        if let (Some(selected), Some(place)) =
            (self.selected.get_mut(list), self.place.get_mut(list))
        {
            (*selected, *place) = (name, at);
        }
    }

    /// From here on what is selected stays selected.
    fn choose(&mut self) {
        if let Some(chosen) = self.chosen.get_mut(self.list as usize) {
            *chosen = true;
        }
    }

    /// Where the selected row has gone, the one in its place is selected.
    fn keep_selection(&mut self) {
        let order = self.order();
        let list = self.list as usize;
        let chosen = self.chosen.get(list).is_some_and(|chosen| *chosen);
        let place = self.place.get(list).filter(|_| chosen).copied().unwrap_or(0);
        let last = order.len().saturating_sub(1);
        let at = self.selected(&order).filter(|_| chosen).unwrap_or(place.min(last));
        self.select(&order, at);
    }

    /// What is selected, and its priority; 1 where those of a program differ.
    fn target_and_priority(&self) -> Option<(Target, u32)> {
        let order = self.order();
        let index = *order.get(self.selected(&order)?)?;
        let sample = self.sample.as_ref()?;
        match self.list {
            List::Connections => {
                let c = &sample.connections.get(index)?.report;
                let of = Target::Connection(Some(c.key).filter(|key| *key != 0)?);
                Some((of, c.priority?))
            }
            List::Programs => {
                let p = sample.programs.get(index)?;
                let priority = if p.mixed { 1 } else { p.priority? };
                Some((Target::Program(p.name.clone()?), priority))
            }
        }
    }

    fn settable(&mut self) -> Option<(Target, u32)> {
        self.choose();
        let found = self.target_and_priority();
        if found.is_none() {
            self.message = Some("this has no priority that could be changed here".to_owned());
        }
        found
    }

    fn change(&mut self, by: impl FnOnce(u32) -> u32) -> Option<Action> {
        let (of, reported) = self.settable()?;
        let from = match &self.wanted {
            Some((wanted, priority)) if *wanted == of => *priority,
            _ => reported,
        };
        let priority = by(from).clamp(1, PRIORITY_MAX);
        self.wanted = Some((of.clone(), priority));
        Some(Action::Priority { of, priority: Some(priority) })
    }
}

/// The order of connections.
pub(super) fn connections(sample: &Sample, sort: Sort) -> Vec<usize> {
    let all = &sample.connections;
    let name = |i: usize| (all[i].report.program.as_deref(), all[i].report.target.as_str());
    sorted(all.len(), &|a, b| {
        let order = match sort {
            Sort::Rate => all[b].rates.sum().cmp(&all[a].rates.sum()),
            Sort::Total => all[b].bytes().cmp(&all[a].bytes()),
            Sort::Priority => all[b].report.priority.cmp(&all[a].report.priority),
            Sort::Name => Ordering::Equal,
            Sort::Age => all[a].report.age_s.total_cmp(&all[b].report.age_s),
        };
        order.then_with(|| name(a).cmp(&name(b)))
    })
}

/// The order of programs. They have no age: they are sorted by name instead.
pub(super) fn programs(sample: &Sample, sort: Sort) -> Vec<usize> {
    let all = &sample.programs;
    sorted(all.len(), &|a, b| match sort {
        Sort::Rate => all[b].rates.sum().cmp(&all[a].rates.sum()),
        Sort::Total => all[b].bytes.cmp(&all[a].bytes),
        Sort::Priority => all[b].priority.cmp(&all[a].priority),
        Sort::Name | Sort::Age => Ordering::Equal,
    })
}

/// The numbers below `count` in an order; what is equal in it stays as it is. One sort for all
/// orders: each of its own would be built anew.
fn sorted(count: usize, order: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut all: Vec<usize> = (0..count).collect();
    all.sort_by(|&a, &b| order(a, b));
    all
}
