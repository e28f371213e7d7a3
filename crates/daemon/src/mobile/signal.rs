//! Forecasts from the signal's strength, and what follows from them.

use std::io;
use std::time::Duration;

use lasthop_control::link_signals::{Forecast, SignalEvent, SignalSettings};
use lasthop_kernel::reactor::{Interest, Reactor};
use lasthop_kernel::turn::Source;
use lasthop_units::{LinkEvent, Time};

use super::{Core, MobileRole};

/// The signal, if the configuration has it watched.
pub(super) struct Signal {
    settings: Option<SignalSettings>,
    forecast: Option<Forecast>,
    /// The kernel's socket may have more to read.
    ready: bool,
}

impl Signal {
    /// Nothing is watched yet.
    pub(super) fn new(settings: Option<SignalSettings>) -> Self {
        Self { settings, forecast: None, ready: false }
    }

    /// Opens the forecast; the reactor reports the kernel's socket as `source`.
    pub(super) fn watch(
        &mut self,
        reactor: &mut Reactor<Source>,
        source: Source,
    ) -> io::Result<()> {
        if let Some(SignalSettings { interface, predictor }) = self.settings.take() {
            let forecast = Forecast::open(interface, predictor).map_err(io::Error::other)?;
            self.forecast = Some(forecast);
        }
        if let Some(fd) = self.forecast.as_ref().and_then(Forecast::fd) {
            reactor.add(fd, Interest::Read, source)?;
        }
        Ok(())
    }

    /// The kernel's socket is readable.
    pub(super) fn handle_ready(&mut self) {
        self.ready = true;
    }

    /// When [`poll`](Self::poll) has something to do.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        if self.ready {
            return Some(Time::ZERO);
        }
        self.forecast.as_ref().and_then(Forecast::next_timeout)
    }

    /// Reads and handles what is due; the next event.
    fn poll(&mut self, now: Time) -> Option<SignalEvent> {
        let forecast = self.forecast.as_mut()?;
        if self.ready {
            self.ready = forecast.handle_ready(now);
        }
        if forecast.next_timeout().is_some_and(|at| at <= now) {
            forecast.handle_timeout(now);
        }
        forecast.poll_event()
    }

    fn interface(&self) -> Option<&str> {
        self.forecast.as_ref().and_then(Forecast::interface)
    }
}

impl MobileRole {
    /// Finds the interface whose signal is watched among those that work.
    pub(super) fn update_signal_interface(&mut self, core: &Core) {
        let index = self.signal.interface().and_then(|name| self.network.index(name));
        if let Some(forecast) = &mut self.signal.forecast {
            forecast.set_index(core.now, index);
        }
    }

    /// Handles the forecast's events. True if there was one.
    pub(super) fn follow_signal(&mut self, core: &mut Core) -> bool {
        let mut some = false;
        while let Some(event) = self.signal.poll(core.now) {
            some = true;
            let fading = self.signal.interface().map(str::to_owned);
            let ours = self.stations[self.here].config.interface.as_deref();
            if fading.is_some() && ours.is_some() && ours != fading.as_deref() {
                // The connections go through another interface.
                continue;
            }
            match event {
                SignalEvent::Imminent { lead } => self.handle_imminent_loss(core, lead),
                SignalEvent::Recovered => self.notify_hop(core, LinkEvent::Up),
                SignalEvent::Roamed => {
                    self.notify_hop(core, LinkEvent::Up);
                    let part = self.stations[self.here].part;
                    let (hop, mut turn) = core.turn();
                    if let Some(part) = part {
                        hop.with(&mut turn, part, |hop, turn| hop.roam(turn, 0));
                    }
                }
            }
        }
        some
    }

    /// The link will be lost in about `lead`, and the next base is not named: a likely one is prepared,
    /// or else the hop is notified.
    pub(super) fn handle_imminent_loss(&mut self, core: &mut Core, lead: Duration) {
        match self.likely_next(core.now) {
            Some(i) => {
                let (base, here) = (self.stations[i].name(), self.stations[self.here].name());
                tracing::info!(base, here, ?lead, "a move is foreseen");
                self.prepare(core, i, lead);
            }
            None => self.notify_hop(core, LinkEvent::Imminent { lead }),
        }
    }

    /// The base where the mobile will go: the first that is near on another interface that carries
    /// packets, else the only other one.
    fn likely_next(&self, now: Time) -> Option<usize> {
        self.handoffs.as_ref()?;
        let others =
            || (0..self.stations.len()).filter(|i| *i != self.here && self.is_usable(now, *i));
        let near_on = |i: usize| self.stations[i].config.interface.as_deref();
        let elsewhere = others().find(|i| {
            near_on(*i) != near_on(self.here)
                && near_on(*i).is_some_and(|name| self.network.carries(name) == Some(true))
        });
        elsewhere.or_else(|| others().next().filter(|_| others().count() == 1))
    }

    /// Notifies the hop to the base where the mobile is.
    pub(super) fn notify_hop(&self, core: &mut Core, event: LinkEvent) {
        let Some(part) = self.stations[self.here].part else { return };
        let (hop, mut turn) = core.turn();
        hop.with(&mut turn, part, |hop, turn| hop.handle_link_event(turn, 0, event));
    }

    /// Takes a signal level from the control socket.
    pub(super) fn handle_quality(
        &mut self,
        core: &mut Core,
        interface: Option<&str>,
        dbm: i16,
    ) -> Result<(), String> {
        let Some(forecast) = &mut self.signal.forecast else {
            return Err("this mobile does not watch its signal: its configuration has no [signal]"
                .to_owned());
        };
        if let (Some(said), Some(watched)) = (interface, forecast.interface())
            && said != watched
        {
            return Err(format!("the signal that is watched is {watched}'s, not {said}'s"));
        }
        forecast.handle_level(core.now, dbm)?;
        self.follow_signal(core);
        Ok(())
    }
}
