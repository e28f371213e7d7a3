//! A path between the two ends: its numbers, rate, MTU and silence.

use core::time::Duration;

use lasthop_units::{Bytes, LinkEvent, Rate, Time};

use super::arrivals::Arrivals;
use super::copies::Copies;
use super::mtu::MtuSearch;
use super::pacer::Pacer;
use super::probes::Probes;
use super::rate::RateControl;
use super::received::Received;
use super::recovery::Recovery;
use super::twice::Twice;
use crate::config::{HopConfig, Window};
use crate::path_id::{PathId, PathSet};
use crate::policy::PathStatus;
use crate::saved_path::SavedPath;
use crate::stats::PathStats;

/// The rate before any is measured.
const RATE_UNKNOWN: Rate = Rate::from_mbps(10);

/// A path of which nothing is known may be no faster than this, with so many datagrams sent at once.
const RATE_LEAST: Rate = Rate::from_bps(300_000);
const FIRST_FLIGHT: usize = 10;
/// Where more than this share is lost, what a transfer ends with may have to be sent again.
const LOSSY: f64 = 0.01;

/// What is known of a path, and what is on its way there.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) id: PathId,
    /// Bytes that seal and carrier add to the frames of a datagram.
    pub(super) overhead: usize,
    /// The window, if this end goes by one and not by a rate.
    pub(super) window: Option<Window>,
    /// Numbers of datagrams that came, and when to acknowledge them.
    pub(super) received: Received,
    /// How much arrives.
    pub(super) arrivals: Arrivals,
    /// Datagrams that left, and what became of them.
    pub(super) recovery: Recovery,
    /// How fast the path is, and how much may be on its way.
    pub(super) rate: RateControl,
    /// When the next datagram may leave.
    pub(super) pacer: Pacer,
    /// How large datagrams may be.
    pub(super) mtu: MtuSearch,
    /// What to ask when nothing comes back.
    pub(super) probes: Probes,
    /// What to send twice.
    pub(super) copies: Copies,
    /// What it costs.
    pub(super) status: PathStatus,
    /// What is to go by another path too.
    pub(super) twice: Twice,
    /// Until when nothing may be sent.
    pub(super) held_until: Option<Time>,
    /// What was sent by it and what came, with all headers.
    pub(super) sent: Bytes,
    pub(super) came: Bytes,
}

impl Path {
    /// One of which nothing is known. `overhead` as [`Srp::new`](super::Srp::new) has it.
    pub(super) fn new(config: &HopConfig, id: PathId, overhead: usize, now: Time) -> Self {
        let seal = overhead.saturating_sub(config.carrier_overhead.as_usize());
        let window = config.discipline.windowed().copied();
        Self {
            id,
            overhead,
            window,
            received: Received::new(),
            arrivals: Arrivals::new(now),
            recovery: Recovery::new(now),
            rate: RateControl::new(now, config.initial_datagrams),
            pacer: Pacer::new(now),
            mtu: MtuSearch::new(
                config.datagram_base.as_usize().saturating_sub(seal),
                config.datagram_max.as_usize().saturating_sub(seal),
            ),
            probes: Probes::new(now, window),
            copies: Copies::new(now),
            status: PathStatus::FREE,
            twice: Twice::default(),
            held_until: None,
            sent: Bytes::ZERO,
            came: Bytes::ZERO,
        }
    }

    /// Size on the radio of a full datagram.
    pub(super) fn full_datagram(&self) -> usize {
        self.mtu.current() + self.overhead
    }

    /// The share of datagrams that is lost, as copies go by it: what few of them tell counts too.
    pub(super) fn loss(&self) -> f64 {
        self.rate.loss().max(self.recovery.loss())
    }

    /// The round trip; zero before there is a sample.
    pub(super) fn srtt(&self) -> Duration {
        self.recovery.round_trip().srtt().unwrap_or_default()
    }

    pub(super) fn pacing_rate(&self) -> Rate {
        match self.rate.pacing_rate() {
            _ if self.window.is_some() => Rate::UNLIMITED,
            Rate::ZERO => RATE_UNKNOWN,
            rate => rate,
        }
    }

    /// How long a full datagram takes at the paced rate.
    pub(super) fn air_time(&self) -> Duration {
        self.pacing_rate().time_for(Bytes::from(self.full_datagram()))
    }

    /// It does not answer, or may not be used.
    pub(super) fn is_shut(&self) -> bool {
        self.probes.is_silent() || self.held_until.is_some() || self.status.is_spent()
    }

    /// It may be used and answers, as far as is known, and its round trip is known: what is sent there arrives.
    pub(super) fn carries(&self) -> bool {
        !self.is_shut() && self.recovery.round_trip().srtt().is_some()
    }

    /// The peer has answered there, and still does, as far as is known.
    pub(super) fn answers(&self) -> bool {
        !self.probes.is_silent() && self.recovery.round_trip().srtt().is_some()
    }

    /// How long until a full datagram that is sent now has arrived: half the least round trip, and the queue.
    pub(super) fn arrival(&self) -> Duration {
        self.rate.rtt_min() / 2 + self.rate.queue() + self.air_time()
    }

    /// The same at worst: sent again where datagrams are lost, and behind all of a first flight where no rate was measured.
    pub(super) fn latest_arrival(&self) -> Duration {
        let repair = if self.loss() > LOSSY { self.rate.rtt_min() } else { Duration::ZERO };
        let flight = Bytes::from(FIRST_FLIGHT * self.full_datagram());
        let before = if self.is_measured() { Duration::ZERO } else { RATE_LEAST.time_for(flight) };
        self.arrival() + repair + before
    }

    /// A rate was measured.
    pub(super) fn is_measured(&self) -> bool {
        self.rate.delivery_rate() != Rate::ZERO
    }

    /// Bytes leave here in a round trip; none are known where a window bounds them.
    pub(super) fn round_trip_bytes(&self) -> u64 {
        match (self.window, self.recovery.round_trip().srtt()) {
            (None, Some(srtt)) => self.pacing_rate().bytes_in(srtt).get(),
            _ => 0,
        }
    }

    /// Bytes that may be on their way at once; a fixed window is each stream's own.
    fn inflight_limit(&self) -> u64 {
        match self.window {
            None => self.rate.inflight_limit(self.full_datagram()),
            Some(_) => u64::MAX,
        }
    }

    /// No more may be on its way.
    pub(super) fn is_full(&self) -> bool {
        self.recovery.log().inflight() >= self.inflight_limit()
    }

    /// Something is on its way that is to be acknowledged.
    fn is_outstanding(&self) -> bool {
        self.recovery.log().oldest().is_some()
    }

    /// Nothing is sent but probes. One datagram must be on its way for them to repeat.
    pub(super) fn sends_only_probes(&self) -> bool {
        self.probes.is_silent() && self.is_outstanding()
    }

    /// Its round trip is not known, and nothing is on its way that would tell.
    pub(super) fn is_unasked(&self) -> bool {
        self.recovery.round_trip().srtt().is_none() && !self.is_outstanding()
    }

    /// There may be something to copy once the pacer allows; by a window nothing is.
    pub(super) fn has_copies(&self) -> bool {
        self.window.is_none()
            && self.copies.are_due(&self.recovery, self.loss(), self.full_datagram())
    }

    /// When to probe next, if nothing comes back until then.
    pub(super) fn probe_deadline(&self) -> Option<Time> {
        let oldest = self.recovery.log().oldest()?.at;
        let air = || self.is_measured().then(|| self.air_time());
        let least = self.rate.rtt_min_measured();
        Some(self.probes.deadline(oldest, self.recovery.round_trip(), least, air))
    }

    /// A datagram came that asks for an acknowledgement.
    pub(super) fn on_eliciting(&mut self, now: Time) {
        self.probes.on_elicited(now);
        match &self.window {
            None => {
                let srtt = self.srtt();
                self.received.on_eliciting(now, srtt);
            }
            Some(window) => self.received.on_segment(now, window.ack_every, window.ack_delay),
        }
    }

    /// Tells a round trip, whoever has measured it.
    pub(super) fn on_round_trip(&mut self, now: Time, rtt: Duration) {
        let next = self.recovery.log().next_number();
        self.rate.on_round_trip(now, rtt, self.full_datagram(), next);
    }

    /// The peer answers again, or still.
    pub(super) fn end_silence(&mut self, now: Time) {
        if self.probes.is_silent() {
            // Everything that was in flight went into the silence; the pacer starts afresh.
            self.pacer.resume(now);
            self.rate.on_interruption();
        }
        self.probes.on_progress(now);
    }

    /// The peer is known to be there although it was silent: what is outstanding is tried at once.
    pub(super) fn probe(&mut self, now: Time) {
        if self.is_outstanding() {
            self.probes.probe_now(now);
        } else {
            self.probes.request_ping();
        }
    }

    /// The path has become another one: the peer's address has changed, or ours.
    pub(super) fn handle_moved(&mut self, now: Time) {
        self.rate.on_new_path();
        self.arrivals = Arrivals::new(now);
        self.mtu.on_new_path();
        if !self.rate.is_measured() {
            self.probes.on_unmeasured_path(now);
        }
        if self.is_outstanding() {
            self.probes.probe_now(now);
        }
    }

    /// What is known of the link from below.
    pub(super) fn handle_link_event(&mut self, now: Time, event: LinkEvent) {
        match event {
            LinkEvent::Up => self.probes.on_link_up(now, self.is_outstanding()),
            LinkEvent::Down => {
                self.probes.on_link_down();
                self.rate.on_interruption();
            }
            LinkEvent::Imminent { .. } | LinkEvent::Complete => {}
        }
    }

    /// Counters and present values. `carrier` is what the carrier puts before each datagram.
    pub(super) fn stats(&self, carrier: Bytes) -> PathStats {
        PathStats {
            id: self.id,
            srtt: self.srtt(),
            min_rtt: self.rate.rtt_min(),
            queue: self.rate.queue(),
            pacing_rate: self.rate.pacing_rate(),
            delivery_rate: self.rate.delivery_rate(),
            loss: self.rate.loss(),
            mtu: Bytes::from(self.full_datagram()) - carrier,
            silent: self.probes.is_silent(),
            reordering: self.recovery.reordering(),
            bytes_sent: self.sent,
            bytes_received: self.came,
            shares_with: PathSet::default(),
        }
    }

    /// What the path is worth, as far as it was seen.
    pub(super) fn saved(&self) -> Option<SavedPath> {
        let (sending, receiving) = (self.rate.delivery_rate(), self.arrivals.most());
        let rtt = self.rate.rtt_min_here()?;
        (sending.max(receiving) > Rate::ZERO).then_some(SavedPath { sending, receiving, rtt })
    }
}
