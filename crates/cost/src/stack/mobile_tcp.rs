//! Mobile TCP straight on a link (MOB-1), as a protocol driver has it: connections found by the
//! identifier in their packets, and nothing else.

use lasthop_hop::mobile_tcp::{Config, Connection, Terms};
use lasthop_units::{Bytes, Time};
use lasthop_wire::mobile_tcp::{Cid, Code, Control, DataHeader, ETHERTYPE, Packet, Seq16};

use super::{Conn, MACS, Stack, Standing, hand_over};
use crate::link::{self, ETHERNET, Mac, Queue};

/// Nothing but windows limits what is sent (MOB-3).
const ANY: Bytes = Bytes::new(u64::MAX);
/// The number of our SYN.
const FIRST: Seq16 = Seq16(7);

struct Entry {
    connection: Connection,
    begun: bool,
    /// What is to be said of opening.
    word: Option<Control>,
}

/// An end of Mobile TCP with its link address and its peer's.
pub struct Mobile {
    config: Config,
    mac: Mac,
    neighbour: Mac,
    /// By the identifier that their packets carry, which is their place here and one more.
    connections: Vec<Entry>,
    next_tick: Time,
}

/// What both ends use: the defaults, and buffers as our TCP's.
pub(super) fn config(pad: usize) -> Config {
    Config { send_buffer: Bytes::from_kib(16), pad: Bytes::from(pad), ..Config::default() }
}

impl Mobile {
    fn new(pad: usize, host: usize) -> Self {
        let (mac, neighbour) = (MACS[host], MACS[1 - host]);
        let config = config(pad);
        let next_tick = Time::ZERO + config.tick;
        Self { config, mac, neighbour, connections: Vec::new(), next_tick }
    }

    /// A mobile and a base on a link with one connection between them, whose packets have `pad`
    /// bytes of padding: the stacks and its name at each. `None` if it does not open.
    ///
    /// The opening is that of figure 3a on a link that loses nothing: it is not what is measured.
    pub fn pair(pad: usize) -> Option<([Self; 2], [Conn; 2])> {
        let now = Time::ZERO;
        let mut ends = [Self::new(pad, 0), Self::new(pad, 1)];
        ends[0].add(now, None)?;
        hand_over(&mut ends, now, [0, 1, 0]);
        let conns = [Conn(0), Conn(0)];
        let open = ends.iter().all(|end| end.standing(Conn(0)) == Standing::Open);
        open.then_some((ends, conns))
    }

    /// A new connection: ours, or the one that the peer's packet opens.
    fn add(&mut self, now: Time, opening: Option<&Control>) -> Option<Conn> {
        let cid = Cid(u16::try_from(self.connections.len() + 1).ok()?);
        let answer = opening.map_or(Code::empty(), |_| Code::ACK);
        let word = Control {
            code: Code::SYN.with(answer),
            cid: opening.map_or(Cid::NONE, |control| control.reverse),
            seq: FIRST,
            ack: opening.map_or(Seq16(0), |control| control.seq + 1),
            reverse: cid,
            max_buffer: u16::try_from(self.config.window.get()).ok()?,
            max_packet: u16::try_from(self.config.max_packet.get()).ok()?,
            ..Control::default()
        };
        let connection = Connection::new(&self.config, now);
        self.connections.push(Entry { connection, begun: false, word: Some(word) });
        if let Some(control) = opening {
            self.begin(cid, control);
        }
        Some(Conn(usize::from(cid.0) - 1))
    }

    fn begin(&mut self, cid: Cid, control: &Control) {
        if let Some(entry) = self.entry(cid)
            && !entry.begun
        {
            entry.begun = true;
            entry.connection.begin(&Terms {
                cid: control.reverse,
                send: FIRST + 1,
                recv: control.seq + 1,
                window: control.max_buffer,
                max_packet: control.max_packet,
            });
        }
    }

    /// The connection that a packet with this identifier is for.
    #[inline]
    fn entry(&mut self, cid: Cid) -> Option<&mut Entry> {
        self.connections.get_mut(usize::from(cid.0).checked_sub(1)?)
    }

    fn on_control(&mut self, now: Time, control: &Control) -> Option<Conn> {
        if !control.code.contains(Code::SYN) {
            return None;
        }
        if !control.code.contains(Code::ACK) {
            return self.add(now, Some(control));
        }
        self.begin(control.cid, control);
        Some(Conn(usize::from(control.cid.0).checked_sub(1)?))
    }

    #[inline]
    fn on_data(&mut self, now: Time, header: &DataHeader, data: &[u8]) -> Option<Conn> {
        let at = usize::from(header.cid.0).checked_sub(1)?;
        self.connections.get_mut(at)?.connection.handle(now, header, data);
        Some(Conn(at))
    }
}

impl Stack for Mobile {
    fn standing(&self, conn: Conn) -> Standing {
        match self.connections.get(conn.0) {
            None => Standing::Closed,
            Some(entry) if entry.connection.has_failed() => Standing::Closed,
            Some(entry) if entry.begun => Standing::Open,
            Some(_) => Standing::Opening,
        }
    }

    #[inline]
    fn send_space(&mut self, conn: Conn) -> &mut [u8] {
        let entry = self.connections.get_mut(conn.0);
        entry.map_or(&mut [], |entry| entry.connection.send_space())
    }

    #[inline]
    fn commit(&mut self, conn: Conn, n: usize) {
        if let Some(entry) = self.connections.get_mut(conn.0) {
            entry.connection.commit(n);
        }
    }

    #[inline]
    fn received(&self, conn: Conn) -> &[u8] {
        self.connections.get(conn.0).map_or(&[], |entry| entry.connection.received())
    }

    #[inline]
    fn consume(&mut self, conn: Conn, n: usize) {
        if let Some(entry) = self.connections.get_mut(conn.0) {
            entry.connection.consume(n);
        }
    }

    fn output(&mut self, now: Time, conn: Conn, link: &mut Queue) {
        let Some(entry) = self.connections.get_mut(conn.0) else { return };
        while let Some(frame) = link.slot() {
            let room = &mut frame[ETHERNET..];
            let len = match entry.word.take() {
                Some(word) => word.emit(room).ok(),
                None => entry.connection.poll(now, ANY, room),
            };
            let Some(len) = len else { return };
            link::put_header(frame, self.neighbour, self.mac, ETHERTYPE);
            link.send(ETHERNET + len);
        }
    }

    fn input(&mut self, now: Time, frame: &[u8]) -> Option<Conn> {
        let packet = link::payload(frame, self.mac, ETHERTYPE)?;
        match Packet::decode(packet).ok()? {
            Packet::Data(header, data) => self.on_data(now, &header, data),
            Packet::Control(control, _) => self.on_control(now, &control),
        }
    }

    /// The one timer (MOB-34): between its ticks there is nothing to look at.
    #[inline]
    fn expire(&mut self, now: Time, link: &mut Queue) {
        if now < self.next_tick {
            return;
        }
        while self.next_tick <= now {
            self.next_tick += self.config.tick;
        }
        for at in 0..self.connections.len() {
            self.connections[at].connection.handle_timeout(now);
            self.output(now, Conn(at), link);
        }
    }
}
