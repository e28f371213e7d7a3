//! A flood at a steady rate, by one thread of an attacker's host, bounded in time.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use lasthop_kernel::netns::Netns;
use lasthop_units::Duration;
use rustix::time::{ClockId, clock_gettime};

use crate::peer::Hosts;

/// Addresses of the attacker, all of which receive.
pub(super) const SOURCES: u8 = 16;
/// How often the thread wakes.
const TICK: Duration = Duration::from_millis(2);
/// Whoever was kept off the processor for longer does not make up for it.
const BEHIND: Duration = Duration::from_millis(100);
/// At most so many at once.
const VOLLEY: u64 = 64;
/// No flood lasts longer.
const LONGEST: Duration = Duration::from_secs(120);
const CABLE: &str = "attack0";

/// A host on a cable of its own to the base: what it sends does not cross the radio.
#[derive(Clone, Debug)]
pub(crate) struct Attacker {
    host: Netns,
    /// Where it sends from.
    pub(super) sources: Vec<Ipv4Addr>,
    /// Where the base listens for mobiles.
    pub(super) base: SocketAddr,
}

impl Attacker {
    /// Joins one to the base.
    pub(crate) fn beside(hosts: &Hosts) -> Result<Self> {
        let host = Netns::anonymous()?;
        let at = |n| Ipv4Addr::new(10, 0, 9, n);
        let sources: Vec<Ipv4Addr> = (2..2 + SOURCES).map(at).collect();
        hosts.base.veth(CABLE, &host, CABLE)?;
        hosts.base.interface_up(CABLE, &[(at(1).into(), 24)])?;
        let own: Vec<(IpAddr, u8)> = sources.iter().map(|a| ((*a).into(), 24)).collect();
        host.interface_up(CABLE, &own)?;
        host.route(None, at(1).into())?;
        Ok(Attacker { host, sources, base: hosts.hop.into() })
    }

    /// Somebody at a host that is there already, and at a base.
    pub(crate) fn at(host: &Netns, sources: Vec<Ipv4Addr>, base: SocketAddr) -> Self {
        Attacker { host: host.clone(), sources, base }
    }
}

/// What is sent at once.
pub(crate) trait Volley {
    /// Sends those numbered from `first` on; how many could be.
    fn fire(&mut self, first: u64, count: usize) -> usize;
}

/// A flood, until it is stopped.
pub(crate) struct Flood {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Load>>>,
}

/// What a flood was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    sent: u64,
    took: Duration,
    cpu: Duration,
}

impl Load {
    /// The rate that was really reached.
    pub(super) fn per_second(&self) -> f64 {
        self.sent as f64 / self.took.as_secs_f64()
    }

    /// The share of a core that sending took, with all that the kernel did in it.
    pub(super) fn core_share(&self) -> f64 {
        self.cpu.as_secs_f64() / self.took.as_secs_f64()
    }
}

impl Flood {
    /// Starts one of `rate` a second; `arm` is called in the attacker's host.
    pub(crate) fn start<V: Volley>(
        attacker: &Attacker,
        rate: u64,
        arm: impl FnOnce(&Attacker) -> Result<V> + Send + 'static,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, attacker) = (Arc::clone(&stop), attacker.clone());
        let run = move || -> Result<Load> {
            attacker
                .host
                .enter(|| -> Result<Load> { Ok(pace(rate, &stopped, &mut arm(&attacker)?)) })?
        };
        let thread = thread::Builder::new().name("flood".into()).spawn(run);
        Ok(Flood { stop, thread: Some(thread.context("starting a thread")?) })
    }

    /// Stops it.
    pub(crate) fn stop(mut self) -> Result<Load> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("the flood was stopped before")?;
        thread.join().map_err(|_| anyhow!("the flood panicked"))?
    }
}

/// A measurement that fails leaves no flood behind.
impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn pace(rate: u64, stop: &AtomicBool, volley: &mut impl Volley) -> Load {
    let (began, cpu) = (Instant::now(), thread_cpu());
    let (mut fired, mut sent) = (0, 0);
    loop {
        let took = began.elapsed();
        if stop.load(Ordering::Relaxed) || took >= LONGEST {
            return Load { sent, took, cpu: thread_cpu().saturating_sub(cpu) };
        }
        let due = (took.as_secs_f64() * rate as f64) as u64;
        fired = due.saturating_sub((BEHIND.as_secs_f64() * rate as f64) as u64).max(fired);
        while fired < due && !stop.load(Ordering::Relaxed) {
            let count = (due - fired).min(VOLLEY);
            sent += volley.fire(fired, count as usize) as u64;
            fired += count;
        }
        thread::sleep(TICK);
    }
}

fn thread_cpu() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), spent.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes what it is told to send, and ends the flood after so many.
    struct Noting<'a>(Vec<u64>, &'a AtomicBool);

    impl Volley for Noting<'_> {
        fn fire(&mut self, first: u64, count: usize) -> usize {
            self.0.extend(first..first + count as u64);
            self.1.store(self.0.len() >= 200, Ordering::Relaxed);
            count - 1
        }
    }

    #[test]
    fn a_flood_counts_up_and_reports_what_was_taken() {
        let stop = AtomicBool::new(false);
        let mut noting = Noting(Vec::new(), &stop);
        let load = pace(100_000, &stop, &mut noting);
        assert!(noting.0.is_sorted_by(|a, b| a < b));
        assert!(load.sent < noting.0.len() as u64 && load.sent > 0);
    }
}
