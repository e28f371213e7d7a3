//! What arrives: frames and acknowledgements.

use core::mem::take;

use lasthop_units::{Bytes, Rate, Time};
use lasthop_wire::frame::{Ack, Frame, FrameError, Frames};

use super::close_state::CloseState;
use super::content::Content;
use super::path::Path;
use super::recovery::Purpose;
use super::statuses::Statuses;
use super::streams::StreamSet;
use super::{Srp, Violation};
use crate::lane::{Contradiction, PacketLane};
use crate::path_id::PathId;
use crate::policy::PathStatus;
use crate::transport::CloseReason;

impl Srp {
    /// Takes in the frames of an authentic datagram with its number, which came by this path. One with bytes of a stream that
    /// was [taken out](crate::Streams::detach) is as good as lost.
    ///
    /// # Errors
    ///
    /// The frames cannot be read; those before the first unreadable one have been handled.
    pub fn handle(
        &mut self,
        now: Time,
        path: PathId,
        number: u64,
        payload: &[u8],
    ) -> Result<(), FrameError> {
        let Some(p) = self.position(path).filter(|_| self.close_state.closed().is_none()) else {
            return Ok(());
        };
        if number == 0 || self.paths[p].received.is_known(number) {
            self.stats.duplicates += 1;
            return Ok(());
        }
        self.stats.datagrams_received += 1;
        let path = &mut self.paths[p];
        path.came += Bytes::from(payload.len() + path.overhead);
        path.arrivals.on_datagram(now, payload.len() + path.overhead);
        if path.sends_only_probes() {
            // The peer is there again, whatever it sends.
            path.probes.probe_now(now);
        }
        if self.streams.is_for_detached(payload) {
            self.handle_acks(now, p, payload);
            return Ok(());
        }
        self.paths[p].received.on_datagram(now, number);
        let outcome = self.handle_frames(now, p, payload);
        if outcome? {
            self.paths[p].on_eliciting(now);
        }
        Ok(())
    }

    /// Whether the datagram is to be acknowledged.
    pub(super) fn handle_frames(
        &mut self,
        now: Time,
        p: usize,
        payload: &[u8],
    ) -> Result<bool, FrameError> {
        let mut eliciting = false;
        for frame in Frames::new(payload) {
            let frame = frame.inspect_err(|_| self.stats.malformed += 1)?;
            eliciting |=
                !matches!(frame, Frame::Ack(_) | Frame::Floor(_) | Frame::Padding | Frame::Urge);
            if self.handle_frame(now, p, &frame).is_err() {
                self.close_state.close(CloseReason::Protocol);
                break;
            }
        }
        Ok(eliciting)
    }

    /// Takes the acknowledgements out of a datagram that is not itself acknowledged.
    fn handle_acks(&mut self, now: Time, p: usize, payload: &[u8]) {
        for frame in Frames::new(payload).filter_map(Result::ok) {
            if let Frame::Ack(ack) = &frame
                && self.on_ack(now, p, ack).is_err()
            {
                self.close_state.close(CloseReason::Protocol);
            }
        }
    }

    fn handle_frame(&mut self, now: Time, p: usize, frame: &Frame<'_>) -> Result<(), Violation> {
        match frame {
            Frame::Padding | Frame::Ping => {}
            Frame::Ack(ack) => self.on_ack(now, p, ack)?,
            Frame::Floor(floor) => self.paths[p].received.on_floor(*floor),
            Frame::Urge => self.paths[p].received.urge(),
            Frame::Close { code } => {
                self.close_state = CloseState::Closed(CloseReason::from_code(*code));
            }
            Frame::Packet(packet) => {
                // Neither comes from a peer that goes by what this end has announced.
                if packet.total() > self.config.packets_taken().get() {
                    return Err(Violation);
                }
                self.lane().handle(now, packet).map_err(|Contradiction| Violation)?;
            }
            Frame::PathStatus { path, cost, below_bps } => {
                if let Ok(path) = u8::try_from(*path) {
                    let status = PathStatus { cost: *cost, below: Rate::from_bps(*below_bps) };
                    self.change_status(now, PathId(path), status, false);
                }
            }
            frame => {
                let (span, rate) = (self.span(), self.pacing_rate());
                self.streams.on_frame(frame, span, rate)?;
            }
        }
        Ok(())
    }

    fn on_ack(&mut self, now: Time, p: usize, ack: &Ack<'_>) -> Result<(), Violation> {
        let (rate, carried) = (self.pacing_rate(), self.paths[p].carries());
        let Self { paths, streams, packets, .. } = self;
        let Path { recovery, mtu, overhead, .. } = &mut paths[p];
        let outcome = recovery.on_ack(now, ack, |sent| {
            let payload = sent.size as usize - *overhead;
            if sent.purpose == Purpose::MtuProbe {
                mtu.on_probe_acked(payload);
            }
            mtu.on_acked(payload);
            for content in take(&mut sent.contents) {
                match (content, &mut *packets) {
                    (Content::Packet(part), Some(lane)) => lane.on_acked(part),
                    _ => streams.on_acked(content, rate),
                }
            }
        })?;
        self.stats.spurious += outcome.spurious;
        self.stats.lost -= outcome.spurious;
        if let Some(rtt) = outcome.rtt {
            self.paths[p].on_round_trip(now, rtt);
        }
        self.find_losses(now, p, Some(ack.first));
        let path = &mut self.paths[p];
        let datagram = path.full_datagram();
        if let Some(from) = outcome.raised_from
            && let Some(sample) = path.recovery.sample(ack, from, datagram)
        {
            path.rate.on_ack(now, sample);
            path.pacer.set_quantum(path.rate.quantum());
            if self.shared.on_sample(p, &sample) {
                for (p, path) in self.paths.iter_mut().enumerate() {
                    path.rate.set_share(self.shared.share(p));
                }
            }
        }
        let path = &mut self.paths[p];
        if outcome.progress {
            path.end_silence(now);
        }
        path.recovery.expire(now);
        if !carried && self.paths[p].carries() {
            self.leave_others(now, p);
            self.ask_others();
        }
        Ok(())
    }

    /// What counts as lost is due again (SRP-4): by an acknowledgement of the numbers from `covered`
    /// on, or by the time that has passed.
    pub(super) fn find_losses(&mut self, now: Time, p: usize, covered: Option<u64>) {
        let Self { paths, streams, packets, statuses, stats, .. } = self;
        let Path { recovery, mtu, overhead, rate, .. } = &mut paths[p];
        let loss = rate.loss();
        recovery.find_losses(now, covered, |sent| {
            stats.lost += 1;
            if sent.purpose == Purpose::MtuProbe {
                mtu.on_probe_lost(loss);
            } else {
                mtu.on_lost(sent.size as usize - *overhead, loss);
            }
            for content in sent.take_stake() {
                lose(now, content, (streams, packets.as_deref_mut(), statuses));
            }
        });
    }
}

/// Something did not arrive: it is due again.
pub(super) fn lose(
    now: Time,
    content: Content,
    (streams, packets, statuses): (&mut StreamSet, Option<&mut PacketLane>, &mut Statuses),
) {
    match (content, packets) {
        (Content::PathStatus { path }, _) => statuses.queue(path),
        (Content::Packet(part), Some(lane)) => lane.on_lost(now, part),
        _ => streams.on_lost(content),
    }
}
