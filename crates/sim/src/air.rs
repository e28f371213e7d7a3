//! A radio in the world: its conditions can be replaced while packets are in it, and what it
//! delivers as corrupted is really damaged.

use std::collections::VecDeque;

use lasthop_radio::{ConfigError, Delivery, Direction, Radio, RadioConfig};
use lasthop_units::{Bytes, Duration, Seed, Stream, Time};

use crate::Addr;
use crate::pool::Packet;

/// Where the stranger's datagrams come from.
const STRANGER: Addr = Addr::new(666, 666);

/// Somebody near the radio who hears everything and sends what the hop must withstand: copies of
/// old datagrams and datagrams of its own making, all from addresses of its own.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Stranger {
    /// The probability that a datagram is sent to its destination once more, after `delay`.
    pub replay: f64,
    /// The probability that a datagram is followed, after `delay`, by a changed copy or by noise.
    pub forge: f64,
    /// How long the stranger takes.
    pub delay: Duration,
}

/// A radio and what its packets look like on it.
#[derive(Debug)]
pub(crate) struct Air {
    radio: Radio<Packet>,
    /// The radio before its conditions were replaced, until it is empty.
    before: Option<Radio<Packet>>,
    /// Header bytes that the network puts before each datagram.
    overhead: u64,
    damage: Stream,
    stranger: Stranger,
    mischief: Stream,
    /// What the stranger will send, in order of time.
    strange: VecDeque<(Time, Packet)>,
    seed: Seed,
    changes: u64,
}

impl Air {
    pub(crate) fn new(
        config: &RadioConfig,
        overhead: u64,
        seed: Seed,
        now: Time,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            radio: Radio::new(config, seed.child("radio"), now)?,
            before: None,
            overhead,
            damage: seed.stream("damage"),
            stranger: Stranger::default(),
            mischief: seed.stream("stranger"),
            strange: VecDeque::new(),
            seed,
            changes: 0,
        })
    }

    pub(crate) const fn radio(&mut self) -> &mut Radio<Packet> {
        &mut self.radio
    }

    /// Other conditions hold from `now` on; packets already in the radio leave it as they would
    /// have. Statistics start again.
    pub(crate) fn change(&mut self, config: &RadioConfig, now: Time) -> Result<(), ConfigError> {
        self.changes += 1;
        let seed = self.seed.child(&format!("radio-{}", self.changes));
        let radio = Radio::new(config, seed, now)?;
        self.before = Some(core::mem::replace(&mut self.radio, radio));
        Ok(())
    }

    /// What the stranger does from here on.
    pub(crate) fn set_stranger(&mut self, stranger: Stranger) {
        self.stranger = stranger;
        self.strange.clear();
    }

    pub(crate) fn send(&mut self, now: Time, direction: Direction, packet: Packet) {
        self.overhear(now, &packet);
        let len = Bytes::new(packet.bytes().len() as u64 + self.overhead);
        // The radio counts what it refuses; the packet is freed with the refusal.
        drop(self.radio.push(now, direction, len, packet));
    }

    fn overhear(&mut self, now: Time, packet: &Packet) {
        let random = &mut self.mischief;
        if random.chance(self.stranger.replay) {
            let mut copy = packet.clone();
            copy.readdress(STRANGER);
            self.strange.push_back((now + self.stranger.delay, copy));
        }
        if random.chance(self.stranger.forge) {
            let mut copy = packet.clone();
            copy.readdress(STRANGER);
            if random.chance(0.5) {
                random.fill(copy.bytes_mut());
            } else {
                damage(random, &mut copy);
            }
            self.strange.push_back((now + self.stranger.delay, copy));
        }
    }

    pub(crate) fn next_timeout(&self) -> Time {
        let before = self.before.as_ref().and_then(Radio::next_time);
        let next = self.radio.next_time();
        let strange = self.strange.front().map(|(at, _)| *at);
        [before, next, strange].into_iter().flatten().min().unwrap_or(Time::NEVER)
    }

    /// The next packet that has arrived by `now`.
    pub(crate) fn poll(&mut self, now: Time) -> Option<Packet> {
        if self.strange.front().is_some_and(|(at, _)| *at <= now) {
            return self.strange.pop_front().map(|(_, packet)| packet);
        }
        if let Some(before) = &mut self.before {
            if let Some((_, delivery)) = before.pop(now) {
                return Some(self.receive(delivery));
            }
            if before.next_time().is_none() {
                self.before = None;
            }
        }
        let (_, delivery) = self.radio.pop(now)?;
        Some(self.receive(delivery))
    }

    fn receive(&mut self, delivery: Delivery<Packet>) -> Packet {
        let mut packet = delivery.packet;
        if delivery.corrupted {
            damage(&mut self.damage, &mut packet);
        }
        packet
    }
}

/// Flips one to four bits; now and then cuts the end off as well.
fn damage(random: &mut Stream, packet: &mut Packet) {
    let bits = packet.bytes().len() as u64 * 8;
    for _ in 0..=random.below(4) {
        let bit = random.below(bits);
        if let Some(byte) = packet.bytes_mut().get_mut((bit / 8) as usize) {
            *byte ^= 1 << (bit % 8);
        }
    }
    if random.chance(0.1) {
        let len = random.below(packet.bytes().len() as u64 + 1);
        packet.truncate(len as usize);
    }
}
