//! What is known of the link on one interface, from whoever knows it: the kernel (carrier,
//! addresses), its wireless half (levels, roaming), scripts and operators. All of it comes out as
//! [`LinkEvent`]s (LNK-14).

mod config;
mod interface;
mod table;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use lasthop_kernel::netlink::{Monitor, NetworkEvent};
use lasthop_session::{SignalConfig, SignalError};
use lasthop_units::{LinkEvent, Time};

pub use self::config::{SignalFile, SignalSettings};
pub use self::interface::{Forecast, SignalEvent};
use crate::socket::Link;

/// Events that wait to be fetched; of more only the latest matter.
const EVENTS_MAX: usize = 16;

/// Watches one interface.
///
/// [`fds`](Self::fds) become readable when the kernel has something to tell; then
/// [`handle_ready`](Self::handle_ready), and [`poll_event`](Self::poll_event) until there is
/// nothing more, as after each other call.
///
/// - The interface loses its carrier, is switched off or vanishes, or an operator says so:
///   [`LinkEvent::Down`]. It works again, or an operator says so, or it roamed to another access
///   point: [`LinkEvent::Up`].
/// - The signal fades, or an operator foresees a silence: [`LinkEvent::Imminent`]; it recovers:
///   [`LinkEvent::Up`].
/// - Packets find this host again: [`LinkEvent::Complete`]. Sources are silent about how one knows
///   (LLT-5). If the interface has an address, or never had one because it is a port of a bridge,
///   that is when the link is up; else when it has an address again. A registration elsewhere, such
///   as Mobile IP's, is reported by `lasthop link complete`.
pub struct Signals {
    link: LinkState,
    /// `None` where the kernel tells nothing.
    monitor: Option<Monitor>,
    forecast: Option<Forecast>,
}

impl Signals {
    /// Watches an interface of the calling thread's network namespace; if it carries nothing, that
    /// is the first event. `predictor`: how its signal is judged; `None`: not at all.
    ///
    /// # Errors
    ///
    /// A setting of the predictor that cannot be meant. A kernel that tells nothing is none:
    /// operators and scripts remain.
    pub fn open(interface: &str, predictor: Option<SignalConfig>) -> Result<Self, SignalError> {
        let monitor = Monitor::open()
            .inspect_err(|error| tracing::warn!(%error, interface, "cannot watch the interface"))
            .ok();
        let forecast = predictor
            .map(|config| Forecast::open(Some(interface.to_owned()), config))
            .transpose()?;
        let mut signals = Self { link: LinkState::new(interface), monitor, forecast };
        if signals.works() == Some(false) {
            signals.link.set_down();
        }
        let has_address = signals.has_address();
        signals.link.set_address(has_address);
        signals.update_interface(Time::ZERO);
        Ok(signals)
    }

    /// What is to be watched for reading.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let monitor = self.monitor.as_ref().map(Monitor::as_fd);
        monitor.into_iter().chain(self.forecast.as_ref().and_then(Forecast::fd))
    }

    /// Reads what the kernel has to tell. `true` if there may be more: then it wants to be called
    /// again without waiting.
    pub fn handle_ready(&mut self, now: Time) -> bool {
        let mut more = false;
        if let Some(monitor) = &mut self.monitor {
            more |= monitor.handle_ready();
        }
        let has_address = self.has_address();
        self.link.set_address(has_address);
        while let Some(event) = self.monitor.as_mut().and_then(Monitor::poll_event) {
            self.link.note(&event);
        }
        self.link.check_complete();
        self.update_interface(now);
        if let Some(forecast) = &mut self.forecast {
            more |= forecast.handle_ready(now);
        }
        self.collect();
        more
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    pub fn next_timeout(&self) -> Option<Time> {
        self.forecast.as_ref().and_then(Forecast::next_timeout)
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        if let Some(forecast) = &mut self.forecast {
            forecast.handle_timeout(now);
        }
        self.collect();
    }

    /// What an operator or a script says of the link.
    ///
    /// # Errors
    ///
    /// It is about another interface, or nobody judges levels here; in words.
    pub fn handle_link(&mut self, now: Time, link: &Link) -> Result<(), String> {
        if let Link::Down { interface: Some(name) }
        | Link::Up { interface: Some(name) }
        | Link::Quality { interface: Some(name), .. } = link
            && *name != self.link.interface
        {
            return Err(format!("the link's interface is {}, not {name}", self.link.interface));
        }
        match link {
            Link::Imminent { in_ms, .. } => {
                self.link.push(LinkEvent::Imminent { lead: Duration::from_millis(*in_ms) });
            }
            Link::Down { .. } => {
                self.link.held = true;
                self.link.set_down();
                if let Some(forecast) = &mut self.forecast {
                    forecast.handle_down();
                }
            }
            Link::Up { .. } => {
                // A radio may know before the kernel does.
                self.link.held = false;
                self.link.set_up();
            }
            Link::Complete {} => self.link.complete(),
            Link::Base { .. } => return Err("it is a mobile whose links lead to bases".to_owned()),
            Link::Quality { dbm, .. } => {
                let Some(forecast) = &mut self.forecast else {
                    return Err("nobody judges the signal's level here: the configuration has no \
                                [signal]"
                        .to_owned());
                };
                forecast.handle_level(now, *dbm)?;
                self.collect();
            }
        }
        Ok(())
    }

    /// The next event for machines.
    pub fn poll_event(&mut self) -> Option<LinkEvent> {
        self.link.events.pop_front()
    }

    /// Whether the interface carries packets, as far as is known; `None` if nobody knows.
    pub fn carries(&self) -> Option<bool> {
        if self.link.held { Some(false) } else { self.works() }
    }

    fn works(&self) -> Option<bool> {
        let mut interfaces = self.monitor.as_ref()?.interfaces();
        Some(interfaces.any(|known| known.name == self.link.interface && known.works()))
    }

    fn index(&self) -> Option<u32> {
        let mut interfaces = self.monitor.as_ref()?.interfaces();
        let ours = interfaces.find(|known| known.name == self.link.interface && known.works())?;
        Some(ours.index)
    }

    fn has_address(&self) -> bool {
        let Some(monitor) = &self.monitor else { return false };
        self.index().is_some_and(|index| monitor.addresses(index).any(|ip| reaches_far(&ip)))
    }

    fn update_interface(&mut self, now: Time) {
        let index = self.index();
        if let Some(forecast) = &mut self.forecast {
            forecast.set_index(now, index);
        }
    }

    /// Takes over what the forecast says.
    fn collect(&mut self) {
        let Some(forecast) = &mut self.forecast else { return };
        while let Some(event) = forecast.poll_event() {
            self.link.handle_signal_event(event);
        }
    }
}

/// Whether packets from beyond the link can be addressed to it.
fn reaches_far(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_unicast_link_local(),
    }
}

/// The state of the link, and events that are to be reported.
struct LinkState {
    interface: String,
    /// An operator set it down; then no other source counts.
    held: bool,
    down: bool,
    /// The interface has an address that packets from afar can be sent to.
    has_address: bool,
    /// It has had one.
    had_address: bool,
    /// The link is up, and the mobile may not be found yet.
    attached: bool,
    events: VecDeque<LinkEvent>,
}

impl LinkState {
    fn new(interface: &str) -> Self {
        Self {
            interface: interface.to_owned(),
            held: false,
            down: false,
            has_address: false,
            had_address: false,
            attached: false,
            events: VecDeque::new(),
        }
    }

    fn push(&mut self, event: LinkEvent) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn set_address(&mut self, has: bool) {
        self.has_address = has;
        self.had_address |= has;
    }

    fn set_down(&mut self) {
        (self.down, self.attached) = (true, false);
        self.push(LinkEvent::Down);
    }

    fn set_up(&mut self) {
        (self.down, self.attached) = (false, true);
        self.push(LinkEvent::Up);
        self.check_complete();
    }

    fn complete(&mut self) {
        self.attached = false;
        self.push(LinkEvent::Complete);
    }

    /// The link is up: are we found?
    fn check_complete(&mut self) {
        if self.attached && (self.has_address || !self.had_address) {
            self.complete();
        }
    }

    fn note(&mut self, event: &NetworkEvent) {
        if self.held {
            return;
        }
        match event {
            NetworkEvent::Down { interface } if *interface == self.interface => self.set_down(),
            NetworkEvent::Up { interface } if *interface == self.interface => self.set_up(),
            _ => {}
        }
    }

    fn handle_signal_event(&mut self, event: SignalEvent) {
        // Of a link that is down nothing can be foretold.
        if self.down {
            return;
        }
        match event {
            SignalEvent::Imminent { lead } => self.push(LinkEvent::Imminent { lead }),
            SignalEvent::Recovered => self.push(LinkEvent::Up),
            SignalEvent::Roamed => self.set_up(),
        }
    }
}
