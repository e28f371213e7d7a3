//! What tests share: skips, waits, and the numbers of random schedules.

use std::env;
use std::fmt::Display;
use std::iter;
use std::num::NonZero;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often a condition is looked at.
const TICK: Duration = Duration::from_millis(5);

/// Says that a test goes without something, and why. In continuous integration (`CI` is set, and
/// not to `false`) everything that tests need is there, and a test that did nothing would pass for ever.
///
/// # Panics
///
/// In continuous integration.
#[track_caller]
pub fn skip(why: impl Display) {
    skip_where(is_ci(env::var("CI").ok().as_deref()), &why);
}

#[track_caller]
fn skip_where(ci: bool, why: &dyn Display) {
    assert!(!ci, "skipped in continuous integration, which has to have everything: {why}");
    eprintln!("skipped: {why}");
}

fn is_ci(variable: Option<&str>) -> bool {
    variable.is_some_and(|ci| !["", "0", "false"].contains(&ci))
}

/// What a test needs, or none where the test is [skipped](skip) because it `lacks` that.
///
/// # Panics
///
/// With any other error, and in continuous integration.
#[track_caller]
pub fn or_skip<T, E: Display>(needed: Result<T, E>, lacks: impl FnOnce(&E) -> bool) -> Option<T> {
    match needed {
        Ok(there) => Some(there),
        Err(error) if lacks(&error) => {
            skip(error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Whether `program` can be run; a test without it is [skipped](skip).
///
/// # Panics
///
/// In continuous integration, if it cannot.
#[track_caller]
pub fn is_installed(program: &str) -> bool {
    // Not each knows this option; what counts is that it can be run.
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        skip(format_args!("{program} is not installed (tools/need test)"));
    }
    found
}

/// Writes an executable shell script.
///
/// A process of its own writes it: as long as a child that another test forks meanwhile has the file open
/// for writing, running it fails (ETXTBSY).
///
/// # Panics
///
/// The file cannot be written.
#[track_caller]
pub fn write_script(path: &Path, script: &str) {
    let write = r#"printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod 755 "$1""#;
    let written = Command::new("sh").args(["-c", write, "sh"]).arg(path).arg(script).status();
    assert!(written.is_ok_and(|status| status.success()), "writing {}", path.display());
}

/// Waits until `done`, looking often.
///
/// # Panics
///
/// After `patience`, saying `what` was waited for. It has to be so long that no busy machine needs it.
#[track_caller]
pub fn wait_until(what: &str, patience: Duration, done: impl FnMut() -> bool) {
    wait_or(patience, done, || format!("{what}: not within {patience:?}"));
}

/// As [`wait_until`], with what is told at the end made only then.
///
/// # Panics
///
/// After `patience`, with what `told` gives.
#[track_caller]
pub fn wait_or(patience: Duration, mut done: impl FnMut() -> bool, told: impl FnOnce() -> String) {
    let start = Instant::now();
    while !done() {
        if start.elapsed() > patience {
            panic!("{}", told());
        }
        thread::sleep(TICK);
    }
}

/// The number that an environment variable holds.
///
/// # Panics
///
/// It holds something else.
pub fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// Whether an environment variable is there, whatever it holds.
pub fn is_set(variable: &str) -> bool {
    env::var_os(variable).is_some()
}

/// The random schedules to run: that of `LASTHOP_SEED` alone, or `LASTHOP_SCHEDULES` of them
/// (otherwise `usual` many) from `LASTHOP_FIRST` (otherwise 0) on.
///
/// # Panics
///
/// One of these is no number.
pub fn schedules(usual: u64) -> Range<u64> {
    chosen([number("LASTHOP_SEED"), number("LASTHOP_FIRST"), number("LASTHOP_SCHEDULES")], usual)
}

fn chosen([seed, first, count]: [Option<u64>; 3], usual: u64) -> Range<u64> {
    match seed {
        Some(seed) => seed..seed.saturating_add(1),
        None => {
            let first = first.unwrap_or(0);
            first..first.saturating_add(count.unwrap_or(usual))
        }
    }
}

/// Runs these schedules on all processors; what came of each, in no order.
///
/// # Panics
///
/// One of them has.
pub fn run_all<T: Send>(seeds: Range<u64>, run: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let seeds = iter::from_fn(|| {
            Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < seeds.end)
        });
        seeds.map(&run).collect::<Vec<T>>()
    };
    let threads = thread::available_parallelism().map_or(2, NonZero::get);
    thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let join = |one: thread::ScopedJoinHandle<'_, Vec<T>>| {
            one.join().unwrap_or_else(|_| panic!("a schedule fails: see its number above"))
        };
        all.into_iter().flat_map(join).collect()
    })
}

/// Prints, if the test panics while this is alive, the line that runs the schedule again.
///
/// ```
/// let _replay = lasthop_testing::Replay::new(6, "-p lasthop-session --lib schedules");
/// ```
#[derive(Debug)]
pub struct Replay<'a> {
    seed: u64,
    tests: &'a str,
}

impl<'a> Replay<'a> {
    /// For the schedule `seed` of the tests that `cargo test` runs with the arguments `tests`.
    pub fn new(seed: u64, tests: &'a str) -> Self {
        Self { seed, tests }
    }

    /// `LASTHOP_SEED=6 cargo test -p lasthop-session --lib schedules -- --nocapture`
    pub fn line(&self) -> String {
        format!("LASTHOP_SEED={} cargo test {} -- --nocapture", self.seed, self.tests)
    }
}

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("replay: {}", self.line());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    fn complaint(f: impl FnOnce() + std::panic::UnwindSafe) -> String {
        let panic = catch_unwind(f).unwrap_err();
        panic.downcast_ref::<String>().unwrap().clone()
    }

    #[test]
    fn a_test_that_skips_fails_in_continuous_integration() {
        skip_where(false, &"no root");
        let said = complaint(|| skip_where(true, &"no root"));
        assert!(said.contains("no root"), "{said}");
        let set = [None, Some(""), Some("false"), Some("true"), Some("1")].map(is_ci);
        assert_eq!(set, [false, false, false, true, true]);
    }

    #[test]
    fn a_wait_ends_when_it_is_so_and_says_what_it_waited_for() {
        let mut looks = 0;
        wait_until("the third look", Duration::from_secs(60), || {
            looks += 1;
            looks == 3
        });
        let said = complaint(|| wait_until("snow", Duration::ZERO, || false));
        assert!(said.starts_with("snow: not within"), "{said}");
    }

    #[test]
    fn schedules_are_those_asked_for() {
        assert_eq!(chosen([None; 3], 10), 0..10);
        assert_eq!(chosen([None, Some(5), None], 10), 5..15);
        assert_eq!(chosen([None, Some(5), Some(2)], 10), 5..7);
        assert_eq!(chosen([Some(6), Some(5), Some(2)], 10), 6..7);
    }

    #[test]
    fn a_replay_is_a_line_for_the_shell() {
        let line = Replay::new(6, "-p lasthop-session --lib schedules").line();
        assert_eq!(
            line,
            "LASTHOP_SEED=6 cargo test -p lasthop-session --lib schedules -- --nocapture"
        );
    }
}
