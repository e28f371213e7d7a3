//! What is sent once more although it may arrive: of sparse flows and streams, and packets that were lost before.

use alloc::collections::VecDeque;
use core::time::Duration;

use lasthop_units::Time;

use super::content::Content;
use crate::policy::Policy;

/// What is sparse is sent once more where more than the first share is lost, and twice more where more than the
/// second is.
const DOUBLE_LOSS: [f64; 2] = [0.02, 0.08];
/// What was lost counts for so long: between fades little is.
const LOSSY: Duration = Duration::from_secs(5);
/// The second leaves an eighth of the round trip later, at most so much: losses come in bursts.
const AFTER: (u32, Duration) = (8, Duration::from_millis(10));
/// One of so many bytes sent may be for what is sparse, one of so many for what others wait for, and so many may be saved up.
/// What was lost twice needs no such bound: it is the square of the loss.
const PART_SPARSE: u64 = 128;
const PART_AWAITED: u64 = 8;
const SAVED_MAX: u64 = 16 * 1024;

/// Bytes that may be spent.
#[derive(Debug)]
struct Budget {
    /// One of so many bytes sent.
    part: u64,
    /// Bytes sent of which none was saved.
    earned: u64,
    saved: u64,
}

impl Budget {
    const fn new(part: u64) -> Self {
        Self { part, earned: 0, saved: SAVED_MAX }
    }

    fn earn(&mut self, bytes: usize) {
        self.earned += bytes as u64;
        self.saved = (self.saved + self.earned / self.part).min(SAVED_MAX);
        self.earned %= self.part;
    }
}

/// What is to be sent once more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Double {
    pub(super) at: Time,
    pub(super) content: Content,
    /// Which paths may carry it.
    pub(super) policy: Policy,
    /// How often again after that.
    more: u8,
    /// What it costs, and whether of what is for streams that wait for it.
    cost: u64,
    awaited: bool,
}

/// What is to be sent once more, in order of time, and how much may be.
#[derive(Debug)]
pub(super) struct Doubles {
    queue: VecDeque<Double>,
    /// For what is sparse, and for what is awaited.
    budgets: [Budget; 2],
    /// When as much was lost last as each number of doubles asks for.
    lossy: [Option<Time>; DOUBLE_LOSS.len()],
}

impl Doubles {
    pub(super) fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            budgets: [PART_SPARSE, PART_AWAITED].map(Budget::new),
            lossy: [None; 2],
        }
    }

    /// The next.
    pub(super) fn next(&self) -> Option<&Double> {
        self.queue.front()
    }

    /// What is to be sent now.
    pub(super) fn due(&self, now: Time) -> Option<Double> {
        self.queue.front().filter(|double| double.at <= now).copied()
    }

    /// So much was sent, of whatever kind.
    pub(super) fn earn(&mut self, bytes: usize) {
        self.budgets.iter_mut().for_each(|budget| budget.earn(bytes));
    }

    /// Something sparse of so many bytes is sent for the first time, where such a share is lost.
    pub(super) fn add_sparse(
        &mut self,
        now: Time,
        srtt: Duration,
        loss: f64,
        (content, policy, bytes): (Content, Policy, usize),
    ) {
        let times = self.times(now, loss);
        if times > 0 {
            self.add(now, srtt, (content, policy), times - 1, (bytes as u64, false));
        }
    }

    /// Something of so many bytes that was lost is sent again, and its stream waits for it.
    pub(super) fn add_awaited(
        &mut self,
        now: Time,
        srtt: Duration,
        loss: f64,
        (content, policy, bytes): (Content, Policy, usize),
    ) {
        if self.times(now, loss) > 0 {
            self.add(now, srtt, (content, policy), 0, (bytes as u64, true));
        }
    }

    /// How often something is sent once more where such a share is lost.
    fn times(&mut self, now: Time, loss: f64) -> u8 {
        let losing = self.lossy.iter_mut().zip(DOUBLE_LOSS).filter_map(|(last, least)| {
            if loss > least {
                *last = Some(now);
            }
            last.filter(|last| now.since(*last) < LOSSY)
        });
        losing.count() as u8
    }

    /// What was lost before, more than once, is sent again.
    pub(super) fn add_lost(&mut self, now: Time, srtt: Duration, what: (Content, Policy)) {
        self.add(now, srtt, what, 0, (0, false));
    }

    fn add(
        &mut self,
        now: Time,
        srtt: Duration,
        (content, policy): (Content, Policy),
        more: u8,
        (cost, awaited): (u64, bool),
    ) {
        let after = (srtt / AFTER.0).min(AFTER.1);
        // The round trip may have become shorter since the last was added.
        let last = self.queue.back().map_or(now, |last| last.at);
        let at = (now + after).max(last);
        self.queue.push_back(Double { at, content, policy, more, cost, awaited });
    }

    /// Whether that much may be spent.
    pub(super) fn affords(&self, double: &Double) -> bool {
        self.budgets[usize::from(double.awaited)].saved >= double.cost
    }

    /// The first was sent, or is not worth it any more.
    pub(super) fn pop(&mut self) {
        self.queue.pop_front();
    }

    /// The first was sent.
    pub(super) fn on_sent(&mut self, now: Time, srtt: Duration) {
        if let Some(double) = self.queue.pop_front() {
            self.budgets[usize::from(double.awaited)].saved -= double.cost;
            if double.more > 0 {
                let (what, cost) = ((double.content, double.policy), (double.cost, double.awaited));
                self.add(now, srtt, what, double.more - 1, cost);
            }
        }
    }
}
