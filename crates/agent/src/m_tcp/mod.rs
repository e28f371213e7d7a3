//! M-TCP's supervisor host: Brown and Singh's splitting of a connection that keeps its end-to-end
//! meaning (MTC-1 to MTC-8).
//!
//! Their supervisor host ends one TCP connection and begins another. Here the same is done to
//! packets, with sequence numbers as they are: a byte is acknowledged to the fixed host when the mobile has
//! acknowledged it and not before, data is kept for the hop, and the hop's losses are repaired here
//! and hidden from the fixed host, all without a second TCP.
//!
//! The last byte that the mobile acknowledges is held back. When the mobile falls silent, or the
//! hop says that it is down, that byte is acknowledged with a window of zero. Being new, this
//! acknowledgement is accepted by every TCP; the fixed host goes to persist with its congestion
//! window and timers as they were. When the mobile is back, an acknowledgement with the window that
//! the mobile named last opens it again.
//!
//! Data that the mobile sends passes by: it is the mobile's own TCP that freezes while the hop is
//! off.
//!
//! Losses of the hop are hidden, congestion is not: what finds the hop's queue nearly full is not
//! kept, and its loss is the fixed host's to see and to mend.
//!
//! Holding back a byte has a price. A sender that waits for all its data to be acknowledged would
//! wait for ever, so a byte with nothing after it is let go after [`MTcpConfig::tail_after`]; and a
//! sender that counts its window in bytes has one byte less of it.

mod flow;
mod hop;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::net::IpAddr;

use lasthop_units::{Duration, LinkEvent, Time, deserialize_duration};
use lasthop_wire::tcp::Flags;
use serde::Deserialize;

use crate::table::Table;
use crate::{Agent, Connection, Output, Packet, Queue, Side, Tcp};
use flow::{Around, Flow};

/// How a supervisor host works. All of these are silent in the papers that name M-TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct MTcpConfig {
    /// Connections that are known at most.
    #[serde(skip)]
    pub connections: usize,
    /// A connection without packets is removed after this time.
    #[serde(skip)]
    pub idle: Duration,
    /// Segments that are kept at most for each connection (MTC-8). What finds no room passes by
    /// unkept.
    #[serde(rename = "cache")]
    pub buffer: usize,
    /// Segments that may be under way to a mobile that has come back, until all that was kept is
    /// sent. Meanwhile as many new ones may wait as waited when it came back, less those whose turn
    /// came, and this many more. Below four, losses meanwhile wait for timers.
    #[serde(rename = "window")]
    pub hop_window: usize,
    /// The least silence of a mobile that owes an acknowledgement after which it is taken to be
    /// disconnected (MTC-6). It should be below the fixed host's least retransmission timeout.
    #[serde(rename = "silence", deserialize_with = "deserialize_duration")]
    pub disconnect_after: Duration,
    /// The same in round trips of the hop; the longer of the two counts.
    #[serde(rename = "round-trips")]
    pub disconnect_round_trips: u32,
    /// With the mobile disconnected: how often to see whether it is back.
    #[serde(rename = "probe", deserialize_with = "deserialize_duration")]
    pub probe_interval: Duration,
    /// How long the last byte is held when all else is acknowledged and nothing comes.
    #[serde(rename = "tail", deserialize_with = "deserialize_duration")]
    pub tail_after: Duration,
    /// The hop's round trip, and its timeout, before there is a sample.
    #[serde(skip)]
    pub initial_timeout: Duration,
    /// The least timeout of the hop.
    #[serde(skip)]
    pub least_timeout: Duration,
}

impl Default for MTcpConfig {
    fn default() -> Self {
        Self {
            connections: 1024,
            idle: Duration::from_secs(900),
            buffer: 512,
            hop_window: 32,
            disconnect_after: Duration::from_millis(200),
            disconnect_round_trips: 4,
            probe_interval: Duration::from_millis(200),
            tail_after: Duration::from_millis(20),
            initial_timeout: Duration::from_millis(300),
            least_timeout: Duration::from_millis(50),
        }
    }
}

/// What a supervisor host did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MTcpStats {
    /// Segments of which a copy was kept.
    pub kept: u64,
    /// Segments that found no room, or the hop's queue nearly full, and passed by or were dropped.
    pub unkept: u64,
    /// Acknowledgements whose last byte was held back (MTC-2).
    pub held: u64,
    /// Acknowledgements of one byte, which would have acknowledged nothing without it.
    pub swallowed: u64,
    /// Times that a held byte was let go since nothing came after it.
    pub released: u64,
    /// Acknowledgements made here.
    pub made: u64,
    /// Times that a mobile was taken to be disconnected (MTC-3).
    pub disconnections: u64,
    /// Times that it came back (MTC-4).
    pub reconnections: u64,
    /// Probes of fixed hosts that were answered for a disconnected mobile.
    pub probes_answered: u64,
    /// Retransmissions on duplicate or partial acknowledgements.
    pub repaired: u64,
    /// Retransmissions by a timer, probes of a disconnected mobile included.
    pub timeouts: u64,
    /// Segments sent after a reconnection.
    pub resumed: u64,
    /// Segments of a fixed host that the mobile had acknowledged already, and that did not go over
    /// the hop again.
    pub dropped: u64,
    /// Duplicate acknowledgements that concerned the hop alone and were not passed on.
    pub suppressed: u64,
}

/// A supervisor host.
#[derive(Clone, Debug)]
pub struct MTcp<P> {
    config: MTcpConfig,
    flows: Table<Flow<P>>,
    queue: Queue<P>,
    /// The queue in front of the hop is nearly full.
    crowded: bool,
    stats: MTcpStats,
}

/// A timer of zero would fire for ever at one time.
const SHORTEST: Duration = Duration::from_millis(1);

/// A supervisor host's state of a mobile, on its way to another (MTC-7).
#[derive(Clone, Debug)]
pub struct SupervisorState<P> {
    flows: Vec<(Connection, Flow<P>)>,
}

impl<P: Packet> SupervisorState<P> {
    /// The connections in it.
    pub fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.flows.iter().map(|(connection, _)| connection)
    }

    /// Segments in it.
    pub fn kept(&self) -> usize {
        self.flows.iter().map(|(_, flow)| flow.kept()).sum()
    }
}

impl<P: Packet> MTcp<P> {
    /// A supervisor host without connections.
    pub fn new(config: &MTcpConfig) -> Self {
        let config = MTcpConfig {
            probe_interval: config.probe_interval.max(SHORTEST),
            least_timeout: config.least_timeout.max(SHORTEST),
            ..*config
        };
        Self {
            flows: Table::new(config.connections, config.idle),
            queue: Queue::default(),
            crowded: false,
            stats: MTcpStats::default(),
            config,
        }
    }

    /// What it did.
    pub const fn stats(&self) -> &MTcpStats {
        &self.stats
    }

    /// Segments that are kept, of all connections.
    pub fn kept(&self) -> usize {
        self.flows.iter().map(|(_, flow)| flow.kept()).sum()
    }

    /// Whether the mobile's end of a connection is taken to be disconnected; none if the connection
    /// is not known.
    pub fn is_disconnected(&mut self, connection: &Connection) -> Option<bool> {
        self.flows.peek(connection).map(|flow| flow.is_off())
    }

    /// Takes out what is known of a mobile that goes to another supervisor host, with its buffers.
    pub fn take(&mut self, mobile: IpAddr) -> SupervisorState<P> {
        SupervisorState { flows: self.flows.take_mobile(mobile) }
    }

    /// Goes on with what another supervisor host knew. A mobile that was disconnected there is so
    /// here until it says something or the hop is up.
    pub fn adopt(&mut self, now: Time, state: SupervisorState<P>) {
        self.flows.expire(now);
        for (connection, mut flow) in state.flows {
            flow.handle_move(now);
            self.track(now, connection, flow);
        }
    }

    /// Tracks a connection, in place of what was known of it.
    fn track(&mut self, now: Time, connection: Connection, flow: Flow<P>) {
        let due = flow.next_timeout(&self.config);
        self.flows.insert(now, connection, flow);
        self.flows.arm(&connection, due);
    }

    fn with_flow(
        &mut self,
        now: Time,
        connection: Connection,
        act: impl FnOnce(&mut Flow<P>, &mut Around<'_, P>),
    ) {
        let Some(flow) = self.flows.peek(&connection) else { return };
        let (config, queue, stats) = (&self.config, &mut self.queue, &mut self.stats);
        let crowded = self.crowded;
        act(flow, &mut Around { now, connection, config, crowded, queue, stats });
        let due = flow.next_timeout(&self.config);
        self.flows.arm(&connection, due);
    }

    fn with_all(&mut self, now: Time, mut act: impl FnMut(&mut Flow<P>, &mut Around<'_, P>)) {
        self.flows.expire(now);
        let (config, queue, stats) = (&self.config, &mut self.queue, &mut self.stats);
        let crowded = self.crowded;
        for (connection, flow) in self.flows.iter_mut() {
            let connection = *connection;
            act(flow, &mut Around { now, connection, config, crowded, queue, stats });
        }
        self.flows.arm_all(|flow| flow.next_timeout(config));
    }

    fn handle_fixed(&mut self, now: Time, tcp: &Tcp, packet: P) {
        let connection = tcp.connection(Side::Fixed);
        if tcp.segment.flags.intersects(Flags::SYN.with(Flags::RST)) {
            self.flows.remove(&connection);
            self.queue.packet(Side::Mobile, packet);
        } else if self.flows.get(now, &connection).is_some() {
            self.with_flow(now, connection, |flow, cx| flow.handle_fixed(cx, tcp, packet));
        } else {
            self.queue.packet(Side::Mobile, packet);
        }
    }

    fn handle_mobile(&mut self, now: Time, tcp: &Tcp, packet: P) {
        let connection = tcp.connection(Side::Mobile);
        let flags = tcp.segment.flags;
        if flags.intersects(Flags::SYN.with(Flags::RST)) || !flags.contains(Flags::ACK) {
            if flags.intersects(Flags::SYN.with(Flags::RST)) {
                self.flows.remove(&connection);
            }
            if flags == Flags::SYN.with(Flags::ACK) {
                let flow = Flow::new(now, &tcp.segment, &self.config);
                self.track(now, connection, flow);
            }
            self.queue.packet(Side::Fixed, packet);
            return;
        }
        if self.flows.get(now, &connection).is_none_or(|flow| flow.is_strange()) {
            let flow = Flow::new(now, &tcp.segment, &self.config);
            self.track(now, connection, flow);
        }
        self.with_flow(now, connection, |flow, cx| flow.handle_mobile(cx, tcp, packet));
    }
}

impl<P: Packet> Agent<P> for MTcp<P> {
    fn handle_packet(&mut self, now: Time, from: Side, packet: P) {
        self.flows.expire(now);
        match (packet.tcp(), from) {
            (None, _) => self.queue.packet(from.other(), packet),
            (Some(tcp), Side::Fixed) => self.handle_fixed(now, &tcp, packet),
            (Some(tcp), Side::Mobile) => self.handle_mobile(now, &tcp, packet),
        }
    }

    /// A handoff that is complete means the same as a hop that is up: the mobile is here. That a
    /// disconnection is near means nothing, since M-TCP acts when it has come.
    fn handle_link_event(&mut self, now: Time, event: LinkEvent) {
        match event {
            LinkEvent::Down => self.with_all(now, Flow::handle_down),
            LinkEvent::Up | LinkEvent::Complete => self.with_all(now, Flow::handle_up),
            LinkEvent::Imminent { .. } => {}
        }
    }

    fn watches_queue(&self) -> bool {
        true
    }

    fn handle_queue(&mut self, nearly_full: bool) {
        self.crowded = nearly_full;
    }

    fn remove_mobile(&mut self, mobile: IpAddr) {
        self.take(mobile);
    }

    fn poll_output(&mut self) -> Option<Output<P>> {
        self.queue.pop()
    }

    fn next_timeout(&self) -> Option<Time> {
        self.flows.next_due()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.flows.expire(now);
        while let Some(connection) = self.flows.pop_due(now) {
            self.with_flow(now, connection, Flow::handle_timeout);
        }
    }
}
