//! The base's side: how it is, and that it reads its files again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lasthop_control::{self as control, Report, Request, RequestError};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{interval, sleep};

use super::presence::Wanted;
use crate::records::{AliveRecord, Key, Printable};
use crate::time::now;

/// How often the base is looked at.
const INTERVAL: Duration = Duration::from_secs(1);
/// When a base that refused its files is asked again.
const AGAIN: Duration = Duration::from_secs(10);
/// Seconds by which two looks at a base's start may differ.
const SLACK: u64 = 3;

/// How the base is.
#[derive(Clone, PartialEq, Default, Debug)]
pub(super) struct Picture {
    /// Whether it answers.
    pub(super) ready: bool,
    /// Since when it runs, or the agent does.
    pub(super) since: u64,
    /// Its version.
    pub(super) version: Printable,
    /// Whom it serves, and how many connections they have.
    pub(super) served: BTreeMap<Key, u64>,
    /// Whether it sends its mobiles elsewhere; none if it does not say.
    pub(super) draining: Option<bool>,
    /// The latest version of its files that it has read.
    pub(super) reloaded: Option<u64>,
}

impl Picture {
    /// What etcd has to know of it; whom it serves may be other bases, which are no mobiles.
    pub(super) fn of_mobiles(&self, bases: &BTreeSet<Key>, draining: bool) -> Wanted {
        let mobiles = self.served.iter().filter(|(key, _)| !bases.contains(key));
        let held: BTreeMap<Key, u64> = mobiles.map(|(key, n)| (*key, *n)).collect();
        let alive = AliveRecord {
            since: self.since,
            version: self.version.clone(),
            mobiles: held.len().try_into().unwrap_or(u64::MAX),
            connections: held.values().sum(),
            draining,
            ready: self.ready,
        };
        Wanted { alive, held }
    }

    fn take_in(&mut self, report: Option<&Report>) {
        let Some(report) = report else {
            self.ready = false;
            self.draining = None;
            self.served.clear();
            return;
        };
        let since = now().saturating_sub(report.uptime_s.max(0.0) as u64);
        if !self.ready || self.since.abs_diff(since) > SLACK {
            self.since = since;
        }
        self.ready = true;
        self.draining = report.draining;
        self.version = report.version.parse().unwrap_or_default();
        self.served = served(report);
    }
}

/// Whom a base serves itself, by what it reports.
fn served(report: &Report) -> BTreeMap<Key, u64> {
    let peers: Vec<&str> = report.peers.iter().map(|peer| peer.key.as_str()).collect();
    let mut served = BTreeMap::new();
    for association in &report.associations {
        let is_here = matches!(association.state.as_str(), "up" | "silent");
        let Some(peer) = association.peer.as_deref() else { continue };
        if !is_here || association.transit.is_some() || peers.contains(&peer) {
            continue;
        }
        if let Ok(key) = peer.parse::<Key>() {
            *served.entry(key).or_insert(0) += association.streams;
        }
    }
    served
}

/// Looks at the base, and has it read its files.
pub(super) struct Base {
    control: PathBuf,
    versions: watch::Receiver<u64>,
    /// Whether etcd has it marked as one to be emptied; none while that is not known.
    marks: watch::Receiver<Option<bool>>,
    pictures: watch::Sender<Picture>,
    picture: Picture,
    /// Whether it answered when it was looked at last.
    answered: Option<bool>,
    /// Why it did not read its files, as was said.
    refused: Option<String>,
    /// It was asked to empty itself for the mark in etcd.
    drained: bool,
    /// Why it did not do what the mark says, as was said.
    undrained: Option<String>,
}

impl Base {
    pub(super) fn new(
        control: PathBuf,
        versions: watch::Receiver<u64>,
        marks: watch::Receiver<Option<bool>>,
        pictures: watch::Sender<Picture>,
    ) -> Self {
        let version = env!("CARGO_PKG_VERSION").parse().unwrap_or_default();
        let picture = Picture { since: now(), version, ..Picture::default() };
        Self {
            control,
            versions,
            marks,
            pictures,
            picture,
            answered: None,
            refused: None,
            drained: false,
            undrained: None,
        }
    }

    /// For as long as somebody looks.
    pub(super) async fn run(mut self) {
        let mut looks = interval(INTERVAL);
        let mut asked_again = tokio::time::Instant::now();
        loop {
            tokio::select! {
                _ = looks.tick() => {}
                changed = self.marks.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                changed = self.versions.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    asked_again = tokio::time::Instant::now();
                }
            }
            let version = *self.versions.borrow_and_update();
            let due = self.picture.reloaded != Some(version);
            // The files may be there since before this agent, so the first one is asked for too.
            if due && asked_again <= tokio::time::Instant::now() {
                self.reload(version).await;
                asked_again = tokio::time::Instant::now() + AGAIN;
            }
            self.look().await;
            self.follow_mark().await;
            if self.pictures.send(self.picture.clone()).is_err() {
                return;
            }
        }
    }

    async fn look(&mut self) {
        let path = self.control.clone();
        let report = spawn_blocking(move || control::query(&path)).await;
        let report = report.ok().and_then(Result::ok);
        self.picture.take_in(report.as_ref());
        if self.answered.replace(self.picture.ready) != Some(self.picture.ready) {
            let control = self.control.display();
            match self.picture.ready {
                true => tracing::info!(%control, "the base answers"),
                false => tracing::warn!(%control, "the base does not answer"),
            }
        }
    }

    /// Has the base send its mobiles elsewhere while etcd has it marked, and stop that when the mark goes. What
    /// an operator has asked of it without a mark is left alone.
    async fn follow_mark(&mut self) {
        let mark = *self.marks.borrow_and_update();
        let wanted = match mark {
            Some(true) if self.picture.draining == Some(false) => true,
            Some(false) if self.drained && self.picture.draining == Some(true) => false,
            Some(false) => {
                self.drained = false;
                return;
            }
            _ => {
                self.drained |= mark == Some(true) && self.picture.draining == Some(true);
                return;
            }
        };
        let path = self.control.clone();
        let request = Request::Drain { undo: !wanted };
        let asked = spawn_blocking(move || control::request(&path, &request)).await;
        match asked {
            Ok(Ok(_)) => {
                (self.drained, self.undrained) = (wanted, None);
                match wanted {
                    true => tracing::info!("the base sends its mobiles to others"),
                    false => tracing::info!("the base keeps its mobiles"),
                }
            }
            Ok(Err(RequestError::Io(_))) | Err(_) => {}
            Ok(Err(error)) => {
                let why = error.to_string();
                if self.undrained.as_ref() != Some(&why) {
                    tracing::error!(%why, "the base does not send its mobiles to others");
                    self.undrained = Some(why);
                }
            }
        }
    }

    async fn reload(&mut self, version: u64) {
        let path = self.control.clone();
        let asked = spawn_blocking(move || ask_to_reload(&path)).await;
        match asked {
            Ok(Ok(restart)) => {
                self.picture.reloaded = Some(version);
                self.refused = None;
                if !restart.is_empty() {
                    let restart = restart.join(", ");
                    tracing::warn!(restart, "the base has to be started anew for what has changed");
                }
            }
            // It reads them when it starts.
            Ok(Err(RequestError::Io(_))) => {}
            Ok(Err(error)) => {
                let why = error.to_string();
                if self.refused.as_ref() != Some(&why) {
                    tracing::error!(%why, "the base does not take its files in");
                    self.refused = Some(why);
                }
            }
            Err(error) => tracing::error!(%error, "the base is not asked to read its files"),
        }
        // A base that was just asked has something to do.
        sleep(Duration::from_millis(10)).await;
    }
}

fn ask_to_reload(path: &Path) -> Result<Vec<String>, RequestError> {
    let reply = control::request(path, &Request::Reload {})?;
    Ok(reply.reload.map(|reloaded| reloaded.restart).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use lasthop_control::{AssociationReport, PeerReport, TransitReport};
    use lasthop_hop::seal::PublicKey;

    use super::*;

    fn association(n: u8, state: &str, streams: u64) -> AssociationReport {
        AssociationReport {
            peer: Some(PublicKey::from_bytes([n; 32]).to_string()),
            state: state.to_owned(),
            streams,
            ..AssociationReport::default()
        }
    }

    #[test]
    fn who_is_served_is_a_mobile_that_is_here_itself() {
        let transit = AssociationReport {
            transit: Some(TransitReport::default()),
            ..association(4, "up", 1)
        };
        let nobody = AssociationReport { peer: None, ..association(5, "up", 1) };
        let report = Report {
            associations: vec![
                association(1, "up", 3),
                association(2, "silent", 2),
                association(3, "connecting", 0),
                association(9, "up", 7),
                transit,
                nobody,
            ],
            peers: vec![PeerReport {
                key: PublicKey::from_bytes([9; 32]).to_string(),
                ..PeerReport::default()
            }],
            uptime_s: 10.0,
            ..Report::default()
        };
        let mut picture = Picture::default();
        picture.take_in(Some(&report));
        let key = |n| Key(PublicKey::from_bytes([n; 32]));
        assert_eq!(picture.served, BTreeMap::from([(key(1), 3), (key(2), 2)]));
        let wanted = picture.of_mobiles(&BTreeSet::from([key(2)]), true);
        assert_eq!((wanted.alive.mobiles, wanted.alive.connections), (1, 3));
        assert!(wanted.alive.draining && wanted.alive.ready);

        let since = picture.since;
        picture.take_in(Some(&Report { uptime_s: 11.5, ..report.clone() }));
        assert_eq!(picture.since, since, "seconds are rounded, which is no new start");
        picture.take_in(None);
        assert!(!picture.ready && picture.served.is_empty());
    }
}
