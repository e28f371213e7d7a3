//! `lasthop demo handoff`: a mobile moves, and the server never notices.

mod picture;
mod table;

use anyhow::bail;
use clap::Args;
use lasthop_daemon::config::HopKind;
use lasthop_lab::client::Stop;
use lasthop_lab::journey::{Crossing, Plan, Tale, travel};
use lasthop_lab::roam::{self, Mode, Settings};
use lasthop_lab::topology::Family;
use lasthop_units::{Duration, Seed, parse_duration};

use picture::Picture;

/// How long ahead a move is announced with `--predict`.
const WARNING: Duration = Duration::from_millis(300);

/// Shows a mobile moving from base to base while a download, an upload and an idle session run:
/// one server, a router, three bases and the mobile, in network namespaces of their own, which
/// vanish with the command.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// What becomes of wired connections: anchor (the base where they began keeps them) or migrate
    /// (they move from kernel to kernel) [default: one after the other]
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,

    /// How often the mobile moves to the next base
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    handoffs: u32,

    /// For how long no base is reached in between
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    dead_zone: Duration,

    /// How long the mobile stays at a base after its connections have gone on
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_duration)]
    stay: Duration,

    /// Where random processes start
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// What crosses the hop: srp, mobile-tcp or split-tcp
    #[arg(long, value_name = "NAME", default_value = "srp")]
    hop: HopKind,

    /// Tell the mobile 0.3 s ahead where it will be
    #[arg(long)]
    predict: bool,

    /// Everybody meets by IPv6
    #[arg(long)]
    ipv6: bool,

    /// One JSON object a line for each move, instead of a picture and a table
    #[arg(long)]
    json: bool,
}

impl Options {
    fn modes(&self) -> Vec<Mode> {
        self.mode.map_or_else(|| vec![Mode::Anchor, Mode::Migrate], |mode| vec![mode])
    }

    fn plan(&self, mode: Mode) -> Plan {
        let handoff = roam::Handoff { mode, ..roam::Handoff::default() };
        let settings = Settings {
            hop: self.hop.to_string(),
            family: if self.ipv6 { Family::V6 } else { Family::V4 },
            handoff: Some(handoff),
            // It tells when each step of a move is done.
            log: Some("debug".to_owned()),
            ..Settings::default()
        };
        let topology = roam::Config { seed: Seed::from_u64(self.seed), ..roam::Config::default() };
        Plan {
            topology,
            settings,
            handoffs: self.handoffs,
            dead_zone: self.dead_zone,
            stay: self.stay,
            warning: self.predict.then_some(WARNING),
            ..Plan::default()
        }
    }
}

/// What came of one mode.
#[derive(Debug)]
struct Outcome {
    plan: Plan,
    mode: Mode,
    crossings: Vec<Crossing>,
    /// Why it ended before its time.
    failure: Option<String>,
}

impl Outcome {
    fn is_good(&self) -> bool {
        let all = self.crossings.len() as u32 == self.plan.handoffs;
        all && self.failure.is_none() && self.crossings.iter().all(Crossing::is_good)
    }
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let program = super::program()?;
    super::require_namespaces()?;
    let stop = super::stop_on_signals()?;
    let mut outcomes = Vec::new();
    for mode in options.modes() {
        let plan = options.plan(mode);
        let outcome = travel_by(mode, plan, &program, &stop, options.json);
        if stop.is_set() {
            bail!("interrupted");
        }
        if options.json
            && let Some(failure) = &outcome.failure
        {
            eprintln!("lasthop: {mode}: {failure}");
        }
        outcomes.push(outcome);
    }
    if !options.json {
        print!("{}", table::tables(&outcomes));
    }
    let bad = outcomes.iter().filter(|outcome| !outcome.is_good()).map(|o| o.mode.to_string());
    let bad: Vec<String> = bad.collect();
    if !bad.is_empty() {
        bail!("not everything went as it should: {}", bad.join(", "));
    }
    Ok(())
}

fn travel_by(
    mode: Mode,
    plan: Plan,
    program: &std::path::Path,
    stop: &Stop,
    json: bool,
) -> Outcome {
    let picture = Picture::new(mode, &plan);
    let mut crossings = Vec::new();
    let mut tell = |tale: Tale<'_>| match tale {
        Tale::Sight(sight) => picture.show(sight),
        Tale::Crossed(crossing) => {
            crossings.push(crossing.clone());
            if json {
                picture.live.suspend(|| println!("{}", table::json(mode, crossing)));
            } else {
                picture.live.line(&table::summary(crossing));
            }
        }
    };
    let failure = match travel(&plan, program, stop, &mut tell) {
        Ok(_) => None,
        Err(e) => Some(e.to_string()),
    };
    picture.live.finish();
    Outcome { plan, mode, crossings, failure }
}
