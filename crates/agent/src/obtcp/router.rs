//! The agent at the mobile router (obtcp-2010 section III.B).

use core::net::IpAddr;

use lasthop_units::{Bytes, Time};
use lasthop_wire::agent::Message;
use lasthop_wire::tcp::{Flags, Seq};

use super::flow::{Flow, Shared};
use super::stats::RouterStats;
use super::{Config, ConfigError};
use crate::rtt::Rtt;
use crate::table::Table;
use crate::{Agent, Connection, Output, Packet, Queue, Side, Tcp};

/// The agent at the mobile router: reports gaps to the base, and repairs the link to the mobile
/// hosts behind it.
#[derive(Clone, Debug)]
pub struct Router<P> {
    flows: Table<Flow<P>>,
    shared: Shared<P>,
}

impl<P: Packet> Router<P> {
    /// An agent that knows no connection yet.
    ///
    /// # Errors
    ///
    /// A parameter is out of bounds.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let shared = Shared {
            config,
            out: Queue::default(),
            stats: RouterStats::default(),
            hop: Rtt::new(config.rto),
            serial: 0,
            room: 0,
        };
        let flows = Table::new(config.memory.connections, config.memory.idle);
        Ok(Self { flows, shared })
    }

    /// What it did so far.
    pub const fn stats(&self) -> RouterStats {
        self.shared.stats
    }

    /// Segments that are kept, of all connections.
    pub fn cached(&self) -> usize {
        self.flows.iter().map(|(_, flow)| flow.cached()).sum()
    }

    /// Bytes of payload that are kept, of all connections.
    pub const fn memory(&self) -> Bytes {
        Bytes::new(self.flows.weight())
    }

    /// Gaps that are known, of all connections.
    pub fn gaps(&self) -> usize {
        self.flows.iter().map(|(_, flow)| flow.gaps()).sum()
    }

    fn handle_data(&mut self, now: Time, tcp: &Tcp, packet: P) {
        let (connection, segment) = (tcp.connection(Side::Fixed), &tcp.segment);
        if segment.flags.contains(Flags::SYN) {
            self.track(now, connection, segment.end());
            return self.shared.out.packet(Side::Mobile, packet);
        }
        let known = self.flows.get(now, &connection).is_some_and(|flow| flow.takes(segment));
        if !known && segment.seq_len() > 0 {
            self.track(now, connection, segment.seq);
        }
        let most = self.shared.config.memory.bytes.get();
        self.shared.room = most.saturating_sub(self.flows.weight());
        match self.flows.peek(&connection) {
            Some(flow) if known || segment.seq_len() > 0 => {
                flow.handle_data(now, connection, segment, packet, &mut self.shared);
            }
            _ => self.shared.out.packet(Side::Mobile, packet),
        }
        self.arm(connection);
    }

    fn handle_ack(&mut self, now: Time, tcp: &Tcp, packet: P) {
        let connection = tcp.connection(Side::Mobile);
        match self.flows.get(now, &connection) {
            Some(flow) => flow.handle_ack(now, &tcp.segment, packet, &mut self.shared),
            None => self.shared.out.packet(Side::Fixed, packet),
        }
        self.arm(connection);
    }

    /// Tracks a connection, whose next byte is `next`, in place of what was known of it.
    fn track(&mut self, now: Time, connection: Connection, next: Seq) {
        self.flows.insert(now, connection, Flow::new(next, &self.shared.config));
    }

    fn arm(&mut self, connection: Connection) {
        if let Some(flow) = self.flows.peek(&connection) {
            let due = flow.due();
            let bytes = flow.bytes();
            self.flows.arm(&connection, due);
            self.flows.weigh(&connection, bytes);
        }
    }
}

impl<P: Packet> Agent<P> for Router<P> {
    fn handle_packet(&mut self, now: Time, from: Side, packet: P) {
        let Some(tcp) = packet.tcp() else {
            return self.shared.out.packet(from.other(), packet);
        };
        let flags = tcp.segment.flags;
        if flags.contains(Flags::RST) {
            self.flows.remove(&tcp.connection(from));
            return self.shared.out.packet(from.other(), packet);
        }
        match from {
            Side::Fixed => self.handle_data(now, &tcp, packet),
            Side::Mobile if flags.contains(Flags::ACK) => self.handle_ack(now, &tcp, packet),
            Side::Mobile => {
                if flags.contains(Flags::SYN) {
                    self.flows.remove(&tcp.connection(from));
                }
                self.shared.out.packet(Side::Fixed, packet);
            }
        }
    }

    fn handle_message(&mut self, now: Time, from: Side, message: &Message) {
        if let (Side::Fixed, Message::Congestion { connection, lost }) = (from, message) {
            self.shared.stats.congestions += 1;
            if let Some(flow) = self.flows.get(now, connection) {
                flow.handle_congestion(lost, &mut self.shared);
            }
            self.arm(*connection);
        }
    }

    fn remove_mobile(&mut self, mobile: IpAddr) {
        self.flows.take_mobile(mobile);
    }

    fn poll_output(&mut self) -> Option<Output<P>> {
        self.shared.out.pop()
    }

    fn next_timeout(&self) -> Option<Time> {
        self.flows.next_due()
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(connection) = self.flows.pop_due(now) {
            let Some(flow) = self.flows.peek(&connection) else { continue };
            flow.handle_timeout(now, connection, &mut self.shared);
            self.arm(connection);
        }
    }
}
