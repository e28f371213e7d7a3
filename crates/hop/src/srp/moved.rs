//! Taking streams out, to go on over another hop.

use lasthop_wire::frame::{Frame, Frames};

use lasthop_stream::RangeSet;

use super::Srp;
use super::send::Piece;
use super::stream::Stream;
use crate::streams::{Movable, RecvState, StreamId, StreamState};

/// Streams that were taken out and are remembered; the oldest are removed first. An association
/// has some thousands of streams at once.
const DETACHED_MAX: usize = 1 << 16;

/// What the peer had of a stream's bytes when the stream was taken out, as far as it has said.
#[derive(Debug)]
pub(super) struct Detached {
    /// Everything before was acknowledged.
    acked: u64,
    /// What was acknowledged beyond.
    beyond: RangeSet,
    /// The first datagram that was sent later: its acknowledgement tells of all that arrived before.
    since: u64,
}

impl Detached {
    fn on_acked(&mut self, piece: Piece) {
        let (start, end) = (piece.offset.max(self.acked), piece.offset + piece.len as u64);
        if start < end {
            self.beyond.insert(start..end);
            self.acked = self.beyond.take_prefix(self.acked).unwrap_or(self.acked);
        }
    }
}

impl Stream {
    fn can_move(&self) -> bool {
        let given_up = self.dropped || self.send.reset.is_some();
        !given_up && !self.retired && !matches!(self.recv.state(), RecvState::Reset(_))
    }

    /// SRP-13: the state in sequence moves; what was received beyond a hole is sent anew.
    fn state(&self) -> StreamState {
        let (send_start, send) = self.send.kept();
        let (received, unread) = self.recv.in_order();
        StreamState {
            send_start,
            send,
            send_ended: !self.send.is_open(),
            received,
            unread,
            recv_ended: self.recv.ends_at(received),
        }
    }
}

impl Srp {
    /// Whether a datagram carries bytes of a stream that was taken out. They are acknowledged where
    /// the stream went, or sent again; were they acknowledged here, the peer would take them for
    /// delivered, and nobody had them (MHP-19).
    pub(super) fn is_for_detached(&self, payload: &[u8]) -> bool {
        if self.detached.is_empty() {
            return false;
        }
        let mut frames = Frames::new(payload).filter_map(Result::ok);
        frames.any(|frame| matches!(frame, Frame::Stream(f) if self.detached.contains_key(&f.id)))
    }

    fn remember_detached(&mut self, id: u64, stream: &Stream) {
        if self.detached.len() >= DETACHED_MAX {
            self.detached.pop_first();
        }
        let (acked, beyond) = stream.send.acknowledged();
        let since = self.log.next_number();
        self.detached.insert(id, Detached { acked, beyond: beyond.clone(), since });
    }

    /// Bytes of a stream that was taken out had arrived.
    pub(super) fn on_detached_arrived(&mut self, id: u64, piece: Piece) {
        if let Some(detached) = self.detached.get_mut(&id) {
            detached.on_acked(piece);
        }
    }
}

impl Movable for Srp {
    fn detach(&mut self, id: StreamId) -> Option<StreamState> {
        self.streams.get(&id.0).filter(|stream| stream.can_move())?;
        let stream = self.streams.remove(&id.0)?;
        self.remember_detached(id.0, &stream);
        self.leave_shares();
        if self.is_local(id.0) {
            self.local_open -= 1;
        }
        self.send_buffered -= stream.send.buffered();
        self.credit.consumed += stream.recv.unconsumed();
        self.renew_credit(false);
        Some(stream.state())
    }

    fn snapshot(&self, id: StreamId) -> Option<StreamState> {
        self.streams.get(&id.0).filter(|stream| stream.can_move()).map(Stream::state)
    }

    fn arrived(&self, id: StreamId) -> Option<u64> {
        let detached = self.detached.get(&id.0)?;
        (self.largest_acked >= detached.since).then_some(detached.acked)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;
    use core::time::Duration;

    use lasthop_units::Time;

    use super::*;
    use crate::config::{HopConfig, Limits};
    use crate::streams::Streams;
    use crate::transport::Role;

    /// Two ends, of which the mobile knows the other's limits.
    fn pair() -> (Srp, Srp) {
        let config = HopConfig::default();
        let limits = Limits::of(&config);
        let mut mobile = Srp::new(config.clone(), Role::Mobile, limits, 40, Time::ZERO);
        let base = Srp::new(config, Role::Base, limits, 40, Time::ZERO);
        mobile.establish(Time::ZERO, &limits);
        (mobile, base)
    }

    /// SRP-13: what was not acknowledged, and what was not read, leaves with the stream.
    #[test]
    fn a_stream_leaves_with_all_that_either_end_still_owes() {
        let (mut mobile, mut base) = pair();
        let id = mobile.open().unwrap();
        let data: Vec<u8> = (0..5000u32).map(|n| n as u8).collect();
        assert_eq!(mobile.write(id, &data), Ok(5000));
        mobile.finish(id);
        let (mut out, mut arrived) = (vec![0; 1500], 0);
        for ms in 0..100 {
            let now = Time::ZERO + Duration::from_millis(ms);
            while let Some(packet) = mobile.poll(now, &mut out) {
                // One datagram is lost, and nothing is ever acknowledged.
                if packet.number != 2 {
                    base.handle(now, packet.number, &out[..packet.len]).unwrap();
                    arrived += 1;
                }
            }
        }
        assert!(arrived > 0);
        base.consume(id, 100);
        let sent = mobile.snapshot(id);
        assert_eq!(sent, mobile.snapshot(id), "a look changes nothing");
        assert_eq!(sent, mobile.detach(id));
        let sent = sent.unwrap();
        assert_eq!((sent.send_start, &sent.send, sent.send_ended), (0, &data, true));
        let got = base.detach(id).unwrap();
        let received = got.received as usize;
        assert!((101..=5000).contains(&received));
        assert_eq!(got.unread, data[100..received]);
        assert_eq!(got.recv_ended, received == 5000);
        assert_eq!((mobile.detach(id), base.detach(id)), (None, None));
        assert_eq!(mobile.send_space(id), Err(crate::StreamError::Unknown));
    }

    /// MHP-19: what arrives for a stream that has moved is not acknowledged, so the peer still has it
    /// when its end of the stream moves too.
    #[test]
    fn bytes_for_a_stream_that_was_taken_out_stay_with_the_peer() {
        let (mut mobile, mut base) = pair();
        let id = mobile.open().unwrap();
        let other = mobile.open().unwrap();
        mobile.write(id, b"before").unwrap();
        let run = |from: u64, mobile: &mut Srp, base: &mut Srp| {
            let mut out = vec![0; 1500];
            for ms in from..from + 300 {
                let now = Time::ZERO + Duration::from_millis(ms);
                for turn in [true, false] {
                    let (a, b) =
                        if turn { (&mut *mobile, &mut *base) } else { (&mut *base, &mut *mobile) };
                    a.handle_timeout(now);
                    while let Some(packet) = a.poll(now, &mut out) {
                        b.handle(now, packet.number, &out[..packet.len]).unwrap();
                    }
                }
            }
        };
        run(0, &mut mobile, &mut base);
        assert_eq!(mobile.snapshot(id).unwrap().send_start, 6, "it was acknowledged");
        let moved = base.detach(id).unwrap();
        assert_eq!((moved.received, moved.unread), (6, b"before".to_vec()));
        mobile.write(id, b"after").unwrap();
        mobile.write(other, b"else").unwrap();
        run(300, &mut mobile, &mut base);
        let kept = mobile.detach(id).unwrap();
        assert_eq!((kept.send_start, kept.send), (6, b"after".to_vec()));
        // Other streams are none the worse, once the peer's end has moved as well.
        run(600, &mut mobile, &mut base);
        assert_eq!(base.received(other), b"else");
    }
}
