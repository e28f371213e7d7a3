//! Mobile TCP's whole endpoint on a link, as a base or a mobile runs it: with what an association, its
//! session and many connections ask for.

use lasthop_hop::mobile_tcp::MobileTcp;
use lasthop_hop::{RecvState, Role, StreamEvent, StreamId, Streams, Transport};
use lasthop_units::Time;
use lasthop_wire::mobile_tcp::ETHERTYPE;

use super::mobile_tcp::config;
use super::{Conn, MACS, Stack, Standing, hand_over};
use crate::link::{self, ETHERNET, Mac, Queue};

/// A whole endpoint with its link address and its peer's.
pub struct Endpoint {
    transport: MobileTcp,
    mac: Mac,
    neighbour: Mac,
    streams: Vec<StreamId>,
}

/// The first byte written, which is no message of a session: it travels behind an opening that has
/// no message.
const FIRST: u8 = 0xff;

impl Endpoint {
    fn new(host: usize, now: Time) -> Self {
        let config = config(0);
        let role = if host == 0 { Role::Mobile } else { Role::Base };
        let mut transport = MobileTcp::new(config.clone(), role, now);
        transport.establish(now, &MobileTcp::limits(&config));
        Self { transport, mac: MACS[host], neighbour: MACS[1 - host], streams: Vec::new() }
    }

    /// A mobile and a base on a link with one connection between them: the stacks and its name at
    /// each. `None` if it does not open.
    pub fn pair() -> Option<([Self; 2], [Conn; 2])> {
        let now = Time::ZERO;
        let mut ends = [Self::new(0, now), Self::new(1, now)];
        let stream = ends[0].transport.open().ok()?;
        ends[0].streams.push(stream);
        ends[0].transport.write(stream, &[FIRST]).ok()?;
        // Opening, answer, the byte.
        hand_over(&mut ends, now, [0, 1].repeat(4));
        let stream = ends[1].streams.first().copied()?;
        let opened = ends[1].transport.received(stream) == [FIRST];
        ends[1].transport.consume(stream, 1);
        opened.then_some((ends, [Conn(0), Conn(0)]))
    }

    fn stream(&self, conn: Conn) -> Option<StreamId> {
        self.streams.get(conn.0).copied()
    }
}

impl Stack for Endpoint {
    fn standing(&self, conn: Conn) -> Standing {
        match self.stream(conn).map(|id| self.transport.recv_state(id)) {
            Some(RecvState::Open) => Standing::Open,
            _ => Standing::Closed,
        }
    }

    #[inline]
    fn send_space(&mut self, conn: Conn) -> &mut [u8] {
        let Some(id) = self.stream(conn) else { return &mut [] };
        self.transport.send_space(id).unwrap_or_default()
    }

    #[inline]
    fn commit(&mut self, conn: Conn, n: usize) {
        if let Some(id) = self.stream(conn) {
            self.transport.commit(id, n);
        }
    }

    #[inline]
    fn received(&self, conn: Conn) -> &[u8] {
        self.stream(conn).map_or(&[], |id| self.transport.received(id))
    }

    #[inline]
    fn consume(&mut self, conn: Conn, n: usize) {
        if let Some(id) = self.stream(conn) {
            self.transport.consume(id, n);
        }
    }

    fn output(&mut self, now: Time, _conn: Conn, link: &mut Queue) {
        while let Some(frame) = link.slot() {
            let Some(len) = self.transport.poll(now, &mut frame[ETHERNET..]) else { return };
            link::put_header(frame, self.neighbour, self.mac, ETHERTYPE);
            link.send(ETHERNET + len);
        }
    }

    fn input(&mut self, now: Time, frame: &[u8]) -> Option<Conn> {
        let packet = link::payload(frame, self.mac, ETHERTYPE)?;
        self.transport.handle(now, packet).ok()?;
        // With one connection the events tell nothing more.
        while let Some(event) = self.transport.poll_event() {
            if let StreamEvent::Incoming(id) = event {
                self.streams.push(id);
            }
        }
        Some(Conn(0))
    }

    fn expire(&mut self, now: Time, link: &mut Queue) {
        if self.transport.next_timeout().is_some_and(|due| due <= now) {
            self.transport.handle_timeout(now);
            self.output(now, Conn(0), link);
        }
    }
}
