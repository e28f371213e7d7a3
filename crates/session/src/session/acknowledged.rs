//! What the peer of a connection has of it.

use lasthop_hop::Streams;

use super::Session;
use crate::ConnId;
use crate::table::Phase;

impl Session {
    /// How many bytes that were written to a connection its peer has for good, however often either has moved, and the end as
    /// one byte more; that is sent anew where the connection moves, and counts again once it has come there. `None` if the peer
    /// does not know yet that the connection is there, its hop is not, or the transport does not follow that.
    pub fn acknowledged(&self, hop: &impl Streams, id: ConnId) -> Option<u64> {
        let conn = self.table.get(id).filter(|conn| conn.phase() == Phase::Open)?;
        let on_stream = hop.acknowledged(conn.stream?)?;
        Some(conn.send_base + on_stream.checked_sub(conn.said.into())?)
    }

    /// From here on [`Event::Acknowledged`](crate::Event::Acknowledged) comes when this has grown, from hop to hop. Whether the connection is known.
    pub fn report_acknowledged(&mut self, hop: &mut impl Streams, id: ConnId) -> bool {
        let Some(conn) = self.table.get_mut(id) else { return false };
        conn.set_reports();
        if let Some(stream) = conn.stream {
            hop.report_acknowledged(stream);
        }
        true
    }
}
