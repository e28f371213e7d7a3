//! Random schedules in networks with agents in the path: the byte stream stays exact, caches stay
//! bounded, and no connection hangs that would not hang without them.
//!
//! `LASTHOP_SCHEDULES` sets how many, `LASTHOP_FIRST` the first one's number; with
//! `LASTHOP_KEEP_GOING` all failures are printed, not only the first.
//! `LASTHOP_SEED=n LASTHOP_AGENT=snoop cargo test -p lasthop-sim --test agents replay -- --nocapture`
//! runs one of them again and prints it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says where it cannot go on")]

mod garbage;
mod helper;
mod node;
mod plan;
mod run;
mod settings;
mod unsplit;

use std::env;

use lasthop_testing::{Replay, is_set, number, schedules};
use lasthop_units::{Duration, Time};
use plan::{Kind, Plan};
use rayon::prelude::*;

/// A run that takes longer is over; nobody gives a connection up.
const END: Time = Time::from_secs(600);

/// What a schedule showed.
#[derive(Clone, Copy, Default, Debug)]
struct Sum {
    /// Schedules.
    all: u64,
    /// Those that came to an end without agents, so that something can be said of them.
    ended: u64,
    /// Those that ended sooner with agents.
    sooner: u64,
}

/// By when a schedule must be over with agents, if without it was at `without`: all is calm from
/// `calm` on, no timer of the ends is longer than eight seconds, and the slowest link carries a
/// flow in as much as it takes without.
fn allowed(plan: &Plan, without: Time) -> Time {
    let base = without.max(Time::ZERO + plan.calm);
    base + base.since(Time::ZERO) + Duration::from_secs(60)
}

fn check(kind: Kind, number: u64) -> Result<Sum, String> {
    let plan = Plan::random(kind, number);
    let without = run::run(&plan, false, END);
    let none = Sum { all: 1, ..Sum::default() };
    let Some(done) = without.done.filter(|_| without.broken.is_none()) else { return Ok(none) };
    let most = allowed(&plan, done);
    let with = run::run(&plan, true, most);
    let at = format!("{} {number}", kind.name());
    if let Some(broken) = with.broken {
        return Err(format!("{at}: {broken}"));
    }
    match with.done {
        Some(at) => Ok(Sum { ended: 1, sooner: u64::from(at < done), ..none }),
        None => Err(format!("{at}: over at {done} without, not at {most} with: {}", with.missing)),
    }
}

fn run_many(kind: Kind) -> Sum {
    let all: Vec<_> = schedules(1000)
        .into_par_iter()
        .map(|number| {
            let found = std::panic::catch_unwind(|| check(kind, number));
            let panicked = |_| Err(format!("{} {number}: panicked", kind.name()));
            let again = |e| {
                let line = Replay::new(number, "-p lasthop-sim --test agents replay").line();
                format!("{e}\nreplay: LASTHOP_AGENT={} {line}", kind.name())
            };
            found.unwrap_or_else(panicked).map_err(again)
        })
        .collect();
    let failures: Vec<&String> = all.iter().filter_map(|r| r.as_ref().err()).collect();
    let shown = if is_set("LASTHOP_KEEP_GOING") { usize::MAX } else { 1 };
    let told: Vec<&str> = failures.iter().take(shown).map(|s| s.as_str()).collect();
    assert!(failures.is_empty(), "{} schedules fail:\n{}", failures.len(), told.join("\n"));
    all.into_iter().flatten().fold(Sum::default(), |a, b| Sum {
        all: a.all + b.all,
        ended: a.ended + b.ended,
        sooner: a.sooner + b.sooner,
    })
}

fn keeps_its_promises(kind: Kind) {
    let sum = run_many(kind);
    println!("{}: {sum:?}", kind.name());
    let most = sum.ended * 10 >= sum.all * 9 || sum.all < 100;
    assert!(most, "hardly any schedule ends without agents: {sum:?}");
}

/// SNP-1 to SNP-11.
#[test]
fn snoop_keeps_streams_exact_and_hangs_nothing() {
    keeps_its_promises(Kind::Snoop);
}

/// OBB-1 to OBB-9, OBM-1 to OBM-12.
#[test]
fn obtcp_keeps_streams_exact_and_hangs_nothing() {
    keeps_its_promises(Kind::Obtcp);
}

/// DDA-1, CC-4, EBS-1.
#[test]
fn link_retransmission_keeps_streams_exact_and_hangs_nothing() {
    keeps_its_promises(Kind::Link);
}

/// MTC-1 to MTC-8.
#[test]
fn m_tcp_keeps_streams_exact_and_hangs_nothing() {
    keeps_its_promises(Kind::MTcp);
}

/// ALT-1 to ALT-8.
#[test]
fn unsplit_mobile_tcp_keeps_streams_exact_and_hangs_nothing() {
    keeps_its_promises(Kind::Unsplit);
}

#[test]
fn several_agents_on_one_way_keep_streams_exact_and_hang_nothing() {
    keeps_its_promises(Kind::Stacked);
}

/// LNK-15: a schedule's number and nothing else decides what happens.
#[test]
fn the_same_schedule_gives_the_same_run() {
    for kind in Kind::ALL {
        for number in 0..5 {
            let plan = Plan::random(kind, number);
            assert_eq!(plan, Plan::random(kind, number));
            let [a, b] = [(); 2].map(|()| run::run(&plan, true, END));
            assert_eq!(a, b, "{} {number}", kind.name());
        }
    }
}

/// Runs the schedule named by `LASTHOP_AGENT` and `LASTHOP_SEED` and prints it.
#[test]
fn replay() {
    let (Some(number), Ok(name)) = (number("LASTHOP_SEED"), env::var("LASTHOP_AGENT")) else {
        return;
    };
    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
    let kind = kind.unwrap_or_else(|| panic!("LASTHOP_AGENT={name} is no agent"));
    let plan = Plan::random(kind, number);
    eprintln!("{plan:#?}");
    for helped in [false, true] {
        eprintln!("agents: {helped}, {:?}", run::run(&plan, helped, END));
    }
    eprintln!("{:?}", check(kind, number).unwrap_or_else(|failure| panic!("{failure}")));
}
