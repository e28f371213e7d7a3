//! The link as a scheme sees it: events that are missed, doubled or out of order become news that
//! is not.

use serde::Deserialize;

use crate::{Duration, LinkEvent, Time};

/// Which event ends a gap: who configures a scheme knows what kind of gap awaits it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Thaw {
    /// [`LinkEvent::Up`]: for disconnections without a change of base.
    #[default]
    Up,
    /// [`LinkEvent::Complete`]: for handoffs, where packets do not find the mobile before its
    /// registration is done (MIP-5, LLT-5).
    Complete,
}

/// What is new about the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkNews {
    /// Nothing.
    Nothing,
    /// It will be cut.
    Warned,
    /// It is cut.
    Cut,
    /// It carries, after a cut or a false alarm; or it may have been cut unnoticed.
    Back,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Carries,
    /// It carries, as a segment showed before the event that says so.
    Found,
    /// It will be cut, or the warning was false.
    Warned {
        until: Time,
    },
    Cut {
        since: Time,
    },
    /// It is up again, but packets may not find us.
    Attached,
}

/// Watches one link for a scheme.
#[derive(Clone, Copy, Debug)]
pub struct LinkWatch {
    phase: Phase,
    thaw: Thaw,
    /// How long a warning holds beyond its lead; warnings are ignored if `None`.
    bound: Option<Duration>,
}

impl LinkWatch {
    /// How long news of the link's return may be late before a segment that arrives counts for it,
    /// and how long a warning holds beyond its lead, where nothing else is said (LLT-9).
    pub const BOUND: Duration = Duration::from_secs(1);

    /// A link that carries. Gaps end with `thaw`; warnings hold for their lead and `bound`, or are
    /// ignored.
    pub const fn new(thaw: Thaw, bound: Option<Duration>) -> Self {
        Self { phase: Phase::Carries, thaw, bound }
    }

    /// An event came.
    pub fn on_event(&mut self, now: Time, event: LinkEvent) -> LinkNews {
        match event {
            LinkEvent::Imminent { lead } => self.warned(now, lead),
            LinkEvent::Down => self.cut(now),
            LinkEvent::Up => self.up(),
            LinkEvent::Complete => self.complete(),
        }
    }

    fn warned(&mut self, now: Time, lead: Duration) -> LinkNews {
        let Some(bound) = self.bound else { return LinkNews::Nothing };
        if matches!(self.phase, Phase::Cut { .. } | Phase::Attached) {
            return LinkNews::Nothing;
        }
        self.phase = Phase::Warned { until: now + lead + bound };
        LinkNews::Warned
    }

    fn cut(&mut self, now: Time) -> LinkNews {
        match self.phase {
            Phase::Cut { .. } => LinkNews::Nothing,
            Phase::Attached => {
                self.phase = Phase::Cut { since: now };
                LinkNews::Nothing
            }
            Phase::Carries | Phase::Found | Phase::Warned { .. } => {
                self.phase = Phase::Cut { since: now };
                LinkNews::Cut
            }
        }
    }

    fn up(&mut self) -> LinkNews {
        match (self.thaw, self.phase) {
            (Thaw::Up, _) => self.arrived(),
            (Thaw::Complete, Phase::Carries | Phase::Found) => LinkNews::Nothing,
            (Thaw::Complete, _) => {
                self.phase = Phase::Attached;
                LinkNews::Nothing
            }
        }
    }

    fn complete(&mut self) -> LinkNews {
        match (self.thaw, self.phase) {
            // What a plain disconnection waits for has come before.
            (Thaw::Up, Phase::Carries | Phase::Found) => LinkNews::Nothing,
            _ => self.arrived(),
        }
    }

    /// The event that ends a gap. Whoever has found out already does nothing twice.
    fn arrived(&mut self) -> LinkNews {
        let known = self.phase == Phase::Found;
        self.phase = Phase::Carries;
        if known { LinkNews::Nothing } else { LinkNews::Back }
    }

    /// What arrives through the new base, or a good while after a cut, shows that the news of the
    /// link's return was lost or is late.
    pub fn on_segment(&mut self, now: Time) -> LinkNews {
        let found = match self.phase {
            Phase::Attached => true,
            Phase::Cut { since } => now.since(since) >= self.bound.unwrap_or(Self::BOUND),
            Phase::Carries | Phase::Found | Phase::Warned { .. } => false,
        };
        if !found {
            return LinkNews::Nothing;
        }
        self.phase = Phase::Found;
        LinkNews::Back
    }

    /// The time is `now`: perhaps nothing came of a warning (LLT-9).
    pub fn on_timer(&mut self, now: Time) -> LinkNews {
        match self.phase {
            Phase::Warned { until } if until <= now => {
                self.phase = Phase::Carries;
                LinkNews::Back
            }
            _ => LinkNews::Nothing,
        }
    }

    /// When [`on_timer`](Self::on_timer) wants to be called; [`Time::NEVER`] if not at all.
    pub const fn deadline(&self) -> Time {
        match self.phase {
            Phase::Warned { until } => until,
            _ => Time::NEVER,
        }
    }

    /// What goes out is lost, as far as is known.
    pub const fn is_cut(&self) -> bool {
        matches!(self.phase, Phase::Cut { .. } | Phase::Attached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAD: Duration = Duration::from_millis(100);

    fn news(link: &mut LinkWatch, events: &[LinkEvent]) -> alloc::vec::Vec<LinkNews> {
        events.iter().map(|e| link.on_event(Time::from_secs(1), *e)).collect()
    }

    fn link(thaw: Thaw) -> LinkWatch {
        LinkWatch::new(thaw, Some(LinkWatch::BOUND))
    }

    use LinkEvent::{Complete, Down, Imminent, Up};
    use LinkNews::{Back, Cut, Nothing, Warned};

    /// LLT-5: a handoff ends with its completion, a plain disconnection with the link.
    #[test]
    fn what_ends_a_gap_is_configured() {
        let all = [Imminent { lead: LEAD }, Down, Up, Complete];
        assert_eq!(news(&mut link(Thaw::Up), &all), [Warned, Cut, Back, Nothing]);
        assert_eq!(news(&mut link(Thaw::Complete), &all), [Warned, Cut, Nothing, Back]);
    }

    #[test]
    fn doubled_events_are_news_once() {
        let mut it = link(Thaw::Complete);
        assert_eq!(news(&mut it, &[Down, Down, Up, Up]), [Cut, Nothing, Nothing, Nothing]);
        assert_eq!(news(&mut it, &[Down, Imminent { lead: LEAD }]), [Nothing, Nothing]);
        assert_eq!(news(&mut it, &[Complete]), [Back]);
        assert_eq!(news(&mut it, &[Down, Up, Imminent { lead: LEAD }]), [Cut, Nothing, Nothing]);
        assert_eq!(it.deadline(), Time::NEVER, "a warning about a link that is not back yet");
    }

    #[test]
    fn an_end_without_a_beginning_is_news() {
        assert_eq!(news(&mut link(Thaw::Up), &[Up, Complete]), [Back, Nothing]);
        assert_eq!(news(&mut link(Thaw::Complete), &[Up, Complete]), [Nothing, Back]);
        assert_eq!(news(&mut link(Thaw::Up), &[Down, Complete]), [Cut, Back]);
    }

    /// A segment that comes through the new base stands for the event, which then says nothing new.
    #[test]
    fn an_arrival_stands_for_a_late_event() {
        let mut it = link(Thaw::Complete);
        news(&mut it, &[Down]);
        assert_eq!(it.on_segment(Time::from_millis(1999)), Nothing);
        assert_eq!(news(&mut it, &[Up]), [Nothing]);
        assert_eq!(it.on_segment(Time::from_millis(1999)), Back);
        assert_eq!(it.on_segment(Time::from_millis(1999)), Nothing);
        assert_eq!(news(&mut it, &[Complete, Complete]), [Nothing, Back]);
        news(&mut it, &[Down]);
        assert_eq!(it.on_segment(Time::from_secs(2)), Back);
    }

    /// LLT-9: a warning holds for its lead and a bound.
    #[test]
    fn a_false_alarm_ends() {
        let mut it = link(Thaw::Complete);
        assert_eq!(it.deadline(), Time::NEVER);
        news(&mut it, &[Imminent { lead: LEAD }]);
        let end = Time::from_millis(2100);
        assert_eq!(it.deadline(), end);
        assert_eq!(it.on_timer(Time::from_millis(2099)), Nothing);
        assert_eq!(it.on_timer(end), Back);
        assert_eq!(it.deadline(), Time::NEVER);
        let never = Duration::MAX;
        assert_eq!(news(&mut it, &[Imminent { lead: never }]), [Warned]);
        assert_eq!(it.deadline(), Time::NEVER);
    }

    /// ATR-8: schemes without foresight ignore warnings.
    #[test]
    fn who_does_not_foresee_is_not_warned() {
        let mut it = LinkWatch::new(Thaw::Up, None);
        assert_eq!(news(&mut it, &[Imminent { lead: LEAD }, Down, Up]), [Nothing, Cut, Back]);
    }
}
