//! A peer at work across the lab, and transfers over it.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use lasthop_lab::LabError;
use lasthop_lab::arrivals::{Received, Watched};
use lasthop_lab::cell::Direction;
use lasthop_lab::client::{Client, Stop};
use lasthop_lab::http::Server;
use lasthop_lab::topology::{Family, Lab, Topology};
use lasthop_radio::LinkStats;
use lasthop_units::{Duration, Rate, Seed};

use crate::peer::{self, Hosts, Peer, Running};

/// More than any measurement moves.
const ENDLESS: u64 = 1 << 40;
/// How long a connection may take to bring its first byte.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(10);
/// The base's address on the wired link, as the lab's topology draws it.
const BASE_WIRED: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
/// The share of a full packet that is payload of TCP with timestamps.
const PAYLOAD: f64 = 1448.0 / 1500.0;

/// Hosts, links and a server.
pub(crate) struct Stage {
    server: Server,
    /// The hosts and what is between them.
    pub(crate) lab: Lab,
    seed: Seed,
}

impl Stage {
    /// Builds `topology` with a server at its fixed host.
    pub(crate) fn build(topology: &Topology) -> Result<Self> {
        let lab = Lab::start(topology)?;
        let seed = topology.seed.child("content");
        let server = Server::start(&lab.fixed, lab.server_address(Family::V4), seed)?;
        Ok(Stage { server, lab, seed })
    }

    /// Starts a peer here; `place` keeps several apart.
    pub(crate) fn start(&self, peer: &Peer, place: u16) -> Result<Running> {
        let SocketAddr::V4(hop) = self.lab.base_address(Family::V4) else {
            bail!("the base has no IPv4 address");
        };
        let hosts = Hosts {
            fixed: self.lab.fixed.clone(),
            base: self.lab.base.clone(),
            mobile: self.lab.mobile.clone(),
            server: self.lab.server_address(Family::V4),
            wired: BASE_WIRED,
            hop,
        };
        peer::start(peer, &hosts, place)
    }

    /// Starts a transfer of `bytes`, or of more than can be moved.
    pub(crate) fn transfer(
        &self,
        client: &Client,
        direction: Direction,
        bytes: Option<u64>,
    ) -> Result<Flow> {
        static NAMES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let name = NAMES.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string();
        let (client, seed, bytes) = (client.clone(), self.seed, bytes.unwrap_or(ENDLESS));
        let stop = Stop::default();
        let stopped = stop.clone();
        let work = thread::Builder::new().name("transfer".into()).stack_size(256 << 10);
        let (received, task) = match direction {
            Direction::Download => {
                let received = Watched::default();
                let into = received.clone();
                let work = work.spawn(move || client.download(bytes, &into, &stopped, PATIENCE));
                (received, work)
            }
            Direction::Upload => {
                let received = self.server.upload(&name);
                let run = move || client.upload(&name, bytes, seed, &stopped, PATIENCE);
                (received, work.spawn(run))
            }
        };
        Ok(Flow { received, seed, stop, task: task.context("starting a thread")? })
    }

    /// A download without end.
    pub(crate) fn endless(&self, client: &Client, direction: Direction) -> Result<Flow> {
        self.transfer(client, direction, None)
    }

    /// What the radio has done to data in `direction`.
    pub(crate) fn radio(&self, direction: Direction) -> LinkStats {
        self.lab.radio.stats(direction.on_radio())
    }
}

/// The limit of goodput: what is left of the radio's rate after losses and headers.
pub(crate) fn limit(rate: Rate, loss: f64) -> Rate {
    rate.scale((1.0 - loss) * PAYLOAD)
}

/// A transfer on its way.
pub(crate) struct Flow {
    received: Watched,
    seed: Seed,
    stop: Stop,
    task: JoinHandle<Result<(), LabError>>,
}

/// A transfer that has ended.
pub(crate) struct Ended {
    /// What arrived when.
    pub(crate) received: Received,
    /// Whether what arrived is what was sent.
    pub(crate) sha256_ok: bool,
}

impl Flow {
    /// Waits for the first byte.
    pub(crate) fn first_byte(&self) -> Result<Instant> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(first) = self.received.lock().first() {
                return Ok(first);
            }
            if self.task.is_finished() {
                bail!("the transfer ended before its first byte");
            }
            if Instant::now() > deadline {
                bail!("no byte within {PATIENCE:?}");
            }
            thread::sleep(TICK);
        }
    }

    /// Bytes so far.
    pub(crate) fn total(&self) -> u64 {
        self.received.lock().total().get()
    }

    /// Waits until `moment`, or fails as soon as the transfer has ended.
    pub(crate) fn until(&self, moment: Instant) -> Result<()> {
        while let Some(left) = moment.checked_duration_since(Instant::now()) {
            if self.task.is_finished() {
                bail!("the transfer ended while it was measured");
            }
            thread::sleep(left.min(TICK));
        }
        Ok(())
    }

    /// Stops it and checks every byte. `measured` is what became of the measurement: why the
    /// transfer broke says more than that it did.
    pub(crate) fn end<T>(self, measured: Result<T>) -> Result<(T, Ended)> {
        self.stop.set();
        let outcome = self.task.join().map_err(|_| anyhow!("the transfer's thread panicked"))?;
        outcome.context("the transfer")?;
        let received = self.received.lock().clone();
        let sha256_ok = received.is_prefix_of(self.seed);
        Ok((measured?, Ended { received, sha256_ok }))
    }

    /// Waits for it to be whole, and checks every byte.
    pub(crate) fn finish(self) -> Result<Ended> {
        let outcome = self.task.join().map_err(|_| anyhow!("the transfer's thread panicked"))?;
        outcome.context("the transfer")?;
        let received = self.received.lock().clone();
        let sha256_ok = received.is_prefix_of(self.seed);
        Ok(Ended { received, sha256_ok })
    }
}
