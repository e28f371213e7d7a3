//! The rate control's input.

use core::time::Duration;

use lasthop_units::Time;

/// What an acknowledgement showed, for the rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// The highest number acknowledged so far.
    pub(super) latest: u64,
    /// When that datagram was sent.
    pub(super) sent_at: Time,
    /// How long it waited at the hop for those that left together with it, in microseconds.
    pub(super) behind_us: u32,
    /// Its size, headers included.
    pub(super) size: usize,
    /// When it arrived, by the receiver's clock, in microseconds and unwrapped.
    pub(super) arrival_us: u64,
    /// Bytes acknowledged so far, in all.
    pub(super) delivered: u64,
    /// Bytes declared lost so far, in all.
    pub(super) lost: u64,
    /// Datagrams acknowledged and declared lost so far, in all, whatever their size.
    pub(super) counts: (u64, u64),
    /// The burst of losses that the average lost datagram was part of, in datagrams.
    pub(super) burst: f64,
    /// Since the last sample there was a moment in which nothing was sent for lack of data, credit or
    /// window: what arrived until now shows that, rather than the hop.
    pub(super) after_idle: bool,
    /// The next number to be sent.
    pub(super) next_number: u64,
    /// Smoothed round trip.
    pub(super) srtt: Duration,
    /// Bytes sent and not settled.
    pub(super) inflight: u64,
    /// The usual size of a datagram, headers included.
    pub(super) datagram: usize,
}

impl Sample {
    /// How long that datagram was on its way, but for what the ends' clocks are apart.
    pub(super) fn delay_us(&self) -> i64 {
        self.arrival_us as i64 - self.sent_at.as_micros() as i64
    }

    /// The same without what it waited for those that left together with it.
    pub(super) fn delay_alone_us(&self) -> i64 {
        self.delay_us() - i64::from(self.behind_us)
    }
}
