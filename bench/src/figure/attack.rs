//! What floods cost an honest user: the goodput of a download that runs, and how soon a mobile is up that
//! comes meanwhile.

mod connections;
mod datagrams;
mod flood;
mod initials;
mod messages;

use std::fmt;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use lasthop_lab::arrivals::Watched;
use lasthop_lab::client::Stop;
use lasthop_lab::topology::Topology;
use lasthop_lab::transfer::{Direction, Transfer};
use lasthop_units::{Bytes, Duration, Rate, Seed, one_line};

use super::Setting;
use crate::peer::site::{Capacity, Site};
use crate::peer::{Peer, Running};
use crate::report::{Report, Row};
use crate::stage::Stage;
use connections::Connections;
pub(crate) use datagrams::{Content, Datagrams};
use flood::Load;
pub(crate) use flood::{Attacker, Flood};
use initials::Initials;
use messages::Handshakes;
pub(crate) use messages::{Order, garbage, unknown};

const FIGURE: &str = "attack";
/// What is claimed of the goodput that is left, and of a new mobile.
const SHARE: f64 = 0.95;
const UP: Duration = Duration::from_secs(2);
/// Start-up is not what this figure is about.
const SETTLE: Duration = Duration::from_secs(3);
/// How long the flood lasts before the new mobile comes.
const LEAD: Duration = Duration::from_secs(1);
/// A mobile that is not up by then never will be.
const PATIENCE: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(10);
/// The first request of a new mobile.
const REQUEST: u64 = 1000;
/// The honest mobile, the new one, and the insider.
const ROOM: Capacity = Capacity { mobiles: 3, connections: 16 * 1024, workers: 1 };

/// What is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attack {
    Forged,
    Replayed,
    Insider,
    InsiderCookies,
    Garbage,
    Unknown,
}

const ATTACKS: [Attack; 6] = [
    Attack::Forged,
    Attack::Replayed,
    Attack::Insider,
    Attack::InsiderCookies,
    Attack::Garbage,
    Attack::Unknown,
];

impl fmt::Display for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Attack::Forged => "forged",
            Attack::Replayed => "replayed",
            Attack::Insider => "insider",
            Attack::InsiderCookies => "insider-cookies",
            Attack::Garbage => "garbage",
            Attack::Unknown => "unknown",
        })
    }
}

/// One attack at one rate.
#[derive(Clone, Copy, Debug)]
struct Cell {
    attack: Attack,
    per_second: u64,
    /// How long goodput is measured without the attack, and how long with it.
    span: Duration,
}

/// `forged-10000`.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}-{}", self.attack, self.per_second))
    }
}

/// Runs all attacks at all rates.
pub(crate) fn run(setting: &Setting, report: &mut Report) {
    let rates: &[u64] = setting.choose(&[1000, 10_000][..], &[300, 1000, 3000, 10_000, 30_000][..]);
    let span = Duration::from_secs(setting.choose(4, 12));
    for attack in ATTACKS {
        for &per_second in rates {
            let cell = Cell { attack, per_second, span };
            for peer in [Peer::Srp, Peer::SplitTcp("cubic"), Peer::Quic] {
                setting.attempt(report, FIGURE, &peer, cell, || {
                    Ok(measure(setting, &peer, cell)?.row(&peer, cell))
                });
            }
        }
    }
}

/// What was seen.
struct Seen {
    calm: Rate,
    attacked: Rate,
    /// How long the new mobile took.
    up: Option<Duration>,
    load: Load,
    /// CPU time of the base while it was flooded.
    base: f64,
    /// Whether the download went on, and every byte of it was right.
    right: bool,
    /// What became of the download if it did not.
    broken: Option<String>,
}

impl Seen {
    fn row(&self, peer: &Peer, cell: Cell) -> Row {
        let ours = peer.is_ours();
        let share = self.attacked.as_bps() as f64 / self.calm.as_bps() as f64;
        Row::new(FIGURE, peer, cell)
            .value("attack", cell.attack.to_string())
            .value("scheme", peer.scheme())
            .number("per_s", cell.per_second as f64)
            .number("sent_per_s", self.load.per_second())
            .number("calm_mbit_s", self.calm.as_bps() as f64 / 1e6)
            .number("honest_share", share)
            .number("up_s", self.up.map(|up| up.as_secs_f64()))
            .number("base_core", self.base)
            .number("flood_core", self.load.core_share())
            .value("sha256_ok", self.right)
            .value("error", self.broken.clone())
            .claim_if(ours, "every byte right", self.right)
            .claim_if(ours, format!("honest_share >= {SHARE}"), share >= SHARE)
            .claim_if(ours, "up within 2 s", self.up.is_some_and(|up| up <= UP))
    }
}

fn measure(setting: &Setting, peer: &Peer, cell: Cell) -> Result<Seen> {
    let topology = setting.seeded(Topology::default(), cell);
    let stage = Stage::build(&topology)?;
    let hosts = stage.hosts()?;
    let attacker = Attacker::beside(&hosts)?;
    let mut site = Site::open(peer, &hosts, ROOM, topology.seed.child("keys"))?;
    let honest = site.join(0)?;
    if until_up(&honest, Instant::now()).is_none() {
        bail!("the honest mobile was not up before the attack");
    }
    let ammunition = Ammunition::make(peer, &site, cell, topology.seed.child("attack"))?;

    let flow = stage.endless(honest.client(), Direction::Download)?;
    flow.until(flow.first_byte()? + SETTLE)?;
    let calm = Mark::of(&flow);
    flow.until(calm.at + cell.span)?;
    let begun = Mark::of(&flow);
    let cpu = site.cpu()?;
    let flood = ammunition.fire(&attacker, cell.per_second)?;
    thread::sleep(LEAD);
    let started = Instant::now();
    let new = site.join(1)?;
    let up = until_up(&new, started);
    thread::sleep((begun.at + cell.span).saturating_duration_since(Instant::now()));
    let ended = Mark::of(&flow);
    let base = (site.cpu()? - cpu).as_secs_f64() / (ended.at - begun.at).as_secs_f64();
    let load = flood.stop()?;
    site.check()?;
    let (right, broken) = match flow.stop() {
        Ok(ended) => (ended.is_right, None),
        Err(error) => (false, Some(one_line(&error))),
    };
    let (calm, attacked) = (calm.rate_to(&begun), begun.rate_to(&ended));
    Ok(Seen { calm, attacked, up, load, base, right, broken })
}

/// How far the download was at some moment.
struct Mark {
    at: Instant,
    bytes: Bytes,
}

impl Mark {
    fn of(flow: &Transfer) -> Self {
        Mark { at: Instant::now(), bytes: flow.received().lock().total() }
    }

    fn rate_to(&self, later: &Mark) -> Rate {
        Rate::of(later.bytes - self.bytes, later.at - self.at)
    }
}

/// How long after `started` a first small request by this mobile has succeeded, its start included; `None` if it
/// takes too long.
pub(super) fn until_up(mobile: &Running, started: Instant) -> Option<Duration> {
    let stop = Stop::default();
    let late = stop.clone();
    // Ends by itself: nobody waits for it.
    thread::spawn(move || {
        thread::sleep(PATIENCE);
        late.set();
    });
    while let Some(left) = PATIENCE.checked_sub(started.elapsed())
        && !stop.is_set()
    {
        let received = Watched::default();
        // Nobody listens yet, or it was not up in time: the user tries again.
        let _ = mobile.client().download(REQUEST, &received, &stop, left);
        if received.lock().total() >= Bytes::new(REQUEST) {
            return Some(started.elapsed());
        }
        thread::sleep(TICK);
    }
    None
}

/// A flood that is made and not yet begun.
enum Ammunition {
    Datagrams(Content, Order),
    Connections(Vec<Vec<u8>>, Order),
}

impl Ammunition {
    /// Makes what this attack is for this peer.
    fn make(peer: &Peer, site: &Site, cell: Cell, seed: Seed) -> Result<Self> {
        let count = cell.per_second * cell.span.as_secs();
        match (peer, site.keys()) {
            (Peer::Quic, _) => Self::of_quic(cell.attack, count, seed),
            (_, None) => bail!("{peer} has no keys"),
            (Peer::SplitTcp(_), Some((base, mobiles))) => {
                Self::of_split_tcp(cell.attack, count, &Handshakes::new(base, mobiles, seed), seed)
            }
            (_, Some((base, mobiles))) => {
                Self::of_srp(cell.attack, count, &Handshakes::new(base, mobiles, seed), seed)
            }
        }
    }

    fn of_srp(attack: Attack, count: u64, inits: &Handshakes, seed: Seed) -> Result<Self> {
        let (messages, order) = match attack {
            Attack::InsiderCookies => {
                let content = Content::Cookies(inits.insider(count)?);
                return Ok(Ammunition::Datagrams(content, Order::Spread(count)));
            }
            Attack::Insider => {
                let own = inits.insider(count)?;
                (own.iter().map(|init| init.datagram().to_vec()).collect(), Order::Spread(count))
            }
            Attack::Forged => (inits.forged(), Order::Cycled),
            Attack::Replayed => (inits.recorded()?, Order::Cycled),
            Attack::Garbage => (messages::garbage(seed), Order::Cycled),
            Attack::Unknown => (messages::unknown(seed), Order::Cycled),
        };
        Ok(Ammunition::Datagrams(Content::Fixed(messages), order))
    }

    fn of_split_tcp(attack: Attack, count: u64, inits: &Handshakes, seed: Seed) -> Result<Self> {
        let (messages, order) = match attack {
            Attack::Insider | Attack::InsiderCookies => {
                let own = inits.insider(count)?.into_iter().map(|init| init.datagram().to_vec());
                (messages::on_connections(own), Order::Spread(count))
            }
            Attack::Forged => (messages::on_connections(inits.forged().into_iter()), Order::Cycled),
            Attack::Replayed => {
                (messages::on_connections(inits.recorded()?.into_iter()), Order::Cycled)
            }
            Attack::Garbage => (messages::garbage_on_connections(seed), Order::Cycled),
            Attack::Unknown => (messages::unknown_on_connections(seed), Order::Cycled),
        };
        Ok(Ammunition::Connections(messages, order))
    }

    fn of_quic(attack: Attack, count: u64, seed: Seed) -> Result<Self> {
        let mut initials = Initials::new(seed)?;
        let (messages, order) = match attack {
            Attack::Insider | Attack::InsiderCookies => {
                (initials.fresh(count)?, Order::Spread(count))
            }
            Attack::Forged => (initials.forged(count)?, Order::Spread(count)),
            Attack::Replayed => (initials.recorded()?, Order::Cycled),
            Attack::Garbage => (initials::garbage(seed), Order::Cycled),
            Attack::Unknown => (initials::unknown(seed), Order::Cycled),
        };
        Ok(Ammunition::Datagrams(Content::Fixed(messages), order))
    }

    fn fire(self, attacker: &Attacker, per_second: u64) -> Result<Flood> {
        let started = match self {
            Ammunition::Datagrams(content, order) => {
                Flood::start(attacker, per_second, move |at| Datagrams::open(at, content, order))
            }
            Ammunition::Connections(messages, order) => {
                let arm = move |at: &Attacker| Ok(Connections::new(at, messages, order));
                Flood::start(attacker, per_second, arm)
            }
        };
        started.context("starting the flood")
    }
}
