//! Tails and silences: when nothing comes back, ask (SRP-9).

use core::time::Duration;

use lasthop_units::{Bytes, LinkEvent, Rate, Time};

use super::{CloseReason, Srp};

/// Probes into a silence are this far apart, never closer.
const PROBE_INTERVAL_MIN: Duration = Duration::from_millis(10);
/// And never further, while the silence is younger than [`PATIENT_AFTER`].
const PROBE_INTERVAL_MAX: Duration = Duration::from_millis(40);
/// A silence of this age is a dead zone: a third of the probes will do.
const DEAD_AFTER: Duration = Duration::from_secs(10);
/// A silence of this age is probed still less often.
const PATIENT_AFTER: Duration = Duration::from_secs(120);
const PROBE_INTERVAL_PATIENT: Duration = Duration::from_millis(250);
/// Nor does a hop whose rate is not yet known need to be slow to suffer from more.
const PROBE_INTERVAL_UNKNOWN: Duration = Duration::from_millis(100);
/// After so many unanswered probes the hop counts as silent: nothing but probes is sent.
const SILENT_AFTER: u32 = 3;

/// Unanswered probes.
#[derive(Debug)]
pub(super) struct Probes {
    /// Probes sent since something was last acknowledged.
    unanswered: u32,
    /// When the last of them left.
    last_probe: Time,
    /// Since when nothing has been acknowledged although something is outstanding.
    since: Option<Time>,
    /// The operator or the kernel says that the link is down.
    down: bool,
    /// Probes to send as soon as possible.
    pub(super) due: u32,
    last_progress: Time,
}

impl Probes {
    pub(super) fn new() -> Self {
        Self {
            unanswered: 0,
            last_probe: Time::ZERO,
            since: None,
            down: false,
            due: 0,
            last_progress: Time::ZERO,
        }
    }

    /// Nothing but probes makes sense.
    pub(super) fn is_silent(&self) -> bool {
        self.unanswered >= SILENT_AFTER || self.down
    }

    /// Probes since something was last acknowledged, and when the last of them left.
    pub(super) fn unanswered(&self) -> (u32, Time) {
        (self.unanswered, self.last_probe)
    }

    /// When something was last acknowledged.
    pub(super) fn last_progress(&self) -> Time {
        self.last_progress
    }

    /// For how long nothing has been acknowledged although something is outstanding.
    pub(super) fn age(&self, now: Time) -> Option<Duration> {
        self.since.map(|t| now.since(t))
    }

    /// There is reason to believe that a probe gets through now, unless one has just left.
    pub(super) fn probe_now(&mut self, now: Time) {
        if now.since(self.last_probe) >= PROBE_INTERVAL_MIN / 4 {
            self.due = self.due.max(1);
            self.last_probe = now;
        }
    }

    /// Every other probe is small, so that a path whose MTU shrank lets some pass.
    pub(super) fn probe_is_small(&self) -> bool {
        self.unanswered % 2 == 1
    }

    /// When the silence began for what we sent, as well as can be guessed: the last acknowledgement
    /// came just before it and spoke of what had left a round trip earlier, but what left half a
    /// round trip later still arrived. From the second probe on, every other one repeats from here:
    /// what is older most likely arrived and only its acknowledgement did not.
    pub(super) fn likely_onset(&self, srtt: Duration) -> Option<Time> {
        let guess = self.unanswered > 1 && self.unanswered.is_multiple_of(2);
        guess.then(|| self.last_progress - srtt / 2)
    }
}

impl Srp {
    /// What is known of the hop from below.
    pub fn handle_link_event(&mut self, now: Time, event: LinkEvent) {
        match event {
            LinkEvent::Up => {
                self.probes.down = false;
                if self.log.oldest().is_some() {
                    self.probes.probe_now(now);
                    self.probes.due = 2;
                }
            }
            LinkEvent::Down => {
                self.probes.down = true;
                self.rate.on_interruption();
            }
            LinkEvent::Imminent { .. } | LinkEvent::Complete => {}
        }
    }

    /// There is reason to believe that the peer is there: asks it at once.
    pub fn probe(&mut self, now: Time) {
        if self.log.oldest().is_some() {
            self.probes.probe_now(now);
        } else {
            self.ping();
        }
    }

    /// The peer answers again, or still.
    pub(super) fn end_silence(&mut self, now: Time) {
        if self.is_silent() {
            // Everything that was in flight went into the silence; the pacer starts afresh.
            self.pace_at = self.pace_at.max(now);
            self.rate.on_interruption();
        }
        self.probes.unanswered = 0;
        self.probes.since = None;
        self.probes.down = false;
        self.probes.due = 0;
        self.probes.last_progress = now;
    }

    /// The hop counts as silent. A window bounds what a silence can cost, so that an end that goes
    /// by one takes it for granted only if it was told.
    pub(super) fn is_silent(&self) -> bool {
        match self.windowed() {
            None => self.probes.is_silent(),
            Some(_) => self.probes.down,
        }
    }

    /// When to probe next, if nothing comes back until then.
    pub(super) fn probe_deadline(&self) -> Option<Time> {
        if let Some(window) = self.windowed() {
            return self.timer_deadline(window);
        }
        let oldest = self.log.oldest()?;
        let timeout = self.round_trip.probe_timeout();
        if self.probes.unanswered == 0 {
            return Some(oldest.at.max(self.probes.last_progress) + timeout);
        }
        Some(self.probes.last_probe + self.probe_interval(self.probes.last_probe))
    }

    fn probe_interval(&self, now: Time) -> Duration {
        if self.rate.delivery_rate() == Rate::ZERO {
            return PROBE_INTERVAL_UNKNOWN;
        }
        let age = self.probes.since.map_or(Duration::ZERO, |t| now.since(t));
        if age > PATIENT_AFTER {
            return PROBE_INTERVAL_PATIENT;
        }
        let quarter = self.round_trip.srtt().unwrap_or(Duration::from_millis(100)) / 4;
        let brisk = quarter.clamp(PROBE_INTERVAL_MIN, PROBE_INTERVAL_MAX);
        let steady = if age > DEAD_AFTER { 3 * brisk } else { brisk };
        // On a slow hop probes must not be a load of their own.
        let air = self.pacing_rate().time_for(Bytes::from(self.full_datagram()));
        steady.max(3 * air).min(PROBE_INTERVAL_PATIENT)
    }

    pub(super) fn on_probe_timer(&mut self, now: Time) {
        if self.probe_deadline().is_none_or(|t| now < t) {
            return;
        }
        let since = *self.probes.since.get_or_insert(now);
        self.probes.unanswered += 1;
        self.probes.last_probe = now;
        self.probes.due = 1;
        if self.probes.unanswered == SILENT_AFTER {
            self.stats.silences += 1;
            self.rate.on_interruption();
        }
        if now.since(since) >= self.config.silence_limit {
            self.closed = Some(CloseReason::Silence);
        }
    }
}
