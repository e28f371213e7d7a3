//! What a base costs that many mobiles are at and that carries many connections: nothing of its work may grow with
//! those that are idle.

mod busy;
mod fleet;
mod keeper;

use std::fmt;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use lasthop_lab::condition::Condition;
use lasthop_lab::transfer::Direction;
use lasthop_units::{Bytes, Duration, Rate};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use self::fleet::{Fleet, Standing};
use self::keeper::Keeper;
use super::attack::until_up;
use super::{DELAY, Setting, with_radio};
use crate::peer::Peer;
use crate::peer::site::{Capacity, Site};
use crate::report::{Report, Row};
use crate::stage::Stage;

const FIGURE: &str = "scale";
/// Threads that share the base's work.
const WORKERS: usize = 1;
/// Connections of each mobile, where they have any.
const CONNECTIONS: usize = 10;
/// The radio of the mobile that downloads.
const RATE: Rate = Rate::from_mbps(100);
/// What is claimed.
const IDLE: f64 = 0.02;
const MEMORY: Bytes = Bytes::from_mib(4096);
const EACH: Bytes = Bytes::from_kib(16);
/// With fewer connections, what the allocator takes at a time is more than they do.
const TELLING: usize = 1000;
const COST: f64 = 1.1;
/// How long all may take to stand.
const PATIENCE: Duration = Duration::from_secs(120);
const TICK: Duration = Duration::from_millis(20);
/// Left out before anything is measured: what all have done at once is over.
const SETTLE: Duration = Duration::from_secs(3);
/// Descriptors for all else.
const SPARE: u64 = 256;
const GB: f64 = 1e9;

/// Mobiles that are idle, and connections of each.
#[derive(Clone, Copy, Debug)]
struct Cell {
    associations: usize,
    each: usize,
}

/// `1000x10`.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}x{}", self.associations, self.each))
    }
}

/// Runs all cells; the first is what the others are compared with.
pub(crate) fn run(setting: &Setting, report: &mut Report) {
    let counts: &[usize] = setting.choose(&[1, 100, 1000][..], &[1, 100, 1000, 10_000][..]);
    for peer in [Peer::Srp, Peer::SplitTcp("cubic"), Peer::Quic] {
        let mut of_one = None;
        for &associations in counts {
            let mut bare = None;
            for each in [0, CONNECTIONS] {
                let cell = Cell { associations, each };
                setting.attempt(report, FIGURE, &peer, cell, || {
                    let seen = measure(setting, &peer, cell)?;
                    let (one, bare) =
                        (*of_one.get_or_insert(seen.cost), *bare.get_or_insert(seen.rss));
                    Ok(seen.row(&peer, cell, one, bare))
                });
            }
        }
    }
    busy::run(setting, report);
}

/// What was seen.
struct Seen {
    up: Duration,
    back: Duration,
    /// The share of a core.
    idle: f64,
    /// CPU seconds for each GB.
    cost: f64,
    rss: Bytes,
    right: bool,
}

impl Seen {
    /// A row, beside the cost of one association and the memory without connections.
    fn row(&self, peer: &Peer, cell: Cell, one: f64, bare: Bytes) -> Row {
        let ours = peer.is_ours();
        let connections = cell.associations * cell.each;
        let each = (connections > 0).then(|| (self.rss - bare).get() / connections as u64);
        Row::new(FIGURE, peer, cell)
            .value("associations", cell.associations)
            .value("connections", connections)
            .value("workers", WORKERS)
            .number("cpu_s_per_gb", self.cost)
            .number("idle_cpu", self.idle)
            .value("rss_bytes", self.rss.get())
            .value("bytes_each", each)
            .number("up_s", self.up.as_secs_f64())
            .number("back_s", self.back.as_secs_f64())
            .value("sha256_ok", self.right)
            .claim_if(ours, "every byte right", self.right)
            .claim_if(ours, format!("idle_cpu <= {IDLE}"), self.idle <= IDLE)
            .claim_if(ours, format!("cpu_s_per_gb <= {COST} of one's"), self.cost <= COST * one)
            .claim_if(ours, "rss <= 4 GiB", self.rss <= MEMORY)
            .claim_if(
                ours && connections >= TELLING,
                "16 KiB each",
                each.is_none_or(|each| each <= EACH.get()),
            )
    }
}

fn measure(setting: &Setting, peer: &Peer, cell: Cell) -> Result<Seen> {
    if *peer != Peer::Srp {
        bail!("no fleet of this peer's mobiles fits into one process");
    }
    let connections = cell.associations * cell.each;
    // This process has the mobiles' sockets, and the server's ends of connections.
    raise_descriptor_limit((cell.associations + connections) as u64 + SPARE)?;
    let topology = with_radio(Condition::Loss(0).topology(), RATE, DELAY);
    let stage = Stage::build(&setting.seeded(topology, cell))?;
    let hosts = stage.hosts()?;
    hosts.base.sysctl("ipv4.ip_local_port_range", "2000 65000")?;
    let keeper = Keeper::start(&hosts, CONNECTIONS as u16)?;
    let room = Capacity {
        mobiles: cell.associations + 1,
        connections: connections + 16,
        workers: WORKERS,
    };
    let mut site = Site::open(peer, &hosts, room, setting.seed.child("keys"))?;
    let Some((base, mobiles)) = site.keys() else { bail!("{peer} has no keys") };

    let began = Instant::now();
    let targets = keeper.addresses.clone();
    let mut fleet =
        Fleet::start(&hosts, base, &mobiles[1..], targets, setting.seed.child("fleet"))?;
    let all = Standing { up: cell.associations, open: 0, made: cell.associations };
    wait(&mut fleet, &mut site, all)?;
    let up = began.elapsed();
    fleet.connect(cell.each);
    let all = Standing { open: connections, ..all };
    wait(&mut fleet, &mut site, all)?;

    thread::sleep(SETTLE);
    let rss = site.rss()?;
    // The full span has a renewal of everybody's keys in it.
    let span = Duration::from_secs(setting.choose(20, 170));
    let idle = busy(&site, span)?;

    let mobile = site.join(0)?;
    if until_up(&mobile, Instant::now()).is_none() {
        bail!("the mobile that downloads was not up in time");
    }
    let flow = stage.endless(mobile.client(), Direction::Download)?;
    flow.until(flow.first_byte()? + SETTLE)?;
    let received = || flow.received().lock().total();
    let (before, cpu) = (received(), site.cpu()?);
    flow.until(Instant::now() + Duration::from_secs(setting.choose(8, 20)))?;
    let (bytes, cpu) = (received() - before, site.cpu()? - cpu);
    let right = flow.stop()?.is_right;
    let cost = cpu.as_secs_f64() / (bytes.get() as f64 / GB);
    drop(mobile);

    site.restart()?;
    let (began, made) = (Instant::now(), fleet.standing()?.made);
    wait(&mut fleet, &mut site, Standing { made: made + cell.associations, ..all })?;
    Ok(Seen { up, back: began.elapsed(), idle, cost, rss, right })
}

/// Has this process, and those that it starts, have so many descriptors.
fn raise_descriptor_limit(needed: u64) -> Result<()> {
    let now = getrlimit(Resource::Nofile);
    let maximum = now.maximum.map(|most| most.max(needed));
    let raised = Rlimit { current: maximum, maximum };
    setrlimit(Resource::Nofile, raised).with_context(|| {
        format!("{needed} descriptors are needed, and {:?} may be had", now.maximum)
    })
}

/// The share of a core that the base uses.
fn busy(site: &Site, span: Duration) -> Result<f64> {
    let (before, began) = (site.cpu()?, Instant::now());
    thread::sleep(span);
    Ok((site.cpu()? - before).as_secs_f64() / began.elapsed().as_secs_f64())
}

/// Waits until there is what is wanted.
fn wait(fleet: &mut Fleet, site: &mut Site, wanted: Standing) -> Result<()> {
    let began = Instant::now();
    loop {
        let is = fleet.standing()?;
        if is.up == wanted.up && is.open == wanted.open && is.made >= wanted.made {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            bail!("there is {is:?}, and not {wanted:?}");
        }
        site.check()?;
        thread::sleep(TICK);
    }
}
