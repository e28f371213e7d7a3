//! Scheduled events: what happens to a network at given times, whatever its nodes do.

use core::net::Ipv4Addr;
use std::collections::BTreeMap;

use lasthop_radio::{LinkConfig, Pacing};
use lasthop_units::{Duration, LinkEvent, Time};

use super::{LinkId, NodeId};

/// Something that happens to the network.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// A link carries nothing until it is up again, and loses what it holds (LNK-12).
    LinkDown(LinkId),
    /// A link that was down carries again.
    LinkUp(LinkId),
    /// A link is silent for a while and loses what it holds (LNK-7).
    Pause {
        /// Which.
        link: LinkId,
        /// For how long.
        duration: Duration,
    },
    /// A link's rate changes; a packet on air keeps what of it was sent.
    Pacing {
        /// Which.
        link: LinkId,
        /// What holds from then on; its times count from the event.
        pacing: Box<Pacing>,
    },
    /// Other conditions hold on a link; what is in it leaves it as it would have.
    Conditions {
        /// Which.
        link: LinkId,
        /// What holds from then on; its times count from the event.
        config: Box<LinkConfig>,
    },
    /// A node's route for a host changes.
    Route {
        /// Whose table.
        node: NodeId,
        /// The host.
        dst: Ipv4Addr,
        /// The link, or none for no route of the host's own.
        link: Option<LinkId>,
    },
    /// A node's default route changes.
    DefaultRoute {
        /// Whose table.
        node: NodeId,
        /// The link, or none.
        link: Option<LinkId>,
    },
    /// A node is notified of one of its links from below (LNK-14).
    Signal {
        /// Who.
        node: NodeId,
        /// About which link.
        link: LinkId,
        /// What.
        event: LinkEvent,
    },
    /// A node is given a number whose meaning is its own.
    Token {
        /// Who.
        node: NodeId,
        /// The number.
        token: u64,
    },
}

/// Events to come, in order of time and, at one time, of scheduling.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    events: BTreeMap<(Time, u64), Event>,
    number: u64,
}

impl Agenda {
    pub(super) fn add(&mut self, at: Time, event: Event) {
        self.events.insert((at, self.number), event);
        self.number += 1;
    }

    pub(super) fn next_time(&self) -> Time {
        self.events.first_key_value().map_or(Time::NEVER, |(&(at, _), _)| at)
    }

    /// The next event and its number.
    pub(super) fn pop(&mut self) -> Option<(u64, Event)> {
        self.events.pop_first().map(|((_, number), event)| (number, event))
    }
}
