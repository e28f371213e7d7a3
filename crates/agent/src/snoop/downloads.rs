//! From the fixed host to the mobile: what is kept, what is sent again, which duplicates are kept
//! back.

use core::ops::Range;

use lasthop_units::Time;
use lasthop_wire::tcp::{Segment, Seq};

use super::config::{Config, Timer};
use super::timer::{Estimator, Sample};
use super::{AckAction, Context};
use crate::backlog::Backlog;
use crate::cache::{Cache, CachedSegment, SPAN, Stored};
use crate::progress::Progress;
use crate::{Packet, Side};

/// What is noted about a segment that is kept.
#[derive(Clone, Copy, Debug)]
struct Note {
    /// Which of all segments over the hop it was when the fixed host sent it last.
    first: u64,
    /// Which its earliest copy was that is not known to be lost.
    earliest: u64,
    /// Which it was when it crossed last.
    last: u64,
    /// When that was.
    at: Time,
    /// How often snoop has sent it since the fixed host did.
    tries: u32,
    /// The fixed host has sent it more than once, or out of order.
    by_sender: bool,
    /// Multicast ahead of a handoff and not sent over this hop.
    primed: bool,
    /// It crossed the hop once, in order.
    clean: bool,
    /// The mobile has acknowledged it.
    sacked: bool,
    bytes: u64,
}

/// A copy that the timer sent, while nothing has come back since.
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// After the segment.
    end: Seq,
    at: Time,
    /// Which of all segments over the hop it was, and up to which they were answered then.
    number: u64,
    answered: u64,
}

/// One direction of one connection.
#[derive(Clone, Debug)]
pub(super) struct Downloads<P> {
    cache: Cache<P, Note>,
    /// Each duplicate is the answer to another segment.
    progress: Progress,
    /// Segments that went over the hop, the same one again included. Each that arrives is answered
    /// by one acknowledgement, and a duplicate while there is a hole below it.
    sent: u64,
    /// The latest acknowledgement that was new answered this one of them or a later one. As the hop
    /// keeps the order, what went before has arrived or is lost.
    answered: u64,
    estimator: Estimator,
    backlog: Backlog,
    deadline: Option<Time>,
    probe: Option<Probe>,
    /// What crossed as these numbers is lost, and is not sent again yet.
    lost: Range<u64>,
    bytes: u64,
}

impl<P: Packet> Downloads<P> {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            cache: Cache::new(config.segments),
            progress: Progress::default(),
            sent: 0,
            answered: 0,
            estimator: Estimator::new(config),
            backlog: Backlog::default(),
            deadline: None,
            probe: None,
            lost: 0..0,
            bytes: 0,
        }
    }

    /// Bytes of what is kept.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Segments that are kept.
    pub(super) fn kept(&self) -> usize {
        self.cache.len()
    }

    /// When the local timer fires.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// A connection begins with this SYN of the fixed host.
    pub(super) fn begin(&mut self, context: &mut Context<'_, P>, syn: &Segment) {
        self.restart(context, Some(syn.end()));
    }

    /// The fixed host has sent data, which is handed on (SNP-1, SNP-7).
    pub(super) fn on_data(&mut self, context: &mut Context<'_, P>, segment: &Segment, packet: &P) {
        if segment.seq_len() > SPAN {
            return;
        }
        if !self.progress.is_near(segment) {
            self.restart(context, None);
        }
        self.sent += 1;
        let again = self.progress.is_again(segment);
        if again && !self.front_is(segment.seq) {
            // The fixed host goes back itself.
            self.lost = 0..0;
        }
        if self.progress.is_new(segment) {
            self.keep(context, segment, packet, again);
        } else if segment.seq_len() > 0 {
            self.progress.unheard = true;
        }
        self.progress.pass(segment);
        if self.deadline.is_none() || again && self.front_is(segment.seq) {
            self.arm(context);
        }
    }

    /// The same ahead of a handoff: it does not cross this hop (SNP-11).
    pub(super) fn prime(&mut self, context: &mut Context<'_, P>, segment: &Segment, packet: &P) {
        let known = self.cache.covering(segment.seq).is_some();
        if known || segment.seq_len() > SPAN || !self.progress.is_near(segment) {
            return;
        }
        if self.progress.is_new(segment) {
            self.keep(context, segment, packet, false);
            if let Some(kept) = self.cache.covering(segment.seq) {
                kept.note.primed = true;
                kept.note.clean = false;
            }
        }
        self.progress.pass(segment);
    }

    /// The mobile is here: what was kept for it goes out (SNP-11).
    pub(super) fn release(&mut self, context: &mut Context<'_, P>) {
        let mut any = false;
        for kept in self.cache.iter_mut().filter(|kept| kept.note.primed) {
            self.sent += 1;
            kept.note.primed = false;
            kept.note.at = context.now;
            let note = &mut kept.note;
            (note.first, note.earliest, note.last) = (self.sent, self.sent, self.sent);
            context.out.packet(Side::Mobile, kept.packet.clone());
            context.stats.released += 1;
            any = true;
        }
        if any {
            self.arm(context);
        }
    }

    /// The mobile acknowledges.
    pub(super) fn on_ack(&mut self, context: &mut Context<'_, P>, segment: &Segment) -> AckAction {
        if self.progress.is_beyond(segment.ack) {
            // Nothing kept is worth anything.
            self.restart(context, Some(segment.ack));
        }
        match self.progress.advance(segment.ack) {
            Some(..0) => AckAction::Pass,
            Some(0) => self.on_same_ack(context, segment),
            Some(_) | None => self.on_new_ack(context, segment),
        }
    }

    /// The local timer fires (SNP-6).
    pub(super) fn on_timeout(&mut self, context: &mut Context<'_, P>) {
        if self.deadline.is_none_or(|at| at > context.now) {
            return;
        }
        let wanted = self.progress.acked();
        let answered = self.latest_answered();
        if let Some(kept) = wanted_in(&mut self.cache, wanted)
            && kept.note.tries < context.config.tries
        {
            resend(context, &mut self.sent, answered, kept);
            context.stats.timeouts += 1;
            let (end, at, number) = (kept.end, context.now, self.sent);
            self.probe = Some(Probe { end, at, number, answered });
        }
        self.arm(context);
    }

    /// SNP-2: frees what is acknowledged, measures the hop, passes it on.
    fn on_new_ack(&mut self, context: &mut Context<'_, P>, segment: &Segment) -> AckAction {
        let kept = self.cache.len();
        let sample = self.free(context.now, segment.ack);
        if let Some(sample) = sample {
            self.estimator.sample(context.now, context.config.timer, sample);
            if sample.clean {
                self.backlog.sample(context.now.since(sample.at));
            }
        }
        self.backlog.acknowledged(context.now, segment.ack, self.progress.duplicates == 0);
        if self.progress.seen() == Some(segment.ack) {
            self.backlog.drained();
        }
        if context.config.go_back {
            let came = match self.answers_probe(context.now, segment) {
                true => 1,
                false => kept - self.cache.len(),
            };
            self.go_back(context, 2 * came);
        }
        self.progress.acknowledge(segment);
        self.arm(context);
        self.use_sack(context, segment);
        let hidden = context.config.hide_sack && !segment.options.sack.is_empty();
        if hidden && self.is_repairing(context.config) {
            AckAction::HideSack
        } else {
            AckAction::Pass
        }
    }

    /// SNP-3 to SNP-5.
    fn on_same_ack(&mut self, context: &mut Context<'_, P>, segment: &Segment) -> AckAction {
        if !self.progress.count_duplicate(segment) {
            if self.deadline.is_none() {
                self.arm(context);
            }
            return AckAction::Pass;
        }
        self.probe = None;
        if core::mem::take(&mut self.progress.unheard) {
            return AckAction::Pass;
        }
        let action = self.answer_duplicate(context, segment);
        self.use_sack(context, segment);
        action
    }

    /// At least this one has been answered, taking each duplicate for the answer to the next.
    fn latest_answered(&self) -> u64 {
        self.answered + self.progress.duplicates
    }

    fn answer_duplicate(&mut self, context: &mut Context<'_, P>, segment: &Segment) -> AckAction {
        let answered = self.latest_answered();
        let Some(kept) = self.cache.covering(segment.ack) else { return AckAction::PassDuplicate };
        let note = &kept.note;
        if note.by_sender || note.tries >= context.config.tries {
            return AckAction::PassDuplicate;
        }
        if note.tries == 0 {
            // Answers to what went before it tell nothing of it. One needless copy would else bring
            // the next for ever: its duplicate asks for a segment that only waits in the hop's queue.
            // Blocks are of what went after it.
            let before = note.first.saturating_sub(self.answered + 1);
            let blocks = !segment.options.sack.is_empty();
            let telling = self.progress.duplicates.saturating_sub(if blocks { 0 } else { before });
            if telling == 0 {
                return AckAction::Suppress;
            }
            if telling < u64::from(context.config.dupacks) {
                return AckAction::PassDuplicate;
            }
            resend(context, &mut self.sent, answered, kept);
            self.backlog.lost();
            self.arm(context);
            return AckAction::Suppress;
        }
        // SNP-4: one for each segment that is not answered yet, but for its own copies.
        let first = u64::from(note.first > self.answered);
        let again = if note.last > self.answered { u64::from(note.tries) } else { 0 };
        if answered + first + again > self.sent {
            return AckAction::PassDuplicate;
        }
        AckAction::Suppress
    }

    /// SACK blocks name the other holes, if that is wanted.
    fn use_sack(&mut self, context: &mut Context<'_, P>, segment: &Segment) {
        let blocks = segment.options.sack.as_slice();
        if !context.config.use_sack || blocks.is_empty() {
            return;
        }
        // The hop keeps the order: what went before something that has arrived is lost.
        let mut arrived = self.latest_answered();
        for kept in self.cache.iter_mut() {
            kept.note.sacked |= blocks.iter().any(|(start, end)| {
                start.ahead_of(segment.ack) > 0
                    && kept.seq.ahead_of(*start) >= 0
                    && kept.end.ahead_of(*end) <= 0
            });
            if kept.note.sacked {
                arrived = arrived.max(kept.note.earliest);
            }
        }
        let before = self.sent;
        for kept in self.cache.iter_mut() {
            let note = &kept.note;
            let lost = !note.sacked && !note.primed && note.last < arrived;
            if lost && !note.by_sender && note.tries < context.config.tries {
                if note.tries == 0 {
                    self.backlog.lost();
                }
                resend(context, &mut self.sent, arrived, kept);
            }
        }
        if self.sent > before {
            self.arm(context);
        }
    }

    /// Whether this acknowledgement answers the timer's copy and so tells that what crossed before is
    /// lost, from the next hole on: what came below that came before the silence, which then swallowed
    /// the word of it.
    fn answers_probe(&mut self, now: Time, segment: &Segment) -> bool {
        let answers = |probe: &mut Probe| segment.ack.ahead_of(probe.end) >= 0;
        let Some(probe) = self.probe.take_if(answers) else { return false };
        let is_alone = segment.options.sack.is_empty();
        let lost = is_alone && self.estimator.allows(now.since(probe.at));
        if lost {
            self.lost = probe.answered + 1..probe.number;
        }
        lost
    }

    /// Sends at most so many segments again of those that are known to be lost.
    fn go_back(&mut self, context: &mut Context<'_, P>, most: usize) {
        if self.lost.is_empty() {
            return;
        }
        let answered = self.latest_answered();
        let lost = self.lost.clone();
        let is_lost = |kept: &&mut CachedSegment<P, Note>| {
            let note = &kept.note;
            lost.contains(&note.last) && !note.sacked && note.tries < context.config.tries
        };
        let before = self.sent;
        let mut again = self.cache.iter_mut().filter(is_lost);
        for kept in again.by_ref().take(most) {
            resend(context, &mut self.sent, answered, kept);
        }
        let all = again.next().is_none();
        drop(again);
        if all {
            self.lost = 0..0;
        }
        if self.sent > before {
            self.arm(context);
        }
    }

    /// Frees what is acknowledged; what it tells of the hop's round trip, if anything.
    fn free(&mut self, now: Time, ack: Seq) -> Option<Sample> {
        let mut next = self.progress.acked();
        let mut clean = self.progress.duplicates == 0;
        let mut at = None;
        // Something that went after the answered ones has brought the mobile what it waited for.
        let mut answered = self.latest_answered() + u64::from(next.is_some());
        while let Some(kept) = self.cache.pop_acknowledged(ack) {
            self.bytes = self.bytes.saturating_sub(kept.note.bytes);
            clean &= kept.note.clean && next.is_none_or(|next| kept.seq.ahead_of(next) <= 0);
            next = Some(kept.end);
            at = Some(kept.note.at);
            answered = answered.max(kept.note.earliest);
            if kept.note.tries > 0 && !self.estimator.allows(now.since(kept.note.at)) {
                // It came before it was sent again: the timer was too short.
                self.lost = 0..0;
            }
        }
        self.answered = answered.min(self.sent);
        Some(Sample { at: at?, clean: clean && next == Some(ack) })
    }

    /// Keeps a copy, if there is room and the link's queue is not full, nor one behind it as far as
    /// can be told. What the fixed host repairs itself it shall not have to repair twice.
    fn keep(&mut self, context: &mut Context<'_, P>, segment: &Segment, packet: &P, again: bool) {
        let seq = segment.seq;
        let bytes = u64::from(segment.header_len()) + u64::from(segment.len);
        let known = self.cache.starting(seq).map(|kept| kept.note);
        let freed = known.map_or(0, |note| note.bytes);
        let left = context.config.heed_backlog
            && !again
            && self.backlog.leaves(context.now, segment.end());
        let queue_full = (context.queue_full || left) && known.is_none();
        if queue_full || bytes > context.room.saturating_add(freed) {
            context.stats.left_out += 1;
            // An older copy than the fixed host's is not to be sent.
            if let Some(kept) = self.cache.starting(seq) {
                kept.note.by_sender = true;
            }
            return;
        }
        let by_sender = again && known.is_none_or(|note| !note.primed);
        let note = Note {
            first: self.sent,
            earliest: known.map_or(if again { 0 } else { self.sent }, |note| note.earliest),
            last: self.sent,
            at: context.now,
            tries: 0,
            by_sender,
            primed: false,
            clean: !again,
            sacked: known.is_some_and(|note| note.sacked),
            bytes,
        };
        match self.cache.store(seq, segment.end(), packet.clone(), note) {
            Stored::New => context.stats.cached += 1,
            Stored::Again => {
                if let Some(kept) = self.cache.starting(seq) {
                    kept.note = note;
                }
            }
            Stored::Refused => {
                context.stats.left_out += 1;
                return;
            }
        }
        self.bytes = self.bytes.saturating_sub(freed) + bytes;
    }

    /// Starts the timer for the segment that the mobile waits for, if it is to be had (SNP-6) and
    /// the mobile can take it. A measured one runs from that segment's own transmission, as there is
    /// one for each packet in the papers, but leaves a tick for a duplicate to come first.
    fn arm(&mut self, context: &Context<'_, P>) {
        let wanted = self.progress.acked();
        self.deadline = wanted_in(&mut self.cache, wanted)
            .filter(|_| !self.progress.is_closed())
            .filter(|kept| kept.note.tries < context.config.tries)
            .filter(|kept| wanted.is_some() || !kept.note.primed)
            .map(|kept| {
                let after = self.estimator.timeout(context.config);
                match context.config.timer {
                    Timer::Measured => {
                        (kept.note.at + after).max(context.now + context.config.tick)
                    }
                    Timer::Pinned(_) | Timer::Stock => context.now + after,
                }
            });
    }

    /// Snoop sees to the next hole itself.
    fn is_repairing(&mut self, config: &Config) -> bool {
        let wanted = self.progress.acked();
        wanted_in(&mut self.cache, wanted)
            .is_some_and(|kept| !kept.note.by_sender && kept.note.tries < config.tries)
    }

    /// Forgets what was sent, up to `seen`, and acknowledged; the hop's round trip stays.
    fn restart(&mut self, context: &mut Context<'_, P>, seen: Option<Seq>) {
        context.stats.evicted += self.cache.len() as u64;
        self.cache.clear();
        self.bytes = 0;
        self.progress = Progress::at(seen);
        self.backlog.drained();
        self.answered = self.sent;
        self.deadline = None;
        self.probe = None;
        self.lost = 0..0;
    }

    fn front_is(&self, seq: Seq) -> bool {
        self.cache.front().is_some_and(|kept| kept.seq == seq)
    }
}

/// The segment that the mobile waits for; the lowest, before it has acknowledged anything.
fn wanted_in<P>(
    cache: &mut Cache<P, Note>,
    wanted: Option<Seq>,
) -> Option<&mut CachedSegment<P, Note>> {
    match wanted {
        Some(ack) => cache.covering(ack),
        None => cache.front_mut(),
    }
}

/// Sends a copy as it came: its timestamp is the old one, so that the fixed host's measurement
/// includes the recovery, and its acknowledgement is one that the mobile has had. All that crossed
/// the hop up to `answered` has arrived or is lost.
fn resend<P: Packet>(
    context: &mut Context<'_, P>,
    sent: &mut u64,
    answered: u64,
    kept: &mut CachedSegment<P, Note>,
) {
    *sent += 1;
    let note = &mut kept.note;
    if note.last <= answered {
        note.earliest = *sent;
    }
    note.tries += 1;
    note.last = *sent;
    note.at = context.now;
    note.clean = false;
    note.primed = false;
    context.out.packet(Side::Mobile, kept.packet.clone());
    context.stats.local_retransmits += 1;
}
