//! Traffic whose bytes exist, so that each that arrives can be looked at.

use lasthop_units::{Bytes, Seed};

use super::Record;
use crate::content::Content;
use crate::net::host::{FlowId, Io};

/// Bytes written at once.
const PIECE: usize = 4096;

/// What an end of a flow writes: it follows from the port and from who opened the connection.
fn pattern(port: u16, client: bool) -> Content {
    let end = if client { "client" } else { "service" };
    Content::new(Seed::from_u64(u64::from(port)), end)
}

/// Writes up to `n` bytes; how many there was room for.
pub(super) fn write(io: &mut Io<'_, '_>, flow: FlowId, record: &Record, n: Bytes) -> Bytes {
    let pattern = pattern(record.port, record.client);
    let mut piece = [0; PIECE];
    let mut taken = Bytes::ZERO;
    while taken < n {
        let len = (n - taken).as_usize().min(PIECE);
        pattern.fill((record.written + taken).get(), &mut piece[..len]);
        let room = io.write_bytes(flow, &piece[..len]);
        taken += Bytes::from(room);
        if room < len {
            break;
        }
    }
    taken
}

/// Takes all that has arrived and compares it with what the other end wrote; how much it was.
pub(super) fn read(io: &mut Io<'_, '_>, flow: FlowId, record: &mut Record) -> Bytes {
    let pattern = pattern(record.port, !record.client);
    let mut taken = Bytes::ZERO;
    loop {
        let arrived = io.received(flow);
        let n = Bytes::from(arrived.len());
        let at = (record.received + taken).get();
        record.differs_at = record.differs_at.or(pattern.first_difference(at, arrived));
        if n == Bytes::ZERO || io.consume(flow, n) == Bytes::ZERO {
            return taken;
        }
        taken += n;
    }
}
