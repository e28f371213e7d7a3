//! What the world does at its bases and at the mobile when their machines say so, and what happens to
//! bases.

use lasthop_hop::Streams;

use super::*;

/// How long a base keeps an association from which it receives nothing.
const IDLE: Duration = Duration::from_secs(90);

impl Roaming {
    /// A base loses all state and begins anew. The mobile, if it is with it, has yet to notice.
    pub(super) fn crash(&mut self, at: usize) {
        trace!(self, "crash of {}", at + 1);
        self.crashes += 1;
        let is_at = self.is_at(at);
        self.cut |= is_at;
        let station = &mut self.stations[at];
        (station.machine, station.guest) = (base(self.config, at as u32 + 1), None);
        if station.surrogate.take().is_some() || is_at {
            self.spoil_all();
        }
        // What was on its way to it is still.
        self.poll();
    }

    /// As [`crash`](Self::crash), of the machine alone.
    pub(super) fn restart(&mut self, at: usize) {
        self.stations[at].machine = base(self.config, at as u32 + 1);
        self.mobile.reached(self.now, at as u32 + 1);
        self.poll();
        while self.deliver() {}
    }

    /// Whether the mobile's hop leads to that base.
    pub(super) fn is_at(&self, at: usize) -> bool {
        let station = &self.stations[at];
        [&station.surrogate, &station.guest].into_iter().flatten().any(|s| s.pair == self.pair)
    }

    /// Nothing is promised any more of connections that are open, nor of those whose last bytes only
    /// a base has.
    pub(super) fn spoil_all(&mut self) {
        let up = |id: &ConnId| self.wired.get(id).map_or(0, |wired| wired.up);
        let open = self.apps.iter().filter(|(id, app)| !app.closed || up(id) < app.written);
        self.spoiled.extend(open.map(|(id, _)| *id));
    }

    /// The mobile notices that its base was restarted, and makes an association anew.
    pub(super) fn notice(&mut self) {
        if !core::mem::take(&mut self.cut) {
            return;
        }
        let going = self.mobile.going();
        let base = going.unwrap_or(self.mobile.base());
        // What came by the old association is of no use to anybody.
        self.flying.retain(|(from, to, _)| (*from, *to) != (base, MOBILE));
        if going.is_none() {
            self.spoil_all();
            let hop = &mut self.pairs[self.pair].mobile;
            self.session.reset_all(hop, ResetReason::AssociationLost);
        }
        if self.early || going.is_none() {
            self.session.suspend(self.now, &mut self.pairs[self.pair].mobile);
            let before = self.pair;
            self.associate(base);
            self.resume_after(before);
        }
        self.mobile.reached(self.now, base);
        self.poll();
    }

    /// The connections go on over the new hop, and the base before still sends what it has got.
    fn resume_after(&mut self, before: usize) {
        self.session.expect(self.limits.blind());
        self.session.resume(self.now, &mut self.pairs[self.pair].mobile, ID);
        for (id, stream) in self.session.waiting() {
            let arrived = self.pairs[before].mobile.arrived(stream).expect("it was detached there");
            let hop = &mut self.pairs[self.pair].mobile;
            self.session.handle_arrived(self.now, hop, id, arrived);
        }
    }

    /// The mobile makes a hop to that base.
    pub(super) fn associate(&mut self, base: u32) {
        self.pair = self.pairs.len();
        self.cut = false;
        self.pairs.push(Pair::new(self.limits));
        let session = Session::base(crate::Config::base());
        let guest = Surrogate::new(session, self.pair, self.attempt, self.now);
        self.stations[base as usize - 1].guest = Some(guest);
    }

    /// Nothing comes from elsewhere to that base: what the mobile asks for there is answered by what
    /// it has.
    pub(super) fn decline(&mut self, at: usize) {
        let station = &mut self.stations[at];
        if let Some(guest) = &mut station.guest {
            guest.session.decline(self.now, &mut self.pairs[guest.pair].base, ID);
            guest.wanted = false;
        }
    }

    /// Bases drop associations from which they have received nothing for long.
    pub(super) fn drop_idle(&mut self) {
        let (now, pair) = (self.now, self.pair);
        for station in &mut self.stations {
            for slot in [&mut station.surrogate, &mut station.guest].into_iter().flatten() {
                if slot.pair == pair {
                    slot.alive = now;
                }
            }
            let idle = |slot: &mut Surrogate| slot.alive + IDLE <= now;
            station.guest.take_if(idle);
            if station.surrogate.take_if(idle).is_some() {
                station.machine.remove(ID);
            }
        }
    }

    pub(super) fn on_mobile_event(&mut self, event: MobileEvent<u32>) {
        match event {
            MobileEvent::Suspend { to } => {
                self.attempt += 1;
                self.session.suspend(self.now, &mut self.pairs[self.pair].mobile);
                if self.early {
                    let before = self.pair;
                    self.associate(to);
                    self.resume_after(before);
                }
            }
            MobileEvent::Resumed { base } => {
                self.resumed += 1;
                if !self.early {
                    self.carry_on(base);
                } else if let Some(guest) = &mut self.stations[base as usize - 1].guest {
                    // A greeting that was lost would have come later.
                    guest.greeted |= guest.pair == self.pair;
                }
            }
            MobileEvent::Refused { .. }
            | MobileEvent::TakeOver
            | MobileEvent::Unexpected { .. } => {}
            MobileEvent::Broken(_) => {
                assert!(!self.panics_on_broken, "{event:?} at {:?}", self.now);
                self.broken += 1;
                self.spoil_all();
                let hop = &mut self.pairs[self.pair].mobile;
                self.session.reset_all(hop, ResetReason::AssociationLost);
                // What the base may yet get is not wanted any more: an empty roll says so.
                if self.early {
                    self.session.suspend(self.now, &mut self.pairs[self.pair].mobile);
                    self.session.resume(self.now, &mut self.pairs[self.pair].mobile, ID);
                } else {
                    self.carry_on(self.mobile.base());
                }
            }
        }
    }

    /// A hop to the base where the session stands, or begins anew.
    pub(super) fn carry_on(&mut self, base: u32) {
        self.associate(base);
        let station = &mut self.stations[base as usize - 1];
        if let Some(surrogate) = &mut station.surrogate {
            (surrogate.pair, station.guest) = (self.pair, None);
        }
        self.session.resume(self.now, &mut self.pairs[self.pair].mobile, ID);
        self.mobile.reached(self.now, base);
    }

    pub(super) fn on_base_event(&mut self, at: usize, event: BaseEvent<u32>) {
        let station = &mut self.stations[at];
        match event {
            BaseEvent::Freeze { session, mobile } => {
                assert_eq!(mobile, Some(MOBILE));
                let is_here = self.early && station.surrogate.is_some();
                if is_here && station.machine.stays(self.now, session) {
                    return;
                }
                let state = station.surrogate.take().map(|mut surrogate| {
                    let hop = &mut self.pairs[surrogate.pair].base;
                    let mut state = surrogate.session.freeze(self.now, hop, session);
                    assert_eq!(surrogate.session.connections(), 0);
                    for connection in &mut state.connections {
                        let wired = self.wired.entry(ConnId(connection.id)).or_default();
                        connection.wired = wired.encode();
                    }
                    state
                });
                station.machine.frozen(self.now, session, state);
            }
            BaseEvent::Rebuild { state, mobile } => {
                assert_eq!(mobile, MOBILE);
                for connection in &state.connections {
                    let id = ConnId(connection.id);
                    // One that a crash took may have been asked for anew since.
                    let wired = self.wired.get(&id).filter(|_| !self.spoiled.contains(&id));
                    let Some(wired) = wired else { continue };
                    assert_eq!(connection.wired, wired.encode(), "two bases use one connection");
                }
                let session = state.session;
                // That of a later handoff has to wait for it: another base may be in between.
                let guest = station.guest.take_if(|guest| guest.greeted);
                station.surrogate = Some(match guest {
                    Some(mut guest) => {
                        guest.session.adopt(self.now, state);
                        guest.wanted = false;
                        guest
                    }
                    None => {
                        self.pairs.push(Pair::new(self.limits));
                        let mut session = Session::base(crate::Config::base());
                        session.adopt(self.now, state);
                        Surrogate::new(session, self.pairs.len() - 1, self.attempt, self.now)
                    }
                });
                station.machine.rebuilt(self.now, session, true);
                let users = self.stations.iter().filter(|s| s.surrogate.is_some()).count();
                let anew = self.broken > 0 || self.crashes > 0;
                assert!(users == 1 || anew, "a state is never used by two bases");
            }
            BaseEvent::Copy(session) => {
                let state = station.surrogate.as_ref().map(|surrogate| {
                    let hop = &self.pairs[surrogate.pair].base;
                    let mut state =
                        surrogate.session.preview(hop, session, Config::base().state_max);
                    for connection in &mut state.connections {
                        let wired = self.wired.entry(ConnId(connection.id)).or_default();
                        connection.wired = wired.encode();
                    }
                    state
                });
                station.machine.copied(self.now, session, state);
            }
            BaseEvent::Over { .. } => station.surrogate = None,
            BaseEvent::Begins { .. } => {
                self.decline(at);
                let station = &mut self.stations[at];
                if let Some(guest) = station.guest.take() {
                    station.surrogate = Some(guest);
                }
            }
            BaseEvent::Forward { to, .. } => {
                assert!(self.went.values().any(|base| *base == to), "{event:?}");
            }
            BaseEvent::Resumed { .. }
            | BaseEvent::Lost { .. }
            | BaseEvent::Expired(_)
            | BaseEvent::TakeOver { .. }
            | BaseEvent::Fenced { .. }
            | BaseEvent::Refused { .. } => {}
        }
    }

    pub(super) fn poll_sessions(&mut self) {
        while let Some(event) = self.session.poll_event(self.now, &mut self.pairs[self.pair].mobile)
        {
            let app = self.apps.entry(event.id()).or_default();
            assert!(!app.closed, "{event:?} after Closed");
            match &event {
                Event::Opened { .. } => app.open = true,
                Event::Closed(_) => app.closed = true,
                Event::Failed { id, .. } | Event::Reset { id, .. } => {
                    assert!(self.spoiled.contains(id), "{event:?}");
                }
                _ => {}
            }
            trace!(self, "app: {event:?}");
            self.events.push(event);
        }
        for station in &mut self.stations {
            for used in [&mut station.surrogate, &mut station.guest].into_iter().flatten() {
                let Surrogate { session, pair, asked, .. } = used;
                while let Some(event) = session.poll_event(self.now, &mut self.pairs[*pair].base) {
                    trace!(self, "wired: {event:?}");
                    match event {
                        Event::Connect { id, .. } => {
                            // What a base that was restarted had for it is over.
                            self.wired.insert(id, Wired::default());
                            asked.push(id);
                        }
                        Event::Reset { id, reason } => {
                            asked.retain(|other| *other != id);
                            assert!(self.spoiled.contains(&id), "{id} at a base: {reason}");
                        }
                        _ => {}
                    }
                }
            }
        }
        for at in 0..self.stations.len() {
            self.move_in(at);
        }
    }

    /// What the mobile asks for over another association than before, and is here, moves to that one.
    pub(super) fn move_in(&mut self, at: usize) {
        let station = &mut self.stations[at];
        let slots = [&mut station.surrogate, &mut station.guest];
        for slot in slots.into_iter().flatten() {
            slot.wanted |= slot.session.poll_wanted().is_some();
        }
        if !station.machine.is_here(ID) {
            return;
        }
        // Unless the base knows of the handoff, another could have the session from under it.
        let wanted = |slot: &mut Surrogate| slot.wanted && slot.greeted;
        let arrived = station.guest.take_if(wanted);
        let Some(mut arrived) = arrived.or_else(|| station.surrogate.take_if(wanted)) else {
            return;
        };
        let from = station.surrogate.as_mut().unwrap_or(&mut arrived);
        let state = from.session.freeze(self.now, &mut self.pairs[from.pair].base, ID);
        arrived.session.adopt(self.now, state);
        arrived.wanted = false;
        station.surrogate = Some(arrived);
        self.poll_sessions();
    }
}
