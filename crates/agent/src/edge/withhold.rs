use lasthop_units::{Bytes, Duration, LinkEvent, LinkNews, LinkWatch, Thaw, Time};
use lasthop_wire::tcp::{SackBlocks, Segment, Seq};

use super::HopEnd;
use super::flow::{AckKind, Flow, Window, acknowledges, held_above};
use crate::table::Table;
use crate::{Connection, Packet, Queue, Side, Tcp};

/// Bytes that are left out of acknowledgements (ATR-1).
const RESERVE: u32 = 2;

/// How a [`Withhold`] works. The values are those of the same scheme in a mobile's own TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WithholdConfig {
    /// Which event counts as the connection.
    pub thaw: Thaw,
    /// At which end of the hop it stands.
    pub place: HopEnd,
    /// How long the last two bytes wait for their acknowledgement; more than
    /// [`MOST`](Self::MOST) counts as that. It must be less than the sender's least retransmission
    /// timeout (ATR-7).
    pub delay: Duration,
    /// How much comes without a gap, after one, before anything is left out again.
    pub calm: Bytes,
    /// Connections that are known at most; the one that was silent longest gives way.
    pub connections: usize,
    /// A connection without packets is removed after this time.
    pub idle: Duration,
}

impl WithholdConfig {
    /// The longest delay of an acknowledgement (ATR-1).
    pub const MOST: Duration = Duration::from_millis(500);

    /// For the TCP of today's kernels. They count a segment as one under way until its last byte is
    /// acknowledged, so that what is left out is a packet of the congestion window: with a gap every few
    /// dozen segments a fifth of it.
    pub fn modern() -> Self {
        Self { calm: Bytes::from_kib(96), ..Self::default() }
    }
}

impl Default for WithholdConfig {
    /// Plain disconnections, at the mobile's end, a delay of 100 ms, no wait for calm: the paper's.
    fn default() -> Self {
        Self {
            thaw: Thaw::Up,
            place: HopEnd::Mobile,
            delay: Duration::from_millis(100),
            calm: Bytes::ZERO,
            connections: 4096,
            idle: Duration::from_secs(900),
        }
    }
}

/// What a [`Withhold`] did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WithholdStats {
    /// Acknowledgements that passed with a lower number.
    pub lowered: u64,
    /// Acknowledgements that went no further, since nothing was left of them.
    pub swallowed: u64,
    /// Times that what was left out was acknowledged without a disconnection.
    pub released: u64,
    /// Times that the link came back.
    pub reconnections: u64,
    /// Acknowledgements that were made.
    pub made: u64,
    /// Packets that were handed on.
    pub passed: u64,
}

/// The receiver's half of ATCP (Raisinghani, Singh and Iyer 2003, Table II; ATR-1 to ATR-8), in front
/// of a mobile whose TCP knows nothing of it: the last two bytes are left out of acknowledgements, so
/// that after a disconnection there are two new things to say, the first with a window of zero.
///
/// Where the paper is silent it does what the same scheme in the mobile's TCP does. A duplicate
/// acknowledgement ends the withholding, with one of its own before it, so that the fixed host counts
/// right; what tells of a gap, or fills one, or acknowledges the end of the stream passes whole.
/// Numbers never go back. One that would have nothing left to say goes no further. A number that is
/// two bytes lower beside the same window states a right edge that is, too.
///
/// The last acknowledgement after a disconnection echoes no timestamp: the silence is not the path's
/// round trip. The one before it does, which shows a sender whose timer has expired meanwhile that
/// this was no loss (RFC 3522).
#[derive(Clone, Debug)]
pub struct Withhold<P> {
    config: WithholdConfig,
    link: LinkWatch,
    pub(super) flows: Table<Flow<State>>,
    queue: Queue<P>,
    stats: WithholdStats,
}

/// What the fixed host of one connection was sent.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct State {
    /// The highest acknowledgement that has passed.
    forwarded: Option<Seq>,
    /// The window field beside it.
    window: u16,
    /// The mobile holds something above a gap.
    gap: bool,
    /// What has been acknowledged since the last gap; none if there was no gap.
    since: Option<u64>,
}

/// What becomes of an acknowledgement of the mobile's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AckAction {
    /// It passes as it is.
    Whole,
    /// What was left out is acknowledged first, then it passes as it is.
    Flush,
    /// It passes with this number in place of its own.
    Lowered(Seq),
    /// It goes no further.
    Swallow,
}

impl State {
    /// ATR-1, and where it ends. `before` is what the mobile had acknowledged.
    fn action_for(
        &self,
        kind: AckKind,
        before: Option<Seq>,
        segment: &Segment,
        leaves_out: bool,
    ) -> AckAction {
        let (Some(forwarded), Some(before)) = (self.forwarded, before) else {
            return AckAction::Whole;
        };
        let pending = before.ahead_of(forwarded) > 0;
        let plain = segment.options.sack.is_empty();
        match kind {
            AckKind::Duplicate if pending => AckAction::Flush,
            AckKind::Other if !plain && segment.ack == before && pending => AckAction::Flush,
            // Nothing outstanding that a duplicate could be of: the mobile answers a probe.
            AckKind::Other if segment.ack == before && pending => {
                if segment.len == 0 && segment.window == self.window {
                    AckAction::Flush
                } else {
                    AckAction::Lowered(forwarded)
                }
            }
            AckKind::New if plain && !self.gap && leaves_out => self.lower(forwarded, segment),
            _ => AckAction::Whole,
        }
    }

    fn lower(&self, forwarded: Seq, segment: &Segment) -> AckAction {
        let reserve = segment.ack - RESERVE;
        let low = if reserve.ahead_of(forwarded) > 0 { reserve } else { forwarded };
        let silent = low == forwarded && segment.window == self.window && segment.seq_len() == 0;
        if silent { AckAction::Swallow } else { AckAction::Lowered(low) }
    }
}

impl<P: Packet> Withhold<P> {
    /// A helper that knows no connection, on a hop that carries.
    pub fn new(config: WithholdConfig) -> Self {
        let delay = config.delay.min(WithholdConfig::MOST);
        Self {
            link: LinkWatch::new(config.thaw, None),
            flows: Table::new(config.connections, config.idle),
            queue: Queue::default(),
            stats: WithholdStats::default(),
            config: WithholdConfig { delay, ..config },
        }
    }

    /// What it did.
    pub const fn stats(&self) -> &WithholdStats {
        &self.stats
    }

    fn on_news(&mut self, news: LinkNews) {
        match news {
            LinkNews::Nothing | LinkNews::Warned => {}
            // The two bytes stay unacknowledged (ATR-2).
            LinkNews::Cut => self.flows.arm_all(|_| None),
            LinkNews::Back => self.connected(),
        }
    }

    /// ATR-3, ATR-5.
    fn connected(&mut self) {
        self.stats.reconnections += 1;
        for (connection, flow) in self.flows.iter_mut() {
            if flow.seen.has_ended(Side::Fixed) || flow.state.forwarded.is_none() {
                continue;
            }
            let kept = u32::from(pending(flow) > 0);
            let mobile = &flow.seen.mobile;
            let Some(mut first) = mobile.acknowledgement(Window::Zero) else {
                continue;
            };
            let Some(mut last) = mobile.acknowledgement(Window::Real) else { continue };
            flow.state.forwarded = Some(last.ack);
            flow.state.window = last.window;
            first.ack = first.ack - kept;
            if let Some(stamps) = &mut last.options.timestamps {
                stamps.echo = 0;
            }
            for made in [first, last] {
                self.stats.made += 1;
                self.queue.segment(Side::Fixed, *connection, made);
            }
        }
        self.flows.arm_all(|_| None);
    }

    /// The packet, if it is to pass.
    fn handle_tcp(&mut self, now: Time, from: Side, tcp: &Tcp, mut packet: P) -> Option<P> {
        if from == Side::of_hop(self.config.place) {
            let news = self.link.on_segment(now);
            self.on_news(news);
        }
        let connection = tcp.connection(from);
        let segment = &tcp.segment;
        let Some(flow) = Flow::of(&mut self.flows, now, from, tcp) else { return Some(packet) };
        let kind = flow.seen.kind(segment);
        let before = flow.seen.mobile.last.map(|last| last.ack);
        flow.seen.observe(from, segment);
        if from == Side::Fixed || !acknowledges(segment) {
            return Some(packet);
        }
        let calm = flow.state.since.is_none_or(|since| since >= self.config.calm.get());
        let leaves_out = calm && !flow.seen.has_ended(Side::Fixed);
        let action = flow.state.action_for(kind, before, segment, leaves_out);
        if action == AckAction::Flush {
            self.flush(&connection);
        }
        let state = &mut self.flows.peek(&connection)?.state;
        let passes = match action {
            AckAction::Whole | AckAction::Flush => {
                state.note(segment.ack, segment.window);
                Some(packet)
            }
            AckAction::Lowered(low) => {
                state.note(low, segment.window);
                packet.set_segment(&Segment { ack: low, ..*segment });
                self.stats.lowered += 1;
                Some(packet)
            }
            AckAction::Swallow => {
                self.stats.swallowed += 1;
                None
            }
        };
        if kind != AckKind::Other {
            state.gap = kind == AckKind::Duplicate || !held_above(segment).is_empty();
            let news = before.map_or(0, |before| segment.ack.ahead_of(before).max(0));
            state.count(news.unsigned_abs().into());
        }
        self.set_timer(now, &connection, kind == AckKind::New);
        passes
    }

    /// The delay begins anew with each acknowledgement of something new.
    fn set_timer(&mut self, now: Time, connection: &Connection, news: bool) {
        let Some(flow) = self.flows.peek(connection) else { return };
        if pending(flow) <= 0 {
            self.flows.arm(connection, None);
        } else if news && !self.link.is_cut() {
            self.flows.arm(connection, Some(now + self.config.delay));
        }
    }

    /// What was left out is acknowledged.
    fn flush(&mut self, connection: &Connection) {
        let Some(flow) = self.flows.peek(connection).filter(|flow| pending(flow) > 0) else {
            return;
        };
        let made = flow.seen.mobile.acknowledgement(Window::Real);
        let Some(mut made) = made else { return };
        // It tells of what came before the gap, of which the next one tells.
        made.options.sack = SackBlocks::default();
        flow.state.note(made.ack, made.window);
        self.stats.released += 1;
        self.stats.made += 1;
        self.queue.segment(Side::Fixed, *connection, made);
    }
}

impl State {
    /// So much more is acknowledged, perhaps with something above a gap.
    fn count(&mut self, news: u64) {
        self.since = match self.gap {
            true => Some(0),
            false => self.since.map(|since| since.saturating_add(news)),
        };
    }

    /// An acknowledgement of this number went out.
    fn note(&mut self, ack: Seq, window: u16) {
        if self.forwarded.is_none_or(|forwarded| ack.ahead_of(forwarded) >= 0) {
            self.forwarded = Some(ack);
            self.window = window;
        }
    }
}

/// Bytes that the mobile has acknowledged and that were not forwarded to the fixed host.
pub(super) fn pending(flow: &Flow<State>) -> i32 {
    match (flow.seen.mobile.last, flow.state.forwarded) {
        (Some(last), Some(forwarded)) => last.ack.ahead_of(forwarded),
        _ => 0,
    }
}

helper! {
    Withhold:

    fn handle_link_event(&mut self, now: Time, event: LinkEvent) {
        self.flows.expire(now);
        let news = self.link.on_event(now, event);
        self.on_news(news);
    }

    fn next_timeout(&self) -> Option<Time> {
        self.flows.next_due()
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(connection) = self.flows.pop_due(now) {
            self.flush(&connection);
        }
    }
}
