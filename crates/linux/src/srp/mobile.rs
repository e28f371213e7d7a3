//! The mobile's end of SRP: one socket, whatever network it is on.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use lasthop_hop::seal::PublicKey;
use lasthop_hop::srp::CloseReason;
use lasthop_hop::{AssociationEvent, Mobile};
use lasthop_units::Time;

use super::{report, why};
use crate::control::AssociationReport;
use crate::hop::{Hop, HopEvent, Turn};
use crate::mobile::MobileHop;
use crate::reactor::Readiness;
use crate::slab::{Key, Slab};
use crate::udp::{Route, Udp};

/// A base that does not answer for so long may have moved: its name is looked up again.
const PATIENCE: Duration = Duration::from_secs(10);

/// The mobile's end.
pub(crate) struct SrpMobile {
    machine: Mobile<Route>,
    base_key: Option<PublicKey>,
    base: Option<SocketAddr>,
    udp: Udp,
    sockets: Slab<usize>,
    events: VecDeque<HopEvent<()>>,
    active: bool,
    since: Time,
    complain_at: Time,
}

impl SrpMobile {
    /// Runs `machine` over `udp`. The machine's base is nowhere until [`MobileHop::set_base`] tells.
    pub(crate) fn new(machine: Mobile<Route>, udp: Udp, base_key: Option<PublicKey>) -> Self {
        Self {
            machine,
            base_key,
            base: None,
            udp,
            sockets: Slab::new(),
            events: VecDeque::new(),
            active: false,
            since: Time::ZERO,
            complain_at: Time::ZERO + PATIENCE,
        }
    }

    fn is_silent(&self) -> bool {
        !self.machine.is_up() || self.machine.stats().silent
    }
}

impl Hop for SrpMobile {
    type Id = ();
    type Streams = Mobile<Route>;

    fn handle_ready(&mut self, _turn: &mut Turn<'_>, key: Key, readiness: Readiness) {
        if let Some(n) = self.sockets.get(key) {
            self.udp.ready(*n, readiness);
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        let machine = self.machine.next_timeout();
        [machine, Some(self.complain_at)].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        self.machine.handle_timeout(turn.now);
        self.active = true;
        if self.complain_at <= turn.now {
            self.complain_at = turn.now + PATIENCE;
            if self.is_silent() {
                let why = "the base does not answer".to_owned();
                self.events.push_back(HopEvent::Unreachable(why));
            }
        }
    }

    fn pump(&mut self, turn: &mut Turn<'_>) {
        let (machine, now) = (&mut self.machine, turn.now);
        let mut some = false;
        self.udp.receive(&turn.clock, |now, from, datagram| {
            some = true;
            machine.handle_datagram(now, from, datagram);
        });
        self.active |= some;
        while let Some(event) = self.machine.poll_association_event() {
            self.events.push_back(match event {
                AssociationEvent::Up => {
                    self.since = now;
                    HopEvent::Up(())
                }
                AssociationEvent::Moved => {
                    HopEvent::Moved((), self.base.unwrap_or(Route::NOWHERE.peer))
                }
                AssociationEvent::Lost(reason) => HopEvent::Lost((), why(reason)),
            });
        }
    }

    fn flush(&mut self, turn: &mut Turn<'_>) {
        let (machine, now) = (&mut self.machine, turn.now);
        self.udp.send(|out| machine.poll_transmit(now, out).map(|t| (t.to, t.len)));
    }

    fn poll_event(&mut self) -> Option<HopEvent<()>> {
        self.events.pop_front()
    }

    fn poll_active(&mut self) -> Option<()> {
        std::mem::take(&mut self.active).then_some(())
    }

    fn is_active(&self) -> bool {
        self.udp.readable()
    }

    fn streams(&mut self, (): ()) -> Option<&mut Mobile<Route>> {
        Some(&mut self.machine)
    }

    fn forget(&mut self, _turn: &mut Turn<'_>, (): ()) {}

    fn close(&mut self, turn: &mut Turn<'_>) {
        self.machine.close(CloseReason::Shutdown);
        self.flush(turn);
    }

    fn reports(&self, now: Time) -> Vec<AssociationReport> {
        let stats = self.machine.stats();
        let (state, age) = match (self.machine.is_up(), stats.silent) {
            (true, false) => ("up", now - self.since),
            (true, true) => ("silent", now - self.since),
            (false, _) => ("connecting", Duration::ZERO),
        };
        vec![report(0, self.base_key, self.base, state, age, &stats)]
    }

    fn garbage(&self) -> u64 {
        self.machine.mobile_stats().refused
    }
}

impl MobileHop for SrpMobile {
    const NAME: &'static str = "srp";

    fn start(&mut self, turn: &mut Turn<'_>) -> io::Result<()> {
        let sockets = &mut self.sockets;
        self.udp.watch(turn, |n| sockets.insert(n))
    }

    fn is_up(&self) -> bool {
        self.machine.is_up()
    }

    fn set_base(&mut self, turn: &mut Turn<'_>, addr: SocketAddr) {
        if self.base.replace(addr) != Some(addr) {
            let route = self.udp.route(addr);
            self.machine.set_base_address(turn.now, route);
        }
    }
}
