//! Which subflow of a multipath connection carries what is sent next.

use lasthop_units::{Duration, Time};

/// A rule by which the next segment's subflow is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Scheduler {
    /// Of the subflows that may send the one with the least smoothed round trip: Linux's default.
    #[default]
    MinRtt,
    /// Earliest completion first (Lim, Nahum, Towsley and Gibbens, CoNEXT 2017): as above, but where the fastest
    /// subflow may not send, a slower one does only if the fastest would not have sent all there is by then.
    Ecf,
    /// Blocking estimation (Ferlin, Alay, Mehani and Boreli, IFIP Networking 2016): as above, but a slower subflow
    /// sends only if what it occupies of the shared window meanwhile leaves room for all that the fastest could send.
    Blest,
}

/// What is known of a subflow that stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct View {
    /// It may send a full segment now.
    pub(super) room: bool,
    pub(super) srtt: Duration,
    pub(super) rttvar: Duration,
    /// In bytes.
    pub(super) cwnd: u64,
    pub(super) flight: u64,
    pub(super) mss: u64,
}

/// What there is to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Backlog {
    /// Bytes that no subflow was given.
    pub(super) left: u64,
    /// The peer's window, from the first byte that it does not acknowledge.
    pub(super) window: u64,
}

/// The hysteresis of ECF, as its paper has it.
const BETA: f64 = 0.25;
/// The correction factor of BLEST: at the beginning, its bounds and its steps, as in the authors' Linux.
const LAMBDA: f64 = 1.2;
const LAMBDA_LEAST: f64 = 1.0;
const LAMBDA_MOST: f64 = 1.3;
const LAMBDA_GOOD: f64 = 0.01;
const LAMBDA_BAD: f64 = 0.04;

/// A scheduler and what it remembers.
#[derive(Clone, Debug)]
pub(super) struct Scheduling {
    scheduler: Scheduler,
    /// ECF waits for the fastest subflow.
    waiting: bool,
    lambda: f64,
    /// The shared window has blocked since the factor was adapted.
    blocked: bool,
    adapt_at: Time,
}

impl Scheduling {
    pub(super) fn new(scheduler: Scheduler) -> Self {
        Self { scheduler, waiting: false, lambda: LAMBDA, blocked: false, adapt_at: Time::ZERO }
    }

    /// The peer's window lets nothing more be sent.
    pub(super) fn on_blocked(&mut self) {
        self.blocked = true;
    }

    /// The place of the subflow that is to send a segment now; `None` if none is.
    pub(super) fn pick(
        &mut self,
        now: Time,
        subflows: &[Option<View>],
        backlog: Backlog,
    ) -> Option<usize> {
        let standing = || {
            let all = subflows.iter().enumerate();
            all.filter_map(|(place, view)| view.as_ref().map(|view| (place, view)))
        };
        let (place, chosen) =
            standing().filter(|(_, view)| view.room).min_by_key(|(_, view)| view.srtt)?;
        let (fastest_place, fastest) = standing().min_by_key(|(_, view)| view.srtt)?;
        if place == fastest_place {
            return Some(place);
        }
        let waits = match self.scheduler {
            Scheduler::MinRtt => false,
            Scheduler::Ecf => self.completes_earlier(fastest, chosen, backlog),
            Scheduler::Blest => self.would_block(now, fastest, chosen, backlog),
        };
        (!waits).then_some(place)
    }

    /// Algorithm 1 of the paper: whether it is better to wait for the fastest subflow.
    fn completes_earlier(&mut self, fastest: &View, chosen: &View, backlog: Backlog) -> bool {
        let [fast, slow] = [fastest, chosen].map(|view| view.srtt.as_secs_f64());
        let margin = fastest.rttvar.max(chosen.rttvar).as_secs_f64();
        let rounds = |view: &View| backlog.left as f64 / view.cwnd.max(1) as f64;
        let patience = if self.waiting { 1.0 + BETA } else { 1.0 };
        if (1.0 + rounds(fastest)) * fast >= patience * (slow + margin) {
            self.waiting = false;
            return false;
        }
        let waits = rounds(chosen) * slow >= 2.0 * fast + margin;
        self.waiting |= waits;
        waits
    }

    /// Equation 1 of the paper: whether a segment on the chosen subflow would leave the fastest too little of the
    /// window until it is acknowledged.
    fn would_block(&mut self, now: Time, fastest: &View, chosen: &View, backlog: Backlog) -> bool {
        if now >= self.adapt_at {
            let step = if self.blocked { LAMBDA_BAD } else { -LAMBDA_GOOD };
            self.lambda = (self.lambda + step).clamp(LAMBDA_LEAST, LAMBDA_MOST);
            (self.blocked, self.adapt_at) = (false, now + chosen.srtt);
        }
        let rounds = chosen.srtt.as_secs_f64() / fastest.srtt.as_secs_f64().max(1e-6);
        let growth = (rounds - 1.0) / 2.0 * fastest.mss as f64;
        let could_send = (fastest.cwnd as f64 + growth) * rounds;
        let occupied = chosen.flight + chosen.mss;
        could_send * self.lambda > backlog.window.saturating_sub(occupied) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(room: bool, ms: u64, cwnd: u64) -> Option<View> {
        let srtt = Duration::from_millis(ms);
        Some(View { room, srtt, rttvar: srtt / 20, cwnd: cwnd * 1000, flight: 0, mss: 1000 })
    }

    fn pick(
        scheduler: Scheduler,
        subflows: [Option<View>; 2],
        left: u64,
        window: u64,
    ) -> Option<usize> {
        let backlog = Backlog { left: left * 1000, window: window * 1000 };
        Scheduling::new(scheduler).pick(Time::from_secs(1), &subflows, backlog)
    }

    const ALL: [Scheduler; 3] = [Scheduler::MinRtt, Scheduler::Ecf, Scheduler::Blest];

    #[test]
    fn the_fastest_that_may_send_does() {
        for scheduler in ALL {
            let picked = |subflows| pick(scheduler, subflows, 100, 1000);
            assert_eq!(picked([view(true, 100, 10), view(true, 20, 10)]), Some(1), "{scheduler:?}");
            assert_eq!(picked([view(true, 100, 10), None]), Some(0), "{scheduler:?}");
            assert_eq!(picked([view(false, 20, 10), view(false, 100, 10)]), None, "{scheduler:?}");
        }
    }

    /// A slow subflow takes the end of a transfer only where the fast one would be later with all of it.
    #[test]
    fn ecf_leaves_to_the_fastest_what_it_has_sent_sooner() {
        let subflows = [view(false, 20, 10), view(true, 400, 10)];
        assert_eq!(pick(Scheduler::MinRtt, subflows, 40, 1000), Some(1));
        assert_eq!(pick(Scheduler::Ecf, subflows, 40, 1000), None);
        assert_eq!(pick(Scheduler::Ecf, subflows, 4000, 10_000), Some(1));
    }

    /// A slow subflow stays out of a window that the fast one fills meanwhile.
    #[test]
    fn blest_keeps_the_window_for_the_fastest() {
        let subflows = [view(false, 20, 10), view(true, 400, 10)];
        assert_eq!(pick(Scheduler::Blest, subflows, 4000, 100), None);
        assert_eq!(pick(Scheduler::Blest, subflows, 4000, 10_000), Some(1));
    }
}
