//! Fixed host, base, router and mobile host in a row, in virtual time: links delay and keep order.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};

use lasthop_units::Duration;

use super::super::{Base, Config, Router};
use super::*;

pub(super) const FIXED: usize = 0;
pub(super) const BASE_AT: usize = 1;
pub(super) const ROUTER_AT: usize = 2;
pub(super) const MOBILE: usize = 3;

/// The link between fixed host and base, base and router, router and mobile host.
pub(super) const WIRE: usize = 0;
pub(super) const FIRST_HOP: usize = 1;
pub(super) const SECOND_HOP: usize = 2;

/// What marks a packet that hosts drop: only the agents see its header.
pub(super) const GARBAGE: &[u8] = b"garbage";

#[derive(Clone, Debug)]
pub(super) enum Item {
    Packet(Packet),
    /// As it is on the wire.
    Message(Vec<u8>),
}

/// How many copies of what goes over a link arrive.
type Fate = Box<dyn FnMut(usize, Side, &Item) -> usize>;

pub(super) struct Line {
    pub(super) now: Time,
    queue: BTreeMap<(Time, u64), (usize, Side, Item)>,
    serial: u64,
    pub(super) base: Base<Packet>,
    pub(super) router: Router<Packet>,
    pub(super) sender: Option<Sender>,
    pub(super) receiver: Receiver,
    delays: [Duration; 3],
    fate: Fate,
    /// What left for a link, and in which direction.
    pub(super) trace: Vec<(Time, usize, Side, Item)>,
}

/// A fixed host with a window of 16 segments, fast retransmit and a timer.
pub(super) struct Sender {
    una: u32,
    next: u32,
    total: u32,
    dupacks: u32,
    rto: Duration,
    due: Time,
}

impl Sender {
    pub(super) fn new(total: u32) -> Self {
        let rto = Duration::from_millis(400);
        Self { una: 0, next: 0, total, dupacks: 0, rto, due: Time::ZERO + rto }
    }

    pub(super) fn done(&self) -> bool {
        self.una == self.total
    }

    fn window(&mut self) -> core::ops::Range<u32> {
        let from = self.next.max(self.una);
        self.next = from.max((self.una + 16).min(self.total));
        from..self.next
    }

    /// What to send upon an acknowledgement.
    fn handle_ack(&mut self, now: Time, ack: u32) -> core::ops::Range<u32> {
        if ack > self.una && ack <= self.total {
            (self.una, self.dupacks) = (ack, 0);
            self.rto = Duration::from_millis(400);
            self.due = now + self.rto;
            return self.window();
        }
        self.dupacks += u32::from(ack == self.una);
        if self.dupacks == 3 { self.una..(self.una + 1).min(self.total) } else { 0..0 }
    }

    fn handle_timeout(&mut self, now: Time) -> core::ops::Range<u32> {
        self.rto = (self.rto * 2).min(Duration::from_secs(3));
        self.due = now + self.rto;
        self.dupacks = 0;
        self.next = self.una + 1;
        self.una..self.next.min(self.total)
    }
}

/// A mobile host that acknowledges each segment at once.
#[derive(Default)]
pub(super) struct Receiver {
    next: u32,
    held: BTreeSet<u32>,
    pub(super) stream: Vec<u8>,
}

impl Receiver {
    fn handle(&mut self, packet: &Packet) -> Packet {
        let n = packet.segment.unwrap().seq.0.wrapping_sub(BASE.0) / MSS;
        if n >= self.next && self.held.insert(n) {
            while self.held.remove(&self.next) {
                self.stream.extend(payload(self.next).iter());
                self.next += 1;
            }
        }
        assert_eq!(packet.bytes, payload(n), "segment {n} came with other bytes");
        ack(self.next)
    }
}

/// What segment `n` carries.
pub(super) fn payload(n: u32) -> Rc<[u8]> {
    n.to_be_bytes().into()
}

impl Line {
    pub(super) fn new(base: Config, router: Config, fate: Fate) -> Self {
        Self {
            now: Time::ZERO,
            queue: BTreeMap::new(),
            serial: 0,
            base: Base::new(base).unwrap(),
            router: Router::new(router).unwrap(),
            sender: None,
            receiver: Receiver::default(),
            delays: [50, 20, 5].map(Duration::from_millis),
            fate,
            trace: Vec::new(),
        }
    }

    /// The fixed host sends segment `n`.
    pub(super) fn send(&mut self, n: u32) {
        self.carry(FIXED, Side::Mobile, Item::Packet(Packet { bytes: payload(n), ..data(n) }));
    }

    /// Puts something on the link on one side of `place`.
    fn carry(&mut self, place: usize, towards: Side, item: Item) {
        let (to, link, from) = match towards {
            Side::Fixed => (place - 1, place - 1, Side::Mobile),
            Side::Mobile => (place + 1, place, Side::Fixed),
        };
        for _ in 0..(self.fate)(link, towards, &item) {
            self.serial += 1;
            let at = (self.now + self.delays[link], self.serial);
            self.queue.insert(at, (to, from, item.clone()));
        }
        self.trace.push((self.now, link, towards, item));
    }

    /// An agent gets something.
    pub(super) fn deliver(&mut self, place: usize, from: Side, item: Item) {
        let now = self.now;
        match item {
            Item::Packet(packet) if place == FIXED || place == MOBILE => {
                self.deliver_to_host(place, &packet);
            }
            Item::Packet(packet) => match place {
                BASE_AT => self.base.handle_packet(now, from, packet),
                _ => self.router.handle_packet(now, from, packet),
            },
            Item::Message(bytes) => {
                if let Ok(message) = Message::parse(&bytes) {
                    match place {
                        BASE_AT => self.base.handle_message(now, from, &message),
                        ROUTER_AT => self.router.handle_message(now, from, &message),
                        _ => {}
                    }
                }
            }
        }
        self.flush();
    }

    fn deliver_to_host(&mut self, place: usize, packet: &Packet) {
        if *packet.bytes == *GARBAGE {
            return;
        }
        if place == MOBILE {
            let ack = self.receiver.handle(packet);
            return self.carry(MOBILE, Side::Fixed, Item::Packet(ack));
        }
        let ack = packet.segment.unwrap().ack.0.wrapping_sub(BASE.0) / MSS;
        let now = self.now;
        let segments = self.sender.as_mut().map_or(0..0, |sender| sender.handle_ack(now, ack));
        segments.for_each(|n| self.send(n));
    }

    /// Takes the agents' output along.
    fn flush(&mut self) {
        let from_base = drain(&mut self.base).into_iter().map(|out| (BASE_AT, out));
        let all: Vec<_> = from_base
            .chain(drain(&mut self.router).into_iter().map(|out| (ROUTER_AT, out)))
            .collect();
        for (place, out) in all {
            match out {
                Output::Packet { towards, packet } => {
                    self.carry(place, towards, Item::Packet(packet));
                }
                Output::Message { towards, message } => {
                    let mut bytes = [0; Message::MAX_LEN];
                    let len = message.emit(&mut bytes).unwrap();
                    self.carry(place, towards, Item::Message(bytes[..len].to_vec()));
                }
                Output::Segment { .. } => panic!("these agents make no segments"),
            }
        }
    }

    /// Runs to the next event, unless that is after `end`.
    pub(super) fn step(&mut self, end: Time) -> bool {
        let arrival = self.queue.first_key_value().map(|((at, _), _)| *at);
        let timers = [self.base.next_timeout(), self.router.next_timeout()];
        let sender = self.sender.as_ref().filter(|sender| !sender.done()).map(|sender| sender.due);
        let next = timers.into_iter().flatten().chain(arrival).chain(sender).min();
        let Some(next) = next.filter(|next| *next <= end) else {
            self.now = end;
            return false;
        };
        self.now = self.now.max(next);
        if arrival == Some(next) {
            if let Some((_, (place, from, item))) = self.queue.pop_first() {
                self.deliver(place, from, item);
            }
        } else if sender == Some(next) {
            let segments = self.sender.as_mut().map_or(0..0, |sender| sender.handle_timeout(next));
            segments.for_each(|n| self.send(n));
        } else {
            self.base.handle_timeout(next);
            self.router.handle_timeout(next);
            self.flush();
        }
        true
    }

    pub(super) fn run_until(&mut self, end: Time) {
        while self.step(end) {}
    }

    /// The sender begins.
    pub(super) fn start(&mut self, total: u32) {
        let mut sender = Sender::new(total);
        let window = sender.window();
        self.sender = Some(sender);
        window.for_each(|n| self.send(n));
    }
}
