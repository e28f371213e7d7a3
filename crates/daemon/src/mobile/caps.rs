//! What links may carry in a day: what they have is counted, and kept over restarts.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lasthop_control::Report;
use lasthop_hop::PathStatus;
use lasthop_kernel::clock;
use lasthop_units::Time;
use serde::{Deserialize, Serialize};
use time::{OffsetDateTime, UtcOffset};

use super::links::LinkConfig;
use super::{Core, MobileHop, MobileRole};
use crate::error::RunError;

/// What was carried, in the directory of `state`.
const FILE: &str = "usage.json";
/// How often it is looked at, and where a cap is near.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_NEAR: Duration = Duration::from_millis(100);
/// How often it is written at most: so much is forgotten where the power goes.
const SAVE: Duration = Duration::from_secs(20);

/// What was carried on a day, by the links' names.
#[derive(PartialEq, Eq, Serialize, Deserialize, Default, Debug)]
struct Usage {
    /// By the local time, as `2026-11-28`.
    day: String,
    bytes: BTreeMap<String, u64>,
}

impl Usage {
    /// What the link of this name has carried.
    fn of(&self, name: &str) -> u64 {
        self.bytes.get(name).copied().unwrap_or(0)
    }
}

/// A link that may carry only so much.
#[derive(Debug)]
struct Capped {
    link: usize,
    name: String,
    cap: u64,
    is_spent: bool,
}

/// The links that may carry only so much in a day, and what they have carried.
#[derive(Debug)]
pub(super) struct Caps {
    file: PathBuf,
    links: Vec<Capped>,
    usage: Usage,
    /// It is not as it was when it was written.
    changed: bool,
    /// What each hop said last that a link of it has carried.
    seen: BTreeMap<(u32, usize), u64>,
    look_at: Time,
    save_at: Time,
}

impl Caps {
    /// Those of `links` that have a cap, with what `directory` knows of the day; none where none has.
    ///
    /// # Errors
    ///
    /// The directory cannot be made or written to, or what it has cannot be read.
    pub(super) fn open(directory: &Path, links: &[LinkConfig]) -> Result<Option<Self>, RunError> {
        let capped = |(link, config): (usize, &LinkConfig)| {
            let (name, cap) = (config.name.clone(), config.cap?.get());
            Some(Capped { link, name, cap, is_spent: false })
        };
        let links: Vec<Capped> = links.iter().enumerate().filter_map(capped).collect();
        if links.is_empty() {
            return Ok(None);
        }
        let file = directory.join(FILE);
        let failed = |e: io::Error| RunError::State { path: file.clone(), why: e.to_string() };
        fs::create_dir_all(directory).map_err(failed)?;
        let usage: Usage = match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text).map_err(|e| failed(e.into()))?,
            Err(e) if e.kind() == ErrorKind::NotFound => Usage::default(),
            Err(e) => return Err(failed(e)),
        };
        save(&file, &usage).map_err(failed)?;
        let (changed, seen) = (false, BTreeMap::new());
        let (look_at, save_at) = (Time::ZERO, Time::ZERO);
        Ok(Some(Self { file, links, usage, changed, seen, look_at, save_at }))
    }

    /// A hop has carried so much by a link, all in all.
    fn add(&mut self, hop: u32, link: usize, bytes: u64) {
        let before = self.seen.insert((hop, link), bytes).unwrap_or(0);
        let Some(capped) = self.links.iter().find(|capped| capped.link == link) else { return };
        // A number that falls is another hop's.
        let more = bytes.checked_sub(before).unwrap_or(bytes);
        if more > 0 {
            *self.usage.bytes.entry(capped.name.clone()).or_default() += more;
            self.changed = true;
        }
    }

    /// On this day; the links that have used up what they may carry, or have not any more. No day comes back: a machine
    /// without a battery begins in some day of before.
    fn judge(&mut self, day: String) -> Vec<(usize, bool)> {
        if day > self.usage.day {
            self.usage = Usage { day, bytes: BTreeMap::new() };
            self.changed = true;
        }
        let mut changed = Vec::new();
        for capped in &mut self.links {
            let used = self.usage.of(&capped.name);
            let is_spent = used >= capped.cap;
            if is_spent != capped.is_spent {
                tracing::info!(link = capped.name, used, cap = capped.cap, is_spent, "cap");
                capped.is_spent = is_spent;
                changed.push((capped.link, is_spent));
            }
        }
        changed
    }

    /// Some link will soon have carried what it may.
    fn are_near(&self) -> bool {
        let near = |of: &Capped| !of.is_spent && self.usage.of(&of.name) >= of.cap / 4 * 3;
        self.links.iter().any(near)
    }

    /// Writes down what is not yet.
    fn save(&mut self) {
        if !self.changed {
            return;
        }
        match save(&self.file, &self.usage) {
            Ok(()) => self.changed = false,
            Err(e) => tracing::warn!("{}: {e}", self.file.display()),
        }
    }
}

/// Whoever reads the file finds all of it, whenever the power went.
fn save(file: &Path, usage: &Usage) -> io::Result<()> {
    let new = file.with_extension("new");
    let mut written = File::create(&new)?;
    written.write_all(&serde_json::to_vec(usage)?)?;
    written.sync_data()?;
    fs::rename(new, file)
}

/// By the local time; by UTC where that is not known.
fn today() -> String {
    let now = OffsetDateTime::from_unix_timestamp((clock::wall_nanos() / 1_000_000_000) as i64)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let offset = UtcOffset::local_offset_at(now).unwrap_or(UtcOffset::UTC);
    now.to_offset(offset).date().to_string()
}

impl MobileRole {
    /// Counts what links with caps have carried; those that have used theirs up carry nothing more today.
    pub(super) fn follow_caps(&mut self, core: &mut Core) {
        let Some(caps) = self.caps.as_mut().filter(|caps| caps.look_at <= core.now) else { return };
        let stations = self.stations.iter().filter_map(|station| station.part);
        let parts: Vec<u32> = stations.chain(self.retired.iter().map(|(_, part)| *part)).collect();
        caps.seen.retain(|(part, _), _| parts.contains(part));
        for part in &parts {
            for (link, bytes) in core.hop.get(*part).map_or_else(Vec::new, MobileHop::carried) {
                caps.add(*part, link, bytes.get());
            }
        }
        let changed = caps.judge(today());
        caps.look_at = core.now + if caps.are_near() { LOOK_NEAR } else { LOOK };
        if !changed.is_empty() || caps.save_at <= core.now {
            caps.save_at = core.now + SAVE;
            caps.save();
        }
        for (link, is_spent) in changed {
            let said = self.config.links.get(link).map_or(PathStatus::FREE, |link| link.status);
            let status = if is_spent { PathStatus::SPENT } else { said };
            self.factory.set_link_status(link, status);
            let (hop, mut turn) = core.turn();
            for part in &parts {
                hop.with(&mut turn, *part, |hop, turn| hop.set_link_status(turn, link, status));
            }
        }
    }

    /// When [`follow_caps`](Self::follow_caps) has something to do.
    pub(super) fn caps_timeout(&self) -> Option<Time> {
        self.caps.as_ref().map(|caps| caps.look_at)
    }

    /// Says what links with caps have carried today.
    pub(super) fn report_caps(&self, report: &mut Report) {
        let Some(caps) = &self.caps else { return };
        for path in report.associations.iter_mut().flat_map(|of| &mut of.paths) {
            let Some(capped) = caps.links.iter().find(|capped| capped.name == path.name) else {
                continue;
            };
            path.cap = Some(capped.cap);
            path.used_today = Some(caps.usage.of(&path.name));
            if capped.is_spent {
                "used-up".clone_into(&mut path.state);
            }
        }
    }
}

impl Drop for Caps {
    fn drop(&mut self) {
        self.save();
    }
}

#[cfg(test)]
mod tests {
    use lasthop_units::Bytes;

    use super::*;

    fn link(name: &str, cap: Option<u64>) -> LinkConfig {
        LinkConfig {
            name: name.to_owned(),
            interface: name.to_owned(),
            status: PathStatus::FREE,
            cap: cap.map(Bytes::new),
            base: None,
        }
    }

    fn day(n: u32) -> String {
        format!("2026-11-{n}")
    }

    #[test]
    fn a_link_carries_its_cap_and_again_on_the_next_day() {
        let directory = tempfile::tempdir().unwrap();
        let links = [link("free", None), link("dish", Some(1000))];
        let open = || Caps::open(&directory.path().join("new"), &links).unwrap().unwrap();
        let mut caps = open();
        assert_eq!(caps.judge(day(28)), []);
        caps.add(1, 0, 5000);
        caps.add(1, 1, 600);
        assert_eq!(caps.judge(day(28)), []);
        caps.save();
        // After a restart the hop counts anew, and so does one that has the number of another.
        let mut caps = open();
        caps.add(1, 1, 300);
        assert_eq!(caps.judge(day(28)), []);
        caps.add(1, 1, 100);
        assert_eq!(caps.judge(day(28)), [(1, true)]);
        assert_eq!(caps.judge(day(28)), []);
        caps.save();
        let mut caps = open();
        assert_eq!(caps.judge(day(28)), [(1, true)], "kept");
        assert_eq!(caps.judge(day(27)), [], "the clock is not set yet");
        assert_eq!(caps.judge(day(29)), [(1, false)]);
        assert_eq!(caps.usage, Usage { day: day(29), bytes: BTreeMap::new() });
    }

    #[test]
    fn a_directory_that_cannot_be_used_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Caps::open(directory.path(), &[link("dish", Some(1))]);
        fs::write(directory.path().join(FILE), "{\"day\": 3").unwrap();
        let error = open().unwrap_err().to_string();
        assert!(error.contains(FILE), "{error}");
        assert!(fs::read(directory.path().join(FILE)).unwrap().ends_with(b"3"), "kept");
        let file = directory.path().join(FILE);
        let error = Caps::open(&file, &[link("dish", Some(1))]).unwrap_err().to_string();
        assert!(error.contains(FILE), "{error}");
        assert!(Caps::open(&file, &[link("dish", None)]).unwrap().is_none());
    }
}
