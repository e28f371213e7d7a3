//! One interface's signal, and what it foretells.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use lasthop_kernel::netlink::{Wireless, WirelessMonitor};
use lasthop_session::{Dbm, SignalConfig, SignalError, SignalPredictor};
use lasthop_units::{LinkEvent, Time};

use super::table::Table;

/// How often the level is looked at: about as often as an access point sends its beacon.
const EVERY: Duration = Duration::from_millis(100);
/// An interface that has no level is looked at again after this.
const PAUSE: Duration = Duration::from_secs(5);

/// Who tells of levels.
enum Source {
    Nl80211(WirelessMonitor),
    Table(Table),
    /// Nobody but scripts.
    Nobody,
}

/// Something of the signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignalEvent {
    /// The link is about to be lost.
    Imminent {
        /// How long from now.
        lead: Duration,
    },
    /// It will not be lost after all.
    Recovered,
    /// The interface is with another access point.
    Roamed,
}

/// Watches the signal of one interface and foretells its loss.
pub struct Forecast {
    /// `None`: only scripts tell of the level.
    interface: Option<String>,
    source: Source,
    predictor: SignalPredictor,
    /// The interface's number while it works.
    index: Option<u32>,
    /// When the level is looked at next.
    look_at: Option<Time>,
    roamed: bool,
}

impl Forecast {
    /// Watches in the calling thread's network namespace.
    pub fn open(interface: Option<String>, config: SignalConfig) -> Result<Self, SignalError> {
        let predictor = SignalPredictor::new(config)?;
        let source = match interface {
            Some(_) => source(),
            None => Source::Nobody,
        };
        Ok(Self { interface, source, predictor, index: None, look_at: None, roamed: false })
    }

    /// Which interface's signal it is.
    pub fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }

    /// What is to be watched for reading.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.source {
            Source::Nl80211(monitor) => Some(monitor.as_fd()),
            Source::Table(_) | Source::Nobody => None,
        }
    }

    /// The interface works and has this number; `None`: it does not, or is not there.
    pub fn set_index(&mut self, now: Time, index: Option<u32>) {
        if self.index == index {
            return;
        }
        if self.index.is_some() {
            self.predictor.handle_detached();
        }
        self.index = index;
        let has_source = !matches!(self.source, Source::Nobody);
        self.look_at = index.filter(|_| has_source).map(|_| now);
    }

    /// The link is lost, whoever knows it.
    pub fn handle_down(&mut self) {
        self.predictor.handle_detached();
    }

    /// A script says how strong the signal is.
    pub fn handle_level(&mut self, now: Time, dbm: i16) -> Result<(), String> {
        let Some(level) = Dbm::new(dbm.into()) else {
            let (min, max) = (Dbm::MIN.get(), Dbm::MAX.get());
            return Err(format!("{dbm} dBm is no signal's level: they are from {min} to {max}"));
        };
        self.predictor.handle_sample(now, level);
        Ok(())
    }

    /// Reads what the kernel has to tell. `true` if there may be more: then it wants to be called
    /// again without waiting.
    pub fn handle_ready(&mut self, now: Time) -> bool {
        let Source::Nl80211(monitor) = &mut self.source else { return false };
        let more = monitor.handle_ready();
        while let Some(event) = monitor.poll_event() {
            if Some(event.interface) != self.index {
                continue;
            }
            match event.what {
                Wireless::Signal(dbm) => {
                    if let Some(level) = Dbm::new(dbm.into()) {
                        self.predictor.handle_sample(now, level);
                    }
                }
                Wireless::Roamed => {
                    self.predictor.handle_attached();
                    // That it recovered follows.
                    let _ = self.predictor.poll_event();
                    self.roamed = true;
                }
                Wireless::Connected => self.predictor.handle_attached(),
                Wireless::Disconnected => self.predictor.handle_detached(),
                Wireless::Deaf => self.look_at = Some(now + PAUSE),
            }
        }
        more
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    pub fn next_timeout(&self) -> Option<Time> {
        [self.look_at, self.predictor.next_timeout()].into_iter().flatten().min()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.look_at.is_some_and(|at| at <= now) {
            self.request_signal(now);
        }
        if self.predictor.next_timeout().is_some_and(|at| at <= now) {
            self.predictor.handle_timeout(now);
        }
    }

    fn request_signal(&mut self, now: Time) {
        self.look_at = Some(now + EVERY);
        let (Some(index), Some(interface)) = (self.index, &self.interface) else { return };
        match &mut self.source {
            Source::Nl80211(monitor) => {
                if let Err(error) = monitor.query(index) {
                    tracing::debug!(%error, interface, "cannot read the signal level");
                    self.look_at = Some(now + PAUSE);
                }
            }
            Source::Table(table) => match table.level(interface) {
                Ok(Some(dbm)) => {
                    if let Some(level) = Dbm::new(dbm.into()) {
                        self.predictor.handle_sample(now, level);
                    }
                }
                Ok(None) | Err(_) => self.look_at = Some(now + PAUSE),
            },
            Source::Nobody => self.look_at = None,
        }
    }

    /// What there is to say.
    pub fn poll_event(&mut self) -> Option<SignalEvent> {
        if std::mem::take(&mut self.roamed) {
            return Some(SignalEvent::Roamed);
        }
        match self.predictor.poll_event()? {
            LinkEvent::Imminent { lead } => {
                let (level, slope) = (self.predictor.level_dbm(), self.predictor.slope_db_per_s());
                let interface = self.interface();
                tracing::info!(interface, ?lead, level, slope, "the signal fades");
                Some(SignalEvent::Imminent { lead })
            }
            _ => {
                tracing::info!(interface = self.interface(), "the signal has recovered");
                Some(SignalEvent::Recovered)
            }
        }
    }
}

/// The best source that the kernel has.
fn source() -> Source {
    match WirelessMonitor::open() {
        Ok(Some(monitor)) => return Source::Nl80211(monitor),
        Ok(None) => {}
        Err(error) => tracing::debug!(%error, "nl80211 is not available"),
    }
    match Table::open() {
        Some(table) => Source::Table(table),
        None => {
            tracing::info!(
                "this kernel tells nothing of wireless signals; levels come from `lasthop link \
                 quality` only"
            );
            Source::Nobody
        }
    }
}
