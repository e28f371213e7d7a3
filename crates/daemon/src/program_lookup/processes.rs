//! The process that holds a socket, by the socket's inode.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, thread};

use lasthop_control::priority::Program;

/// Processes that are scanned first, since they were found before.
const RECENT: usize = 32;
/// Scanning all processes takes at most one part in so many of the time.
const SCAN_PAUSE: u32 = 10;
/// The longest pause between two scans.
const SCAN_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Looks into the lists of open files of processes. What this user may not read is not found.
pub(super) struct Processes {
    /// The latest first.
    recent: VecDeque<PathBuf>,
    /// All processes are not scanned again before.
    next_scan: Instant,
}

impl Processes {
    pub(super) fn new() -> Self {
        Self { recent: VecDeque::new(), next_scan: Instant::now() }
    }

    /// The programs that hold sockets with these tags and inodes, as far as they are found.
    pub(super) fn find(&mut self, sockets: &[(u64, u64)]) -> Vec<(u64, Program)> {
        let mut wanted: HashMap<u64, Vec<u64>> = HashMap::new();
        for (tag, inode) in sockets {
            wanted.entry(*inode).or_default().push(*tag);
        }
        let mut found = Vec::new();
        for process in self.recent.clone() {
            self.scan(&process, &mut wanted, &mut found);
        }
        if wanted.is_empty() {
            return found;
        }
        thread::sleep(self.next_scan.saturating_duration_since(Instant::now()));
        let began = Instant::now();
        for process in all() {
            if wanted.is_empty() {
                break;
            }
            self.scan(&process, &mut wanted, &mut found);
        }
        self.next_scan = Instant::now() + (began.elapsed() * SCAN_PAUSE).min(SCAN_PAUSE_MAX);
        found
    }

    /// Takes out of `wanted` what the process holds.
    fn scan(
        &mut self,
        process: &Path,
        wanted: &mut HashMap<u64, Vec<u64>>,
        found: &mut Vec<(u64, Program)>,
    ) {
        let Ok(files) = fs::read_dir(process.join("fd")) else { return };
        for file in files.flatten() {
            let held = fs::read_link(file.path()).ok().and_then(|name| inode(name.to_str()?));
            let Some(tags) = held.and_then(|inode| wanted.remove(&inode)) else { continue };
            let Some(program) = program(process) else { return };
            found.extend(tags.into_iter().map(|tag| (tag, program.clone())));
            self.recent.retain(|known| known != process);
            self.recent.push_front(process.to_owned());
            self.recent.truncate(RECENT);
            if wanted.is_empty() {
                return;
            }
        }
    }
}

/// The directories of all processes.
fn all() -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    entries.filter(move |e| e.file_name().to_str().is_some_and(is_process)).map(|e| e.path())
}

/// The inode of a socket, as the link of an open file names it.
fn inode(name: &str) -> Option<u64> {
    name.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

fn program(process: &Path) -> Option<Program> {
    let name = fs::read(process.join("comm")).ok()?;
    let name = printable(String::from_utf8_lossy(&name).trim_end_matches('\n'));
    let file = fs::read_link(process.join("exe")).ok();
    let binary = file.as_ref().and_then(|file| file.file_name()?.to_str());
    // A program whose file was replaced meanwhile, as an update does.
    let binary = binary.map(|name| printable(name.strip_suffix(" (deleted)").unwrap_or(name)));
    Some(Program { name, binary })
}

/// Programs choose their names; terminals and logs show them.
fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_to_sockets_have_inodes() {
        assert_eq!(inode("socket:[4711]"), Some(4711));
        for other in ["pipe:[4711]", "socket:[]", "socket:[x]", "/tmp/socket:[1]", ""] {
            assert_eq!(inode(other), None, "{other}");
        }
    }

    #[test]
    fn a_name_cannot_write_on_the_terminal() {
        assert_eq!(printable("a\x1b[31mb\n"), "a?[31mb?");
    }
}
