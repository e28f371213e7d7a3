//! A radio that goes and comes back by a plan, and agents that are told.

use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use lasthop_control::Link;
use lasthop_units::Duration;

use super::helper::{self, Helper};
use crate::air::Air;
use crate::client::Stop;
use crate::error::LabError;

const TICK: Duration = Duration::from_millis(20);
/// Longer than any script.
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// A silence of the radio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// When it begins, after the script does.
    pub at: Duration,
    /// How long it lasts.
    pub lasting: Duration,
    /// How long before agents hear that it is imminent; they do not without. That the link is down,
    /// and that it is up again, they hear in any case.
    pub lead: Option<Duration>,
}

impl Gap {
    /// The moment after its end.
    pub fn end(&self) -> Duration {
        self.at + self.lasting
    }
}

/// What happens at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Warn(Duration),
    Fall,
    Return,
}

/// Gaps in order of time, and whom to tell of them.
#[derive(Clone, Debug)]
pub struct Script {
    steps: Vec<(Duration, Step)>,
    told: Vec<PathBuf>,
}

impl Script {
    /// A script that tells these agents.
    pub fn new(gaps: &[Gap], helpers: &[Helper]) -> Self {
        let told = helpers.iter().map(Helper::control).collect();
        Self { steps: steps(gaps), told }
    }

    /// Carries it out, from `start` on, until it is done or `stop` is set.
    ///
    /// # Errors
    ///
    /// An agent does not answer, or refuses.
    pub fn play(&self, air: &Air, start: Instant, stop: &Stop) -> Result<(), LabError> {
        for (after, step) in &self.steps {
            loop {
                let left = (start + *after).saturating_duration_since(Instant::now());
                if stop.is_set() {
                    return Ok(());
                }
                if left.is_zero() {
                    break;
                }
                thread::sleep(left.min(TICK));
            }
            self.carry_out(air, *step)?;
        }
        Ok(())
    }

    fn carry_out(&self, air: &Air, step: Step) -> Result<(), LabError> {
        match step {
            Step::Warn(lead) => {
                let in_ms = u64::try_from(lead.as_millis()).unwrap_or(u64::MAX);
                self.tell(&Link::Imminent { to: None, in_ms })
            }
            Step::Fall => {
                air.control.pause(FOREVER);
                self.tell(&Link::Down { interface: None })
            }
            // Nobody is told before it is so: what is sent at once would be lost.
            Step::Return => {
                air.control.resume();
                air.control.fresh_snapshot();
                self.tell(&Link::Up { interface: None })?;
                self.tell(&Link::Complete {})
            }
        }
    }

    fn tell(&self, news: &Link) -> Result<(), LabError> {
        self.told.iter().try_for_each(|control| helper::tell(control, news.clone()))
    }
}

fn steps(gaps: &[Gap]) -> Vec<(Duration, Step)> {
    let mut steps = Vec::new();
    for gap in gaps {
        if let Some(lead) = gap.lead {
            steps.push((gap.at.saturating_sub(lead), Step::Warn(lead)));
        }
        steps.push((gap.at, Step::Fall));
        steps.push((gap.end(), Step::Return));
    }
    steps.sort_by_key(|(after, _)| *after);
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_announced_falls_and_returns() {
        let ms = Duration::from_millis;
        let told = Gap { at: ms(1000), lasting: ms(500), lead: Some(ms(200)) };
        let untold = Gap { at: ms(3000), lasting: ms(500), lead: None };
        assert_eq!(
            steps(&[untold, told]),
            [
                (ms(800), Step::Warn(ms(200))),
                (ms(1000), Step::Fall),
                (ms(1500), Step::Return),
                (ms(3000), Step::Fall),
                (ms(3500), Step::Return),
            ]
        );
    }
}
