//! Closing, resetting, and being reset (RFC 9293 sections 3.6 and 3.10.4).

use lasthop_stream::HeldDupacks;
use lasthop_units::Time;
use lasthop_wire::tcp::{Flags, Segment, Seq};

use super::{Connection, Event, Outgoing, State};

/// The reset that answers `segment` where no connection is (RFC 9293 section 3.10.7.1); none for a
/// reset.
pub fn reset_for(segment: &Segment) -> Option<Segment> {
    if segment.flags.contains(Flags::RST) {
        return None;
    }
    let mut reset = Segment {
        src_port: segment.dst_port,
        dst_port: segment.src_port,
        flags: Flags::RST,
        ..Segment::default()
    };
    if segment.flags.contains(Flags::ACK) {
        reset.seq = segment.ack;
    } else {
        reset.ack = segment.end();
        reset.flags = Flags::RST.with(Flags::ACK);
    }
    Some(reset)
}

impl Connection {
    /// Our stream ends after the bytes written so far (half-close). Idempotent.
    pub fn finish(&mut self) {
        if self.fin || self.state == State::Closed {
            return;
        }
        self.fin = true;
        self.state = match self.state {
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            other => other,
        };
    }

    /// Aborts the connection: the peer gets a reset if it knows of us.
    pub fn abort(&mut self) {
        if self.state == State::Closed {
            return;
        }
        let unknown = matches!(self.state, State::SynSent | State::TimeWait);
        self.reset_due = !unknown;
        self.ack.now = false;
        self.close();
    }

    /// The reset at hand carries the number that the peer awaits.
    pub(super) fn transmit_reset(&mut self) -> Outgoing {
        self.reset_due = false;
        self.stats.segments_sent += 1;
        let mut segment = Segment {
            src_port: self.ports.local,
            dst_port: self.ports.remote,
            seq: self.seq_at(self.max),
            flags: Flags::RST,
            ..Segment::default()
        };
        match self.reset_at.take() {
            Some(seq) => segment.seq = seq,
            None => {
                segment.ack = self.recv.seq_at(self.recv.nxt);
                segment.flags = Flags::RST.with(Flags::ACK);
            }
        }
        Outgoing::plain(segment, 0)
    }

    /// Answers an acknowledgement of what was never sent, while the connection goes on.
    pub(super) fn reset_with(&mut self, seq: Seq) {
        self.reset_at = Some(seq);
        self.reset_due = true;
    }

    /// The connection ends, not by our will.
    pub(super) fn terminate(&mut self, why: Event) {
        self.emit(why);
        self.ack.now = false;
        self.close();
    }

    pub(super) fn close(&mut self) {
        self.state = State::Closed;
        self.rtx_timer = Time::NEVER;
        self.persist_timer = Time::NEVER;
        self.time_wait_timer = Time::NEVER;
        self.ack.timer = Time::NEVER;
        self.ack.requested = 0;
        self.ack.duplicates = 0;
        self.held = HeldDupacks::NONE;
        self.retransmit_first = false;
        self.probe_due = false;
        self.mobile.stop();
        self.emit(Event::Closed);
    }

    /// The peer's FIN was reached.
    pub(super) fn on_peer_finished(&mut self, now: Time) {
        self.ack.now = true;
        self.emit(Event::PeerFinished);
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.enter_time_wait(now),
            _ => {}
        }
    }

    /// Something arrived that ends at or before the peer's FIN, which we have.
    pub(super) fn on_repeated_end(&mut self, now: Time) {
        self.stats.duplicate_segments_received += 1;
        self.ack.now = true;
        if self.state == State::TimeWait {
            self.enter_time_wait(now);
        }
    }
}
