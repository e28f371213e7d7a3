//! Moving between bases, and between networks.
//!
//! One association at a time carries the session: `at`. The base where the mobile wants to be is
//! `here`. At an upcall the session is suspended; it resumes as soon as an association with the new
//! base stands, without waiting for the bases: the new base buffers what the mobile sends until the
//! session's state has come. Until then associations with the bases before stay open, for the mobile
//! may go back, and a base whose association is closed resets the connections that it still has.

use std::time::Duration;

use lasthop_control::{HandoffReport, HandoffState};
use lasthop_hop::GREETING_MAX;
use lasthop_hop::seal::{Keypair, PublicKey};
use lasthop_session::handoff::{self, Broken, MobileEvent, MobileKeys, Reason};
use lasthop_session::{ResetReason, SessionId};
use lasthop_units::{Stream as Random, Time};

use super::early_upload::PreviousHop;
use super::known_base::{Liveness, Origin};
use super::{Core, MobileHop, MobileRole};

/// How long an association that was made in advance is kept after it is last needed.
pub(super) const LINGER: Duration = Duration::from_secs(5);

/// When one base has answered of those that are asked because the present one is silent, others have so long
/// to do so too.
const GRACE: Duration = Duration::from_millis(20);

/// How long a base that refused the session is avoided, unless a user asks for it.
const AVOID: Duration = Duration::from_secs(30);

type Machine = handoff::Mobile<PublicKey, MobileKeys>;

/// The mobile's handoffs.
pub(super) struct Handoffs {
    machine: Machine,
    config: handoff::Config,
    keys: Keypair,
    random: Random,
    /// When the handoff under way began.
    began: Option<Time>,
    /// Handoffs that were confirmed.
    pub(super) done: u64,
    /// How often a base refused the session.
    pub(super) refused: u64,
    /// The handoff under way, or the last one.
    pub(super) latest: Option<HandoffReport>,
    out: Vec<u8>,
}

impl Handoffs {
    /// A mobile that knows these bases and begins at the first. `None` if there is none.
    pub(super) fn new(
        give_up: Duration,
        keys: Keypair,
        bases: Vec<PublicKey>,
        mut random: Random,
    ) -> Option<Self> {
        let first = *bases.first()?;
        let config = handoff::Config { give_up, ..handoff::Config::mobile() };
        let granter = MobileKeys::new(&keys, bases);
        let machine = machine(config, &keys, granter, random.next_u64(), first);
        Some(Self {
            machine,
            config,
            keys,
            random,
            began: None,
            done: 0,
            refused: 0,
            latest: None,
            out: Vec::new(),
        })
    }

    /// Begins another session at `base`, in place of the present one.
    fn restart(&mut self, base: PublicKey) {
        let random = self.random.next_u64();
        self.prefer(&base);
        let granter = self.machine.granter_mut().clone();
        self.machine = machine(self.config, &self.keys, granter, random, base);
        self.began = None;
    }

    /// There is one more base, in place of another if one is named. False if its key is not usable.
    pub(super) fn learn(&mut self, base: PublicKey, instead: Option<PublicKey>) -> bool {
        let granter = self.machine.granter_mut();
        let added = granter.add(&self.keys, base);
        if added && let Some(instead) = instead {
            granter.remove(&instead);
        }
        added
    }

    /// The session goes to that base.
    fn prefer(&mut self, base: &PublicKey) {
        self.machine.granter_mut().prefer(base);
    }

    /// A random time, less than `bound`.
    pub(super) fn draw(&mut self, bound: Duration) -> Duration {
        bound.mul_f64(self.random.uniform())
    }

    /// The session's name.
    pub(super) fn session(&self) -> SessionId {
        self.machine.session()
    }

    /// The number of the last handoff.
    fn handoff(&self) -> u32 {
        self.machine.attempt()
    }

    /// Whether a handoff is under way.
    pub(super) fn is_pending(&self) -> bool {
        self.machine.is_pending()
    }

    /// When the machine's timer is due.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.machine.next_timeout()
    }
}

fn machine(
    config: handoff::Config,
    keys: &Keypair,
    granter: MobileKeys,
    random: u64,
    first: PublicKey,
) -> Machine {
    let name = SessionId::of_mobile(keys.public().as_bytes(), random);
    Machine::with_granter(config, name, first, granter)
}

impl MobileRole {
    /// Moves the session to base `i`.
    pub(super) fn move_to(&mut self, core: &mut Core, i: usize) {
        let Some(key) = self.stations.get(i).and_then(|station| station.config.key) else { return };
        let Some(handoffs) = &mut self.handoffs else { return };
        if self.known_to_base {
            handoffs.machine.handle_upcall(core.now, key);
            self.poll_machine(core);
        } else if i != self.here {
            // No base knows the session yet: there is nothing to hand over.
            handoffs.restart(key);
            self.suspend_session(core, i);
        }
    }

    /// The mobile will be with base `i` in about `lead`.
    pub(super) fn prepare(&mut self, core: &mut Core, i: usize, lead: Duration) {
        let Some(key) = self.stations.get(i).and_then(|station| station.config.key) else { return };
        let now = core.now;
        if let Some(handoffs) = &mut self.handoffs {
            handoffs.machine.handle_imminent(now, key, lead);
        }
        if i != self.here && self.open_hop(core, i).is_some() {
            self.stations[i].until = Some(now + lead + LINGER);
        }
    }

    /// Handles the handoff machine's events. True if there was one.
    fn poll_machine(&mut self, core: &mut Core) -> bool {
        let mut some = false;
        while let Some(event) =
            self.handoffs.as_mut().and_then(|handoffs| handoffs.machine.poll_event())
        {
            some = true;
            match event {
                MobileEvent::Suspend { to } => {
                    if let Some(i) = self.station_of(&to) {
                        if let Some(handoffs) = &mut self.handoffs {
                            handoffs.prefer(&to);
                        }
                        self.record_departure(core, i);
                        self.suspend_session(core, i);
                    }
                }
                MobileEvent::Resumed { .. } => self.handle_resumed(core),
                MobileEvent::Refused { base, reason } => self.handle_refused(core, &base, reason),
                MobileEvent::TakeOver => self.tell_orphans(core),
                MobileEvent::Broken(why) => self.handle_broken(core, why),
                MobileEvent::Unexpected { candidate, reason } => {
                    let base = self.station_of(&candidate).map(|i| self.stations[i].name());
                    tracing::warn!(base, %reason, "base rejected as a candidate");
                }
            }
        }
        some
    }

    /// The base before is dead: the new one goes on from what is here.
    fn tell_orphans(&mut self, core: &mut Core) {
        let base = self.stations[self.here].name();
        let Some((session, streams)) = core.session(self.at) else { return };
        let orphans = session.orphans(&streams);
        tracing::info!(
            base,
            connections = orphans.len(),
            "the base before is silent: this one takes over"
        );
        if let Some(handoffs) = &mut self.handoffs {
            let silent = self.heard.map_or(Duration::ZERO, |heard| core.now.since(heard));
            handoffs.machine.tell_orphans(orphans, silent);
        }
    }

    fn record_departure(&mut self, core: &Core, to: usize) {
        let moved = core.connections_of(self.at).len() as u64;
        let (from, to) = (self.stations[self.here].name(), self.stations[to].name());
        tracing::info!(from, to, connections = moved, "handoff");
        let Some(handoffs) = &mut self.handoffs else { return };
        // One that is interrupted by another has not stood still for less.
        handoffs.began.get_or_insert(core.now);
        let number = handoffs.latest.as_ref().map_or(1, |last| last.number + 1);
        handoffs.latest =
            Some(HandoffReport { number, to: to.to_owned(), moved, ..HandoffReport::default() });
    }

    /// A base has refused the session, which is still at the base before: the mobile goes back there.
    fn handle_refused(&mut self, core: &mut Core, base: &PublicKey, reason: Reason) {
        let Some(handoffs) = &mut self.handoffs else { return };
        handoffs.refused += 1;
        let back = handoffs.machine.base();
        let (Some(i), Some(back)) = (self.station_of(base), self.station_of(&back)) else { return };
        let (refuses, back_to) = (self.stations[i].name(), self.stations[back].name());
        tracing::warn!(base = refuses, %reason, back_to, "the base refuses the handoff");
        self.stations[i].avoid_until = Some(core.now + AVOID);
        if back != i {
            self.move_to(core, back);
        }
    }

    /// Suspends the session and opens a hop to base `i`, where it is to resume.
    pub(super) fn suspend_session(&mut self, core: &mut Core, i: usize) {
        let now = core.now;
        if let Some((session, mut streams)) = core.session(self.at) {
            session.suspend(now, &mut streams);
        }
        let at = self.at;
        let silent = core.hop.get(at).and_then(|hop| hop.silent_for(now)).unwrap_or_default();
        self.heard.get_or_insert(Time::ZERO + now.since(Time::ZERO).saturating_sub(silent));
        let carried = core.hop.get(at).map(|hop| hop.in_round_trip()).unwrap_or_default();
        if let Some((session, _)) = core.session(at) {
            session.expect(carried);
        }
        let (hop, mut turn) = core.turn();
        hop.with(&mut turn, at, |hop, turn| {
            hop.set_leaving(true);
            // The answer acknowledges what has arrived there.
            hop.roam(turn, 0);
        });
        (self.here, self.resumed, self.impatient) = (i, false, false);
        self.here_since = now;
        self.asks = true;
        self.transits.set_changed();
        self.reset_probes();
        self.call_here(core);
    }

    /// Opens a hop to the base `here` if there is none, and has it begin.
    pub(super) fn call_here(&mut self, core: &mut Core) {
        if let Some(part) = self.open_hop(core, self.here) {
            // One that was made earlier may be idle.
            let greeting =
                self.handoffs.as_ref().and_then(|handoffs| handoffs.machine.greeting(GREETING_MAX));
            let (hop, mut turn) = core.turn();
            hop.with(&mut turn, part, |hop, turn| {
                hop.roam(turn, 0);
                // The bases may begin while the association is being made.
                if let Some(greeting) = &greeting {
                    hop.greet(turn.now, greeting);
                }
            });
        }
    }

    /// Resumes the session over the association with the base `here`, once that stands. True if it did.
    fn resume_session(&mut self, core: &mut Core) -> bool {
        let Some(part) = self.stations[self.here].part.filter(|_| !self.resumed) else {
            return false;
        };
        if !core.hop.get(part).is_some_and(|hop| hop.is_up()) {
            return false;
        }
        self.previous_hop = Some(PreviousHop::new(self.at));
        if part != self.at {
            let now = core.now;
            // The one that was there has only spoken with the base.
            if let Some((unused, mut streams)) = core.session(part) {
                unused.suspend(now, &mut streams);
            }
            core.rekey(self.at, part);
            let left = std::mem::replace(&mut self.at, part);
            self.carry_packets_on(core, left);
        }
        // The greeting goes first, so that the base knows what the rest belongs to.
        self.report_reached(core);
        let (now, name) = (core.now, self.session_name());
        let handoff = self.handoffs.as_ref().map_or(0, Handoffs::handoff);
        let listening = !self.config.publish.is_empty();
        if let Some((session, mut streams)) = core.session(part) {
            session.set_listening(listening);
            session.set_handoff(handoff);
            session.resume(now, &mut streams, name);
        }
        let ports = self.ports();
        let (hop, mut turn) = core.turn();
        hop.with(&mut turn, part, |hop, _| {
            hop.set_leaving(false);
            hop.listen(&ports);
        });
        self.stations[self.here].forget_told();
        (self.resumed, self.asks) = (true, true);
        true
    }

    /// Reports to the handoff machine that an association with the base `here` stands, and sends its
    /// messages.
    pub(super) fn report_reached(&mut self, core: &mut Core) {
        self.known_to_base = true;
        let key = self.stations[self.here].config.key;
        if let (Some(handoffs), Some(key)) = (&mut self.handoffs, key) {
            handoffs.machine.reached(core.now, key);
            self.send_handoff_messages(core);
        }
    }

    /// Sends the handoff machine's messages to the base that has the session; those for other bases are
    /// dropped, as if lost on the way.
    fn send_handoff_messages(&mut self, core: &mut Core) -> bool {
        let Some(handoffs) = &mut self.handoffs else { return false };
        let (now, at) = (core.now, self.at);
        if !core.hop.get(at).is_some_and(|hop| hop.is_up()) {
            return false;
        }
        let mut some = false;
        while let Some(to) = handoffs.machine.poll_transmit(now, &mut handoffs.out) {
            let there = self
                .stations
                .iter()
                .any(|station| station.part == Some(at) && station.config.key == Some(to));
            if there && let Some((session, mut streams)) = core.session(at) {
                some |= session.send_message(now, &mut streams, &handoffs.out).is_ok();
            }
        }
        some
    }

    /// Takes a base's handoff message.
    pub(super) fn handle_handoff_message(&mut self, core: &mut Core, part: u32, message: &[u8]) {
        let key = self.station_at(part).and_then(|i| self.stations[i].config.key);
        if let (Some(handoffs), Some(key)) = (&mut self.handoffs, key) {
            handoffs.machine.handle_datagram(core.now, key, message);
            self.poll_machine(core);
        }
    }

    fn handle_resumed(&mut self, core: &mut Core) {
        let now = core.now;
        self.heard = None;
        if let Some((session, mut streams)) = core.session(self.at) {
            session.handle_resumed(now, &mut streams);
        }
        let station = &mut self.stations[self.here];
        if let Some(handoffs) = &mut self.handoffs {
            let pause = handoffs.began.take().map_or(Duration::ZERO, |began| now.since(began));
            let pause_ms = pause.as_secs_f64() * 1e3;
            tracing::info!(base = station.name(), pause_ms, "handoff done");
            (handoffs.done, station.handoffs) = (handoffs.done + 1, station.handoffs + 1);
            station.pause = Some(pause);
            if let Some(latest) = &mut handoffs.latest {
                latest.state = HandoffState::Done;
                latest.pause_s = Some(pause.as_secs_f64());
            }
        }
        self.release(now);
    }

    /// The handoff has failed. The new base refuses connections that it did not get one by one; if it
    /// did not answer at all, they are reset here.
    fn handle_broken(&mut self, core: &mut Core, why: Broken) {
        self.heard = None;
        let base = self.stations[self.here].name();
        tracing::warn!(base, %why, "handoff failed: connections that were to move are reset");
        let there = core.connections_of(self.at).len() as u64;
        if let Some(handoffs) = &mut self.handoffs {
            handoffs.began = None;
            if let Some(latest) = &mut handoffs.latest {
                latest.state = HandoffState::Broken;
                (latest.moved, latest.lost) = (0, there);
                latest.reason = Some(why.to_string());
            }
        }
        if why == Broken::TimedOut
            && let Some((session, mut streams)) = core.session(self.at)
        {
            session.reset_all(&mut streams, ResetReason::AssociationLost);
        }
        self.release(core.now);
    }

    /// Lets the hops to all other bases expire: the handoff is over.
    fn release(&mut self, now: Time) {
        let (here, at) = (self.here, self.at);
        for (i, station) in self.stations.iter_mut().enumerate() {
            if i != here && station.part != Some(at) {
                station.until = station.part.map(|_| now);
            }
        }
    }

    /// The association that carried the session is lost, and its connections with it.
    pub(super) fn handle_lost(&mut self) {
        (self.impatient, self.heard) = (true, None);
        let key = self.stations[self.here].config.key;
        if let (Some(handoffs), Some(key)) = (&mut self.handoffs, key) {
            handoffs.restart(key);
        }
    }

    /// Does what is due: follows the networks and the signal, runs the handoff machine, and checks
    /// whether the base is silent. True if something was done.
    pub(super) fn maintain(&mut self, core: &mut Core) -> bool {
        let mut some = self.poll_network(core);
        some |= self.follow_signal(core);
        // A base that was not reached yet is not late: what it takes is the network's time.
        let reached = self.resumed;
        if let Some(handoffs) = self.handoffs.as_mut().filter(|_| reached)
            && handoffs.machine.next_timeout().is_some_and(|at| at <= core.now)
        {
            handoffs.machine.handle_timeout(core.now);
        }
        self.check_silence(core);
        some |= self.ask_bases(core);
        some |= self.follow_leaving(core);
        some |= self.follow_transits(core);
        some |= self.poll_machine(core);
        some |= self.resume_session(core);
        if self.resumed {
            some |= self.send_handoff_messages(core);
            self.send_early_uploads(core);
        }
        self.expire_hops(core);
        some
    }

    /// When [`maintain`](Self::maintain) has something to do even if nothing happens.
    pub(super) fn next_maintenance(&self) -> Option<Time> {
        if self.network.is_ready() {
            return Some(Time::ZERO);
        }
        let machine =
            self.handoffs.as_ref().filter(|_| self.resumed).and_then(Handoffs::next_timeout);
        let may_leave = !self.is_pending();
        let stations = self.stations.iter().filter_map(|s| s.until.filter(|_| may_leave)).min();
        let retired = self.retired.iter().map(|(at, _)| *at).min();
        let (signal, caps) = (self.signal.next_timeout(), self.caps_timeout());
        let all =
            [machine, stations, retired, self.doubt_at, signal, caps, self.transits_timeout()];
        let all = all.into_iter().chain([self.leaving_timeout()]);
        all.flatten().min()
    }

    /// Probes other bases once the base `here` has been silent for too long.
    fn check_silence(&mut self, core: &mut Core) {
        self.doubt_at = None;
        if self.stations.len() < 2 {
            return;
        }
        let (now, patience) = (core.now, self.config.handoff.lost_after().0);
        let hop = self.stations[self.here].part.and_then(|part| core.hop.get(part));
        let silent = match hop {
            Some(hop) => hop.silent_for(now),
            None => Some(now.since(self.here_since)),
        };
        let lost = self.impatient && !hop.is_some_and(|hop| hop.is_up());
        // An error reported for this base need not hold for another.
        let lost = lost || hop.is_some_and(|hop| hop.unreachable(now).is_some());
        match silent {
            _ if lost => self.probe_others(core),
            Some(silent) if silent >= patience => self.probe_others(core),
            Some(silent) => self.doubt_at = Some(now + (patience - silent)),
            None => self.reset_probes(),
        }
    }

    fn probe_others(&mut self, core: &mut Core) {
        let (mut answered, mut waits) = (Vec::new(), false);
        for i in 0..self.stations.len() {
            if i == self.here || !self.is_usable(core.now, i) || self.open_hop(core, i).is_none() {
                continue;
            }
            let (liveness, now) = (self.liveness(core, i), core.now);
            let station = &mut self.stations[i];
            station.until = Some(now + LINGER);
            match station.asked {
                Some(asked) if asked.is_answered_by(liveness) => answered.push(i),
                Some(_) => waits = true,
                None => {
                    waits = true;
                    station.asked = Some(liveness);
                    if let Some(part) = station.part {
                        let (hop, mut turn) = core.turn();
                        hop.with(&mut turn, part, |hop, turn| hop.roam(turn, 0));
                    }
                }
            }
        }
        if answered.is_empty() {
            return;
        }
        let until = *self.answered_at.get_or_insert(core.now) + GRACE;
        if waits && core.now < until {
            self.doubt_at = Some(until);
            return;
        }
        let Some(i) = self.best_of(core, answered) else { return };
        let (base, silent) = (self.stations[i].name(), self.stations[self.here].name());
        tracing::info!(base, silent, "another base answered: moving there");
        self.stations[self.here].left = Some(core.now);
        self.move_to(core, i);
    }

    pub(super) fn liveness(&self, core: &Core, i: usize) -> Liveness {
        let hop = self.stations[i].part.and_then(|part| core.hop.get(part));
        hop.map_or(Liveness { up: false, received: 0 }, |hop| Liveness {
            up: hop.is_up(),
            received: hop.received_count(),
        })
    }

    fn reset_probes(&mut self) {
        self.answered_at = None;
        for station in &mut self.stations {
            station.asked = None;
        }
    }

    pub(super) fn is_usable(&self, now: Time, i: usize) -> bool {
        let station = &self.stations[i];
        if station.origin == Origin::Forgotten {
            return false;
        }
        if station.avoid_until.is_some_and(|until| now < until) {
            return false;
        }
        let interface = station.config.interface.as_deref();
        interface.is_none_or(|name| self.network.carries(name) != Some(false))
    }

    pub(super) fn is_pending(&self) -> bool {
        self.handoffs.as_ref().is_some_and(Handoffs::is_pending)
    }

    /// Removes hops that have expired.
    fn expire_hops(&mut self, core: &mut Core) {
        let now = core.now;
        while let Some(n) = self.retired.iter().position(|(at, _)| *at <= now) {
            let (_, part) = self.retired.swap_remove(n);
            close_hop(core, part);
        }
        if self.is_pending() {
            return;
        }
        for (i, station) in self.stations.iter_mut().enumerate() {
            let due = station.until.is_some_and(|at| at <= now);
            if !due || i == self.here || station.part == Some(self.at) {
                continue;
            }
            (station.until, station.asked) = (None, None);
            // One that a link leads to is asked to pass on.
            if self.links.leads_to(i) {
                continue;
            }
            station.forget_told();
            if let Some(part) = station.part.take() {
                let worth = core.hop.get(part).and_then(MobileHop::saved_path);
                station.saved.insert(station.local, worth);
                close_hop(core, part);
            }
        }
    }

    /// The base with this key.
    pub(super) fn station_of(&self, key: &PublicKey) -> Option<usize> {
        self.stations.iter().position(|station| station.config.key.as_ref() == Some(key))
    }

    /// The name under which bases know the session.
    fn session_name(&self) -> SessionId {
        self.handoffs.as_ref().map_or(self.name, Handoffs::session)
    }
}

/// Closes an association that carries nothing.
fn close_hop(core: &mut Core, part: u32) {
    core.close_session(part);
    let (hop, mut turn) = core.turn();
    hop.remove(&mut turn, part);
}
