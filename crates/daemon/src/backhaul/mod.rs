//! A base's hop to its mobiles, and its associations with other bases: sealed, over UDP. This base makes
//! one to each peer for messages and one for each session whose sockets a peer keeps; peers make theirs
//! to this base.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use lasthop_control::AssociationReport;
use lasthop_control::past::Progress;
use lasthop_hop::PacketLane;
use lasthop_hop::seal::{Keypair, PresharedKey, PublicKey};
use lasthop_hop::srp::Srp;
use lasthop_hop::{
    AssociationId, HopConfig, Memory, NumberedLink, NumberedLinks, Part, Refused, Stray,
};
use lasthop_kernel::clock;
use lasthop_kernel::cpu;
use lasthop_kernel::reactor::Readiness;
use lasthop_kernel::slab::Key;
use lasthop_kernel::turn::Turn;
use lasthop_session::SessionId;
use lasthop_session::station::Farewell;
use lasthop_units::{Bytes, Duration, Seed, Time};

use crate::carrier::udp::Udp;
use crate::carrier::{Carrier, Route};
use crate::config::SrpFile;
use crate::datagram::settings::{self, Passage};
use crate::datagram::{DatagramBase, DatagramMobile};
use crate::handshake::{Caller, Introduction};
use crate::hop::{AnyStreams, BaseHop, Hop, HopEvent, MobileHop};
use crate::hop_set::HopSet;
use crate::keyfile::PresharedKeys;

/// The listener's part of the hop; mobiles are part zero, and links come after both.
const LISTENER: u32 = 1;
/// The first link's part.
const LINKS: u32 = 2;
/// Associations that one peer may have here at once: two for messages, and one for each session that it
/// has taken over and whose sockets are here. One too many waits; none ends for it.
const PER_PEER: usize = 4096;
/// Streams of one association between bases.
const STREAMS: usize = 16 * 1024;

/// Another base.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// What people call it.
    pub name: String,
    /// Its key.
    pub key: PublicKey,
    /// The file with the pre-shared key, if there is one.
    pub psk: Option<PathBuf>,
    /// Where it listens for bases.
    pub address: SocketAddr,
    /// Where it serves mobiles; if nobody says, the IP of `address` with the port of this base.
    pub hop: Option<SocketAddr>,
    /// Where the wired network reaches it, for routes; that of `address` if nobody says.
    pub via: IpAddr,
}

/// Names an association of a base: by who made it, and what for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum BaseAssociationId {
    /// A mobile's.
    Mobile(AssociationId),
    /// One that another base made.
    Peer(AssociationId),
    /// One that this base made to another.
    Link(u32),
}

type Link = DatagramMobile<NumberedLink<Route, Srp>>;
type Listener = DatagramBase<NumberedLinks<Route, Srp>>;

/// A hop to mobiles, with associations between bases beside it.
pub(crate) struct WithPeers {
    pub(crate) mobiles: Box<dyn BaseHop>,
    peers: Option<Peers>,
}

/// A base that is silent for this long is taken for gone; idle associations are probed every
/// [`KEEPALIVE`].
const SILENCE: Duration = Duration::from_secs(8);
const KEEPALIVE: Duration = Duration::from_secs(4);
/// What a peer may send of a message before it is read: whole sessions come that way.
const MESSAGES: Bytes = Bytes::from_mib(16);
/// What the base that keeps a socket may send ahead of the mobile's taking it, at first and at most: it
/// must move along when the mobile moves on.
const BYTES: Bytes = Bytes::from_kib(64);
const BYTES_MAX: Bytes = Bytes::from_kib(256);

/// What a base takes from a wired socket ahead of sending it on: it must move along when the mobile
/// comes back.
const AHEAD: Duration = Duration::from_millis(5);

/// SRP's configuration between bases: over wires, and mostly for whole sessions at once.
fn between_bases(
    ipv6: bool,
    stream_window: Bytes,
    memory: &Memory,
    packet_max: Bytes,
) -> HopConfig {
    HopConfig {
        memory: memory.clone(),
        packet_max,
        stream_window,
        association_window: Bytes::from_mib(64),
        ahead: AHEAD,
        ahead_min: Bytes::from_kib(128),
        initial_datagrams: 128,
        silence_limit: SILENCE,
        keepalive: KEEPALIVE,
        ..settings::srp(&SrpFile::default(), Passage::udp(ipv6), STREAMS)
    }
}

/// What an association to another base is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// Handoff messages, or copies of sessions that are sent ahead of a handoff.
    Messages,
    /// The bytes of this session's connections, whose sockets are there.
    Bytes(SessionId),
}

/// Begins an association for the bytes of a session: the base that has their sockets may serve mobiles by parts.
fn greeting_for(session: SessionId) -> [u8; 8] {
    session.0.to_be_bytes()
}

/// The session that a greeting is for.
pub(crate) fn greeted_for(greeting: &[u8]) -> Option<SessionId> {
    Some(SessionId(u64::from_be_bytes(greeting.try_into().ok()?)))
}

/// The associations with other bases.
struct Peers {
    listener: Listener,
    links: HopSet,
    /// The key of the base that a link leads to.
    keys_of: BTreeMap<u32, PublicKey>,
    keys: Keypair,
    psks: PresharedKeys,
    seed: Seed,
    memory: Memory,
    packet_max: Bytes,
    made: u64,
}

/// What is needed for associations with other bases.
pub(crate) struct Backhaul<'a> {
    /// Where it listens.
    pub(crate) udp: Udp,
    /// Which part of the base this is, if there are several.
    pub(crate) part: Option<Part>,
    /// This base's keys.
    pub(crate) keys: Keypair,
    /// What it shares with those that have a pre-shared key.
    pub(crate) psks: PresharedKeys,
    /// The bases that may call.
    pub(crate) peers: &'a [Peer],
    /// Entropy.
    pub(crate) seed: Seed,
    /// What the buffers come out of.
    pub(crate) memory: Memory,
    /// The longest packet for its mobiles that other bases may pass on to it; nothing if it has no way for them.
    pub(crate) packet_max: Bytes,
}

impl WithPeers {
    /// A base that knows no others.
    pub(crate) fn alone(mobiles: Box<dyn BaseHop>) -> Self {
        Self { mobiles, peers: None }
    }

    /// Listens for other bases too.
    pub(crate) fn open(mobiles: Box<dyn BaseHop>, backhaul: Backhaul<'_>) -> Self {
        let Backhaul { udp, part, keys, psks, peers, seed, memory, packet_max } = backhaul;
        let settings = between_bases(udp.is_ipv6(), MESSAGES, &memory, packet_max);
        let allowed = psks.allowed(peers.iter().map(|peer| peer.key));
        let machine = lasthop_hop::Base::<_, Srp>::new(
            settings,
            keys.clone(),
            allowed,
            seed.child("listener"),
        );
        let part = part.map(|part| Part { greeted: true, ..part });
        let machine = machine.with_many(PER_PEER).with_part(part).with_fast_aes(cpu::fast_aes());
        let listener = DatagramBase::new("srp", machine, Box::new(udp));
        let links = HopSet::new(LINKS);
        let keys_of = BTreeMap::new();
        let peers =
            Peers { listener, links, keys_of, keys, psks, seed, memory, packet_max, made: 0 };
        Self { mobiles, peers: Some(peers) }
    }

    /// Makes an association to another base, which comes up by itself, and waits for a socket where the kernel
    /// has none at the moment.
    ///
    /// # Errors
    ///
    /// This base knows no others.
    pub(crate) fn link(
        &mut self,
        turn: &mut Turn<'_>,
        peer: &Peer,
        purpose: Purpose,
    ) -> io::Result<u32> {
        let Some(peers) = &mut self.peers else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let udp = Udp::anywhere(None);
        let route = udp.route_to(peer.address);
        let window = match purpose {
            Purpose::Messages => MESSAGES,
            Purpose::Bytes(_) => BYTES,
        };
        let settings =
            between_bases(peer.address.is_ipv6(), window, &peers.memory, peers.packet_max);
        let settings = match purpose {
            Purpose::Messages => settings,
            Purpose::Bytes(_) => HopConfig { stream_memory: BYTES_MAX, ..settings },
        };
        peers.made += 1;
        let machine = lasthop_hop::Mobile::<Route, Srp>::new(
            settings,
            peers.keys.clone(),
            peer.key,
            Route::Nowhere,
            peers.seed.child(&format!("link {}", peers.made)),
            turn.now,
        );
        let mut machine = machine
            .with_psk(turn.now, peers.psks.with(&peer.key))
            .with_fast_aes(turn.now, cpu::fast_aes())
            .with_wall_clock(turn.now, clock::wall_nanos());
        if let Purpose::Bytes(session) = purpose {
            machine.greet(turn.now, &greeting_for(session));
        }
        let own = Introduction { caller: Caller::Base, own: *peers.keys.public() };
        let link = Link::new("srp", machine, Box::new(udp), Some(peer.key), route, Some(own));
        let part = peers.links.add(Box::new(link));
        peers.keys_of.insert(part, peer.key);
        let started = peers.links.with(turn, part, |hop, turn| hop.start(turn));
        if let Some(Err(e)) = started {
            self.unlink(turn, part, Farewell::None);
            return Err(e);
        }
        Ok(part)
    }

    /// Closes an association that this base made.
    pub(crate) fn unlink(&mut self, turn: &mut Turn<'_>, part: u32, farewell: Farewell) {
        let Some(peers) = &mut self.peers else { return };
        peers.keys_of.remove(&part);
        match farewell {
            Farewell::Said => peers.links.remove(turn, part),
            Farewell::None => peers.links.discard(turn, part),
        }
    }

    /// Knows these bases from here on, with these pre-shared keys. Associations that others made are lost, and those to
    /// bases that are elsewhere go on there.
    pub(crate) fn set_peers(&mut self, turn: &mut Turn<'_>, known: &[Peer], psks: PresharedKeys) {
        let Some(peers) = &mut self.peers else { return };
        let allowed = psks.allowed(known.iter().map(|peer| peer.key));
        peers.listener.set_allowed(&mut turn.within(LISTENER), &allowed);
        peers.psks = psks;
        for (part, key) in &peers.keys_of {
            if let Some(peer) = known.iter().find(|peer| peer.key == *key) {
                peers.links.with(turn, *part, |hop, turn| hop.set_base(turn, peer.address));
            }
        }
    }

    /// What is shared with another base beside the keys.
    pub(crate) fn psk_with(&self, peer: &PublicKey) -> PresharedKey {
        self.peers.as_ref().map(|peers| peers.psks.with(peer)).unwrap_or_default()
    }

    /// Closes an association that another base made.
    pub(crate) fn close_accepted(&mut self, id: AssociationId) {
        if let Some(peers) = &mut self.peers {
            peers.listener.end(id);
        }
    }

    /// Whether an association that this base made stands.
    pub(crate) fn is_linked(&self, part: u32) -> bool {
        let link = self.peers.as_ref().and_then(|peers| peers.links.get(part));
        link.is_some_and(MobileHop::is_up)
    }
}

/// Asks the hop that has an association, if there is one. `$peers` borrows those of other bases: `as_ref` or `as_mut`.
macro_rules! ask {
    ($all:ident, $peers:ident, $what:ident($id:ident)) => {
        match ($id, $all.peers.$peers()) {
            (BaseAssociationId::Mobile(id), _) => Some($all.mobiles.$what(id)),
            (BaseAssociationId::Peer(id), Some(peers)) => Some(peers.listener.$what(id)),
            (BaseAssociationId::Link(part), Some(peers)) => Some(peers.links.$what(part)),
            (_, None) => None,
        }
    };
}

impl Hop for WithPeers {
    type Id = BaseAssociationId;

    fn name(&self) -> &'static str {
        self.mobiles.name()
    }

    fn handle_ready(&mut self, turn: &mut Turn<'_>, key: Key, readiness: Readiness) {
        match (turn.part, &mut self.peers) {
            (0, _) => self.mobiles.handle_ready(turn, key, readiness),
            (LISTENER, Some(peers)) => peers.listener.handle_ready(turn, key, readiness),
            (_, Some(peers)) => peers.links.handle_ready(turn, key, readiness),
            (_, None) => {}
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        let peers = self.peers.iter();
        let peers = peers.flat_map(|p| [p.listener.next_timeout(), p.links.next_timeout()]);
        peers.chain([self.mobiles.next_timeout()]).flatten().min()
    }

    fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if is_due(self.mobiles.next_timeout()) {
            self.mobiles.handle_timeout(&mut turn.within(0));
        }
        if let Some(peers) = &mut self.peers {
            if is_due(peers.listener.next_timeout()) {
                peers.listener.handle_timeout(&mut turn.within(LISTENER));
            }
            peers.links.handle_timeout(turn);
        }
    }

    fn pump(&mut self, turn: &mut Turn<'_>) {
        self.mobiles.pump(&mut turn.within(0));
        if let Some(peers) = &mut self.peers {
            peers.listener.pump(&mut turn.within(LISTENER));
            peers.links.pump(turn);
        }
    }

    fn flush(&mut self, turn: &mut Turn<'_>) {
        self.mobiles.flush(&mut turn.within(0));
        if let Some(peers) = &mut self.peers {
            peers.listener.flush(&mut turn.within(LISTENER));
            peers.links.flush(turn);
        }
    }

    fn patience(&self, id: Self::Id) -> Duration {
        ask!(self, as_ref, patience(id)).unwrap_or(Duration::ZERO)
    }

    fn poll_event(&mut self) -> Option<HopEvent<Self::Id>> {
        if let Some(event) = self.mobiles.poll_event() {
            return Some(event.map(BaseAssociationId::Mobile));
        }
        let peers = self.peers.as_mut()?;
        if let Some(event) = peers.listener.poll_event() {
            return Some(event.map(BaseAssociationId::Peer));
        }
        peers.links.poll_event().map(|event| event.map(BaseAssociationId::Link))
    }

    fn poll_active(&mut self) -> Option<Self::Id> {
        if let Some(id) = self.mobiles.poll_active() {
            return Some(BaseAssociationId::Mobile(id));
        }
        let peers = self.peers.as_mut()?;
        let peer = peers.listener.poll_active().map(BaseAssociationId::Peer);
        peer.or_else(|| peers.links.poll_active().map(BaseAssociationId::Link))
    }

    fn is_active(&self) -> bool {
        let peers = self.peers.as_ref();
        self.mobiles.is_active()
            || peers.is_some_and(|p| p.listener.is_active() || p.links.is_active())
    }

    fn packets(&mut self, id: Self::Id) -> Option<&mut PacketLane> {
        ask!(self, as_mut, packets(id)).flatten()
    }

    fn packets_so_far(&mut self, id: Self::Id) -> Option<&mut PacketLane> {
        ask!(self, as_mut, packets_so_far(id)).flatten()
    }

    fn streams(&mut self, id: Self::Id) -> Option<&mut AnyStreams> {
        ask!(self, as_mut, streams(id)).flatten()
    }

    fn remove_association(&mut self, turn: &mut Turn<'_>, id: Self::Id) {
        match (id, &mut self.peers) {
            (BaseAssociationId::Mobile(id), _) => {
                self.mobiles.remove_association(&mut turn.within(0), id)
            }
            (BaseAssociationId::Peer(id), Some(peers)) => {
                peers.listener.remove_association(&mut turn.within(LISTENER), id);
            }
            (BaseAssociationId::Link(part), Some(peers)) => {
                peers.links.remove_association(turn, part)
            }
            (_, None) => {}
        }
    }

    fn close(&mut self, turn: &mut Turn<'_>) {
        self.mobiles.close(&mut turn.within(0));
        if let Some(peers) = &mut self.peers {
            peers.listener.close(&mut turn.within(LISTENER));
            peers.links.close(turn);
        }
    }

    /// As the [reports](Self::reports), of mobiles only.
    fn progress(&mut self, id: Self::Id) -> Option<Progress> {
        match id {
            BaseAssociationId::Mobile(id) => self.mobiles.progress(id),
            _ => None,
        }
    }

    fn reports(&self, now: Time) -> Vec<AssociationReport> {
        self.mobiles.reports(now)
    }

    fn garbage(&self) -> u64 {
        let peers = self.peers.as_ref();
        let peers = peers.map_or(0, |p| p.listener.garbage() + p.links.garbage());
        self.mobiles.garbage() + peers
    }
}

impl WithPeers {
    /// Starts to watch its sockets.
    pub(crate) fn start(&mut self, turn: &mut Turn<'_>) -> io::Result<()> {
        self.mobiles.start(&mut turn.within(0))?;
        match &mut self.peers {
            Some(peers) => peers.listener.start(&mut turn.within(LISTENER)),
            None => Ok(()),
        }
    }

    /// A handshake that was not answered, and who should have made it.
    pub(crate) fn poll_refused(&mut self) -> Option<(Caller, Refused<String>)> {
        if let Some(refused) = self.mobiles.poll_refused() {
            return Some((Caller::Mobile, refused));
        }
        let refused = self.peers.as_mut()?.listener.poll_refused()?;
        Some((Caller::Base, refused))
    }

    /// The next datagram that came to this part of the base and is another's, with who should have sent it.
    pub(crate) fn poll_stray(&mut self) -> Option<(Caller, Stray<Route>)> {
        if let Some(stray) = self.mobiles.poll_stray() {
            return Some((Caller::Mobile, stray));
        }
        Some((Caller::Base, self.peers.as_mut()?.listener.poll_stray()?))
    }

    /// Takes in a datagram of this part's that came to another.
    pub(crate) fn handle_stray(
        &mut self,
        turn: &mut Turn<'_>,
        caller: Caller,
        from: Route,
        datagram: &mut [u8],
    ) {
        match (caller, &mut self.peers) {
            (Caller::Mobile, _) => self.mobiles.handle_stray(&mut turn.within(0), from, datagram),
            (Caller::Base, Some(peers)) => {
                peers.listener.handle_stray(&mut turn.within(LISTENER), from, datagram);
            }
            (Caller::Base, None) => {}
        }
    }

    /// No part of the base serves whose handshake came from there.
    pub(crate) fn refuse_stranger(
        &mut self,
        turn: &mut Turn<'_>,
        caller: Caller,
        from: Route,
        key: PublicKey,
    ) {
        match (caller, &mut self.peers) {
            (Caller::Mobile, _) => self.mobiles.refuse_stranger(&mut turn.within(0), from, key),
            (Caller::Base, Some(peers)) => {
                peers.listener.refuse_stranger(&mut turn.within(LISTENER), from, key);
            }
            (Caller::Base, None) => {}
        }
    }

    /// The key of the other end of an association, where it has one.
    pub(crate) fn key_of(&self, id: BaseAssociationId) -> Option<PublicKey> {
        match (id, &self.peers) {
            (BaseAssociationId::Mobile(id), _) => self.mobiles.key_of(id),
            (BaseAssociationId::Peer(id), Some(peers)) => peers.listener.key_of(id),
            (BaseAssociationId::Link(part), Some(peers)) => peers.keys_of.get(&part).copied(),
            (_, None) => None,
        }
    }

    /// Whether a mobile has a server on `port`; `None` if it has announced nothing.
    pub(crate) fn listens(&self, id: BaseAssociationId, port: u16) -> Option<bool> {
        match id {
            BaseAssociationId::Mobile(id) => self.mobiles.listens(id, port),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
