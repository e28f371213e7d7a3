//! The rule: what becomes of a segment of a held connection on its way to the fixed host, and back.
//!
//! Sequence numbers are modulo 2^32, and one is after another if it is less than 2^31 ahead (RFC 9293 section 3.4).

use lasthop_wire::tcp::{Flags, Seq};

/// Words of 64 bits that a [`Slot`] takes in memory: the first eight are written by the base alone, the others by the
/// filter alone, except before the slot is live.
pub const WORDS: usize = 16;

/// The urgent pointer of an acknowledgement that the base sends itself, without the flag that would give it a meaning.
/// The kernel's own segments have zero there then.
pub const INJECTED: u16 = 0x1a57;

/// An acknowledgement that says nothing new is let out this long after the last such, nanoseconds: often enough for who
/// asks whether anybody is there, and too seldom to look like a loss (three in a row, RFC 5681 section 3.2).
pub const REPEAT_NS: u64 = 200_000_000;

/// What the base wants of a connection: word 0.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Control {
    /// The slot is in use. Nothing is done for a connection whose slot is not.
    pub live: bool,
    /// The acknowledgement number is held at what is [`Told`].
    pub hold: bool,
    /// FIN and RST may leave.
    pub may_end: bool,
    /// Nothing may leave.
    pub mute: bool,
    /// The handshake does not end yet: a pure acknowledgement of the kernel's does not leave.
    pub opening: bool,
    /// By what the kernel's window field is shifted (RFC 7323 section 2.2), at most 14; none while it is not known,
    /// zero if the ends did not agree on one.
    pub window_scale: Option<u8>,
}

impl Control {
    const LIVE: u64 = 1;
    const HOLD: u64 = 1 << 1;
    const MAY_END: u64 = 1 << 2;
    const MUTE: u64 = 1 << 3;
    const SCALE_KNOWN: u64 = 1 << 4;
    const OPENING: u64 = 1 << 5;
    const SCALE: u32 = 8;
    /// RFC 7323 section 2.3.
    const SCALE_MAX: u8 = 14;

    /// As the word in memory: flags in bits 0 to 5, the window's scale from bit 8 on.
    pub fn word(self) -> u64 {
        let flag = |set: bool, bit: u64| if set { bit } else { 0 };
        let scale = self.window_scale.unwrap_or(0).min(Self::SCALE_MAX);
        flag(self.live, Self::LIVE)
            | flag(self.hold, Self::HOLD)
            | flag(self.may_end, Self::MAY_END)
            | flag(self.mute, Self::MUTE)
            | flag(self.window_scale.is_some(), Self::SCALE_KNOWN)
            | flag(self.opening, Self::OPENING)
            | u64::from(scale) << Self::SCALE
    }

    /// What the word says.
    pub fn of_word(word: u64) -> Self {
        let has = |bit| word & bit != 0;
        let scale = ((word >> Self::SCALE) as u8 & 15).min(Self::SCALE_MAX);
        Self {
            live: has(Self::LIVE),
            hold: has(Self::HOLD),
            may_end: has(Self::MAY_END),
            mute: has(Self::MUTE),
            opening: has(Self::OPENING),
            window_scale: has(Self::SCALE_KNOWN).then_some(scale),
        }
    }
}

/// How far the fixed host may be acknowledged: word 1. The base writes both in one step.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Told {
    /// Bytes since the fixed host's first one, modulo 2^32; its end counts as one. Lower half.
    pub offset: u32,
    /// The clock of the fixed host's that is echoed with it (TSecr, RFC 7323 section 3.2): that which came with the
    /// last of these bytes, so that the round trip that the fixed host measures includes the hop. Upper half; zero
    /// leaves what the kernel echoes.
    pub echo: u32,
}

impl Told {
    /// As the word in memory.
    pub fn word(self) -> u64 {
        halves(self.offset, self.echo)
    }

    /// What the word says.
    pub fn of_word(word: u64) -> Self {
        let (offset, echo) = (word as u32, (word >> 32) as u32);
        Self { offset, echo }
    }
}

/// What of [`Seen`] is known: bits in the upper half of word 8.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Known {
    /// [`base`](Seen::base): bit 0.
    pub base: bool,
    /// What the kernel's latest segment said, but its window: bit 1.
    pub kernel: bool,
    /// [`edge`](Seen::edge): bit 2.
    pub edge: bool,
    /// [`let_out`](Seen::let_out): bit 3.
    pub let_out: bool,
}

impl Known {
    fn bits(self) -> u32 {
        let bit = |set: bool, n: u32| u32::from(set) << n;
        bit(self.base, 0) | bit(self.kernel, 1) | bit(self.edge, 2) | bit(self.let_out, 3)
    }

    fn of_bits(bits: u32) -> Self {
        let has = |n: u32| bits >> n & 1 != 0;
        Self { base: has(0), kernel: has(1), edge: has(2), let_out: has(3) }
    }
}

/// What the filter has seen of a connection: words 8 to 14, each of two halves but the time. A base that takes a
/// connection over may fill in what it knows before the slot is live.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Seen {
    /// Which of the following mean something. Word 8, upper half.
    pub known: Known,
    /// The sequence number of the fixed host's first byte, offset 0. Word 8, lower half.
    pub base: u32,
    /// The kernel's own acknowledgement number. Word 9, lower half.
    pub kernel_ack: u32,
    /// TSecr beside it. Word 9, upper half.
    pub kernel_echo: u32,
    /// The sequence number behind everything that the kernel has sent. Word 10, lower half.
    pub next_seq: u32,
    /// TSval of its latest segment. Word 10, upper half.
    pub next_value: u32,
    /// The right edge of the window that the kernel offers. Word 11, lower half.
    pub edge: u32,
    /// The last acknowledgement number that was let out. Word 11, upper half.
    pub let_out: u32,
    /// When an acknowledgement that says nothing new was last let out, nanoseconds. Word 12.
    pub repeated: u64,
    /// Segments that were let out with a lower acknowledgement number. Word 13, lower half; this and the following
    /// are modulo 2^32.
    pub lowered: u32,
    /// Acknowledgements that were dropped, since they would say nothing new or show a hole where there is none. Word
    /// 13, upper half.
    pub swallowed: u32,
    /// Segments that were dropped since they would end the connection, or nothing may leave. Word 14, lower half.
    pub ended: u32,
    /// Acknowledgements of the base's own that were let out. Word 14, upper half.
    pub injected: u32,
    /// Segments of the fixed host's that acknowledged what the base before had sent, and were cut to what this one has.
    /// Word 15, lower half.
    pub cut: u32,
}

/// One held connection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Slot {
    /// What the base wants.
    pub control: Control,
    /// How far may be acknowledged.
    pub told: Told,
    /// Of a connection that was taken over, the sequence number behind everything that the base before may have sent: word
    /// 2, with a one in its upper half.
    pub inherited: Option<u32>,
    /// What the filter has seen.
    pub seen: Seen,
}

fn halves(lower: u32, upper: u32) -> u64 {
    u64::from(lower) | u64::from(upper) << 32
}

impl Slot {
    /// As it is in memory.
    pub fn words(&self) -> [u64; WORDS] {
        let Seen { known, base, kernel_ack, kernel_echo, next_seq, next_value, .. } = self.seen;
        let Seen { edge, let_out, repeated, lowered, swallowed, ended, injected, cut, .. } =
            self.seen;
        let mut words = [0; WORDS];
        words[0] = self.control.word();
        words[1] = self.told.word();
        words[2] = self.inherited.map_or(0, |seq| halves(seq, 1));
        words[8] = halves(base, known.bits());
        words[9] = halves(kernel_ack, kernel_echo);
        words[10] = halves(next_seq, next_value);
        words[11] = halves(edge, let_out);
        words[12] = repeated;
        words[13] = halves(lowered, swallowed);
        words[14] = halves(ended, injected);
        words[15] = halves(cut, 0);
        words
    }

    /// What is in memory.
    pub fn of_words(words: &[u64; WORDS]) -> Self {
        let (lower, upper) = (|n: usize| words[n] as u32, |n: usize| (words[n] >> 32) as u32);
        let seen = Seen {
            known: Known::of_bits(upper(8)),
            base: lower(8),
            kernel_ack: lower(9),
            kernel_echo: upper(9),
            next_seq: lower(10),
            next_value: upper(10),
            edge: lower(11),
            let_out: upper(11),
            repeated: words[12],
            lowered: lower(13),
            swallowed: upper(13),
            ended: lower(14),
            injected: upper(14),
            cut: lower(15),
        };
        let (control, told) = (Control::of_word(words[0]), Told::of_word(words[1]));
        let inherited = (upper(2) != 0).then(|| lower(2));
        Self { control, told, inherited, seen }
    }
}

/// What the rule looks at of a segment (RFC 9293 section 3.1), and may change.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Segment {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// The window field, not scaled.
    pub window: u16,
    /// The control bits.
    pub flags: Flags,
    /// The urgent pointer.
    pub urgent: u16,
    /// Bytes of payload; many segments that are still one packet (TSO) count as one.
    pub payload: u32,
    /// TSval and TSecr (RFC 7323 section 3.2), if the option is there.
    pub timestamps: Option<(u32, u32)>,
    /// Whether there is a SACK option (RFC 2018 section 3).
    pub sack: bool,
}

impl Segment {
    /// It carries nothing.
    fn is_pure(&self) -> bool {
        self.payload == 0 && !self.flags.contains(Flags::FIN)
    }
}

/// What becomes of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It leaves as it is.
    Pass,
    /// It does not leave.
    Drop,
    /// It leaves changed. If it has no SACK option now where it had one, NOPs take its place.
    Rewrite(Segment),
}

/// How far `a` is ahead of `b`.
fn ahead(a: u32, b: u32) -> i32 {
    Seq(a).ahead_of(Seq(b))
}

/// What becomes of a segment that the kernel, or the base itself, sends to the fixed host at `now_ns`, nanoseconds of
/// any clock.
///
/// While [`Control::hold`] is set no number beyond [`Told`] is acknowledged, unless one was before. As long as that
/// and the kernel's own numbers only advance, so do the acknowledgement number that the fixed host sees and, up to the
/// rounding of the window's scale, the right edge of its window.
pub fn filter(slot: &mut Slot, segment: &Segment, now_ns: u64) -> Verdict {
    let (control, flags) = (slot.control, segment.flags);
    if !control.live {
        return Verdict::Pass;
    }
    // Another base has the connection, or is about to.
    if control.mute {
        return slot.seen.end();
    }
    // It acknowledges no data, and its window is not scaled (RFC 7323 section 2.2).
    if flags.contains(Flags::SYN) {
        return Verdict::Pass;
    }
    // A process that is killed ends its connections, which are to live on elsewhere.
    if flags.intersects(Flags::FIN.with(Flags::RST)) && !control.may_end {
        return slot.seen.end();
    }
    // What follows is about acknowledgements; that of a reset is not heeded (RFC 9293 section 3.10.7.4).
    if flags.contains(Flags::RST) || !flags.contains(Flags::ACK) {
        return Verdict::Pass;
    }
    if segment.urgent == INJECTED && !flags.contains(Flags::URG) {
        return inject(slot, segment);
    }
    let is_repeat = slot.seen.note(control, segment);
    // The handshake's third segment ends the first round trip that the fixed host measures, which is to be the whole one.
    if control.opening && segment.is_pure() {
        return slot.seen.swallow();
    }
    match slot.bound() {
        Some(bound) if ahead(segment.ack, bound) > 0 => {
            lower(slot, segment, bound, is_repeat, now_ns)
        }
        _ => {
            slot.seen.lets_out(segment.ack);
            Verdict::Pass
        }
    }
}

/// What the kernel is to read as the acknowledgement number of a segment that the fixed host sends.
///
/// Bytes that the base before had sent may arrive after the fixed host was asked what it has, and it acknowledges them and
/// what it held behind them. A kernel that has not sent them heeds nothing of such a segment (RFC 9293 section 3.10.7.4), so
/// that the connection would stand still for good: it reads that all which it has sent is acknowledged, which is true.
pub fn receive(slot: &mut Slot, ack: u32) -> u32 {
    let Slot { control, inherited, seen, .. } = slot;
    match inherited {
        Some(most)
            if control.live
                && seen.known.kernel
                && ahead(ack, seen.next_seq) > 0
                && ahead(ack, *most) <= 0 =>
        {
            seen.cut = seen.cut.wrapping_add(1);
            seen.next_seq
        }
        _ => ack,
    }
}

/// An acknowledgement of the base's own: it says only that there is one, and the rest is filled in here, where what
/// the kernel sends passes too.
fn inject(slot: &mut Slot, segment: &Segment) -> Verdict {
    let (told, seen) = (slot.told, &mut slot.seen);
    // A sequence number that is not the next one would be answered, not heeded (RFC 9293 section 3.10.7.4).
    if !seen.known.base || !seen.known.kernel {
        return seen.swallow();
    }
    let held = seen.base.wrapping_add(told.offset);
    let ack = if slot.control.hold { held } else { seen.kernel_ack };
    // The same number once more looks like a loss (RFC 5681 section 3.2); one that goes back is not heeded.
    if seen.known.let_out && ahead(ack, seen.let_out) <= 0 {
        return seen.swallow();
    }
    let window = match slot.control.window_scale {
        Some(scale) if seen.known.edge => {
            // The edge is behind if more is acknowledged than the kernel has offered room for.
            let room = ahead(seen.edge, ack).max(0).cast_unsigned();
            u16::try_from(room >> scale).unwrap_or(u16::MAX)
        }
        _ => segment.window,
    };
    let echo = if told.echo == 0 { seen.kernel_echo } else { told.echo };
    let timestamps = segment.timestamps.map(|_| (seen.next_value, echo));
    seen.injected = seen.injected.wrapping_add(1);
    seen.lets_out(ack);
    Verdict::Rewrite(Segment { seq: seen.next_seq, ack, window, urgent: 0, timestamps, ..*segment })
}

/// A segment of the kernel's that acknowledges more than may be.
fn lower(slot: &mut Slot, segment: &Segment, ack: u32, is_repeat: bool, now_ns: u64) -> Verdict {
    let (told, seen) = (slot.told, &mut slot.seen);
    let is_pure = segment.is_pure();
    // Blocks above a held number would show a hole where there is none.
    if is_pure && segment.sack {
        return seen.swallow();
    }
    // The same number once more looks like a loss, but for one from time to time that answers who asks: what the
    // kernel repeats of itself is an answer, to a keep-alive or a probe of the window.
    if is_pure && seen.known.let_out && ahead(ack, seen.let_out) <= 0 {
        let since = now_ns.wrapping_sub(seen.repeated).cast_signed();
        if !is_repeat || since < REPEAT_NS.cast_signed() {
            return seen.swallow();
        }
        seen.repeated = now_ns;
    }
    // The window's right edge stays where the kernel has it, as far as the field reaches.
    let window = slot.control.window_scale.map_or(segment.window, |scale| {
        let raise = segment.ack.wrapping_sub(ack) >> scale;
        let window = raise.saturating_add(segment.window.into());
        u16::try_from(window).unwrap_or(u16::MAX)
    });
    let echo = |kernels: u32| if told.echo == 0 { kernels } else { told.echo };
    let timestamps = segment.timestamps.map(|(value, kernels)| (value, echo(kernels)));
    seen.lowered = seen.lowered.wrapping_add(1);
    seen.lets_out(ack);
    Verdict::Rewrite(Segment { ack, window, timestamps, sack: false, ..*segment })
}

impl Slot {
    /// What a segment of the kernel's may acknowledge at most: what is told, or what the fixed host knows already.
    fn bound(&self) -> Option<u32> {
        let Seen { known, base, let_out, .. } = self.seen;
        let told = base.wrapping_add(self.told.offset);
        let is_known = known.let_out && ahead(let_out, told) > 0;
        self.control.hold.then_some(if is_known { let_out } else { told })
    }
}

impl Seen {
    /// Notes what the kernel says. Whether its acknowledgement number is that of its segment before.
    fn note(&mut self, control: Control, segment: &Segment) -> bool {
        // Nothing has been received yet when the kernel ends its handshake.
        if !self.known.base {
            self.base = segment.ack;
        }
        let is_repeat = self.known.kernel && self.kernel_ack == segment.ack;
        self.kernel_ack = segment.ack;
        let end = u32::from(segment.flags.contains(Flags::FIN));
        let next = segment.seq.wrapping_add(segment.payload).wrapping_add(end);
        // Retransmissions and probes begin before it.
        if !self.known.kernel || ahead(next, self.next_seq) > 0 {
            self.next_seq = next;
        }
        if let Some((value, echo)) = segment.timestamps {
            (self.next_value, self.kernel_echo) = (value, echo);
        }
        if let Some(scale) = control.window_scale {
            self.edge = segment.ack.wrapping_add(u32::from(segment.window) << scale);
            self.known.edge = true;
        }
        (self.known.base, self.known.kernel) = (true, true);
        is_repeat
    }

    /// The fixed host will know this number.
    fn lets_out(&mut self, ack: u32) {
        if !self.known.let_out || ahead(ack, self.let_out) > 0 {
            self.let_out = ack;
        }
        self.known.let_out = true;
    }

    fn swallow(&mut self) -> Verdict {
        self.swallowed = self.swallowed.wrapping_add(1);
        Verdict::Drop
    }

    fn end(&mut self) -> Verdict {
        self.ended = self.ended.wrapping_add(1);
        Verdict::Drop
    }
}
