//! Snoop: local retransmission at the base station, unseen by both ends (Balakrishnan, Seshan, Amir
//! and Katz, 1995; SNP-1 to SNP-12).
//!
//! The agent keeps a copy of every segment that goes to a mobile. A duplicate acknowledgement that
//! comes back is answered with the segment it asks for and goes no further, so the fixed host does
//! not take a loss on the radio for congestion. A timer stands in where no duplicates come. What
//! the agent cannot repair it lets pass: duplicates for a segment that it never had (it was lost
//! before), for one that the fixed host itself has sent again, and for one that was tried too often.
//! The fixed host's own retransmissions always pass (SNP-9), also those of data that the mobile has
//! acknowledged: the mobile answers them itself, as in ns-2.
//!
//! Whatever lies between the agent and the mobile is one link to it, a mobile router included
//! (SNP-12). All it knows is soft: without it, after a handoff say, the ends help themselves.
//!
//! A segment that is sent again goes out as it came. Where the fixed host has meanwhile sent older
//! data with a later timestamp, the mobile refuses the copy (RFC 7323 section 5) and the fixed
//! host's own retransmission repairs it.
//!
//! Senders with SACK did not exist then. A duplicate that carries SACK blocks is kept back like any
//! other, and as long: until the expected number is reached, the tries are used up, which the local
//! timer sees to, or the fixed host has sent the segment again. But blocks on a new acknowledgement
//! pass and tell such a sender of the holes that are left; see [`Config::hide_sack`] and
//! [`Config::use_sack`] for what can be done about it.

mod config;
mod downloads;
mod timer;
mod upload_losses;

#[cfg(test)]
mod tests;

pub use config::{Config, Timer};

use alloc::vec::Vec;
use core::net::IpAddr;

use lasthop_units::{Bytes, Time};
use lasthop_wire::tcp::{Flags, SackBlocks};

use crate::packet::Queue;
use crate::table::Table;
use crate::{Agent, Connection, Output, Packet, Side, Tcp};
use downloads::Downloads;
use upload_losses::UploadLosses;

/// What has happened, over all connections.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Segments that were sent again, for whatever reason.
    pub local_retransmits: u64,
    /// Those of them that the local timer sent.
    pub timeouts: u64,
    /// Duplicate acknowledgements that were kept back.
    pub suppressed: u64,
    /// Duplicate acknowledgements that passed.
    pub duplicates_passed: u64,
    /// Segments of which a copy was kept.
    pub cached: u64,
    /// Segments that passed without, for want of room or because a queue was full.
    pub left_out: u64,
    /// Copies that were dropped before they were acknowledged.
    pub evicted: u64,
    /// Copies that were sent when their mobile arrived.
    pub released: u64,
    /// Acknowledgements that were marked with the cause of a loss.
    pub marked: u64,
    /// Packets that were handed on, of whatever protocol.
    pub passed: u64,
}

/// What becomes of an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AckAction {
    Pass,
    PassDuplicate,
    Suppress,
    HideSack,
}

/// What one connection's state works with.
struct Context<'a, P> {
    now: Time,
    config: &'a Config,
    /// The link's queue is nearly full.
    queue_full: bool,
    /// Bytes that may be kept beyond those that are.
    room: u64,
    out: &'a mut Queue<P>,
    stats: &'a mut Stats,
}

#[derive(Clone, Debug)]
struct State<P> {
    to_mobile: Downloads<P>,
    to_fixed: UploadLosses,
}

impl<P: Packet> State<P> {
    fn new(config: &Config) -> Self {
        Self { to_mobile: Downloads::new(config), to_fixed: UploadLosses::default() }
    }
}

/// The agent at a base station.
#[derive(Clone, Debug)]
pub struct Snoop<P> {
    config: Config,
    table: Table<State<P>>,
    queue_full: bool,
    out: Queue<P>,
    stats: Stats,
}

impl<P: Packet> Snoop<P> {
    /// An agent that knows no connection.
    pub fn new(config: Config) -> Self {
        Self {
            table: Table::new(config.connections, config.idle),
            queue_full: false,
            out: Queue::default(),
            stats: Stats::default(),
            config,
        }
    }

    /// What has happened so far.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Connections that are known.
    pub fn connections(&self) -> usize {
        self.table.len()
    }

    /// Segments that are kept.
    pub fn kept(&self) -> usize {
        self.table.iter().map(|(_, state)| state.to_mobile.kept()).sum()
    }

    /// Bytes that are kept, headers included.
    pub fn memory(&self) -> Bytes {
        Bytes::new(self.table.weight())
    }

    /// A packet for a mobile that is still at another base came by multicast: it is kept and not
    /// handed on (SNP-11).
    pub fn prime(&mut self, now: Time, packet: &P) {
        let Some(tcp) = packet.tcp().filter(carries_data) else { return };
        if tcp.segment.flags.contains(Flags::SYN) {
            return;
        }
        let connection = tcp.connection(Side::Fixed);
        self.expire(now);
        self.track(now, connection);
        self.with(now, connection, |state, context| {
            state.to_mobile.prime(context, &tcp.segment, packet);
        });
    }

    /// A mobile has come to this base: what was multicast to it ahead goes out (SNP-11).
    pub fn arrived(&mut self, now: Time, mobile: IpAddr) {
        self.expire(now);
        let connections: Vec<Connection> =
            self.table.iter().map(|(c, _)| *c).filter(|c| c.mobile.ip() == mobile).collect();
        for connection in connections {
            self.with(now, connection, |state, context| state.to_mobile.release(context));
        }
    }

    fn pass(&mut self, from: Side, packet: P) {
        self.stats.passed += 1;
        self.out.packet(from.other(), packet);
    }

    fn handle_fixed(&mut self, now: Time, tcp: &Tcp, mut packet: P) {
        let connection = tcp.connection(Side::Fixed);
        let mut segment = tcp.segment;
        if carries_data(tcp) {
            self.track(now, connection);
        }
        let lost = self.with(now, connection, |state, context| {
            if segment.flags.contains(Flags::SYN) {
                state.to_mobile.begin(context, &segment);
            } else if segment.seq_len() > 0 {
                state.to_mobile.on_data(context, &segment, &packet);
            }
            segment.flags.contains(Flags::ACK) && state.to_fixed.on_ack(segment.ack)
        });
        if self.config.eln && lost == Some(true) {
            segment.options.eln = true;
            packet.set_segment(&segment);
            self.stats.marked += 1;
        }
        self.pass(Side::Fixed, packet);
    }

    fn handle_mobile(&mut self, now: Time, tcp: &Tcp, mut packet: P) {
        let connection = tcp.connection(Side::Mobile);
        let mut segment = tcp.segment;
        let eln = self.config.eln;
        if eln && carries_data(tcp) {
            self.track(now, connection);
        }
        let action = self.with(now, connection, |state, context| {
            if segment.flags.contains(Flags::SYN) {
                state.to_fixed = UploadLosses::default();
            }
            if eln && segment.seq_len() > 0 {
                state.to_fixed.on_data(&segment);
            }
            match segment.flags.contains(Flags::ACK) {
                true => state.to_mobile.on_ack(context, &segment),
                false => AckAction::Pass,
            }
        });
        match action.unwrap_or(AckAction::Pass) {
            AckAction::Pass => {}
            AckAction::PassDuplicate => self.stats.duplicates_passed += 1,
            AckAction::Suppress => {
                self.stats.suppressed += 1;
                return;
            }
            AckAction::HideSack => {
                segment.options.sack = SackBlocks::default();
                packet.set_segment(&segment);
            }
        }
        self.pass(Side::Mobile, packet);
    }

    /// Tracks a connection, in mid-stream too.
    fn track(&mut self, now: Time, connection: Connection) {
        if self.table.peek(&connection).is_some() {
            return;
        }
        if let Some((_, state)) = self.table.make_room() {
            self.drop_state(&state);
        }
        self.table.insert(now, connection, State::new(&self.config));
    }

    /// Does something with a connection that is known, and keeps the sums and the timers right.
    fn with<R>(
        &mut self,
        now: Time,
        connection: Connection,
        act: impl FnOnce(&mut State<P>, &mut Context<'_, P>) -> R,
    ) -> Option<R> {
        let kept = self.table.weight();
        let state = self.table.get(now, &connection)?;
        let deadline = state.to_mobile.deadline();
        let mut context = Context {
            now,
            config: &self.config,
            queue_full: self.queue_full,
            room: self.config.memory.get().saturating_sub(kept),
            out: &mut self.out,
            stats: &mut self.stats,
        };
        let result = act(state, &mut context);
        let (bytes, due) = (state.to_mobile.bytes(), state.to_mobile.deadline());
        self.table.weigh(&connection, bytes);
        // A timer that found nothing to do has fired all the same.
        if due != deadline {
            self.table.arm(&connection, due);
        }
        Some(result)
    }

    fn expire(&mut self, now: Time) {
        while let Some((_, state)) = self.table.pop_expired(now) {
            self.drop_state(&state);
        }
    }

    fn drop_state(&mut self, state: &State<P>) {
        self.stats.evicted += state.to_mobile.kept() as u64;
    }
}

/// It begins a connection or carries what is worth keeping.
fn carries_data(tcp: &Tcp) -> bool {
    tcp.segment.seq_len() > 0 && !tcp.segment.flags.contains(Flags::RST)
}

impl<P: Packet> Agent<P> for Snoop<P> {
    fn handle_packet(&mut self, now: Time, from: Side, packet: P) {
        self.expire(now);
        let Some(tcp) = packet.tcp() else { return self.pass(from, packet) };
        if tcp.segment.flags.contains(Flags::RST) {
            if let Some(state) = self.table.remove(&tcp.connection(from)) {
                self.drop_state(&state);
            }
            return self.pass(from, packet);
        }
        match from {
            Side::Fixed => self.handle_fixed(now, &tcp, packet),
            Side::Mobile => self.handle_mobile(now, &tcp, packet),
        }
    }

    fn watches_queue(&self) -> bool {
        true
    }

    /// While it is nearly full new segments are not kept, so that a loss there reaches the fixed host
    /// as what it is, congestion (SNP-7). ns-2 draws the line where one more packet fits.
    fn handle_queue(&mut self, nearly_full: bool) {
        self.queue_full = nearly_full;
    }

    fn remove_mobile(&mut self, mobile: IpAddr) {
        for (_, state) in self.table.take_mobile(mobile) {
            self.drop_state(&state);
        }
    }

    fn poll_output(&mut self) -> Option<Output<P>> {
        self.out.pop()
    }

    fn next_timeout(&self) -> Option<Time> {
        self.table.next_due()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.expire(now);
        while let Some(connection) = self.table.pop_due(now) {
            self.with(now, connection, |state, context| state.to_mobile.on_timeout(context));
        }
    }
}
