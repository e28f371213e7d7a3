//! The testbed of the tests here: mobiles and a base of one kind over a lossy carrier in virtual time.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use lasthop_units::{Seed, Stream as Numbers, Time};

use super::{AssociationEvent, AssociationId, BaseEnd, BaseLinks, MobileEnd, MobileLink};
use crate::path_id::PathId;
use crate::streams::{StreamId, Streams};
use crate::unreachable::Unreachable;

/// A carrier's address.
pub(super) type Addr = u16;

/// Where the base is.
pub(super) const BASE: Addr = 1000;

/// A mobile's address by a path is so much greater for each path before.
pub(super) const BY_NEXT_PATH: Addr = 10_000;

/// A datagram on its way.
struct Flying {
    at: Time,
    from: Addr,
    to: Addr,
    bytes: Vec<u8>,
}

/// Mobiles, the first of them at address 1, a base, and the carrier between them.
pub(super) struct Testbed<M: MobileLink<Address = Addr>, B: BaseLinks<Address = Addr>> {
    pub(super) now: Time,
    pub(super) mobiles: Vec<(Addr, MobileEnd<M>)>,
    pub(super) base: BaseEnd<B>,
    air: VecDeque<Flying>,
    delay: Duration,
    pub(super) loss: f64,
    numbers: Numbers,
    /// Everything that was ever sent, for whoever listens: from, to.
    pub(super) recorded: Vec<(Addr, Addr, Vec<u8>)>,
    pub(super) base_events: Vec<(AssociationId, AssociationEvent)>,
    /// What the mobiles' clock has missed of the base's: it stood while they were suspended.
    suspended: Duration,
    /// What the network says of each datagram to the base: then none passes, either way.
    pub(super) network: Option<Unreachable>,
    /// Paths that let nothing pass.
    pub(super) dark: Vec<PathId>,
}

impl<M: MobileLink<Address = Addr>, B: BaseLinks<Address = Addr>> Testbed<M, B> {
    /// `delay` is one way; `loss` is a datagram's chance, drawn from `seed`.
    pub(super) fn between(
        mobile: MobileEnd<M>,
        base: BaseEnd<B>,
        delay: Duration,
        loss: f64,
        seed: u64,
    ) -> Self {
        Self {
            now: Time::ZERO,
            mobiles: vec![(1, mobile)],
            base,
            air: VecDeque::new(),
            delay,
            loss,
            numbers: Seed::from_u64(seed).stream("loss"),
            recorded: Vec::new(),
            base_events: Vec::new(),
            suspended: Duration::ZERO,
            network: None,
            dark: Vec::new(),
        }
    }

    /// What the mobiles' clock reads.
    fn mobile_now(&self) -> Time {
        self.now - self.suspended
    }

    /// The mobiles are suspended for `time`: they neither do anything nor see it pass, and what is sent to
    /// them is lost.
    pub(super) fn suspend(&mut self, time: Duration) {
        let until = self.now + time;
        let mut out = [0; 2000];
        self.air.retain(|flying| flying.to == BASE);
        while let Some(next) = self.base.next_timeout().filter(|at| *at < until) {
            self.now = self.now.max(next);
            self.base.handle_timeout(self.now);
            while self.base.poll_transmit(self.now, &mut out).is_some() {}
            self.base_events.extend(core::iter::from_fn(|| self.base.poll_event()));
        }
        self.now = until;
        self.suspended += time;
    }

    pub(super) fn fly(&mut self, from: Addr, to: Addr, bytes: Vec<u8>) {
        self.recorded.push((from, to, bytes.clone()));
        let path = PathId((from.max(to) / BY_NEXT_PATH) as u8);
        if !self.numbers.chance(self.loss) && !self.dark.contains(&path) {
            self.air.push_back(Flying { at: self.now + self.delay, from, to, bytes });
        }
    }

    pub(super) fn transmit(&mut self) {
        let mut out = [0; 2000];
        for i in 0..self.mobiles.len() {
            let from = self.mobiles[i].0;
            let now = self.mobile_now();
            while let Some(t) = self.mobiles[i].1.poll_transmit(now, &mut out) {
                let from = from + BY_NEXT_PATH * Addr::from(t.path.0);
                self.fly(from, t.to, out[..t.len].to_vec());
            }
        }
        while let Some(t) = self.base.poll_transmit(self.now, &mut out) {
            self.fly(BASE, t.to, out[..t.len].to_vec());
        }
        self.base_events.extend(core::iter::from_fn(|| self.base.poll_event()));
    }

    pub(super) fn step(&mut self, until: Time) -> bool {
        self.transmit();
        let missed = self.suspended;
        let timers = self.mobiles.iter().filter_map(|m| m.1.next_timeout());
        let timers = timers.map(|at| if at == Time::NEVER { at } else { at + missed });
        let arrivals = self.air.front().map(|f| f.at);
        let next = timers.chain(arrivals).chain(self.base.next_timeout()).min();
        let Some(next) = next.filter(|t| *t < until) else {
            self.now = until;
            return false;
        };
        self.now = self.now.max(next);
        let mobile_now = self.mobile_now();
        while self.air.front().is_some_and(|f| f.at <= self.now)
            && let Some(mut f) = self.air.pop_front()
        {
            if f.to == BASE
                && let Some(what) = self.network
            {
                if let Some(m) = self.mobiles.iter_mut().find(|m| m.0 == f.from) {
                    m.1.handle_unreachable(mobile_now, what);
                }
            } else if f.to == BASE {
                self.base.handle_datagram(self.now, f.from, &mut f.bytes);
            } else if self.network.is_none()
                && let Some(m) = self.mobiles.iter_mut().find(|m| m.0 == f.to % BY_NEXT_PATH)
            {
                m.1.handle_datagram(mobile_now, f.from, &mut f.bytes);
            }
        }
        for (_, mobile) in &mut self.mobiles {
            if mobile.next_timeout().is_some_and(|t| t <= mobile_now) {
                mobile.handle_timeout(mobile_now);
            }
        }
        self.base.handle_timeout(self.now);
        true
    }

    pub(super) fn run(&mut self, time: Duration) {
        let until = self.now + time;
        let mut steps = 0_u32;
        while self.step(until) {
            steps += 1;
            assert!(steps < 2_000_000, "nothing makes the time pass at {:?}", self.now);
        }
        self.transmit();
    }

    pub(super) fn mobile(&mut self) -> &mut MobileEnd<M> {
        &mut self.mobiles[0].1
    }

    pub(super) fn mobile_events(&mut self) -> Vec<AssociationEvent> {
        core::iter::from_fn(|| self.mobile().poll_association_event()).collect()
    }
}

/// Everything that has come on a stream.
pub(super) fn read(s: &mut impl Streams, id: StreamId) -> Vec<u8> {
    let mut all = Vec::new();
    while !s.received(id).is_empty() {
        let data = s.received(id).to_vec();
        s.consume(id, data.len());
        all.extend(data);
    }
    all
}
