//! `lasthop demo crash`: a base dies, and its connections go on at another one.

mod picture;
mod table;

use std::path::Path;

use anyhow::bail;
use clap::Args;
use lasthop_lab::client::Stop;
use lasthop_lab::crash::{Aftermath, Plan, Way, die};
use lasthop_lab::topology::Family;
use lasthop_units::{Duration, Seed, parse_duration};

use picture::Picture;

/// Shows a base dying under its connections, a third each of downloads, uploads and idle ones, while
/// the mobile goes to another base: one server, a router, three bases and the mobile, in network
/// namespaces of their own, which vanish with the command.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// How the base dies: kill (its process is killed) or cut (it loses all its links, as without
    /// power) [default: one after the other]
    #[arg(long, value_name = "WAY")]
    way: Option<Way>,

    /// How many connections the base has
    #[arg(long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u16).range(3..=1000))]
    connections: u16,

    /// For how long no base is reached, from the death on
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = parse_duration)]
    dead_zone: Duration,

    /// Where random processes start
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Everybody meets by IPv6
    #[arg(long)]
    ipv6: bool,

    /// One JSON object a line for each way to die, instead of a picture and a table
    #[arg(long)]
    json: bool,
}

impl Options {
    fn ways(&self) -> Vec<Way> {
        self.way.map_or_else(|| Way::ALL.to_vec(), |way| vec![way])
    }

    fn plan(&self, way: Way) -> Plan {
        let mut plan = Plan::new(way, usize::from(self.connections));
        plan.topology.seed = Seed::from_u64(self.seed);
        plan.settings.family = if self.ipv6 { Family::V6 } else { Family::V4 };
        Plan { dead_zone: self.dead_zone, ..plan }
    }
}

/// What came of one way to die.
#[derive(Debug)]
struct Outcome {
    way: Way,
    /// Or why nothing could be seen.
    result: Result<Aftermath, String>,
}

impl Outcome {
    fn is_good(&self) -> bool {
        self.result.as_ref().is_ok_and(Aftermath::is_good)
    }
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let program = super::program()?;
    super::require_namespaces()?;
    let stop = super::stop_on_signals()?;
    let mut outcomes = Vec::new();
    for way in options.ways() {
        let outcome = watch(&options.plan(way), &program, &stop);
        if stop.is_set() {
            bail!("interrupted");
        }
        if options.json {
            println!("{}", table::json(&outcome)?);
        }
        outcomes.push(outcome);
    }
    if !options.json {
        print!("{}", table::table(&options.plan(Way::Kill), &outcomes));
    }
    let bad = outcomes.iter().filter(|outcome| !outcome.is_good()).map(|o| o.way.to_string());
    let bad: Vec<String> = bad.collect();
    if !bad.is_empty() {
        bail!("not everything went as it should: {}", bad.join(", "));
    }
    Ok(())
}

fn watch(plan: &Plan, program: &Path, stop: &Stop) -> Outcome {
    let picture = Picture::new(plan);
    let result = die(plan, program, stop, &mut |sight| picture.show(sight));
    let outcome = Outcome { way: plan.way, result: result.map_err(|e| e.to_string()) };
    picture.live.line(&table::summary(&outcome));
    picture.live.finish();
    outcome
}
