//! What leaves: which datagram is next, and what is in it.

use lasthop_units::{Bytes, Time};
use lasthop_wire::frame::{Frame, Writer};
use smallvec::SmallVec;

use super::Srp;
use super::content::{Content, Contents, Load, Loads};
use super::pacer::Departure;
use super::path::Path;
use super::recovery::{Fate, Purpose, Sent};
use super::streams::{Worth, Written};
use crate::clients::Hosts;
use crate::lane::Again;
use crate::policy::Policy;
use crate::transport::Packet;

/// The sender sends its floor in one of so many datagrams.
const FLOOR_EVERY: u64 = 32;
/// Less room than this is left empty.
const ROOM_MIN: usize = 32;

impl Srp {
    /// Writes the frames of the next datagram that should leave now into `out`, if there is one.
    /// `out` must have room for the largest datagram's frames.
    pub fn poll(&mut self, now: Time, out: &mut [u8]) -> Option<Packet> {
        if !self.close_state.is_open() {
            return self.poll_close(now, out);
        }
        self.by_arrival().into_iter().find_map(|p| self.poll_path(now, p, out))
    }

    /// The next datagram of a path.
    fn poll_path(&mut self, now: Time, p: usize, out: &mut [u8]) -> Option<Packet> {
        if self.paths[p].held_until.is_some() {
            return None;
        }
        if self.paths[p].probes.is_due() {
            // An acknowledgement goes by itself: aboard a full probe it would be lost with it where
            // the path has shrunk, and both ends would wait for ever.
            if self.paths[p].received.due().is_some_and(|t| t <= now) {
                return self.poll_ack(now, p, out);
            }
            return self.poll_probe(now, p, out);
        }
        let quiet = self.paths[p].sends_only_probes();
        let air = self.paths[p].air_time();
        let paced = self.paths[p].pacer.is_due(now, air) && !quiet;
        let room = !self.paths[p].is_full();
        let free = paced && room;
        if free
            && self.paths[p].recovery.largest_acked() > 0
            && !(self.paths[p].mtu.gives_way() && self.has_data(now))
            && !self.paths[p].status.is_spent()
            && let Some(size) = self.paths[p].mtu.probe(now)
        {
            return self.poll_mtu_probe(now, p, size, out);
        }
        // Credit ends soon when no more is left than leaves in a round trip.
        self.streams.queue_blocked(self.paths.iter().map(Path::round_trip_bytes).sum());
        let loads = self.loads(p);
        let double = self.doubles.due(now).is_some_and(|double| self.takes_double(p, &double));
        let has_data = double || !loads.is_empty();
        let controls = (self.streams.has_controls() || self.statuses.are_due()) && !quiet;
        let data = (has_data && free).then_some(loads);
        self.paths[p].pacer.set_waiting(now, has_data && room);
        if paced && (!has_data || (!free && !self.paths[p].rate.is_window_driven())) {
            self.paths[p].pacer.on_idle();
        }
        if controls || data.is_some() {
            return self.poll_data(now, p, data, out);
        }
        if self.paths[p].received.due().is_some_and(|t| t <= now) {
            return self.poll_ack(now, p, out);
        }
        if free && !has_data && self.has_twice(p) {
            let packet = self.poll_twice(now, p, out);
            if packet.is_some() {
                return packet;
            }
        }
        if free && !has_data && self.paths[p].window.is_none() {
            let packets = !self.leaves_packets(p);
            let path = &mut self.paths[p];
            let (loss, datagram) = (path.loss(), path.full_datagram());
            if let Some(contents) =
                path.copies.choose(now, &path.recovery, (loss, packets), datagram)
            {
                return self.poll_copy(now, p, contents, out);
            }
        }
        if self.paths[p].probes.wants_ping(now, self.streams.role(), self.config.keepalive) {
            return self.poll_ping(now, p, out);
        }
        None
    }

    /// Streams or packets have something to send, or something is to be sent once more.
    fn has_data(&self, now: Time) -> bool {
        self.has_new() || self.doubles.due(now).is_some()
    }

    /// Streams or packets have something to send that was not sent or was lost.
    pub(super) fn has_new(&self) -> bool {
        self.streams.has_data() || self.packets.as_ref().is_some_and(|lane| lane.has_data())
    }

    /// The same of a policy, but for what is to be sent once more.
    pub(super) fn has_data_of(&self, policy: Policy) -> bool {
        self.streams.has_data_of(policy)
            || self.packets.as_ref().is_some_and(|lane| lane.has_data_of(policy))
    }

    fn poll_close(&mut self, now: Time, out: &mut [u8]) -> Option<Packet> {
        let p = self.by_arrival().first().copied()?;
        let reason = self.close_state.next_close()?;
        let mut w = Writer::new(out);
        w.put(&Frame::Close { code: reason.code() });
        Some(self.record(now, p, w.len(), Contents::new(), Kind::NotEliciting))
    }

    fn poll_ack(&mut self, now: Time, p: usize, out: &mut [u8]) -> Option<Packet> {
        let room = self.paths[p].mtu.current().min(out.len());
        let mut w = Writer::new(&mut out[..room]);
        if !self.paths[p].received.write_ack(now, &mut w) {
            return None;
        }
        Some(self.record(now, p, w.len(), Contents::new(), Kind::NotEliciting))
    }

    fn poll_ping(&mut self, now: Time, p: usize, out: &mut [u8]) -> Option<Packet> {
        self.paths[p].probes.on_ping();
        let mut w = Writer::new(out);
        w.put(&Frame::Ping);
        Some(self.record(now, p, w.len(), Contents::new(), Kind::Eliciting))
    }

    fn poll_mtu_probe(
        &mut self,
        now: Time,
        p: usize,
        size: usize,
        out: &mut [u8],
    ) -> Option<Packet> {
        let mut w = Writer::new(out.get_mut(..size)?);
        w.put(&Frame::Ping);
        w.put(&Frame::Padding);
        Some(self.record(now, p, w.len(), Contents::new(), Kind::MtuProbe))
    }

    /// Repeats the oldest that is outstanding: if it passes, its acknowledgement covers all the rest,
    /// and the peer's application gets on at once.
    fn poll_probe(&mut self, now: Time, p: usize, out: &mut [u8]) -> Option<Packet> {
        let path = &mut self.paths[p];
        path.probes.on_probe();
        self.stats.probes += 1;
        // The spacing of probes does not measure what the hop can do.
        path.pacer.on_idle();
        let base = self.config.datagram_base.as_usize() + self.config.carrier_overhead.as_usize();
        let small = base.saturating_sub(path.overhead);
        let full = path.mtu.current();
        let room = if path.probes.probe_is_small() { full.min(small) } else { full };
        let mut w = Writer::new(out.get_mut(..room)?);
        let mut contents = Contents::new();
        let (log, srtt) = (path.recovery.log(), path.srtt());
        let onset = path.probes.likely_onset(srtt).and_then(|t| log.oldest_since(t));
        let exact = onset.is_some();
        let repeated: SmallVec<[Content; 4]> = onset
            .or_else(|| log.oldest())
            .map(|s| s.at_stake().iter().copied().collect())
            .unwrap_or_default();
        for content in repeated {
            self.repeat(now, content, exact, &mut w, &mut contents);
        }
        let mut loads = if contents.is_empty() { self.loads(p) } else { Loads::new() };
        loads.retain(|(_, load)| *load == Load::All);
        let is_first = self.by_arrival().first() == Some(&p);
        if contents.is_empty() && (!loads.is_empty() || is_first) {
            // Nothing waits to be repeated: what waits to be sent elicits an answer as a ping does.
            // Packets are not: into a silence they would be sent for nothing.
            self.write_controls(&mut w, &mut contents);
            self.write_data(now, p, &loads, false, &mut w, &mut contents);
        }
        if contents.is_empty() {
            w.put(&Frame::Ping);
        }
        w.put(&Frame::Urge);
        let packet = self.record(now, p, w.len(), contents, Kind::Eliciting);
        Some(packet)
    }

    /// Sends once more what another datagram carried.
    fn poll_copy(
        &mut self,
        now: Time,
        p: usize,
        repeated: SmallVec<[Content; 4]>,
        out: &mut [u8],
    ) -> Option<Packet> {
        let room = self.paths[p].mtu.current().min(out.len());
        let mut w = Writer::new(&mut out[..room]);
        let mut contents = Contents::new();
        for content in repeated {
            self.repeat(now, content, true, &mut w, &mut contents);
        }
        if contents.is_empty() {
            return None;
        }
        let packet = self.record(now, p, w.len(), contents, Kind::Copy);
        self.paths[p].copies.spend(packet.len);
        Some(packet)
    }

    fn poll_data(
        &mut self,
        now: Time,
        p: usize,
        data: Option<Loads>,
        out: &mut [u8],
    ) -> Option<Packet> {
        let room = self.paths[p].mtu.current().min(out.len());
        let mut w = Writer::new(&mut out[..room]);
        if self.paths[p].received.is_pending() {
            self.paths[p].received.write_ack(now, &mut w);
        }
        if self.paths[p].recovery.log().next_number().is_multiple_of(FLOOR_EVERY) {
            w.put(&Frame::Floor(self.paths[p].recovery.log().floor()));
        }
        let mut contents = Contents::new();
        self.write_controls(&mut w, &mut contents);
        if let Some(loads) = &data {
            self.paths[p].mtu.on_data_sent();
            self.write_data(now, p, loads, true, &mut w, &mut contents);
        }
        if contents.is_empty() {
            // Nothing elicits an acknowledgement; what was written is still worth sending.
            return (!w.is_empty())
                .then(|| self.record(now, p, w.len(), contents, Kind::NotEliciting));
        }
        if data.is_some() && !self.has_data(now) && self.paths[p].window.is_none() {
            w.put(&Frame::Urge);
        }
        Some(self.record(now, p, w.len(), contents, Kind::Eliciting))
    }

    /// Writes the frames that wait and are neither of streams nor packets, as far as there is room.
    fn write_controls(&mut self, w: &mut Writer<'_>, contents: &mut Contents) {
        self.streams.write_controls(w, contents);
        self.statuses.write(w, contents);
    }

    /// Sends by this path too what another one was the first to carry.
    fn poll_twice(&mut self, now: Time, p: usize, out: &mut [u8]) -> Option<Packet> {
        let room = self.paths[p].mtu.current().min(out.len());
        let mut w = Writer::new(&mut out[..room]);
        let mut contents = Contents::new();
        self.write_twice(now, p, &mut w, &mut contents);
        (!contents.is_empty()).then(|| self.record(now, p, w.len(), contents, Kind::Copy))
    }

    /// Writes what another path was the first to carry, as far as there is room.
    fn write_twice(&mut self, now: Time, p: usize, w: &mut Writer<'_>, contents: &mut Contents) {
        for other in (0..self.paths.len()).filter(|other| *other != p) {
            while let Some(content) = self.paths[other].twice.front() {
                let before = contents.len();
                if self.is_worth(now, content) {
                    self.repeat(now, content, true, w, contents);
                    if contents.len() == before && !contents.is_empty() {
                        // The next datagram has more room.
                        return;
                    }
                    // What the first path lost is not repeated while this is on its way, unless that would come sooner.
                    if self.comes_first(p, other) {
                        let sent = contents[before..].iter();
                        sent.for_each(|sent| self.streams.on_sent_twice(*sent));
                    }
                }
                self.paths[other].twice.pop();
            }
        }
    }

    /// Whether the peer is not known to have what was sent.
    fn is_worth(&self, now: Time, content: Content) -> bool {
        match (content, &self.packets) {
            (Content::Packet(part), Some(lane)) => lane.is_worth(now, part),
            (Content::Data { stream, piece }, _) => self.streams.lacks(stream, &piece),
            _ => false,
        }
    }

    /// Writes once more what was sent before.
    fn repeat(
        &mut self,
        now: Time,
        content: Content,
        exact: bool,
        w: &mut Writer<'_>,
        contents: &mut Contents,
    ) {
        match (content, &mut self.packets) {
            (Content::Packet(part), Some(lane)) => {
                if lane.repeat(now, part, w, contents) {
                    lane.count_repeat(false);
                }
            }
            _ => self.streams.repeat(content, exact, w, contents),
        }
    }

    /// Writes what is to be sent once more, as far as there is room.
    fn write_doubles(&mut self, now: Time, p: usize, w: &mut Writer<'_>, contents: &mut Contents) {
        while let Some(double) = self.doubles.due(now) {
            if !self.is_worth(now, double.content) || !self.doubles.affords(&double) {
                self.doubles.pop();
                continue;
            }
            if !self.takes_double(p, &double) {
                return;
            }
            let before = contents.len();
            match (double.content, &mut self.packets) {
                (Content::Packet(part), Some(lane)) => {
                    if lane.repeat(now, part, w, contents) {
                        lane.count_repeat(true);
                    }
                }
                (content, _) => self.streams.repeat(content, true, w, contents),
            }
            if contents.len() > before {
                self.doubles.on_sent(now, self.paths[p].srtt());
            } else if contents.is_empty() {
                // Not even a datagram of its own holds it.
                self.doubles.pop();
            } else {
                return;
            }
        }
    }

    /// Fills a datagram: from packets that were lost or whose flows are sparse, then from streams with losses, then from the
    /// hosts with something new, whoever has had least, and of each from its packets or streams, whichever have had less.
    fn write_data(
        &mut self,
        now: Time,
        p: usize,
        loads: &Loads,
        with_packets: bool,
        w: &mut Writer<'_>,
        contents: &mut Contents,
    ) {
        if with_packets {
            self.write_doubles(now, p, w, contents);
            if self.has_twice(p) && self.paths[p].twice.affords(w.room()) {
                let before = w.len();
                self.write_twice(now, p, w, contents);
                self.paths[p].twice.spend(w.len() - before);
            }
        }
        let lane = if with_packets { self.packets.take() } else { None };
        let mut lane = lane.map(|lane| (lane, self.hop_view(&self.paths[p])));
        let (rate, full) = (self.pacing_rate(), self.paths[p].mtu.current());
        let (streams, clients, copies) =
            (&mut self.streams, &mut self.clients, &mut self.paths[p].copies);
        let mut written: SmallVec<[Written; 4]> = SmallVec::new();
        let all = || loads.iter().filter(|(_, load)| *load == Load::All).map(|(policy, _)| *policy);
        // What is repeated is charged without a turn, and who has waited meanwhile may go before more of it.
        let lanes = lane.iter().flat_map(|(lane, _)| all().flat_map(|of| lane.clients(of)));
        clients.advance(lanes.chain(streams.clients(loads)));
        if let Some((lane, hop)) = &mut lane {
            all().for_each(|policy| lane.write_first(now, hop, (policy, clients), w, contents));
        }
        for policy in all() {
            let fresh = |fresh| copies.earn(fresh);
            written.extend(streams.write_little(policy, w, contents, clients, (rate, full), fresh));
        }
        for policy in all() {
            let fresh = |fresh| copies.earn(fresh);
            written.extend(streams.write_lost(policy, w, contents, clients, rate, fresh));
        }
        // Whose packets, and whose streams, have had their turn for nothing: what they have does not fit, or has no credit.
        let (mut no_packets, mut no_streams) = (Hosts::default(), Hosts::default());
        while w.room() > ROOM_MIN {
            let lanes =
                lane.iter().flat_map(|(lane, _)| all().flat_map(|policy| lane.clients(policy)));
            let lanes = lanes.filter(|client| !no_packets.has(*client));
            let others = streams.clients(loads).filter(|client| !no_streams.has(*client));
            let Some(client) = clients.next(lanes.chain(others)) else { break };
            let flows = lane
                .as_ref()
                .map_or(0, |(lane, _)| all().map(|policy| lane.waiting(policy, client)).sum());
            let waiting = streams.waiting(client);
            let less = clients.are_packets_next(client, flows, waiting);
            let packets = match (no_packets.has(client), no_streams.has(client)) {
                (false, false) => less,
                (no_packets, _) => !no_packets,
            };
            let before = w.len();
            match &mut lane {
                Some((lane, hop)) if packets => {
                    for policy in all() {
                        lane.write_next(now, hop, (policy, client), clients, w, contents);
                        if w.len() > before {
                            break;
                        }
                    }
                }
                _ => {
                    let fresh = |fresh| copies.earn(fresh);
                    let rest = (rate, full, loads);
                    written.extend(streams.write_next(client, w, contents, clients, rest, fresh));
                }
            }
            if w.len() == before {
                if packets { &mut no_packets } else { &mut no_streams }.add(client);
            }
        }
        if let Some((lane, _)) = lane {
            self.packets = Some(lane);
        }
        self.double(now, p, &written);
    }

    /// Notes what is to be sent once more of what was written: of packets, and of sparse streams where something else is
    /// to be sent. Where there is nothing else [`copies`](super::copies) do it.
    fn double(&mut self, now: Time, p: usize, written: &[Written]) {
        let (srtt, loss) = (self.paths[p].srtt(), self.paths[p].loss());
        let several = self.paths.len() > 1;
        let sparse = written.iter().any(|written| written.worth == Worth::Sparse);
        let busy = sparse && self.has_new();
        for Written { content, policy, worth } in written {
            let Content::Data { piece, .. } = content else { continue };
            let what = (*content, *policy, piece.len);
            let redundant = several && *policy == Policy::Redundant;
            if redundant {
                self.paths[p].twice.push(*content);
            }
            match worth {
                Worth::Sparse if busy && !redundant => {
                    self.doubles.add_sparse(now, srtt, loss, what);
                }
                Worth::Awaited => self.doubles.add_awaited(now, srtt, loss, what),
                Worth::Sparse | Worth::Usual => {}
            }
        }
        while let Some((again, policy, part)) = self.packets.as_mut().and_then(|l| l.poll_again()) {
            let content = Content::Packet(part);
            match again {
                Again::Redundant if several => self.paths[p].twice.push(content),
                Again::Redundant | Again::Sparse => {
                    self.doubles.add_sparse(now, srtt, loss, (content, policy, part.len.into()));
                }
                Again::Lost => self.doubles.add_lost(now, srtt, (content, policy)),
            }
        }
    }

    /// Enters a datagram into the log and charges the pacer.
    fn record(
        &mut self,
        now: Time,
        p: usize,
        len: usize,
        contents: Contents,
        kind: Kind,
    ) -> Packet {
        let path = &mut self.paths[p];
        let number = path.recovery.log().next_number();
        let size = len + path.overhead;
        self.stats.datagrams_sent += 1;
        path.sent += Bytes::from(size);
        path.twice.earn(size);
        self.doubles.earn(size);
        let mut departure = Departure::default();
        if kind != Kind::NotEliciting {
            path.probes.on_eliciting(now);
            let (rate, bytes) = (path.pacing_rate(), Bytes::from(size));
            let service = rate.max(path.rate.service_rate()).time_for(bytes);
            departure = path.pacer.on_sent(now, rate.time_for(bytes), service);
        }
        path.recovery.on_sent(Sent {
            at: now,
            size: size as u32,
            fate: if kind == Kind::NotEliciting { Fate::Ignored } else { Fate::Unknown },
            after_idle: departure.after_idle,
            behind_us: departure.behind.as_micros() as u32,
            purpose: match kind {
                Kind::MtuProbe => Purpose::MtuProbe,
                Kind::Copy => Purpose::Copy,
                _ => Purpose::Usual,
            },
            contents,
        });
        Packet { path: path.id, number, len }
    }
}

/// What a datagram elicits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nothing: it is not acknowledged for its own sake ("ack-eliciting", RFC 9000 section 13.2).
    NotEliciting,
    Eliciting,
    MtuProbe,
    Copy,
}
