use lasthop_units::{Duration, Time, deserialize_duration};
use serde::Deserialize;

use super::flow::{AckKind, Flow, acknowledges};
use super::waiting::{DupackStats, Waiting};
use crate::table::Table;
use crate::{Packet, Queue, Side, Tcp};

/// How a [`DelayedDupacks`] works.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct DelayedDupacksConfig {
    /// How long a duplicate waits: longer than the link's repair, shorter than the sender's least
    /// timeout (DDA-4; silent: 100 ms).
    #[serde(deserialize_with = "deserialize_duration")]
    pub delay: Duration,
    /// Duplicates of a gap that pass at once (DDA-2).
    #[serde(skip)]
    pub at_once: u32,
    /// Connections that are known at most; the one that was silent longest gives way, and what waits
    /// of it is lost.
    #[serde(skip)]
    pub connections: usize,
    /// A connection without packets is removed after this time.
    #[serde(skip)]
    pub idle: Duration,
}

impl Default for DelayedDupacksConfig {
    fn default() -> Self {
        Self {
            delay: Duration::from_millis(100),
            at_once: 2,
            connections: 4096,
            idle: Duration::from_secs(900),
        }
    }
}

/// The receiver's half of delayed duplicate acknowledgements (Vaidya et al. 2002; DDA-2, DDA-3), in
/// front of a mobile whose TCP knows nothing of it. The third and later duplicates of a gap wait; if
/// the link fills it they are thrown away.
///
/// It stands at the mobile's end of the hop, or anywhere before the fixed host. What the first two
/// duplicates say in their SACK blocks it lets pass.
#[derive(Clone, Debug)]
pub struct DelayedDupacks<P> {
    config: DelayedDupacksConfig,
    pub(super) flows: Table<Flow<Waiting<P>>>,
    queue: Queue<P>,
    stats: DupackStats,
}

impl<P: Packet> DelayedDupacks<P> {
    /// A helper that knows no connection.
    pub fn new(config: DelayedDupacksConfig) -> Self {
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
        let Some(flow) = Flow::of(&mut self.flows, now, from, tcp) else { return Some(packet) };
        let kind = flow.seen.kind(&tcp.segment);
        flow.seen.observe(from, &tcp.segment);
        if from == Side::Fixed || !acknowledges(&tcp.segment) {
            return Some(packet);
        }
        let waiting = &mut flow.state;
        let passes = match kind {
            AckKind::Other => return Some(packet),
            AckKind::New => {
                waiting.discard(&mut self.stats);
                Some(packet)
            }
            AckKind::Duplicate => {
                let delays = waiting.run() >= self.config.at_once;
                let wait = delays.then_some(self.config.delay);
                waiting.add(now, wait, packet, &mut self.stats)
            }
        };
        let due = waiting.due();
        self.flows.arm(&tcp.connection(from), due);
        passes
    }
}

helper! {
    DelayedDupacks:

    fn next_timeout(&self) -> Option<Time> {
        self.flows.next_due()
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(connection) = self.flows.pop_due(now) {
            if let Some(flow) = self.flows.peek(&connection) {
                flow.state.release(&mut self.queue, &mut self.stats);
            }
        }
    }
}
