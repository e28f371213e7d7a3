use lasthop_units::Duration;

use super::{DomainError, LossProbability, seconds};

/// A wireless link of the way.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Hop {
    /// Its delay, one way (d1 or d2).
    pub delay: Duration,
    /// What it loses (p1 or p2).
    pub loss: LossProbability,
}

impl Hop {
    /// A link.
    pub const fn new(delay: Duration, loss: LossProbability) -> Self {
        Self { delay, loss }
    }

    /// There and back, in seconds.
    pub(super) fn round_trip(self) -> f64 {
        2.0 * self.delay.as_secs_f64()
    }

    /// The mean time that repetitions of a packet across this link alone take: a term of equation
    /// (6). Each repetition takes a round trip, the acknowledgement is never lost, and the loss is
    /// known at once.
    pub(super) fn recovery(self) -> f64 {
        self.round_trip() * self.loss.transmissions()
    }
}

/// The two wireless links, in the order in which data crosses them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Hops {
    /// From the base to the mobile router (d1, p1).
    pub first: Hop,
    /// From the mobile router to the mobile host (d2, p2).
    pub second: Hop,
}

impl Hops {
    /// Two links.
    pub const fn new(first: Hop, second: Hop) -> Self {
        Self { first, second }
    }

    /// The links with the time that a medium-access layer adds to each packet, on each link once in
    /// each direction. Section VII.C adds 5 ms at base and mobile router without saying how they
    /// enter; this is the natural reading.
    pub fn with_mac_delay(mut self, delay: Duration) -> Self {
        self.first.delay = self.first.delay.saturating_add(delay);
        self.second.delay = self.second.delay.saturating_add(delay);
        self
    }

    /// Equation (3), p_s: the loss that snoop sees, which repairs across both links as if they were
    /// one. Assumes that they lose independently.
    pub fn effective_loss(&self) -> LossProbability {
        // As p1 + p2 (1 - p1), which is exact where one of them is zero and below one in any case.
        let [p1, p2] = [self.first.loss.get(), self.second.loss.get()];
        let both = p1 + p2 * (1.0 - p1);
        LossProbability(both.min(1.0 - f64::EPSILON / 2.0))
    }

    /// Equation (4), N: how often snoop sends a packet on average, the first time included.
    ///
    /// The acknowledgement is taken never to be lost.
    pub fn snoop_transmissions(&self) -> f64 {
        self.effective_loss().transmissions()
    }

    /// Equation (5), R_s: the mean time in which snoop gets a packet across and hears of it.
    ///
    /// Every try takes a round trip over both links, the first one included: without loss R_s is that
    /// round trip and not zero.
    pub fn snoop_recovery(&self) -> Duration {
        seconds(self.snoop_seconds())
    }

    pub(super) fn snoop_seconds(&self) -> f64 {
        (self.first.round_trip() + self.second.round_trip()) * self.snoop_transmissions()
    }

    /// Equation (6), R_o: the same for obTCP, which repeats on each link by itself.
    ///
    /// Again the first try counts, and on both links: it is the time of any packet, not that of one
    /// that was lost on one of them.
    pub fn obtcp_recovery(&self) -> Duration {
        seconds(self.obtcp_seconds())
    }

    pub(super) fn obtcp_seconds(&self) -> f64 {
        self.first.recovery() + self.second.recovery()
    }

    /// Equation (7), R_gain = R_s - R_o, in its closed form.
    ///
    /// The paper has it positive always; without loss it is zero (INC-S10).
    pub fn recovery_gain(&self) -> Duration {
        let crossed = self.first.round_trip() * self.second.loss.get()
            + self.second.round_trip() * self.first.loss.get();
        let across = self.first.loss.success() * self.second.loss.success();
        seconds(crossed / across)
    }

    /// Equation (8): R_gain where only the first link loses. The second's loss is left out of account.
    ///
    /// It is rational in the loss, p/(1-p): convex, though not exponential as the paper says
    /// (INC-S1).
    pub fn recovery_gain_first_lossy(&self) -> Duration {
        one_lossy(self.first, self.second)
    }

    /// Equation (9): R_gain where only the second link loses. The first's loss is left out of account.
    pub fn recovery_gain_second_lossy(&self) -> Duration {
        one_lossy(self.second, self.first)
    }

    /// Equations (10) and (11), with one as the constant of proportionality, as in figures 12 and 13:
    /// obTCP's window over snoop's, and its throughput over snoop's.
    ///
    /// Where p1 = p2 = p it is 1/(1-p) whatever the delays: that, and not a gain linear in the delay, is
    /// why figure 12 is flat (INC-S2).
    ///
    /// # Errors
    /// If both links are without delay.
    pub fn throughput_ratio(&self) -> Result<f64, DomainError> {
        let obtcp = self.obtcp_seconds();
        if obtcp > 0.0 { Ok(self.snoop_seconds() / obtcp) } else { Err(DomainError::NoDelay) }
    }

    /// Section IV and figure 5: snoop's time for `losses` packets in a row, each repaired on its first
    /// repetition. One packet a round trip over both links (SNP-8).
    pub fn snoop_burst_recovery(&self, losses: u32) -> Duration {
        self.first.delay.saturating_add(self.second.delay).saturating_mul(2).saturating_mul(losses)
    }

    /// Section IV and figure 6: obTCP's time for any number of packets in a row that the first link
    /// lost. One request names them all, and one round trip on that link brings them (OBB-3, OBM-1).
    pub fn obtcp_burst_recovery(&self) -> Duration {
        self.first.delay.saturating_mul(2)
    }
}

fn one_lossy(lossy: Hop, other: Hop) -> Duration {
    seconds(other.round_trip() * lossy.loss.get() / lossy.loss.success())
}
