//! A base's part in handoffs: the machine, and what links it with the loop, with other bases and with
//! whoever reads the log.

mod changes;
mod migration;
mod reclaim;
mod strays;
mod wires;

use std::collections::BTreeMap;

use lasthop_control::{Handoffs as HandoffCounters, PeerReport};
use lasthop_hop::seal::{Keypair, PublicKey};
use lasthop_kernel::log_limit::LogLimit;
use lasthop_kernel::slab::Key;
use lasthop_migrate::{Dumped, Failed};
use lasthop_session::handoff::{self, BaseKeys};
use lasthop_session::station::{self, Note, NoteKind, Reclaimed, Station};
use lasthop_session::{Event, Session, SessionId};
use lasthop_units::{Bytes, Time};
use lasthop_wire::packet::Packet;

pub(super) use self::migration::Migration;
use self::strays::Strays;
use self::wires::{BaseWires, HandoffContext};
use super::{BaseConfig, Fallback, HandoffConfig, HandoffFile, MobileEntry, Mode, Surrogate};
use crate::backhaul::{BaseAssociationId, Peer, WithPeers};
use crate::dial::Exited;
use crate::driver;
use crate::hop::{Hop, HopEvent};
use crate::packets::{Sorting, Verdict};

/// Messages in one round; what is left waits for the next.
const ROUND_MAX: usize = 1024;

/// The loop's core, at a base with the hop `H` to mobiles.
pub(super) type Core = driver::Core<WithPeers, Surrogate>;

/// A base's part in handoffs.
pub(super) struct Handoffs {
    station: Station<PublicKey, BaseKeys, BaseAssociationId, Key>,
    means: HandoffContext,
    /// The association that this base makes to each peer for messages.
    links: BTreeMap<PublicKey, u32>,
    /// Another to each peer, for copies that are sent ahead: nothing urgent is to wait behind them.
    copies: BTreeMap<PublicKey, u32>,
    /// The last reason that was logged for a peer's being unreachable.
    reported: BTreeMap<PublicKey, String>,
    /// Who was refused something.
    refused: BTreeMap<PublicKey, LogLimit>,
    message: Vec<u8>,
}

impl Handoffs {
    /// The part of a base with these keys, which serves these mobiles. Sessions that are on their way take
    /// so much memory at most.
    pub(super) fn new(
        config: HandoffConfig,
        keys: Keypair,
        base: &BaseConfig,
        memory: Bytes,
        migration: Option<Migration>,
    ) -> Self {
        let own = *keys.public();
        let mut authority = BaseKeys::new(keys);
        for peer in &config.peers {
            authority.allow_base(peer.key);
        }
        for mobile in &base.allow {
            authority.allow_mobile(*mobile);
        }
        let config_of_base = handoff::Config::base().over_streams();
        let memory_max = config_of_base.memory_max.min(memory);
        let takes_over = migration.as_ref().is_some_and(Migration::takes_over);
        let take_over = takes_over.then(|| config.settings.take_over().0);
        let patience = handoff::Config { memory_max, take_over, ..config_of_base };
        Self {
            station: Station::new(patience, own, authority),
            means: HandoffContext { config, migration, strays: Strays::default() },
            links: BTreeMap::new(),
            copies: BTreeMap::new(),
            reported: BTreeMap::new(),
            refused: BTreeMap::new(),
            message: Vec::new(),
        }
    }

    /// Whether a mobile that has an association here has left.
    pub(super) fn is_away(&self, mobile: PublicKey) -> bool {
        self.station.is_away(mobile)
    }

    /// Whether no other base is known.
    pub(super) fn is_alone(&self) -> bool {
        self.means.config.peers.is_empty()
    }

    /// Sessions that are elsewhere, and of which sockets are here.
    pub(super) fn anchored(&self) -> usize {
        self.station.anchored()
    }

    /// A mobile has connections here.
    pub(super) fn end_move(&mut self, mobile: PublicKey) {
        if let Some(migration) = &mut self.means.migration {
            migration.end_move(mobile);
        }
    }

    /// A mobile that has just gone to another base.
    pub(super) fn poll_left(&mut self) -> Option<PublicKey> {
        self.means.strays.poll_left()
    }

    /// Passes a packet on to the base that its mobile has gone to; none if it is not known to have gone.
    pub(super) fn pass_on(
        &mut self,
        hop: &mut WithPeers,
        (now, sorting): (Time, &Sorting),
        mobile: PublicKey,
        packet: &Packet,
        bytes: &[u8],
    ) -> Option<Verdict> {
        let base = self.means.strays.base_of(mobile)?;
        let link = self.copies.get(&base).map(|part| BaseAssociationId::Link(*part));
        let lane = link.and_then(|link| hop.packets(link));
        Some(self.means.strays.pass_on(now, sorting, lane, packet, bytes))
    }

    /// Something happened to an association.
    pub(super) fn handle_association(
        &mut self,
        core: &mut Core,
        event: &HopEvent<BaseAssociationId>,
    ) {
        let (now, Self { station, means, .. }) = (core.now, &mut *self);
        match event {
            HopEvent::Up(id @ BaseAssociationId::Mobile(_)) => {
                if let Some(mobile) = core.hop.key_of(*id) {
                    station.handle_up(&mut BaseWires { core, means }, now, *id, mobile);
                }
            }
            HopEvent::Up(BaseAssociationId::Link(part)) => self.on_link_up(core, *part),
            HopEvent::Lost(id @ (BaseAssociationId::Mobile(_) | BaseAssociationId::Peer(_)), _) => {
                station.handle_lost(&mut BaseWires { core, means }, now, *id);
            }
            // It is busy: what waits for it has a limit of its own.
            HopEvent::Unreachable(BaseAssociationId::Link(part), _)
                if self.is_answering(core, *part) => {}
            HopEvent::Lost(BaseAssociationId::Link(part), why)
            | HopEvent::Unreachable(BaseAssociationId::Link(part), why) => {
                self.on_link_down(core, *part, why)
            }
            _ => {}
        }
    }

    fn on_link_up(&mut self, core: &mut Core, part: u32) {
        let id = BaseAssociationId::Link(part);
        let Some(peer) = core.hop.key_of(id) else { return };
        let (now, Self { station, means, .. }) = (core.now, &mut *self);
        if station.handle_linked(&mut BaseWires { core, means }, now, id) {
            return;
        }
        if self.links.get(&peer) == Some(&part) {
            tracing::info!(peer = self.means.name_of(peer), "peer base up");
            self.reported.remove(&peer);
            self.station.reached(now, peer);
        }
        // Messages to an earlier life of it are not for this one.
        core.close_session(id);
        core.open_session(id, far_session);
    }

    /// Whether the peer that an association for bytes is to lead to answers over the one for messages.
    fn is_answering(&self, core: &Core, part: u32) -> bool {
        let peer = core.hop.key_of(BaseAssociationId::Link(part));
        let link = peer.and_then(|peer| self.links.get(&peer)).filter(|link| **link != part);
        link.is_some_and(|link| core.hop.is_linked(*link))
    }

    fn on_link_down(&mut self, core: &mut Core, part: u32, why: &str) {
        let (now, Self { station, means, .. }) = (core.now, &mut *self);
        if station.handle_link_lost(
            &mut BaseWires { core, means },
            BaseAssociationId::Link(part),
            why,
        ) {
            return;
        }
        let link = self.links.iter().find(|(_, n)| **n == part);
        if let Some((peer, _)) = link {
            let peer = *peer;
            // Once for each reason, as long as it lasts.
            if self.reported.insert(peer, why.to_owned()).as_deref() != Some(why) {
                tracing::warn!(peer = self.means.name_of(peer), why, "peer base down");
            }
            // A peer that was restarted may send again before the loss of its earlier life is reported.
            if !core.hop.is_linked(part) {
                self.station.unreachable(now, peer);
            }
        }
    }

    /// Takes a handoff message from the peer of an association.
    pub(super) fn handle_message(
        &mut self,
        core: &mut Core,
        id: BaseAssociationId,
        message: &[u8],
    ) {
        let Some(from) = core.hop.key_of(id) else { return };
        let (now, Self { station, means, .. }) = (core.now, &mut *self);
        means.trace_received(from, message);
        let world = &mut BaseWires { core, means };
        match id {
            BaseAssociationId::Mobile(_) => station.handle_mobile(world, now, from, message),
            BaseAssociationId::Peer(_) => station.handle_peer(world, now, id, from, message),
            BaseAssociationId::Link(_) => station.handle_link(world, now, id, from, message),
        }
    }

    /// Takes a message from a base that came to another worker, and that is about a session of a mobile served here.
    pub(super) fn handle_passed(&mut self, now: Time, from: PublicKey, message: &[u8]) {
        self.means.trace_received(from, message);
        self.station.handle_base(now, from, message);
    }

    /// Takes an event of an association's session.
    pub(super) fn handle_event(&mut self, id: BaseAssociationId, event: &Event) {
        self.station.handle_event(id, event);
    }

    /// The peer of an association carries on connections that its session does not have.
    pub(super) fn handle_wanted(
        &mut self,
        core: &mut Core,
        id: BaseAssociationId,
        session: SessionId,
    ) {
        let (now, Self { station, means, .. }) = (core.now, &mut *self);
        let Some(from) = core.hop.key_of(id) else { return };
        station.handle_wanted(&mut BaseWires { core, means }, now, id, from, session);
    }

    /// Connections of a session were taken out of the kernel.
    pub(super) fn handle_dumped(
        &mut self,
        core: &mut Core,
        session: SessionId,
        outcomes: Vec<Result<Dumped, Box<Failed>>>,
    ) {
        let (now, Self { station, means, .. }) = (core.now, &mut *self);
        let world = &mut BaseWires { core, means };
        let dumped = world.dumped(session, outcomes);
        station.handle_dumped(world, now, session, dumped);
    }

    /// Connections of a session were put into the kernel, or were not, and why.
    pub(super) fn handle_restored(
        &mut self,
        core: &mut Core,
        session: SessionId,
        outcomes: Vec<Result<Exited, String>>,
    ) {
        let Self { station, means, .. } = &mut *self;
        let made = outcomes.into_iter().map(Some).collect();
        station.handle_restored(&mut BaseWires { core, means }, session, made);
    }

    /// Fixed hosts of a session's connections were asked what they have.
    pub(super) fn handle_claimed(
        &mut self,
        core: &mut Core,
        session: SessionId,
        reclaimed: Vec<Option<Reclaimed>>,
    ) {
        let (now, Self { station, means, .. }) = (core.now, &mut *self);
        station.handle_reclaimed(&mut BaseWires { core, means }, now, session, reclaimed);
    }

    /// Runs the machine and sends its messages; true if there may be more.
    pub(super) fn advance(&mut self, core: &mut Core) -> bool {
        let (now, mut some) = (core.now, false);
        while let Some((mobile, message)) = core.hop.mobiles.poll_call() {
            some = true;
            self.station.handle_call(now, mobile, &message);
        }
        if let Some(migration) = &mut self.means.migration {
            migration.handle_timeout(now);
        }
        let Self { station, means, .. } = &mut *self;
        some |= station.advance(&mut BaseWires { core, means }, now);
        for _ in 0..ROUND_MAX {
            if !self.send_message(core) {
                break;
            }
            some = true;
        }
        while let Some(note) = self.station.poll_note() {
            self.log(now, note);
        }
        some
    }

    /// When [`advance`](Self::advance) wants to be called at the latest.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        let station = self.station.next_timeout(self.means.is_ready());
        let migration = self.means.migration.as_ref().and_then(Migration::next_timeout);
        [station, migration].into_iter().flatten().min()
    }

    /// Sends one message, if there is one.
    fn send_message(&mut self, core: &mut Core) -> bool {
        let now = core.now;
        let Some(to) = self.station.poll_transmit(now, &mut self.message) else { return false };
        let links = if station::is_copy(&self.message) { &self.copies } else { &self.links };
        let link = links.get(&to).map(|part| BaseAssociationId::Link(*part));
        let Some(id) = link.or_else(|| self.station.association_of(to)) else { return true };
        let kind = self.message.get(1);
        tracing::trace!(to = self.means.name_of(to), kind, "handoff message sent");
        if let Some((session, mut streams)) = core.session(id)
            && let Err(error) = session.send_message(now, &mut streams, &self.message)
        {
            // As good as lost on the way: whoever misses it asks again.
            tracing::debug!(to = self.means.name_of(to), %error, "handoff message dropped");
        }
        true
    }

    fn log(&mut self, now: Time, Note { session, what }: Note<PublicKey>) {
        let unlogged = match what {
            NoteKind::Refused(from, _) => match self.refused.entry(from).or_default().count(now) {
                None => return,
                unlogged => unlogged,
            },
            _ => None,
        };
        let name = |key| self.means.name_of(key);
        match what {
            NoteKind::Frozen(bytes) => tracing::debug!(%session, bytes, "session frozen"),
            NoteKind::HandedOver(to) => {
                tracing::info!(%session, to = name(to), "session handed over");
            }
            NoteKind::Received(bytes) => tracing::debug!(%session, bytes, "session state received"),
            NoteKind::TakenOver(mobile) => tracing::info!(%session, %mobile, "session taken over"),
            NoteKind::Orphaned { taken, lost } => {
                tracing::warn!(%session, taken, lost, "its base is dead: connections go on from what the mobile has");
            }
            NoteKind::NotReceived(mobile, reason) => {
                tracing::warn!(%session, %mobile, %reason, "handoff failed: session state not received");
            }
            NoteKind::MobileLeft => {
                tracing::warn!(%session, "the mobile left during the handoff: its connections are reset");
            }
            NoteKind::Unclaimed => {
                tracing::warn!(%session, "no mobile claimed a session: its connections are reset");
            }
            NoteKind::Refused(from, why) => {
                tracing::warn!(%session, from = name(from), %why, unlogged, "refused");
            }
            NoteKind::Anchors(to) => {
                tracing::info!(%session, to = name(to), "anchor: relaying to another base");
            }
            NoteKind::NotAttached => {
                tracing::warn!(%session, "anchor: no base claimed the sockets of a session: reset");
            }
            NoteKind::AnchorUnknown(anchor, conn) => {
                let (connection, base) = (conn.0, name(anchor));
                tracing::warn!(%session, connection, base, "anchor: the base with the socket is not a peer of this one");
            }
            NoteKind::AnchorSilent(anchor) => {
                tracing::warn!(%session, anchor = name(anchor), "anchor: the base with the sockets did not answer in time");
            }
            NoteKind::AnchorRefused(anchor, reason) => {
                tracing::warn!(%session, anchor = name(anchor), %reason, "anchor: the base with the sockets refused");
            }
            NoteKind::AnchorLost(anchor, why) => {
                tracing::warn!(%session, anchor = name(anchor), why, "anchor lost: its connections are reset");
            }
        }
    }

    /// What happened so far, for a report.
    pub(super) fn counters(&self) -> HandoffCounters {
        wires::counters(self.station.counts())
    }

    /// The other bases, for a report.
    pub(super) fn peer_reports(&self, core: &Core) -> Vec<PeerReport> {
        let report = |peer: &Peer| PeerReport {
            name: peer.name.clone(),
            key: peer.key.to_string(),
            address: peer.address.to_string(),
            up: self.links.get(&peer.key).is_some_and(|part| core.hop.is_linked(*part)),
        };
        self.means.config.peers.iter().map(report).collect()
    }
}

/// The end of an association that this base made to another.
fn far_session() -> Session {
    Session::mobile(lasthop_session::Config {
        max_connections: 64 * 1024,
        ..lasthop_session::Config::mobile()
    })
}
