//! SRP as an association's transport, and its streams.

use core::time::Duration;

use lasthop_units::{Bytes, LinkEvent, Rate, Time};

use super::Srp;
use super::path::Path;
use super::rate::RateControl;
use crate::config::{HopConfig, Limits};
use crate::lane::PacketLane;
use crate::packets::PacketStats;
use crate::path_id::{PathId, PathNumbers, PathSet};
use crate::policy::{PathStatus, Policy};
use crate::saved_path::SavedPath;
use crate::stats::{HopStats, PathStats};
use crate::streams::{RecvState, StreamError, StreamEvent, StreamId, StreamState, Streams};
use crate::transport::{CloseReason, Packet, Role, Transport};

impl Transport for Srp {
    type Config = HopConfig;

    const ID: u64 = 0;

    fn new(config: &HopConfig, role: Role, overhead: usize, now: Time) -> Self {
        Srp::new(config.clone(), role, Limits::UNKNOWN, overhead, now)
    }

    fn limits(config: &HopConfig) -> Limits {
        Limits::of(config)
    }

    fn carrier_overhead(config: &HopConfig) -> Bytes {
        config.carrier_overhead
    }

    fn establish(&mut self, now: Time, peer: &Limits) {
        self.streams.establish(peer);
        self.packet_max = peer.packet_max;
        if let Some(lane) = &mut self.packets {
            lane.set_longest(peer.packet_max);
        }
        if let Some((rate, rtt)) = peer.resume {
            self.paths[0].rate.resume(rate, rtt);
        }
        self.paths[0].pacer.start(now);
    }

    fn restart(&mut self, now: Time) {
        let (config, role) = (self.config.clone(), self.streams.role());
        let mut new = Self::new(config, role, Limits::UNKNOWN, self.paths[0].overhead, now);
        self.streams.restart();
        core::mem::swap(&mut new.streams, &mut self.streams);
        new.packets = self.packets.take().map(|lane| lane.restarted(&new.config.memory));
        new.statuses = self.statuses.restarted();
        new.paths[0].status = new.statuses.of(PathId::FIRST);
        new.stats = self.stats;
        *self = new;
    }

    fn first_stream(&self) -> u64 {
        self.streams.first()
    }

    fn packets(&mut self) -> Option<&mut PacketLane> {
        (self.packet_max > Bytes::ZERO && self.close_state.is_open()).then(|| self.lane())
    }

    fn packets_so_far(&mut self) -> Option<&mut PacketLane> {
        self.packets.as_deref_mut()
    }

    fn ping(&mut self) {
        let p = self.by_arrival().first().copied().unwrap_or_default();
        self.paths[p].probes.request_ping();
    }

    fn probe(&mut self, now: Time) {
        self.paths.iter_mut().for_each(|path| path.probe(now));
    }

    fn silent_for(&self, now: Time) -> Option<Duration> {
        // As long as one path is answered nothing is silent.
        self.paths.iter().map(|path| path.probes.age(now)).min().flatten()
    }

    fn handle_moved(&mut self, now: Time, path: PathId) {
        if let Some(p) = self.position(path) {
            self.paths[p].handle_moved(now);
        }
    }

    fn handle_link_event(&mut self, now: Time, path: PathId, event: LinkEvent) {
        if let Some(p) = self.position(path) {
            self.paths[p].handle_link_event(now, event);
            if event == LinkEvent::Down {
                self.leave_silent(now, p);
            }
        }
    }

    fn set_path_status(&mut self, now: Time, path: PathId, status: PathStatus) {
        self.change_status(now, path, status, true);
    }

    fn add_path(&mut self, now: Time, path: PathId) -> bool {
        self.add_path(now, path)
    }

    fn hold(&mut self, paths: PathSet, until: Option<Time>) -> bool {
        let mut all = true;
        for path in &mut self.paths {
            path.held_until = until.filter(|_| paths.contains(path.id));
            all &= path.held_until.is_some();
        }
        all
    }

    fn seed_round_trip(&mut self, now: Time, rtt: Duration) {
        self.paths[0].recovery.on_round_trip(rtt);
        self.paths[0].on_round_trip(now, rtt);
    }

    fn saved_path(&self) -> Option<SavedPath> {
        self.paths[0].saved()
    }

    fn resume_path(&mut self, rate: Rate, rtt: Duration) {
        self.paths[0].rate.resume(rate, rtt);
    }

    fn handle(&mut self, now: Time, path: PathId, number: u64, packet: &[u8]) {
        // Frames that cannot be read are counted inside.
        let _ = self.handle(now, path, number, packet);
    }

    /// SRP acknowledges packets by number, so the numbers are its own: they grow for as long as it
    /// lives, whatever keys come and go, and start again only with [`restart`](Transport::restart),
    /// behind which keys are always new.
    fn poll(&mut self, now: Time, _fresh: u64, out: &mut [u8]) -> Option<Packet> {
        self.poll(now, out)
    }

    fn next_numbers(&self) -> PathNumbers {
        let mut numbers = PathNumbers::NONE;
        for path in &self.paths {
            numbers.0[usize::from(path.id.0)] = path.recovery.log().next_number();
        }
        numbers
    }

    fn next_timeout(&self) -> Option<Time> {
        self.next_timeout()
    }

    fn next_delivery(&self) -> Option<Time> {
        self.packets.as_ref().and_then(|lane| lane.next_timeout())
    }

    fn handle_timeout(&mut self, now: Time) {
        self.handle_timeout(now);
    }

    fn close(&mut self, reason: CloseReason) {
        self.close_state.close(reason);
    }

    fn closed(&self) -> Option<CloseReason> {
        self.close_state.closed()
    }

    fn stats(&self) -> HopStats {
        let traffic = self.streams.traffic();
        let first = self.paths[0].stats(self.config.carrier_overhead);
        HopStats {
            bytes_sent: traffic.sent,
            bytes_retransmitted: traffic.repeated,
            bytes_received: traffic.received,
            srtt: first.srtt,
            min_rtt: first.min_rtt,
            queue: first.queue,
            pacing_rate: self.sum_of(RateControl::pacing_rate),
            delivery_rate: self.sum_of(RateControl::delivery_rate),
            loss: first.loss,
            inflight: Bytes::new(
                self.paths.iter().map(|path| path.recovery.log().inflight()).sum(),
            ),
            mtu: first.mtu,
            streams: self.streams.len(),
            memory: self.streams.memory(),
            silent: self.paths.iter().all(|path| path.probes.is_silent()),
            reordering: first.reordering,
            packets: self.packets.as_ref().map_or_else(PacketStats::default, |lane| lane.stats()),
            ..self.stats
        }
    }

    fn path_stats(&self) -> impl Iterator<Item = PathStats> {
        self.paths.iter().enumerate().map(|(p, path)| PathStats {
            shares_with: self.shares_with(p),
            ..path.stats(self.config.carrier_overhead)
        })
    }
}

impl Streams for Srp {
    fn open(&mut self) -> Result<StreamId, StreamError> {
        if !self.close_state.is_open() {
            return Err(StreamError::TooMany);
        }
        self.streams.open(self.span())
    }

    fn poll_event(&mut self) -> Option<StreamEvent> {
        self.streams.poll_event()
    }

    fn send_space(&mut self, id: StreamId) -> Result<&mut [u8], StreamError> {
        self.streams.send_space(id.0, self.pacing_rate())
    }

    fn commit(&mut self, id: StreamId, n: usize) {
        self.streams.commit(id.0, n);
    }

    fn finish(&mut self, id: StreamId) {
        self.streams.finish(id.0);
    }

    fn reset(&mut self, id: StreamId, code: u64) {
        self.streams.reset(id.0, code);
    }

    fn received(&self, id: StreamId) -> &[u8] {
        self.streams.received(id.0)
    }

    fn consume(&mut self, id: StreamId, n: usize) {
        self.streams.consume(id.0, n);
    }

    fn recv_state(&self, id: StreamId) -> RecvState {
        self.streams.recv_state(id.0)
    }

    fn set_priority(&mut self, id: StreamId, priority: u32) {
        self.streams.set_priority(id.0, priority);
    }

    fn set_client(&mut self, id: StreamId, client: u32) {
        self.streams.set_client(id.0, client);
    }

    fn set_policy(&mut self, id: StreamId, policy: Policy) {
        self.streams.set_policy(id.0, policy);
    }

    fn detach(&mut self, id: StreamId) -> Option<StreamState> {
        self.streams.detach(id.0, self.next_numbers())
    }

    fn snapshot(&self, id: StreamId) -> Option<StreamState> {
        self.streams.snapshot(id.0)
    }

    fn arrived(&self, id: StreamId) -> Option<u64> {
        let acked = |since: &PathNumbers| {
            self.paths.iter().all(|path| path.recovery.largest_acked() >= since.of(path.id))
        };
        self.streams.arrived(id.0, acked)
    }

    fn acknowledged(&self, id: StreamId) -> Option<u64> {
        self.streams.acknowledged(id.0)
    }

    fn report_acknowledged(&mut self, id: StreamId) {
        self.streams.report_acknowledged(id.0);
    }

    fn release(&mut self, id: StreamId, behind: u64, end: bool) -> bool {
        self.streams.release(id.0, behind, end)
    }

    fn release_ahead(&mut self, id: StreamId) {
        self.streams.release_ahead(id.0);
    }

    fn retain(&mut self, id: StreamId) {
        self.streams.retain(id.0);
    }

    /// By the time at which the last acknowledgement came, all that was sent half a round trip earlier had
    /// arrived. A little less, since delays vary and a presumption that goes too far is of no use.
    fn presumed(&self, id: StreamId) -> Option<u64> {
        let before = |path: &Path| {
            let sent = path.recovery.largest_acked_sent()?;
            Some(sent + path.rate.rtt_min_measured()? * 7 / 16)
        };
        let carrying = self.paths.iter().filter_map(|path| Some((path, before(path)?)));
        let arrived =
            carrying.clone().flat_map(|(path, before)| path.recovery.log().unknown_before(before));
        carrying.clone().next()?;
        self.streams.presumed(id.0, arrived)
    }
}
