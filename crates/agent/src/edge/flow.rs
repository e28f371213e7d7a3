//! What the headers of one connection tell.

use lasthop_units::Time;
use lasthop_wire::tcp::{Flags, Options, SackBlocks, Segment, Seq, Timestamps};

use crate::table::Table;
use crate::{Side, Tcp};

/// The widest shift of a window (RFC 7323 section 2.3).
const SHIFT_MAX: u8 = 14;

/// The latest that one end has acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ack {
    pub(super) ack: Seq,
    /// The window field, as segments without SYN state it.
    pub(super) window: u16,
    stamps: Option<Timestamps>,
    /// What it holds above.
    sack: SackBlocks,
}

/// What one end has sent.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct FlowEnd {
    /// After the highest byte that it has sent.
    pub(super) next: Option<Seq>,
    pub(super) last: Option<Ack>,
    /// After its FIN.
    fin: Option<Seq>,
    /// Its SYN.
    pub(super) syn: Option<Syn>,
    /// The longest payload that it has sent.
    pub(super) longest: u32,
}

/// What a SYN offers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Syn {
    /// It answers another.
    answers: bool,
    scale: Option<u8>,
    pub(super) mss: Option<u16>,
    pub(super) timestamps: bool,
}

/// Both ends of a connection.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Seen {
    pub(super) fixed: FlowEnd,
    pub(super) mobile: FlowEnd,
}

/// A connection and what a helper keeps of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Flow<S> {
    pub(super) seen: Seen,
    pub(super) state: S,
}

impl<S: Default> Flow<S> {
    /// The connection of a segment, which begins to be known if it is not. None is after a reset.
    pub(super) fn of<'a>(
        flows: &'a mut Table<Self>,
        now: Time,
        from: Side,
        tcp: &Tcp,
    ) -> Option<&'a mut Self> {
        let connection = tcp.connection(from);
        let flags = tcp.segment.flags;
        if flags.contains(Flags::RST) {
            flows.remove(&connection);
            return None;
        }
        let begins = flags.contains(Flags::SYN) && !flags.contains(Flags::ACK);
        if begins || flows.peek(&connection).is_none() {
            flows.insert(now, connection, Self::default());
        }
        flows.get(now, &connection)
    }
}

impl Seen {
    pub(super) fn end(&self, side: Side) -> &FlowEnd {
        match side {
            Side::Fixed => &self.fixed,
            Side::Mobile => &self.mobile,
        }
    }

    pub(super) fn observe(&mut self, from: Side, segment: &Segment) {
        match from {
            Side::Fixed => self.fixed.observe(segment),
            Side::Mobile => self.mobile.observe(segment),
        }
    }

    /// How far the window fields of an end are shifted; none if that is not known.
    pub(super) fn shift(&self, of: Side) -> Option<u8> {
        let (own, other) = (self.end(of).syn, self.end(of.other()).syn);
        let shift = match (own, other) {
            (Some(own), Some(other)) => own.scale.filter(|_| other.scale.is_some()).unwrap_or(0),
            // Whoever answers offers a scale only if he was offered one (RFC 7323 section 2.2).
            (Some(own), None) if own.answers => own.scale.unwrap_or(0),
            (None, Some(other)) if other.answers && other.scale.is_none() => 0,
            _ => return None,
        };
        Some(shift.min(SHIFT_MAX))
    }

    /// What an acknowledgement of the mobile's is. To be asked before it is [observed](Self::observe).
    pub(super) fn kind(&self, segment: &Segment) -> AckKind {
        let Some(last) = self.mobile.last else { return AckKind::New };
        let ahead = segment.ack.ahead_of(last.ack);
        if ahead != 0 {
            return if ahead > 0 { AckKind::New } else { AckKind::Other };
        }
        let outstanding = self.fixed.next.is_some_and(|next| next.ahead_of(segment.ack) > 0);
        if segment.len > 0 || is(segment, Flags::FIN) || !outstanding {
            return AckKind::Other;
        }
        let same = match segment.options.sack.is_empty() {
            true => segment.window == last.window,
            false => !held_above(segment).is_empty(),
        };
        if same { AckKind::Duplicate } else { AckKind::Other }
    }

    /// All that an end had to send is acknowledged, its FIN too.
    pub(super) fn has_ended(&self, sender: Side) -> bool {
        match (self.end(sender).fin, self.end(sender.other()).last) {
            (Some(fin), Some(last)) => last.ack.ahead_of(fin) >= 0,
            _ => false,
        }
    }
}

impl FlowEnd {
    fn observe(&mut self, segment: &Segment) {
        let end = segment.end();
        if self.next.is_none_or(|next| end.ahead_of(next) > 0) || is(segment, Flags::SYN) {
            self.next = Some(end);
        }
        self.longest = self.longest.max(segment.len);
        if is(segment, Flags::FIN) {
            self.fin = Some(end);
        }
        if is(segment, Flags::SYN) {
            self.syn = Some(Syn {
                answers: is(segment, Flags::ACK),
                scale: segment.options.window_scale,
                mss: segment.options.mss,
                timestamps: segment.options.timestamps.is_some(),
            });
        }
        if is(segment, Flags::ACK) {
            self.take_ack(segment);
        }
    }

    fn take_ack(&mut self, segment: &Segment) {
        if self.last.is_some_and(|last| segment.ack.ahead_of(last.ack) < 0) {
            return;
        }
        // The window of a SYN is not scaled, that of all others is.
        let shift = match is(segment, Flags::SYN) {
            true => segment.options.window_scale.unwrap_or(0).min(SHIFT_MAX),
            false => 0,
        };
        self.last = Some(Ack {
            ack: segment.ack,
            window: segment.window >> shift,
            stamps: segment.options.timestamps,
            sack: held_above(segment),
        });
    }

    /// What this end acknowledged last, once more, with this window field.
    pub(super) fn acknowledgement(&self, window: Window) -> Option<Segment> {
        let (last, seq) = (self.last?, self.next?);
        let window = match window {
            Window::Zero => 0,
            Window::Real => last.window,
        };
        let options = Options { timestamps: last.stamps, sack: last.sack, ..Options::default() };
        let (ack, flags) = (last.ack, Flags::ACK);
        Some(Segment { seq, ack, flags, window, options, ..Segment::default() })
    }
}

/// Which window an acknowledgement that is made states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Window {
    /// None.
    Zero,
    /// The one that its host stated last.
    Real,
}

/// Has these flags.
pub(super) fn is(segment: &Segment, flags: Flags) -> bool {
    segment.flags.contains(flags)
}

/// It acknowledges in the course of a connection: it is neither a SYN nor a reset.
pub(super) fn acknowledges(segment: &Segment) -> bool {
    is(segment, Flags::ACK) && !segment.flags.intersects(Flags::SYN.with(Flags::RST))
}

/// The blocks above the acknowledgement: without those that tell of data that came twice (RFC 2883),
/// which are to be reported once.
pub(super) fn held_above(segment: &Segment) -> SackBlocks {
    let blocks = segment.options.sack.as_slice();
    let mut above = SackBlocks::default();
    for (n, (start, end)) in blocks.iter().enumerate() {
        let inside = |(from, to): &(Seq, Seq)| start.ahead_of(*from) >= 0 && to.ahead_of(*end) >= 0;
        let twice = n == 0 && blocks.get(1).is_some_and(inside);
        if start.ahead_of(segment.ack) > 0 && !twice {
            above.push(*start, *end);
        }
    }
    above
}

/// What an acknowledgement is to the sender that it goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AckKind {
    /// It covers something new.
    New,
    /// It repeats an acknowledgement, since something came above a gap (RFC 5681 section 2).
    Duplicate,
    /// It tells of data that came twice, states another window, comes with data, or is old.
    Other,
}
