//! Base and mobile whose system calls fail, come late or move only a part: every byte still arrives,
//! nothing is left behind, and both end when they are told to.

#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

#[path = "../common/mod.rs"]
mod common;
mod schedule;
mod stage;
mod tracer;
mod trouble;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lasthop_lab::arrivals::Watched;
use lasthop_lab::client::{Client, Stop};
use lasthop_lab::roam::Mode;
use lasthop_lab::talk::{self, Amounts};
use lasthop_testing::{Replay, schedules};
use lasthop_units::{Seed, Stream};

use crate::stage::{PATIENCE, Stage};

/// Conversations under each seed, and how many of them at once.
const TALKS: u64 = 48;
const AT_ONCE: usize = 6;
/// Moves at least, while connections are there or not.
const MOVES: u64 = 9;
/// A part of both is enough where each move takes seconds: what stands at a base waits for its helper.
const OF_KERNELS: u64 = 3;
/// After a refusal.
const PAUSE: Duration = Duration::from_millis(100);
/// What the processes may hold more than before, whatever happened to them.
const GROWTH: u64 = 64 << 20;

/// SEC-24
#[test]
fn srp_carries_every_byte_whatever_fails_below() {
    schedules(2).for_each(|seed| under_faults("srp", None, seed));
}

/// SEC-24
#[test]
fn split_tcp_carries_every_byte_whatever_fails_below() {
    schedules(2).for_each(|seed| under_faults("split-tcp", None, seed));
}

/// SEC-24
#[test]
fn mobile_tcp_carries_every_byte_whatever_fails_below() {
    schedules(1).for_each(|seed| under_faults("mobile-tcp", None, seed));
}

/// SEC-24: connections that move meanwhile arrive whole, or are reset with no wrong byte before.
#[test]
fn srp_moves_every_byte_or_resets_whatever_fails_below() {
    schedules(1).for_each(|seed| under_faults("srp", Some(Mode::Anchor), seed));
}

/// SEC-24
#[test]
fn split_tcp_moves_every_byte_or_resets_whatever_fails_below() {
    schedules(1).for_each(|seed| under_faults("split-tcp", Some(Mode::Anchor), seed));
}

/// SEC-24: with helpers that take hold of connections of kernels, under which calls fail as well.
#[test]
fn kernels_connections_move_or_are_reset_whatever_fails_below() {
    schedules(1).for_each(|seed| under_faults("srp", Some(Mode::Migrate), seed));
}

fn under_faults(hop: &str, mode: Option<Mode>, number: u64) {
    let _replay = Replay::new(number, "-p lasthop-lab --test faults");
    let seed = Seed::from_u64(number).child(hop);
    let Some(stage) = Stage::start(hop, mode, seed) else { return };
    println!("{hop}, {mode:?}, seed {number}");
    let part = if mode == Some(Mode::Migrate) { OF_KERNELS } else { 1 };
    let tour = || {
        let bases = [2, 3, 1].into_iter().filter(|_| stage.has_moves());
        bases.map(|base| stage.go(base)).collect::<Vec<bool>>()
    };
    // What is opened once and kept is there after these.
    talks(&stage, "before", 2);
    tour();
    let before = stage.holdings(None);
    stage.arm(true);
    thread::scope(|scope| {
        let under = scope.spawn(|| talks(&stage, "under", TALKS / part));
        let mut moves = [0u64; 2];
        while !under.is_finished() || (stage.has_moves() && moves[1] < MOVES / part) {
            tour().into_iter().for_each(|done| moves[usize::from(done)] += 1);
            thread::sleep(PAUSE);
        }
        println!("  {} moves failed, {} done", moves[0], moves[1]);
        under.join().unwrap();
    });
    stage.arm(false);
    // The end of an association whose radio went at that moment comes when the radio does.
    tour();
    println!("{}", stage.befell());
    stage.check();
    let after = stage.holdings(Some(&before));
    let each = || format!("{}\n{:#?}\n{:#?}", stage.said(), before.each, after.each);
    assert!(stage.is_as(&after, &before), "{}", each());
    assert_eq!(after.threads, before.threads, "{}", stage.said());
    let grown = after.memory.saturating_sub(before.memory);
    assert!(grown < GROWTH, "{grown} bytes more than before");
    talks(&stage, "after", 2);
    stage.arm(true);
    stage.end();
}

/// Conversations both ways, several at once; each is whole, or was refused before it began and tries again.
pub(crate) fn talks(stage: &Stage, when: &str, count: u64) {
    let next = AtomicU64::new(0);
    let work = || {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= count {
                return;
            }
            let name = format!("{when}-{n}");
            talk(stage, &name, &mut stage.seed().stream(&name));
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

fn talk(stage: &Stage, name: &str, draws: &mut Stream) {
    let amount = |draws: &mut Stream| match draws.below(4) {
        0 => draws.below(2),
        1 => draws.below(1_000_000),
        _ => draws.below(60_000),
    };
    let amounts = Amounts { up: amount(draws), down: amount(draws) };
    let client: Client = stage.client(draws.chance(0.5));
    let (mut refusals, start) = (Vec::new(), Instant::now());
    loop {
        let patient = start.elapsed() < PATIENCE;
        assert!(patient, "{name} is refused: {refusals:?}\n{}", stage.said());
        if !refusals.is_empty() {
            thread::sleep(PAUSE);
        }
        let stream = match client.connect(PATIENCE) {
            Ok(stream) => stream,
            Err(e) => {
                refusals.push(e.to_string());
                continue;
            }
        };
        let (received, stop) = (Watched::default(), Stop::default());
        let name = format!("{name}-{}", refusals.len());
        let ended = thread::scope(|scope| {
            let (done, over) = std::sync::mpsc::channel::<()>();
            scope.spawn({
                let stop = stop.clone();
                move || {
                    if over.recv_timeout(PATIENCE)
                        == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
                    {
                        stop.set();
                    }
                }
            });
            let seed = stage.seed();
            let ended = talk::both_over(&stream, &name, amounts, seed, &received, &stop);
            drop(done);
            ended
        });
        assert!(!stop.is_set(), "{name} is stuck\n{}", stage.said());
        let heard = stage.heard(&name);
        if let Err(e) = ended {
            // An intercepted connection that nothing can be done for is reset as soon as it stands.
            let untouched = received.lock().total().get() == 0 && heard.lock().total().get() == 0;
            if untouched {
                refusals.push(e.to_string());
                continue;
            }
            assert!(stage.has_moves(), "{name}: {e}\n{}", stage.said());
            assert!(received.lock().is_prefix_of(talk::server_seed(stage.seed())), "{name}: down");
            assert!(heard.lock().is_prefix_of(talk::client_seed(stage.seed())), "{name}: up");
            return println!("  {name}: {e}");
        }
        for (what, watched, amount, seed) in [
            ("down", &received, amounts.down, talk::server_seed(stage.seed())),
            ("up", &heard, amounts.up, talk::client_seed(stage.seed())),
        ] {
            let all = || watched.lock().total().get() == amount;
            // Of a reset behind the download's end only the server is told.
            if !stage.has_moves() || what == "down" {
                let short = || format!("{name}: {what} is not {amount} bytes");
                lasthop_testing::wait_or(PATIENCE, all, short);
            }
            assert!(watched.lock().is_prefix_of(seed), "{name}: {what} has wrong bytes");
        }
        return;
    }
}
