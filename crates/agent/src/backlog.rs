//! Whether a loss on the hop is congestion, as far as an agent can tell that does not see the queue.

use lasthop_units::{Duration, Time};
use lasthop_wire::tcp::Seq;

/// So much of a queue there must be in any case: what a path takes beyond the hop is not known.
const LEAST_QUEUE: Duration = Duration::from_millis(100);
/// A hop that loses more than one in so many of the segments that meet no deep queue is lossy.
const LOSSY: u64 = 128;
/// Losses are those among about so many segments.
const MEMORY: u64 = 4000;

/// How deep the queue in front of a hop is, wherever it is, as the round trips over the hop tell, and
/// how much the hop loses beside what a full queue drops.
///
/// An agent that repairs what a full queue drops hides from the sender the only sign that it is too
/// fast (SNP-7), and most queues report nothing: they are in modems. But where what waits takes as
/// long as the whole path without any queue, half of the sender's window keeps the hop busy. Then a
/// loss that the sender notices costs little, and on a hop that otherwise loses nothing it is
/// congestion. On a lossy hop it may be either, while the sender needs all of its window to cover the
/// repairs.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Backlog {
    least: Option<Duration>,
    /// The shorter of the last two samples: one alone may be an acknowledgement that was delayed.
    latest: Option<Duration>,
    last: Option<Duration>,
    /// Segments that were sent while the queue was not deep, and those of them that were lost.
    sent: u64,
    lost: u64,
    /// After a segment that was left to the sender, and when it was sent: nothing else is known of it,
    /// and without samples the queue would seem deep for ever.
    timed: Option<(Seq, Time)>,
}

impl Backlog {
    /// A segment that waited behind no hole was acknowledged so long after it was sent, once.
    pub(crate) fn sample(&mut self, took: Duration) {
        self.least = Some(self.least.map_or(took, |least| least.min(took)));
        self.latest = Some(self.last.map_or(took, |last| last.min(took)));
        self.last = Some(took);
    }

    /// All up to `ack` is acknowledged. `clean` if nothing before that was missing.
    pub(crate) fn acknowledged(&mut self, now: Time, ack: Seq, clean: bool) {
        let Some((_, at)) = self.timed.take_if(|(end, _)| ack.ahead_of(*end) >= 0) else { return };
        if clean {
            self.sample(now.since(at));
        }
    }

    /// Nothing is on its way any more.
    pub(crate) fn drained(&mut self) {
        (self.latest, self.last, self.timed) = (None, None, None);
    }

    /// A new segment up to `end` is sent; whether its loss may be left to the sender.
    pub(crate) fn leaves(&mut self, now: Time, end: Seq) -> bool {
        if self.is_deep() {
            let left = self.lost * LOSSY <= self.sent;
            if left {
                self.timed.get_or_insert((end, now));
            }
            return left;
        }
        self.sent += 1;
        if self.sent > MEMORY {
            (self.sent, self.lost) = (self.sent / 2, self.lost / 2);
        }
        false
    }

    /// Something is missing: what comes behind it waits for it.
    pub(crate) fn waits(&mut self) {
        self.timed = None;
    }

    /// A segment turns out to be lost. Those right before it have just shown how deep the queue was.
    pub(crate) fn lost(&mut self) {
        self.lost += u64::from(!self.is_deep());
    }

    fn is_deep(&self) -> bool {
        let (Some(least), Some(latest)) = (self.least, self.latest) else { return false };
        latest.saturating_sub(least) > (2 * least).max(LEAST_QUEUE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOP: u64 = 60;

    /// A hop whose least round trip is 60 ms, after two segments that took so many.
    fn after(ms: u64) -> Backlog {
        let mut backlog = Backlog::default();
        [HOP, ms, ms].into_iter().for_each(|ms| backlog.sample(Duration::from_millis(ms)));
        backlog
    }

    fn leaves(backlog: &mut Backlog) -> bool {
        backlog.leaves(Time::from_secs(1), Seq(1000))
    }

    /// SNP-7: a loss is left to the sender where what waits takes more than twice the hop's round trip,
    /// and a tenth of a second.
    #[test]
    fn a_queue_is_deep_if_it_is_longer_than_the_path() {
        assert!(!leaves(&mut Backlog::default()));
        assert!(!leaves(&mut after(3 * HOP)));
        assert!(leaves(&mut after(3 * HOP + 1)));
        let mut near = Backlog::default();
        [1, 101, 101].into_iter().for_each(|ms| near.sample(Duration::from_millis(ms)));
        assert!(!leaves(&mut near));
        [102, 102].into_iter().for_each(|ms| near.sample(Duration::from_millis(ms)));
        assert!(leaves(&mut near));
    }

    #[test]
    fn an_acknowledgement_that_was_delayed_is_no_queue() {
        let mut backlog = after(HOP);
        backlog.sample(Duration::from_secs(1));
        assert!(!leaves(&mut backlog));
        backlog.sample(Duration::from_secs(1));
        assert!(leaves(&mut backlog));
        backlog.drained();
        assert!(!leaves(&mut backlog), "an idle connection has no queue");
    }

    /// What a lossy hop loses while its queue is deep may be either.
    #[test]
    fn on_a_lossy_hop_nothing_is_left_to_the_sender() {
        let mut backlog = after(HOP);
        for _ in 0..2 * LOSSY {
            assert!(!leaves(&mut backlog));
        }
        backlog.lost();
        backlog.lost();
        [400, 400].into_iter().for_each(|ms| backlog.sample(Duration::from_millis(ms)));
        assert!(leaves(&mut backlog), "one in {LOSSY}");
        backlog.lost();
        assert!(leaves(&mut backlog), "what a deep queue drops tells nothing of the hop");
        backlog.drained();
        backlog.lost();
        [400, 400].into_iter().for_each(|ms| backlog.sample(Duration::from_millis(ms)));
        assert!(!leaves(&mut backlog));
        backlog.drained();
        for _ in 0..100 * MEMORY {
            leaves(&mut backlog);
        }
        [400, 400].into_iter().for_each(|ms| backlog.sample(Duration::from_millis(ms)));
        assert!(leaves(&mut backlog), "a hop that has become better");
    }

    /// Of segments that are left to the sender one at a time is a sample, or it would be so for ever.
    #[test]
    fn a_queue_that_has_gone_is_noticed() {
        let mut backlog = after(4 * HOP);
        let sent = Time::from_secs(1);
        assert!(backlog.leaves(sent, Seq(100)) && backlog.leaves(Time::from_secs(9), Seq(200)));
        backlog.acknowledged(sent + Duration::from_millis(4 * HOP), Seq(99), true);
        backlog.acknowledged(sent + Duration::from_millis(4 * HOP), Seq(200), true);
        assert!(backlog.is_deep(), "the first of them took as long as those before");
        assert!(backlog.leaves(sent, Seq(300)));
        backlog.acknowledged(sent + Duration::from_millis(HOP), Seq(300), true);
        assert!(!backlog.is_deep());
        let mut backlog = after(4 * HOP);
        assert!(leaves(&mut backlog));
        backlog.waits();
        backlog.acknowledged(Time::from_secs(1), Seq(1000), true);
        assert!(leaves(&mut backlog));
        backlog.acknowledged(Time::from_secs(1), Seq(1000), false);
        assert!(leaves(&mut backlog), "it waited behind a hole");
    }
}
