//! What this base tells its mobiles of itself and of the fleet: which bases there are, how full it is, and
//! whether it is being emptied.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use lasthop_units::Time;
use lasthop_wire::mhp::HostName;
use lasthop_wire::mhp::fleet::{FleetBase, FleetMessage, FleetNews};

use super::BaseConfig;
use crate::backhaul::{BaseAssociationId, Peer};
use crate::config::HopAddress;
use crate::driver::Core;
use crate::hop::Hop;

/// How often it is looked whether the load has changed.
const PACE: Duration = Duration::from_secs(2);
/// A load is told again when it has changed by so much.
const STEP: u8 = 16;
/// When this base is to be emptied, so many of its mobiles leave in a second,
const LEAVE_RATE: u64 = 100;
/// but the last of them after no more than this.
const SPREAD_MAX: Duration = Duration::from_secs(5);

/// Who has asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Subscriber {
    /// It is here, and does not only look.
    pub(super) here: bool,
    /// It knows no other base.
    pub(super) stays: bool,
}

/// What is told, and to whom.
pub(super) struct News {
    /// On which mobiles are served here.
    port: Option<u16>,
    bases: Vec<FleetBase>,
    draining: bool,
    load: u8,
    subscribers: BTreeMap<BaseAssociationId, Subscriber>,
    /// When the load is looked at next.
    next: Time,
}

impl News {
    /// Of a base with this configuration.
    pub(super) fn new(config: &BaseConfig) -> Self {
        let port = port(config);
        Self {
            port,
            bases: told_of(port, peers(config)),
            draining: false,
            load: 0,
            subscribers: BTreeMap::new(),
            next: Time::ZERO,
        }
    }

    /// These are the other bases from here on: the mobiles that are here learn of them at once.
    pub(super) fn set_peers<H: Hop<Id = BaseAssociationId>, W>(
        &mut self,
        core: &mut Core<H, W>,
        peers: &[Peer],
    ) {
        let bases = told_of(self.port, peers);
        if std::mem::replace(&mut self.bases, bases) != self.bases {
            let told = self.told(Some(self.bases.clone()));
            let here = self.subscribers.iter().filter(|(_, subscriber)| subscriber.here);
            here.for_each(|(id, _)| send(core, *id, &told));
        }
    }

    /// Whether this base is being emptied.
    pub(super) fn is_draining(&self) -> bool {
        self.draining
    }

    /// What a mobile has asked, if it has.
    pub(super) fn subscriber(&self, id: BaseAssociationId) -> Option<Subscriber> {
        self.subscribers.get(&id).copied()
    }

    /// Takes a mobile's question, and answers it. False if the message is none.
    pub(super) fn handle<H: Hop<Id = BaseAssociationId>, W>(
        &mut self,
        core: &mut Core<H, W>,
        id: BaseAssociationId,
        message: &[u8],
    ) -> bool {
        let Some(FleetMessage::Ask { here: asks_here, stays }) = FleetMessage::decode(message)
        else {
            return false;
        };
        if matches!(id, BaseAssociationId::Mobile(_)) {
            // What it had here is waited for until it is known to be elsewhere, whatever it says.
            let here = asks_here || self.subscribers.get(&id).is_some_and(|before| before.here);
            self.subscribers.insert(id, Subscriber { here, stays });
            // Who only looks does not learn here.
            let told = self.told(asks_here.then(|| self.bases.clone()));
            send(core, id, &told);
        }
        true
    }

    /// The association is over.
    pub(super) fn remove(&mut self, id: BaseAssociationId) {
        self.subscribers.remove(&id);
    }

    /// This base is to be emptied, or no more: its mobiles are told so at once.
    pub(super) fn set_draining<H: Hop<Id = BaseAssociationId>, W>(
        &mut self,
        core: &mut Core<H, W>,
        draining: bool,
    ) {
        if std::mem::replace(&mut self.draining, draining) != draining {
            self.tell_all(core);
        }
    }

    /// When [`set_load`](Self::set_load) is to be called.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        (!self.subscribers.is_empty()).then_some(self.next)
    }

    /// Tells mobiles how full this base is, where that has changed.
    pub(super) fn set_load<H: Hop<Id = BaseAssociationId>, W>(
        &mut self,
        core: &mut Core<H, W>,
        load: u8,
    ) {
        self.next = core.now + PACE;
        if self.load.abs_diff(load) >= STEP {
            self.load = load;
            self.tell_all(core);
        }
    }

    fn tell_all<H: Hop<Id = BaseAssociationId>, W>(&self, core: &mut Core<H, W>) {
        let told = self.told(None);
        self.subscribers.keys().for_each(|id| send(core, *id, &told));
    }

    /// What is told of this base, and of the others if they are to be named.
    fn told(&self, bases: Option<Vec<FleetBase>>) -> Vec<u8> {
        let Self { draining, load, .. } = *self;
        let is_here = |subscriber: &&Subscriber| draining && subscriber.here;
        let here = self.subscribers.values().filter(is_here).count() as u64;
        let spread = Duration::from_millis(here.saturating_sub(1) * 1000 / LEAVE_RATE);
        let spread = u16::try_from(spread.min(SPREAD_MAX).as_millis()).unwrap_or(u16::MAX);
        let mut told = Vec::new();
        FleetMessage::Told(FleetNews { draining, load, spread, bases }).encode(&mut told);
        told
    }
}

fn send<H: Hop<Id = BaseAssociationId>, W>(
    core: &mut Core<H, W>,
    id: BaseAssociationId,
    told: &[u8],
) {
    let now = core.now;
    if let Some((session, mut streams)) = core.session(id) {
        // Who has gone asks again when it comes back.
        let _ = session.send_message(now, &mut streams, told);
    }
}

/// What is told of other bases.
fn told_of(port: Option<u16>, peers: &[Peer]) -> Vec<FleetBase> {
    let bases = serving(port, peers).map(|(peer, at)| {
        let name = HostName::new(&peer.name).ok();
        let name = name.or_else(|| HostName::new(&peer.key.to_string()).ok())?;
        Some(FleetBase { key: *peer.key.as_bytes(), name, hop: vec![at] })
    });
    bases.flatten().collect()
}

/// The other bases of a configuration.
pub(super) fn peers(config: &BaseConfig) -> &[Peer] {
    config.handoff.as_ref().map_or(&[], |handoff| &handoff.peers)
}

/// The port on which a base serves mobiles; none where that is by frames and not by UDP or TCP.
pub(super) fn port(config: &BaseConfig) -> Option<u16> {
    match &config.place {
        HopAddress::Internet(own) => own.first().map(SocketAddr::port),
        HopAddress::Ethernet { .. } => None,
    }
}

/// Other bases, and where each serves mobiles, if this one does so on a port.
pub(super) fn serving(
    port: Option<u16>,
    peers: &[Peer],
) -> impl Iterator<Item = (&Peer, SocketAddr)> {
    peers.iter().filter_map(move |peer| {
        let like_this = SocketAddr::new(peer.address.ip(), port?);
        Some((peer, peer.hop.unwrap_or(like_this)))
    })
}
