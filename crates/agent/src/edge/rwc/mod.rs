//! Receiver window control for TCPs that know nothing of it.

mod config;
mod meter;
mod rules;
mod total;
mod window;

pub use config::{Total, WindowsConfig};
pub use rules::Rule;

use alloc::vec::Vec;

use lasthop_stream::Shares;
use lasthop_units::{Bytes, Duration, LinkEvent, Rate, Time};
use lasthop_wire::tcp::Segment;

use super::HopEnd;
use super::flow::{Flow, acknowledges};
use crate::table::Table;
use crate::{Connection, Packet, Queue, Side, Tcp};
use meter::{BIN, Meter};
use rules::Rules;
use total::Granted;
use window::{WindowState, segment_size};

/// A flow takes part if it has this share of its due, and as long as it has half of that: others
/// would leave idle what they are given (RWC-11).
const WANTS: f64 = 0.25;

/// Flows that take no part, and one that is alone, may have so many times the total: what a sender
/// is granted it keeps (RWC-9), so that a later division must wait until it has used it up.
const AHEAD: u64 = 2;

/// A floor may widen a measured total so many times.
const WIDER: u64 = 4;

/// What a [`ReceiverWindows`] did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WindowsStats {
    /// Acknowledgements that passed with a narrower window.
    pub narrowed: u64,
    /// Times that the total was divided.
    pub divisions: u64,
    /// Connections that are left alone, since the scale of their windows is not known.
    pub unscaled: u64,
    /// Packets that were handed on.
    pub passed: u64,
}

/// Receiver window control (Raisinghani, Singh and Iyer 2003, section IV; RWC-1 to RWC-12) and the
/// user's say in it (UFB-1 to UFB-4): divides a total among the windows that mobiles advertise, in
/// proportion to priorities. No window is wider than the mobile's own, and none takes back what was
/// granted.
///
/// Uploads pass unchanged. So do windows whose scale is not known, since their beginning was missed.
#[derive(Clone, Debug)]
pub struct ReceiverWindows<P> {
    config: WindowsConfig,
    rules: Rules,
    flows: Table<Flow<WindowState>>,
    shares: Shares<Connection>,
    meter: Meter,
    /// What is divided at present, in bytes, if it is known.
    total: Option<u64>,
    granted: Granted,
    /// When the present bin ends; nothing has moved if there is none.
    turn: Option<Time>,
    queue: Queue<P>,
    stats: WindowsStats,
}

impl<P: Packet> ReceiverWindows<P> {
    /// A helper that knows no connection.
    pub fn new(config: WindowsConfig) -> Self {
        Self {
            rules: Rules { rules: Vec::new(), default: config.priority },
            flows: Table::new(config.connections, config.idle),
            shares: Shares::new(0, config.connections),
            meter: Meter::default(),
            total: None,
            granted: Granted::default(),
            turn: None,
            queue: Queue::default(),
            stats: WindowsStats::default(),
            config,
        }
    }

    /// What it did.
    pub const fn stats(&self) -> &WindowsStats {
        &self.stats
    }

    /// The priority of each connection, and the widest window that it is left with if it takes part.
    #[cfg(test)]
    pub(super) fn windows(&self) -> impl Iterator<Item = (u32, Option<u64>)> + '_ {
        self.flows.iter().map(|(connection, flow)| {
            let window = flow.state.share.filter(|_| flow.state.takes_part);
            (self.priority_of(connection, &flow.state), window)
        })
    }

    /// What is divided at present; none before it is measured.
    pub fn total(&self) -> Option<Bytes> {
        self.total.map(Bytes::new)
    }

    /// Flows that take part in the division.
    pub fn divided(&self) -> usize {
        self.shares.len()
    }

    /// Sets which connections have which priority, for those that exist too; of rules that fit the
    /// first counts (UFB-3).
    pub fn set_rules(&mut self, now: Time, rules: Vec<Rule>) {
        self.rules.rules = rules;
        self.divide(now, None);
    }

    /// Sets the priority of one connection as long as it is known, or leaves it to the rules again
    /// (UFB-1, UFB-4). Whether the connection is known.
    pub fn set_priority(
        &mut self,
        now: Time,
        connection: &Connection,
        priority: Option<u32>,
    ) -> bool {
        let Some(flow) = self.flows.peek(connection) else { return false };
        flow.state.set = priority;
        self.divide(now, Some(*connection));
        true
    }

    /// The priority of a connection that is known.
    pub fn priority(&mut self, connection: &Connection) -> Option<u32> {
        let set = self.flows.peek(connection)?.state.set;
        Some(set.unwrap_or_else(|| self.rules.priority(connection)))
    }

    fn priority_of(&self, connection: &Connection, state: &WindowState) -> u32 {
        state.set.unwrap_or_else(|| self.rules.priority(connection))
    }

    fn handle_tcp(&mut self, now: Time, from: Side, tcp: &Tcp, mut packet: P) -> Option<P> {
        let queued = self.queued(now, tcp, from);
        let place = self.config.place;
        let quiet = self.config.quiet;
        let Some(flow) = Flow::of(&mut self.flows, now, from, tcp) else { return Some(packet) };
        let segment = &tcp.segment;
        let before = flow.seen.mobile.last.map(|last| last.ack);
        flow.seen.observe(from, segment);
        flow.state.trips.observe(now, from, segment, queued);
        let moved = match (from, place) {
            (Side::Fixed, HopEnd::Mobile) => segment.len,
            (Side::Mobile, HopEnd::Base) if acknowledges(segment) => {
                before.map_or(0, |before| segment.ack.ahead_of(before).max(0).unsigned_abs())
            }
            _ => 0,
        };
        let woke = moved > 0 && !flow.state.is_busy(now, quiet);
        if moved > 0 {
            flow.state.data = Some(now);
            flow.state.moved.add(moved.into());
        }
        if from == Side::Mobile && acknowledges(segment) {
            match flow.seen.shift(Side::Mobile) {
                Some(shift) => {
                    let before = before.unwrap_or(segment.ack);
                    let window = self.granted.window(flow, segment, before, shift);
                    if window != segment.window {
                        packet.set_segment(&Segment { window, ..*segment });
                        self.stats.narrowed += 1;
                    }
                }
                None if !flow.state.counted => {
                    flow.state.counted = true;
                    self.stats.unscaled += 1;
                }
                None => {}
            }
        }
        if moved > 0 {
            self.meter.add(moved.into());
            self.turn.get_or_insert(now + BIN);
        }
        if woke && matches!(self.config.total, Total::Packets(_)) {
            self.divide(now, Some(tcp.connection(from)));
        }
        Some(packet)
    }

    /// What waits in the hop's queue, for a handshake that ends with this segment.
    fn queued(&mut self, now: Time, tcp: &Tcp, from: Side) -> Duration {
        let connection = tcp.connection(from);
        let ends = self.flows.peek(&connection).is_some_and(|flow| flow.state.trips.ends(from));
        if !ends {
            return Duration::ZERO;
        }
        let busy = self.flows.iter().filter(|(_, flow)| flow.state.is_busy(now, self.config.quiet));
        busy.filter_map(|(_, flow)| flow.state.trips.queued()).min().unwrap_or(Duration::ZERO)
    }

    /// A bin is over.
    fn turn(&mut self, now: Time) {
        self.meter.turn();
        self.flows.iter_mut().for_each(|(_, flow)| flow.state.moved.turn());
        let quiet = self.config.quiet;
        let busy = self.flows.iter().any(|(_, flow)| flow.state.is_busy(now, quiet));
        self.turn = busy.then(|| now + BIN);
        self.divide(now, None);
    }

    /// Says anew who takes part, and what each has; `last` is whose priority changed (RWC-10).
    fn divide(&mut self, now: Time, last: Option<Connection>) {
        self.choose(now);
        self.granted = Granted::default();
        let taking: Vec<(Connection, u32)> = self
            .flows
            .iter()
            .filter(|(_, flow)| flow.state.takes_part)
            .map(|(connection, flow)| (*connection, self.priority_of(connection, &flow.state)))
            .collect();
        let alone = taking.len() < 2;
        let Some((packets, size)) = self.measure(&taking) else {
            return self.widen(self.total.map(|total| total.saturating_mul(AHEAD)));
        };
        let total = packets.saturating_mul(size);
        let ahead = Some(total.saturating_mul(AHEAD));
        self.total = Some(total);
        if alone && matches!(self.config.total, Total::Auto { .. }) {
            self.shares.replace([], None);
            return self.widen(ahead);
        }
        self.shares.set_total(packets);
        self.shares.replace(taking, last);
        self.widen(ahead);
        self.hand_out();
        if let Total::Auto { least, .. } = self.config.total {
            let flows = self.flows.iter().map(|(_, flow)| flow);
            self.granted = Granted::among(total, least, flows.filter(|flow| flow.state.takes_part));
        }
    }

    /// Who takes part: flows that can be narrowed, have data, and want at least a part of their due.
    fn choose(&mut self, now: Time) {
        let quiet = self.config.quiet;
        let auto = matches!(self.config.total, Total::Auto { .. });
        let rules = &self.rules;
        let (mut moved, mut weights) = (0u64, 0u64);
        let is_candidate = |flow: &Flow<WindowState>| {
            flow.state.is_busy(now, quiet)
                && flow.seen.shift(Side::Mobile).is_some()
                && !flow.seen.has_ended(Side::Fixed)
        };
        let weight = |connection: &Connection, state: &WindowState| {
            u64::from(state.set.unwrap_or_else(|| rules.priority(connection)).max(1))
        };
        for (connection, flow) in self.flows.iter().filter(|(_, flow)| is_candidate(flow)) {
            moved += flow.state.moved.recent();
            weights += weight(connection, &flow.state);
        }
        for (connection, flow) in self.flows.iter_mut() {
            let due = moved as f64 * weight(connection, &flow.state) as f64 / weights.max(1) as f64;
            let wants = if flow.state.takes_part { WANTS / 2.0 } else { WANTS };
            let enough = !auto || flow.state.moved.recent() as f64 >= wants * due;
            flow.state.takes_part = is_candidate(flow) && enough;
        }
    }

    /// What is to be divided among these flows, in packets, and how long a packet is.
    fn measure(&self, taking: &[(Connection, u32)]) -> Option<(u64, u64)> {
        let among = || self.flows.iter().filter(|(_, flow)| flow.state.takes_part);
        let size = among().map(|(_, flow)| segment_size(&flow.seen)).max()?;
        let (factor, least) = match self.config.total {
            Total::Packets(packets) => return Some((packets, size)),
            Total::Auto { factor, least } => (factor, least),
        };
        let trip = among().filter_map(|(_, flow)| flow.state.trips.least).max()?;
        let rate: Rate = self.meter.rate()?;
        let fills = rate.scale(factor.max(1.0)).bytes_in(trip).get() / size;
        let fills = fills.saturating_add(1);
        let most = fills.max(least).saturating_mul(WIDER);
        Some((fills.max(floor(taking, least).min(most)), size))
    }

    /// Nobody may have more than this.
    fn widen(&mut self, most: Option<u64>) {
        for (_, flow) in self.flows.iter_mut() {
            flow.state.share = most;
        }
    }

    /// Shares become windows.
    fn hand_out(&mut self) {
        self.stats.divisions += 1;
        for (connection, packets) in self.shares.iter() {
            if let Some(flow) = self.flows.peek(&connection) {
                let size = segment_size(&flow.seen);
                flow.state.share = Some(packets.saturating_mul(size));
            }
        }
    }
}

/// Packets of which the least of the flows gets `least`.
fn floor(taking: &[(Connection, u32)], least: u64) -> u64 {
    let weights = || taking.iter().map(|(_, priority)| u64::from((*priority).max(1)));
    let lowest = weights().min().unwrap_or(1);
    (weights().sum::<u64>().saturating_mul(least)).div_ceil(lowest)
}

helper! {
    ReceiverWindows:

    /// Behind another base the hop may be another, and so may the way there: both are measured anew.
    fn handle_link_event(&mut self, now: Time, event: LinkEvent) {
        if !matches!(event, LinkEvent::Up | LinkEvent::Complete) {
            return;
        }
        self.meter = Meter::default();
        self.total = None;
        self.flows.iter_mut().for_each(|(_, flow)| flow.state.trips.reset());
        self.divide(now, None);
    }

    fn next_timeout(&self) -> Option<Time> {
        self.turn
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.turn.is_some_and(|turn| turn <= now) {
            self.turn(now);
        }
    }
}
