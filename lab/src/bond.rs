//! A mobile with several links to its base: what uses them, and what comes of it.

use std::path::Path;
use std::time::{Duration, Instant};

use lasthop_units::Rate;

use crate::LabError;
use crate::air::Air;
use crate::arrivals::Received;
use crate::cell::{PAYLOAD, Silence, radio_rate};
use crate::client::{Client, Via};
use crate::http;
use crate::scheme::{Carrier, Hop};
use crate::service::Server;
use crate::topology::{Family, Lab, RADIO, Topology, address, network_beside, radio_beside};
use crate::transfer::{Direction, ENDLESS, Ended, Transfer};

/// What crosses the links.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Way {
    /// SRP by these interfaces together; by the routes' choice if none is named.
    Srp(Vec<String>),
    /// The kernel's multipath TCP from end to end, by all links, with this congestion control.
    Multipath(String),
}

/// The interfaces of so many radios.
pub fn interfaces(radios: usize) -> Vec<String> {
    [RADIO.to_owned()].into_iter().chain((1..radios).map(radio_beside)).collect()
}

/// A transfer without end between the fixed host and the mobile.
#[derive(Debug)]
pub struct Bond {
    transfer: Transfer,
    _server: Server,
    hop: Option<Carrier>,
    /// The hosts and what is between them.
    pub lab: Lab,
    topology: Topology,
    direction: Direction,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// New bytes at the receiver.
    pub goodput: Rate,
    /// Of what all radios could carry, with the losses as they fell, while they were there.
    pub share_of_sum: f64,
    /// Of what the better one could.
    pub share_of_best: f64,
    /// The longest time without a byte.
    pub gap: Duration,
    /// Whether the bytes are, by SHA-256, those that were sent.
    pub sha256_ok: bool,
}

impl Bond {
    /// Starts the transfer, which has brought its first byte then. `mobile` are more arguments of `lasthop mobile`'s.
    ///
    /// # Errors
    ///
    /// The lab could not be built, the way could not be started, or nothing came within `patience`.
    pub fn start(
        topology: Topology,
        way: &Way,
        (direction, family): (Direction, Family),
        program: &Path,
        (mobile, patience): (Vec<String>, Duration),
    ) -> Result<Self, LabError> {
        let lab = Lab::start(&topology)?;
        let seed = topology.seed.child("content");
        let at = lab.server_address(family);
        let (hop, server, via) = match way {
            Way::Srp(links) => {
                let mut hop = Hop { mobile, ..Hop::new("srp") };
                if !links.is_empty() {
                    hop.mobile.extend(["--links".to_owned(), links.join(",")]);
                }
                let hop = Carrier::start_hop(&hop, &lab, family, program, patience)?;
                let via = hop.via();
                (Some(hop), http::start(&lab.fixed, at, seed)?, via)
            }
            Way::Multipath(congestion) => {
                lab.set_congestion(congestion)?;
                let limits = "mptcp limits set subflow 8 add_addr_accepted 8\n";
                lab.fixed.ip(limits)?;
                lab.mobile.ip(limits)?;
                for n in 1..=topology.beside.len() {
                    let (own, name) = (address(family, network_beside(n), 2), radio_beside(n));
                    lab.mobile.ip(&format!("mptcp endpoint add {own} dev {name} subflow\n"))?;
                }
                (None, http::start_multipath(&lab.fixed, at, seed)?, Via::Multipath)
            }
        };
        let client = Client::new(&lab.mobile, via, server.address());
        let transfer = Transfer::start(&server, &client, direction, ENDLESS, patience)?;
        transfer.first_byte()?;
        Ok(Self { transfer, _server: server, hop, lab, topology, direction })
    }

    /// Runs for so long; when that began and ended.
    ///
    /// # Errors
    ///
    /// The connection broke, or a process ended.
    pub fn run(&mut self, time: Duration) -> Result<(Instant, Instant), LabError> {
        let begun = Instant::now();
        self.transfer.until(begun + time)?;
        if let Some(hop) = &mut self.hop {
            hop.check()?;
        }
        Ok((begun, Instant::now()))
    }

    /// Ends it: all that came.
    ///
    /// # Errors
    ///
    /// The connection broke.
    pub fn end(self) -> Result<Ended, LabError> {
        self.transfer.stop()
    }

    /// Measures for so long, with a silence of the first radio in it. Whoever switches routes does so when it begins and
    /// ends: `switch` is told which radio is to be used from then on.
    ///
    /// # Errors
    ///
    /// The connection broke, or a process ended.
    pub fn measure(
        mut self,
        time: Duration,
        dark: Option<Silence>,
        mut switch: impl FnMut(&Lab, usize) -> Result<(), LabError>,
    ) -> Result<Measured, LabError> {
        self.airs().for_each(|air| air.control.reset_stats());
        let begun = Instant::now();
        let mut rest = time;
        if let Some(Silence { after, lasting }) = dark {
            self.run(after)?;
            self.lab.radio.control.pause(lasting);
            switch(&self.lab, 1)?;
            self.run(lasting)?;
            switch(&self.lab, 0)?;
            rest = time.saturating_sub(after + lasting);
        }
        let (_, ended) = self.run(rest)?;
        let there = dark.map_or(1.0, |dark| 1.0 - dark.lasting.as_secs_f64() / time.as_secs_f64());
        let limits = self.limits(there);
        let Ended { received, is_right } = self.end()?;
        let goodput = Rate::of(received.between(begun, ended), ended - begun);
        let share = |of: f64| if of > 0.0 { goodput.as_bps() as f64 / of } else { 0.0 };
        Ok(Measured {
            goodput,
            share_of_sum: share(limits.iter().sum()),
            share_of_best: share(limits.into_iter().fold(0.0, f64::max)),
            gap: longest_gap(&received, (begun, ended)),
            sha256_ok: is_right,
        })
    }

    fn airs(&self) -> impl Iterator<Item = &Air> {
        [&self.lab.radio].into_iter().chain(&self.lab.beside)
    }

    /// What each radio could carry, in bit/s, the first of which was `there` for a part of the time.
    fn limits(&self, there: f64) -> Vec<f64> {
        let configs = [&self.topology.radio].into_iter().chain(&self.topology.beside);
        let limit = |(n, (air, config))| {
            let rate = radio_rate(config, self.direction).unwrap_or_default();
            let loss = Air::stats(air, self.direction.on_radio()).loss();
            let there = if n == 0 { there } else { 1.0 };
            rate.as_bps() as f64 * (1.0 - loss) * PAYLOAD * there
        };
        self.airs().zip(configs).enumerate().map(limit).collect()
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
