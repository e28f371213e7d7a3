//! Rates and plots from successive reports.
//!
//! A process tells how many bytes each connection has carried; how fast it carries them follows from
//! two reports and the time between them. Nothing here reads a clock or asks anybody.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use lasthop_control::{
    AgentReport, AssociationReport, BaseReport, ConnectionReport, PacketReport, PastReport,
    PathReport, Report,
};
use lasthop_units::Time;

use crate::sample::{Agent, Association, Connection, Packets, Path, Program, Rates, Sample, Total};

/// How many samples are kept for plots unless somebody says otherwise: two minutes, once a second.
pub const DEPTH: usize = 120;
/// Connections beyond these have no rate: the number of a process's connections is bounded by its
/// configuration, but not here.
const TRACKS_MAX: usize = 16_384;
/// By how much the time between two answers can differ from that between the two reports, in seconds: an
/// answer may take 5 s.
const SLACK_S: f64 = 6.0;

/// The latest values of something, the newest last; NaN where it was unknown.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Ring {
    values: VecDeque<f32>,
    depth: usize,
}

impl Ring {
    /// One that keeps `depth` values.
    pub fn new(depth: usize) -> Self {
        Self { values: VecDeque::new(), depth }
    }

    /// Adds a value, and removes the oldest if there are too many.
    pub fn push(&mut self, value: Option<f64>) {
        if self.depth == 0 {
            return;
        }
        while self.values.len() >= self.depth {
            self.values.pop_front();
        }
        self.values.push_back(value.map_or(f32::NAN, |v| v as f32));
    }

    /// The values, the oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = f32> + '_ {
        self.values.iter().copied()
    }
}

/// What is plotted of a whole process.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Plots {
    /// Bit/s into the hop.
    pub to_hop: Ring,
    /// Bit/s out of the hop.
    pub from_hop: Ring,
    /// The share of what is sent that is lost.
    pub loss: Ring,
    /// The queue, milliseconds.
    pub queue_ms: Ring,
}

/// What a process counts of an association, a path or a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    to_hop: u64,
    from_hop: u64,
    /// Datagrams, of which some were lost.
    sent: u64,
    lost: u64,
    /// Packets beside the streams.
    packets: [u64; 2],
}

/// What has changed from one report to the next.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    rates: Rates,
    /// The share of datagrams that was lost.
    loss: Option<f64>,
    /// Packets per second: into the hop, and out of it.
    packets: [Option<f64>; 2],
}

/// What was last known of something that counts bytes.
#[derive(Clone, Debug, Default)]
struct Track {
    age_s: f64,
    counts: Counts,
    plot: Ring,
    /// The number of the report that it was last in.
    seen: u64,
}

/// What is remembered of a process.
#[derive(Clone, Debug)]
pub struct History {
    depth: usize,
    reports: u64,
    latest: Option<Latest>,
    associations: HashMap<u64, Track>,
    /// By association and name.
    paths: HashMap<(u64, String), Track>,
    connections: HashMap<String, Track>,
    programs: HashMap<Option<String>, Track>,
    agent: Option<AgentReport>,
    plots: Plots,
    /// The rates of the last second before the first report.
    before: Rates,
}

/// When the last report was made.
#[derive(Clone, Copy, Debug)]
struct Latest {
    at: Time,
    uptime_s: f64,
    opened: u64,
}

impl Default for History {
    fn default() -> Self {
        Self::new(DEPTH)
    }
}

impl History {
    /// One that keeps `depth` samples for plots.
    pub fn new(depth: usize) -> Self {
        let ring = || Ring::new(depth);
        Self {
            depth,
            reports: 0,
            latest: None,
            associations: HashMap::new(),
            paths: HashMap::new(),
            connections: HashMap::new(),
            programs: HashMap::new(),
            agent: None,
            plots: Plots { to_hop: ring(), from_hop: ring(), loss: ring(), queue_ms: ring() },
            before: Rates::default(),
        }
    }

    /// Whether there was no report yet.
    pub fn is_new(&self) -> bool {
        self.latest.is_none()
    }

    /// Takes what a process has carried before its first report, for the plots of one that is asked every `interval`.
    /// Later there is nothing to be added.
    pub fn remember(&mut self, past: &PastReport, interval: Duration) {
        if !self.is_new() {
            return;
        }
        let bps = |values: &[u64]| values.iter().map(|bps| Some(*bps as f64)).collect::<Vec<_>>();
        let [to_hop, from_hop] = [&past.to_hop_bps, &past.from_hop_bps].map(|values| bps(values));
        for (ring, seconds) in [
            (&mut self.plots.to_hop, &to_hop),
            (&mut self.plots.from_hop, &from_hop),
            (&mut self.plots.loss, &past.loss),
            (&mut self.plots.queue_ms, &past.queue_ms),
        ] {
            let samples = resampled(seconds, interval.as_secs_f64(), self.depth);
            samples.into_iter().rev().for_each(|sample| ring.push(sample));
        }
        self.before = Rates {
            to_hop_bps: past.to_hop_bps.last().copied(),
            from_hop_bps: past.from_hop_bps.last().copied(),
        };
    }

    /// Plots of the whole process.
    pub fn plots(&self) -> &Plots {
        &self.plots
    }

    /// The rate of the connection with this [`name`](Connection::name) so far, bit/s in both
    /// directions.
    pub fn connection(&self, name: &str) -> Option<&Ring> {
        self.connections.get(name).map(|track| &track.plot)
    }

    /// The rate of a path so far, by the number of its association and its name, bit/s in both
    /// directions.
    pub fn path(&self, association: u64, name: &str) -> Option<&Ring> {
        self.paths.get(&(association, name.to_owned())).map(|track| &track.plot)
    }

    /// The rate of a program so far, bit/s in both directions.
    pub fn program(&self, name: Option<&str>) -> Option<&Ring> {
        self.programs.get(&name.map(str::to_owned)).map(|track| &track.plot)
    }

    /// Takes a report that came at `now`.
    pub fn feed(&mut self, now: Time, report: &Report) -> Sample {
        let interval = self.interval(now, report);
        let restarted = self.latest.is_some() && interval.is_none();
        if restarted {
            self.clear();
        }
        self.reports += 1;
        // A report without time since the last one changes nothing but the picture.
        let over = interval.unwrap_or(0.0);
        let (associations, packets) = self.associations(report, over);
        let connections = self.connections(report, over);
        let programs = self.programs(&connections);
        let agent = self.agent(report, over);
        let mut total = Total { packets, ..total(&associations, &connections, agent.as_ref()) };
        if self.is_new() {
            // There is nothing to compare with, but it may be known from before.
            total.rates = self.before;
        }
        self.drop_unseen();
        self.plot(&total);
        self.latest =
            Some(Latest { at: now, uptime_s: report.uptime_s, opened: report.counters.opened });
        Sample {
            role: report.role.clone(),
            version: report.version.clone(),
            hop: report.hop.clone(),
            uptime_s: report.uptime_s,
            restarted,
            counters: report.counters,
            total,
            associations,
            connections,
            connections_hidden: 0,
            programs,
            bases: report.bases.clone(),
            peers: report.peers.clone(),
            handoffs: report.handoffs,
            handoff: report.handoff.clone(),
            agent,
        }
    }

    /// Seconds between the last report and this one; none if they are not of one process. The
    /// process's own clock says when a report was made; how long its way was does not matter.
    fn interval(&self, now: Time, report: &Report) -> Option<f64> {
        let latest = self.latest?;
        let over = report.uptime_s - latest.uptime_s;
        let waited = now.since(latest.at).as_secs_f64();
        let same =
            over >= 0.0 && waited - over <= SLACK_S && report.counters.opened >= latest.opened;
        same.then_some(over)
    }

    fn clear(&mut self) {
        let Self { plots, depth, .. } = self;
        *self = Self { plots: std::mem::take(plots), ..Self::new(*depth) };
    }

    fn step(&self, over: f64) -> Step {
        Step { over, first: self.latest.is_none(), depth: self.depth, number: self.reports }
    }

    /// Each association, and the packets of all.
    fn associations(&mut self, report: &Report, over: f64) -> (Vec<Association>, Option<Packets>) {
        let step = self.step(over);
        let mut out = Vec::with_capacity(report.associations.len());
        let mut packets = None;
        for a in &report.associations {
            let carried = a.packets.unwrap_or_default();
            let counts = Counts {
                to_hop: a.bytes_sent.saturating_add(carried.bytes_sent),
                from_hop: a.bytes_received.saturating_add(carried.bytes_received),
                sent: a.packets_sent.unwrap_or(0),
                lost: a.packets_lost.unwrap_or(0),
                packets: [carried.sent, carried.received],
            };
            let change = step.take(&mut self.associations, a.id, a.age_s, counts);
            let mut shown = Association {
                report: AssociationReport { paths: Vec::new(), ..a.clone() },
                rates: change.rates,
                base: report.bases.iter().find(|b| is_at(b, a)).map(|b| b.name.clone()),
                paths: self.paths(a, step),
            };
            if a.packets_lost.is_some() {
                shown.report.loss = a.loss.or(change.loss);
            }
            if a.packets.is_some() {
                add_packets(packets.get_or_insert_default(), &carried, change.packets);
            }
            out.push(shown);
        }
        (out, packets)
    }

    fn paths(&mut self, a: &AssociationReport, step: Step) -> Vec<Path> {
        let path = |p: &PathReport| {
            let counts =
                Counts { to_hop: p.bytes_sent, from_hop: p.bytes_received, ..Counts::default() };
            // A path has no age of its own, and none is older than its association.
            let change = step.take(&mut self.paths, (a.id, p.name.clone()), a.age_s, counts);
            Path { report: p.clone(), rates: change.rates }
        };
        a.paths.iter().map(path).collect()
    }

    fn connections(&mut self, report: &Report, over: f64) -> Vec<Connection> {
        let step = self.step(over);
        let mut out = Vec::with_capacity(report.connections.len());
        for c in &report.connections {
            let name = name(c);
            let counts =
                Counts { to_hop: c.bytes_to_hop, from_hop: c.bytes_from_hop, ..Counts::default() };
            let change = step.take(&mut self.connections, name.clone(), c.age_s, counts);
            out.push(Connection { name, report: c.clone(), rates: change.rates });
        }
        out
    }

    fn programs(&mut self, connections: &[Connection]) -> Vec<Program> {
        let mut programs: BTreeMap<(bool, Option<&str>), Program> = BTreeMap::new();
        for c in connections {
            let name = c.report.program.as_deref();
            let p = programs.entry((name.is_none(), name)).or_insert_with(|| Program {
                name: name.map(str::to_owned),
                priority: c.report.priority,
                ..Program::default()
            });
            p.connections += 1;
            p.bytes = p.bytes.saturating_add(c.bytes());
            p.rates = p.rates.and(c.rates);
            p.mixed |= p.priority != c.report.priority;
        }
        let mut programs: Vec<Program> = programs.into_values().collect();
        for p in &mut programs {
            if p.mixed {
                p.priority = None;
            }
            if self.programs.len() >= TRACKS_MAX && !self.programs.contains_key(&p.name) {
                continue;
            }
            let depth = self.depth;
            let track = self
                .programs
                .entry(p.name.clone())
                .or_insert_with(|| Track { plot: Ring::new(depth), ..Track::default() });
            track.plot.push(p.rates.sum().map(|bps| bps as f64));
            track.seen = self.reports;
        }
        programs
    }

    fn agent(&mut self, report: &Report, over: f64) -> Option<Agent> {
        let now = report.agent.clone()?;
        let before = self.agent.replace(now.clone());
        let mut agent = Agent { report: now, ..Agent::default() };
        let Some(before) = before.filter(|_| over > 0.0) else { return Some(agent) };
        let (now, was) = (&agent.report.mobile, &before.mobile);
        agent.rates = Rates {
            to_hop_bps: per_second(now.bytes_sent, was.bytes_sent, over).map(bits),
            from_hop_bps: per_second(now.bytes_received, was.bytes_received, over).map(bits),
        };
        for (name, value) in &agent.report.counters {
            let was = before.counters.get(name).copied().unwrap_or(0);
            if let Some(rate) = per_second(*value, was, over) {
                agent.counters_per_s.insert(name.clone(), rate);
            }
        }
        Some(agent)
    }

    fn drop_unseen(&mut self) {
        let number = self.reports;
        self.associations.retain(|_, track| track.seen == number);
        self.paths.retain(|_, track| track.seen == number);
        self.connections.retain(|_, track| track.seen == number);
        self.programs.retain(|_, track| track.seen == number);
    }

    fn plot(&mut self, total: &Total) {
        let rate = |bps: Option<u64>| bps.map(|bps| bps as f64);
        self.plots.to_hop.push(rate(total.rates.to_hop_bps));
        self.plots.from_hop.push(rate(total.rates.from_hop_bps));
        self.plots.loss.push(total.loss);
        self.plots.queue_ms.push(total.queue_ms);
    }
}

/// From one report to the next.
#[derive(Clone, Copy)]
struct Step {
    /// Seconds.
    over: f64,
    /// Whether there was none before.
    first: bool,
    depth: usize,
    number: u64,
}

impl Step {
    /// Replaces what was known of `key`, and says what has changed.
    fn take<K: Hash + Eq>(
        self,
        tracks: &mut HashMap<K, Track>,
        key: K,
        age_s: f64,
        counts: Counts,
    ) -> Change {
        let before = tracks.remove(&key);
        if before.is_none() && tracks.len() >= TRACKS_MAX {
            return Change::default();
        }
        let continued =
            before.filter(|was| was.seen != self.number && was.can_become(age_s, counts));
        let was = match &continued {
            Some(was) => Some(was.counts),
            // It began since: all that it did it did in this interval.
            None if !self.first && age_s <= self.over => Some(Counts::default()),
            None => None,
        };
        let change = was.map_or(Change::default(), |was| counts.since(was, self.over));
        let mut plot = continued.map_or_else(|| Ring::new(self.depth), |was| was.plot);
        plot.push(change.rates.sum().map(|bps| bps as f64));
        tracks.insert(key, Track { age_s, counts, plot, seen: self.number });
        change
    }
}

impl Counts {
    /// What has changed since the counts were `was`, `over` seconds ago.
    fn since(self, was: Self, over: f64) -> Change {
        let rates = Rates {
            to_hop_bps: per_second(self.to_hop, was.to_hop, over).map(bits),
            from_hop_bps: per_second(self.from_hop, was.from_hop, over).map(bits),
        };
        let ([sent, received], [was_sent, was_received]) = (self.packets, was.packets);
        Change {
            rates,
            loss: share(self.lost, was.lost, self.sent, was.sent),
            packets: [per_second(sent, was_sent, over), per_second(received, was_received, over)],
        }
    }
}

impl Track {
    /// Whether this can have become so old and have counted so much; otherwise it is something new
    /// of the same name.
    fn can_become(&self, age_s: f64, counts: Counts) -> bool {
        age_s >= self.age_s
            && counts.to_hop >= self.counts.to_hop
            && counts.from_hop >= self.counts.from_hop
    }
}

/// `most` means of `interval_s` seconds each, of values of one second each: the newest first.
fn resampled(seconds: &[Option<f64>], interval_s: f64, most: usize) -> Vec<Option<f64>> {
    let newest_first: Vec<_> = seconds.iter().rev().copied().collect();
    let place = |n: usize| (n as f64 * interval_s) as usize;
    let mean = |n: usize| {
        let (from, to) = (place(n), place(n + 1).max(place(n) + 1));
        let known = newest_first.get(from..to.min(newest_first.len()))?.iter().flatten();
        let (count, sum) = known.fold((0.0, 0.0), |(count, sum), v| (count + 1.0, sum + v));
        Some((count > 0.0).then(|| sum / count))
    };
    (0..most).map_while(|n| mean(n).filter(|_| place(n) < newest_first.len())).collect()
}

/// What names a connection: its key, or where a process gives it none, its number in its association.
fn name(c: &ConnectionReport) -> String {
    if c.key != 0 {
        return c.key.to_string();
    }
    let association = c.association.as_deref().unwrap_or("-");
    match c.id {
        Some(id) => format!("{association}/{id}"),
        None => format!("{association}/{}", c.target),
    }
}

fn is_at(base: &BaseReport, a: &AssociationReport) -> bool {
    a.address.as_deref() == Some(base.address.as_str())
}

/// How fast a counter grew, per second; none if it went back or no time passed.
fn per_second(now: u64, was: u64, over: f64) -> Option<f64> {
    let grown = now.checked_sub(was)?;
    (over > 0.0).then(|| grown as f64 / over)
}

fn bits(bytes_per_second: f64) -> u64 {
    (bytes_per_second * 8.0) as u64
}

fn share(part: u64, part_was: u64, whole: u64, whole_was: u64) -> Option<f64> {
    let whole = whole.checked_sub(whole_was)?;
    let part = part.checked_sub(part_was)?;
    (whole > 0).then(|| (part as f64 / whole as f64).min(1.0))
}

/// Adds an association's packets to those of all.
fn add_packets(all: &mut Packets, own: &PacketReport, per_s: [Option<f64>; 2]) {
    let sum = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    };
    let [to_hop, from_hop] = per_s;
    all.to_hop_per_s = sum(all.to_hop_per_s, to_hop);
    all.from_hop_per_s = sum(all.from_hop_per_s, from_hop);
    for (all, own) in [
        (&mut all.flows, own.flows),
        (&mut all.bytes_held, own.bytes_held),
        (&mut all.dropped, own.dropped()),
        (&mut all.given_up, own.given_up),
        (&mut all.late, own.late),
    ] {
        *all = all.saturating_add(own);
    }
}

fn total(associations: &[Association], connections: &[Connection], agent: Option<&Agent>) -> Total {
    let most = |values: &mut dyn Iterator<Item = Option<f64>>| values.flatten().reduce(f64::max);
    let rates = match agent {
        Some(agent) => agent.rates,
        None if associations.iter().any(|a| a.rates != Rates::default()) => {
            associations.iter().fold(Rates::default(), |sum, a| sum.and(a.rates))
        }
        None => connections.iter().fold(Rates::default(), |sum, c| sum.and(c.rates)),
    };
    Total {
        rates,
        loss: most(&mut associations.iter().map(|a| a.report.loss)),
        queue_ms: most(&mut associations.iter().map(|a| a.report.queue_ms)),
        srtt_ms: most(&mut associations.iter().map(|a| a.report.srtt_ms)),
        packets: None,
    }
}

#[cfg(test)]
mod tests;
