//! A base's state of a session beside its connections, as bytes for the next base: what the
//! hop's TCP had learned (ITCP-3), and wired halves that are still ending after their connections.

use std::collections::BTreeMap;

use lasthop_hop::StreamId;
use lasthop_session::{ConnId, Session};
use lasthop_tcp::{Estimates, RttState};
use lasthop_units::{Bytes, Duration};

use super::frozen::{Reader, Writer, nanos};

/// See the module's text.
#[derive(Default, Debug)]
pub(super) struct Moved {
    /// Of each connection's hop half.
    pub(super) estimates: BTreeMap<ConnId, Estimates>,
    /// Wired halves without a connection, as [`frozen`](super::frozen) writes them.
    pub(super) ending: Vec<Vec<u8>>,
}

impl Moved {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u64(self.estimates.len() as u64);
        for (id, e) in &self.estimates {
            let times = [e.rtt.srtt, e.rtt.rttvar, e.rtt.rto].map(nanos);
            for n in [id.0, e.cwnd.get(), e.ssthresh.get()].into_iter().chain(times) {
                out.u64(n);
            }
        }
        out.u64(self.ending.len() as u64);
        self.ending.iter().for_each(|wired| out.bytes(wired));
        out.0
    }

    /// Nothing, if the bytes are no such state.
    pub(super) fn decode(bytes: &[u8]) -> Self {
        read(&mut Reader(bytes)).unwrap_or_default()
    }
}

/// Hands what was known of each connection's path on to the stream that carries it now, once there is one
/// (ITCP-3).
pub(super) fn hand_on(
    estimates: &mut BTreeMap<ConnId, Estimates>,
    session: &Session,
    mut adopt: impl FnMut(StreamId, Estimates),
) {
    estimates.retain(|id, known| {
        let stream = session.stream(*id);
        stream.into_iter().for_each(|stream| adopt(stream, *known));
        stream.is_none()
    });
}

fn read(input: &mut Reader<'_>) -> Option<Moved> {
    let mut moved = Moved::default();
    for _ in 0..input.u64()? {
        let id = ConnId(input.u64()?);
        let (cwnd, ssthresh) = (Bytes::new(input.u64()?), Bytes::new(input.u64()?));
        let mut time = || input.u64().map(Duration::from_nanos);
        // The silence has an explanation: no doublings travel.
        let rtt = RttState { srtt: time()?, rttvar: time()?, rto: time()?, backoff: 0 };
        moved.estimates.insert(id, Estimates { cwnd, ssthresh, rtt });
    }
    for _ in 0..input.u64()? {
        moved.ending.push(input.bytes()?.to_vec());
    }
    Some(moved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let rtt = RttState {
            srtt: Duration::from_millis(120),
            rttvar: Duration::from_millis(7),
            rto: Duration::from_millis(1000),
            backoff: 3,
        };
        let mut moved = Moved::default();
        let estimates = Estimates { cwnd: Bytes::new(8), ssthresh: Bytes::new(9), rtt };
        moved.estimates.insert(ConnId(4), estimates);
        moved.ending.push(vec![1, 2, 3]);
        let read = Moved::decode(&moved.encode());
        let rtt = RttState { backoff: 0, ..rtt };
        assert_eq!(read.estimates.get(&ConnId(4)), Some(&Estimates { rtt, ..estimates }));
        assert_eq!(read.ending, moved.ending);
    }

    #[test]
    fn bytes_that_are_cut_short_are_nothing() {
        let whole = Moved { ending: vec![vec![0; 40]], ..Moved::default() }.encode();
        for len in 0..whole.len() {
            let read = Moved::decode(&whole[..len]);
            assert!(read.ending.is_empty() && read.estimates.is_empty());
        }
    }
}
