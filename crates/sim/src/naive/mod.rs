//! A transport too simple to be wrong in interesting ways: one go-back-N channel per association,
//! all streams interleaved on it.
//!
//! It exists to test the world, and with a planted [`Flaw`] to show that each checker can fail. It
//! is no scheme of any paper and is never deployed.

mod channel;
mod stream;

use lasthop_units::{Duration, Seed, Stream, Time};

use crate::{Addr, Endpoint, Probe, Transport};
use channel::Channel;

/// A bug to plant.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Flaw {
    /// None.
    #[default]
    None,
    /// Damaged datagrams are believed.
    TrustsDamage,
    /// Datagrams are taken in whatever order they come.
    TrustsOrder,
    /// Nothing is ever sent again.
    NeverRetransmits,
    /// The peer's window is ignored and what does not fit is kept all the same.
    IgnoresWindow,
    /// Closed streams are never forgotten.
    KeepsStreams,
    /// After a reset by the peer, reading ends as if the peer had finished.
    HidesReset,
    /// A timer that is always due.
    Spins,
}

/// Makes naive endpoints.
#[derive(Clone, Copy, Debug)]
pub struct Naive {
    /// What is wrong with them.
    pub flaw: Flaw,
    /// Bytes buffered per direction of a stream.
    pub buffer: usize,
}

impl Default for Naive {
    fn default() -> Self {
        Self { flaw: Flaw::None, buffer: 64 * 1024 }
    }
}

impl Transport for Naive {
    type Mobile = NaiveMobile;
    type Base = NaiveBase;

    const NAME: &'static str = "naive";

    fn varied(&self, random: &mut Stream) -> Self {
        Self { buffer: 512 << random.below(8), ..*self }
    }

    fn memory_max(&self, streams: u64) -> u64 {
        streams * 2 * self.buffer as u64 + (channel::WINDOW * channel::DATAGRAM) as u64
    }

    fn window(&self) -> u64 {
        // Half of it must be read before more is granted.
        self.buffer as u64 / 2
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn mobile(&self, index: usize, base: Addr, seed: Seed, _now: Time) -> NaiveMobile {
        NaiveMobile(Channel::new(tag(seed, index), Some(base), 0, *self))
    }

    fn base(&self, mobiles: usize, seed: Seed, _now: Time) -> NaiveBase {
        let tags = (0..mobiles).map(|i| tag(seed, i)).collect();
        NaiveBase { tags, channels: Vec::new(), turn: 0, refused: 0, naive: *self }
    }
}

fn tag(seed: Seed, index: usize) -> u64 {
    seed.stream(&format!("naive-{index}")).next_u64()
}

/// The opening end.
#[derive(Debug)]
pub struct NaiveMobile(Channel);

impl Endpoint for NaiveMobile {
    type Streams = Channel;

    fn handle_datagram(&mut self, now: Time, from: Addr, datagram: &mut [u8]) {
        self.0.handle_datagram(now, from, datagram);
    }

    fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<(Addr, usize)> {
        self.0.poll_transmit(now, out)
    }

    fn next_timeout(&self) -> Option<Time> {
        self.0.next_timeout()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.0.handle_timeout(now);
    }

    fn associations(&self) -> usize {
        1
    }

    fn streams(&mut self, index: usize) -> Option<&mut Channel> {
        (index == 0).then_some(&mut self.0)
    }

    fn probe(&self, _index: usize) -> Probe {
        self.0.probe()
    }
}

/// The accepting end.
#[derive(Debug)]
pub struct NaiveBase {
    tags: Vec<u64>,
    channels: Vec<Channel>,
    turn: usize,
    refused: u64,
    naive: Naive,
}

impl Endpoint for NaiveBase {
    type Streams = Channel;

    fn handle_datagram(&mut self, now: Time, from: Addr, datagram: &mut [u8]) {
        let Some(tag) = channel::tag_of(datagram) else {
            self.refused += 1;
            return;
        };
        if let Some(channel) = self.channels.iter_mut().find(|c| c.tag() == tag) {
            channel.handle_datagram(now, from, datagram);
        } else if self.tags.contains(&tag) {
            let mut channel = Channel::new(tag, None, 1, self.naive);
            channel.handle_datagram(now, from, datagram);
            self.channels.push(channel);
        } else {
            self.refused += 1;
        }
    }

    fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<(Addr, usize)> {
        for _ in 0..self.channels.len() {
            self.turn = (self.turn + 1) % self.channels.len();
            if let Some(sent) = self.channels[self.turn].poll_transmit(now, out) {
                return Some(sent);
            }
        }
        None
    }

    fn next_timeout(&self) -> Option<Time> {
        self.channels.iter().filter_map(Channel::next_timeout).min()
    }

    fn handle_timeout(&mut self, now: Time) {
        for channel in &mut self.channels {
            if channel.next_timeout().is_some_and(|t| t <= now) {
                channel.handle_timeout(now);
            }
        }
    }

    fn associations(&self) -> usize {
        self.channels.len()
    }

    fn streams(&mut self, index: usize) -> Option<&mut Channel> {
        self.channels.get_mut(index)
    }

    fn probe(&self, index: usize) -> Probe {
        let mut probe = self.channels.get(index).map(Channel::probe).unwrap_or_default();
        probe.refused += self.refused;
        probe
    }
}
