//! Explicit Bad State Notification: the base tells the source that the hop failed (EBS-1).

use lasthop_units::{Duration, Time};
use lasthop_wire::agent::Message;

use crate::table::Table;
use crate::{Packet, Queue, Side};

/// Connections whose last notice is remembered.
const REMEMBERED: usize = 1024;

/// Tells sources, each not more often than it is of use.
#[derive(Clone, Debug)]
pub(super) struct Notices {
    told: Table<Time>,
    interval: Duration,
    count: u64,
}

impl Notices {
    pub(super) const fn new(interval: Duration) -> Self {
        Self { told: Table::new(REMEMBERED, interval), interval, count: 0 }
    }

    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// An attempt to send this packet to the mobile has failed. Only a source of data has a
    /// retransmission timer to arm again (EBS-2), and only one whose header can be read is known.
    pub(super) fn failed<P: Packet>(&mut self, now: Time, packet: &P, queue: &mut Queue<P>) {
        let Some(tcp) = packet.tcp().filter(|tcp| tcp.segment.len > 0) else { return };
        let connection = tcp.connection(Side::Fixed);
        let recent = |last: &mut Time| now.since(*last) < self.interval;
        if self.told.peek(&connection).is_some_and(recent) {
            return;
        }
        self.told.insert(now, connection, now);
        self.count += 1;
        queue.message(Side::Fixed, Message::BadState { connection });
    }
}
