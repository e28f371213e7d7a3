//! Where the radio and the mobiles' own links meet, and the stranger who listens there.

use core::net::Ipv4Addr;
use std::collections::VecDeque;

use lasthop_sim::net::{Body, Context, LinkId, Node, Packet};
use lasthop_units::{Duration, Seed, Stream, Time};

/// Where the stranger's datagrams come from.
const STRANGER: Ipv4Addr = Ipv4Addr::new(10, 66, 6, 6);
const STRANGERS_PORT: u16 = 666;

/// What somebody near the radio does who hears everything: sends what the hop must withstand,
/// copies of old datagrams and datagrams of its own making, all from an address of its own.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Stranger {
    /// The probability that a datagram is sent to its destination once more, after `delay`.
    pub(crate) replay: f64,
    /// The probability that a datagram is followed, after `delay`, by a changed copy or by noise.
    pub(crate) forge: f64,
    /// How long the stranger takes.
    pub(crate) delay: Duration,
}

/// A router by host routes only, with a stranger in it until it is given any token.
pub(crate) struct Crossing {
    stranger: Stranger,
    random: Stream,
    /// What the stranger will send, in order of time.
    strange: VecDeque<(Time, Packet)>,
}

impl Crossing {
    pub(crate) fn new(stranger: Stranger, seed: Seed) -> Self {
        Self { stranger, random: seed.stream("stranger"), strange: VecDeque::new() }
    }

    fn overhear(&mut self, now: Time, packet: &Packet) {
        let at = now + self.stranger.delay;
        if self.random.chance(self.stranger.replay) {
            self.strange.push_back((at, readdressed(packet)));
        }
        if self.random.chance(self.stranger.forge) {
            let mut copy = readdressed(packet);
            if self.random.chance(0.5) {
                self.random.fill(copy.bytes_mut().unwrap_or_default());
            } else {
                damage(&mut self.random, &mut copy);
            }
            self.strange.push_back((at, copy));
        }
    }
}

fn readdressed(packet: &Packet) -> Packet {
    let mut copy = packet.clone();
    copy.src = STRANGER;
    if let Body::Udp { src_port, .. } = &mut copy.body {
        *src_port = STRANGERS_PORT;
    }
    copy
}

impl Node for Crossing {
    fn handle_packet(&mut self, ctx: &mut Context<'_>, _link: LinkId, packet: Packet) {
        self.overhear(ctx.now(), &packet);
        // What has no way on is lost, as on any network.
        let _ = ctx.send(packet);
    }

    fn next_timeout(&self) -> Option<Time> {
        self.strange.front().map(|(at, _)| *at)
    }

    fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        while self.next_timeout().is_some_and(|at| at <= ctx.now())
            && let Some((_, packet)) = self.strange.pop_front()
        {
            let _ = ctx.send(packet);
        }
    }

    fn handle_token(&mut self, _ctx: &mut Context<'_>, _token: u64) {
        self.stranger = Stranger::default();
        self.strange.clear();
    }
}

/// Flips one to four bits; now and then cuts the end off as well.
pub(crate) fn damage(random: &mut Stream, packet: &mut Packet) {
    let Some(bytes) = packet.bytes_mut() else { return };
    let len = bytes.len() as u64;
    for _ in 0..=random.below(4) {
        let bit = random.below((len * 8).max(1));
        if let Some(byte) = bytes.get_mut((bit / 8) as usize) {
            *byte ^= 1 << (bit % 8);
        }
    }
    if random.chance(0.1) {
        let left = bytes[..random.below(len + 1) as usize].to_vec();
        packet.set_bytes(&left);
    }
}
