//! User priorities: how the streams of an association divide what the hop carries (RWC).
//!
//! Each stream is a connection of the kernel's, with a congestion window of its own, and the kernel
//! divides nothing among them. What can be divided is what each receiver lets its sender have on its
//! way, as the paper on receiver window control has it: if these windows and not the congestion
//! windows bind, rates are as the windows are (RWC-11). So together they must be a little more than
//! the hop holds, which is the rate at which it was seen to deliver times its least round trip: with
//! less the hop would be idle, with much more congestion windows would bind and queues overflow.
//!
//! Streams whose sender has nothing to send, or whose congestion window is small for other reasons,
//! do not use their windows. Those divide nothing: what they leave goes to the others.

use std::collections::BTreeMap;
use std::time::Duration;

use lasthop_stream::Shares;
use lasthop_units::Time;

/// The priority of a stream of which nobody has said anything.
pub(super) const USUAL: u32 = 1;
/// Into so many parts a window is divided.
const UNITS: u64 = 1024;
/// The windows together, in what the hop holds: that it does not run dry while acknowledgements are
/// on their way, and that a higher rate is found.
const GAIN: f64 = 1.2;
/// What processes take to move bytes and to say so, beside the round trip.
const SLACK: Duration = Duration::from_millis(3);
/// The windows together are never less than this for each stream: should the hop be measured while it
/// is idle, rates still grow from here.
const EACH_LEAST: u64 = 16 * 1024;
/// How often is looked at what streams have moved, or every two round trips if these are longer.
const INTERVAL: Duration = Duration::from_millis(100);
/// The highest rate is forgotten by so much with each look, for hops that become slower.
const FORGET: f64 = 0.97;
/// A stream that uses less of its window than this part of what the others use does not need it.
const HUNGRY: f64 = 0.5;
/// So it has to be for so many looks in a row: a congestion window may first have to grow.
const LOOKS: u32 = 30;
/// Who did not need his window is tried again after so many looks, for a few of them.
const AGAIN: u32 = 2 * LOOKS;
const TRIAL: u32 = 3;
/// A stream's window is never less: a few full segments.
const WINDOW_LEAST: u64 = 4 * 1460;
/// What the round trip counts where nothing is known of it, or as nothing.
const ROUND_TRIP_LEAST: Duration = Duration::from_millis(1);

/// What is known of one stream in one direction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Flow {
    pub(super) id: u64,
    pub(super) priority: u32,
    /// Bytes moved since it began.
    pub(super) moved: u64,
}

#[derive(Clone, Copy, Default, Debug)]
struct Member {
    moved: u64,
    /// Moved in the last interval.
    lately: u64,
    window: Option<u64>,
    /// For how many looks it has not used its window.
    sparing: u32,
}

impl Member {
    /// It would use a larger window.
    fn is_hungry(&self) -> bool {
        self.lately > 0 && self.sparing < LOOKS
    }
}

/// Divides one direction's windows among streams.
#[derive(Debug, Default)]
pub(super) struct Division {
    members: BTreeMap<u64, Member>,
    looked: Option<Time>,
    /// The rate that is divided, in bytes a second, once it was measured.
    rate: Option<f64>,
    round_trip: Duration,
}

impl Division {
    /// When it wants to [look](Self::look) again.
    pub(super) fn next_look(&self) -> Option<Time> {
        Some(self.looked? + INTERVAL.max(2 * self.round_trip))
    }

    /// Looks at all streams; `round_trip` is the hop's least.
    pub(super) fn look(&mut self, now: Time, round_trip: Duration, flows: &[Flow]) {
        self.round_trip = round_trip.max(ROUND_TRIP_LEAST);
        let elapsed = self.looked.map(|looked| now.since(looked)).filter(|t| !t.is_zero());
        self.looked = Some(now);
        self.members.retain(|id, _| flows.iter().any(|flow| flow.id == *id));
        for flow in flows {
            let member = self
                .members
                .entry(flow.id)
                .or_insert(Member { moved: flow.moved, ..Member::default() });
            member.lately = flow.moved.saturating_sub(member.moved);
            member.moved = flow.moved;
        }
        let Some(elapsed) = elapsed else { return };
        self.judge();
        let hungry = self.members.values().filter(|member| member.is_hungry());
        let moved: u64 = hungry.map(|member| member.lately).sum();
        let rate = moved as f64 / elapsed.as_secs_f64();
        self.rate = Some(self.rate.map_or(rate, |known| rate.max(known * FORGET)));
        self.divide(flows);
    }

    /// Divides as priorities say by now, without a new look.
    pub(super) fn redivide(&mut self, flows: &[Flow]) {
        self.members.values_mut().for_each(|member| member.sparing = 0);
        self.divide(flows);
    }

    /// A stream's window, if it has to keep to one.
    pub(super) fn window(&self, id: u64) -> Option<u64> {
        self.members.get(&id)?.window
    }

    /// Finds out who does not need his window.
    fn judge(&mut self) {
        // Of what a stream may have on its way it moves all in a round trip, if nothing else binds.
        let use_of = |m: &Member| m.window.map(|window| m.lately as f64 / window.max(1) as f64);
        let most = self.members.values().filter_map(use_of).fold(0.0, f64::max);
        for member in self.members.values_mut() {
            let spares = use_of(member).is_some_and(|used| used < HUNGRY * most);
            member.sparing = match member.sparing {
                AGAIN.. => LOOKS - TRIAL,
                n if spares || n >= LOOKS => n + 1,
                _ => 0,
            };
        }
    }

    fn divide(&mut self, flows: &[Flow]) {
        let Some(rate) = self.rate else { return };
        let hungry: Vec<u64> =
            self.members.iter().filter(|(_, m)| m.is_hungry()).map(|(id, _)| *id).collect();
        // One alone has all that there is, and so has who needs less.
        self.members.values_mut().for_each(|member| member.window = None);
        if hungry.len() < 2 {
            return;
        }
        let time = self.round_trip.mul_f64(GAIN) + SLACK;
        let all = (rate * time.as_secs_f64()) as u64;
        let all = all.max(EACH_LEAST * hungry.len() as u64);
        let mut shares = Shares::new(UNITS, usize::MAX);
        let flows = flows.iter().filter(|flow| hungry.binary_search(&flow.id).is_ok());
        shares.replace(flows.map(|flow| (flow.id, flow.priority)), None);
        for (id, share) in shares.iter() {
            if let Some(member) = self.members.get_mut(&id) {
                member.window = Some((all * share / UNITS).max(WINDOW_LEAST));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(40);

    /// A hop that carries `rate` bytes a second in all, and streams whose windows bind where they
    /// have any; else they have equal parts. `wants` bounds what a stream's sender has.
    struct Hop {
        rate: f64,
        wants: Vec<f64>,
        flows: Vec<Flow>,
        division: Division,
        now: Time,
    }

    impl Hop {
        fn new(wants: &[f64]) -> Self {
            let flow = |id| Flow { id: id as u64, priority: 1, moved: 0 };
            Self {
                rate: 2.5e6,
                wants: wants.to_vec(),
                flows: (0..wants.len()).map(flow).collect(),
                division: Division::default(),
                now: Time::ZERO,
            }
        }

        /// What each moves in a second, after a while.
        fn rates(&mut self, priorities: &[u32]) -> Vec<f64> {
            for (flow, priority) in self.flows.iter_mut().zip(priorities) {
                flow.priority = *priority;
            }
            self.division.redivide(&self.flows);
            let mut moved = vec![0.0; self.wants.len()];
            for _ in 0..50 {
                self.now += INTERVAL;
                let part = self.rate / self.wants.len() as f64;
                let offer = |id: u64, wants: f64| match self.division.window(id) {
                    Some(window) => (window as f64 / ROUND_TRIP.as_secs_f64()).min(wants),
                    None => (3.0 * part).min(wants),
                };
                let offers: Vec<f64> =
                    self.wants.iter().enumerate().map(|(i, w)| offer(i as u64, *w)).collect();
                // A queue makes the round trip longer, which slows whom a window binds; who has
                // little to send sends that.
                let sends_all = |i: usize| offers[i] >= self.wants[i];
                let sum = |all: bool| -> f64 {
                    (0..offers.len()).filter(|i| sends_all(*i) == all).map(|i| offers[i]).sum()
                };
                let longer = (sum(false) / (self.rate - sum(true))).max(1.0);
                let slowed = |i: usize| if sends_all(i) { 1.0 } else { longer };
                moved = (0..offers.len()).map(|i| offers[i] / slowed(i)).collect();
                for (flow, moved) in self.flows.iter_mut().zip(&moved) {
                    flow.moved += (moved * INTERVAL.as_secs_f64()) as u64;
                }
                self.division.look(self.now, ROUND_TRIP, &self.flows);
            }
            moved
        }
    }

    const ENDLESS: f64 = 1e12;

    /// RWC-2, RWC-11: where windows bind, rates follow priorities, and the hop stays full.
    #[test]
    fn rates_follow_priorities_and_the_hop_stays_full() {
        let mut hop = Hop::new(&[ENDLESS, ENDLESS]);
        for (priorities, part) in [([1, 1], 0.5), ([2, 1], 2.0 / 3.0), ([1, 3], 0.25)] {
            let rates = hop.rates(&priorities);
            let sum: f64 = rates.iter().sum();
            assert!((rates[0] / sum - part).abs() < 0.01, "{priorities:?}: {rates:?}");
            assert!((sum / hop.rate - 1.0).abs() < 0.01, "{priorities:?}: {rates:?}");
        }
    }

    #[test]
    fn a_hop_that_becomes_faster_or_slower_is_followed() {
        let mut hop = Hop::new(&[ENDLESS, ENDLESS]);
        for rate in [2.5e6, 1e7, 1e6] {
            hop.rate = rate;
            let sum: f64 = hop.rates(&[3, 1]).iter().sum();
            assert!((sum / rate - 1.0).abs() < 0.05, "{sum} of {rate}");
        }
    }

    #[test]
    fn what_one_does_not_need_the_others_get() {
        let mut hop = Hop::new(&[2e5, ENDLESS, ENDLESS]);
        let rates = hop.rates(&[8, 1, 1]);
        assert!((rates[0] / 2e5 - 1.0).abs() < 0.1, "{rates:?}");
        let sum: f64 = rates.iter().sum();
        assert!(sum > 0.95 * hop.rate, "{rates:?}");
    }

    #[test]
    fn one_stream_alone_has_no_window_to_keep_to() {
        let mut hop = Hop::new(&[ENDLESS]);
        hop.rates(&[5]);
        assert_eq!(hop.division.window(0), None);
        assert!(hop.division.next_look().is_some());
    }
}
