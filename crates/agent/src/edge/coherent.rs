use lasthop_stream::{Marks, RangeSet};
use lasthop_units::{Duration, Time, deserialize_duration};
use lasthop_wire::tcp::{Flags, SackBlocks, Segment, Seq};
use serde::Deserialize;

use super::flow::{AckKind, Flow, acknowledges, held_above};
use super::waiting::{DupackStats, Waiting};
use crate::table::Table;
use crate::{Packet, Queue, Side, Tcp};

/// Runs of data above a gap that are remembered; where more come a gap may seem longer than it is.
const RUNS_MAX: usize = 64;

/// Where positions begin, so that older data has one too.
const ORIGIN: u64 = 1 << 32;

/// How a [`CoherentDupacks`] works.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct CoherentConfig {
    /// How long duplicates of an unmarked gap wait: longer than the link's repair, shorter than the
    /// sender's least timeout (CC-8; silent: 100 ms).
    #[serde(deserialize_with = "deserialize_duration")]
    pub hold: Duration,
    /// Segments behind a gap whose marks count, beside the one before it (CC-3).
    pub behind: u8,
    /// Connections that are known at most; the one that was silent longest gives way, and what waits
    /// of it is lost.
    #[serde(skip)]
    pub connections: usize,
    /// A connection without packets is removed after this time.
    #[serde(skip)]
    pub idle: Duration,
}

impl Default for CoherentConfig {
    fn default() -> Self {
        Self {
            hold: Duration::from_millis(100),
            behind: 2,
            connections: 4096,
            idle: Duration::from_secs(900),
        }
    }
}

/// The receiver's half of congestion coherence (Liu and Jain; CC-3, CC-5), in front of a mobile whose
/// TCP knows nothing of it. Duplicates of a gap with a marked neighbour pass at once, others wait
/// until the link has filled it or a time is over.
///
/// It stands at the mobile's end of the hop, after the link's own recovery, since it judges a gap by
/// what comes beside it. Connections without ECN it leaves alone.
///
/// A stack may tell of a gap in the acknowledgement of what came before it. Such a one passes without
/// its SACK blocks, and waits as it came beside the duplicates.
///
/// What the mobile is to do as a sender (CC-6) only its own TCP can.
#[derive(Clone, Debug)]
pub struct CoherentDupacks<P> {
    config: CoherentConfig,
    flows: Table<Flow<State<P>>>,
    queue: Queue<P>,
    stats: DupackStats,
}

#[derive(Clone, Debug)]
struct State<P> {
    waiting: Waiting<P>,
    stream: Stream,
    /// The ends use ECN.
    ecn: Ecn,
}

impl<P> Default for State<P> {
    fn default() -> Self {
        Self { waiting: Waiting::default(), stream: Stream::default(), ecn: Ecn::Unknown }
    }
}

/// Whether a connection has ECN (RFC 3168 section 6.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ecn {
    /// Its beginning was missed: as long as nothing shows it, it has none.
    Unknown,
    Offered,
    On,
    Off,
}

impl Ecn {
    fn observe(&mut self, segment: &Segment, marked: bool) {
        let both = Flags::ECE.with(Flags::CWR);
        let flags = segment.flags;
        let echo = flags.contains(Flags::ECE) && !flags.contains(Flags::CWR);
        *self = match (flags.contains(Flags::SYN), flags.contains(Flags::ACK)) {
            (true, false) if flags.contains(both) => Self::Offered,
            (true, false) => Self::Off,
            // The answer has the echo alone; one that reflects both does not understand.
            (true, true) if echo && *self != Self::Off => Self::On,
            (true, true) => Self::Off,
            (false, _) if *self == Self::Unknown && (marked || flags.intersects(both)) => Self::On,
            _ => *self,
        };
    }
}

/// What has come of the fixed host's stream, in positions.
#[derive(Clone, Debug, Default)]
struct Stream {
    /// What the mobile acknowledged last, as a number and as a position.
    acked: Option<(Seq, u64)>,
    marks: Marks,
    /// What came above that.
    above: RangeSet,
}

impl Stream {
    fn position(&self, seq: Seq) -> Option<u64> {
        let (acked, position) = self.acked?;
        position.checked_add_signed(i64::from(seq.ahead_of(acked)))
    }

    fn on_data(&mut self, segment: &Segment, marked: bool) {
        let (acked, _) = *self.acked.get_or_insert((segment.seq, ORIGIN));
        let Some(start) = self.position(segment.seq) else { return };
        let range = start..start + u64::from(segment.len);
        if marked {
            self.marks.record(range.clone());
        }
        if segment.seq.ahead_of(acked) >= 0 && self.above.fragments() < RUNS_MAX {
            self.above.insert(range);
        }
    }

    fn on_ack(&mut self, ack: Seq) {
        let Some(position) = self.position(ack) else {
            self.acked = Some((ack, ORIGIN));
            return;
        };
        if self.acked.is_some_and(|(acked, _)| ack.ahead_of(acked) > 0) {
            self.acked = Some((ack, position));
            self.above.remove(0..position);
        }
    }

    /// A neighbour of what is missing first carries a mark (CC-3).
    fn gap_is_marked(&self, behind: u64) -> bool {
        let Some((_, start)) = self.acked else { return false };
        let end = self.above.first().map_or(start, |above| above.start.max(start));
        self.marks.are_near(start..end, behind)
    }
}

impl<P: Packet> CoherentDupacks<P> {
    /// A helper that knows no connection.
    pub fn new(config: CoherentConfig) -> Self {
        Self {
            flows: Table::new(config.connections, config.idle),
            queue: Queue::default(),
            stats: DupackStats::default(),
            config,
        }
    }

    /// What it did.
    pub const fn stats(&self) -> &DupackStats {
        &self.stats
    }

    /// The packet, if it is to pass.
    fn handle_tcp(&mut self, now: Time, from: Side, tcp: &Tcp, packet: P) -> Option<P> {
        let segment = &tcp.segment;
        let Some(flow) = Flow::of(&mut self.flows, now, from, tcp) else { return Some(packet) };
        let marked = from == Side::Fixed && packet.is_marked();
        let kind = flow.seen.kind(segment);
        flow.seen.observe(from, segment);
        let State { waiting, stream, ecn } = &mut flow.state;
        ecn.observe(segment, marked);
        if from == Side::Fixed {
            if segment.len > 0 {
                stream.on_data(segment, marked);
            }
            return Some(packet);
        }
        if !acknowledges(segment) {
            return Some(packet);
        }
        stream.on_ack(segment.ack);
        if kind == AckKind::Other || *ecn != Ecn::On {
            return Some(packet);
        }
        let behind = u64::from(self.config.behind) * u64::from(flow.seen.fixed.longest);
        let marked = stream.gap_is_marked(behind);
        let (queue, stats) = (&mut self.queue, &mut self.stats);
        if kind == AckKind::New {
            waiting.discard(stats);
        } else if marked {
            waiting.release(queue, stats);
        }
        let wait = (!marked).then_some(self.config.hold);
        let passes = match kind {
            AckKind::New if held_above(segment).is_empty() => Some(packet),
            AckKind::New => Some(hide(now, wait, segment, packet, waiting, stats)),
            _ => waiting.add(now, wait, packet, stats),
        };
        let due = waiting.due();
        self.flows.arm(&tcp.connection(from), due);
        passes
    }
}

/// What passes of a new acknowledgement that tells of a gap.
fn hide<P: Packet>(
    now: Time,
    wait: Option<Duration>,
    segment: &Segment,
    packet: P,
    waiting: &mut Waiting<P>,
    stats: &mut DupackStats,
) -> P {
    let mut bare = packet.clone();
    match waiting.add(now, wait, packet, stats) {
        Some(packet) => packet,
        None => {
            stats.hidden += 1;
            let mut segment = *segment;
            segment.options.sack = SackBlocks::default();
            bare.set_segment(&segment);
            bare
        }
    }
}

helper! {
    CoherentDupacks:

    fn next_timeout(&self) -> Option<Time> {
        self.flows.next_due()
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(connection) = self.flows.pop_due(now) {
            if let Some(flow) = self.flows.peek(&connection) {
                flow.state.waiting.release(&mut self.queue, &mut self.stats);
            }
        }
    }
}
