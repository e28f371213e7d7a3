//! User priorities: how the streams of an association divide what the hop carries (RWC).
//!
//! Each stream is a connection of the kernel's, with a congestion window of its own, and the kernel
//! divides nothing among them. What can be divided is what each receiver lets its sender have on its
//! way, as the paper on receiver window control has it: if these windows and not the congestion
//! windows bind, rates are as the windows are (RWC-11). So together they must be a little more than
//! the hop holds, which is the rate at which it was seen to deliver times its least round trip: with
//! less the hop would be idle, with much more congestion windows would bind and queues overflow.
//!
//! A stream whose sender has nothing to send, or whose congestion window is small for other reasons,
//! does not use its window. What it leaves goes to the others, but for room to use more: would it all
//! go to them, their queue would keep a congestion window small that is about to grow.

use std::collections::BTreeMap;
use std::time::Duration;

use lasthop_stream::Shares;
use lasthop_units::Time;

/// The priority of a stream that was given none.
pub(super) const USUAL: u32 = 1;
/// Into so many parts a window is divided.
const UNITS: u64 = 1024;
/// The windows together, in what the hop holds: that a higher rate is found.
const GAIN: f64 = 1.1;
/// What processes take to move bytes and to acknowledge them, beside the round trip.
const SLACK: Duration = Duration::from_millis(3);
/// And so much for each stream: a record, which is acknowledged when it is whole. Without it the hop
/// would run dry, be taken for slower, and so be given less and less. Should it be measured while it is
/// idle, rates still grow from here.
const EACH: u64 = 16 * 1024;
/// How often it is measured what streams have moved, or every two round trips if these are longer.
const INTERVAL: Duration = Duration::from_millis(100);
/// With each measurement the rate grows by no more than this: what a hop delivers in a burst after it
/// stood still is not its rate.
const GROWTH: f64 = 1.25;
/// Of what a stream has moved lately so much counts for its rate.
const WEIGHT: f64 = 1.0 / 3.0;
/// By how much the highest rate decays with each measurement, for hops that become slower.
const DECAY: f64 = 0.97;
/// A stream that uses less of what is due to it than this part of what the others use does not need
/// it.
const UNDERUSED: f64 = 0.5;
/// So it has to be for so many measurements in a row: a congestion window may first have to grow. A
/// stream that has moved nothing for so long takes no part.
const INTERVALS: u32 = 30;
/// What is left to a stream that does not use its window, in what it uses.
const ROOM: f64 = 1.5;
/// A stream's window is never less: a few full segments.
const WINDOW_LEAST: u64 = 4 * 1460;
/// The least that the round trip counts, also where it is not known.
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
    /// Bytes a second.
    rate: f64,
    /// Its part of the windows together, if all were used.
    due: Option<u64>,
    window: Option<u64>,
    /// For how many measurements it has not used what is due to it.
    underused: u32,
    /// For how many it has moved nothing.
    idle: u32,
}

impl Member {
    /// It has moved something lately.
    fn is_divided(&self) -> bool {
        self.rate > 0.0 && self.idle < INTERVALS
    }

    /// It would use a larger window.
    fn wants_more(&self) -> bool {
        self.is_divided() && self.underused < INTERVALS
    }

    /// What it uses of what is due to it.
    fn used(&self) -> Option<f64> {
        self.due.map(|due| self.rate / due.max(1) as f64)
    }
}

/// Divides one direction's windows among streams.
#[derive(Debug, Default)]
pub(super) struct Division {
    members: BTreeMap<u64, Member>,
    measured_at: Option<Time>,
    /// The rate that is divided, in bytes a second, once it was measured.
    rate: Option<f64>,
    round_trip: Duration,
}

impl Division {
    /// When to [update](Self::update) again.
    pub(super) fn next_update(&self) -> Option<Time> {
        Some(self.measured_at? + INTERVAL.max(2 * self.round_trip))
    }

    /// Measures what all streams have moved; `round_trip` is the hop's least.
    pub(super) fn update(&mut self, now: Time, round_trip: Duration, flows: &[Flow]) {
        self.round_trip = round_trip.max(ROUND_TRIP_LEAST);
        let elapsed =
            self.measured_at.map(|measured_at| now.since(measured_at)).filter(|t| !t.is_zero());
        self.measured_at = Some(now);
        self.members.retain(|id, _| flows.iter().any(|flow| flow.id == *id));
        let mut moved = 0;
        for flow in flows {
            let new = Member { moved: flow.moved, ..Member::default() };
            let member = self.members.entry(flow.id).or_insert(new);
            let lately = flow.moved.saturating_sub(member.moved);
            member.moved = flow.moved;
            moved += lately;
            member.idle = if lately > 0 { 0 } else { member.idle.saturating_add(1) };
            if let Some(elapsed) = elapsed {
                smooth(&mut member.rate, lately as f64 / elapsed.as_secs_f64());
            }
        }
        let Some(elapsed) = elapsed else { return };
        self.find_underused();
        let rate = moved as f64 / elapsed.as_secs_f64();
        // While a stream has yet to fill its window the hop is not full, and its rate is not seen.
        let waits = self.members.values().any(|m| m.wants_more() && m.underused > 0);
        let decay = if waits { 1.0 } else { DECAY };
        // What the least windows let through is no burst.
        let least = (EACH * flows.len() as u64) as f64 / self.round_trip.as_secs_f64();
        let follow = |known: f64| (known * decay).max(rate.min(known.max(least) * GROWTH));
        self.rate = Some(self.rate.map_or(rate, follow));
        self.divide(flows);
    }

    /// Divides by the present priorities, without measuring.
    pub(super) fn redivide(&mut self, flows: &[Flow]) {
        self.members.values_mut().for_each(|member| member.underused = 0);
        self.divide(flows);
    }

    /// A stream's window, if it has to keep to one.
    pub(super) fn window(&self, id: u64) -> Option<u64> {
        self.members.get(&id)?.window
    }

    /// Finds the streams that do not use their share.
    fn find_underused(&mut self) {
        let most = self.members.values().filter_map(Member::used).fold(0.0, f64::max);
        for member in self.members.values_mut() {
            let underuses = member.used().is_some_and(|used| used < UNDERUSED * most);
            member.underused = if underuses { member.underused.saturating_add(1) } else { 0 };
        }
    }

    fn divide(&mut self, flows: &[Flow]) {
        let Some(rate) = self.rate else { return };
        for member in self.members.values_mut() {
            (member.due, member.window) = (None, None);
        }
        let takes_part = |flow: &&Flow| self.members.get(&flow.id).is_some_and(Member::is_divided);
        let mut flows: Vec<Flow> = flows.iter().filter(takes_part).copied().collect();
        // One alone has all that there is.
        if flows.len() < 2 {
            return;
        }
        let time = (self.round_trip.mul_f64(GAIN) + SLACK).as_secs_f64();
        let all = (rate * time) as u64 + EACH * flows.len() as u64;
        let mut left = all;
        for (id, due) in shares(all, &flows) {
            let Some(member) = self.members.get_mut(&id) else { continue };
            (member.due, member.window) = (Some(due), Some(due));
            if !member.wants_more() {
                left -= due.min((member.rate * time * ROOM) as u64 + EACH).min(left);
            }
        }
        flows.retain(|flow| self.members.get(&flow.id).is_some_and(Member::wants_more));
        for (id, window) in shares(left, &flows) {
            if let Some(member) = self.members.get_mut(&id) {
                member.window = Some(window);
            }
        }
    }
}

/// A new sample of a rate.
fn smooth(known: &mut f64, sample: f64) {
    let weight = if *known > 0.0 { WEIGHT } else { 1.0 };
    *known += weight * (sample - *known);
}

/// `all` bytes in parts by priority.
fn shares(all: u64, flows: &[Flow]) -> Vec<(u64, u64)> {
    let mut shares = Shares::new(UNITS, usize::MAX);
    shares.replace(flows.iter().map(|flow| (flow.id, flow.priority)), None);
    shares.iter().map(|(id, share)| (id, (all * share / UNITS).max(WINDOW_LEAST))).collect()
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
        /// Records count when they are whole, and acknowledgements are sent in steps.
        has_records: bool,
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
                has_records: false,
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
                    Some(window) => in_a_second(window, self.has_records).min(wants),
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
                self.division.update(self.now, ROUND_TRIP, &self.flows);
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

    /// RWC-11: a stream that has lost much is not kept small by those that have what it leaves.
    #[test]
    fn a_stream_that_uses_little_keeps_room_to_use_more() {
        let mut hop = Hop::new(&[ENDLESS, 4e5]);
        hop.rates(&[1, 3]);
        let may = |n| hop.division.window(n).map(|window| in_a_second(window, false));
        let held = hop.rate - may(0).unwrap_or(ENDLESS);
        assert!(may(1).unwrap_or(0.0) > 1.5 * hop.rate / 2.0);
        assert!(held < 4e5, "what one leaves the other has: {held}");
        hop.wants[1] = ENDLESS;
        let rates = hop.rates(&[1, 3]);
        assert!((rates[0] / (rates[0] + rates[1]) - 0.25).abs() < 0.01, "{rates:?}");
    }

    #[test]
    fn after_a_pause_the_rate_is_soon_what_it_was() {
        let mut hop = Hop::new(&[ENDLESS, ENDLESS]);
        hop.rates(&[1, 3]);
        hop.rate = 1e3;
        hop.rates(&[1, 3]);
        hop.rate = 2.5e6;
        let sum: f64 = hop.rates(&[1, 3]).iter().sum();
        assert!(sum > 0.99 * hop.rate, "{sum}");
    }

    /// What a hop delivers at once after it stood still is no rate to divide.
    #[test]
    fn a_burst_after_a_silence_is_not_taken_for_the_rate() {
        let mut hop = Hop::new(&[ENDLESS, ENDLESS]);
        hop.rates(&[1, 3]);
        let before = hop.division.window(1).unwrap();
        for burst in [0.0, 2.0] {
            hop.now += INTERVAL;
            let bytes = burst * hop.rate * INTERVAL.as_secs_f64();
            hop.flows[0].moved += (0.25 * bytes) as u64;
            hop.flows[1].moved += (0.75 * bytes) as u64;
            hop.division.update(hop.now, ROUND_TRIP, &hop.flows);
        }
        let after = hop.division.window(1).unwrap();
        assert!(after as f64 <= GROWTH * before as f64, "{before} became {after}");
    }

    /// What a window lets through in a second, less what came and is not acknowledged yet.
    fn in_a_second(window: u64, has_records: bool) -> f64 {
        let window = window as f64;
        let unacknowledged =
            if has_records { (window / 4.0).min(12e3) + window / 8.0 } else { 0.0 };
        (window - unacknowledged) / ROUND_TRIP.as_secs_f64()
    }

    /// What is not acknowledged yet must not be taken for a slower hop, whose windows would be smaller,
    /// and so on down.
    #[test]
    fn unacknowledged_bytes_do_not_shrink_the_windows() {
        let mut hop = Hop::new(&[ENDLESS, ENDLESS]);
        hop.has_records = true;
        for rate in [2.5e5, 1e6, 2.5e6, 1.25e7] {
            hop.rate = rate;
            for priorities in [[1, 1], [1, 3], [2, 1]] {
                let sum: f64 = hop.rates(&priorities).iter().sum();
                assert!(sum > 0.98 * rate, "{sum} of {rate}, {priorities:?}");
            }
        }
    }

    #[test]
    fn one_stream_alone_has_no_window_to_keep_to() {
        let mut hop = Hop::new(&[ENDLESS]);
        hop.rates(&[5]);
        assert_eq!(hop.division.window(0), None);
        assert!(hop.division.next_update().is_some());
    }
}
