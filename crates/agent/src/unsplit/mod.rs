//! Mobile TCP without a split connection: a half at the base and one at the mobile, between its TCP
//! and the radio (Haas and Warkhedi section 6; ALT-1 to ALT-9).
//!
//! The connection is one from end to end, and neither half ever acknowledges anything (ALT-1, ALT-8).
//! What they do is three things.
//!
//! - They agree on a connection identifier (CID) for each direction. Each half adds its own, the one
//!   that it wants to receive, to the SYN or SYN-ACK that crosses the hop from its side, as a TCP
//!   option that the other takes off (ALT-3). A header without room for it, or an end of the hop
//!   without a half, leaves the connection as it is.
//! - With that, whatever is neither SYN nor FIN nor RST crosses the hop with a compressed header, in
//!   which CID stands for addresses and ports and all that an end sees is sent in full (ALT-2, ALT-4,
//!   ALT-5). What cannot be compressed goes as it is.
//! - Each keeps copies of the data that it puts on the hop. The other asks for what is missing, on the
//!   first gap, as Mobile TCP does: RRQ with NIS, RC and RCR (ALT-6). The request rides on a packet
//!   that goes the other way, such as the duplicate acknowledgement that the gap causes; if none comes
//!   it goes by itself. Duplicate acknowledgements of a loss that is repaired here are kept back;
//!   those of any other loss pass, so that the sender's congestion control governs (ALT-8).
//!
//! All that a half knows is soft (ALT-7). One that is asked to expand a CID that it does not know says
//! so, and the other sends whole packets again. These take the CID along where there is room for it,
//! and compressed packets take the CID of the way back along until it is used. A mobile that has
//! moved drops its state and begins so at once.
//!
//! TCP's checksum, which covers addresses and ports, tells whether a CID still stands for what it did:
//! a half that has restarted may have given it to another connection.
//!
//! The two halves belong together: a base has one machine for each mobile, and the hop between them,
//! with nobody else on it, is trusted. An option that comes from elsewhere is taken off unread.
//!
//! What the paper says of its light socket layer (ALT-9) needs nothing here: the mobile's half takes
//! packets from any TCP, in a kernel or in the application.

mod cids;
mod config;
mod flow;
mod receiver;
mod sender;

#[cfg(test)]
mod tests;

pub use config::Config;

use core::net::IpAddr;

use lasthop_units::{Bytes, Duration, LinkEvent, Time};
use lasthop_wire::agent::Message;
use lasthop_wire::tcp::{Flags, Options, SackBlocks, Segment};
use lasthop_wire::unsplit::Header;

use crate::packet::Queue;
use crate::table::Table;
use crate::{Agent, Connection, Output, Packet, Side, Tcp};
use cids::Cids;
use flow::{Around, Flow};
use receiver::Crossed;
use sender::AckAction;

/// The least time between two words about unknown CIDs: one bad packet is not to cause many.
const UNKNOWN_INTERVAL: Duration = Duration::from_millis(5);

/// A connection that has had a packet so lately is likely to have more, of which some would be lost if
/// it were removed.
const LATELY: Duration = Duration::from_secs(10);

/// A timer of zero would fire for ever at one time.
const SHORTEST: Duration = Duration::from_millis(1);

/// What has happened at one half, over all connections.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Packets that went over the hop with a compressed header.
    pub compressed: u64,
    /// Packets that came over the hop with a compressed header and were made whole.
    pub expanded: u64,
    /// Packets of any protocol that went over the hop as they were.
    pub plain: u64,
    /// Packets that took a CID along.
    pub offers: u64,
    /// Packets that were dropped because nobody knew their CID.
    pub unknown: u64,
    /// Connections that went back to whole packets because the other half did not know them.
    pub fallbacks: u64,
    /// Segments that were sent again, for whatever reason.
    pub local_retransmits: u64,
    /// Those of them that the timer sent.
    pub timeouts: u64,
    /// Requests that went by themselves.
    pub requests: u64,
    /// Requests that rode on a packet.
    pub ridden_requests: u64,
    /// Requests that reported a loss that was being repaired (MOB-30, MOB-27).
    pub stale_requests: u64,
    /// Requests that made no sense.
    pub ignored_requests: u64,
    /// Duplicate acknowledgements that were kept back.
    pub suppressed: u64,
    /// Duplicate acknowledgements that passed.
    pub duplicates_passed: u64,
    /// Segments of which a copy was kept.
    pub cached: u64,
    /// Segments that passed without, for want of room or because the link's queue was full.
    pub left_out: u64,
    /// Copies that came and were not needed.
    pub needless: u64,
}

/// One half of a hop.
#[derive(Clone, Debug)]
pub struct Unsplit<P> {
    /// Where the hop is.
    hop: Side,
    config: Config,
    table: Table<Flow<P>>,
    cids: Cids,
    queue_full: bool,
    /// When the other half was last notified that it uses an unknown CID.
    told: Option<Time>,
    out: Queue<P>,
    stats: Stats,
}

impl<P: Packet> Unsplit<P> {
    /// The half at the base: the hop is on its mobile side.
    pub fn at_base(config: &Config) -> Self {
        Self::new(config, Side::Mobile)
    }

    /// The half at a mobile: the hop is on its fixed side, and the mobile's TCP, or the network
    /// behind a mobile router, on its mobile side.
    pub fn at_mobile(config: &Config) -> Self {
        Self::new(config, Side::Fixed)
    }

    fn new(config: &Config, hop: Side) -> Self {
        let connections = config.connections.clamp(1, cids::MOST);
        let tick = config.tick.max(SHORTEST);
        Self {
            hop,
            table: Table::new(connections, config.idle.max(LATELY)),
            config: Config { connections, tick, ..config.clone() },
            cids: Cids::new(config.first_cid),
            queue_full: false,
            told: None,
            out: Queue::default(),
            stats: Stats::default(),
        }
    }

    /// What has happened so far.
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Connections that are known.
    pub fn connections(&self) -> usize {
        self.table.len()
    }

    /// Segments that are kept.
    pub fn kept(&self) -> usize {
        self.table.iter().map(|(_, flow)| flow.sender.kept()).sum()
    }

    /// Bytes that are kept, headers included.
    pub const fn memory(&self) -> Bytes {
        Bytes::new(self.table.weight())
    }

    /// From the end on this side towards the hop.
    fn send(&mut self, now: Time, mut tcp: Tcp, mut packet: P) {
        if tcp.segment.options.cid.is_some() {
            tcp.segment = without_cid(&tcp.segment);
            packet.set_segment(&tcp.segment);
        }
        let connection = tcp.connection(self.hop.other());
        let Tcp { segment, .. } = tcp;
        if segment.flags.contains(Flags::RST) {
            self.remove(&connection);
            return self.pass(self.hop, packet);
        }
        let syn = segment.flags.contains(Flags::SYN);
        if syn && !segment.flags.contains(Flags::ACK) {
            let known = self.table.peek(&connection);
            // A SYN that crosses one from the other side belongs to the same connection.
            let same = |flow: &mut Flow<P>| match flow.own_syn {
                Some(seq) => seq == segment.seq,
                None => flow.hop_syn.is_some() && !flow.receiver.has_data(),
            };
            if !known.is_some_and(same) {
                self.track(now, connection);
            }
        } else if self.table.peek(&connection).is_none() {
            self.track(now, connection);
        }
        if self.table.peek(&connection).is_none() {
            return self.pass(self.hop, packet);
        }
        let before = self.peer(&connection);
        self.with(now, connection, |flow, around| match syn {
            true => flow.open(around, &segment, packet),
            false => flow.send(around, &tcp, packet),
        });
        // One that cannot answer an offer lets it go.
        if let (Some(cid), None) = (before, self.peer(&connection)) {
            self.cids.unlearn(&connection, cid);
        }
    }

    /// A whole packet from the hop.
    fn receive_plain(&mut self, now: Time, mut tcp: Tcp, mut packet: P) {
        let offer = tcp.segment.options.cid.filter(|cid| *cid != 0);
        if tcp.segment.options.cid.is_some() {
            tcp.segment = without_cid(&tcp.segment);
            packet.set_segment(&tcp.segment);
        }
        let connection = tcp.connection(self.hop);
        let Tcp { segment, .. } = tcp;
        if segment.flags.contains(Flags::RST) {
            self.remove(&connection);
            return self.pass(self.hop.other(), packet);
        }
        if segment.flags.contains(Flags::SYN) {
            self.receive_opening(now, connection, &segment, offer);
            return self.pass(self.hop.other(), packet);
        }
        if let Some(cid) = offer {
            if self.table.peek(&connection).is_none() {
                self.track(now, connection);
            }
            // It would have been compressed, had the other half known what this one is to be called.
            self.set_peer_cid(now, connection, cid, false);
        }
        self.receive(now, connection, &segment, packet, None);
    }

    /// A SYN or SYN-ACK from the hop (ALT-3).
    fn receive_opening(
        &mut self,
        now: Time,
        connection: Connection,
        segment: &Segment,
        offer: Option<u16>,
    ) {
        let answers = segment.flags.contains(Flags::ACK);
        if !answers {
            let same = |flow: &mut Flow<P>| match flow.hop_syn {
                Some(seq) => seq == segment.seq,
                None => flow.own_syn.is_some() && !flow.receiver.has_data(),
            };
            if !self.table.peek(&connection).is_some_and(same) {
                self.track(now, connection);
            }
        }
        self.with(now, connection, |flow, _| {
            if flow.hop_syn != Some(segment.seq) {
                flow.hop_syn = Some(segment.seq);
                flow.receiver.begin(segment.end());
            }
            flow.mute = answers && offer.is_none() && flow.peer.is_none();
        });
        if let Some(cid) = offer {
            // Only one that has had an offer answers with its own.
            self.set_peer_cid(now, connection, cid, answers);
        }
    }

    /// A compressed packet from the hop.
    fn receive_compressed(&mut self, now: Time, header: &Header, mut packet: P) {
        let Some(connection) = self.cids.receives(header.cid) else {
            self.stats.unknown += 1;
            return self.refuse(now, header.cid);
        };
        let (src, dst) = self.hop.ends(&connection);
        packet.expand(src, dst);
        // One that is not of this connection has a CID that this half once gave to another.
        let Some(tcp) = packet.tcp() else {
            self.stats.unknown += 1;
            return self.refuse(now, header.cid);
        };
        self.stats.expanded += 1;
        if let Some(cid) = header.offer.filter(|cid| *cid != 0) {
            self.set_peer_cid(now, connection, cid, true);
        }
        self.with(now, connection, |flow, around| {
            flow.heard = true;
            if let Some(request) = header.request {
                flow.sender.on_request(&mut around.context(), request, header.reply);
                flow.repair(around);
            }
        });
        let crossed = Crossed { cycle: header.cycle, repeat: header.repeat };
        let ends = tcp.segment.flags.contains(Flags::RST);
        self.receive(now, connection, &tcp.segment, packet, Some(crossed));
        if ends {
            self.remove(&connection);
        }
    }

    /// A packet that came over the hop, whole by now.
    fn receive(
        &mut self,
        now: Time,
        connection: Connection,
        segment: &Segment,
        mut packet: P,
        crossed: Option<Crossed>,
    ) {
        let action = self.with(now, connection, |flow, around| {
            if !flow.receiver.on_data(now, around.config, segment, crossed) {
                around.stats.needless += 1;
                return AckAction::Suppress;
            }
            match segment.flags.contains(Flags::ACK) {
                true => flow.sender.on_ack(&mut around.context(), segment),
                false => AckAction::Pass,
            }
        });
        match action {
            Some(AckAction::Suppress) => return,
            Some(AckAction::HideSack) => {
                let options = Options { sack: SackBlocks::default(), ..segment.options };
                packet.set_segment(&Segment { options, ..*segment });
            }
            Some(AckAction::Pass) | None => {}
        }
        self.pass(self.hop.other(), packet);
    }

    fn pass(&mut self, towards: Side, packet: P) {
        if towards == self.hop {
            self.stats.plain += 1;
        }
        self.out.packet(towards, packet);
    }

    /// Says that a CID is unknown, not too often (ALT-7).
    fn refuse(&mut self, now: Time, cid: u16) {
        if self.told.is_none_or(|told| now.since(told) >= UNKNOWN_INTERVAL) {
            self.told = Some(now);
            self.out.message(self.hop, Message::UnknownCid { cid });
        }
    }

    fn peer(&mut self, connection: &Connection) -> Option<u16> {
        self.table.peek(connection)?.peer
    }

    /// The other half wants to receive a connection under this CID; `heard` tells whether it knows
    /// this half's.
    fn set_peer_cid(&mut self, now: Time, connection: Connection, cid: u16, heard: bool) {
        let before = self.peer(&connection);
        let known = self.with(now, connection, |flow, _| {
            flow.peer = Some(cid);
            flow.heard = heard;
            flow.mute = false;
        });
        if known.is_some()
            && let Some(other) = self.cids.assign(connection, before, cid)
        {
            self.fall_back(now, other);
        }
    }

    /// The other half does not know a connection any more.
    fn fall_back(&mut self, now: Time, connection: Connection) {
        self.with(now, connection, |flow, around| {
            flow.fall_back(now);
            around.stats.fallbacks += 1;
        });
    }

    /// Tracks a connection, in place of what was known of it, if there is room.
    fn track(&mut self, now: Time, connection: Connection) {
        self.remove(&connection);
        if !self.table.has_room(now, LATELY) {
            return;
        }
        if let Some((oldest, flow)) = self.table.make_room() {
            self.free_cids(&oldest, &flow);
        }
        let cid = self.cids.allot(connection);
        self.table.insert(now, connection, Flow::new(&self.config, cid));
    }

    fn remove(&mut self, connection: &Connection) {
        if let Some(flow) = self.table.remove(connection) {
            self.free_cids(connection, &flow);
        }
    }

    fn expire(&mut self, now: Time) {
        while let Some((connection, flow)) = self.table.pop_expired(now) {
            self.free_cids(&connection, &flow);
        }
    }

    fn free_cids(&mut self, connection: &Connection, flow: &Flow<P>) {
        self.cids.free(connection, flow.cid, flow.peer);
    }

    /// Does something with a connection that is known, and keeps the sums and the timers right.
    fn with<R>(
        &mut self,
        now: Time,
        connection: Connection,
        act: impl FnOnce(&mut Flow<P>, &mut Around<'_, P>) -> R,
    ) -> Option<R> {
        let free = self.config.memory.get().saturating_sub(self.table.weight());
        let flow = self.table.get(now, &connection)?;
        let mut around = Around {
            now,
            config: &self.config,
            hop: self.hop,
            room: if self.queue_full { 0 } else { free },
            out: &mut self.out,
            stats: &mut self.stats,
        };
        let result = act(flow, &mut around);
        let (bytes, due) = (flow.sender.bytes(), flow.due());
        self.table.weigh(&connection, bytes);
        self.table.arm(&connection, due);
        Some(result)
    }
}

/// The segment as the end sent it.
fn without_cid(segment: &Segment) -> Segment {
    Segment { options: Options { cid: None, ..segment.options }, ..*segment }
}

impl<P: Packet> Agent<P> for Unsplit<P> {
    fn handle_packet(&mut self, now: Time, from: Side, packet: P) {
        self.expire(now);
        if from != self.hop {
            return match packet.tcp() {
                Some(tcp) => self.send(now, tcp, packet),
                None => self.pass(self.hop, packet),
            };
        }
        if let Some(header) = packet.compressed() {
            return self.receive_compressed(now, &header, packet);
        }
        match packet.tcp() {
            Some(tcp) => self.receive_plain(now, tcp, packet),
            None => self.pass(from.other(), packet),
        }
    }

    fn handle_message(&mut self, now: Time, from: Side, message: &Message) {
        if from != self.hop {
            return;
        }
        self.expire(now);
        match *message {
            Message::Request { cid, reply, request } => {
                let Some(connection) = self.cids.receives(cid) else {
                    return self.refuse(now, cid);
                };
                self.with(now, connection, |flow, around| {
                    flow.heard = true;
                    flow.sender.on_request(&mut around.context(), request, reply);
                    flow.repair(around);
                });
            }
            Message::UnknownCid { cid } => {
                let Some(connection) = self.cids.sends(cid) else { return };
                self.cids.unlearn(&connection, cid);
                self.fall_back(now, connection);
            }
            Message::Snack { .. }
            | Message::Congestion { .. }
            | Message::BadState { .. }
            | Message::LinkAck { .. } => {}
        }
    }

    /// When the hop carries again, what is missing is tried at once.
    fn handle_link_event(&mut self, now: Time, event: LinkEvent) {
        if !matches!(event, LinkEvent::Up | LinkEvent::Complete) {
            return;
        }
        for (_, flow) in self.table.iter_mut() {
            flow.resume(now);
        }
        self.table.arm_all(Flow::due);
    }

    fn watches_queue(&self) -> bool {
        true
    }

    fn handle_queue(&mut self, nearly_full: bool) {
        self.queue_full = nearly_full;
    }

    fn remove_mobile(&mut self, mobile: IpAddr) {
        for (connection, flow) in self.table.take_mobile(mobile) {
            self.free_cids(&connection, &flow);
        }
    }

    fn poll_output(&mut self) -> Option<Output<P>> {
        self.out.pop()
    }

    fn next_timeout(&self) -> Option<Time> {
        self.table.next_due()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.expire(now);
        while let Some(connection) = self.table.pop_due(now) {
            self.with(now, connection, |flow, around| flow.on_timeout(around));
        }
    }
}
