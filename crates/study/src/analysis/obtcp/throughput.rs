use lasthop_units::Duration;

use super::{DomainError, Hop, Hops, seconds};

/// Packets in a time.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub struct PacketRate(f64);

impl PacketRate {
    pub(super) fn from_per_second(packets: f64) -> Self {
        Self(packets)
    }

    /// Packets in a second.
    pub fn per_second(self) -> f64 {
        self.0
    }
}

/// How many packets one repair brings on average (n1, n2): at least one.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub struct Batch(f64);

impl Batch {
    /// One packet.
    pub const ONE: Self = Self(1.0);

    /// A mean of `packets`.
    ///
    /// # Errors
    /// If it is below 1 or no number.
    pub fn new(packets: f64) -> Result<Self, DomainError> {
        let is_mean = packets.is_finite() && packets >= 1.0;
        if is_mean { Ok(Self(packets)) } else { Err(DomainError::Batch(packets)) }
    }

    pub(super) fn at_least_one(packets: f64) -> Self {
        Self(packets.max(1.0))
    }

    /// The mean as a number.
    pub fn packets(self) -> f64 {
        self.0
    }
}

/// How many packets obTCP's repairs bring on each link. The paper names n1 and n2 and gives no value
/// (INC-S9).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Batches {
    /// For one request of the mobile router (n1).
    pub first: Batch,
    /// For one run of duplicates from the mobile host (n2).
    pub second: Batch,
}

impl Batches {
    /// One packet for each repair on both links.
    pub const SINGLE: Self = Self { first: Batch::ONE, second: Batch::ONE };
}

/// The throughput of one bulk transfer, section VII.
///
/// In all equations the congestion window has reached its largest value and stays there: no loss is
/// ever seen by the sender. Sending takes no time, queues are empty, and the wired path loses nothing.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Model {
    wired: Duration,
    hops: Hops,
    window: f64,
}

impl Model {
    /// A transfer with a window of `window` packets (W') across a wired path of delay `wired` (d0) and
    /// the two links.
    ///
    /// # Errors
    /// If the window is empty, or there is no delay anywhere.
    pub fn new(wired: Duration, hops: Hops, window: u32) -> Result<Self, DomainError> {
        if window == 0 {
            return Err(DomainError::Window);
        }
        if [wired, hops.first.delay, hops.second.delay].iter().all(Duration::is_zero) {
            return Err(DomainError::NoDelay);
        }
        Ok(Self { wired, hops, window: f64::from(window) })
    }

    /// The two links.
    pub fn hops(&self) -> &Hops {
        &self.hops
    }

    /// The window in packets.
    pub fn window(&self) -> f64 {
        self.window
    }

    /// Equation (13), L_t: packets of a round that one of the links loses, as snoop sees it. Only first
    /// transmissions count; that repetitions are lost too is in R_s.
    pub fn snoop_losses(&self) -> f64 {
        self.window * self.hops.effective_loss().get()
    }

    /// The round trip without any loss.
    pub fn round_trip(&self) -> Duration {
        seconds(self.round_trip_seconds())
    }

    fn round_trip_seconds(&self) -> f64 {
        let wired = 2.0 * self.wired.as_secs_f64();
        wired + self.hops.first.round_trip() + self.hops.second.round_trip()
    }

    /// Equation (14), t: a round with snoop. Losses are repaired one after another, R_s each, and
    /// nothing else is sent meanwhile.
    pub fn snoop_round(&self) -> Duration {
        seconds(self.snoop_seconds())
    }

    fn snoop_seconds(&self) -> f64 {
        self.round_trip_seconds() + self.snoop_losses() * self.hops.snoop_seconds()
    }

    /// Equation (16), η_s: snoop's throughput.
    pub fn snoop_throughput(&self) -> PacketRate {
        PacketRate(self.window / self.snoop_seconds())
    }

    /// Equation (17), L_t1: packets of a round that the first link loses.
    pub fn first_losses(&self) -> f64 {
        self.window * self.hops.first.loss.get()
    }

    /// L_t2 of equation (18): packets of a round that the second link loses. The paper gives it no
    /// equation; the one for the first link is taken.
    pub fn second_losses(&self) -> f64 {
        self.window * self.hops.second.loss.get()
    }

    /// Equation (18), t: a round with obTCP. Repairs follow one another, each brings a batch, and
    /// those on one link wait for those on the other, although the paper has both at the same time
    /// elsewhere (OBM-11).
    ///
    /// The equation is printed without the parentheses that the derivation above it has: the divisor
    /// of 2 d1 is 1 - p1. By the letter, "n1 * 1 - p1" is n1 - p1: the same for batches of one, and
    /// somewhat faster repair for larger ones.
    pub fn obtcp_round(&self, batches: Batches) -> Duration {
        seconds(self.obtcp_seconds(batches))
    }

    fn obtcp_seconds(&self, batches: Batches) -> f64 {
        let repairs = |losses: f64, batch: Batch, hop: Hop| losses / batch.0 * hop.recovery();
        self.round_trip_seconds()
            + repairs(self.first_losses(), batches.first, self.hops.first)
            + repairs(self.second_losses(), batches.second, self.hops.second)
    }

    /// Equation (20), η_o: obTCP's throughput, with the parentheses of
    /// [`obtcp_round`](Self::obtcp_round).
    pub fn obtcp_throughput(&self, batches: Batches) -> PacketRate {
        PacketRate(self.window / self.obtcp_seconds(batches))
    }

    /// From equations (16) and (20): what obTCP gains on snoop, in per cent, 100 (η_o/η_s - 1).
    pub fn gain(&self, batches: Batches) -> f64 {
        100.0 * (self.snoop_seconds() / self.obtcp_seconds(batches) - 1.0)
    }

    /// The n1 that would make [`gain`](Self::gain) as large as `gain` per cent, with `second` as n2.
    ///
    /// # Errors
    /// If no n1 of 1 or more does.
    pub fn first_batch_for(&self, gain: f64, second: Batch) -> Result<Batch, DomainError> {
        let wanted = self.snoop_seconds() / (1.0 + gain / 100.0);
        let unbounded = Batches { first: Batch(f64::INFINITY), second };
        let left = wanted - self.obtcp_seconds(unbounded);
        let packets = self.first_losses() * self.hops.first.recovery() / left;
        if left > 0.0 {
            Batch::new(packets).map_err(|_| DomainError::Gain(gain))
        } else {
            Err(DomainError::Gain(gain))
        }
    }
}
