//! Tails and silences: probes when nothing is acknowledged (SRP-9), pings when nothing is sent.

use core::time::Duration;

use lasthop_units::Time;

use super::recovery::RoundTrip;
use crate::config::Window;
use crate::transport::Role;

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

/// Unanswered probes, and what to send next.
#[derive(Debug)]
pub(super) struct Probes {
    /// Whose timer to probe by, if not by the measured hop.
    window: Option<Window>,
    /// Probes sent since something was last acknowledged.
    unanswered: u32,
    /// When the last of them left.
    last_probe: Time,
    /// Since when nothing has been acknowledged although something is outstanding.
    since: Option<Time>,
    /// The operator or the kernel reported the link as down.
    down: bool,
    /// Probes to send as soon as possible.
    due: u32,
    last_progress: Time,
    /// When a datagram last left that elicits an acknowledgement.
    last_eliciting: Time,
    /// When one last came.
    last_elicited: Time,
    ping_due: bool,
}

impl Probes {
    pub(super) fn new(now: Time, window: Option<Window>) -> Self {
        Self {
            window,
            unanswered: 0,
            last_probe: Time::ZERO,
            since: None,
            down: false,
            due: 0,
            last_progress: Time::ZERO,
            last_eliciting: now,
            last_elicited: now,
            ping_due: false,
        }
    }

    /// The hop counts as silent: nothing but probes makes sense. A window bounds what a silence can
    /// cost, so that with one only a link reported as down counts.
    pub(super) fn is_silent(&self) -> bool {
        self.down || (self.window.is_none() && self.unanswered >= SILENT_AFTER)
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

    /// What was silent was another path, and no more is sent into this one than at an association's beginning.
    pub(super) fn on_unmeasured_path(&mut self, now: Time) {
        self.unanswered = 0;
        self.last_progress = now;
    }

    /// The link is reported as up; whether something is outstanding.
    pub(super) fn on_link_up(&mut self, now: Time, outstanding: bool) {
        self.down = false;
        if outstanding {
            self.probe_now(now);
            self.due = 2;
        }
    }

    pub(super) fn on_link_down(&mut self) {
        self.down = true;
    }

    /// A probe is to be sent as soon as possible.
    pub(super) fn is_due(&self) -> bool {
        self.due > 0
    }

    /// Such a probe leaves.
    pub(super) fn on_probe(&mut self) {
        self.due -= 1;
    }

    /// Every other probe is small, so that a path whose MTU shrank lets some pass.
    pub(super) fn probe_is_small(&self) -> bool {
        self.window.is_none() && self.unanswered % 2 == 1
    }

    /// When the silence began for what we sent, as well as can be guessed: the last acknowledgement
    /// came just before it and covered what had left a round trip earlier, but what left half a
    /// round trip later still arrived. From the second probe on, every other one repeats from here:
    /// what is older most likely arrived and only its acknowledgement did not.
    pub(super) fn likely_onset(&self, srtt: Duration) -> Option<Time> {
        let guess = self.unanswered > 1 && self.unanswered.is_multiple_of(2);
        (guess && self.window.is_none()).then(|| self.last_progress - srtt / 2)
    }

    /// The peer answers again, or still.
    pub(super) fn on_progress(&mut self, now: Time) {
        self.unanswered = 0;
        self.since = None;
        self.down = false;
        self.due = 0;
        self.last_progress = now;
    }

    /// When to probe next, if nothing comes back until then: the oldest outstanding datagram left at
    /// `oldest`, a round trip takes `least` where nothing queues, and a full datagram `air`, if the hop's
    /// rate is known.
    pub(super) fn deadline(
        &self,
        oldest: Time,
        round_trip: &RoundTrip,
        least: Option<Duration>,
        air: impl FnOnce() -> Option<Duration>,
    ) -> Time {
        let first = self.unanswered == 0;
        let wait = match &self.window {
            Some(window) => window.timeout(round_trip, self.unanswered),
            None if first && self.has_rested(oldest, round_trip) => {
                round_trip.after_rest(least).probe_timeout()
            }
            None if first => round_trip.probe_timeout(),
            None => self.interval(round_trip, air()),
        };
        let from = if first { oldest.max(self.last_progress) } else { self.last_probe };
        from + wait
    }

    /// When the datagram at hand left, at `sent`, nothing of what left before was in the queue any more.
    fn has_rested(&self, sent: Time, round_trip: &RoundTrip) -> bool {
        round_trip.srtt().is_some_and(|srtt| sent.since(self.last_progress) > srtt)
    }

    fn interval(&self, round_trip: &RoundTrip, air: Option<Duration>) -> Duration {
        let Some(air) = air else { return PROBE_INTERVAL_UNKNOWN };
        let age = self.age(self.last_probe).unwrap_or_default();
        if age > PATIENT_AFTER {
            return PROBE_INTERVAL_PATIENT;
        }
        let quarter = round_trip.srtt().unwrap_or(Duration::from_millis(100)) / 4;
        let brisk = quarter.clamp(PROBE_INTERVAL_MIN, PROBE_INTERVAL_MAX);
        let steady = if age > DEAD_AFTER { 3 * brisk } else { brisk };
        // On a slow hop probes must not be a load of their own.
        steady.max(3 * air).min(PROBE_INTERVAL_PATIENT)
    }

    /// The [deadline](Self::deadline) has passed: a probe is due. Whether the hop falls silent by it,
    /// and how old the silence is.
    pub(super) fn on_deadline(&mut self, now: Time) -> (bool, Duration) {
        let since = *self.since.get_or_insert(now);
        self.unanswered += 1;
        self.last_probe = now;
        self.due = 1;
        (self.unanswered == SILENT_AFTER, now.since(since))
    }

    /// Requests a ping.
    pub(super) fn request_ping(&mut self) {
        self.ping_due = true;
    }

    /// The ping leaves.
    pub(super) fn on_ping(&mut self) {
        self.ping_due = false;
    }

    /// A ping was requested, or one [is due](Self::keep_alive_at) by itself.
    pub(super) fn wants_ping(&self, now: Time, role: Role, keepalive: Duration) -> bool {
        self.ping_due || self.keep_alive_at(role, keepalive) <= now
    }

    /// When a ping is due: a mobile sends something that elicits an acknowledgement every `keepalive`. That shows
    /// its base all that a ping of its own would, so that a base sends one only where a mobile does not.
    pub(super) fn keep_alive_at(&self, role: Role, keepalive: Duration) -> Time {
        match role {
            Role::Mobile => self.last_eliciting + keepalive,
            Role::Base => self.last_eliciting.max(self.last_elicited) + keepalive + keepalive / 4,
        }
    }

    /// A datagram came that elicits an acknowledgement.
    pub(super) fn on_elicited(&mut self, now: Time) {
        self.last_elicited = now;
    }

    /// A datagram leaves that elicits an acknowledgement.
    pub(super) fn on_eliciting(&mut self, now: Time) {
        self.last_eliciting = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SRP-9: the interval does not grow with the number of probes, only with the silence's age.
    #[test]
    fn a_silence_is_probed_at_a_steady_interval() {
        let mut probes = Probes::new(Time::ZERO, None);
        let mut round_trip = RoundTrip::default();
        round_trip.sample(Duration::from_millis(80));
        let next = |p: &Probes| {
            p.deadline(Time::ZERO, &round_trip, None, || Some(Duration::from_millis(1)))
        };
        let mut now = next(&probes);
        assert_eq!(now, Time::ZERO + round_trip.probe_timeout());
        let mut fell = 0;
        while now < Time::from_secs(9) {
            let (silent, _) = probes.on_deadline(now);
            fell += u32::from(silent);
            assert!(probes.is_due());
            probes.on_probe();
            assert_eq!(next(&probes), now + Duration::from_millis(20));
            now = next(&probes);
        }
        assert!(fell == 1 && probes.is_silent());
        now += Duration::from_secs(60);
        probes.on_deadline(now);
        assert_eq!(next(&probes), now + Duration::from_millis(60));
        probes.on_progress(now);
        assert!(!probes.is_silent() && !probes.is_due() && probes.age(now).is_none());
    }
}
