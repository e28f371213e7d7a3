//! Both ends of a bare hop, driven by any sequence of operations of applications, hop and strangers.
//!
//! The hop loses and delays and does not reorder; strangers send anything from their own addresses;
//! either end is started anew at any time. Every byte read was written into that stream, there, in one
//! and the same life of the end that wrote it. Once nothing more is lost, a new stream carries
//! everything. Somebody may also speak in an end's name, by its address: then contents mean nothing, but
//! nothing panics and what is kept stays bounded.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddrV4;
use std::time::Duration;

use lasthop_hop::mobile_tcp::Config;
use lasthop_hop::{
    AssociationEvent, AssociationId, BareBase, BareBounds, BareMobile, RecvState, StreamEvent,
    StreamId, Streams,
};
use lasthop_units::{Bytes, Seed, Time};
use lasthop_wire::mobile_tcp::{Cid, Code, Control, DATA_HEADER, DataHeader, Seq16};

const MOBILE: u16 = 1;
const BASE: u16 = 1000;
const PEERS_MAX: usize = 8;
const CONNECTIONS_MAX: usize = 8;
const BUFFER: u64 = 8 << 10;
/// Packets that the hop holds in each direction; later ones are lost.
const HOP_QUEUE: usize = 64;
/// More packets than that at one instant would be an end that does not stop.
const BURST: usize = 10_000;
const CALM_STEPS: usize = 20_000;

fn config() -> Config {
    Config {
        window: Bytes::new(BUFFER),
        send_buffer: Bytes::new(BUFFER),
        connections_max: CONNECTIONS_MAX,
        half_open_max: CONNECTIONS_MAX,
        quiet: Duration::from_millis(500),
        ..Config::default()
    }
}

/// What the end that lives its `life` writes. The first byte begins no message of the session.
fn byte(life: u32, stream: u64, offset: u64) -> u8 {
    let place = u64::from(life) << 48 | stream << 32 | offset;
    match offset {
        0 => 0xff,
        _ => (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8,
    }
}

/// What was read from a stream, and which lives of the other end may have written it.
struct Reading {
    lives: Vec<u32>,
    offset: u64,
}

impl Reading {
    fn take(&mut self, stream: u64, data: &[u8]) {
        let from = self.offset;
        let wrote = |life: &u32| {
            (from..).zip(data).all(|(offset, read)| *read == byte(*life, stream, offset))
        };
        self.lives.retain(wrote);
        assert!(!self.lives.is_empty(), "stream {stream} at {from} is nobody's");
        self.offset += data.len() as u64;
    }
}

struct Relation {
    now: Time,
    mobile: BareMobile<u16>,
    base: BareBase<u16>,
    /// How often the mobile and the base were started.
    lives: [u32; 2],
    /// Streams that the mobile knows, those of the base's present relation with it, and how much was
    /// written into each.
    written: [BTreeMap<u64, u64>; 2],
    /// By each end's number of the relation, and the stream.
    readings: [BTreeMap<(u64, u64), Reading>; 2],
    standing: Option<AssociationId>,
    /// How many relations the mobile has lost.
    lost: u64,
    /// What each end has sent and the hop still holds.
    hop: [VecDeque<Vec<u8>>; 2],
    /// Somebody has spoken in the mobile's name, so that contents mean nothing any more.
    hostile: bool,
}

fn mobile(life: u32, now: Time) -> BareMobile<u16> {
    BareMobile::new(config(), BASE, Seed::from_u64(u64::from(life)).child("mobile"), now)
}

fn base(life: u32) -> BareBase<u16> {
    let bounds = BareBounds { peers_max: PEERS_MAX, idle: Duration::from_secs(5) };
    BareBase::new(config(), bounds, Seed::from_u64(u64::from(life)).child("base"))
}

impl Relation {
    fn new() -> Self {
        Self {
            now: Time::ZERO,
            mobile: mobile(0, Time::ZERO),
            base: base(0),
            lives: [0; 2],
            written: Default::default(),
            readings: Default::default(),
            standing: None,
            lost: 0,
            hop: Default::default(),
            hostile: false,
        }
    }

    fn streams(&mut self, side: usize) -> Option<&mut dyn Streams> {
        match side {
            0 => Some(&mut self.mobile),
            _ => self.base.association_mut(self.standing?).map(|s| s as &mut dyn Streams),
        }
    }

    fn pick(&self, side: usize, choice: u8) -> Option<u64> {
        let known = &self.written[side];
        known.keys().nth(usize::from(choice) % known.len().max(1)).copied()
    }

    fn open(&mut self, side: usize) -> Option<u64> {
        let id = self.streams(side)?.open().ok()?.0;
        self.written[side].insert(id, 0);
        Some(id)
    }

    fn write(&mut self, side: usize, id: u64, amount: u64) -> usize {
        let life = self.lives[side];
        let from = self.written[side].get(&id).copied().unwrap_or(0);
        let data: Vec<u8> = (from..from + amount).map(|at| byte(life, id, at)).collect();
        let Some(streams) = self.streams(side) else { return 0 };
        let taken = streams.write(StreamId(id), &data).unwrap_or(0);
        *self.written[side].entry(id).or_default() += taken as u64;
        taken
    }

    fn read(&mut self, side: usize, id: u64, amount: usize) {
        // A stream is one life's of the end that reads it, and of one relation.
        let relation = match side {
            0 => u64::from(self.lives[0]) << 32 | self.lost,
            _ => u64::from(self.lives[1]) << 32 | self.standing.map_or(0, |id| id.0),
        };
        let writers = self.lives[1 - side];
        let Some(streams) = self.streams(side) else { return };
        let data = streams.received(StreamId(id));
        let data = data[..data.len().min(amount)].to_vec();
        streams.consume(StreamId(id), data.len());
        if !self.hostile && !data.is_empty() {
            let fresh = || Reading { lives: (0..=writers).collect(), offset: 0 };
            let reading = self.readings[side].entry((relation, id)).or_insert_with(fresh);
            reading.take(id, &data);
        }
    }

    fn restart(&mut self, side: usize) {
        self.lives[side] += 1;
        self.written[side].clear();
        match side {
            0 => self.mobile = mobile(self.lives[0], self.now),
            _ => {
                self.base = base(self.lives[1]);
                self.standing = None;
            }
        }
    }

    fn deliver(&mut self, to: usize) {
        let Some(mut packet) = self.hop[1 - to].pop_front() else { return };
        match to {
            0 => self.mobile.handle_datagram(self.now, BASE, &mut packet),
            _ => self.base.handle_datagram(self.now, MOBILE, &mut packet),
        }
    }

    fn hear(&mut self) {
        while self.base.poll_event().is_some() {}
        while self.base.poll_touched().is_some() {}
        while let Some(event) = self.mobile.poll_association_event() {
            if matches!(event, AssociationEvent::Lost(_)) {
                self.lost += 1;
                self.written[0].clear();
            }
        }
        let standing = self.base.views().find(|view| view.peer == Some(MOBILE)).map(|v| v.id);
        if standing != self.standing {
            self.standing = standing;
            self.written[1].clear();
        }
        for side in 0..2 {
            let mut incoming = Vec::new();
            if let Some(streams) = self.streams(side) {
                while let Some(event) = streams.poll_event() {
                    if let StreamEvent::Incoming(id) = event {
                        incoming.push(id.0);
                    }
                }
            }
            for id in incoming {
                self.written[side].entry(id).or_insert(0);
            }
        }
    }

    fn send(&mut self) {
        let mut out = [0; 2000];
        for side in 0..2 {
            let mut sent = 0;
            loop {
                let transmit = match side {
                    0 => self.mobile.poll_transmit(self.now, &mut out),
                    _ => self.base.poll_transmit(self.now, &mut out),
                };
                let Some(t) = transmit else { break };
                sent += 1;
                assert!(sent < BURST, "an end does not stop sending");
                let here = [BASE, MOBILE][side] == t.to;
                if here && self.hop[side].len() < HOP_QUEUE {
                    self.hop[side].push_back(out[..t.len].to_vec());
                }
            }
        }
    }

    /// What follows from any operation: events are heard, due packets leave.
    fn settle(&mut self) {
        self.hear();
        self.send();
        self.hear();
        assert!(self.base.peers() <= PEERS_MAX);
        for view in self.base.views() {
            // Connections of both ends, each with two buffers, and their identifiers at rest.
            let most = 2 * CONNECTIONS_MAX as u64 * 4 * BUFFER;
            assert!(view.stats.memory.get() <= most, "{} bytes are held", view.stats.memory);
        }
    }

    fn advance(&mut self, by: Duration) {
        self.now += by;
        if self.mobile.next_timeout().is_some_and(|at| at <= self.now) {
            self.mobile.handle_timeout(self.now);
        }
        if self.base.next_timeout().is_some_and(|at| at <= self.now) {
            self.base.handle_timeout(self.now);
        }
    }

    fn operate(&mut self, operation: u8, argument: u8) {
        let side = usize::from(operation & 1);
        let picked = self.pick(side, argument >> 4);
        match (operation >> 1 & 15, picked) {
            (0, _) => drop(self.open(side)),
            (1..=3, Some(id)) => drop(self.write(side, id, 1 << (argument & 15))),
            (4 | 5, Some(id)) => self.read(side, id, 1 << (argument & 15)),
            (6, Some(id)) => {
                if let Some(streams) = self.streams(side) {
                    streams.finish(StreamId(id));
                }
            }
            (7, Some(id)) if argument & 15 == 0 => {
                if let Some(streams) = self.streams(side) {
                    streams.reset(StreamId(id), 7);
                }
            }
            (8, _) if argument & 31 == 31 => self.restart(side),
            (8 | 9, _) => drop(self.hop[side].remove(usize::from(argument))),
            (10..=12, _) => (0..argument / 4).for_each(|_| self.deliver(side)),
            _ => {
                self.advance(Duration::from_millis(u64::from(argument) * u64::from(argument) / 16));
            }
        }
        self.settle();
    }

    /// Somebody sends these bytes: to the mobile or to the base, from an address of its own or in the
    /// other end's name, as they are or as the fields of a packet whose checksum is right.
    fn invade(&mut self, choice: u8, bytes: &[u8]) {
        let mut packet = match choice >> 2 & 3 {
            0 => bytes.to_vec(),
            1 => control(bytes),
            _ => data(bytes),
        };
        let stranger = 2000 + u16::from(choice);
        let named = choice & 2 != 0;
        self.hostile |= named;
        if choice & 1 == 0 {
            let from = if named { BASE } else { stranger };
            self.mobile.handle_datagram(self.now, from, &mut packet);
        } else {
            let from = if named { MOBILE } else { stranger };
            self.base.handle_datagram(self.now, from, &mut packet);
        }
        self.settle();
    }

    /// Time for whatever is under way, on a hop that loses nothing.
    fn calm_step(&mut self) {
        for side in 0..2 {
            while !self.hop[1 - side].is_empty() {
                self.deliver(side);
            }
        }
        self.settle();
        for side in 0..2 {
            let ids: Vec<u64> = self.written[side].keys().copied().collect();
            for id in ids {
                self.read(side, id, usize::MAX);
            }
        }
        self.settle();
        let timers = [self.mobile.next_timeout(), self.base.next_timeout()];
        let next = timers.into_iter().flatten().min();
        let wait = next.map_or(Duration::from_millis(1), |at| at.since(self.now));
        self.advance(wait.clamp(Duration::from_micros(100), Duration::from_secs(1)));
    }

    /// From here on the hop loses nothing and applications read what they have: old streams are given
    /// up, and a new one carries everything.
    fn come_to_an_end(&mut self) {
        // What still stands on either end meets the other's truth, and identifiers have rested.
        let rested = self.now + Duration::from_secs(20);
        for _ in 0..CALM_STEPS {
            if self.now >= rested {
                break;
            }
            self.calm_step();
        }
        for side in 0..2 {
            let ids: Vec<u64> = self.written[side].keys().copied().collect();
            for id in ids {
                if let Some(streams) = self.streams(side) {
                    streams.reset(StreamId(id), 7);
                }
            }
        }
        let (mut id, amount) = (None, 3 * BUFFER);
        let mut left = amount;
        for _ in 0..CALM_STEPS {
            self.calm_step();
            id = id.or_else(|| self.open(0));
            let Some(stream) = id else { continue };
            left -= self.write(0, stream, left) as u64;
            if left == 0 {
                self.mobile.finish(StreamId(stream));
            }
            // The base ends nothing: a stream that is over was reset, and is forgotten by now.
            if self.mobile.recv_state(StreamId(stream)) != RecvState::Open {
                // The base had forgotten the mobile, or had too many connections.
                (id, left) = (None, amount);
                continue;
            }
            let relation = u64::from(self.lives[1]) << 32 | self.standing.map_or(0, |id| id.0);
            let read =
                self.readings[1].get(&(relation, stream)).map_or(0, |reading| reading.offset);
            if read == amount {
                return;
            }
        }
        panic!("something is left when nothing stands in the way");
    }
}

fn number(bytes: &[u8], at: usize) -> u16 {
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    u16::from_be_bytes([byte(2 * at), byte(2 * at + 1)])
}

/// A data packet with these numbers, and what follows them as its data.
fn data(bytes: &[u8]) -> Vec<u8> {
    let header = DataHeader {
        code: Code::from_bits(number(bytes, 0)),
        cid: Cid(number(bytes, 1)),
        seq: Seq16(number(bytes, 2)),
        ack: Seq16(number(bytes, 3)),
        window: number(bytes, 4),
        nack: Seq16(number(bytes, 5)),
    };
    let payload = bytes.get(12..).unwrap_or(&[]);
    let mut out = [&[0; DATA_HEADER], payload].concat();
    header.emit(payload.len(), &mut out).expect("room for it");
    out
}

/// A control packet with these numbers.
fn control(bytes: &[u8]) -> Vec<u8> {
    let control = Control {
        code: Code::from_bits(number(bytes, 0)),
        cid: Cid(number(bytes, 1)),
        seq: Seq16(number(bytes, 2)),
        ack: Seq16(number(bytes, 3)),
        reverse: Cid(number(bytes, 4)),
        max_buffer: number(bytes, 5),
        max_packet: number(bytes, 6),
        destination: SocketAddrV4::new([192, 0, 2, 1].into(), number(bytes, 7)),
        source: SocketAddrV4::new([10, 0, 0, 1].into(), number(bytes, 8)),
    };
    let mut out = vec![0; 28];
    control.emit(&mut out).expect("room for it");
    out
}

/// One input: operations of two bytes each. A first byte of 255 gives what follows it, up to the
/// length in the second, to an end as a packet from somebody else.
pub fn run(mut bytes: &[u8]) {
    let mut world = Relation::new();
    while let [operation, argument, rest @ ..] = bytes {
        bytes = rest;
        if *operation == 255 {
            let (packet, rest) = rest.split_at(rest.len().min(usize::from(*argument >> 1)));
            bytes = rest;
            world.invade(argument.wrapping_mul(29), packet);
        } else {
            world.operate(*operation, *argument);
        }
    }
    if !world.hostile {
        world.come_to_an_end();
    }
}
