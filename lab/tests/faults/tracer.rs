//! Makes the system calls of a running process fail: by ptrace(2), so that every call is met, whichever
//! library makes it, and the program is the one that is shipped.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

use lasthop_units::Seed;
use nix::errno::Errno;
use nix::libc::{SYS_epoll_ctl, c_long, user_regs_struct};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::net::{AddressFamily, SocketType, sockopt};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::schedule::{Call, Fault, Kind, Schedule};

/// The length of the instruction that makes a system call.
const SYSCALL: u64 = 2;
/// Below the stack pointer of a process, out of the reach of what it keeps there (128 bytes).
const BELOW: u64 = 512;
const EPOLL_CTL_ADD: u64 = 1;
const EPOLL_CTL_MOD: u64 = 3;
const ENTRY: u8 = 1;
const EXIT: u8 = 2;

/// How often what befell which call.
pub(crate) type Counts = BTreeMap<(&'static str, String), u64>;

#[derive(Debug, Default)]
struct Shared {
    armed: AtomicBool,
    /// Calls of any kind.
    calls: AtomicU64,
    counts: Mutex<Counts>,
}

/// A process whose calls may fail, while this is armed. Nobody else may wait for the process meanwhile, or
/// would be told of the stops that are meant for this. It ends with this.
#[derive(Debug)]
pub(crate) struct Tracer {
    pid: Pid,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Option<i32>>>,
}

impl Tracer {
    /// Takes hold of every thread of a process. Nothing fails yet.
    pub(crate) fn attach(process: u32, seed: Seed) -> Self {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let (ready, attached) = mpsc::channel();
        let pid = Pid::from_raw(process.cast_signed());
        let run = move || {
            let mut tracing = Tracing::new(pid, Schedule::new(seed), theirs);
            tracing.seize();
            let _ = ready.send(());
            tracing.run()
        };
        let thread = thread::Builder::new().name("tracer".into()).spawn(run).unwrap();
        attached.recv().unwrap();
        Self { pid, shared, thread: Some(thread) }
    }

    /// Calls fail from here on, or no more.
    pub(crate) fn arm(&self, armed: bool) {
        self.shared.armed.store(armed, Ordering::Relaxed);
    }

    /// What has befallen the process.
    pub(crate) fn counts(&self) -> Counts {
        self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many system calls the process has made since it was taken hold of.
    pub(crate) fn calls(&self) -> u64 {
        self.shared.calls.load(Ordering::Relaxed)
    }

    /// Whether the process runs.
    pub(crate) fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// What the process has ended with, if it has and that was no signal.
    pub(crate) fn ended(mut self) -> Option<i32> {
        if self.is_running() {
            return None;
        }
        self.thread.take()?.join().unwrap()
    }

    /// Asks the process to end.
    pub(crate) fn terminate(&self) {
        let _ = kill(self.pid, Signal::SIGTERM);
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        if self.is_running() {
            let _ = kill(self.pid, Signal::SIGKILL);
        }
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A call on its way.
struct Pending {
    fault: Fault,
    call: &'static Call,
    /// What the process wanted.
    wanted: user_regs_struct,
}

struct Tracing {
    pid: Pid,
    pidfd: OwnedFd,
    schedule: Schedule,
    shared: Arc<Shared>,
    pending: HashMap<Pid, Pending>,
}

impl Tracing {
    fn new(pid: Pid, schedule: Schedule, shared: Arc<Shared>) -> Self {
        let raw = rustix::process::Pid::from_raw(pid.as_raw()).unwrap();
        let pidfd = pidfd_open(raw, PidfdFlags::empty()).unwrap();
        Self { pid, pidfd, schedule, shared, pending: HashMap::new() }
    }

    /// Every thread, and those that they start meanwhile.
    fn seize(&self) {
        let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE;
        let mut found = true;
        while std::mem::take(&mut found) {
            for entry in fs::read_dir(format!("/proc/{}/task", self.pid)).unwrap().flatten() {
                let number = entry.file_name().to_string_lossy().parse().unwrap();
                let tid = Pid::from_raw(number);
                // What is held already refuses, and what has just ended is not there.
                if ptrace::seize(tid, options).is_ok() {
                    ptrace::interrupt(tid).unwrap();
                    found = true;
                }
            }
        }
    }

    /// Until the process has ended; with what.
    fn run(&mut self) -> Option<i32> {
        let mut ended = None;
        // This thread's own tracees, not its process's other children.
        let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        loop {
            let (tid, signal) = match waitpid(None, Some(flags)) {
                Ok(WaitStatus::PtraceSyscall(tid)) => {
                    // What was killed meanwhile is told of next.
                    let _ = self.handle(tid);
                    (tid, None)
                }
                Ok(WaitStatus::PtraceEvent(tid, ..)) => (tid, None),
                Ok(WaitStatus::Stopped(tid, signal)) => (tid, Some(signal)),
                Ok(WaitStatus::Exited(tid, code)) => {
                    self.pending.remove(&tid);
                    ended = Some(code).filter(|_| tid == self.pid).or(ended);
                    continue;
                }
                Ok(WaitStatus::Signaled(tid, ..)) => {
                    self.pending.remove(&tid);
                    continue;
                }
                Ok(_) | Err(Errno::EINTR) => continue,
                Err(Errno::ECHILD) => return ended,
                Err(e) => panic!("waiting for a tracee: {e}"),
            };
            let _ = ptrace::syscall(tid, signal);
        }
    }

    fn handle(&mut self, tid: Pid) -> nix::Result<()> {
        match ptrace::syscall_info(tid)?.op {
            ENTRY => {
                self.shared.calls.fetch_add(1, Ordering::Relaxed);
                if self.shared.armed.load(Ordering::Relaxed) {
                    self.handle_entry(tid)
                } else {
                    Ok(())
                }
            }
            EXIT => match self.pending.remove(&tid) {
                Some(pending) => self.handle_exit(tid, &pending),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn handle_entry(&mut self, tid: Pid) -> nix::Result<()> {
        let wanted = ptrace::getregs(tid)?;
        let Some(call) = Schedule::call(wanted.orig_rax.cast_signed()) else { return Ok(()) };
        // What is watched already stays so, and a wake-up of one byte, such as a signal's, is always taken.
        let (adds, wakes) = (wanted.rsi == EPOLL_CTL_ADD, wanted.rdx == 1);
        if (call.name == "epoll_ctl" && !adds) || (call.name == "sendto" && wakes) {
            return Ok(());
        }
        let pidfd = &self.pidfd;
        let Some(fault) = self.schedule.next(call, || kind(pidfd, wanted.rdi)) else {
            return Ok(());
        };
        let mut regs = wanted;
        match fault {
            Fault::Fails(_) | Fault::Nothing => regs.orig_rax = u64::MAX,
            Fault::Later(by) => thread::sleep(by),
            // The length, or the number of messages; a single message stays whole.
            Fault::Shorter(_) if ["recvmsg", "sendmsg"].contains(&call.name) || wanted.rdx < 2 => {
                return Ok(());
            }
            Fault::Shorter(part) => regs.rdx = 1 + (wanted.rdx - 1) * part / 256,
        }
        let mut counts = self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((call.name, fault.name())).or_default() += 1;
        drop(counts);
        ptrace::setregs(tid, regs)?;
        self.pending.insert(tid, Pending { fault, call, wanted });
        Ok(())
    }

    fn handle_exit(&self, tid: Pid, pending: &Pending) -> nix::Result<()> {
        let mut regs = ptrace::getregs(tid)?;
        match pending.fault {
            Fault::Fails(errno) => regs.rax = (-i64::from(errno as i32)).cast_unsigned(),
            Fault::Nothing => regs.rax = 0,
            Fault::Shorter(_) => regs.rdx = pending.wanted.rdx,
            Fault::Later(_) => return Ok(()),
        }
        ptrace::setregs(tid, regs)?;
        // Whoever is told by the kernel that nothing is left waits for the next change, which has to come.
        let again = matches!(pending.fault, Fault::Fails(Errno::EAGAIN) | Fault::Shorter(_));
        if again && pending.call.by_descriptor {
            self.tell_again(tid, &regs, pending.wanted.rdi)?;
        }
        Ok(())
    }

    /// Has the kernel tell the process once more what `fd` is ready for: what is edge-triggered would
    /// otherwise not be told, since nothing has changed but for what we made of it.
    fn tell_again(&self, tid: Pid, regs: &user_regs_struct, fd: u64) -> nix::Result<()> {
        for (epoll, events, data) in watchers(self.pid, fd) {
            let at = (regs.rsp - BELOW) & !15;
            ptrace::write(tid, at as ptrace::AddressType, word(events | data << 32))?;
            ptrace::write(tid, (at + 8) as ptrace::AddressType, word(data >> 32))?;
            let call = user_regs_struct {
                rax: SYS_epoll_ctl.cast_unsigned(),
                orig_rax: u64::MAX,
                rdi: epoll,
                rsi: EPOLL_CTL_MOD,
                rdx: fd,
                r10: at,
                rip: regs.rip - SYSCALL,
                ..*regs
            };
            ptrace::setregs(tid, call)?;
            let mut held = Vec::new();
            // Its entry and its exit.
            for _ in 0..2 {
                self.step(tid, &mut held)?;
            }
            ptrace::setregs(tid, *regs)?;
            held.into_iter().try_for_each(|signal| kill(self.pid, signal))?;
        }
        Ok(())
    }

    /// Lets one thread go on to its next entry or exit.
    fn step(&self, tid: Pid, held: &mut Vec<Signal>) -> nix::Result<()> {
        loop {
            ptrace::syscall(tid, None)?;
            match waitpid(tid, Some(WaitPidFlag::__WALL))? {
                WaitStatus::PtraceSyscall(_) => return Ok(()),
                WaitStatus::Stopped(_, signal) => held.push(signal),
                WaitStatus::PtraceEvent(..) => {}
                _ => return Err(Errno::ESRCH),
            }
        }
    }
}

fn word(bits: u64) -> c_long {
    bits.cast_signed()
}

/// What a descriptor of the process is.
fn kind(pidfd: &OwnedFd, fd: u64) -> Kind {
    let fd = i32::try_from(fd).unwrap_or(-1);
    let Ok(fd) = pidfd_getfd(pidfd.as_fd(), fd, PidfdGetfdFlags::empty()) else {
        return Kind::Other;
    };
    match (sockopt::socket_domain(&fd), sockopt::socket_type(&fd)) {
        (Ok(AddressFamily::NETLINK), _) => Kind::Netlink,
        (Ok(_), Ok(SocketType::STREAM)) => Kind::Stream,
        (Ok(AddressFamily::INET | AddressFamily::INET6), Ok(SocketType::DGRAM)) => Kind::Datagrams,
        (Ok(_), _) => Kind::Other,
        _ => {
            let leads_to = fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
            let counts = leads_to.is_ok_and(|to| to.as_os_str() == "anon_inode:[eventfd]");
            if counts { Kind::Counter } else { Kind::Other }
        }
    }
}

/// Who waits for a descriptor: the epoll set, what for, and what it is told.
fn watchers(pid: Pid, fd: u64) -> Vec<(u64, u64, u64)> {
    let folder = format!("/proc/{pid}/fd");
    let mut watchers = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let leads_to = fs::read_link(entry.path()).unwrap_or_default();
        if leads_to.as_os_str() != "anon_inode:[eventpoll]" {
            continue;
        }
        let Ok(epoll) = entry.file_name().to_string_lossy().parse::<u64>() else { continue };
        let said = fs::read_to_string(format!("/proc/{pid}/fdinfo/{epoll}")).unwrap_or_default();
        for line in said.lines() {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            if let ["tfd:", of, "events:", events, "data:", data, ..] = words[..]
                && of.parse() == Ok(fd)
            {
                let bits = |text| u64::from_str_radix(text, 16).unwrap();
                watchers.push((epoll, bits(events), bits(data)));
            }
        }
    }
    watchers
}
