//! What runs beside each base: it makes files of what etcd says, and tells etcd how the base is.
//!
//! Whatever becomes of etcd, the files stay as they were last, and the base needs nothing else.

mod base;
mod presence;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::future::{Future, pending};
use std::path::PathBuf;
use std::time::Duration;

use lasthop_control::grid::printable;
use lasthop_daemon::keyfile;
use lasthop_units::Stream;
use tokio::sync::watch;
use tokio::time::{Instant, interval, sleep, sleep_until, timeout};

use self::base::{Base, Picture};
use self::presence::Presence;
use crate::config::FleetFile;
use crate::error::FleetError;
use crate::files;
use crate::members;
use crate::records::{Name, OwnBase, Records};
use crate::store::{Access, Change, Snapshot, Store, StoreError};

/// Between two tries to reach etcd, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How long what has changed may wait for more of the kind.
const GATHER: Duration = Duration::from_millis(50);
/// How often it is told how the base is.
const TICK: Duration = Duration::from_secs(1);
/// How long the end may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// An agent and its base.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// How etcd is reached.
    pub access: Access,
    /// The fleet.
    pub fleet: Name,
    /// The base.
    pub base: OwnBase,
    /// Where its files are.
    pub folder: PathBuf,
    /// Its control socket.
    pub control: PathBuf,
}

impl AgentOptions {
    /// Those of the base that `file` names, with its files in `folder`.
    ///
    /// # Errors
    ///
    /// It names none, or a file that it names cannot be read.
    pub fn of(file: &FleetFile, folder: PathBuf, control: PathBuf) -> Result<Self, FleetError> {
        let (access, base) = (file.access()?, file.own_base()?.clone());
        Ok(Self { access, fleet: file.name.clone(), base, folder, control })
    }
}

/// What is said once until it is otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Membership {
    #[default]
    Unknown,
    Member,
    /// There is no such fleet, or the base is not of it: files stay as they are.
    Stranger,
    Revoked,
}

/// An agent that runs.
struct Agent {
    options: AgentOptions,
    jitter: Stream,
    /// The member of etcd that is tried first.
    first: usize,
    away: bool,
    membership: Membership,
    records: Records,
    /// What is wrong with records, as far as it was said, by their keys.
    problems: BTreeMap<String, String>,
    /// The names of ticket keys that the files on disk name.
    tickets: BTreeSet<String>,
    /// Why the files could not be written, as was said; then that is tried again.
    unwritten: Option<String>,
    /// The version of the files after which old keys were removed.
    cleaned: Option<u64>,
    /// How often the files have changed, for the base's side.
    versions: watch::Sender<u64>,
    /// Whether the base is marked as one to be emptied, for the base's side.
    marks: watch::Sender<Option<bool>>,
    pictures: watch::Receiver<Picture>,
    presence: Presence,
    /// The connection with which the presence was told.
    store: Option<Store>,
}

/// Runs an agent until `stop` is ready; then its lease ends, and with it what etcd says of the base.
///
/// # Errors
///
/// The operating system has no entropy. Nothing else ends it.
pub async fn run(options: AgentOptions, stop: impl Future<Output = ()>) -> Result<(), FleetError> {
    let seed = keyfile::entropy().map_err(FleetError::Entropy)?;
    let (versions, versions_seen) = watch::channel(0);
    let (pictures_told, pictures) = watch::channel(Picture::default());
    let (marks, marks_seen) = watch::channel(None);
    let base = Base::new(options.control.clone(), versions_seen, marks_seen, pictures_told);
    let mut jitter = seed.stream("fleet agent");
    let mut agent = Agent {
        first: usize::try_from(jitter.next_u64() >> 32).unwrap_or(0),
        jitter,
        away: false,
        membership: Membership::default(),
        records: Records::default(),
        problems: BTreeMap::new(),
        tickets: BTreeSet::new(),
        unwritten: None,
        cleaned: None,
        versions,
        marks,
        pictures,
        presence: Presence::new(options.base.name.clone()),
        store: None,
        options,
    };
    tokio::select! {
        () = stop => {}
        () = base.run() => {}
        never = agent.follow_for_ever() => match never {},
    }
    if let (Some(store), Some(lease)) = (&agent.store, agent.presence.lease()) {
        // If etcd does not answer now the lease runs out by itself.
        let _ = timeout(FAREWELL, store.revoke(lease)).await;
    }
    Ok(())
}

impl Agent {
    async fn follow_for_ever(&mut self) -> Infallible {
        let mut wait = BACKOFF.0;
        loop {
            let Err(error) = self.follow(&mut wait).await;
            self.presence.forget();
            match error {
                // There is nothing wrong with etcd: begin anew at once.
                StoreError::LeaseGone | StoreError::Compacted(_) => {
                    tracing::info!(%error, "reading the fleet again");
                }
                error => {
                    if !self.away {
                        tracing::warn!(%error, "etcd is away; the base's files stay as they are");
                    }
                    self.away = true;
                    self.first = self.first.wrapping_add(1);
                }
            }
            // So that a whole fleet does not come back in the same moment.
            let part = 50 + u32::try_from(self.jitter.next_u64() % 51).unwrap_or(0);
            sleep(wait * part / 100).await;
            wait = (wait * 2).min(BACKOFF.1);
        }
    }

    /// Reads the fleet and follows it, until something is wrong with etcd.
    async fn follow(&mut self, wait: &mut Duration) -> Result<Infallible, StoreError> {
        let AgentOptions { access, fleet, .. } = &self.options;
        let store = Store::connect(access, fleet, self.first).await?;
        let Snapshot { records, revision, problems } = store.read().await?;
        let mut changes = store.watch(revision.saturating_add(1)).await?;
        if std::mem::take(&mut self.away) {
            tracing::info!("etcd is back");
        }
        self.records = records;
        self.tell_problems(problems);
        self.write_files().await;
        self.store = Some(store.clone());
        self.presence.begin(&self.records.held);
        let mut gathered: Option<Instant> = None;
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let due = async {
                match gathered {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                changed = changes.next() => {
                    if self.take_in(changed?) {
                        gathered.get_or_insert_with(|| Instant::now() + GATHER);
                    }
                }
                () = due => {
                    gathered = None;
                    self.write_files().await;
                    self.tell_presence(&store).await?;
                }
                _ = ticks.tick() => {
                    if self.unwritten.is_some() {
                        self.write_files().await;
                    }
                    self.tell_presence(&store).await?;
                    self.remove_old_tickets();
                    *wait = BACKOFF.0;
                }
            }
        }
    }

    /// Takes changes in; says whether there were any.
    fn take_in(&mut self, changes: Vec<Change>) -> bool {
        let any = !changes.is_empty();
        for Change { path, value } in changes {
            match self.records.apply(&path, value.as_deref()) {
                Ok(()) => {
                    self.problems.remove(&path);
                }
                Err(why) => self.tell_problem(path, printable(&why.to_string()).into_owned()),
            }
        }
        any
    }

    /// Says what is wrong with records, and forgets what was wrong with others.
    fn tell_problems(&mut self, problems: Vec<(String, String)>) {
        self.problems.retain(|path, _| problems.iter().any(|(other, _)| other == path));
        for (path, why) in problems {
            self.tell_problem(path, why);
        }
    }

    fn tell_problem(&mut self, path: String, why: String) {
        if self.problems.get(&path) != Some(&why) {
            tracing::warn!(record = path, %why, "a record in etcd is left out");
            self.problems.insert(path, why);
        }
    }

    /// Whether the base is of the fleet, which is said when it is otherwise than before.
    fn membership(&mut self) -> Membership {
        let OwnBase { name, key } = &self.options.base;
        let there = self.records.bases.get(name).is_some_and(|base| base.key == *key);
        let now = if self.records.revoked.contains_key(key) {
            Membership::Revoked
        } else if self.records.settings.is_some() && there {
            Membership::Member
        } else {
            Membership::Stranger
        };
        if std::mem::replace(&mut self.membership, now) != now {
            let fleet = &self.options.fleet;
            match now {
                Membership::Revoked => {
                    tracing::error!(base = %name, %fleet, "the base's key is revoked: it serves nobody now");
                }
                Membership::Stranger => tracing::error!(
                    base = %name, %fleet,
                    "etcd does not have this base; its files stay as they are"
                ),
                Membership::Member => tracing::info!(base = %name, %fleet, "of the fleet"),
                Membership::Unknown => {}
            }
        }
        now
    }

    /// Writes the base's files, where they differ, and has it read them.
    async fn write_files(&mut self) {
        if self.membership() == Membership::Stranger {
            return;
        }
        let AgentOptions { base, folder, .. } = &self.options;
        let made = members::files(&self.records, base, folder);
        let folder = folder.clone();
        self.tickets = made.tickets.iter().map(|(name, _)| name.clone()).collect();
        let problems = made.problems.clone();
        // The disk may take its time.
        let written =
            tokio::task::spawn_blocking(move || files::write_members(&folder, &made)).await;
        let written =
            written.map_err(|e| e.to_string()).and_then(|done| done.map_err(|e| e.to_string()));
        match written {
            Ok(true) => {
                self.versions.send_modify(|version| *version += 1);
                let (bases, mobiles) = (self.records.bases.len(), self.records.mobiles.len());
                tracing::info!(bases, mobiles, "the base's files have changed");
            }
            Ok(false) => {}
            Err(error) => {
                if self.unwritten.as_ref() != Some(&error) {
                    tracing::error!(%error, "the base's files stay as they are");
                }
                self.unwritten = Some(error);
                return;
            }
        }
        self.unwritten = None;
        for (path, why) in problems {
            self.tell_problem(path, why);
        }
    }

    /// Tells etcd how the base is, where that is not what etcd has.
    async fn tell_presence(&mut self, store: &Store) -> Result<(), StoreError> {
        let member = self.membership == Membership::Member;
        let draining = self.records.draining.contains_key(&self.options.base.name);
        self.marks.send_if_modified(|mark| {
            let now = member.then_some(draining);
            // What is not known any more stays as it was.
            now.is_some() && std::mem::replace(mark, now) != now
        });
        let picture = self.pictures.borrow().clone();
        let bases: BTreeSet<_> = self.records.bases.values().map(|base| base.key).collect();
        let wanted = member.then(|| picture.of_mobiles(&bases, draining));
        self.presence.tell(store, wanted).await
    }

    /// Removes keys of tickets that the base does not know any more.
    fn remove_old_tickets(&mut self) {
        let version = *self.versions.borrow();
        let done = self.pictures.borrow().reloaded == Some(version);
        if !done || self.unwritten.is_some() || self.cleaned == Some(version) {
            return;
        }
        self.cleaned = Some(version);
        if let Err(error) = files::remove_old_tickets(&self.options.folder, &self.tickets) {
            tracing::debug!(%error, "old keys of tickets stay");
        }
    }
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("base", &self.options.base).finish_non_exhaustive()
    }
}
