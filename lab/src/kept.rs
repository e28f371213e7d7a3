//! What a process and its host keep: memory, descriptors, threads, packet rules, routes.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;

use lasthop_kernel::netns::Netns;

use crate::error::LabError;
use crate::process;

/// What a process has.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Process {
    /// Resident memory, KiB.
    pub resident_kib: u64,
    /// Of that, what is its own: what is mapped from files is left out.
    pub anonymous_kib: u64,
    /// What each descriptor leads to; of a socket with the protocol and what the kernel's table has of its
    /// addresses.
    pub descriptors: Vec<String>,
    /// How many there are.
    pub threads: usize,
}

impl Process {
    /// What it has at this moment.
    ///
    /// # Errors
    ///
    /// It is no more.
    pub fn of(pid: u32) -> Result<Self, LabError> {
        let fail = |what: &str| {
            let what = format!("reading /proc/{pid}/{what}");
            |source| LabError::Io { what, source }
        };
        let folder = |what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).map_err(fail(what));
        let sockets = sockets(pid);
        let of = |fd: fs::DirEntry| {
            let to = fs::read_link(fd.path()).ok()?.display().to_string();
            let inode = to.strip_prefix("socket:[").and_then(|to| to.strip_suffix(']'));
            Some(inode.and_then(|inode| sockets.get(inode).cloned()).unwrap_or(to))
        };
        let mut descriptors: Vec<String> = folder("fd")?.flatten().filter_map(of).collect();
        descriptors.sort_unstable();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(fail("status"))?;
        let missing = |field| fail("status")(io::Error::other(format!("there is no {field}")));
        let memory = |field| kib(&status, field).ok_or_else(|| missing(field));
        Ok(Self {
            resident_kib: memory("VmRSS")?,
            anonymous_kib: memory("RssAnon")?,
            descriptors,
            threads: folder("task")?.count(),
        })
    }

    /// How many descriptors lead to each kind of thing: a file by its name, sockets, pipes.
    pub fn kinds(&self) -> BTreeMap<&str, usize> {
        let mut kinds = BTreeMap::new();
        for to in &self.descriptors {
            let kind = if to.starts_with("socket ") { "socket" } else { to };
            let kind = kind.split_once(":[").map_or(kind, |(kind, _)| kind);
            *kinds.entry(kind).or_default() += 1;
        }
        kinds
    }

    /// The most of each.
    pub fn max(self, other: &Self) -> Self {
        let more = other.descriptors.len() > self.descriptors.len();
        Self {
            resident_kib: self.resident_kib.max(other.resident_kib),
            anonymous_kib: self.anonymous_kib.max(other.anonymous_kib),
            descriptors: if more { other.descriptors.clone() } else { self.descriptors },
            threads: self.threads.max(other.threads),
        }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { anonymous_kib, descriptors, threads, .. } = self;
        let (count, all) = (descriptors.len(), descriptors.join(", "));
        write!(f, "{anonymous_kib} KiB, {threads} threads and {count} descriptors: {all}")
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
                all.insert((*inode).to_owned(), format!("socket {table} {words}"));
            }
        }
    }
    all
}

/// A field that is so many KiB (proc_pid_status(5)).
fn kib(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// What stands in a host's kernel, by what it is: as many lines as `nft` and `ip` list.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Host {
    /// Packet rules.
    pub rules: Vec<String>,
    /// Routes, routing rules and proxies.
    pub routes: Vec<String>,
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
    pub fn of(host: &Netns) -> Result<Self, LabError> {
        let rules = listed(host, "nft", &["-s", "list", "ruleset"])?;
        let mut routes = Vec::new();
        for what in ROUTES {
            routes.extend(listed(host, "ip", what)?);
        }
        routes.sort_unstable();
        Ok(Self { rules, routes })
    }

    /// What is here and was not there, or the other way about.
    pub fn difference(&self, earlier: &Self) -> Vec<String> {
        let only = |these: &[String], those: &[String], sign: char| -> Vec<String> {
            let absent = these.iter().filter(|line| !those.contains(line));
            absent.map(|line| format!("{sign}{}", line.trim())).collect()
        };
        let pairs = [(&self.rules, &earlier.rules), (&self.routes, &earlier.routes)];
        let both = pairs.map(|(now, then)| [only(now, then, '+'), only(then, now, '-')].concat());
        both.concat()
    }
}

fn listed(host: &Netns, program: &str, args: &[&str]) -> Result<Vec<String>, LabError> {
    let mut command = host.command(program);
    command.args(args);
    let text = process::run(command)?;
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
        assert!(has.anonymous_kib > 100 && has.threads >= 1, "{has:?}");
        assert!(has.resident_kib > has.anonymous_kib, "{has:?}");
        assert_eq!(kib("VmRSS:\t 5 kB\nRssAnon:\t     816 kB\n", "RssAnon"), Some(816));
        let kinds = [("socket", 2), ("/dev/null", 1), ("pipe", 1)];
        let all = ["socket:[7]", "socket tcp 0:1 0:0 0A", "/dev/null", "pipe:[8]"];
        let some = Process { descriptors: all.map(str::to_owned).into(), ..has };
        assert_eq!(some.kinds(), BTreeMap::from(kinds));
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
