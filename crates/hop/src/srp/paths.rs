//! Several paths under one association: which there are, and which is to carry what comes next.

use lasthop_units::{Bytes, Duration, Rate, Time};
use smallvec::SmallVec;

use super::Srp;
use super::content::{Load, Loads};
use super::doubles::Double;
use super::path::Path;
use super::rate::RateControl;
use crate::path_id::{PATHS_MAX, PathId, PathSet};
use crate::policy::{PathStatus, Policy};

/// What is lost goes by a path that is slower than the fastest by such a part of its time, too.
const LITTLE_LATER: u32 = 2;

impl Srp {
    /// There is another path to the peer, of which nothing is known. A ping measures it before it carries anything.
    /// Nothing changes if there is one of that name. False if its name is none.
    pub fn add_path(&mut self, now: Time, id: PathId) -> bool {
        let is_name = usize::from(id.0) < PATHS_MAX;
        if is_name && self.position(id).is_none() {
            let overhead = self.paths[0].overhead;
            let mut path = Path::new(&self.config, id, overhead, now);
            path.pacer.start(now);
            path.probes.request_ping();
            path.status = self.statuses.of(id);
            self.paths.push(path);
            self.shared.set_paths(self.paths.len());
        }
        is_name
    }

    pub(super) fn position(&self, id: PathId) -> Option<usize> {
        self.paths.iter().position(|path| path.id == id)
    }

    /// The paths that share a bottleneck with this one.
    pub(super) fn shares_with(&self, p: usize) -> PathSet {
        let mut set = PathSet::default();
        self.shared.others(p).for_each(|other| set.insert(self.paths[other].id));
        set
    }

    /// What is sent on all paths together that answer.
    pub(super) fn pacing_rate(&self) -> Rate {
        match &self.paths[..] {
            [path] => path.pacing_rate(),
            paths => sum(paths.iter().filter(|path| path.carries()).map(Path::pacing_rate)),
        }
    }

    /// A rate of all paths together.
    pub(super) fn sum_of(&self, rate: impl Fn(&RateControl) -> Rate) -> Rate {
        sum(self.paths.iter().map(|path| rate(&path.rate)))
    }

    /// The paths' places, those first by which something that is sent now arrives first.
    pub(super) fn by_arrival(&self) -> SmallVec<[usize; 4]> {
        let mut places: SmallVec<[usize; 4]> = (0..self.paths.len()).collect();
        if places.len() > 1 {
            places.sort_by_key(|p| {
                let path = &self.paths[*p];
                // Of those whose rate is not known the first.
                let arrival = match path.is_measured() {
                    true => Some(path.arrival()),
                    false => self.is_nearest(*p).then_some(Duration::ZERO),
                };
                (!path.carries(), arrival.is_none(), arrival)
            });
        }
        places
    }

    /// Whether a path has a good part less delay than all others. It is measured by what is sent then, though that be little.
    fn is_nearest(&self, p: usize) -> bool {
        let least = |path: &Path| path.rate.rtt_min();
        let own = least(&self.paths[p]);
        let mut others = self.others(p).filter(|path| path.carries());
        others.all(|path| own + own / LITTLE_LATER < least(path))
    }

    /// All paths but this one.
    fn others(&self, p: usize) -> impl Iterator<Item = &Path> {
        self.paths.iter().enumerate().filter(move |(other, _)| *other != p).map(|(_, path)| path)
    }

    /// Whether a path may carry what is of a policy.
    pub(super) fn admits(&self, policy: Policy, p: usize) -> bool {
        let (id, status) = (self.paths[p].id, self.paths[p].status);
        let cheaper = || {
            let cheaper = self.paths.iter().filter(move |path| path.status.cost < status.cost);
            cheaper.filter(|path| path.carries())
        };
        let is_meant = match policy {
            Policy::Speed | Policy::Redundant => true,
            Policy::Only(only) => only == id,
            Policy::Cheap => {
                cheaper().next().is_none() || sum(cheaper().map(Path::pacing_rate)) < status.below
            }
        };
        is_meant && !status.is_spent()
    }

    /// What this path is to carry of what waits, of each policy.
    pub(super) fn loads(&self, p: usize) -> Loads {
        let mut loads = Loads::new();
        let packets = self.packets.iter().flat_map(|lane| lane.policies());
        for policy in self.streams.policies().chain(packets) {
            if !loads.iter().any(|(other, _)| *other == policy)
                && self.has_data_of(policy)
                && let Some(load) = self.load(p, policy)
            {
                loads.push((policy, load));
            }
        }
        loads
    }

    /// What this path is to carry of what is to be sent next of a policy: nothing where faster ones have delivered all of
    /// that before it would arrive here (earliest completion first: Lim et al., CoNEXT 2017).
    pub(super) fn load(&self, p: usize, policy: Policy) -> Option<Load> {
        if !self.admits(policy, p) {
            return None;
        }
        if self.paths.len() == 1 {
            return Some(Load::All);
        }
        let mut order = self.by_arrival();
        order.retain(|other| self.admits(policy, *other));
        let (at, first) = (order.iter().position(|other| *other == p)?, order.first()?);
        if at == 0 {
            return Some(Load::All);
        }
        if !self.paths[p].carries() {
            return None;
        }
        let rate = sum(order[..at].iter().map(|faster| self.paths[*faster].pacing_rate()));
        let first = self.paths[*first].arrival();
        let until = |bytes| first + rate.time_for(Bytes::new(bytes));
        let lost = self.streams.lost(policy);
        // What holds up others goes the fastest way, if that has soon sent it, or one that is hardly slower.
        let soon = first + first / LITTLE_LATER;
        if lost > 0 && (self.paths[p].arrival() <= soon || until(lost) > soon) {
            return Some(Load::All);
        }
        if until(lost + self.streams.backlog(policy)) <= self.paths[p].latest_arrival() {
            return None;
        }
        match lost {
            0 => Some(Load::All),
            _ => self.streams.has_new(policy).then_some(Load::New),
        }
    }

    /// Whether a path is to carry what is sent once more, before anything new.
    pub(super) fn takes_double(&self, p: usize, double: &Double) -> bool {
        self.load(p, double.policy) == Some(Load::All)
    }

    /// Whether another path has carried something that this one is to carry too, as soon as it has air to spare.
    pub(super) fn has_twice(&self, p: usize) -> bool {
        self.paths[p].carries() && self.others(p).any(|other| other.twice.waits())
    }

    /// Whether packets wait that this path was the first to carry, for another one that answers.
    pub(super) fn leaves_packets(&self, p: usize) -> bool {
        self.paths[p].twice.waits() && self.others(p).any(Path::carries)
    }

    /// Whether what one path was the first to carry comes by another before the first would have repeated it.
    pub(super) fn comes_first(&self, second: usize, first: usize) -> bool {
        let repeated = self.paths[first].srtt() + self.paths[first].arrival();
        self.paths[second].arrival() <= repeated
    }

    /// What a path costs has changed: as this end says, which tells the peer, or as the peer does.
    pub(super) fn change_status(
        &mut self,
        now: Time,
        id: PathId,
        status: PathStatus,
        is_ours: bool,
    ) {
        if !self.statuses.change(id, status) {
            return;
        }
        if is_ours {
            self.statuses.queue(id);
        }
        if let Some(p) = self.position(id) {
            self.paths[p].status = status;
            if status.is_spent() {
                self.leave_silent(now, p);
            }
        }
    }

    /// A path does not answer, or may carry nothing more, and others do: what was on its way there is sent by them.
    pub(super) fn leave_silent(&mut self, now: Time, p: usize) {
        if self.others(p).any(Path::carries) {
            self.take_back(now, p);
        }
    }

    /// A path answers that did not: what is on its way on those that do not is sent by it.
    pub(super) fn leave_others(&mut self, now: Time, p: usize) {
        for other in 0..self.paths.len() {
            if other != p && self.paths[other].is_shut() {
                self.take_back(now, other);
            }
        }
    }

    /// A path answers: one that has sent nothing yet, as the first one where another was sooner, would not be asked any
    /// more.
    pub(super) fn ask_others(&mut self) {
        for path in self.paths.iter_mut().filter(|path| path.is_unasked()) {
            path.probes.request_ping();
        }
    }

    /// What is on its way on a path is due again.
    fn take_back(&mut self, now: Time, p: usize) {
        let Self { paths, streams, packets, statuses, .. } = self;
        for content in paths[p].recovery.take_back() {
            super::input::lose(now, content, (streams, packets.as_deref_mut(), statuses));
        }
    }
}

fn sum(rates: impl Iterator<Item = Rate>) -> Rate {
    Rate::from_bps(rates.fold(0, |sum, rate| sum.saturating_add(rate.as_bps())))
}
