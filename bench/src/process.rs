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
    cpu_in("/proc/self/stat", 16)
}

/// CPU time, in user and system mode, of a running process so far (proc_pid_stat(5), utime and
/// stime); that of its children is not in it.
pub(crate) fn cpu_of(pid: u32) -> Result<Duration> {
    cpu_in(&format!("/proc/{pid}/stat"), 14)
}

fn cpu_in(file: &str, first: usize) -> Result<Duration> {
    let stat = std::fs::read_to_string(file).with_context(|| format!("reading {file}"))?;
    let ticks = ticks(&stat, first).with_context(|| format!("{file} has no CPU times"))?;
    let per_second = rustix::param::clock_ticks_per_second();
    Ok(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

/// The sum of field `first`, counted from 1, and the next. The second field may contain spaces and
/// parentheses of its own.
fn ticks(stat: &str, first: usize) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut times = after_name.split_ascii_whitespace().skip(first.checked_sub(3)?);
    let user: u64 = times.next()?.parse().ok()?;
    let system: u64 = times.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 110 2 0 0 3 4 50 6 20 0 1 0 99";
        assert_eq!(ticks(stat, 14), Some(7));
        assert_eq!(ticks(stat, 16), Some(56));
        assert_eq!(ticks("7 (a) S 1", 14), None);
        assert!(children_cpu().is_ok());
        assert!(cpu_of(std::process::id()).is_ok());
    }

    #[test]
    fn a_child_that_worked_is_counted() {
        let before = children_cpu().unwrap();
        let loops = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        assert!(std::process::Command::new("sh").args(["-c", loops]).status().unwrap().success());
        assert!(children_cpu().unwrap() > before);
    }
}
