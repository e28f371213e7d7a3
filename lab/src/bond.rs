//! A mobile with several links to its base: what uses them, and what comes of it.

use std::net::SocketAddr;
use std::panic;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use lasthop_units::{Bytes, Rate};

use crate::LabError;
use crate::air::Air;
use crate::arrivals::Received;
use crate::cell::{PAYLOAD, Silence, radio_rate, start_hop_with_packets};
use crate::client::{Client, Stop, Via};
use crate::http;
use crate::scheme::{Carrier, Hop};
use crate::service::Server;
use crate::talk::{self, Pace};
use crate::topology::{
    Family, Lab, RADIO, Topology, address, has_multipath, network_beside, radio_beside,
};
use crate::transfer::{Direction, ENDLESS, Ended, Transfer};
use crate::voice::{self, Call};
use crate::wait::wait_until;

/// Rates of late are over this.
const WINDOW: Duration = Duration::from_millis(500);
/// Between two sights.
const SIGHT_EVERY: Duration = Duration::from_millis(200);
/// Fewer packets say nothing of how many a link loses; the time that it fades is known without any.
const ENOUGH: u64 = 1000;
const TALK_PORT: u16 = 81;

/// What uses the links.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Way {
    /// SRP by these interfaces together; by the routes' choice if none is named.
    Srp(Vec<String>),
    /// SRP by the first radio, and by the second while the first is dark: the routes change at those very moments.
    Switch,
    /// The kernel's multipath TCP from end to end, by all links, with this congestion control.
    Multipath(String),
}

/// What crosses the links at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Load {
    /// Transfers without end, each on a connection of its own.
    pub transfers: Vec<Direction>,
    /// By which addresses everything goes.
    pub family: Family,
    /// A call both ways while the others are measured, if the way carries packets.
    pub call: bool,
}

impl Load {
    /// One transfer without end.
    pub fn of(direction: Direction, family: Family) -> Self {
        Self { transfers: vec![direction], family, call: false }
    }
}

/// The interfaces of so many radios.
pub fn interfaces(radios: usize) -> Vec<String> {
    [RADIO.to_owned()].into_iter().chain((1..radios).map(radio_beside)).collect()
}

/// A mobile with its links, and a load on them.
#[derive(Debug)]
pub struct Bond {
    transfers: Vec<(Direction, Transfer)>,
    server: Server,
    hop: Option<Carrier>,
    /// The hosts and what is between them.
    pub lab: Lab,
    topology: Topology,
    way: Way,
    load: Load,
    patience: Duration,
    began: Instant,
    dark_until: Option<Instant>,
    seen: Option<Seen>,
}

/// What the radios had carried at a moment.
#[derive(Debug)]
struct Seen {
    at: Instant,
    bytes: Vec<[u64; 2]>,
}

/// How things stand at a moment.
#[derive(Clone, Debug)]
pub struct Sight {
    /// Since the transfers brought their first bytes.
    pub elapsed: Duration,
    /// Whether the first radio is dark.
    pub dark: bool,
    /// Each transfer, its rate of late and its bytes.
    pub transfers: Vec<(Direction, Rate, u64)>,
    /// What each radio carried since the last sight, down and up.
    pub radios: Vec<[Rate; 2]>,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Each transfer, in the order of the load.
    pub transfers: Vec<Measured>,
    /// The call, both directions together; none if the way carries no packets or the load has none.
    pub call: Option<Call>,
}

/// What was measured of a transfer.
#[derive(Clone, Debug)]
pub struct Measured {
    /// New bytes at the receiver.
    pub goodput: Rate,
    /// Of what all radios could carry, with the losses as they fell, while they were there.
    pub share_of_sum: f64,
    /// Of what the best one could.
    pub share_of_best: f64,
    /// The longest time without a byte.
    pub gap: Duration,
    /// Whether the bytes are, by SHA-256, those that were sent.
    pub sha256_ok: bool,
}

impl Bond {
    /// Starts the load's transfers, each of which has brought its first byte then. `mobile` are more arguments of
    /// `lasthop mobile`'s.
    ///
    /// # Errors
    ///
    /// The lab could not be built, the way could not be started, or nothing came within `patience`.
    pub fn start(
        topology: Topology,
        way: &Way,
        load: &Load,
        program: &Path,
        (mobile, patience): (Vec<String>, Duration),
    ) -> Result<Self, LabError> {
        let lab = Lab::start(&topology)?;
        let seed = topology.seed.child("content");
        let family = load.family;
        let at = lab.server_address(family);
        let mut hop = Hop { mobile, packets: load.call, ..Hop::new("srp") };
        if let Way::Srp(links) = way
            && !links.is_empty()
        {
            hop.mobile.extend(["--links".to_owned(), links.join(",")]);
        }
        let (hop, server) = match way {
            Way::Srp(_) | Way::Switch => {
                let start = if load.call { start_hop_with_packets } else { Carrier::start_hop };
                let hop = start(&hop, &lab, family, program, patience)?;
                (Some(hop), http::start(&lab.fixed, at, seed)?)
            }
            Way::Multipath(congestion) => {
                start_multipath(&lab, family, congestion)?;
                (None, http::start_multipath(&lab.fixed, at, seed)?)
            }
        };
        let mut bond = Self {
            transfers: Vec::new(),
            server,
            hop,
            lab,
            topology,
            way: way.clone(),
            load: load.clone(),
            patience,
            began: Instant::now(),
            dark_until: None,
            seen: None,
        };
        for direction in &load.transfers {
            bond.transfers.push((*direction, bond.transfer(*direction, ENDLESS)?));
        }
        for (_, transfer) in &bond.transfers {
            transfer.first_byte()?;
        }
        bond.began = Instant::now();
        Ok(bond)
    }

    /// Moves so many bytes on one more connection.
    ///
    /// # Errors
    ///
    /// No thread can be had.
    pub fn transfer(&self, direction: Direction, bytes: u64) -> Result<Transfer, LabError> {
        let client = Client::new(&self.lab.mobile, self.via(), self.server.address());
        Transfer::start(&self.server, &client, direction, bytes, self.patience)
    }

    /// Has a server at the fixed host say something to the mobile every so often, on one more connection: how long each
    /// took to be there in its order, from when it was due on, of those due in `lasting` after `settle`.
    ///
    /// # Errors
    ///
    /// The connection could not be made, or broke, or brought wrong bytes.
    pub fn paced(
        &self,
        pace: Pace,
        settle: Duration,
        lasting: Duration,
    ) -> Result<Vec<Duration>, LabError> {
        let mut at = self.lab.server_address(self.load.family);
        at.set_port(TALK_PORT);
        let start = match self.way {
            Way::Multipath(_) => talk::start_multipath,
            Way::Srp(_) | Way::Switch => talk::start,
        };
        let server = start(&self.lab.fixed, at, self.topology.seed.child("talk"))?;
        let client = Client::new(&self.lab.mobile, self.via(), server.address());
        talk::paced(&client, pace, (settle, lasting), self.patience)
    }

    /// Has the mobile send the fixed host datagrams at this pace: what became of those sent in `lasting` after `settle`.
    /// The load must have a call, without which no packets are carried.
    ///
    /// # Errors
    ///
    /// There is no socket for them.
    pub fn datagrams(
        &self,
        pace: Pace,
        settle: Duration,
        lasting: Duration,
    ) -> Result<Call, LabError> {
        let (hosts, to) = ((&self.lab.mobile, &self.lab.fixed), self.server.address().ip());
        voice::datagrams(hosts, to, pace, (settle, lasting))
    }

    /// Where the transfers' server is.
    pub fn server_address(&self) -> SocketAddr {
        self.server.address()
    }

    fn via(&self) -> Via {
        self.hop.as_ref().map_or(Via::Multipath, Carrier::via)
    }

    /// Runs for so long; when that began and ended.
    ///
    /// # Errors
    ///
    /// A connection broke, or a process ended.
    pub fn run(&mut self, time: Duration) -> Result<(Instant, Instant), LabError> {
        self.watch(time, &Stop::default(), &mut |_| ())
    }

    /// The same until `stop` is set; tells some five times a second how things stand.
    ///
    /// # Errors
    ///
    /// A connection broke, a process ended, or `stop` was set.
    pub fn watch(
        &mut self,
        time: Duration,
        stop: &Stop,
        tell: &mut dyn FnMut(&Sight),
    ) -> Result<(Instant, Instant), LabError> {
        let begun = Instant::now();
        wait_until(begun + time, || {
            if stop.is_set() {
                return Err(LabError::Stopped);
            }
            self.sight().iter().for_each(&mut *tell);
            self.transfers.iter().try_for_each(|(_, transfer)| transfer.check())
        })?;
        if let Some(hop) = &mut self.hop {
            hop.check()?;
        }
        Ok((begun, Instant::now()))
    }

    /// Ends it: all that came by each transfer.
    ///
    /// # Errors
    ///
    /// A connection broke.
    pub fn end(self) -> Result<Vec<Ended>, LabError> {
        self.transfers.into_iter().map(|(_, transfer)| transfer.stop()).collect()
    }

    /// Measures for so long, with a silence of the first radio in it, unless `stop` is set; tells how things stand.
    ///
    /// # Errors
    ///
    /// A connection broke, a process ended, or `stop` was set.
    pub fn measure(
        mut self,
        time: Duration,
        dark: Option<Silence>,
        stop: &Stop,
        tell: &mut dyn FnMut(&Sight),
    ) -> Result<Outcome, LabError> {
        self.airs().for_each(|air| air.control.reset_stats());
        let begun = Instant::now();
        let hung_up = Stop::default();
        let (server, family) = (self.server.address().ip(), self.load.family);
        let hosts = (self.lab.fixed.clone(), self.lab.mobile.clone());
        let speak = || voice::both(hosts, server, family, time, &hung_up);
        let has_call = self.load.call && self.hop.is_some();
        let (ran, called) = thread::scope(|scope| {
            let call = has_call.then(|| scope.spawn(speak));
            let ran = self.pass(time, dark, stop, tell);
            if ran.is_err() {
                hung_up.set();
            }
            let called = call.map(|call| call.join().unwrap_or_else(|p| panic::resume_unwind(p)));
            (ran, called.transpose())
        });
        // A connection that broke says more than that it did.
        let ended = self.end()?;
        let (at_end, limits) = ran?;
        let transfers = ended.into_iter().zip(limits);
        let measured = |(ended, limits)| measured(ended, limits, (begun, at_end));
        Ok(Outcome { transfers: transfers.map(measured).collect(), call: called? })
    }

    /// Waits through the measured part. When it ended, and each transfer's limits.
    fn pass(
        &mut self,
        time: Duration,
        dark: Option<Silence>,
        stop: &Stop,
        tell: &mut dyn FnMut(&Sight),
    ) -> Result<(Instant, Vec<Vec<f64>>), LabError> {
        let mut rest = time;
        if let Some(Silence { after, lasting }) = dark {
            self.watch(after, stop, tell)?;
            self.lab.radio.control.pause(lasting);
            self.dark_until = Some(Instant::now() + lasting);
            self.switch(1)?;
            self.watch(lasting, stop, tell)?;
            self.switch(0)?;
            rest = time.saturating_sub(after + lasting);
        }
        let (_, ended) = self.watch(rest, stop, tell)?;
        let there = dark.map_or(1.0, |dark| 1.0 - dark.lasting.as_secs_f64() / time.as_secs_f64());
        let directions = self.transfers.iter().map(|(direction, _)| *direction);
        Ok((ended, directions.map(|direction| self.limits(direction, there)).collect()))
    }

    /// Whoever switches uses this radio from now on.
    fn switch(&self, radio: usize) -> Result<(), LabError> {
        if self.way == Way::Switch { self.lab.prefer(radio) } else { Ok(()) }
    }

    fn airs(&self) -> impl Iterator<Item = &Air> {
        [&self.lab.radio].into_iter().chain(&self.lab.beside)
    }

    /// What each radio could carry, in bit/s, the first of which was `there` for a part of the time.
    fn limits(&self, direction: Direction, there: f64) -> Vec<f64> {
        let configs = [&self.topology.radio].into_iter().chain(&self.topology.beside);
        let limit = |(n, (air, config))| {
            let rate = radio_rate(config, direction).unwrap_or_default();
            let stats = Air::stats(air, direction.on_radio());
            let loss = match stats.sent.packets {
                ENOUGH.. => stats.loss(),
                _ => stats.fade_share(),
            };
            let there = if n == 0 { there } else { 1.0 };
            rate.as_bps() as f64 * (1.0 - loss) * PAYLOAD * there
        };
        self.airs().zip(configs).enumerate().map(limit).collect()
    }

    /// How things stand, if it was not told a moment ago.
    fn sight(&mut self) -> Option<Sight> {
        let now = Instant::now();
        if self.seen.as_ref().is_some_and(|seen| now < seen.at + SIGHT_EVERY) {
            return None;
        }
        let carried = |air: &Air| {
            let snapshot = air.control.snapshot();
            [Direction::Download, Direction::Upload]
                .map(|way| snapshot.link(way.on_radio()).delivered.bytes)
        };
        let bytes: Vec<[u64; 2]> = self.airs().map(carried).collect();
        let before = self.seen.replace(Seen { at: now, bytes: bytes.clone() });
        // The first time there is nothing to compare with.
        let before = before.unwrap_or_else(|| Seen { at: self.began, bytes: bytes.clone() });
        let since = now - before.at;
        let rates = |(now, then): (&[u64; 2], &[u64; 2])| {
            [0, 1].map(|way| Rate::of(Bytes::new(now[way].saturating_sub(then[way])), since))
        };
        let of_late = |(direction, transfer): &(Direction, Transfer)| {
            let received = transfer.received().lock();
            let from = now.checked_sub(WINDOW).unwrap_or(now);
            let rate = Rate::of(received.between(from, now), WINDOW);
            (*direction, rate, received.total().get())
        };
        Some(Sight {
            elapsed: now - self.began,
            dark: self.dark_until.is_some_and(|until| now < until),
            transfers: self.transfers.iter().map(of_late).collect(),
            radios: bytes.iter().zip(&before.bytes).map(rates).collect(),
        })
    }
}

/// Multipath TCP of the kernel's, whose connections from the mobile use all of its links.
fn start_multipath(lab: &Lab, family: Family, congestion: &str) -> Result<(), LabError> {
    if !has_multipath(&lab.fixed)? {
        return Err(LabError::NoMultipath);
    }
    lab.set_congestion(congestion)?;
    let limits = "mptcp limits set subflow 8 add_addr_accepted 8\n";
    lab.fixed.ip(limits)?;
    lab.mobile.ip(limits)?;
    for n in 1..=lab.beside.len() {
        let (own, name) = (address(family, network_beside(n), 2), radio_beside(n));
        lab.mobile.ip(&format!("mptcp endpoint add {own} dev {name} subflow\n"))?;
    }
    Ok(())
}

fn measured(ended: Ended, limits: Vec<f64>, span: (Instant, Instant)) -> Measured {
    let Ended { received, is_right } = ended;
    let goodput = Rate::of(received.between(span.0, span.1), span.1 - span.0);
    let share = |of: f64| if of > 0.0 { goodput.as_bps() as f64 / of } else { 0.0 };
    Measured {
        goodput,
        share_of_sum: share(limits.iter().sum()),
        share_of_best: share(limits.into_iter().fold(0.0, f64::max)),
        gap: longest_gap(&received, span),
        sha256_ok: is_right,
    }
}

/// The longest time without a byte.
pub fn longest_gap(received: &Received, (from, to): (Instant, Instant)) -> Duration {
    let arrivals = received.arrivals().iter().map(|arrival| arrival.at);
    let within = arrivals.filter(|at| (from..to).contains(at));
    let mut moments: Vec<Instant> = [from].into_iter().chain(within).collect();
    moments.push(to);
    moments.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
}
