//! A mobile among three bases with connections of every kind, and what happens to it.

use std::net::Ipv4Addr;
use std::thread;
use std::time::Instant;

use anyhow::{Result, bail};
use lasthop_lab::arrivals::Watched;
use lasthop_lab::client::{Client, Stop};
use lasthop_lab::kept::{Host, Process};
use lasthop_lab::roam::{BASES, Config, Fleet, Handoff, Mode, Roam, Settings, hop_address};
use lasthop_lab::topology::{Family, link};
use lasthop_lab::traffic::{Flow, Servers, Traffic};
use lasthop_radio::{Direction, Errors, Loss, RadioConfig};
use lasthop_units::{Duration, Rate, Seed, Stream};

use crate::figure::attack::{Attacker, Content, Datagrams, Flood, Order, garbage, unknown};
use crate::process;

/// The base that is restarted now and then; the others run from beginning to end.
const MORTAL: usize = 3;
/// The longest that a connection may stand still once there is a radio and a base.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than anything that is remembered of connections and of mobiles that went.
const QUIET: Duration = Duration::from_secs(75);
const TICK: Duration = Duration::from_millis(20);
/// Connections that last, one of each kind for each of these.
const SETS: usize = 2;
/// Every radio's rate to begin with.
const RATE: Rate = Rate::from_mbps(20);
/// Datagrams a second of a flood.
const FLOOD: u64 = 2000;
const HTTP: u16 = 80;
const TALK: u16 = 81;

/// What has happened so far.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Tally {
    pub(super) moves: u64,
    pub(super) silences: u64,
    pub(super) restarts: u64,
    pub(super) floods: u64,
    /// Short downloads that were whole.
    pub(super) downloads: u64,
    /// Connections that broke: only what a base took along that was killed.
    pub(super) broken: u64,
    /// Bytes of connections that are over.
    bytes: u64,
}

/// The processes with names, in a fixed order, and what each has.
pub(super) type Processes = Vec<(String, Process)>;

/// Everything at work.
pub(super) struct World {
    // In the order in which they have to end.
    flows: Vec<(Flow, Instant)>,
    fleet: Fleet,
    servers: Servers,
    roam: Roam,
    dice: Stream,
    restarted: Option<Instant>,
    opened: u64,
    pub(super) tally: Tally,
}

impl World {
    /// Bases, mobile and servers.
    pub(super) fn start(mode: Mode, seed: Seed) -> Result<Self> {
        let mut radio = RadioConfig::both(link(RATE, Duration::from_millis(15), 100));
        radio.up.losses.push(Loss::lose(Errors::Uniform(0.02)));
        radio.down.losses.push(Loss::lose(Errors::Uniform(0.02)));
        let topology = Config { radio, seed: seed.child("roam"), ..Config::default() };
        let roam = Roam::start(&topology)?;
        let address = |port| roam.server_address(Family::V4, port);
        let servers =
            Servers::start(&roam.server, address(HTTP), address(TALK), seed.child("content"))?;
        let handoff = Handoff { mode, ..Handoff::default() };
        let settings = Settings { handoff: Some(handoff), ..Settings::default() };
        let fleet = Fleet::start(&roam, &settings, process::lasthop()?, PATIENCE)?;
        Ok(Self {
            flows: Vec::new(),
            fleet,
            servers,
            roam,
            dice: seed.stream("soak"),
            restarted: None,
            opened: 0,
            tally: Tally::default(),
        })
    }

    /// Bytes that lasting connections have carried, all right.
    pub(super) fn bytes(&self) -> u64 {
        self.tally.bytes + self.flows.iter().map(|(flow, _)| flow.total()).sum::<u64>()
    }

    /// The last that every process said.
    pub(super) fn said(&self) -> String {
        self.fleet.said()
    }

    /// Visits every base once with connections of every kind, so that everything has been needed once.
    pub(super) fn tour(&mut self) -> Result<()> {
        self.open_missing()?;
        for base in [2, 3, 1] {
            self.go(base, Duration::from_millis(300), false)?;
        }
        Ok(())
    }

    /// Something happens, and everything goes on after it.
    pub(super) fn step(&mut self) -> Result<()> {
        match self.dice.below(20) {
            0..8 => {
                let to = (self.roam.last_place() + self.dice.below(2) as usize) % BASES + 1;
                let (zone, foreseen) = (self.below_ms(2500), self.dice.chance(0.4));
                self.go(to, zone, foreseen)?;
            }
            8..11 => {
                let silence = self.below_ms(8000);
                if let Some(radio) = self.roam.control() {
                    radio.pause(silence);
                }
                self.tally.silences += 1;
                thread::sleep(silence);
                self.all_go_on()?;
            }
            11..14 => {
                let rate = Rate::from_kbps(1000 + self.dice.below(19_000));
                self.set_rate(rate);
            }
            14..18 => self.download()?,
            18 => self.flood()?,
            _ => self.restart()?,
        }
        self.open_missing()?;
        self.fleet.check()?;
        let pause = self.below_ms(2000);
        thread::sleep(pause);
        Ok(())
    }

    /// The radio that the mobile is on has that rate from here on.
    fn set_rate(&self, rate: Rate) {
        for direction in [Direction::Down, Direction::Up] {
            if let Some(radio) = self.roam.control() {
                radio.set_rate(direction, rate);
            }
        }
    }

    fn below_ms(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.dice.below(most))
    }

    /// The mobile goes there; it is told before if that is foreseen.
    fn go(&mut self, to: usize, zone: Duration, foreseen: bool) -> Result<()> {
        if foreseen {
            self.fleet.ask(&["link", "imminent", "--to", &format!("b{to}"), "--in", "300ms"])?;
            thread::sleep(Duration::from_millis(300));
        }
        self.roam.leave()?;
        thread::sleep(zone);
        self.roam.arrive(to)?;
        self.tally.moves += 1;
        self.all_go_on()
    }

    /// One base ends without a word, and begins anew.
    fn restart(&mut self) -> Result<()> {
        self.tally.restarts += 1;
        self.restarted = Some(Instant::now());
        self.fleet.kill_base(MORTAL);
        let down = self.below_ms(3000);
        thread::sleep(down);
        self.fleet.start_base(MORTAL)?;
        self.all_go_on()
    }

    /// A download of its own goes on while strangers send what they like.
    fn flood(&mut self) -> Result<()> {
        self.tally.floods += 1;
        let to = 1 + self.dice.below(BASES as u64) as usize;
        let seed = Seed::from_u64(self.dice.next_u64());
        let source = Ipv4Addr::new(10, 0, 9, 1);
        let base = hop_address(Family::V4, to);
        let attacker = Attacker::at(&self.roam.router, vec![source], base);
        let messages = if self.dice.chance(0.5) { garbage(seed) } else { unknown(seed) };
        let flood = Flood::start(&attacker, FLOOD, |attacker| {
            Datagrams::open(attacker, Content::Fixed(messages), Order::Cycled)
        })?;
        let done = self.download();
        flood.stop()?;
        done
    }

    /// A connection of its own brings something whole.
    fn download(&mut self) -> Result<()> {
        let bytes = 1 + self.dice.below(500_000);
        let server = self.roam.server_address(Family::V4, HTTP);
        let client = Client::new(&self.roam.mobile, self.fleet.via(), server);
        let start = Instant::now();
        loop {
            let received = Watched::default();
            let failed = client.download(bytes, &received, &Stop::default(), PATIENCE).err();
            if !received.lock().is_prefix_of(self.servers.seed) {
                bail!("a download brought bytes that nobody sent");
            }
            match failed {
                None => {
                    self.tally.downloads += 1;
                    self.tally.bytes += bytes;
                    return Ok(());
                }
                Some(error) if start.elapsed() > PATIENCE => return Err(error.into()),
                Some(error) if self.may_break(start) => {
                    eprintln!("lasthop-bench: tried again, a base was killed: {error}");
                }
                Some(error) => return Err(error.into()),
            }
            thread::sleep(TICK);
        }
    }

    /// Whether what has stood since then may have been taken along by a base that was killed.
    fn may_break(&self, since: Instant) -> bool {
        self.restarted.is_some_and(|at| at + PATIENCE >= since)
    }

    fn open_missing(&mut self) -> Result<()> {
        for kind in Traffic::ALL {
            while self.flows.iter().filter(|(flow, _)| flow.kind() == kind).count() < SETS {
                self.opened += 1;
                let (name, now) = (format!("{kind}-{}", self.opened), Instant::now());
                let (mobile, via) = (&self.roam.mobile, self.fleet.via());
                let flow = self.servers.flow(kind, &name, mobile, via, PATIENCE)?;
                self.flows.push((flow, now));
            }
        }
        self.all_go_on()
    }

    /// Every connection brings something from now on, or is broken and may be.
    fn all_go_on(&mut self) -> Result<()> {
        let since = Instant::now();
        let mut waiting = true;
        while waiting {
            waiting = false;
            for (mut flow, opened) in std::mem::take(&mut self.flows) {
                if let Some(why) = flow.failure().map(str::to_owned) {
                    if !self.may_break(opened) {
                        bail!("{why}, and no base was killed since it was opened");
                    }
                    self.end(flow)?;
                    self.tally.broken += 1;
                    continue;
                }
                if !flow.has_moved_since(since) {
                    waiting = true;
                    if since.elapsed() >= PATIENCE {
                        bail!("{}: nothing has moved for {PATIENCE:?}", flow.kind());
                    }
                }
                self.flows.push((flow, opened));
            }
            self.fleet.check()?;
            thread::sleep(TICK);
        }
        Ok(())
    }

    /// Every byte of a connection that is over must have been right.
    fn end(&mut self, mut flow: Flow) -> Result<()> {
        if !flow.sha256_ok() {
            bail!("{}: bytes arrived that nobody sent", flow.kind());
        }
        self.tally.bytes += flow.total();
        Ok(())
    }

    /// Looks at every byte so far.
    pub(super) fn check(&mut self) -> Result<()> {
        match self.flows.iter_mut().find_map(|(flow, _)| (!flow.sha256_ok()).then(|| flow.kind())) {
            Some(kind) => bail!("{kind}: bytes arrived that nobody sent"),
            None => Ok(()),
        }
    }

    /// Ends every connection and waits until nothing of them is remembered; what everybody has then.
    pub(super) fn rest(&mut self) -> Result<(Processes, Vec<(String, Host)>)> {
        self.go(1, Duration::ZERO, false)?;
        self.set_rate(RATE);
        self.check()?;
        self.flows.iter().for_each(|(flow, _)| flow.stop());
        for (flow, _) in std::mem::take(&mut self.flows) {
            self.end(flow)?;
        }
        thread::sleep(QUIET);
        let hosts = (1..=BASES).map(|n| (format!("base{n}"), self.roam.base(n)));
        let hosts = hosts.chain([("mobile".to_owned(), &self.roam.mobile)]);
        let hosts = hosts.map(|(name, host)| Ok((name, Host::of(host)?)));
        Ok((self.processes()?, hosts.collect::<Result<_>>()?))
    }

    /// What every process has at this moment.
    pub(super) fn processes(&self) -> Result<Processes> {
        self.fleet.processes().map(|(name, pid)| Ok((name, Process::of(pid)?))).collect()
    }
}
