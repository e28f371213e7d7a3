//! Taking streams out, to go on over another hop.

use super::Srp;
use super::stream::Stream;
use crate::streams::{Movable, RecvState, StreamId, StreamState};

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

impl Movable for Srp {
    fn detach(&mut self, id: StreamId) -> Option<StreamState> {
        self.streams.get(&id.0).filter(|stream| stream.can_move())?;
        let stream = self.streams.remove(&id.0)?;
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
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;
    use core::time::Duration;

    use lasthop_units::Time;

    use super::*;
    use crate::config::{HopConfig, Limits};
    use crate::srp::Role;
    use crate::streams::Streams;

    /// SRP-13: what was not acknowledged, and what was not read, leaves with the stream.
    #[test]
    fn a_stream_leaves_with_all_that_either_end_still_owes() {
        let config = HopConfig::default();
        let limits = Limits::of(&config);
        let mut mobile = Srp::new(config.clone(), Role::Mobile, limits, 40, Time::ZERO);
        let mut base = Srp::new(config, Role::Base, limits, 40, Time::ZERO);
        mobile.establish(Time::ZERO, &limits);
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
}
