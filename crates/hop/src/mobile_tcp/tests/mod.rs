//! Two ends joined by a hop that loses: openings, ends, bounds and bad input.

mod bad_input;
mod bounds;
mod life;
mod opening;
mod priority;
mod rules;
mod schedules;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use core::time::Duration;

use lasthop_units::{Bytes, LinkEvent, Seed, Time};
use lasthop_wire::mhp::{Message, Opening, Refusal, ResetReason, Target};
use lasthop_wire::mobile_tcp::{Cid, Code, Control, DataHeader, Packet, Seq16};

use super::*;
use crate::config::Limits;
use crate::path_id::PathId;
use crate::streams::{RecvState, StreamError, StreamEvent, StreamId, Streams};
use crate::transport::{CloseReason, LOST, Role, Transport};

fn ms(n: u64) -> Time {
    Time::from_millis(n)
}

fn end(config: &Config, role: Role) -> MobileTcp {
    let mut end = MobileTcp::new(config.clone(), role, Time::ZERO);
    end.establish(Time::ZERO, &MobileTcp::limits(config));
    end
}

/// A mobile, a base and what is between them.
struct Pair {
    mobile: MobileTcp,
    base: MobileTcp,
    now: Time,
    up: VecDeque<Vec<u8>>,
    down: VecDeque<Vec<u8>>,
}

fn poll(end: &mut MobileTcp, now: Time) -> Option<Vec<u8>> {
    let mut out = [0; 2000];
    end.poll(now, &mut out).map(|len| out[..len].to_vec())
}

fn poll_all(end: &mut MobileTcp, now: Time) -> Vec<Vec<u8>> {
    core::iter::from_fn(|| poll(end, now)).collect()
}

/// Lets ticks pass until an end has something to say.
fn wait_for_word(end: &mut MobileTcp, now: &mut Time) -> Vec<Vec<u8>> {
    loop {
        let said = poll_all(end, *now);
        if !said.is_empty() {
            return said;
        }
        *now = end.next_timeout().expect("nothing is waited for").max(*now);
        assert!(*now < Time::from_secs(600), "it never says a word");
        end.handle_timeout(*now);
    }
}

fn events(end: &mut MobileTcp) -> Vec<StreamEvent> {
    core::iter::from_fn(|| end.poll_event()).collect()
}

fn read(end: &mut MobileTcp, id: StreamId) -> Vec<u8> {
    let mut all = Vec::new();
    while !end.received(id).is_empty() {
        let n = end.received(id).len();
        all.extend_from_slice(end.received(id));
        end.consume(id, n);
    }
    all
}

fn control(packet: &[u8]) -> Control {
    match Packet::decode(packet) {
        Ok(Packet::Control(control, _)) => control,
        other => panic!("{other:?}"),
    }
}

fn data(packet: &[u8]) -> DataHeader {
    match Packet::decode(packet) {
        Ok(Packet::Data(header, _)) => header,
        other => panic!("{other:?}"),
    }
}

fn v4(last: u8, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), port)
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

fn open_to(to: impl Into<SocketAddr>, opening: Opening) -> Vec<u8> {
    encoded(&Message::Open {
        opening,
        target: Target::Addr(to.into()),
        connection: None,
        source: None,
        resumed: None,
    })
}

fn opened(bound: impl Into<SocketAddr>) -> Vec<u8> {
    encoded(&Message::Opened { bound: bound.into() })
}

impl Pair {
    fn new() -> Self {
        Self::with(&Config::default())
    }

    fn with(config: &Config) -> Self {
        Self::between(config, config)
    }

    fn between(mobile: &Config, base: &Config) -> Self {
        Self {
            mobile: end(mobile, Role::Mobile),
            base: end(base, Role::Base),
            now: Time::ZERO,
            up: VecDeque::new(),
            down: VecDeque::new(),
        }
    }

    fn send(&mut self) {
        self.up.extend(poll_all(&mut self.mobile, self.now));
        self.down.extend(poll_all(&mut self.base, self.now));
    }

    /// Both ends talk until neither has anything to say at this moment.
    fn settle(&mut self) {
        loop {
            self.send();
            if self.up.is_empty() && self.down.is_empty() {
                return;
            }
            self.up.drain(..).for_each(|p| self.base.handle(self.now, &p).unwrap());
            self.down.drain(..).for_each(|p| self.mobile.handle(self.now, &p).unwrap());
        }
    }

    /// Lets time pass, with every timer on the way.
    fn pass(&mut self, time: Duration) {
        self.pass_with(time, Self::settle);
    }

    /// Lets time pass while the base hears everything and the mobile nothing.
    fn pass_without_answers(&mut self, time: Duration) {
        self.pass_with(time, |world| {
            let sent = poll_all(&mut world.mobile, world.now);
            sent.iter().for_each(|p| world.base.handle(world.now, p).unwrap());
            poll_all(&mut world.base, world.now);
        });
    }

    /// Lets time pass, with every timer on the way; at each both ends `talk`.
    fn pass_with(&mut self, time: Duration, talk: impl Fn(&mut Self)) {
        let end = self.now + time;
        loop {
            talk(self);
            let timers = [self.mobile.next_timeout(), self.base.next_timeout()];
            match timers.into_iter().flatten().min().filter(|at| *at <= end) {
                Some(at) => self.now = self.now.max(at),
                None => break,
            }
            self.mobile.handle_timeout(self.now);
            self.base.handle_timeout(self.now);
        }
        self.now = end;
    }

    /// A connection that stands, with both first messages read.
    fn connection(&mut self) -> StreamId {
        let id = self.mobile.open().unwrap();
        let asked = open_to(v4(1, 80), Opening::Faithful);
        self.mobile.write(id, &asked).unwrap();
        self.settle();
        assert_eq!(read(&mut self.base, id), asked);
        self.base.write(id, &opened(v4(9, 999))).unwrap();
        self.settle();
        assert_eq!(read(&mut self.mobile, id), opened(v4(9, 999)));
        events(&mut self.mobile);
        events(&mut self.base);
        id
    }
}
