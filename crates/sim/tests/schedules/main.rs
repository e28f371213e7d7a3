//! Random schedules by the thousand. `LASTHOP_SCHEDULES` sets how many, `LASTHOP_FIRST` the first
//! one's number; with `LASTHOP_KEEP_GOING` all failures are printed, not only the first.
//! `LASTHOP_SEED=n cargo test -p lasthop-sim --test schedules replay_streams -- --nocapture` runs one of
//! them again, less what its failure does not need (with `LASTHOP_WHOLE`: all of it), and prints
//! every packet.

#![allow(clippy::expect_used, reason = "a test says where it cannot go on")]

mod app;
mod check;
mod crossing;
mod flaw;
mod hop;
mod node;
mod packets;
mod plan;
mod random;
mod run;
mod schedule;
mod side;
mod simplify;

use lasthop_testing::{is_set, number, run_all, schedules};

use check::Check;
use flaw::Flaw;
use schedule::{Failure, Kind, Report, Schedule, attempt, run};
use simplify::simplify;

/// The failure, and what of its schedule it needs.
fn explain(failure: &Failure) -> String {
    let (schedule, simpler) = simplify(Flaw::None, failure);
    format!("{failure}\nthe same with less: {}\nof {}", simpler.violation, schedule.summary())
}

/// What schedules came to, and a panic with the first that failed.
fn judge(results: Vec<Result<Report, Failure>>) -> Vec<Report> {
    let (reports, failures): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    let mut failures: Vec<Failure> = failures.into_iter().filter_map(Result::err).collect();
    failures.sort_by_key(|failure| failure.seed);
    if is_set("LASTHOP_KEEP_GOING") {
        for failure in &failures {
            println!("{failure}\n    {}", failure.schedule().summary());
        }
    }
    let told = failures.first().map(explain).unwrap_or_default();
    assert!(failures.is_empty(), "{} schedules fail; {told}", failures.len());
    reports.into_iter().flatten().collect()
}

/// MHP-5, SRP-3, SRP-4, SRP-7 to SRP-11: two machines and the session keep every promise under loss,
/// reordering, duplication, damage, silences, address changes, replays and forgeries.
#[test]
fn srp_keeps_every_promise() {
    let seeds = schedules(10_000);
    let reports = judge(run_all(seeds.clone(), |seed| run(Flaw::None, Kind::Streams, seed)));
    let (count, bytes) = (seeds.end - seeds.start, reports.iter().map(|r| r.bytes).sum::<u64>());
    println!("{count} schedules: {bytes} bytes");
    assert!(bytes > count * 1000 || count < 100, "the schedules move hardly any bytes: {bytes}");
}

/// As many schedules of a kind that has packets, unless it is said how many.
fn all_keep_every_promise(kind: Kind, count: u64) {
    let seeds = schedules(count);
    let reports = judge(run_all(seeds.clone(), |seed| run(Flaw::None, kind, seed)));
    let (count, bytes) = (seeds.end - seeds.start, reports.iter().map(|r| r.bytes).sum::<u64>());
    let packets: u64 = reports.iter().map(|r| r.packets_received).sum();
    println!("{count} schedules: {packets} packets beside {bytes} bytes");
    assert!(packets > count * 50 || count < 100, "hardly any packets arrive: {packets}");
}

/// SRP-30, SRP-31, SRP-32: beside streams, or alone, packets of any length arrive whole, once, in their flow's order
/// and in time, or not at all, under the same and on a path that shrinks; and streams suffer nothing of it.
#[test]
fn packets_keep_every_promise() {
    all_keep_every_promise(Kind::Packets, 500);
}

/// SRP-31: packets that wait for their order are delivered in time by an end that may not send for the moment, since it is
/// not known whether the peer is where its datagrams come from.
#[test]
fn packets_are_in_time_while_nothing_may_be_sent() {
    let run = run(Flaw::None, Kind::Packets, 4055);
    run.unwrap_or_else(|failure| panic!("{}", explain(&failure)));
}

/// SRP-38, SRP-40: the same with a second link of every mobile's, with faults of its own: links come late, are silent for a
/// while, are moved, shrink, and have each other's addresses.
#[test]
fn two_links_keep_every_promise() {
    all_keep_every_promise(Kind::Bond, 300);
}

/// The checkers see each kind of bug: with it planted, some schedule soon fails as it should, and
/// still does when all is left out that can be.
#[test]
fn every_planted_flaw_is_found() {
    for (flaw, expected) in [
        (Flaw::Unsealed, Check::ByteExact),
        (Flaw::Changes, Check::ByteExact),
        (Flaw::Misorders, Check::ByteExact),
        (Flaw::Doubles, Check::ByteExact),
        (Flaw::Loses, Check::Complete),
        (Flaw::HidesResets, Check::Complete),
        (Flaw::InventsResets, Check::Faithful),
        (Flaw::KeepsWritersWaiting, Check::Live),
        (Flaw::GivesUpSoon, Check::Standing),
        (Flaw::Hoards, Check::Memory),
        (Flaw::LeaksStreams, Check::Forgotten),
        (Flaw::Spins, Check::Sane),
        (Flaw::SendsWithoutEnd, Check::Sane),
        (Flaw::ChangesPackets, Check::PacketsExact),
        (Flaw::DoublesPackets, Check::PacketsOnce),
        (Flaw::MisordersPackets, Check::PacketsOrdered),
        (Flaw::KeepsPackets, Check::PacketsTimely),
    ] {
        let packets = matches!(
            expected,
            Check::PacketsExact | Check::PacketsOnce | Check::PacketsOrdered | Check::PacketsTimely
        );
        let kind = if packets { Kind::Packets } else { Kind::Streams };
        let mut failures = (0..1000).filter_map(|seed| run(flaw, kind, seed).err());
        let found = failures.find(|failure| failure.violation.check == expected);
        let Some(failure) = found else { panic!("with {flaw:?} no schedule breaks {expected:?}") };
        let (less, simpler) = simplify(flaw, &failure);
        assert_eq!(simpler.violation.check, expected, "{flaw:?}");
        assert!(less.features().iter().all(|feature| {
            let without = less.without(*feature).map(|less| attempt(flaw, &less, false));
            without.is_none_or(|result| result.err().is_none_or(|e| e.violation.check != expected))
        }));
    }
}

/// LNK-15: a schedule's number and nothing else decides what happens.
#[test]
fn the_same_schedule_gives_the_same_run() {
    for (kind, seed) in
        (0..20).flat_map(|seed| [Kind::Streams, Kind::Packets, Kind::Bond].map(|kind| (kind, seed)))
    {
        let run = || run(Flaw::None, kind, seed).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(run(), run());
        assert_eq!(Schedule::random(kind, seed), Schedule::random(kind, seed));
    }
}

/// Runs the schedule named by `LASTHOP_SEED` and prints it and every packet.
#[test]
fn replay_streams() {
    run_again(Kind::Streams);
}

/// The same for one that has packets.
#[test]
fn replay_packets() {
    run_again(Kind::Packets);
}

/// The same for one that has a second link.
#[test]
fn replay_bond() {
    run_again(Kind::Bond);
}

fn run_again(kind: Kind) {
    let Some(seed) = number("LASTHOP_SEED") else { return };
    let mut schedule = Schedule::random(kind, seed);
    // What the failure does not need only makes the print longer.
    if let Err(failure) = attempt(Flaw::None, &schedule, false)
        && !is_set("LASTHOP_WHOLE")
    {
        (schedule, _) = simplify(Flaw::None, &failure);
    }
    eprintln!("{schedule:#?}");
    match attempt(Flaw::None, &schedule, true) {
        Ok(report) => eprintln!("{report:#?}"),
        Err(failure) => panic!("{failure}\nof {}", schedule.summary()),
    }
}
