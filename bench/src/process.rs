//! What is known about this process and its children.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, bail};

static LASTHOP: OnceLock<PathBuf> = OnceLock::new();

/// Sets which `lasthop` is measured: the one given, or the one built beside this command.
pub(crate) fn choose_lasthop(given: Option<&Path>) -> Result<()> {
    let found = given.map(Path::to_owned).or_else(lasthop_lab::lasthop_program);
    let path = found.context("no lasthop command beside this one: build it, or use --lasthop")?;
    let path = path.canonicalize().with_context(|| path.display().to_string())?;
    if LASTHOP.set(path).is_err() {
        bail!("the lasthop command was chosen before");
    }
    Ok(())
}

/// The `lasthop` command that is measured.
pub(crate) fn lasthop() -> Result<&'static Path> {
    match LASTHOP.get() {
        Some(path) => Ok(path),
        None => bail!("no lasthop command was chosen"),
    }
}

/// CPU time, in user and system mode, of all children that have ended and were waited for, and of
/// their own (proc_pid_stat(5), cutime and cstime).
pub(crate) fn children_cpu() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("reading /proc/self/stat")?;
    let ticks = waited_ticks(&stat).context("/proc/self/stat has no times of children")?;
    let per_second = rustix::param::clock_ticks_per_second();
    Ok(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

/// Fields 16 and 17; the second may contain spaces and parentheses of its own.
fn waited_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut times = after_name.split_ascii_whitespace().skip(16 - 3);
    let user: u64 = times.next()?.parse().ok()?;
    let system: u64 = times.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_children_are_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 110 2 0 0 3 4 50 6 20 0 1 0 99";
        assert_eq!(waited_ticks(stat), Some(56));
        assert_eq!(waited_ticks("7 (a) S 1"), None);
        assert!(children_cpu().is_ok());
    }

    #[test]
    fn a_child_that_worked_is_counted() {
        let before = children_cpu().unwrap();
        let loops = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        assert!(std::process::Command::new("sh").args(["-c", loops]).status().unwrap().success());
        assert!(children_cpu().unwrap() > before);
    }
}
