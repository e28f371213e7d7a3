//! What arrives: frames and acknowledgements.

use core::mem::take;

use lasthop_units::Time;
use lasthop_wire::frame::{Ack, Frame, FrameError, Frames};

use super::close_state::CloseState;
use super::content::Content;
use super::recovery::Purpose;
use super::{Srp, Violation};
use crate::lane::Contradiction;
use crate::transport::CloseReason;

impl Srp {
    /// Takes in the frames of an authentic datagram with its number. One with bytes of a stream that
    /// was [taken out](crate::Streams::detach) is as good as lost.
    ///
    /// # Errors
    ///
    /// The frames cannot be read; those before the first unreadable one have been handled.
    pub fn handle(&mut self, now: Time, number: u64, payload: &[u8]) -> Result<(), FrameError> {
        if self.close_state.closed().is_some() {
            return Ok(());
        }
        if number == 0 || self.received.is_known(number) {
            self.stats.duplicates += 1;
            return Ok(());
        }
        self.stats.datagrams_received += 1;
        self.arrivals.on_datagram(now, payload.len() + self.overhead);
        if self.sends_only_probes() {
            // The peer is there again, whatever it sends.
            self.probes.probe_now(now);
        }
        if self.streams.is_for_detached(payload) {
            self.handle_acks(now, payload);
            return Ok(());
        }
        self.received.on_datagram(now, number);
        let outcome = self.handle_frames(now, payload);
        if outcome? {
            self.probes.on_elicited(now);
            match self.window() {
                None => {
                    let srtt = self.srtt();
                    self.received.on_eliciting(now, srtt);
                }
                Some(window) => {
                    let (every, delay) = (window.ack_every, window.ack_delay);
                    self.received.on_segment(now, every, delay);
                }
            }
        }
        Ok(())
    }

    /// Whether the datagram is to be acknowledged.
    pub(super) fn handle_frames(&mut self, now: Time, payload: &[u8]) -> Result<bool, FrameError> {
        let mut eliciting = false;
        for frame in Frames::new(payload) {
            let frame = frame.inspect_err(|_| self.stats.malformed += 1)?;
            eliciting |=
                !matches!(frame, Frame::Ack(_) | Frame::Floor(_) | Frame::Padding | Frame::Urge);
            if self.handle_frame(now, &frame).is_err() {
                self.close_state.close(CloseReason::Protocol);
                break;
            }
        }
        Ok(eliciting)
    }

    /// Takes the acknowledgements out of a datagram that is not itself acknowledged.
    fn handle_acks(&mut self, now: Time, payload: &[u8]) {
        for frame in Frames::new(payload).filter_map(Result::ok) {
            if let Frame::Ack(ack) = &frame
                && self.on_ack(now, ack).is_err()
            {
                self.close_state.close(CloseReason::Protocol);
            }
        }
    }

    fn handle_frame(&mut self, now: Time, frame: &Frame<'_>) -> Result<(), Violation> {
        match frame {
            Frame::Padding | Frame::Ping => {}
            Frame::Ack(ack) => self.on_ack(now, ack)?,
            Frame::Floor(floor) => self.received.on_floor(*floor),
            Frame::Urge => self.received.urge(),
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
            frame => {
                let (span, rate) = (self.span(), self.pacing_rate());
                self.streams.on_frame(frame, span, rate)?;
            }
        }
        Ok(())
    }

    fn on_ack(&mut self, now: Time, ack: &Ack<'_>) -> Result<(), Violation> {
        let rate = self.pacing_rate();
        let outcome = self.recovery.on_ack(now, ack, |sent| {
            let payload = sent.size as usize - self.overhead;
            if sent.purpose == Purpose::MtuProbe {
                self.mtu.on_probe_acked(payload);
            }
            self.mtu.on_acked(payload);
            for content in take(&mut sent.contents) {
                match (content, &mut self.packets) {
                    (Content::Packet(part), Some(lane)) => lane.on_acked(part),
                    _ => self.streams.on_acked(content, rate),
                }
            }
        })?;
        self.stats.spurious += outcome.spurious;
        self.stats.lost -= outcome.spurious;
        if let Some(rtt) = outcome.rtt {
            let next = self.recovery.log().next_number();
            self.rate.on_round_trip(now, rtt, self.full_datagram(), next);
        }
        self.find_losses(now, Some(ack.first));
        let datagram = self.full_datagram();
        if let Some(from) = outcome.raised_from
            && let Some(sample) = self.recovery.sample(ack, from, datagram)
        {
            self.rate.on_ack(now, sample);
            self.pacer.set_quantum(self.rate.quantum());
        }
        if outcome.progress {
            self.end_silence(now);
        }
        self.recovery.expire(now);
        Ok(())
    }

    /// What counts as lost is due again (SRP-4): by an acknowledgement of the numbers from `covered`
    /// on, or by the time that has passed.
    pub(super) fn find_losses(&mut self, now: Time, covered: Option<u64>) {
        let loss = self.rate.loss();
        self.recovery.find_losses(now, covered, |sent| {
            self.stats.lost += 1;
            if sent.purpose == Purpose::MtuProbe {
                self.mtu.on_probe_lost(loss);
            } else {
                self.mtu.on_lost(sent.size as usize - self.overhead, loss);
            }
            for content in take(&mut sent.contents) {
                match (content, &mut self.packets) {
                    (Content::Packet(part), Some(lane)) => lane.on_lost(now, part),
                    _ => self.streams.on_lost(content),
                }
            }
        });
    }

    /// The peer answers again, or still.
    fn end_silence(&mut self, now: Time) {
        if self.probes.is_silent() {
            // Everything that was in flight went into the silence; the pacer starts afresh.
            self.pacer.resume(now);
            self.rate.on_interruption();
        }
        self.probes.on_progress(now);
    }
}
