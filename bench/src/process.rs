//! What is known about this process and its children.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use perf_event::events::Tracepoint;
use perf_event::{Builder, Counter};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

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

/// CPU time of a running process's threads so far (proc_pid_schedstat(5)), which counts nanoseconds where
/// others count ticks.
pub(crate) fn cpu_of(pid: u32) -> Result<Duration> {
    Ok(cpu_of_threads(pid)?.into_values().sum())
}

/// The same of each thread.
pub(crate) fn cpu_of_threads(pid: u32) -> Result<BTreeMap<u32, Duration>> {
    let of = |task: u32| {
        let file = format!("/proc/{task}/schedstat");
        let text = std::fs::read_to_string(&file).with_context(|| format!("reading {file}"))?;
        let first = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
        let cpu = first.map(Duration::from_nanos);
        Ok((task, cpu.with_context(|| format!("{file} has no CPU time"))?))
    };
    tasks(pid)?.into_iter().map(of).collect()
}

/// The threads of a process.
fn tasks(pid: u32) -> Result<Vec<u32>> {
    let tasks = format!("/proc/{pid}/task");
    let listed = std::fs::read_dir(&tasks).with_context(|| format!("reading {tasks}"))?;
    let names = listed.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
    Ok(names.collect())
}

/// Where the kernel says what it can count, mounted or not.
const TRACEFS: &str = "/sys/kernel/tracing";

/// System calls of running processes and their threads, counted from the moment when this was made.
pub(crate) struct Syscalls(Vec<Counter>);

impl Syscalls {
    /// Counts those of the processes.
    pub(crate) fn of(pids: &[u32]) -> Result<Self> {
        let event = Tracepoint::with_id(syscall_event()?);
        let mut counters = Vec::new();
        for pid in pids {
            for task in tasks(*pid)? {
                let mut counter = Builder::new(event)
                    .observe_pid(task.cast_signed())
                    .any_cpu()
                    .inherit(true)
                    .include_kernel()
                    .build()
                    .context("perf_event_open")?;
                counter.enable().context("perf_event_open")?;
                counters.push(counter);
            }
        }
        Ok(Self(counters))
    }

    /// How many there were.
    pub(crate) fn count(mut self) -> Result<u64> {
        Ok(self.0.iter_mut().map(Counter::read).sum::<Result<u64, _>>()?)
    }
}

/// The number of the event that a system call begins.
fn syscall_event() -> Result<u64> {
    let read = |root: &Path| std::fs::read_to_string(root.join("events/raw_syscalls/sys_enter/id"));
    let text = match read(Path::new(TRACEFS)) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let root = tempfile::tempdir()?;
            mount("none", root.path(), "tracefs", MountFlags::RDONLY, None)
                .context("mounting tracefs")?;
            let text = read(root.path());
            unmount(root.path(), UnmountFlags::DETACH).context("unmounting tracefs")?;
            text
        }
        text => text,
    };
    let text = text.context("the kernel has no event for system calls")?;
    text.trim().parse().with_context(|| format!("`{}` is no event's number", text.trim()))
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
    fn system_calls_of_a_process_are_counted() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "read go; for i in 1 2 3 4 5 6 7 8 9; do cd /; done"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let syscalls = Syscalls::of(&[child.id()]).unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(syscalls.count().unwrap() >= 9);
    }

    #[test]
    fn a_child_that_worked_is_counted() {
        let before = children_cpu().unwrap();
        let loops = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        assert!(std::process::Command::new("sh").args(["-c", loops]).status().unwrap().success());
        assert!(children_cpu().unwrap() > before);
    }
}
