//! What is known about this process and its children.

use std::collections::BTreeMap;
use std::io::ErrorKind;
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

/// CPU time of a running process's threads so far (proc_pid_schedstat(5)), which counts nanoseconds where
/// others count ticks.
pub(crate) fn cpu_of(pid: u32) -> Result<Duration> {
    Ok(cpu_of_threads(pid)?.into_values().sum())
}

/// The same of each thread that there is.
pub(crate) fn cpu_of_threads(pid: u32) -> Result<BTreeMap<u32, Duration>> {
    let of = |task: u32| {
        let file = format!("/proc/{task}/schedstat");
        let text = match std::fs::read_to_string(&file) {
            // It has ended since it was listed.
            Err(e) if e.kind() == ErrorKind::NotFound || is_gone(&e) => return None,
            text => text.with_context(|| format!("reading {file}")),
        };
        Some(text.and_then(|text| {
            let first = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
            let cpu = first.map(Duration::from_nanos);
            Ok((task, cpu.with_context(|| format!("{file} has no CPU time"))?))
        }))
    };
    tasks(pid)?.into_iter().filter_map(of).collect()
}

/// The kernel knows no such process or thread.
fn is_gone(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_is_counted() {
        let mut child =
            std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let began = std::time::Instant::now();
        while cpu_of(child.id()).unwrap() < Duration::from_millis(20) {
            assert!(began.elapsed() < Duration::from_secs(60), "it does nothing");
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(cpu_of(child.id()).is_err());
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
}
