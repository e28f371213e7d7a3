//! A base's part in handoffs: its machine, and the sockets and sessions that the machine speaks of.

mod anchor;
mod give;
mod migration;
mod take;
mod wired;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::IpAddr;

use lasthop_control::{Handoffs as HandoffCounters, PeerReport};
use lasthop_hop::seal::{Keypair, PublicKey};
use lasthop_migrate::RouteMode;
use lasthop_session::handoff::{self, BaseEvent, BaseKeys};
use lasthop_session::{ConnId, ResetReason, Session, SessionId, SessionState};
use lasthop_units::{Duration, Time};
use lasthop_wire::mhp::handoff::{Datagram, Message};

use self::anchor::{Far, Kept};
pub(super) use self::migration::Migration;
use self::take::Homecoming;
use super::exits::Helper;
use super::{BaseConfig, BaseHop, Fallback, HandoffConfig, MobileAddresses, Mode, Surrogate};
use crate::backhaul::{Peer, Purpose, Way, WithPeers};
use crate::driver::{self, Phase};
use crate::hop::{Hop, HopEvent};

/// How long a mobile that has greeted may take to have its association.
const CALL_PATIENCE: Duration = Duration::from_secs(10);
/// How long connections may be wanted here that nobody says will come.
const WANTED_PATIENCE: Duration = Duration::from_secs(2);
/// Messages and events in one round; what is left waits for the next.
const ROUND_MAX: usize = 1024;

/// How long what the kernel has to do waits for what was said to leave.
const CHORE_DELAY: Duration = Duration::from_millis(2);

/// How long a session that is to leave, or has come, waits for a helper that is away: less than another
/// base waits for an answer.
const HELPER_PATIENCE: Duration = Duration::from_secs(8);

/// What the kernel is to do for a session.
enum Chore<I> {
    /// Packets for a session that was given away are to go there.
    Reroute { session: SessionId, via: Option<IpAddr> },
    /// Connections of a session that has come are to have their sockets.
    Restore(Homecoming<Way<I>>),
}

/// The loop's core, at a base with the hop `H` to mobiles.
pub(super) type Core<H> = driver::Core<WithPeers<H>, Surrogate>;

/// A base's part in handoffs.
pub(super) struct Handoffs<H: Hop> {
    config: HandoffConfig,
    own: PublicKey,
    machine: handoff::Base<PublicKey, BaseKeys>,
    /// The association that this base makes to each peer for messages.
    links: BTreeMap<PublicKey, u32>,
    /// Another to each peer, for copies that are sent ahead: nothing urgent is to wait behind them.
    copies: BTreeMap<PublicKey, u32>,
    /// What was last said of a peer that is not reached.
    complaints: BTreeMap<PublicKey, String>,
    /// The association that each mobile has here.
    present: BTreeMap<PublicKey, Way<H::Id>>,
    /// What each mobile that is here calls its session, if it has said so.
    names: BTreeMap<PublicKey, SessionId>,
    /// What mobiles carry on here and is not on their association.
    wanted: BTreeMap<PublicKey, (SessionId, Time)>,
    /// Mobiles that have said over their association that their session is to be here.
    greeted: BTreeSet<PublicKey>,
    /// Mobiles that have an association here and their session elsewhere.
    away: BTreeSet<PublicKey>,
    /// Mobiles that have greeted this base and whose association is still being made, with the session
    /// that has come for them, and until when they are waited for.
    calling: BTreeMap<PublicKey, (Option<SessionState>, Time)>,
    /// Sessions that are elsewhere, and whose sockets are here.
    kept: BTreeMap<SessionId, Kept<H::Id>>,
    /// Associations to bases that keep sockets of sessions that are here.
    far: BTreeMap<u32, Far>,
    /// Absent where nothing migrates.
    migration: Option<Migration>,
    /// Sessions that are asked for while the helper is away, in whose name, and until when they wait
    /// for it: without it no socket can leave.
    unhelped: BTreeMap<SessionId, (Option<PublicKey>, Time)>,
    /// What the kernel is to do once what was said has left: it takes tens of milliseconds.
    chores: VecDeque<(Time, Chore<H::Id>)>,
    pub(super) counters: HandoffCounters,
    message: Vec<u8>,
}

impl<H: BaseHop> Handoffs<H> {
    /// The part of a base with these keys, which serves these mobiles.
    pub(super) fn new(
        config: HandoffConfig,
        keys: Keypair,
        base: &BaseConfig,
        helper: Option<&Helper>,
    ) -> Self {
        let own = *keys.public();
        let mut authority = BaseKeys::new(keys);
        for peer in &config.peers {
            authority.allow_base(peer.key);
        }
        for mobile in &base.allow {
            authority.allow_mobile(*mobile);
        }
        let patience = handoff::Config::base().over_streams();
        let machine = handoff::Base::with_authority(patience, own, authority);
        let migration = Migration::start(&config, &base.mobiles, helper);
        Self {
            config,
            own,
            machine,
            links: BTreeMap::new(),
            copies: BTreeMap::new(),
            complaints: BTreeMap::new(),
            present: BTreeMap::new(),
            names: BTreeMap::new(),
            wanted: BTreeMap::new(),
            greeted: BTreeSet::new(),
            away: BTreeSet::new(),
            calling: BTreeMap::new(),
            kept: BTreeMap::new(),
            far: BTreeMap::new(),
            migration,
            unhelped: BTreeMap::new(),
            chores: VecDeque::new(),
            counters: HandoffCounters::default(),
            message: Vec::new(),
        }
    }

    /// Whether nothing has packets for a mobile's address come here, although something was to.
    pub(super) fn is_unrouted(&self) -> bool {
        let HandoffConfig { mode, route, .. } = self.config;
        mode == Mode::Migrate && route != RouteMode::None && self.migration.is_none()
    }

    /// Calls on every other base.
    pub(super) fn start(&mut self, core: &mut Core<H>) -> io::Result<()> {
        for peer in &self.config.peers {
            for links in [&mut self.links, &mut self.copies] {
                let (hop, mut turn) = core.turn();
                let part = hop.link(&mut turn, peer, Purpose::Messages)?;
                links.insert(peer.key, part);
                core.open_session(Way::Link(part), far_session);
            }
        }
        Ok(())
    }

    fn peer(&self, key: PublicKey) -> Option<&Peer> {
        self.config.peers.iter().find(|peer| peer.key == key)
    }

    /// What people call a base.
    fn name_of(&self, key: PublicKey) -> String {
        self.peer(key).map_or_else(|| key.to_string(), |peer| peer.name.clone())
    }

    /// Whether a mobile that has an association here has left.
    pub(super) fn is_away(&self, mobile: PublicKey) -> bool {
        self.away.contains(&mobile)
    }

    /// A mobile has connections here.
    pub(super) fn settle(&mut self, mobile: PublicKey) {
        if let Some(migration) = &mut self.migration {
            migration.settle(mobile);
        }
    }

    /// Something happened to an association.
    pub(super) fn handle_association(&mut self, core: &mut Core<H>, event: &HopEvent<Way<H::Id>>) {
        match event {
            HopEvent::Up(id @ Way::Mobile(_)) => {
                if let Some(mobile) = core.hop.key_of(*id) {
                    self.present.insert(mobile, *id);
                    self.end_call(core, mobile);
                }
            }
            HopEvent::Up(Way::Link(part)) => self.on_link_up(core, *part),
            HopEvent::Lost(id @ Way::Mobile(_), _) => self.on_mobile_lost(*id),
            HopEvent::Lost(id @ Way::Peer(_), _) => self.on_peer_lost(*id),
            HopEvent::Lost(Way::Link(part), why) | HopEvent::Unreachable(Way::Link(part), why) => {
                self.on_link_down(core, *part, why)
            }
            _ => {}
        }
    }

    /// Hears what mobiles say before they have an association. It may have been said at another time:
    /// the machine takes nothing that is outdated, and grants are for this base.
    fn hear_calls(&mut self, core: &mut Core<H>) -> bool {
        let mut some = false;
        while let Some((mobile, message)) = core.hop.poll_call() {
            some = true;
            self.calling.entry(mobile).or_insert((None, core.now + CALL_PATIENCE));
            self.machine.handle_datagram(core.now, mobile, &message);
        }
        some
    }

    /// The association of a mobile that had called stands, or is not waited for any more.
    fn end_call(&mut self, core: &mut Core<H>, mobile: PublicKey) {
        if let Some((Some(state), _)) = self.calling.remove(&mobile) {
            self.take(core, state, mobile);
        }
    }

    fn end_late_calls(&mut self, core: &mut Core<H>) {
        let late: Vec<PublicKey> = self
            .calling
            .iter()
            .filter(|(_, (_, until))| *until <= core.now)
            .map(|(mobile, _)| *mobile)
            .collect();
        for mobile in late {
            self.end_call(core, mobile);
        }
    }

    fn on_link_up(&mut self, core: &mut Core<H>, part: u32) {
        let Some(peer) = core.hop.key_of(Way::Link(part)) else { return };
        if self.far.contains_key(&part) {
            return self.attach(core, part);
        }
        if self.links.get(&peer) == Some(&part) {
            tracing::info!(peer = self.name_of(peer), "peer base up");
            self.complaints.remove(&peer);
            self.machine.reached(core.now, peer);
        }
        // What was said to an earlier life of it is not for this one.
        core.close_session(Way::Link(part));
        core.open_session(Way::Link(part), far_session);
    }

    fn on_link_down(&mut self, core: &mut Core<H>, part: u32, why: &str) {
        if let Some(far) = self.far.get_mut(&part) {
            tracing::warn!(session = %far.session, why, "anchor lost: its connections are reset");
            // Nothing more is to be asked of it.
            far.asked.get_or_insert(0);
            return Self::reset_far(core, part);
        }

        let link = self.links.iter().find(|(_, n)| **n == part);
        if let Some((peer, _)) = link {
            let peer = *peer;
            // Once for each reason, as long as it lasts.
            if self.complaints.insert(peer, why.to_owned()).as_deref() != Some(why) {
                tracing::warn!(peer = self.name_of(peer), why, "peer base down");
            }
            self.machine.unreachable(core.now, peer);
        }
    }

    fn on_mobile_lost(&mut self, id: Way<H::Id>) {
        let lost = self.present.iter().find(|(_, other)| **other == id).map(|(key, _)| *key);
        let Some(mobile) = lost else { return };
        self.present.remove(&mobile);
        self.wanted.remove(&mobile);
        self.greeted.remove(&mobile);
        let away = self.away.remove(&mobile);
        if let Some(migration) = &mut self.migration {
            migration.leave(mobile);
        }
        // A session that went elsewhere is remembered, and one that is on its way here is still to come.
        let ends = |session: &SessionId| !away && self.machine.is_here(*session);
        if let Some(session) = self.names.get(&mobile).copied().filter(ends)
            && !self.calling.contains_key(&mobile)
        {
            self.names.remove(&mobile);
            self.machine.forget(session);
        }
    }

    /// The peer of an association says something of a handoff.
    pub(super) fn handle_message(&mut self, core: &mut Core<H>, id: Way<H::Id>, message: &[u8]) {
        let Some(from) = core.hop.key_of(id) else { return };
        tracing::trace!(from = self.name_of(from), kind = message.get(1), "a message of a handoff");
        match id {
            Way::Mobile(_) => {
                self.note_name(from, message);
                self.machine.handle_datagram(core.now, from, message);
                self.attach_waiting(core);
                return self.look_again(core, from);
            }
            Way::Peer(_) if self.on_attach(core, id, from, message) => return,
            _ => {}
        }
        match id {
            Way::Link(part) if self.far.contains_key(&part) => {
                self.on_attached(core, part, message);
            }
            _ => self.machine.handle_datagram(core.now, from, message),
        }
    }

    /// What a mobile calls its session, from the first word that it says of it.
    fn note_name(&mut self, mobile: PublicKey, message: &[u8]) {
        if let Ok(said) = Datagram::decode(message) {
            self.names.insert(mobile, said.session);
            if matches!(said.message, Message::Greet { .. } | Message::Here { .. }) {
                self.greeted.insert(mobile);
            }
        }
    }

    /// The mobile whose session has this name.
    fn mobile_of(&self, session: SessionId) -> Option<PublicKey> {
        self.names.iter().find(|(_, name)| **name == session).map(|(mobile, _)| *mobile)
    }

    /// The peer of an association carries on connections that its session does not have.
    pub(super) fn handle_wanted(&mut self, core: &mut Core<H>, id: Way<H::Id>, session: SessionId) {
        match (id, core.hop.key_of(id)) {
            // It waits for the state. Its Greet may be behind; the session's own patience ends this.
            (Way::Mobile(_), Some(mobile)) => {
                self.wanted.insert(mobile, (session, core.now));
                self.look_again(core, mobile);
            }
            (Way::Peer(_), _) if self.kept.contains_key(&session) => {}
            _ => self.decline(core, id, session),
        }
    }

    /// A mobile that has come back over the association that it had carries on what never left.
    fn look_again(&mut self, core: &mut Core<H>, mobile: PublicKey) {
        let Some((session, since)) = self.wanted.get(&mobile).copied() else { return };
        let heard = self.greeted.contains(&mobile) || since + WANTED_PATIENCE <= core.now;
        if !heard || !self.machine.is_here(session) {
            return;
        }
        let Some(id) = self.present.get(&mobile).copied() else { return };
        self.settled(mobile);
        for (_, key) in core.connections_of(id) {
            if matches!(core.connections.get(key), Some(c) if matches!(c.phase, Phase::Waiting(_)))
            {
                Self::abandon(core, key);
            }
        }
        let now = core.now;
        if let Some((own, mut streams)) = core.session(id) {
            let state = own.freeze(now, &mut streams, session);
            own.adopt(now, state);
        }
    }

    /// Looks again at what has been wanted for long: what does not come is declined, so that its
    /// connections do not hang.
    fn end_long_waits(&mut self, core: &mut Core<H>) {
        let late = |(mobile, (session, since)): (&PublicKey, &(SessionId, Time))| {
            (*since + WANTED_PATIENCE <= core.now).then_some((*mobile, *session))
        };
        let late: Vec<_> = self.wanted.iter().filter_map(late).collect();
        for (mobile, session) in late {
            if self.machine.is_here(session) {
                self.look_again(core, mobile);
            } else if !self.machine.is_coming(session) && !self.calling.contains_key(&mobile) {
                self.end_wait(core, session, mobile);
            } else if let Some((_, since)) = self.wanted.get_mut(&mobile) {
                *since = core.now;
            }
        }
    }

    /// A mobile's session stands on its association, and with it what was carried on there.
    fn settled(&mut self, mobile: PublicKey) {
        self.wanted.remove(&mobile);
        self.greeted.remove(&mobile);
        self.away.remove(&mobile);
    }

    /// The session broke and began anew elsewhere.
    fn on_over(&mut self, core: &mut Core<H>, session: SessionId) {
        if let Some((_, sockets)) = self.recall(core, session) {
            Self::reset_sockets(core, sockets.into_values());
        }
        let id = self.mobile_of(session).and_then(|mobile| self.present.get(&mobile).copied());
        if let Some((own, mut streams)) = id.and_then(|id| core.session(id)) {
            own.reset_all(&mut streams, ResetReason::AssociationLost);
        }
    }

    fn decline(&self, core: &mut Core<H>, id: Way<H::Id>, wanted: SessionId) {
        let now = core.now;
        if let Some((session, mut streams)) = core.session(id) {
            session.decline(now, &mut streams, wanted);
        }
    }

    /// Lets the machine act and say what it has to; true if there may be more.
    pub(super) fn advance(&mut self, core: &mut Core<H>) -> bool {
        let now = core.now;
        if self.machine.next_timeout().is_some_and(|at| at <= now) {
            self.machine.handle_timeout(now);
        }
        self.expire(core);
        self.expire_far(core);
        self.drop_idle_links(core);
        self.end_late_calls(core);
        self.end_long_waits(core);
        let heard = self.hear_calls(core);
        self.do_chores(core, Some(now));
        self.end_waits_for_helper(core);
        if let Some(migration) = &mut self.migration {
            migration.poll();
            migration.handle_timeout(now);
        }
        let mut some = heard;
        for _ in 0..ROUND_MAX {
            if let Some(event) = self.machine.poll_event() {
                self.handle_event(core, event);
            } else if !self.say(core) {
                break;
            }
            some = true;
        }
        some
    }

    /// When [`advance`](Self::advance) wants to be called at the latest.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        let kept = self.kept.values().filter_map(Kept::deadline).min();
        let calls = self.calling.values().map(|(_, until)| *until).min();
        let chores = self.next_chore();
        let unhelped = self.unhelped.values().map(|(_, until)| *until).min();
        let wanted = self.wanted.values().map(|(_, since)| *since + WANTED_PATIENCE).min();
        let far = self.far.values().filter_map(|far| far.until).min();
        let migration = self.migration.as_ref().and_then(Migration::next_timeout);
        let own = [self.machine.next_timeout(), kept, calls, chores, unhelped];
        let others = [wanted, far, migration];
        own.into_iter().chain(others).flatten().min()
    }

    /// Sends one message, if there is one.
    fn say(&mut self, core: &mut Core<H>) -> bool {
        let now = core.now;
        let Some(to) = self.machine.poll_transmit(now, &mut self.message) else { return false };
        let links = if is_copy(&self.message) { &self.copies } else { &self.links };
        let link = links.get(&to).map(|part| Way::Link(*part));
        let Some(id) = link.or_else(|| self.present.get(&to).copied()) else { return true };
        let kind = self.message.get(1);
        tracing::trace!(to = self.name_of(to), kind, "a message of a handoff leaves");
        if let Some((session, mut streams)) = core.session(id)
            && let Err(error) = session.send_message(now, &mut streams, &self.message)
        {
            // As good as lost on the way: whoever misses it asks again.
            tracing::debug!(to = self.name_of(to), %error, "handoff message dropped");
        }
        true
    }

    fn handle_event(&mut self, core: &mut Core<H>, event: BaseEvent<PublicKey>) {
        match event {
            BaseEvent::Freeze { session, mobile } => self.give(core, session, mobile),
            BaseEvent::Over(session) => self.on_over(core, session),
            BaseEvent::Copy(session) => self.copy(core, session),
            BaseEvent::Rebuild { state, mobile } => self.take(core, state, mobile),
            BaseEvent::Resumed { session, mobile } => {
                tracing::info!(%session, %mobile, "session taken over");
                self.look_again(core, mobile);
            }
            BaseEvent::Forward { session, to, .. } => self.on_given(core.now, session, to),
            BaseEvent::Expired(state) => self.on_expired(core, state),
            BaseEvent::Begins { session, mobile } => {
                // What was to leave of it is over.
                self.unhelped.remove(&session);
                self.end_wait(core, session, mobile);
                if let Some(migration) = &mut self.migration {
                    migration.settle_whole(core.now, mobile);
                }
            }
            BaseEvent::Lost { session, mobile, reason } => {
                tracing::warn!(%session, %mobile, %reason, "handoff failed: session state not received");
                self.counters.lost += 1;
            }
            BaseEvent::Refused { session, from, why } => {
                tracing::warn!(%session, from = self.name_of(from), %why, "refused");
                self.counters.refused += 1;
            }
        }
    }

    /// What a mobile wants to carry on here is not, and does not come.
    fn end_wait(&mut self, core: &mut Core<H>, session: SessionId, mobile: PublicKey) {
        self.settled(mobile);
        if let Some(id) = self.present.get(&mobile).copied() {
            self.decline(core, id, session);
        }
    }

    fn on_given(&mut self, now: Time, session: SessionId, to: PublicKey) {
        self.counters.given += 1;
        tracing::info!(%session, to = self.name_of(to), "session handed over");
        let via = self.peer(to).map(|peer| peer.via);
        self.chores.push_back((now + CHORE_DELAY, Chore::Reroute { session, via }));
    }

    /// Whether the helper is away, as far as is known.
    fn is_unhelped(&self) -> bool {
        self.migration.as_ref().is_some_and(Migration::is_unhelped)
    }

    /// When the next chore is to be done. A helper that is away is waited for.
    fn next_chore(&self) -> Option<Time> {
        let (at, _) = self.chores.front()?;
        Some(if self.is_unhelped() { *at + HELPER_PATIENCE } else { *at })
    }

    /// Does what is due, or everything if `now` is `None`.
    fn do_chores(&mut self, core: &mut Core<H>, now: Option<Time>) {
        while let Some(at) = self.next_chore()
            && now.is_none_or(|now| at <= now)
            && let Some((_, chore)) = self.chores.pop_front()
        {
            match chore {
                Chore::Reroute { session, via } => {
                    let mobile = self.mobile_of(session);
                    if let Some(migration) = &mut self.migration {
                        migration.given(session, mobile, via);
                    }
                }
                Chore::Restore(homecoming) => self.restore(core, homecoming),
            }
        }
    }

    /// The other bases, for a report.
    pub(super) fn peer_reports(&self, core: &Core<H>) -> Vec<PeerReport> {
        let report = |peer: &Peer| PeerReport {
            name: peer.name.clone(),
            key: peer.key.to_string(),
            address: peer.address.to_string(),
            up: self.links.get(&peer.key).is_some_and(|part| core.hop.is_linked(*part)),
        };
        self.config.peers.iter().map(report).collect()
    }

    /// Resets the connection with this name.
    fn break_off(core: &mut Core<H>, id: Way<H::Id>, conn: ConnId, reason: ResetReason) {
        if let Some((session, mut streams)) = core.session(id) {
            session.reset(&mut streams, conn, reason);
        }
    }
}

/// Whether a message is a piece of a copy that is sent ahead.
fn is_copy(message: &[u8]) -> bool {
    matches!(Datagram::decode(message), Ok(Datagram { message: Message::Ahead { .. }, .. }))
}

/// The end of an association that this base made to another.
fn far_session() -> Session {
    Session::mobile(lasthop_session::Config {
        max_connections: 64 * 1024,
        ..lasthop_session::Config::mobile()
    })
}
