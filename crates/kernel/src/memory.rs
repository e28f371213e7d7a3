//! How much memory there is, and what becomes of what is freed.

use std::fs;
use std::path::Path;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// The memory that this process may use, in bytes: the host's, or its control group's if that is less.
/// `None` where the kernel does not say.
pub fn available_to_us() -> Option<u64> {
    let host = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let group = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| {
        let group = unified(&text)?.trim_start_matches('/').to_owned();
        least_of(Path::new("/sys/fs/cgroup"), &group)
    });
    [host, group].into_iter().flatten().min()
}

/// From here on a block of 128 KiB or more goes back to the kernel as soon as it is freed, as at the start. Of
/// itself glibc keeps larger ones the larger those were that it was given back, up to 32 MiB, and a process stays
/// as large as the states of its handoffs have made it (`M_MMAP_THRESHOLD` in mallopt(3)).
#[allow(unsafe_code, reason = "the kernel's side of the C library")]
pub fn give_back_large_blocks() {
    // SAFETY: mallopt(3) takes two numbers, and locks what it changes.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10)
    };
}

/// From here on no core dump of this process is written, and other processes of its user may neither trace it nor
/// read its memory (`PR_SET_DUMPABLE` in prctl(2)): it holds keys. Those of root may.
///
/// # Errors
///
/// The kernel refuses, as Linux never does.
pub fn withhold() -> std::io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// `MemTotal` of `/proc/meminfo`, which says kB and means KiB (proc_meminfo(5)).
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The process's group in the unified hierarchy (cgroups(7)).
fn unified(cgroup: &str) -> Option<&str> {
    cgroup.lines().find_map(|line| line.strip_prefix("0::"))
}

/// The least `memory.max` of a group and of those that it is in.
fn least_of(root: &Path, group: &str) -> Option<u64> {
    let group = root.join(group);
    let groups = group.ancestors().take_while(|path| path.starts_with(root));
    let limit = |path: &Path| fs::read_to_string(path.join("memory.max")).ok()?.trim().parse().ok();
    groups.filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-44
    #[test]
    fn what_is_withheld_is_not_dumped() {
        withhold().unwrap();
        let now = rustix::process::dumpable_behavior().unwrap();
        assert_eq!(now, DumpableBehavior::NotDumpable);
    }

    #[test]
    fn the_kernels_words_are_understood() {
        let meminfo = "MemTotal:       24050312 kB\nMemFree:        10 kB\n";
        assert_eq!(total(meminfo), Some(24_050_312 * 1024));
        assert_eq!(total("MemFree: 5 kB\n"), None);
        assert_eq!(
            unified("1:cpu:/a\n0::/system.slice/b.service\n"),
            Some("/system.slice/b.service")
        );
        assert!(available_to_us().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn the_strictest_group_counts() {
        let root = std::env::temp_dir().join(format!("lasthop-cgroups-{}", std::process::id()));
        let inner = root.join("outer/inner");
        fs::create_dir_all(&inner).unwrap();
        fs::write(root.join("outer/memory.max"), "1000000\n").unwrap();
        fs::write(inner.join("memory.max"), "max\n").unwrap();
        let least = least_of(&root, "outer/inner");
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(least, Some(1_000_000));
    }
}
