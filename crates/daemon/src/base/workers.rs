//! The workers of a base: each is a thread with a loop, associations and sockets of its own. A mobile is served by
//! one of them, whichever its datagrams come to. They share no more than bounds; what one has for another it sends,
//! and none of it is on the way of a connection's bytes.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use lasthop_control::{Counters, Handoffs, Report};
use lasthop_hop::seal::{Allowed, PublicKey};
use lasthop_hop::{Owner, Part, Stray};
use lasthop_kernel::inbox::{Inbox, Outbox, inbox};
use lasthop_kernel::reactor::{Interest, Reactor};
use lasthop_kernel::slab::Key;
use lasthop_kernel::stop::Stop;
use lasthop_kernel::turn::Source;
use lasthop_session::{SessionId, station};
use lasthop_units::Seed;

use super::reload::Members;
use crate::backhaul;
use crate::carrier::Route;
use crate::handshake::Caller;

/// Messages that may wait at a worker before it is sent no more datagrams.
const WAITING_MAX: usize = 1024;

/// Bytes of packets that are passed on together, about,
const BUNDLE_MAX: usize = 16 * 1024;
/// and messages that may wait at a worker before it is sent no more of them.
const BUNDLES_MAX: usize = 256;

/// Messages of other bases that may wait at a worker before others are lost; some are of 16 KiB.
const MESSAGES_MAX: usize = 4096;

/// Which worker serves which mobile. Mobiles whose keys begin alike have the same, so that sessions, whose names begin
/// like their mobile's key, have one too.
#[derive(Debug, Default)]
pub(super) struct Homes(RwLock<BTreeMap<PublicKey, usize>>);

/// Where a mobile is that has a key which begins like this.
fn tagged(homes: &BTreeMap<PublicKey, usize>, tag: [u8; 2]) -> Option<usize> {
    let mut first = [0; 32];
    first[..2].copy_from_slice(&tag);
    let (key, home) = homes.range(PublicKey::from_bytes(first)..).next()?;
    key.as_bytes().starts_with(&tag).then_some(*home)
}

impl Homes {
    /// The mobiles of each of so many workers. One that had a worker keeps it; others go to those that have fewest.
    pub(super) fn divide(&self, allowed: &[Allowed], workers: usize) -> Vec<Vec<Allowed>> {
        let mut homes = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *homes);
        let mut parts = vec![Vec::new(); workers];
        let (known, new): (Vec<_>, Vec<_>) =
            allowed.iter().partition(|mobile| before.contains_key(&mobile.key));
        for mobile in known.into_iter().chain(new) {
            let fewest = || (0..workers).min_by_key(|n| parts[*n].len()).unwrap_or_default();
            let [a, b, ..] = *mobile.key.as_bytes();
            let known = before.get(&mobile.key).copied().or_else(|| tagged(&homes, [a, b]));
            let home = known.unwrap_or_else(fewest);
            homes.insert(mobile.key, home);
            parts[home].push(mobile.clone());
        }
        parts
    }

    /// The worker of a mobile, if it is served.
    pub(super) fn of(&self, mobile: &PublicKey) -> Option<usize> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(mobile).copied()
    }

    /// The worker of a session's mobile, if that may be one that is served.
    fn of_session(&self, session: SessionId) -> Option<usize> {
        tagged(&self.0.read().unwrap_or_else(PoisonError::into_inner), session.tag())
    }
}

/// What workers send each other.
#[derive(Debug)]
pub(super) enum Message {
    /// A datagram of the receiver's, who should have sent it, and where it came from.
    Datagram(Caller, Route, Vec<u8>),
    /// Another base's message about a session of a mobile that the receiver serves.
    Handoff(PublicKey, Vec<u8>),
    /// Packets for mobiles that the receiver serves.
    Packets(Bundle),
    /// The mobiles that the receiver serves from here on, and what else is known of others.
    Serve(Vec<Allowed>, Arc<Members>),
    /// Mobiles are to go to other bases, or no longer.
    Drain(bool),
    /// The first worker wants a report, for that client of its control socket.
    Report(Key),
    /// That report.
    Reported(Key, Box<Report>),
}

/// Packets that are passed on together, each behind its length.
#[derive(Default, Debug)]
pub(super) struct Bundle(Vec<u8>);

impl Bundle {
    fn add(&mut self, packet: &[u8]) {
        self.0.extend_from_slice(&(packet.len() as u32).to_ne_bytes());
        self.0.extend_from_slice(packet);
    }

    /// The packets, in the order in which they came.
    pub(super) fn packets(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.0.as_slice();
        std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk()?;
            let (packet, behind) = behind.split_at_checked(u32::from_ne_bytes(*length) as usize)?;
            rest = behind;
            Some(packet)
        })
    }
}

/// What becomes of a datagram that is not known to be the own worker's.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Passed {
    /// Another has it.
    On,
    /// It is the own worker's.
    Here(Route, Vec<u8>),
    /// No worker serves who made this handshake.
    Nobodys(Route, PublicKey),
}

/// One worker's way to the others.
pub(super) struct Workers {
    own: usize,
    homes: Arc<Homes>,
    inbox: Inbox<Message>,
    outboxes: Vec<Outbox<Message>>,
    /// Packets that wait to be passed on to each.
    bundles: Vec<Bundle>,
    /// Connections that each has.
    connections: Arc<[AtomicUsize]>,
    /// Whom each waits for while the base is emptied.
    left: Arc<[AtomicUsize]>,
    /// The first worker stops the others.
    stops: Vec<Stop>,
    /// Reports that are not complete, and how many workers are missing.
    gathered: Vec<(Key, usize, Report)>,
}

impl Workers {
    /// One for each of so many workers, which share the mobiles among them; none for a single one.
    ///
    /// # Errors
    ///
    /// No descriptors are left.
    pub(super) fn new(count: usize, allowed: &[Allowed]) -> io::Result<Vec<Self>> {
        if count <= 1 {
            return Ok(Vec::new());
        }
        let homes = Arc::new(Homes::default());
        homes.divide(allowed, count);
        let pairs = (0..count).map(|_| inbox()).collect::<io::Result<Vec<_>>>()?;
        let (outboxes, inboxes): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let counts = || (0..count).map(|_| AtomicUsize::new(0)).collect::<Arc<[AtomicUsize]>>();
        let (connections, left) = (counts(), counts());
        let workers = inboxes.into_iter().enumerate().map(|(own, inbox)| Self {
            own,
            homes: Arc::clone(&homes),
            inbox,
            outboxes: outboxes.clone(),
            bundles: (0..count).map(|_| Bundle::default()).collect(),
            connections: Arc::clone(&connections),
            left: Arc::clone(&left),
            stops: Vec::new(),
            gathered: Vec::new(),
        });
        Ok(workers.collect())
    }

    /// This worker's number.
    pub(super) fn number(&self) -> usize {
        self.own
    }

    /// The part of the base's hop that it has.
    pub(super) fn part(&self, cookies: Seed) -> Part {
        Part { number: self.own as u32, of: self.outboxes.len() as u32, cookies, greeted: false }
    }

    /// Which of these mobiles it serves.
    pub(super) fn served(&self, allowed: &[Allowed]) -> Vec<Allowed> {
        let own = |mobile: &&Allowed| self.homes.of(&mobile.key) == Some(self.own);
        allowed.iter().filter(own).cloned().collect()
    }

    /// The first worker stops others with these when it is stopped.
    pub(super) fn set_stops(&mut self, stops: Vec<Stop>) {
        self.stops = stops;
    }

    /// Stops the others.
    pub(super) fn stop(&self) {
        self.stops.iter().for_each(Stop::request);
    }

    /// Watches for messages.
    pub(super) fn watch(&self, reactor: &mut Reactor<Source>) -> io::Result<()> {
        reactor.add(&self.inbox, Interest::Read, Source::Workers).map(drop)
    }

    /// Forgets the wake-ups so far; call before [`poll`](Self::poll).
    pub(super) fn drain(&self) {
        self.inbox.drain();
    }

    /// The next message.
    pub(super) fn poll(&self) -> Option<Message> {
        self.inbox.poll()
    }

    /// Sends a datagram that this caller should have sent to the worker whose it is.
    pub(super) fn pass_on(&self, caller: Caller, stray: Stray<Route>) -> Passed {
        let Stray { owner, from, datagram } = stray;
        let owner = match (owner, caller) {
            (Owner::Part(number), _) => number as usize,
            (Owner::Mobile(mobile), Caller::Mobile) => match self.homes.of(&mobile) {
                Some(home) if home != self.own => home,
                _ => return Passed::Nobodys(from, mobile),
            },
            // All know the same bases.
            (Owner::Mobile(base), Caller::Base) => return Passed::Nobodys(from, base),
            (Owner::Greeted(greeting), _) => {
                let session = backhaul::greeted_for(&greeting);
                session.and_then(|session| self.homes.of_session(session)).unwrap_or(self.own)
            }
        };
        if owner == self.own {
            return Passed::Here(from, datagram);
        }
        // What is too much is lost, as a datagram may be.
        if let Some(outbox) = self.outboxes.get(owner)
            && outbox.waiting() < WAITING_MAX
        {
            outbox.send(Message::Datagram(caller, from, datagram));
        }
        Passed::On
    }

    /// Sends another base's message to the worker whose mobile's session it is about, if that is another: whether it
    /// is.
    pub(super) fn pass_message_on(&self, from: PublicKey, message: &[u8]) -> bool {
        let session = station::session_of(message);
        let home = session.and_then(|session| self.homes.of_session(session));
        let Some(home) = home.filter(|home| *home != self.own) else { return false };
        // As good as lost on the way: whoever misses it asks again.
        if let Some(outbox) = self.outboxes.get(home)
            && outbox.waiting() < MESSAGES_MAX
        {
            outbox.send(Message::Handoff(from, message.to_vec()));
        }
        true
    }

    /// Takes a packet for the worker that serves this mobile, if that is another: whether it is. It goes with the next
    /// [`flush_packets`](Self::flush_packets), or before if many wait.
    pub(super) fn pass_packet_on(&mut self, mobile: PublicKey, packet: &[u8]) -> bool {
        let home = self.homes.of(&mobile).filter(|home| *home != self.own);
        let Some(home) = home else { return false };
        if let Some(bundle) = self.bundles.get_mut(home) {
            bundle.add(packet);
            if bundle.0.len() > BUNDLE_MAX {
                send_bundle(&self.outboxes[home], bundle);
            }
        }
        true
    }

    /// Sends what was taken for others: each is woken once.
    pub(super) fn flush_packets(&mut self) {
        for (outbox, bundle) in self.outboxes.iter().zip(&mut self.bundles) {
            if !bundle.0.is_empty() {
                send_bundle(outbox, bundle);
            }
        }
    }

    /// These mobiles are served from here on, and these members known: this worker's mobiles. The others are sent theirs.
    pub(super) fn serve(&self, allowed: &[Allowed], members: &Arc<Members>) -> Vec<Allowed> {
        let mut own = Vec::new();
        for (n, part) in self.homes.divide(allowed, self.outboxes.len()).into_iter().enumerate() {
            if n == self.own {
                own = part;
            } else {
                self.outboxes[n].send(Message::Serve(part, Arc::clone(members)));
            }
        }
        own
    }

    /// This worker has so many connections.
    pub(super) fn set_connections(&self, own: usize) {
        let shown = &self.connections[self.own];
        // What is only read costs the others nothing.
        if shown.load(Ordering::Relaxed) != own {
            shown.store(own, Ordering::Relaxed);
        }
    }

    /// How many connections all have, as far as they have shown.
    pub(super) fn connections(&self) -> usize {
        self.connections.iter().map(|of_one| of_one.load(Ordering::Relaxed)).sum()
    }

    /// Has the others empty themselves, or no longer. Each is taken to wait for somebody until it has
    /// [looked](Self::set_left).
    pub(super) fn drain_others(&self, draining: bool) {
        for (n, outbox) in self.outboxes.iter().enumerate().filter(|(n, _)| *n != self.own) {
            self.left[n].store(1, Ordering::Relaxed);
            outbox.send(Message::Drain(draining));
        }
    }

    /// This worker waits for so many while the base is emptied.
    pub(super) fn set_left(&self, own: usize) {
        self.left[self.own].store(own, Ordering::Relaxed);
    }

    /// For how many all wait.
    pub(super) fn left(&self) -> usize {
        self.left.iter().map(|of_one| of_one.load(Ordering::Relaxed)).sum()
    }

    /// Has the others report to a client of this worker's control socket, beside this worker's own report.
    pub(super) fn gather(&mut self, client: Key, own: Report) {
        let others = self.outboxes.iter().enumerate().filter(|(n, _)| *n != self.own);
        let asked = others.filter(|(_, outbox)| outbox.send(Message::Report(client))).count();
        self.gathered.push((client, asked, own));
    }

    /// Sends this worker's report to the first.
    pub(super) fn report(&self, client: Key, report: Report) {
        self.outboxes[0].send(Message::Reported(client, Box::new(report)));
    }

    /// Another worker's report has come.
    pub(super) fn add_report(&mut self, client: Key, report: Report) {
        let waiting =
            self.gathered.iter_mut().find(|(of, missing, _)| *of == client && *missing > 0);
        if let Some((_, missing, gathered)) = waiting {
            *missing -= 1;
            join(gathered, report);
        }
    }

    /// A report that is complete, and whose it is.
    pub(super) fn poll_report(&mut self) -> Option<(Key, Report)> {
        let at = self.gathered.iter().position(|(_, missing, _)| *missing == 0)?;
        let (client, _, report) = self.gathered.remove(at);
        Some((client, report))
    }
}

/// What is too much is lost, as packets may be.
fn send_bundle(outbox: &Outbox<Message>, bundle: &mut Bundle) {
    if outbox.waiting() < BUNDLES_MAX {
        // The next is most likely as long.
        let next = Bundle(Vec::with_capacity(bundle.0.len()));
        outbox.send(Message::Packets(std::mem::replace(bundle, next)));
    } else {
        bundle.0.clear();
    }
}

/// What another worker reports is the process's too.
fn join(into: &mut Report, from: Report) {
    into.associations.extend(from.associations);
    into.associations.sort_by_key(|association| association.id);
    into.connections.extend(from.connections);
    into.connections.sort_by_key(|connection| connection.key);
    if let (Some(into), Some(from)) = (&mut into.past, from.past) {
        into.join(&from);
    }
    let Counters { opened, refused, closed, garbage } = from.counters;
    into.counters.opened += opened;
    into.counters.refused += refused;
    into.counters.closed += closed;
    into.counters.garbage += garbage;
    if let (Some(into), Some(from)) = (&mut into.tun, from.tun) {
        into.from_kernel += from.from_kernel;
        into.to_kernel += from.to_kernel;
        into.to_bases += from.to_bases;
        into.from_bases += from.from_bases;
        join_refused(&mut into.refused, from.refused);
    }
    if let (Some(into), Some(from)) = (&mut into.udp, from.udp) {
        into.sockets += from.sockets;
        into.to_hop += from.to_hop;
        into.from_hop += from.from_hop;
        join_refused(&mut into.refused, from.refused);
    }
    if let (Some(into), Some(from)) = (&mut into.handoffs, from.handoffs) {
        let Handoffs {
            here,
            given,
            anchored,
            migrated,
            lost,
            refused,
            orphans_taken,
            orphans_lost,
        } = from;
        into.here += here;
        into.given += given;
        into.anchored += anchored;
        into.migrated += migrated;
        into.lost += lost;
        into.refused += refused;
        into.orphans_taken += orphans_taken;
        into.orphans_lost += orphans_lost;
    }
    into.mobiles = into.mobiles.zip(from.mobiles).map(|(into, from)| into + from);
    // Each worker has an association of its own to each other base.
    for into in &mut into.peers {
        into.up &= from.peers.iter().any(|from| from.key == into.key && from.up);
    }
}

fn join_refused(into: &mut BTreeMap<String, u64>, from: BTreeMap<String, u64>) {
    for (why, count) in from {
        *into.entry(why).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mobiles(keys: std::ops::Range<u8>) -> Vec<Allowed> {
        keys.map(|n| PublicKey::from_bytes([n; 32]).into()).collect()
    }

    #[test]
    fn packets_are_passed_on_in_order_by_few_messages() {
        let allowed = mobiles(0..2);
        let mut workers = Workers::new(2, &allowed).unwrap();
        let (mut second, mut first) = (workers.pop().unwrap(), workers.pop().unwrap());
        let away = |mobile: &&Allowed| first.homes.of(&mobile.key) == Some(1);
        let mobile = allowed.iter().find(away).unwrap().key;
        assert!(!second.pass_packet_on(mobile, b"its own"));
        let packets: Vec<Vec<u8>> = (0..1000_usize).map(|n| vec![n as u8; n % 100]).collect();
        assert!(packets.iter().all(|packet| first.pass_packet_on(mobile, packet)));
        first.flush_packets();
        first.flush_packets();
        let (mut messages, mut got) = (0, Vec::new());
        while let Some(message) = second.inbox.poll() {
            let Message::Packets(bundle) = message else { panic!("{message:?}") };
            messages += 1;
            got.extend(bundle.packets().map(<[u8]>::to_vec));
        }
        assert!(messages < 10 && got == packets);
        while first.outboxes[1].waiting() < BUNDLES_MAX {
            first.pass_packet_on(mobile, b"more");
            first.flush_packets();
        }
        first.pass_packet_on(mobile, b"too much");
        first.flush_packets();
        assert_eq!(first.outboxes[1].waiting(), BUNDLES_MAX);
        second.flush_packets();
    }

    /// SCL-5: mobiles are divided evenly, and one that is served stays where it is.
    #[test]
    fn mobiles_are_divided_evenly_and_stay() {
        let homes = Homes::default();
        let lengths = |parts: Vec<Vec<Allowed>>| parts.iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(lengths(homes.divide(&mobiles(0..100), 2)), [50, 50]);
        let before: Vec<_> = mobiles(40..100).iter().map(|m| homes.of(&m.key).unwrap()).collect();
        // 40 leave, and as many others come.
        assert_eq!(lengths(homes.divide(&mobiles(40..140), 2)), [50, 50]);
        let after: Vec<_> = mobiles(40..100).iter().map(|m| homes.of(&m.key).unwrap()).collect();
        assert_eq!(before, after);
        assert_eq!(homes.of(&mobiles(39..40)[0].key), None);
    }

    /// SCL-7: a session has the worker of its mobile, whatever mobiles come and go; and the worker of none has none.
    #[test]
    fn a_session_has_the_worker_of_its_mobile() {
        // Some of the keys begin alike.
        let key = |n: u16| {
            let mut key = [9; 32];
            (key[0], key[1], key[31]) = ((n / 3) as u8, 7, n as u8);
            key
        };
        let allowed = |keys: std::ops::Range<u16>| -> Vec<Allowed> {
            keys.map(|n| PublicKey::from_bytes(key(n)).into()).collect()
        };
        let homes = Homes::default();
        for served in [0..300, 150..450, 0..450] {
            let parts = homes.divide(&allowed(served.clone()), 4);
            assert!(parts.iter().all(|part| part.len() > 50), "they are divided");
            for n in 0..450 {
                let session = SessionId::of_mobile(&key(n), 0x1234_5678_9abc_def0);
                let home = homes.of(&PublicKey::from_bytes(key(n)));
                assert_eq!(home.is_some(), served.contains(&n));
                assert_eq!(homes.of_session(session), home);
            }
        }
        assert_eq!(homes.of_session(SessionId(0xffff << 48)), None);
    }
}
