//! Random schedules by the thousand. `LASTHOP_SCHEDULES` sets how many, `LASTHOP_FIRST` the first
//! one's number; with `LASTHOP_KEEP_GOING` all failures are printed, not only the first.
//! `LASTHOP_SEED=n cargo test -p lasthop-sim replay -- --nocapture` runs one of them
//! again, less what its failure does not need (with `LASTHOP_WHOLE`: all of it), and prints every
//! datagram.

use std::env;
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use lasthop_sim::Transport;
use lasthop_sim::hop::Hop;
use lasthop_sim::naive::{Flaw, Naive};
use lasthop_sim::schedule::{self, Check, Failure, Report, Schedule};
use lasthop_testing::{is_set, number, schedules};

/// The failure, and what of its schedule it needs.
fn explain<T: Transport>(transport: &T, failure: &Failure) -> String {
    let (schedule, simpler) = schedule::simplify(transport, failure);
    format!("{failure}\nthe same with less: {}\nof {}", simpler.violation, schedule.summary())
}

/// Runs schedules on all processors until one fails; the sum of all reports.
fn run_many<T: Transport + Sync>(transport: &T, seeds: &Range<u64>) -> Result<Report, Failure> {
    let keep_going = is_set("LASTHOP_KEEP_GOING");
    let (next, stop) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let work = || {
        let mut sum = Report::default();
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            match schedule::run(transport, seed) {
                Ok(report) => add(&mut sum, &report),
                Err(found) if keep_going => {
                    println!("{}", found.violation);
                    println!("    {seed}: {}", Schedule::random(seed).summary());
                }
                Err(found) => {
                    stop.store(true, Ordering::Relaxed);
                    return Err(found);
                }
            }
        }
        Ok(sum)
    };
    let threads = thread::available_parallelism().map_or(2, |n| n.get());
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let results = running.into_iter().map(|t| t.join().unwrap_or_else(|e| resume_unwind(e)));
        // Of several failures the lowest number is the most likely to be found again.
        let (sums, failures): (Vec<_>, Vec<_>) = results.partition(Result::is_ok);
        match failures.into_iter().filter_map(Result::err).min_by_key(|f| f.seed) {
            Some(failure) => Err(failure),
            None => Ok(sums.iter().flatten().fold(Report::default(), |mut all, sum| {
                add(&mut all, sum);
                all
            })),
        }
    })
}

fn add(sum: &mut Report, report: &Report) {
    // Whatever the order of the runs.
    sum.hash ^= report.hash;
    sum.datagrams += report.datagrams;
    sum.bytes += report.bytes;
    sum.connections += report.connections;
    sum.buffered_max = sum.buffered_max.max(report.buffered_max);
}

fn count(seeds: &Range<u64>) -> u64 {
    seeds.end - seeds.start
}

fn tell(seeds: &Range<u64>, sum: &Report) {
    let count = count(seeds);
    println!("{count} schedules: {sum:?}");
    let moved = sum.bytes > count * 1000 || count < 100;
    assert!(moved, "the schedules move hardly any bytes: {sum:?}");
}

/// SRP-3, SRP-4, SRP-7 to SRP-11: two machines and the session keep every promise under loss,
/// reordering, duplication, damage, silences, address changes, replays and forgeries.
#[test]
fn srp_keeps_every_promise() {
    let seeds = schedules(10_000);
    let sum = run_many(&Hop::default(), &seeds)
        .unwrap_or_else(|failure| panic!("{}", explain(&Hop::default(), &failure)));
    tell(&seeds, &sum);
}

/// The world and the session keep every promise over a transport that is too simple to break one.
#[test]
fn the_naive_transport_keeps_every_promise() {
    let mut seeds = schedules(10_000);
    seeds.end = seeds.start + count(&seeds).div_ceil(10);
    let sum = run_many(&Naive::default(), &seeds)
        .unwrap_or_else(|failure| panic!("{}", explain(&Naive::default(), &failure)));
    tell(&seeds, &sum);
}

/// The checkers see each kind of bug: with it planted, some schedule soon fails as it should.
#[test]
fn every_planted_flaw_is_found() {
    for (flaw, expected) in [
        (Flaw::TrustsDamage, Check::ByteExact),
        (Flaw::TrustsOrder, Check::ByteExact),
        (Flaw::NeverRetransmits, Check::Live),
        (Flaw::IgnoresWindow, Check::Memory),
        (Flaw::KeepsStreams, Check::Forgotten),
        (Flaw::HidesReset, Check::Complete),
        (Flaw::Spins, Check::Sane),
    ] {
        let naive = Naive { flaw, ..Naive::default() };
        let mut failures = (0..1000).filter_map(|seed| schedule::run(&naive, seed).err());
        let found = failures.any(|failure| failure.violation.check == expected);
        assert!(found, "no schedule shows that a transport with {flaw:?} breaks {expected:?}");
    }
}

/// LNK-15: a schedule's number and nothing else decides what happens.
#[test]
fn the_same_schedule_gives_the_same_run() {
    for seed in 0..20 {
        let once = schedule::run(&Naive::default(), seed).unwrap_or_else(|e| panic!("{e}"));
        let twice = schedule::run(&Naive::default(), seed).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(once, twice);
        assert_eq!(Schedule::random(seed), Schedule::random(seed));
    }
}

/// Runs the schedule named by `LASTHOP_SEED` and prints it and every datagram.
#[test]
fn replay() {
    let Some(seed) = number("LASTHOP_SEED") else { return };
    match env::var("LASTHOP_TRANSPORT").is_ok_and(|name| name == Naive::NAME) {
        true => replay_with(&Naive::default(), seed),
        false => replay_with(&Hop::default(), seed),
    }
}

fn replay_with<T: Transport>(transport: &T, seed: u64) {
    let mut schedule = Schedule::random(seed);
    // What the failure does not need only makes the print longer.
    if let Err(failure) = schedule::attempt(transport, &schedule, false)
        && !is_set("LASTHOP_WHOLE")
    {
        (schedule, _) = schedule::simplify(transport, &failure);
    }
    eprintln!("{schedule:#?}");
    match schedule::attempt(transport, &schedule, true) {
        Ok(report) => eprintln!("{report:#?}"),
        Err(failure) => panic!("{failure}\nof {}", schedule.summary()),
    }
}
