//! One connection through the supervisor host.

use lasthop_units::{Duration, Time};
use lasthop_wire::tcp::{Flags, Options, SackBlocks, Segment, Seq, Timestamps};

use super::hop::{Hop, HopState};
use super::{MTcpConfig, MTcpStats};
use crate::cache::{SPAN, Stored};
use crate::{Connection, Packet, Queue, Side, Tcp};

/// Acknowledgements in a row that cannot be of what is known here.
const STRANGE: u32 = 8;

/// What a connection does is done in this surrounding.
pub(super) struct Around<'a, P> {
    pub(super) now: Time,
    pub(super) connection: Connection,
    pub(super) config: &'a MTcpConfig,
    /// What comes finds the hop's queue nearly full.
    pub(super) crowded: bool,
    pub(super) queue: &'a mut Queue<P>,
    pub(super) stats: &'a mut MTcpStats,
}

/// What is known of a connection. It begins with the first acknowledgement that the mobile sends,
/// be it the handshake's or one in the middle.
#[derive(Clone, Debug)]
pub(super) struct Flow<P> {
    /// What the mobile has acknowledged.
    acked: Seq,
    /// What was acknowledged to the fixed host: all, or all but the last byte (MTC-2).
    told: Seq,
    /// After the last byte that the fixed host has sent.
    top: Seq,
    /// After the fixed host's FIN.
    fin: Option<Seq>,
    /// The fixed host's latest.
    timestamps: Option<Timestamps>,
    mobile: Mobile,
    hop: Hop<P>,
    /// The mobile is disconnected; what comes from it before this time left it before.
    off: Option<Time>,
    /// When to let go of the held byte, since nothing comes after it.
    release: Option<Time>,
    strange: u32,
}

/// What the mobile sent last, for acknowledgements in its name.
#[derive(Clone, Copy, Debug)]
struct Mobile {
    /// After the last byte that it has sent.
    next: Seq,
    /// As it is in the header. It is never computed with, so its scale need not be known, and a
    /// connection whose handshake was missed is helped like any other.
    window: Option<u16>,
    timestamps: Option<Timestamps>,
}

impl Mobile {
    fn note(&mut self, segment: &Segment) {
        if segment.end().ahead_of(self.next) > 0 {
            self.next = segment.end();
        }
        // The window of a SYN is not scaled (RFC 7323 section 2.2).
        if !segment.flags.contains(Flags::SYN) {
            self.window = Some(segment.window);
        }
        self.timestamps = segment.options.timestamps;
    }
}

impl<P: Packet> Flow<P> {
    /// A connection of which the mobile acknowledges something for the first time.
    pub(super) fn new(now: Time, segment: &Segment, config: &MTcpConfig) -> Self {
        let mut mobile = Mobile { next: segment.seq, window: None, timestamps: None };
        mobile.note(segment);
        Self {
            acked: segment.ack,
            told: segment.ack,
            top: segment.ack,
            fin: None,
            timestamps: None,
            mobile,
            hop: Hop::new(now, config),
            off: None,
            release: None,
            strange: 0,
        }
    }

    /// Segments that are kept.
    pub(super) fn kept(&self) -> usize {
        self.hop.kept()
    }

    /// The mobile is taken to be disconnected.
    pub(super) const fn is_off(&self) -> bool {
        self.off.is_some()
    }

    /// What is known here has nothing to do with what passes.
    pub(super) const fn is_strange(&self) -> bool {
        self.strange >= STRANGE
    }

    /// A segment from the fixed host, not a SYN and not a RST.
    pub(super) fn handle_fixed(&mut self, cx: &mut Around<'_, P>, tcp: &Tcp, packet: P) {
        let segment = &tcp.segment;
        let (seq, end) = (segment.seq, segment.end());
        if seq.ahead_of(self.acked).unsigned_abs() > SPAN || segment.seq_len() > SPAN {
            cx.queue.packet(Side::Mobile, packet);
            return;
        }
        let repeats = seq.ahead_of(self.top) < 0;
        if end.ahead_of(self.top) > 0 {
            self.top = end;
        }
        self.timestamps = later(self.timestamps, segment.options.timestamps);
        if segment.flags.contains(Flags::FIN) {
            self.fin = Some(end);
        }
        if end != seq && end.ahead_of(self.acked) > 0 {
            self.release = None;
            let (off, crowded, acked) = (self.is_off(), cx.crowded, self.acked);
            self.take(cx, (seq, end), packet, HopState { off, crowded, repeats, acked });
        } else if end == seq {
            cx.queue.packet(Side::Mobile, packet);
        } else if self.is_off() || !self.hop.is_owed(self.acked) {
            self.hop.note_passing();
            cx.queue.packet(Side::Mobile, packet);
        } else {
            // The mobile has it, and its answer to what is under way will say so.
            cx.stats.dropped += 1;
        }
        let probes = seq.ahead_of(self.acked) <= 0 && (end != seq || seq != self.acked);
        if self.is_off() && probes {
            cx.stats.probes_answered += 1;
            self.acknowledge(cx, 0);
        } else if end != seq && end.ahead_of(self.acked) <= 0 && self.told != self.acked {
            // It waits for the byte that is held back.
            self.release_ack(cx);
        }
    }

    fn take(&mut self, cx: &mut Around<'_, P>, range: (Seq, Seq), packet: P, hop: HopState) {
        let (send, stored) = self.hop.enqueue(cx.now, range, packet, hop);
        match stored {
            Stored::New => cx.stats.kept += 1,
            Stored::Refused => cx.stats.unkept += 1,
            Stored::Again => {}
        }
        if let Some(packet) = send {
            cx.queue.packet(Side::Mobile, packet);
        }
        if !self.is_off() {
            self.catch_up(cx);
        }
    }

    /// A segment of the mobile with an acknowledgement, not a RST.
    pub(super) fn handle_mobile(&mut self, cx: &mut Around<'_, P>, tcp: &Tcp, packet: P) {
        let mut segment = tcp.segment;
        let ahead = segment.ack.ahead_of(self.acked);
        if ahead.unsigned_abs() > SPAN {
            self.strange += 1;
            cx.queue.packet(Side::Fixed, packet);
            return;
        }
        self.strange = 0;
        self.hop.on_segment(cx.now);
        let greets = self.off.is_some_and(|until| cx.now >= until);
        let known = ahead >= 0 && segment.ack.ahead_of(self.top) <= 0;
        let passes = if !known {
            true
        } else if ahead > 0 {
            self.handle_new_ack(cx, &segment)
        } else {
            greets || self.handle_same_ack(cx, &segment)
        };
        if known {
            segment.ack = self.advertised_ack(&segment);
            self.mobile.note(&segment);
        }
        if greets {
            self.connect(cx, &segment.options.sack);
            if !known {
                // What is old opens no window.
                self.reopen(cx);
            }
        } else if self.is_off() {
            segment.window = 0;
        }
        if passes {
            if known && segment.ack.ahead_of(self.told) > 0 {
                self.told = segment.ack;
            }
            self.pass(cx, &tcp.segment, &segment, packet);
        }
        self.watch_tail(cx);
    }

    /// Acknowledges more than before; whether to pass it on.
    fn handle_new_ack(&mut self, cx: &mut Around<'_, P>, segment: &Segment) -> bool {
        self.acked = segment.ack;
        self.hop.acknowledge(cx.now, segment.ack, &segment.options.sack);
        if !self.is_off() {
            self.repair(cx, segment);
            self.catch_up(cx);
        }
        let silent = self.is_bare(segment) && self.advertised_ack(segment) == self.told;
        if silent && !self.is_off() {
            // Without its last byte it says nothing new, and would count as a duplicate.
            cx.stats.swallowed += 1;
            return false;
        }
        true
    }

    /// Acknowledges the same as before; whether to pass it on.
    fn handle_same_ack(&mut self, cx: &mut Around<'_, P>, segment: &Segment) -> bool {
        let duplicate = self.is_bare(segment) && segment.window != 0 && self.top != self.acked;
        if duplicate && self.is_off() {
            // It was on its way when the hop went down; the fixed host is not to act on it.
            cx.stats.suppressed += 1;
            return false;
        }
        if !duplicate {
            return true;
        }
        self.hop.note_duplicate(segment.ack);
        self.repair(cx, segment);
        self.catch_up(cx);
        if !self.hop.has(segment.ack) {
            return true;
        }
        cx.stats.suppressed += 1;
        false
    }

    /// It carries an acknowledgement and nothing else that is new.
    fn is_bare(&self, segment: &Segment) -> bool {
        segment.len == 0
            && segment.flags.without(Flags::PSH) == Flags::ACK
            && self.mobile.window == Some(segment.window)
    }

    /// What of this acknowledgement goes to the fixed host: all but the last byte, unless it knows
    /// of that already. A FIN, either end's, is not held up, the SYN is not data, and a window that
    /// the mobile itself has closed needs no byte to close it.
    fn advertised_ack(&self, segment: &Segment) -> Seq {
        let ack = segment.ack;
        let ends = segment.window == 0
            || self.fin.is_some_and(|fin| ack.ahead_of(fin) >= 0)
            || segment.flags.intersects(Flags::FIN.with(Flags::SYN));
        if self.is_off() || ends || ack.ahead_of(self.told) <= 0 { ack } else { ack - 1 }
    }

    fn pass(&self, cx: &mut Around<'_, P>, came: &Segment, goes: &Segment, mut packet: P) {
        if came != goes {
            packet.set_segment(goes);
            cx.stats.held += u64::from(came.ack != goes.ack);
        }
        cx.queue.packet(Side::Fixed, packet);
    }

    /// When all that was sent is acknowledged but for the held byte, it is held for a short time
    /// only: its sender may wait for it before it sends more.
    fn watch_tail(&mut self, cx: &Around<'_, P>) {
        let tail = self.told != self.acked && self.acked == self.top;
        self.release = match self.release {
            Some(at) if tail => Some(at),
            _ => tail.then(|| cx.now + cx.config.tail_after),
        };
    }

    fn repair(&mut self, cx: &mut Around<'_, P>, segment: &Segment) {
        let Around { now, queue, stats, .. } = cx;
        self.hop.repair(*now, segment.ack, &segment.options.sack, |packet| {
            stats.repaired += 1;
            queue.packet(Side::Mobile, renewed(packet, self.timestamps));
        });
    }

    fn catch_up(&mut self, cx: &mut Around<'_, P>) {
        let Around { now, queue, stats, .. } = cx;
        self.hop.catch_up(*now, |packet| {
            stats.resumed += 1;
            queue.packet(Side::Mobile, renewed(packet, self.timestamps));
        });
    }

    /// The mobile is gone: the fixed host gets the last byte's acknowledgement and a closed window (MTC-3).
    fn disconnect(&mut self, cx: &mut Around<'_, P>, deaf: Duration) {
        let first = self.off.is_none();
        self.off = Some(cx.now + deaf);
        if first {
            cx.stats.disconnections += 1;
            self.release = None;
            self.hop.restart(cx.now);
            self.acknowledge(cx, 0);
        }
    }

    /// The mobile is back (MTC-4).
    fn connect(&mut self, cx: &mut Around<'_, P>, sack: &SackBlocks) {
        self.off = None;
        cx.stats.reconnections += 1;
        self.hop.reconnect(cx.now, sack);
        self.catch_up(cx);
    }

    /// The hop says that it is down.
    pub(super) fn handle_down(&mut self, cx: &mut Around<'_, P>) {
        // What is in the air still comes; it is no greeting.
        self.disconnect(cx, self.hop.srtt().unwrap_or_default());
    }

    /// The hop says that it is up.
    pub(super) fn handle_up(&mut self, cx: &mut Around<'_, P>) {
        if self.is_off() {
            self.connect(cx, &SackBlocks::default());
            self.reopen(cx);
        } else if self.hop.timeout(self.acked).is_some() {
            self.send_again(cx);
        }
    }

    /// The connection has come from another supervisor host (MTC-7).
    pub(super) fn handle_move(&mut self, now: Time) {
        self.hop.restart(now);
    }

    /// When something is to be done.
    pub(super) fn next_timeout(&self, config: &MTcpConfig) -> Option<Time> {
        let on_hop = if self.is_off() {
            self.hop.probe(config.probe_interval)
        } else {
            [self.repair_timeout(), self.silence(config)].into_iter().flatten().min()
        };
        [self.release, on_hop].into_iter().flatten().min()
    }

    /// Does what is due.
    pub(super) fn handle_timeout(&mut self, cx: &mut Around<'_, P>) {
        let due = |at: Option<Time>| at.is_some_and(|at| at <= cx.now);
        if due(self.release) {
            self.release_ack(cx);
        } else if self.is_off() {
            if due(self.hop.probe(cx.config.probe_interval)) {
                self.send_again(cx);
            }
        } else if due(self.silence(cx.config)) {
            self.disconnect(cx, Duration::ZERO);
        } else if due(self.repair_timeout()) {
            self.hop.back_off();
            self.send_again(cx);
        }
    }

    fn send_again(&mut self, cx: &mut Around<'_, P>) {
        if let Some(packet) = self.hop.again(cx.now) {
            cx.stats.timeouts += 1;
            cx.queue.packet(Side::Mobile, renewed(packet, self.timestamps));
        }
    }

    /// A mobile that has closed its window itself is not asked to take anything.
    fn repair_timeout(&self) -> Option<Time> {
        self.hop.timeout(self.acked).filter(|_| self.mobile.window != Some(0))
    }

    fn silence(&self, config: &MTcpConfig) -> Option<Time> {
        self.hop.disconnected(self.acked, config).filter(|_| self.mobile.window != Some(0))
    }

    /// Acknowledges the held byte.
    fn release_ack(&mut self, cx: &mut Around<'_, P>) {
        self.release = None;
        if !self.is_off() {
            cx.stats.released += 1;
            self.reopen(cx);
        }
    }

    /// Acknowledges with the window that the mobile named last.
    fn reopen(&mut self, cx: &mut Around<'_, P>) {
        if let Some(window) = self.mobile.window {
            self.acknowledge(cx, window);
        }
    }

    /// An acknowledgement of all that the mobile has acknowledged, in its name. Its timestamps are
    /// the mobile's last ones: later ones are not ours to invent, earlier ones, or none, the fixed
    /// host would drop (RFC 7323 section 5.3). An echo that is old makes the fixed host's round-trip
    /// sample longer by the silence, if it takes one.
    fn acknowledge(&mut self, cx: &mut Around<'_, P>, window: u16) {
        self.told = self.acked;
        let segment = Segment {
            seq: self.mobile.next,
            ack: self.acked,
            flags: Flags::ACK,
            window,
            options: Options { timestamps: self.mobile.timestamps, ..Options::default() },
            ..Segment::default()
        };
        cx.stats.made += 1;
        cx.queue.segment(Side::Fixed, cx.connection, segment);
    }
}

/// The later of two timestamps, by their values (RFC 7323 section 5.2).
fn later(known: Option<Timestamps>, new: Option<Timestamps>) -> Option<Timestamps> {
    match (known, new) {
        (Some(known), Some(new)) if (new.value.wrapping_sub(known.value) as i32) < 0 => Some(known),
        (known, new) => new.or(known),
    }
}

/// A copy with the fixed host's latest timestamps, as its own retransmission would have. With those
/// that it came with, the mobile would refuse it for ever once the fixed host has sent older data
/// again (RFC 7323 section 5.3).
fn renewed<P: Packet>(mut packet: P, latest: Option<Timestamps>) -> P {
    if let Some(mut segment) = packet.tcp().map(|tcp| tcp.segment) {
        let own = segment.options.timestamps;
        let wanted = own.and(later(own, latest));
        if wanted != own {
            segment.options.timestamps = wanted;
            packet.set_segment(&segment);
        }
    }
    packet
}
