//! What a process and its host keep: memory, descriptors, threads, packet rules, routes.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use lasthop_kernel::netns::Netns;

/// What a process has.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Process {
    /// Resident memory that is its own: what is mapped from files is left out.
    pub(super) rss_kib: u64,
    /// What each descriptor is of.
    pub(super) descriptors: Vec<String>,
    pub(super) threads: usize,
}

impl Process {
    /// What it has at this moment.
    ///
    /// # Errors
    ///
    /// It is no more.
    pub(super) fn of(pid: u32) -> Result<Self> {
        let folder = |what: &str| {
            let folder = format!("/proc/{pid}/{what}");
            fs::read_dir(&folder).with_context(|| format!("reading {folder}"))
        };
        let sockets = sockets(pid);
        let of = |fd: fs::DirEntry| {
            let what = fs::read_link(fd.path()).unwrap_or_default().display().to_string();
            let inode = what.strip_prefix("socket:[").and_then(|what| what.strip_suffix(']'));
            inode.and_then(|inode| sockets.get(inode).cloned()).unwrap_or(what)
        };
        let mut descriptors: Vec<String> = folder("fd")?.flatten().map(of).collect();
        descriptors.sort_unstable();
        let status = format!("/proc/{pid}/status");
        let text = fs::read_to_string(&status).with_context(|| format!("reading {status}"))?;
        let rss_kib = anonymous(&text).with_context(|| format!("{status} has no RssAnon"))?;
        Ok(Self { rss_kib, descriptors, threads: folder("task")?.count() })
    }

    /// The most of each.
    pub(super) fn max(self, other: &Self) -> Self {
        let more = other.descriptors.len() > self.descriptors.len();
        Self {
            rss_kib: self.rss_kib.max(other.rss_kib),
            descriptors: if more { other.descriptors.clone() } else { self.descriptors },
            threads: self.threads.max(other.threads),
        }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rss_kib, descriptors, threads } = self;
        let (count, all) = (descriptors.len(), descriptors.join(", "));
        write!(f, "{rss_kib} KiB, {threads} threads and {count} descriptors: {all}")
    }
}

/// The sockets of a process's host by their inode: the protocol and what its table has of addresses.
fn sockets(pid: u32) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    // The columns of the inode and of what tells one from another (proc_pid_net(5)).
    for (table, inode, words) in [
        ("tcp", 9, 1..4),
        ("tcp6", 9, 1..4),
        ("udp", 9, 1..3),
        ("udp6", 9, 1..3),
        ("raw", 9, 1..3),
        ("packet", 8, 2..5),
        ("netlink", 9, 1..2),
        ("unix", 6, 7..8),
    ] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            if let Some(inode) = fields.get(inode) {
                let words = fields.get(words.clone()).unwrap_or_default().join(" ");
                all.insert((*inode).to_owned(), format!("{table} {words}"));
            }
        }
    }
    all
}

/// Memory of a process that is its own, KiB (proc_pid_status(5), RssAnon).
fn anonymous(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// What stands in a host's kernel, by what it is: as many lines as `nft` and `ip` list.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Host {
    pub(super) rules: Vec<String>,
    pub(super) routes: Vec<String>,
}

const ROUTES: [&[&str]; 6] = [
    &["-4", "route", "show", "table", "all"],
    &["-6", "route", "show", "table", "all"],
    &["-4", "rule"],
    &["-6", "rule"],
    &["-4", "neigh", "show", "proxy"],
    &["-6", "neigh", "show", "proxy"],
];

impl Host {
    /// What stands at this moment.
    ///
    /// # Errors
    ///
    /// It cannot be listed.
    pub(super) fn of(host: &Netns) -> Result<Self> {
        let rules = listed(host, "nft", &["-s", "list", "ruleset"])?;
        let mut routes = Vec::new();
        for what in ROUTES {
            routes.extend(listed(host, "ip", what)?);
        }
        routes.sort_unstable();
        Ok(Self { rules, routes })
    }

    /// What is here and was not there, or the other way about.
    pub(super) fn difference(&self, earlier: &Self) -> Vec<String> {
        let only = |these: &[String], those: &[String], sign: char| -> Vec<String> {
            let absent = these.iter().filter(|line| !those.contains(line));
            absent.map(|line| format!("{sign}{}", line.trim())).collect()
        };
        let pairs = [(&self.rules, &earlier.rules), (&self.routes, &earlier.routes)];
        let both = pairs.map(|(now, then)| [only(now, then, '+'), only(then, now, '-')].concat());
        both.concat()
    }
}

fn listed(host: &Netns, program: &str, args: &[&str]) -> Result<Vec<String>> {
    let mut command: Command = host.command(program);
    let output = command.args(args).output().with_context(|| format!("starting {program}"))?;
    if !output.status.success() {
        bail!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // How long ago something was, and when it will expire, is no difference.
    let steady = |line: &str| line.split(" expires ").next().unwrap_or(line).to_owned();
    Ok(text.lines().map(steady).filter(|line| !line.trim().is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_process_has_is_counted() {
        // Nobody else in this process opens these.
        let open = |_| fs::File::open("/proc/self/oom_score").unwrap();
        let files: Vec<fs::File> = (0..9).map(open).collect();
        let has = Process::of(std::process::id()).unwrap();
        let those = has.descriptors.iter().filter(|what| what.ends_with("/oom_score"));
        assert_eq!(those.count(), files.len());
        assert!(has.rss_kib > 100 && has.threads >= 1, "{has:?}");
        assert_eq!(anonymous("VmRSS:\t 5 kB\nRssAnon:\t     816 kB\n"), Some(816));
        assert!(Process::of(u32::MAX).is_err());
    }

    #[test]
    fn what_came_and_what_went_is_named() {
        let of = |rules: &[&str]| Host {
            rules: rules.iter().map(|rule| (*rule).to_owned()).collect(),
            routes: Vec::new(),
        };
        let (then, now) = (of(&["  a", "b"]), of(&["b", "c"]));
        assert_eq!(now.difference(&then), ["+c", "-a"]);
        assert!(then.difference(&then.clone()).is_empty());
    }
}
