//! Where data enters the hop: copies, and their repetition when the other half asks for them.

use alloc::vec::Vec;

use lasthop_units::Time;
use lasthop_wire::tcp::{Segment, Seq};
use lasthop_wire::unsplit::Request;

use super::{Config, Stats};
use crate::cache::{Cache, CachedSegment, SPAN, Stored};
use crate::progress::Progress;
use crate::rtt::{LONGEST, RtoBounds, Rtt};

/// The longest header of IP and TCP, as kept with each segment.
const HEADERS: u64 = 100;

/// Doublings of the timer that count.
const DOUBLINGS: u32 = 6;

/// What is noted about a segment that is kept.
#[derive(Clone, Copy, Debug)]
struct Note {
    /// Which of all segments over the hop it was when its end sent it last.
    first: u64,
    /// Which it was when it crossed last.
    last: u64,
    /// When that was.
    at: Time,
    /// How often this half has sent it since its end did.
    tries: u32,
    /// Since then the other half has reported that it lacks it: the hop has lost it. A copy that only the
    /// timer sent may be needless.
    lacking: bool,
    /// Its end has sent it more than once, or out of order.
    by_sender: bool,
}

/// What becomes of an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AckAction {
    /// It is handed on.
    Pass,
    /// It reports a loss that is being repaired.
    Suppress,
    /// It is handed on without its SACK blocks.
    HideSack,
}

/// What one call works with.
pub(super) struct Context<'a> {
    pub(super) now: Time,
    pub(super) config: &'a Config,
    pub(super) stats: &'a mut Stats,
}

/// One direction of one connection, at the half that puts it on the hop.
#[derive(Clone, Debug)]
pub(super) struct Sender<P> {
    cache: Cache<P, Note>,
    progress: Progress,
    /// The other half has had all before it.
    delivered: Option<Seq>,
    /// Segments that went over the hop, copies included.
    sent: u64,
    /// PRC: goes with every packet (MOB-28).
    cycle: bool,
    /// The number that was requested last.
    asked: Option<Seq>,
    /// Where the hole ended that was filled last.
    filled: Option<Seq>,
    rtt: Rtt,
    due: Option<Time>,
    /// Copies to send.
    repairs: Vec<P>,
}

impl<P: Clone> Sender<P> {
    pub(super) fn new(config: &Config) -> Self {
        let tick = config.tick.min(LONGEST);
        let most = config.longest.clamp(tick, LONGEST);
        let bounds = RtoBounds { initial: config.initial, least: tick, most };
        Self {
            cache: Cache::new(config.segments),
            progress: Progress::default(),
            delivered: None,
            sent: 0,
            cycle: false,
            asked: None,
            filled: None,
            rtt: Rtt::new(bounds),
            due: None,
            repairs: Vec::new(),
        }
    }

    /// The connection begins, and the first byte after the SYN is `seq`.
    pub(super) fn begin(&mut self, seq: Seq) {
        self.restart(Some(seq));
    }

    /// RC.
    pub(super) const fn cycle(&self) -> bool {
        self.cycle
    }

    /// When the timer fires.
    pub(super) const fn due(&self) -> Option<Time> {
        self.due
    }

    /// Segments that are kept.
    pub(super) fn kept(&self) -> usize {
        self.cache.len()
    }

    /// Bytes that are kept, headers included.
    pub(super) fn bytes(&self) -> u64 {
        self.cache.bytes() + HEADERS * self.cache.len() as u64
    }

    /// The copies that are to be sent, in their order. What remains of the vector is empty room.
    pub(super) fn repairs(&mut self) -> &mut Vec<P> {
        &mut self.repairs
    }

    /// The end on this side sends data, which goes over the hop; `room` bytes more may be kept.
    pub(super) fn on_data(
        &mut self,
        context: &mut Context<'_>,
        segment: &Segment,
        packet: &P,
        room: u64,
    ) {
        if segment.seq_len() == 0 || segment.seq_len() > SPAN {
            return;
        }
        if !self.progress.is_near(segment) {
            self.restart(None);
        }
        self.sent += 1;
        let again = self.progress.is_again(segment);
        if self.progress.is_new(segment) {
            self.keep(context, segment, packet, again, room);
        } else {
            self.progress.unheard = true;
        }
        self.progress.pass(segment);
        if self.due.is_none() {
            self.arm(context);
        }
    }

    /// The other half says what has come and what is missing (ALT-6, MOB-24, MOB-26, MOB-30).
    pub(super) fn on_request(&mut self, context: &mut Context<'_>, request: Request, reply: bool) {
        let Request { ack, nis } = request;
        let Some(seen) = self.progress.seen() else { return };
        let held = nis.ahead_of(ack);
        let before = |known: Option<Seq>| known.is_some_and(|known| ack.ahead_of(known) < 0);
        if held < 0 || nis.ahead_of(seen) > 0 || ack.ahead_of(seen) > 0 || before(self.delivered) {
            context.stats.ignored_requests += 1;
            return;
        }
        self.delivered = Some(ack);
        if held == 0 {
            self.arm(context);
            return;
        }
        let repeated = self.asked.replace(ack) == Some(ack);
        if reply != self.cycle {
            context.stats.stale_requests += 1;
            return;
        }
        // MOB-27: the rest of a hole is just behind its first packet. It is missing anew only if it
        // is requested twice, or something behind it that was missing too has come.
        let behind = self.filled.is_some_and(|filled| ack.ahead_of(filled) < 0);
        let passed = self.filled.is_some_and(|filled| nis.ahead_of(filled) < 0);
        if behind && !repeated && !passed {
            context.stats.stale_requests += 1;
            return;
        }
        if self.fill(context, ack, nis) {
            self.cycle = !self.cycle;
            self.filled = Some(nis);
            self.arm(context);
        }
    }

    /// An acknowledgement of the far end came over the hop.
    pub(super) fn on_ack(&mut self, context: &mut Context<'_>, segment: &Segment) -> AckAction {
        if self.progress.is_beyond(segment.ack) {
            // Nothing kept is worth anything.
            self.restart(Some(segment.ack));
        }
        match self.progress.advance(segment.ack) {
            Some(..0) => AckAction::Pass,
            Some(0) => self.on_same_ack(context, segment),
            Some(_) | None => self.on_new_ack(context, segment),
        }
    }

    /// The timer fires: the first segment that may be missing goes once more, and the last, behind
    /// which the other half sees what else is. The cycle stays (MOB-32).
    pub(super) fn on_timeout(&mut self, context: &mut Context<'_>) {
        if self.due.is_none_or(|due| due > context.now) {
            return;
        }
        let first = self.next_repair(context.config).map(|kept| kept.seq);
        let last = self.cache.iter().next_back().map(|kept| kept.seq).filter(|_| first.is_some());
        for seq in [first, last.filter(|last| first != Some(*last))].into_iter().flatten() {
            if self.repeat(context, seq) {
                context.stats.timeouts += 1;
            }
        }
        self.arm(context);
    }

    /// The other half may have lost what it knew, or the hop carries again: the timer fires as soon
    /// as it can.
    pub(super) fn hurry(&mut self, now: Time) {
        if self.due.is_some() {
            self.due = Some(now);
        }
    }

    /// Forgets copies, what was sent, up to `seen`, and what was acknowledged; the round trip stays.
    fn restart(&mut self, seen: Option<Seq>) {
        self.cache.clear();
        self.progress = Progress::at(seen);
        self.delivered = None;
        self.asked = None;
        self.filled = None;
        self.due = None;
        self.repairs.clear();
    }

    fn keep(
        &mut self,
        context: &mut Context<'_>,
        segment: &Segment,
        packet: &P,
        again: bool,
        room: u64,
    ) {
        if u64::from(segment.seq_len()) + HEADERS > room {
            context.stats.left_out += 1;
            // An older copy than its end's is not to be sent.
            if let Some(kept) = self.cache.starting(segment.seq) {
                kept.note.by_sender = true;
            }
            return;
        }
        let (sent, now) = (self.sent, context.now);
        let note =
            Note { first: sent, last: sent, at: now, tries: 0, lacking: false, by_sender: again };
        match self.cache.store(segment.seq, segment.end(), packet.clone(), note) {
            Stored::New => context.stats.cached += 1,
            Stored::Again => {
                if let Some(kept) = self.cache.starting(segment.seq) {
                    kept.note = note;
                }
            }
            Stored::Refused => context.stats.left_out += 1,
        }
    }

    /// Sends what is kept of a hole; whether there was anything.
    fn fill(&mut self, context: &mut Context<'_>, ack: Seq, nis: Seq) -> bool {
        // What went behind the packet that showed the hole is not missing because of it: the network
        // in front of the hop may have changed the order.
        let shown = self.cache.covering(nis).map(|kept| kept.note.first);
        let before = self.repairs.len();
        let holes = self.cache.iter_mut().skip_while(|kept| kept.end.ahead_of(ack) <= 0);
        for kept in holes.take_while(|kept| kept.seq.ahead_of(nis) < 0) {
            let late = kept.note.tries == 0 && shown.is_some_and(|shown| kept.note.first > shown);
            if !late && kept.note.tries < context.config.tries {
                self.sent += 1;
                kept.note.lacking = true;
                repeat(context, self.sent, kept, &mut self.repairs);
            }
        }
        self.repairs.len() > before
    }

    /// Sends one segment once more, if it may be tried again.
    fn repeat(&mut self, context: &mut Context<'_>, seq: Seq) -> bool {
        let tries = context.config.tries;
        match self.cache.starting(seq).filter(|kept| kept.note.tries < tries) {
            Some(kept) => {
                self.sent += 1;
                repeat(context, self.sent, kept, &mut self.repairs);
                true
            }
            None => false,
        }
    }

    /// The segment that the other half waits for, if it is to be had and may be tried again.
    fn next_repair(&mut self, config: &Config) -> Option<&CachedSegment<P, Note>> {
        let after = match (self.progress.acked(), self.delivered) {
            (Some(acked), Some(delivered)) if delivered.ahead_of(acked) > 0 => Some(delivered),
            (Some(acked), _) => Some(acked),
            (None, delivered) => delivered,
        };
        let kept = match after {
            Some(after) => self.cache.covering(after).map(|kept| &*kept),
            None => self.cache.front(),
        };
        kept.filter(|kept| kept.note.tries < config.tries)
    }

    /// Starts the timer for it, unless the far end can take nothing.
    fn arm(&mut self, context: &Context<'_>) {
        let closed = self.progress.is_closed();
        let note = self.next_repair(context.config).filter(|_| !closed).map(|kept| kept.note);
        self.due = note.map(|note| {
            let due = self.rtt.deadline(note.at, note.tries.min(DOUBLINGS));
            due.max(context.now + context.config.tick)
        });
    }

    fn on_new_ack(&mut self, context: &mut Context<'_>, segment: &Segment) -> AckAction {
        let mut next = self.progress.acked();
        let mut clean = self.progress.duplicates == 0;
        let mut sample = None;
        while let Some(kept) = self.cache.pop_acknowledged(segment.ack) {
            let in_order = next.is_none_or(|next| kept.seq.ahead_of(next) <= 0);
            clean &= in_order && kept.note.tries == 0 && !kept.note.by_sender;
            next = Some(kept.end);
            sample = Some(kept.note.at);
        }
        if let Some(at) = sample.filter(|_| clean && next == Some(segment.ack)) {
            self.rtt.sample(context.now.since(at));
        }
        self.progress.acknowledge(segment);
        self.arm(context);
        let hides = context.config.hide_sack && !segment.options.sack.is_empty();
        let repairs = |kept: &mut CachedSegment<P, Note>| kept.note.lacking && !kept.note.by_sender;
        if hides && self.cache.covering(segment.ack).is_some_and(repairs) {
            return AckAction::HideSack;
        }
        AckAction::Pass
    }

    /// A duplicate of a loss that is repaired here goes no further (ALT-6): one for each segment that
    /// crossed between the one that was lost and its latest copy. More than those tell of a loss
    /// beyond the hop.
    fn on_same_ack(&mut self, context: &mut Context<'_>, segment: &Segment) -> AckAction {
        if !self.progress.count_duplicate(segment) {
            if self.due.is_none() {
                self.arm(context);
            }
            return AckAction::Pass;
        }
        let duplicates = self.progress.duplicates;
        let unheard = core::mem::take(&mut self.progress.unheard);
        let is_due_to_repair = |kept: &mut CachedSegment<P, Note>| {
            let Note { first, last, lacking, by_sender, .. } = kept.note;
            lacking && !by_sender && duplicates <= last - first
        };
        if unheard || !self.cache.covering(segment.ack).is_some_and(is_due_to_repair) {
            context.stats.duplicates_passed += 1;
            return AckAction::Pass;
        }
        context.stats.suppressed += 1;
        AckAction::Suppress
    }
}

/// Sends a copy as it came: its timestamp is the old one, so that its end's measurement includes the
/// recovery.
fn repeat<P: Clone>(
    context: &mut Context<'_>,
    sent: u64,
    kept: &mut CachedSegment<P, Note>,
    repairs: &mut Vec<P>,
) {
    let note = &mut kept.note;
    note.tries += 1;
    note.last = sent;
    note.at = context.now;
    repairs.push(kept.packet.clone());
    context.stats.local_retransmits += 1;
}
