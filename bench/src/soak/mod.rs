//! Hours of everything: moves, silences, rates that change, floods, restarts of a base, under connections
//! of every kind. Every byte is right, everything goes on, and nothing grows.

mod world;

use std::time::Instant;

use anyhow::Result;
use lasthop_lab::kept::Process;
use lasthop_lab::roam::Mode;
use lasthop_units::{Duration, Seed, parse_duration};

use crate::report::{Report, Row};
use world::{Processes, World};

const FIGURE: &str = "soak";
const PEER: &str = "srp";
/// How often a row is shown.
const MINUTE: Duration = Duration::from_secs(60);
/// What a process may hold more at the end than once it had been needed: what an allocator keeps.
const GROWTH_KIB: u64 = 8 * 1024;

#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// Only this mode of handoffs, anchor or migrate
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,
    /// How long in all; each mode of handoffs has its share of it
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, default_value = "1h")]
    time: Duration,
}

/// Runs each mode.
pub(crate) fn run(options: &Options, seed: u64, report: &mut Report) {
    let modes = options.mode.map_or(vec![Mode::Anchor, Mode::Migrate], |mode| vec![mode]);
    let time = options.time / modes.len() as u32;
    for mode in modes {
        let seed = Seed::from_u64(seed).child(&mode.to_string());
        if let Err(error) = soak(mode, time, seed, report) {
            report.row(&Row::failed(FIGURE, PEER, mode, &error, true));
        }
    }
}

fn soak(mode: Mode, time: Duration, seed: Seed, report: &mut Report) -> Result<()> {
    let mut world = World::start(mode, seed)?;
    let missed = report.missed();
    let outcome = live(&mut world, mode, time, report);
    if outcome.is_err() || report.missed() > missed {
        eprintln!("{}", world.said());
    }
    outcome
}

fn live(world: &mut World, mode: Mode, time: Duration, report: &mut Report) -> Result<()> {
    world.tour()?;
    let (before, hosts_before) = world.rest()?;
    world.tour()?;
    let begin = Instant::now();
    let (mut shown, mut most) = (begin, Process::default());
    while begin.elapsed() < time {
        world.step()?;
        most = world.processes()?.into_iter().fold(most, |most, (_, has)| most.max(&has));
        if shown.elapsed() >= MINUTE {
            shown = Instant::now();
            world.check()?;
            report.row(&row(world, format!("{mode}-minute"), begin, &most));
            most = Process::default();
        }
    }
    // What a base has of a mobile that went on depends on where it went: the same way as before.
    world.tour()?;
    let (after, hosts_after) = world.rest()?;
    let mut differences: Vec<String> = Vec::new();
    for ((name, then), (_, now)) in hosts_before.iter().zip(&hosts_after) {
        differences.extend(now.difference(then).into_iter().map(|what| format!("{name}: {what}")));
    }
    differences.iter().for_each(|what| eprintln!("lasthop-bench: {what}"));
    let most = after.iter().fold(Process::default(), |most, (_, has)| most.max(has));
    let same = |of: fn(&Process) -> usize| told(&before, &after, |then, now| of(now) == of(then));
    let flat = |then: &Process, now: &Process| now.anonymous_kib <= then.anonymous_kib + GROWTH_KIB;
    report.row(
        &row(world, format!("{mode}-rest"), begin, &most)
            .claim("every byte right, everything goes on", true)
            .claim("memory flat", told(&before, &after, flat))
            .claim("descriptors flat", same(|has| has.descriptors.len()))
            .claim("threads flat", same(|has| has.threads))
            .claim("rules and routes flat", differences.is_empty()),
    );
    Ok(())
}

/// Whether that holds of every process; those of which it does not are named.
fn told(before: &Processes, after: &Processes, holds: impl Fn(&Process, &Process) -> bool) -> bool {
    let mut all = before.len() == after.len();
    for ((name, then), (_, now)) in before.iter().zip(after) {
        if !holds(then, now) {
            eprintln!("lasthop-bench: {name} had {then}");
            eprintln!("lasthop-bench: {name} has {now}");
            all = false;
        }
    }
    all
}

fn row(world: &World, cell: String, begin: Instant, most: &Process) -> Row {
    let tally = world.tally;
    Row::new(FIGURE, PEER, cell)
        .number("minutes", begin.elapsed().as_secs_f64() / 60.0)
        .value("moves", tally.moves)
        .value("silences", tally.silences)
        .value("restarts", tally.restarts)
        .value("floods", tally.floods)
        .value("downloads", tally.downloads)
        .value("broken", tally.broken)
        .number("mbytes", world.bytes() as f64 / 1e6)
        .value("rss_kib", most.anonymous_kib)
        .value("descriptors", most.descriptors.len())
        .value("threads", most.threads)
}
