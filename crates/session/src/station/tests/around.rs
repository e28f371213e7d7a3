//! What all bases of the world share: associations, fixed hosts, and who is dead.

use super::*;
use crate::handoff::tests::Wired;

/// What all bases share.
pub(super) struct Around {
    pub(super) mode: Mode,
    limits: Limits,
    pub(super) pairs: Vec<Pair>,
    /// Connections as the fixed host knows them: one more wherever a base asks for one anew.
    pub(super) flows: Vec<(ConnId, Wired)>,
    /// Connections that somebody gave up on purpose, or that a crash took.
    pub(super) spoiled: BTreeSet<ConnId>,
    /// Bases that call on others.
    pub(super) called: Vec<(u32, u32, usize)>,
    /// Ends of associations that are to learn that the other is gone, and when.
    pub(super) gone: Vec<(Time, u32, At)>,
    /// Whether wired halves can be dumped and restored.
    pub(super) ready: bool,
    /// Whether to dump and to restore takes time.
    pub(super) slow: bool,
    /// Whether what one session tells another comes to it after the station has acted, too, and not only before.
    pub(super) mixed: bool,
    /// Bases give tickets, and take over from each other.
    pub(super) fleet: bool,
    /// Of so many of its connections the mobile shows a ticket that is none.
    pub(super) forging: f64,
    /// So often a ticket was none.
    pub(super) forged: usize,
    /// Those that are dead; or cut off, and alive.
    pub(super) dead: BTreeMap<u32, Death>,
    /// Which base took the connection over, by its place among the flows: no other one has its packets.
    pub(super) owners: BTreeMap<usize, u32>,
    pub(super) dumped: usize,
    pub(super) spliced: usize,
    pub(super) taken: usize,
    sockets: u64,
}

/// How a base is dead for all others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Death {
    /// It does nothing any more.
    Killed,
    /// It goes on by itself.
    Cut,
}

impl Around {
    pub(super) fn blind(&self) -> Bytes {
        self.limits.blind()
    }

    pub(super) fn new(mode: Mode, limits: Limits) -> Self {
        Self {
            mode,
            limits,
            pairs: vec![],
            flows: vec![],
            spoiled: BTreeSet::new(),
            called: vec![],
            gone: vec![],
            ready: true,
            slow: false,
            mixed: false,
            fleet: false,
            forging: 0.0,
            forged: 0,
            dead: BTreeMap::new(),
            owners: BTreeMap::new(),
            dumped: 0,
            spliced: 0,
            taken: 0,
            sockets: 0,
        }
    }

    /// What fixed hosts know of a connection.
    pub(super) fn flows_of(&self, conn: ConnId) -> impl Iterator<Item = &Wired> {
        self.flows.iter().filter(move |(of, _)| *of == conn).map(|(_, wired)| wired)
    }

    /// A base has a connection's packets: it is alive, and no other one has taken the connection over.
    pub(super) fn has_packets(&self, base: u32, flow: usize) -> bool {
        !self.dead.contains_key(&base) && self.owners.get(&flow).is_none_or(|owner| *owner == base)
    }

    pub(super) fn pair(&mut self) -> usize {
        self.pairs.push(Pair::new(self.limits));
        self.pairs.len() - 1
    }

    pub(super) fn socket(&mut self) -> u64 {
        self.sockets += 1;
        self.sockets
    }
}
