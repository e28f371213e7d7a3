//! Many mobiles that download at once: how several workers of a base divide the work, and what that costs.

use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use lasthop_units::{Duration, Rate};

use super::fleet::{Fleet, Standing};
use super::{FIGURE, GB, SETTLE, wait};
use crate::cables::cabled;
use crate::figure::Setting;
use crate::peer::Peer;
use crate::peer::site::{Capacity, Site};
use crate::pump::start_source;
use crate::report::{Report, Row};

const MOBILES: usize = 100;
/// What each is sent in the cells that leave the machine time.
const EACH: Rate = Rate::from_mbps(10);
/// What is claimed there of two workers beside one: how much of the work one has at most, and what a GB costs.
const SHARE: f64 = 0.6;
const COST: f64 = 1.1;

/// Runs one worker, and two beside it.
pub(super) fn run(setting: &Setting, report: &mut Report) {
    for (load, each) in [("paced", Some(EACH)), ("busy", None)] {
        run_load(setting, report, load, each);
    }
}

fn run_load(setting: &Setting, report: &mut Report, load: &str, each: Option<Rate>) {
    let mut of_one = None;
    for workers in [1, 2] {
        let cell = format!("{MOBILES}-{load}-{workers}");
        setting.attempt(report, FIGURE, &Peer::Srp, &cell, || {
            let seen = measure(setting, workers, each)?;
            let one = *of_one.get_or_insert(seen.cost);
            // Where the load takes all that is left of the machine, it decides who gets how much.
            let several = workers > 1 && each.is_some();
            Ok(Row::new(FIGURE, Peer::Srp, &cell)
                .value("associations", MOBILES)
                .value("connections", MOBILES)
                .value("workers", workers)
                .number("cpu_s_per_gb", seen.cost)
                .number("gbit_s", seen.rate.as_bps() as f64 / 1e9)
                .number("base_cores", seen.cores)
                .number("busiest_share", seen.busiest)
                .claim_if(several, format!("busiest_share <= {SHARE}"), seen.busiest <= SHARE)
                .claim_if(
                    several,
                    format!("cpu_s_per_gb <= {COST} of one's"),
                    seen.cost <= COST * one,
                ))
        });
    }
}

/// What was seen of the base.
struct Seen {
    /// CPU seconds for each GB.
    cost: f64,
    rate: Rate,
    /// Cores that it used.
    cores: f64,
    /// The share of its busiest thread.
    busiest: f64,
}

fn measure(setting: &Setting, workers: usize, each: Option<Rate>) -> Result<Seen> {
    let (hosts, seed) = (cabled()?, setting.seed.child("busy"));
    start_source(&hosts.fixed, hosts.server, each)?;
    let room = Capacity { mobiles: MOBILES, connections: 2 * MOBILES, workers };
    let mut site = Site::open(&Peer::Srp, &hosts, room, seed.child("keys"))?;
    let (base, mobiles) = site.keys().context("a base without keys")?;
    let targets = vec![hosts.server];
    let mut fleet = Fleet::start(&hosts, base, &mobiles, targets, seed.child("fleet"))?;
    let all = Standing { up: MOBILES, open: 0, made: MOBILES };
    wait(&mut fleet, &mut site, all)?;
    fleet.connect(1);
    wait(&mut fleet, &mut site, Standing { open: MOBILES, ..all })?;
    thread::sleep(SETTLE);
    let (began, bytes, before) = (Instant::now(), fleet.received(), site.cpu_of_threads()?);
    thread::sleep(Duration::from_secs(setting.choose(5, 20)));
    let (took, bytes) = (began.elapsed(), fleet.received() - bytes);
    let mut each = site.cpu_of_threads()?;
    for (thread, cpu) in &mut each {
        *cpu -= before.get(thread).copied().unwrap_or_default();
    }
    let all: Duration = each.values().sum();
    let busiest = each.into_values().max().unwrap_or_default();
    Ok(Seen {
        cost: all.as_secs_f64() / (bytes.get() as f64 / GB),
        rate: Rate::of(bytes, took),
        cores: all.as_secs_f64() / took.as_secs_f64(),
        busiest: busiest.as_secs_f64() / all.as_secs_f64(),
    })
}
