//! What a machine must offer to live in the simulated world.

use core::time::Duration;

use lasthop_hop::Streams;
use lasthop_units::{LinkEvent, Rate, Seed, Stream, Time};

use crate::Addr;

/// One end of the hop: datagrams and timers in, datagrams out.
///
/// The order is the one every lasthop machine keeps: after any input, [`poll_transmit`] is called
/// until it returns `None`, and only then is [`next_timeout`] asked.
///
/// [`poll_transmit`]: Self::poll_transmit
/// [`next_timeout`]: Self::next_timeout
pub trait Endpoint {
    /// The byte streams of one association.
    type Streams: Streams;

    /// A datagram arrived. It may be damaged, old, doubled or forged.
    fn handle_datagram(&mut self, now: Time, from: Addr, datagram: &mut [u8]);

    /// Writes the next datagram into `out`: where it goes and its length.
    fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<(Addr, usize)>;

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    fn next_timeout(&self) -> Option<Time>;

    /// The time asked for has come.
    fn handle_timeout(&mut self, now: Time);

    /// What this end is told of the hop from below.
    fn handle_link(&mut self, now: Time, event: LinkEvent) {
        let _ = (now, event);
    }

    /// How many associations were ever made; they are named `0..associations()`.
    fn associations(&self) -> usize;

    /// The streams of association `index`; none once it is lost.
    fn streams(&mut self, index: usize) -> Option<&mut Self::Streams>;

    /// Why an association was lost, if one was. No schedule is bad enough for that.
    fn lost(&self) -> Option<String> {
        None
    }

    /// What association `index` says of itself; zeros if there is none.
    fn probe(&self, index: usize) -> Probe;
}

/// An endpoint's own account, for checkers and for plots.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Probe {
    /// Datagrams sent.
    pub sent: u64,
    /// Of these or of their segments, how many were sent again.
    pub retransmitted: u64,
    /// Retransmissions that a timer, not an acknowledgement, caused.
    pub timeouts: u64,
    /// Arrivals that were refused: damaged, forged, replayed.
    pub refused: u64,
    /// Bytes that may be in flight.
    pub cwnd: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// The pace.
    pub pacing: Rate,
    /// The delivery rate as estimated by the sender.
    pub delivery: Rate,
    /// Smoothed round trip.
    pub srtt: Duration,
    /// Least round trip.
    pub min_rtt: Duration,
    /// Bytes held for sending, for resending and for reading, in all streams.
    pub buffered: u64,
    /// Streams that are not forgotten yet.
    pub streams: u64,
}

/// A way to make both ends of a hop.
pub trait Transport {
    /// The end that opens associations.
    type Mobile: Endpoint;
    /// The end that accepts them, of as many mobiles as come.
    type Base: Endpoint;

    /// The name printed in reports.
    const NAME: &'static str;

    /// The same transport with other settings, all within what it promises: schedules vary them.
    #[must_use]
    fn varied(&self, random: &mut Stream) -> Self
    where
        Self: Sized;

    /// The most that one association with this many streams may buffer at one end, in bytes.
    fn memory_max(&self, streams: u64) -> u64;

    /// What it may at least have in flight, in bytes, whoever reads at once.
    fn window(&self) -> u64;

    /// How long after the radio is well again the transport may take to notice.
    fn patience(&self) -> Duration;

    /// The `index`th mobile, which will talk to the base at `base`.
    fn mobile(&self, index: usize, base: Addr, seed: Seed, now: Time) -> Self::Mobile;

    /// The base for `mobiles` mobiles made by [`mobile`](Self::mobile) under the same seed.
    fn base(&self, mobiles: usize, seed: Seed, now: Time) -> Self::Base;
}
