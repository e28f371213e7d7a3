//! Delivered packets for each second of CPU time, ours and ns-2's.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::ns2::Ns2;
use crate::options::Options;
use crate::ours;
use crate::scenario::{Scenario, Sender, Snoop, Topology};

/// What ours must reach, in multiples of ns-2's.
pub const TARGET: f64 = 5.0;

/// One side's run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pace {
    /// Packets delivered.
    pub packets: u64,
    /// CPU time that it took.
    pub cpu: Duration,
}

impl Pace {
    /// Packets for each second of CPU time.
    pub fn per_second(&self) -> f64 {
        self.packets as f64 / self.cpu.as_secs_f64()
    }
}

/// Both sides, one after the other on one core.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Ours.
    pub ours: Pace,
    /// ns-2's, where it is installed.
    pub ns2: Option<Pace>,
}

impl Round {
    /// Ours over ns-2's.
    pub fn ratio(&self) -> Option<f64> {
        self.ns2.map(|ns2| self.ours.per_second() / ns2.per_second())
    }

    /// One JSON object.
    pub fn json(&self, seconds: u32) -> Value {
        json!({
            "simulated_s": seconds,
            "ours_packets": self.ours.packets,
            "ours_cpu_s": self.ours.cpu.as_secs_f64(),
            "ours_packets_per_cpu_s": self.ours.per_second(),
            "ns2_packets": self.ns2.map(|p| p.packets),
            "ns2_cpu_s": self.ns2.map(|p| p.cpu.as_secs_f64()),
            "ns2_packets_per_cpu_s": self.ns2.map(|p| p.per_second()),
            "ratio": self.ratio(),
            "target": TARGET,
        })
    }
}

/// The chain without losses, for so many simulated seconds.
///
/// # Errors
///
/// A run failed, or the system does not tell CPU times.
pub fn round(ns2: Option<&Ns2>, seconds: u32) -> Result<Round> {
    let ours = ours(seconds)?;
    let ns2 = ns2.map(|ns2| theirs(ns2, seconds)).transpose()?;
    Ok(Round { ours, ns2 })
}

fn ours(seconds: u32) -> Result<Pace> {
    let mut options = Options::default();
    options.set("time", f64::from(seconds));
    options.set("p2", 0.0);
    let scenario = Scenario::new(Topology::Chain, Sender::Reno, Snoop::default(), options)?;
    let before = thread_cpu();
    let outcome = ours::run(&scenario, 1)?;
    Ok(Pace { packets: outcome.acked, cpu: thread_cpu().saturating_sub(before) })
}

fn theirs(ns2: &Ns2, seconds: u32) -> Result<Pace> {
    let before = children_cpu()?;
    let packets = ns2.bare(seconds)?;
    Ok(Pace { packets, cpu: children_cpu()?.saturating_sub(before) })
}

/// CPU time of this thread: the run has no other.
fn thread_cpu() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let nanos = u32::try_from(t.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), nanos)
}

/// CPU time of all children that were waited for (proc_pid_stat(5), cutime and cstime).
fn children_cpu() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("reading /proc/self/stat")?;
    let ticks = waited_ticks(&stat).context("/proc/self/stat has no times of children")?;
    let per_second = rustix::param::clock_ticks_per_second();
    Ok(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

/// Fields 16 and 17; the second field may contain spaces and parentheses of its own.
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
    }

    #[test]
    fn the_ratio_is_of_packets_for_a_second() {
        let pace = |packets, ms| Pace { packets, cpu: Duration::from_millis(ms) };
        let round = Round { ours: pace(1000, 100), ns2: Some(pace(1000, 700)) };
        assert!((round.ratio().unwrap() - 7.0).abs() < 1e-9);
        assert_eq!(Round { ours: pace(1000, 100), ns2: None }.ratio(), None);
    }
}
