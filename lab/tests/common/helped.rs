//! Transfers over a path of bridges, with agents or without.

use std::net::SocketAddr;
use std::path::Path as FilePath;
use std::time::{Duration, Instant};

use lasthop_lab::agent::helper::{self, Helper};
use lasthop_lab::agent::path::{Path, Settings};
use lasthop_lab::agent::placement;
use lasthop_lab::client::Via;
use lasthop_lab::topology::Family;
use lasthop_lab::traffic::{Flow, Servers, Traffic};
use lasthop_testing::wait_until;
use lasthop_units::Seed;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const SEED: Seed = Seed::from_u64(7);

/// A path with servers at its fixed host, and agents if any were started.
pub(crate) struct Scene {
    // In the order in which they have to end.
    pub(crate) helpers: Vec<Helper>,
    servers: [(Family, Servers); 2],
    pub(crate) path: Path,
    names: u32,
}

impl Scene {
    /// Without agents; none where the test may not have it.
    pub(crate) fn start(settings: &Settings) -> Option<Self> {
        let path = super::path(settings)?;
        let servers = [Family::V4, Family::V6].map(|family| {
            let http = path.server_address(family);
            let talk = SocketAddr::new(http.ip(), http.port() + 1);
            (family, Servers::start(&path.fixed, http, talk, SEED).unwrap())
        });
        Some(Self { helpers: Vec::new(), servers, path, names: 0 })
    }

    /// Starts the agents of a scheme.
    pub(crate) fn help(&mut self, program: &FilePath, scheme: &str) {
        let placements = placement::of(scheme).unwrap();
        self.helpers = helper::start_all(&self.path, &placements, program, PATIENCE).unwrap();
    }

    /// A connection that has brought its first bytes.
    pub(crate) fn flow(&mut self, kind: Traffic, family: Family) -> Flow {
        self.names += 1;
        let name = self.names.to_string();
        let (_, servers) = self.servers.iter().find(|(f, _)| *f == family).unwrap();
        let flow = servers.flow(kind, &name, &self.path.mobile, Via::Direct, PATIENCE);
        let mut flow = flow.unwrap();
        goes_on(&mut flow);
        flow
    }

    /// Packets that each agent has taken at both of its interfaces.
    pub(crate) fn taken(&self) -> Vec<[u64; 2]> {
        let reports = self.helpers.iter().map(|helper| helper.report().unwrap());
        reports.map(|r| [r.fixed.packets_received, r.mobile.packets_received]).collect()
    }
}

/// Something more arrives in each direction from here on.
pub(crate) fn goes_on(flow: &mut Flow) {
    let start = Instant::now();
    wait_until("the next bytes", PATIENCE, || {
        assert_eq!(flow.failure(), None);
        flow.has_moved_since(start)
    });
}

/// So much more arrives, both directions together.
pub(crate) fn moves(flow: &mut Flow, bytes: u64) {
    let enough = flow.total() + bytes;
    wait_until("a transfer", PATIENCE, || {
        assert_eq!(flow.failure(), None);
        flow.total() >= enough
    });
}
