//! The system's data of this process.

use rustix::param::page_size;
use rustix::time::{ClockId, clock_gettime};

/// What this process uses of its host. The names of these metrics are those that Prometheus's own
/// libraries use, without a prefix, so that existing dashboards show them.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Process {
    /// Seconds of processor time.
    pub cpu_s: f64,
    /// Bytes of memory in use, if `/proc` is there.
    pub resident_bytes: Option<u64>,
    /// Open descriptors, if `/proc` is there.
    pub open_fds: Option<u64>,
}

impl Process {
    /// Looks at this process.
    pub fn read() -> Self {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        Self {
            cpu_s: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
            resident_bytes: resident_bytes(),
            // The descriptor by which the folder is read is among them.
            open_fds: std::fs::read_dir("/proc/self/fd")
                .ok()
                .map(|fds| (fds.count() as u64).saturating_sub(1)),
        }
    }
}

/// The second number of `/proc/self/statm` is in pages (proc(5)).
fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(page_size() as u64)
}
