//! A connection with its bytes.

use lasthop_stream::Ring;
use lasthop_units::{Bytes, LinkEvent, Time};
use lasthop_wire::tcp::{Segment, Seq};

use crate::config::Config;
use crate::connection::{Connection, Estimates, Event, NotAnOpening, Outgoing, Ports, Snapshot};

/// The longest piece of room that [`Socket::send_space`] offers at once.
const PIECE: u64 = 64 * 1024;

/// A [`Connection`] and the bytes of both its streams.
#[derive(Clone, Debug)]
pub struct Socket {
    connection: Connection,
    outgoing: Ring,
    incoming: Ring,
}

impl From<Connection> for Socket {
    /// A connection on which no byte was written or has arrived.
    fn from(connection: Connection) -> Self {
        Self { connection, outgoing: Ring::default(), incoming: Ring::default() }
    }
}

impl Socket {
    /// As [`Connection::connect`].
    pub fn connect(config: Config, ports: Ports, iss: Seq, now: Time) -> Self {
        Connection::connect(config, ports, iss, now).into()
    }

    /// As [`Connection::accept`].
    ///
    /// # Errors
    ///
    /// If the segment is not a SYN.
    pub fn accept(
        config: Config,
        ports: Ports,
        syn: &Segment,
        iss: Seq,
        now: Time,
    ) -> Result<Self, NotAnOpening> {
        Connection::accept(config, ports, syn, iss, now).map(Self::from)
    }

    /// The connection, to watch.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Room for the next bytes to send: one contiguous piece, empty while there is no room. Fill a
    /// prefix of it and call [`commit`](Self::commit).
    #[inline]
    pub fn send_space(&mut self) -> &mut [u8] {
        let at = self.connection.written().get();
        let len = self.connection.send_room().get().min(PIECE);
        self.outgoing.reserve(at + len);
        self.outgoing.contiguous_mut(at, usize::try_from(len).unwrap_or(0))
    }

    /// The first `n` bytes of the room are to be sent. More than was offered is not taken.
    #[inline]
    pub fn commit(&mut self, n: usize) {
        let offered = self.send_space().len();
        self.connection.write(Bytes::from(n.min(offered)));
    }

    /// Copies as much of `data` as there is room for; the number of bytes taken.
    pub fn write(&mut self, data: &[u8]) -> usize {
        let mut taken = 0;
        while taken < data.len() {
            let room = self.send_space();
            let n = room.len().min(data.len() - taken);
            if n == 0 {
                break;
            }
            room[..n].copy_from_slice(&data[taken..taken + n]);
            self.commit(n);
            taken += n;
        }
        taken
    }

    /// Received bytes in order: one contiguous piece, empty if there are none.
    #[inline]
    pub fn received(&self) -> &[u8] {
        let end = self.connection.received().get();
        let start = end - self.connection.readable().get();
        self.incoming.slices(start..end).0
    }

    /// The first `n` bytes of [`received`](Self::received) were taken.
    #[inline]
    pub fn consume(&mut self, n: usize) {
        let n = n.min(self.received().len());
        self.connection.consume(Bytes::from(n));
        let left = self.connection.readable().get();
        self.incoming.advance(self.connection.received().get() - left);
    }

    /// As [`Connection::finish`].
    pub fn finish(&mut self) {
        self.connection.finish();
    }

    /// As [`Connection::abort`].
    pub fn abort(&mut self) {
        self.connection.abort();
    }

    /// Takes a segment with its payload. A payload that is not as long as the header says is
    /// dropped with its header.
    #[inline]
    pub fn handle_segment(&mut self, now: Time, segment: &Segment, payload: &[u8]) {
        self.handle_segment_marked(now, segment, payload, false);
    }

    /// As [`handle_segment`](Self::handle_segment), of a segment that met congestion on its way if
    /// it is `marked`: [`Connection::handle_segment_marked`].
    #[inline]
    pub fn handle_segment_marked(
        &mut self,
        now: Time,
        segment: &Segment,
        payload: &[u8],
        marked: bool,
    ) {
        if payload.len() as u64 != u64::from(segment.len) {
            return;
        }
        let arrival = self.connection.handle_segment_marked(now, segment, marked);
        if arrival.len > 0 {
            let from = arrival.skip as usize;
            self.incoming.reserve(arrival.offset + u64::from(arrival.len));
            self.incoming.write(arrival.offset, &payload[from..from + arrival.len as usize]);
        }
        self.outgoing.advance(self.connection.acknowledged().get());
    }

    /// The next segment to send, if any; its payload is the first [`Segment::len`] bytes of `out`,
    /// which must have room for a full segment: nothing is sent otherwise.
    #[inline]
    pub fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Segment> {
        self.poll_outgoing(now, out).map(|sent| sent.segment)
    }

    /// As [`poll_transmit`](Self::poll_transmit), for whoever writes the IP header's field of
    /// congestion notification: [`Outgoing::ecn_capable`].
    #[inline]
    pub fn poll_outgoing(&mut self, now: Time, out: &mut [u8]) -> Option<Outgoing> {
        if (out.len() as u64) < self.connection.segment_size().get() {
            return None;
        }
        let sent = self.connection.poll_transmit(now)?;
        let len = u64::from(sent.segment.len);
        let (head, tail) = self.outgoing.slices(sent.offset..sent.offset + len);
        out[..head.len()].copy_from_slice(head);
        out[head.len()..head.len() + tail.len()].copy_from_slice(tail);
        Some(sent)
    }

    /// As [`Connection::poll_event`].
    pub fn poll_event(&mut self) -> Option<Event> {
        self.connection.poll_event()
    }

    /// As [`Connection::next_timeout`].
    #[inline]
    pub fn next_timeout(&self) -> Option<Time> {
        self.connection.next_timeout()
    }

    /// As [`Connection::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Time) {
        self.connection.handle_timeout(now);
    }

    /// As [`Connection::handle_link_event`].
    pub fn handle_link_event(&mut self, now: Time, event: LinkEvent) {
        self.connection.handle_link_event(now, event);
    }

    /// As [`Connection::set_window_share`].
    pub fn set_window_share(&mut self, share: Option<Bytes>) {
        self.connection.set_window_share(share);
    }

    /// As [`Connection::handle_bad_state`].
    pub fn handle_bad_state(&mut self, now: Time) {
        self.connection.handle_bad_state(now);
    }

    /// As [`Connection::retransmit_now`].
    pub fn retransmit_now(&mut self, now: Time) {
        self.connection.retransmit_now(now);
    }

    /// As [`Connection::adopt`].
    pub fn adopt(&mut self, estimates: &Estimates) {
        self.connection.adopt(estimates);
    }

    /// As [`Connection::snapshot`]; the bytes are in [`unacknowledged`](Self::unacknowledged) and
    /// [`received`](Self::received).
    pub fn snapshot(&self, now: Time) -> Snapshot {
        self.connection.snapshot(now)
    }

    /// The bytes that were written and are not acknowledged, in up to two pieces.
    pub fn unacknowledged(&self) -> (&[u8], &[u8]) {
        let range = self.connection.acknowledged().get()..self.connection.written().get();
        self.outgoing.slices(range)
    }

    /// The bytes that have arrived in order and were not consumed, in up to two pieces.
    pub fn unread(&self) -> (&[u8], &[u8]) {
        let end = self.connection.received().get();
        self.incoming.slices(end - self.connection.readable().get()..end)
    }

    /// Goes on where `snapshot` was taken, with the bytes that were there:
    /// [`unacknowledged`](Self::unacknowledged) and [`unread`](Self::unread). `None` if they are
    /// not as many as the snapshot says. What had arrived above a gap is requested again.
    pub fn restore(
        config: Config,
        now: Time,
        snapshot: &Snapshot,
        unacknowledged: &[u8],
        unread: &[u8],
    ) -> Option<Self> {
        let snapshot = Snapshot { received_ahead: alloc::vec::Vec::new(), ..snapshot.clone() };
        let connection = Connection::restore(config, now, &snapshot);
        let mut it = Self::from(connection);
        let start = it.connection.acknowledged().get();
        let end = it.connection.received().get();
        let matches = it.connection.written().get() - start == unacknowledged.len() as u64
            && it.connection.readable().get() == unread.len() as u64;
        if !matches {
            return None;
        }
        it.outgoing.advance(start);
        it.outgoing.reserve(start + unacknowledged.len() as u64);
        it.outgoing.write(start, unacknowledged);
        it.incoming.advance(end - unread.len() as u64);
        it.incoming.reserve(end);
        it.incoming.write(end - unread.len() as u64, unread);
        Some(it)
    }
}
