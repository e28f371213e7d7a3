//! A mobile among three bases, with connections at work.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use lasthop_lab::capture::{Capture, Seen};
use lasthop_lab::client::Client;
use lasthop_lab::roam::{Config, Fleet, Roam, Routing, Settings, WIRED, base_address, own_address};
use lasthop_lab::topology::{Family, link};
use lasthop_lab::traffic::{Flow, Servers, Traffic};
use lasthop_radio::RadioConfig;
use lasthop_testing::wait_or;
use lasthop_units::{Rate, Seed};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(5);

/// Slower than the demonstration's, since several run at once.
pub(crate) fn topology() -> Config {
    let radio = link(Rate::from_mbps(10), Duration::from_millis(10), 60);
    Config {
        radio: RadioConfig::both(radio),
        wired: link(Rate::from_mbps(100), Duration::from_millis(5), 500),
        base_delay: Duration::from_millis(2),
        ..Config::default()
    }
}

/// A command by which the router's way to the mobile's addresses follows it, but not to the base that has the address
/// `fails_at`.
pub(crate) fn by_hook(roam: &Roam, fails_at: Option<IpAddr>) -> Routing {
    let fails_at = fails_at.map(|address| address.to_string()).unwrap_or_default();
    let script = format!(
        "case $2 in *:*) family=6;; *) family=4;; esac\n\
         own=$(ip -o -$family address show dev {WIRED} scope global |\n\
           sed 's,.*inet6* \\([0-9a-f.:]*\\)/.*,\\1,')\n\
         if [ $own = '{fails_at}' ]; then echo no way >&2; exit 7; fi\n\
         if [ $1 = gain ]; then\n\
           exec nsenter --net={} ip -$family route replace $2 via $own\n\
         fi\n",
        roam.router.path().display()
    );
    Routing::Hook(vec!["/bin/sh".into(), "-c".into(), script, "hook".into()])
}

/// The router leads the mobile's addresses to the first base, and from there on they follow the bases' routes.
pub(crate) fn by_routes(roam: &Roam) -> Routing {
    for family in Family::ALL {
        let own = own_address(family);
        let length = if own.is_ipv4() { 32 } else { 128 };
        roam.router.route(Some((own, length)), base_address(family, 1)).unwrap();
    }
    Routing::Route
}

/// Everything at work.
pub(crate) struct Scene {
    // In the order in which they have to end.
    pub(crate) flows: Vec<Flow>,
    pub(crate) capture: Capture,
    pub(crate) fleet: Fleet,
    pub(crate) servers: Servers,
    pub(crate) roam: Roam,
    family: Family,
}

impl Scene {
    /// Bases, mobile and servers, and connections that have brought their first bytes.
    pub(crate) fn start(settings: &Settings, traffic: &[Traffic]) -> Option<Self> {
        Self::start_with(|_| settings.clone(), traffic)
    }

    /// As [`start`](Self::start), with settings for this lab.
    pub(crate) fn start_with(
        settings: impl FnOnce(&Roam) -> Settings,
        traffic: &[Traffic],
    ) -> Option<Self> {
        let program = super::program()?;
        let roam = super::roam(&topology())?;
        let settings = settings(&roam);
        Some(Self::on(roam, &settings, &program, traffic))
    }

    /// As [`start`](Self::start) in a lab that is there already.
    pub(crate) fn on(
        roam: Roam,
        settings: &Settings,
        program: &std::path::Path,
        traffic: &[Traffic],
    ) -> Self {
        let address = |port| roam.server_address(settings.family, port);
        let seed = Seed::from_u64(17);
        let servers = Servers::start(&roam.server, address(80), address(81), seed).unwrap();
        let fleet = Fleet::start(&roam, settings, program, PATIENCE).unwrap();
        let capture = roam.capture().unwrap();
        let family = settings.family;
        let mut scene = Self { flows: Vec::new(), capture, fleet, servers, roam, family };
        let now = Instant::now();
        traffic.iter().for_each(|kind| scene.open(*kind));
        scene.all_move_since(now);
        scene
    }

    /// One more connection.
    pub(crate) fn open(&mut self, kind: Traffic) {
        let name = format!("{kind} {}", self.flows.len()).replace(' ', "-");
        let (mobile, via) = (&self.roam.mobile, self.fleet.via());
        self.flows.push(self.servers.flow(kind, &name, mobile, via, PATIENCE).unwrap());
    }

    /// A client at the mobile, of the HTTP server or of that for conversations.
    pub(crate) fn client(&self, port: u16) -> Client {
        let server = self.roam.server_address(self.family, port);
        Client::new(&self.roam.mobile, self.fleet.via(), server)
    }

    /// Waits until every connection has brought something since `moment`, and checks that none
    /// broke.
    pub(crate) fn all_move_since(&mut self, moment: Instant) {
        let deadline = Instant::now() + PATIENCE;
        while !self.flows.iter().all(|flow| flow.has_moved_since(moment)) {
            self.fleet.check().unwrap();
            let broken: Vec<&str> = self.flows.iter_mut().filter_map(Flow::failure).collect();
            assert!(broken.is_empty(), "{broken:?}\n{}", self.fleet.said());
            if Instant::now() >= deadline {
                let stuck = self.flows.iter().filter(|flow| !flow.has_moved_since(moment));
                let stuck: Vec<Traffic> = stuck.map(Flow::kind).collect();
                panic!("nothing moves any more: {stuck:?}\n{}", self.said());
            }
            thread::sleep(TICK);
        }
    }

    /// Leaves, is nowhere for `dead_zone`, and arrives at base `to`.
    pub(crate) fn go(&mut self, to: usize, dead_zone: Duration) -> Instant {
        self.roam.leave().unwrap();
        thread::sleep(dead_zone);
        self.roam.arrive(to).unwrap()
    }

    /// Checks every byte so far.
    pub(crate) fn check_bytes(&mut self) {
        for flow in &mut self.flows {
            assert!(flow.sha256_ok(), "{}: wrong bytes", flow.kind());
        }
    }

    /// What the processes said last, and how the mobile's connections stand.
    pub(crate) fn said(&self) -> String {
        let status = self.fleet.ask(&["status"]).unwrap_or_else(|e| e.to_string());
        format!("{}{status}", self.fleet.said())
    }

    /// Waits until `f` is true of what the processes have said.
    pub(crate) fn says(&self, mut f: impl FnMut(&Self) -> bool) {
        wait_or(PATIENCE, || f(self), || format!("nobody says so\n{}", self.said()));
    }

    /// What the server has seen since the last time: no reset and no opening, in the connections
    /// that it knew then.
    pub(crate) fn server_noticed_nothing_since(&self, before: &Seen) -> Seen {
        let seen = self.capture.take();
        assert!(!seen.any_reset(), "{seen:?}\n{}", self.said());
        assert!(seen.openings.is_empty(), "{seen:?}\n{}", self.said());
        assert!(seen.alive.is_subset(&before.alive), "{seen:?} after {before:?}");
        seen
    }
}
