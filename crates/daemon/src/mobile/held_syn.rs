//! SYNs of intercepted applications, held until the base has answered, so that `connect` returns what
//! the fixed host answered (MHP-5).

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use lasthop_kernel::netlink::Ends;
use lasthop_kernel::slab::Key;
use lasthop_kernel::tcp::{self, Socket};
use lasthop_kernel::transparent::{Syn, Taken};
use lasthop_kernel::turn::Source;
use lasthop_session::{Refusal, Target};
use lasthop_units::Time;
use lasthop_wire::tcp::Seq;

use super::application::OpenRequest;
use super::{Core, MobileRole, Waiting};
use crate::driver::{Phase, Timer};

/// How late the next SYN of an application may be, beyond the time from its first SYN to its last. SYNs
/// are repeated after one second (RFC 6298 section 2.1; RFC 1122 has three), then after twice the time
/// before.
const SLACK: Duration = Duration::from_secs(5);
/// How long an application may take for the rest of the handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long the same SYN gets the same answer again.
const REPEATED: Duration = Duration::from_secs(5);

/// Answers that are kept at most.
const REFUSED_MAX: usize = 16_384;

/// The application's address and where it goes.
type Pair = (SocketAddr, SocketAddr);

/// The outcome of a SYN.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    /// This connection is being opened, or waits for the rest of the application's handshake.
    Opening(Key),
    /// It was refused.
    Refused(Refusal),
}

/// The SYNs that are held, and the outcomes of recent ones.
#[derive(Default)]
pub(super) struct HeldSyns {
    by_pair: HashMap<Pair, (Seq, Outcome)>,
    /// Refusals, and when each expires.
    refused: VecDeque<(Time, Pair, Seq)>,
}

impl HeldSyns {
    /// Records a refusal, and removes those that have expired.
    fn refuse(&mut self, now: Time, pair: Pair, seq: Seq, refusal: Refusal) {
        while let Some((at, pair, seq)) = self.refused.front().copied()
            && (at <= now || self.refused.len() >= REFUSED_MAX)
        {
            self.refused.pop_front();
            if matches!(self.by_pair.get(&pair), Some((known, Outcome::Refused(_))) if *known == seq)
            {
                self.by_pair.remove(&pair);
            }
        }
        self.by_pair.insert(pair, (seq, Outcome::Refused(refusal)));
        self.refused.push_back((now + REPEATED, pair, seq));
    }

    /// The connections that wait for the base or for their application.
    fn keys(&self) -> Vec<Key> {
        let opening = |(_, outcome): &(Seq, Outcome)| match outcome {
            Outcome::Opening(key) => Some(*key),
            Outcome::Refused(_) => None,
        };
        self.by_pair.values().filter_map(opening).collect()
    }
}

/// An application whose SYN was held.
#[derive(Debug)]
pub(crate) struct HeldSyn {
    pub(super) open_request: OpenRequest,
    pair: Pair,
    seq: Seq,
    /// Until the base has answered.
    syn: Option<Syn>,
    first: Time,
    /// When its last packet came.
    last: Time,
}

impl HeldSyn {
    /// Whether the base has not answered yet.
    pub(super) fn is_unanswered(&self) -> bool {
        self.syn.is_some()
    }

    /// When it expires if nothing more comes from the application.
    fn deadline(&self) -> Time {
        let patience = match self.syn {
            Some(_) => self.last.since(self.first) + SLACK,
            None => HANDSHAKE,
        };
        self.last + patience
    }
}

fn held(core: &mut Core, key: Key) -> Option<&mut HeldSyn> {
    match core.waiting(key)? {
        Waiting::HeldSyn(held) => Some(held),
        _ => None,
    }
}

impl MobileRole {
    /// Reads SYNs from the packet queue; `n` is its listener number.
    pub(super) fn read_syns(&mut self, core: &mut Core, n: usize) {
        // A flood must not starve the others; the rest comes with the timer.
        for _ in 0..64 {
            let Some(holding) = self.intercepted.holding() else { return };
            let mut syns = Vec::new();
            match holding.read(|syn| syns.push(syn)) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return tracing::warn!(%error, "cannot read the packet queue"),
            }
            syns.into_iter().for_each(|syn| self.handle_syn(core, syn));
        }
        core.arm(core.now, Timer::Accept(n));
    }

    fn handle_syn(&mut self, core: &mut Core, syn: Syn) {
        let pair = (syn.source, syn.target);
        let known = self.held_syns.by_pair.get(&pair).copied();
        let Some(holding) = self.intercepted.holding() else { return };
        match known {
            Some((seq, Outcome::Refused(refusal))) if seq == syn.seq => {
                return holding.refuse(&syn, refusal);
            }
            Some((seq, Outcome::Opening(key))) if seq == syn.seq => {
                let now = core.now;
                let Some(held) = held(core, key) else { return holding.drop(&syn) };
                held.last = now;
                return match held.syn {
                    Some(_) => holding.drop(&syn),
                    None => holding.admit(&syn),
                };
            }
            // The application has begun anew from the same port.
            Some((_, Outcome::Opening(key))) => self.abort_held_syn(core, key),
            _ => {}
        }
        self.hold_syn(core, syn);
    }

    fn hold_syn(&mut self, core: &mut Core, syn: Syn) {
        let (now, pair, seq) = (core.now, (syn.source, syn.target), syn.seq);
        if core.stopping || core.connections.len() >= self.config.connections {
            let refusal = if core.stopping { Refusal::ShuttingDown } else { Refusal::TooMany };
            core.counters.refused += 1;
            self.held_syns.refuse(now, pair, seq, refusal);
            if let Some(holding) = self.intercepted.holding() {
                holding.refuse(&syn, refusal);
            }
            return;
        }
        let open_request = OpenRequest::from(self.intercepted.source(syn.source));
        let held = HeldSyn { open_request, pair, seq, syn: Some(syn), first: now, last: now };
        let deadline = held.deadline();
        let key = core.add(String::new(), Waiting::HeldSyn(held));
        self.held_syns.by_pair.insert(pair, (seq, Outcome::Opening(key)));
        core.arm(deadline, Timer::Connection(key));
        self.priorities.identify_program(core, key, Ends::tcp(pair.0, pair.1));
        self.open(core, key, &Target::Addr(pair.1));
    }

    /// Answers the SYN of connection `key` as the base has answered. False if `key` has no held SYN.
    pub(super) fn answer_held_syn(
        &mut self,
        core: &mut Core,
        key: Key,
        result: Result<Option<SocketAddr>, Refusal>,
    ) -> bool {
        let now = core.now;
        let Some(held) = held(core, key) else { return false };
        match result {
            Ok(_) => {
                held.last = now;
                let syn = held.syn.take();
                let deadline = held.deadline();
                if let (Some(syn), Some(holding)) = (syn, self.intercepted.holding()) {
                    holding.admit(&syn);
                }
                core.arm(deadline, Timer::Connection(key));
            }
            Err(reason) => {
                let Some(connection) = core.remove(key) else { return true };
                core.counters.refused += 1;
                tracing::debug!(target = connection.target, %reason, "connection refused");
                if let Phase::Waiting(Waiting::HeldSyn(held)) = connection.phase {
                    self.refuse_held_syn(core, held, reason);
                }
            }
        }
        true
    }

    /// Resets the application and records the refusal for its repeated SYNs.
    pub(super) fn refuse_held_syn(&mut self, core: &mut Core, held: HeldSyn, refusal: Refusal) {
        self.held_syns.refuse(core.now, held.pair, held.seq, refusal);
        if let (Some(syn), Some(holding)) = (held.syn, self.intercepted.holding()) {
            holding.refuse(&syn, refusal);
        }
    }

    /// Removes a connection whose application has gone or has begun anew, and resets it at the base.
    fn abort_held_syn(&mut self, core: &mut Core, key: Key) {
        let Some(connection) = core.remove(key) else { return };
        if let Phase::Waiting(Waiting::HeldSyn(held)) = connection.phase {
            self.held_syns.by_pair.remove(&held.pair);
            if let (Some(syn), Some(holding)) = (held.syn, self.intercepted.holding()) {
                holding.drop(&syn);
            }
        }
        core.abort(connection.name);
    }

    /// Aborts the connection if its application has been silent for too long.
    pub(super) fn expire_held_syn(&mut self, core: &mut Core, key: Key) {
        let Some(deadline) = held(core, key).map(|held| held.deadline()) else { return };
        if deadline <= core.now {
            self.abort_held_syn(core, key);
        } else {
            core.arm(deadline, Timer::Connection(key));
        }
    }

    /// Attaches an accepted socket to the connection that its held SYN has opened. A socket whose SYN was
    /// not held is returned.
    pub(super) fn attach_held_syn(&mut self, core: &mut Core, taken: Taken) -> Option<Taken> {
        let pair = (taken.source, taken.target);
        match self.held_syns.by_pair.get(&pair).copied() {
            None => return Some(taken),
            // It was accepted although its SYN is still held.
            Some((_, Outcome::Opening(key)))
                if held(core, key).is_none_or(|held| held.is_unanswered()) =>
            {
                self.abort_held_syn(core, key);
                self.held_syns.by_pair.remove(&pair);
                return Some(taken);
            }
            // It was reset in the meantime.
            Some((_, Outcome::Refused(_))) => tcp::abort_on_close(&taken.fd),
            Some((_, Outcome::Opening(key))) => {
                self.held_syns.by_pair.remove(&pair);
                tcp::tune_relayed(&taken.fd);
                // The source needs the key, and the key the socket: the source is corrected after.
                match Socket::new(&mut core.reactor, taken.fd, Source::Resolver) {
                    Ok(socket) => core.relay(key, |_| Some((socket, Vec::new()))),
                    Err(_) => self.abort_held_syn(core, key),
                }
            }
        }
        None
    }

    /// Refuses every held SYN: no new connection is accepted any more.
    pub(super) fn refuse_held_syns(&mut self, core: &mut Core) {
        for key in self.held_syns.keys() {
            if held(core, key).is_some_and(|held| held.is_unanswered()) {
                core.abort(core.connections.get(key).and_then(|c| c.name));
                self.answer_held_syn(core, key, Err(Refusal::ShuttingDown));
            }
        }
    }
}
