pub(crate) mod held;
mod line;
mod plain;

use alloc::collections::{BTreeMap, VecDeque};

use lasthop_units::{Bytes, Duration, Rate, Seed, Stream, Time};

use self::held::{Delivery, Flying, OnAir, QueuedPacket, Refusal, Refused};
use self::line::Line;
use crate::loss_and_fades::{ErrorProcesses, Outcome};
use crate::pacer::{Pacer, Work};
use crate::pauses::Pauses;
use crate::stats::QueueMeter;
use crate::{ConfigError, Count, LinkConfig, LinkStats, Pacing, QueueLimit, Reorder, Trace};

/// Pauses walked through one by one in a single call; beyond, they go uncounted.
const MOST_PAUSES_PASSED: u32 = 1 << 16;

/// One direction of a radio: a drop-tail queue, a transmitter, and the air.
///
/// The link works lazily: every call first does what was due up to its `now`, at the exact times
/// at which it was due. So it does not matter how often it is called, and a caller needs to wake
/// only when something may come out. Calls must not go back in time; one that does counts as
/// coming at the time of the latest.
#[derive(Debug)]
pub struct Link<P> {
    now: Time,
    delay: Duration,
    mtu: u32,
    limit: QueueLimit,
    mark: Option<QueueLimit>,
    capacity: usize,
    mac_delay: Duration,
    mac_occupies: bool,
    pacer: Pacer,
    pauses: Pauses,
    errors: ErrorProcesses,
    reorder: Option<(Reorder, Stream)>,
    duplicate: Option<(f64, Stream)>,
    /// All packets are in the line, and `waiting`, `on_air` and `flying` are empty.
    in_line: bool,
    line: Line<P>,
    waiting: VecDeque<QueuedPacket<P>>,
    on_air: Option<OnAir<P>>,
    /// In order of arrival, which without reordering is the order of sending (LNK-11).
    flying: VecDeque<Flying<P>>,
    /// Those held back, by when they arrive and their number.
    late: BTreeMap<(Time, u64), Flying<P>>,
    late_number: u64,
    stats: LinkStats,
    queue: QueueMeter,
    /// The last transmission was hit, so that another hit prolongs its burst.
    in_burst: bool,
    silent_since: Option<Time>,
}

impl<P: Clone> Link<P> {
    /// A link whose random processes follow from `seed`, and whose schedules count from `now`.
    ///
    /// # Errors
    ///
    /// If the configuration describes no link.
    pub fn new(config: &LinkConfig, seed: Seed, now: Time) -> Result<Self, ConfigError> {
        Self::with_fades(config, seed, seed, now)
    }

    /// A link that takes its fades from a seed of their own, which another link may share (ERR-4).
    pub(crate) fn with_fades(
        config: &LinkConfig,
        seed: Seed,
        fades: Seed,
        now: Time,
    ) -> Result<Self, ConfigError> {
        config.validate()?;
        let duplicate = (config.duplicate > 0.0).then_some(config.duplicate);
        let mac = u64::try_from(config.mac_delay.as_nanos()).unwrap_or(u64::MAX);
        let delay = u64::try_from(config.delay.as_nanos()).unwrap_or(u64::MAX);
        let (before, flight) =
            if config.mac_occupies { (mac, delay) } else { (0, delay.saturating_add(mac)) };
        let mut link = Self {
            now,
            delay: config.delay,
            mtu: config.mtu,
            limit: config.queue,
            mark: config.ecn_mark,
            capacity: config.capacity as usize,
            mac_delay: config.mac_delay,
            mac_occupies: config.mac_occupies,
            pacer: Pacer::new(&config.pacing, now),
            pauses: Pauses::new(&config.pauses, now),
            errors: ErrorProcesses::new(&config.losses, seed, fades, now),
            reorder: config.reorder.map(|reorder| (reorder, seed.stream("reorder"))),
            duplicate: duplicate.map(|p| (p, seed.stream("duplicate"))),
            in_line: false,
            line: Line::new(before, flight),
            waiting: VecDeque::new(),
            on_air: None,
            flying: VecDeque::new(),
            late: BTreeMap::new(),
            late_number: 0,
            stats: LinkStats { since: now, ..LinkStats::default() },
            queue: QueueMeter::new(now),
            in_burst: false,
            silent_since: None,
        };
        link.advance(now);
        Ok(link)
    }

    /// Offers a packet of `size` bytes, an IP datagram's length, to the queue.
    ///
    /// # Errors
    ///
    /// Gives the packet back if it is dropped at once. It may still be lost later.
    #[inline]
    pub fn push(&mut self, now: Time, size: Bytes, packet: P) -> Result<(), Refused<P>> {
        if !self.in_line && !self.forms_line(now) {
            return self.push_in_general(size, packet);
        }
        self.push_line(now, size, packet)
    }

    /// Comes to the present, and lines up if the link is plain.
    #[inline(never)]
    fn forms_line(&mut self, now: Time) -> bool {
        self.advance(now);
        let plain = self.is_plain();
        if plain {
            self.line_up();
        }
        plain
    }

    #[inline(never)]
    fn push_in_general(&mut self, size: Bytes, packet: P) -> Result<(), Refused<P>> {
        self.stats.offered.add(size);
        if let Some(reason) = self.refusal(size) {
            self.count_refusal(reason, size);
            return Err(Refused { packet, reason });
        }
        let held = QueuedPacket { packet, size, entered: self.now };
        match &mut self.pacer {
            Pacer::Rate(_) if self.on_air.is_none() => self.start(held, self.now),
            Pacer::Rate(_) => self.wait(held),
            Pacer::Trace(clock) => {
                if self.on_air.is_none() && self.waiting.is_empty() {
                    clock.seek(self.now);
                }
                self.wait(held);
            }
        }
        Ok(())
    }

    /// Whether a packet of `size` bytes that is handed in at `now` meets so much waiting that it is
    /// to be marked ([`LinkConfig::ecn_mark`], CC-2): it shall not be one that the queue drops. To be
    /// asked right before [`Link::push`], for packets whose transport takes part; the carrier then
    /// sets the mark, so that a link that marks costs the packets nothing.
    #[inline]
    pub fn marks(&mut self, now: Time, size: Bytes) -> bool {
        self.mark.is_some_and(|mark| self.reaches(mark, now, size))
    }

    #[inline(never)]
    fn reaches(&mut self, mark: QueueLimit, now: Time, size: Bytes) -> bool {
        let refused = if self.in_line || self.forms_line(now) {
            self.now = self.now.max(now);
            self.line_refusal(size)
        } else {
            self.refusal(size)
        };
        let idle = match self.in_line {
            true => self.line.is_idle(self.now),
            false => self.on_air.is_none() && self.waiting.is_empty(),
        };
        let marks = refused.is_none() && !idle && self.exceeds(mark, size);
        if marks {
            self.stats.marked.add(size);
        }
        marks
    }

    /// When it is next worth calling [`Link::pop`]; nothing comes out before.
    #[inline]
    pub fn next_time(&self) -> Option<Time> {
        let next = if self.in_line { self.line.next_time() } else { self.next_in_general() };
        (next != Time::NEVER).then_some(next)
    }

    #[inline(never)]
    fn next_in_general(&self) -> Time {
        let flying = self.flying.front().map(|f| f.arrives);
        let late = self.late.keys().next().map(|&(arrives, _)| arrives);
        let arrival = flying.into_iter().chain(late).min();
        let transmission = match self.next_transmission() {
            Time::NEVER => Time::NEVER,
            at => at + self.delay + self.mac_latency(),
        };
        let coming = transmission.min(self.next_rate_change());
        arrival.unwrap_or(Time::NEVER).min(coming)
    }

    /// Takes out the earliest packet that has arrived by `now`. Call until `None`.
    #[inline]
    pub fn pop(&mut self, now: Time) -> Option<Delivery<P>> {
        if self.in_line { self.pop_line(now) } else { self.pop_in_general(now) }
    }

    #[inline(never)]
    fn pop_in_general(&mut self, now: Time) -> Option<Delivery<P>> {
        let at = self.ready(now)?;
        let flying = if self.flying.front().is_some_and(|f| f.arrives == at) {
            self.flying.pop_front()?
        } else {
            self.late.pop_first()?.1
        };
        self.stats.delivered.add(flying.size);
        if flying.corrupted {
            self.stats.corrupted.add(flying.size);
        }
        Some(Delivery {
            packet: flying.packet,
            size: flying.size,
            entered: flying.entered,
            at,
            corrupted: flying.corrupted,
            duplicate: flying.duplicate,
        })
    }

    /// [`Link::pop`] and [`Link::next_time`] in one, for whoever needs of the packet only whether it
    /// is corrupted; [`Time::NEVER`] if nothing is to come.
    #[inline]
    pub fn pop_packet(&mut self, now: Time) -> (Option<(P, bool)>, Time) {
        if self.in_line { self.pop_line_packet(now) } else { self.pop_packet_in_general(now) }
    }

    #[inline(never)]
    fn pop_packet_in_general(&mut self, now: Time) -> (Option<(P, bool)>, Time) {
        let delivery = self.pop_in_general(now);
        (delivery.map(|delivery| (delivery.packet, delivery.corrupted)), self.next_in_general())
    }

    /// When the packet arrived that [`Link::pop`] would give.
    pub(crate) fn ready(&mut self, now: Time) -> Option<Time> {
        if self.in_line {
            self.now = self.now.max(now);
            return Some(self.line.next_time()).filter(|&at| at <= self.now && at != Time::NEVER);
        }
        self.advance(now);
        let flying = self.flying.front().map(|f| f.arrives);
        let late = self.late.keys().next().map(|&(arrives, _)| arrives);
        flying.into_iter().chain(late).min().filter(|&at| at <= self.now)
    }

    /// Changes the rate from `now` on, in place of any steps or trace.
    pub fn set_rate(&mut self, now: Time, rate: Rate) {
        self.set_pacing(now, &Pacing::Rate(rate));
    }

    /// Changes the pacing from `now` on; its times count from `now`. A packet on air keeps what
    /// of it was sent.
    pub fn set_pacing(&mut self, now: Time, pacing: &Pacing) {
        self.advance(now);
        self.account_sent(self.now);
        self.pacer = Pacer::new(pacing, self.now);
        self.reschedule(self.now);
        if self.on_air.is_none() && matches!(self.pacer, Pacer::Rate(_)) {
            self.start_next(self.now);
        }
    }

    /// Makes the radio silent from `now` on, as a scheduled pause would (LNK-7, LNK-12).
    pub fn pause(&mut self, now: Time, duration: Duration) {
        self.advance(now);
        self.pauses.order(self.now, duration);
        self.update_silence(self.now);
    }

    /// Ends a silence begun by [`Link::pause`]; scheduled ones go on.
    pub fn resume(&mut self, now: Time) {
        self.advance(now);
        self.pauses.lift(self.now);
        self.update_silence(self.now);
    }

    /// Whether the radio is silent at `now`.
    pub fn is_silent(&mut self, now: Time) -> bool {
        self.advance(now);
        self.pauses.is_on()
    }

    /// Packets waiting, on air and in flight, arrived ones included until they are taken out.
    pub fn held(&self) -> usize {
        self.line.len()
            + self.waiting.len()
            + usize::from(self.on_air.is_some())
            + self.flying.len()
            + self.late.len()
    }

    /// What waits for the transmitter at `now`; the packet on air does not.
    pub fn queued(&mut self, now: Time) -> Count {
        self.advance(now);
        Count { packets: u64::from(self.queue.packets()), bytes: self.queue.bytes() }
    }

    /// Whether no more than one packet of `size` bytes fits into the queue: where a helper in front
    /// of it no longer hides a loss, as it may be one of the queue's own (SNP-7, as ns-2 has it).
    pub fn is_nearly_full(&mut self, now: Time, size: Bytes) -> bool {
        let queued = self.queued(now);
        match self.limit {
            QueueLimit::Packets(limit) => queued.packets + 1 >= u64::from(limit),
            QueueLimit::Bytes(limit) => queued.bytes + 2 * size.get() > limit.get(),
            QueueLimit::Time(limit) => {
                let rate = self.pacer.rate(self.now);
                rate.time_for(Bytes::new(queued.bytes + size.get())) > limit
            }
        }
    }

    /// What the link did since it was made, or since the last reset.
    pub fn stats(&mut self, now: Time) -> LinkStats {
        self.advance(now);
        self.queue.integrate(self.now);
        let (fades, faded) = self.errors.fade_counts(self.now);
        let silent = self.silent_since.map_or(Duration::ZERO, |since| self.now.since(since));
        LinkStats {
            until: self.now,
            fades,
            faded,
            silent: self.stats.silent + silent,
            queue: self.queue.stats,
            held: self.held() as u64,
            ..self.stats
        }
    }

    /// Begins to count anew.
    pub fn reset_stats(&mut self, now: Time) {
        self.advance(now);
        self.errors.restart_counts(self.now);
        self.queue.restart(self.now);
        self.silent_since = self.silent_since.map(|_| self.now);
        self.stats = LinkStats { since: self.now, ..LinkStats::default() };
    }

    fn refusal(&mut self, size: Bytes) -> Option<Refusal> {
        if self.pauses.is_on() {
            return Some(Refusal::Silent);
        }
        if size.get() > u64::from(self.mtu) {
            return Some(Refusal::TooBig);
        }
        if self.held() >= self.capacity {
            return Some(Refusal::Capacity);
        }
        let idle = self.on_air.is_none() && self.waiting.is_empty();
        (!idle && self.exceeds(self.limit, size)).then_some(Refusal::QueueFull)
    }

    /// What waits leaves no room for a packet of `size` in a queue of this limit.
    #[inline(never)]
    fn exceeds(&mut self, limit: QueueLimit, size: Bytes) -> bool {
        match limit {
            QueueLimit::Packets(n) => self.queue.packets() >= n,
            QueueLimit::Bytes(n) => self.queue.bytes() + size.get() > n.get(),
            QueueLimit::Time(limit) => {
                let rate = self.pacer.rate(self.now);
                rate.time_for(Bytes::new(self.queue.bytes())) > limit
            }
        }
    }

    fn count_refusal(&mut self, reason: Refusal, size: Bytes) {
        let dropped = &mut self.stats.dropped;
        match reason {
            Refusal::QueueFull => dropped.queue.add(size),
            Refusal::TooBig => dropped.oversize.add(size),
            Refusal::Silent => dropped.silence.add(size),
            Refusal::Capacity => dropped.capacity.add(size),
        }
    }

    #[inline]
    fn count_sent(&mut self, size: Bytes, air_time: Duration) {
        self.stats.sent.add(size);
        self.stats.air_time += air_time;
    }

    /// Does all that was due up to `now`, in order.
    #[inline(never)]
    fn advance(&mut self, now: Time) {
        let now = now.max(self.now);
        if self.in_line {
            self.dissolve_line(now);
        }
        let mut pauses_passed = 0;
        loop {
            let silence = self.pauses.next_change();
            let rate = self.next_rate_change();
            let at = self.next_transmission().min(silence).min(rate);
            if at > now || at == Time::NEVER {
                break;
            }
            if at == silence {
                // The first pause emptied the link, so that the others need no visit each.
                let at = if pauses_passed < MOST_PAUSES_PASSED { at } else { now };
                pauses_passed += 1;
                self.pauses.update(at);
                self.update_silence(at);
            } else if at == rate {
                self.account_sent(at);
                self.reschedule(at);
            } else {
                self.transmit(at);
            }
        }
        self.now = now;
    }

    fn next_transmission(&self) -> Time {
        match (&self.pacer, &self.on_air) {
            (Pacer::Rate(_), Some(on_air)) => on_air.due,
            (Pacer::Rate(_), None) => Time::NEVER,
            (Pacer::Trace(_), None) if self.waiting.is_empty() => Time::NEVER,
            (Pacer::Trace(clock), _) => clock.next(),
        }
    }

    /// Matters only while there is something on air; otherwise the rate is looked up at the start.
    fn next_rate_change(&self) -> Time {
        match (&self.pacer, &self.on_air) {
            (Pacer::Rate(clock), Some(_)) => clock.until(),
            _ => Time::NEVER,
        }
    }

    fn mac_latency(&self) -> Duration {
        if self.mac_occupies { Duration::ZERO } else { self.mac_delay }
    }

    fn wait(&mut self, held: QueuedPacket<P>) {
        self.queue.enter(self.now, held.size);
        self.waiting.push_back(held);
    }

    fn start_next(&mut self, now: Time) {
        if let Some(held) = self.waiting.pop_front() {
            self.queue.dequeue(now, held.size);
            self.start(held, now);
        }
    }

    fn start(&mut self, held: QueuedPacket<P>, now: Time) {
        self.queue.served(now.since(held.entered));
        let from = if self.mac_occupies { now + self.mac_delay } else { now };
        let work = Work::of(held.size);
        self.on_air = Some(OnAir { held, started: now, work, from, due: Time::NEVER });
        self.reschedule(now);
    }

    /// Writes off what has been sent of the packet on air by `now`.
    fn account_sent(&mut self, now: Time) {
        let Some(on_air) = &mut self.on_air else { return };
        if let Pacer::Rate(clock) = &self.pacer {
            on_air.work = on_air.work.after(clock.present(), now.since(on_air.from));
        }
        on_air.from = on_air.from.max(now);
    }

    /// Works out when the packet on air will have left, at the rate that holds from `now` on.
    fn reschedule(&mut self, now: Time) {
        let Some(on_air) = &mut self.on_air else { return };
        on_air.due = match &mut self.pacer {
            Pacer::Rate(clock) => on_air.work.done_at(clock.at(now), on_air.from),
            Pacer::Trace(_) => Time::NEVER,
        };
    }

    fn transmit(&mut self, now: Time) {
        match &mut self.pacer {
            Pacer::Rate(_) => {
                self.finish(now);
                self.start_next(now);
            }
            Pacer::Trace(clock) => {
                clock.use_up();
                self.use_opportunity(now);
            }
        }
    }

    /// Several small packets may share an opportunity, and a long one may need several.
    fn use_opportunity(&mut self, now: Time) {
        let mut budget = Work::of(Trace::OPPORTUNITY);
        while !budget.is_done() {
            if self.on_air.is_none() {
                self.start_next(now);
            }
            let Some(on_air) = &mut self.on_air else { return };
            on_air.work.consume(&mut budget);
            if on_air.work.is_done() {
                self.finish(now);
            }
        }
    }

    /// The last bit has left: the packet is in the air, or lost.
    fn finish(&mut self, now: Time) {
        let Some(OnAir { held, started, .. }) = self.on_air.take() else { return };
        self.count_sent(held.size, now.since(started));
        let outcome = self.errors.judge(started, now);
        self.count_outcome(outcome, held.size);
        if outcome != Outcome::Lost {
            self.fly(held, now, outcome == Outcome::Corrupted);
        }
    }

    fn count_outcome(&mut self, outcome: Outcome, size: Bytes) {
        let hit = outcome != Outcome::Intact;
        if hit {
            self.stats.hit.add(size);
            self.stats.bursts += u64::from(!self.in_burst);
        }
        if outcome == Outcome::Lost {
            self.stats.dropped.loss.add(size);
        }
        self.in_burst = hit;
    }

    fn fly(&mut self, held: QueuedPacket<P>, now: Time, corrupted: bool) {
        let QueuedPacket { packet, size, entered } = held;
        let arrives = now + self.delay + self.mac_latency();
        let flying = Flying { packet, size, entered, arrives, corrupted, duplicate: false };
        let copy = self.is_duplicated().then(|| Flying { duplicate: true, ..flying.clone() });
        if let Some(extra) = self.held_back() {
            self.stats.reordered.add(size);
            let flying = Flying { arrives: arrives + extra, ..flying };
            self.late.insert((flying.arrives, self.late_number), flying);
            self.late_number += 1;
        } else {
            self.flying.push_back(flying);
        }
        if let Some(copy) = copy.filter(|_| self.held() < self.capacity) {
            self.stats.duplicated.add(size);
            self.flying.push_back(copy);
        }
    }

    fn is_duplicated(&mut self) -> bool {
        self.duplicate.as_mut().is_some_and(|(p, stream)| stream.chance(*p))
    }

    fn held_back(&mut self) -> Option<Duration> {
        let (reorder, stream) = self.reorder.as_mut()?;
        stream.chance(reorder.probability).then_some(reorder.extra)
    }

    fn update_silence(&mut self, now: Time) {
        match (self.pauses.is_on(), self.silent_since) {
            (true, None) => {
                self.silent_since = Some(now);
                self.stats.pauses += 1;
                self.drop_everything(now);
            }
            (false, Some(since)) => {
                self.silent_since = None;
                self.stats.silent += now.since(since);
            }
            _ => {}
        }
    }

    /// Whatever waits, is on air or has not arrived is gone; what has arrived stays.
    fn drop_everything(&mut self, now: Time) {
        let dropped = &mut self.stats.dropped.silence;
        self.waiting.drain(..).for_each(|held| dropped.add(held.size));
        self.queue.clear(now);
        if let Some(on_air) = self.on_air.take() {
            self.stats.air_time += now.since(on_air.started);
            dropped.add(on_air.held.size);
        }
        while self.flying.back().is_some_and(|f| f.arrives >= now) {
            self.flying.pop_back().iter().for_each(|flying| dropped.add(flying.size));
        }
        for flying in self.late.split_off(&(now, 0)).values() {
            dropped.add(flying.size);
        }
    }
}
