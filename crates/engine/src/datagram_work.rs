//! What flows of datagrams send.

use lasthop_scenario::Traffic;
use lasthop_sim::net::traffic::DatagramWork;
use lasthop_units::{Bytes, Duration};

/// A call's packets: 20 ms of G.711 each (RFC 3551 section 4.5.14).
pub(super) const VOICE_EVERY: Duration = Duration::from_millis(20);
const VOICE_SIZE: Bytes = Bytes::new(160);

/// What a flow of datagrams sends; none if it is one of TCP's.
pub(super) fn work(traffic: Traffic) -> Option<DatagramWork> {
    match traffic {
        Traffic::Udp { rate, size } => {
            Some(DatagramWork::Constant { every: rate.time_for(size), size })
        }
        Traffic::Voice => Some(DatagramWork::Constant { every: VOICE_EVERY, size: VOICE_SIZE }),
        Traffic::QuicLike => Some(DatagramWork::Quic),
        Traffic::Bulk
        | Traffic::File { .. }
        | Traffic::RequestResponse { .. }
        | Traffic::Interactive { .. }
        | Traffic::OnOff { .. } => None,
    }
}
