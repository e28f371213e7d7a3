//! A peer at work across the lab, and transfers over it.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Result, bail};
use lasthop_lab::cell::{Measured, Plan, measure_on};
use lasthop_lab::client::Client;
use lasthop_lab::http;
use lasthop_lab::service::Server;
use lasthop_lab::topology::{Family, Lab, Topology};
use lasthop_lab::transfer::{Direction, ENDLESS, Transfer};
use lasthop_radio::LinkStats;
use lasthop_units::{Duration, Rate};

use crate::peer::{self, Hosts, Peer, Running};

/// How long a connection may take to bring its first byte.
const PATIENCE: Duration = Duration::from_secs(60);
/// The base's address on the wired link, as the lab's topology draws it.
const BASE_WIRED: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
/// The share of a full packet that is payload of TCP with timestamps.
const PAYLOAD: f64 = 1448.0 / 1500.0;

/// Hosts, links and a server.
pub(crate) struct Stage {
    server: Server,
    /// The hosts and what is between them.
    pub(crate) lab: Lab,
}

impl Stage {
    /// Builds `topology` with a server at its fixed host.
    pub(crate) fn build(topology: &Topology) -> Result<Self> {
        let lab = Lab::start(topology)?;
        let seed = topology.seed.child("content");
        let server = http::start(&lab.fixed, lab.server_address(Family::V4), seed)?;
        Ok(Stage { server, lab })
    }

    /// Starts a peer here; `place` keeps several apart.
    pub(crate) fn start(&self, peer: &Peer, place: u16) -> Result<Running> {
        peer::start(peer, &self.hosts()?, place)
    }

    /// The three hosts, as peers know them.
    pub(crate) fn hosts(&self) -> Result<Hosts> {
        let SocketAddr::V4(hop) = self.lab.base_address(Family::V4) else {
            bail!("the base has no IPv4 address");
        };
        Ok(Hosts {
            fixed: self.lab.fixed.clone(),
            base: self.lab.base.clone(),
            mobile: self.lab.mobile.clone(),
            server: self.lab.server_address(Family::V4),
            wired: BASE_WIRED,
            hop,
        })
    }

    /// Starts a transfer of `bytes`.
    pub(crate) fn transfer(
        &self,
        client: &Client,
        direction: Direction,
        bytes: u64,
    ) -> Result<Transfer> {
        Ok(Transfer::start(&self.server, client, direction, bytes, PATIENCE)?)
    }

    /// Starts a transfer of more than can be moved.
    pub(crate) fn endless(&self, client: &Client, direction: Direction) -> Result<Transfer> {
        self.transfer(client, direction, ENDLESS)
    }

    /// Carries out `plan` here by a peer.
    pub(crate) fn measure(&self, plan: &Plan, running: &Running) -> Result<Measured> {
        let plan = Plan { patience: PATIENCE, ..plan.clone() };
        Ok(measure_on(&plan, &self.lab, &self.server, running.client(), || Ok(()))?)
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
