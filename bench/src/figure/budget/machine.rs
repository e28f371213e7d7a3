//! Two machines joined by nothing but memory: what the protocol costs without a kernel.

use std::collections::VecDeque;
use std::hint::black_box;

use anyhow::{Context, Result, bail};
use lasthop_hop::seal::Keypair;
use lasthop_hop::{AssociationId, Base, HopConfig, Mobile, StreamId, Streams};
use lasthop_kernel::cpu;
use lasthop_units::{Bytes, Duration, Rate, Seed, Time};

use super::PAYLOAD;
use super::threads::{nanos_of, own_cpu};

/// What the machines find between them, on their clock, one way.
const RATE: Rate = Rate::from_mbps(5000);
const DELAY: Duration = Duration::from_micros(300);
/// How far apart turns are on that clock.
const TURN: Duration = Duration::from_micros(100);
/// How long the machines may take to come to their full speed.
const SETTLE: Time = Time::from_secs(1);
/// More than any cache near a core has.
const FAR: usize = 64 << 20;
const LONGEST: usize = 2048;
/// Addresses, as far as machines need some.
const BASE: u16 = 1;
const MOBILE: u16 = 2;

/// A datagram, in a buffer that is used again.
struct Datagram {
    buffer: Box<[u8]>,
    len: usize,
    arrives: Time,
}

/// One direction.
#[derive(Default)]
struct Way {
    flying: VecDeque<Datagram>,
    idle: Vec<Box<[u8]>>,
    free_at: Time,
}

impl Way {
    /// Sends what `poll` writes.
    fn send(&mut self, now: Time, mut poll: impl FnMut(&mut [u8]) -> Option<usize>) {
        loop {
            let mut buffer = self.idle.pop().unwrap_or_else(|| vec![0; LONGEST].into());
            let Some(len) = poll(&mut buffer) else { return self.idle.push(buffer) };
            self.free_at = self.free_at.max(now) + RATE.time_for(Bytes::new(len as u64));
            self.flying.push_back(Datagram { buffer, len, arrives: self.free_at + DELAY });
        }
    }

    /// Delivers what has arrived.
    fn deliver(&mut self, now: Time, mut take: impl FnMut(&mut [u8])) {
        while self.flying.front().is_some_and(|datagram| datagram.arrives <= now)
            && let Some(mut datagram) = self.flying.pop_front()
        {
            take(&mut datagram.buffer[..datagram.len]);
            self.idle.push(datagram.buffer);
        }
    }
}

/// A base and a mobile that downloads from it.
struct Pair {
    now: Time,
    base: Base<u16>,
    mobile: Mobile<u16>,
    association: Option<AssociationId>,
    stream: StreamId,
    down: Way,
    up: Way,
    bytes: u64,
}

impl Pair {
    fn new(sealed: bool) -> Result<Self> {
        let [base_keys, keys] = [1, 2].map(|n| Keypair::generate(Seed::from_u64(n)));
        let (config, now, seed) = (HopConfig::default(), Time::ZERO, Seed::from_u64(3));
        let (base, mut mobile) = if sealed {
            let base_key = *base_keys.public();
            let mobile = Mobile::new(config.clone(), keys.clone(), base_key, BASE, seed, now);
            let base = Base::new(config, base_keys, vec![*keys.public()], seed.child("base"));
            let fast = cpu::fast_aes();
            (base.with_fast_aes(fast), mobile.with_fast_aes(now, fast))
        } else {
            let mobile = Mobile::unsealed(config.clone(), *keys.public(), BASE, seed, now);
            (Base::unsealed(config, seed.child("base")), mobile)
        };
        let stream = mobile.open()?;
        mobile.write(stream, b"?")?;
        let (down, up) = (Way::default(), Way::default());
        let mut pair = Self { now, base, mobile, association: None, stream, down, up, bytes: 0 };
        while pair.now < SETTLE {
            pair.turn();
        }
        if pair.bytes == 0 {
            bail!("the machines do not find each other");
        }
        Ok(pair)
    }

    fn turn(&mut self) {
        self.now += TURN;
        let Self { now, base, mobile, down, up, .. } = self;
        let now = *now;
        down.deliver(now, |datagram| mobile.handle_datagram(now, BASE, datagram));
        up.deliver(now, |datagram| base.handle_datagram(now, MOBILE, datagram));
        if mobile.next_timeout().is_some_and(|at| at <= now) {
            mobile.handle_timeout(now);
        }
        if base.next_timeout().is_some_and(|at| at <= now) {
            base.handle_timeout(now);
        }
        while mobile.poll_event().is_some() {}
        let received = mobile.received(self.stream).len();
        mobile.consume(self.stream, received);
        self.bytes += received as u64;
        while let Some(id) = base.poll_touched() {
            self.association = Some(id);
        }
        if let Some(association) = self.association.and_then(|id| base.association_mut(id)) {
            while association.poll_event().is_some() {}
            while let Ok(room @ 1..) = association.send_space(self.stream).map(|room| room.len()) {
                association.commit(self.stream, room);
            }
        }
        down.send(now, |out| base.poll_transmit(now, out).map(|sent| sent.len));
        up.send(now, |out| mobile.poll_transmit(now, out).map(|sent| sent.len));
    }

    /// Nanoseconds for each datagram's payload, both ends.
    fn nanos(mut self, span: Duration) -> Result<f64> {
        let (began, bytes) = (own_cpu(), self.bytes);
        while own_cpu() - began < span {
            (0..100).for_each(|_| self.turn());
        }
        let (took, bytes) = (own_cpu() - began, self.bytes - bytes);
        let datagrams = bytes / PAYLOAD as u64;
        let each = took.as_nanos() as f64 / datagrams as f64;
        (datagrams > 0).then_some(each).context("nothing came through the machines")
    }
}

/// Both machines, with nothing sealed.
pub(super) fn unsealed(span: Duration) -> Result<f64> {
    Pair::new(false)?.nanos(span)
}

/// What sealing and opening adds.
pub(super) fn seal(span: Duration) -> Result<f64> {
    Ok(Pair::new(true)?.nanos(span)? - unsealed(span)?)
}

/// A datagram's payload from memory that no near cache has to memory that is near.
pub(super) fn copy(span: Duration) -> Result<f64> {
    let (far, mut near, mut at) = (vec![1u8; FAR], vec![0u8; PAYLOAD], 0);
    Ok(nanos_of(span, || {
        near.copy_from_slice(&far[at..at + PAYLOAD]);
        black_box(&mut near);
        at = (at + PAYLOAD) % (FAR - PAYLOAD);
    }))
}
