use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use lasthop_units::{LinkEvent, Scheme, Time};
use lasthop_wire::agent::Message;

use crate::edge::{CoherentDupacks, DelayedDupacks, Freeze, ReceiverWindows, Withhold};
use crate::link::LinkRetransmission;
use crate::m_tcp::MTcp;
use crate::obtcp::{Base, Router};
use crate::snoop::Snoop;
use crate::unsplit::Unsplit;
use crate::{Agent, Output, Packet, Side};

/// The enum of these agents, how each becomes one, and the trait, which asks whichever it is.
macro_rules! agents {
    ($($(#[$doc:meta])+ $kind:ident($agent:ident),)+) => {
        /// Any agent, so that nodes of one type can carry all of them.
        #[derive(Clone, Debug)]
        pub enum AnyAgent<P> {
            $($(#[$doc])+ $kind(Box<$agent<P>>),)+
        }

        $(impl<P> From<$agent<P>> for AnyAgent<P> {
            fn from(agent: $agent<P>) -> Self {
                Self::$kind(Box::new(agent))
            }
        })+

        impl<P: Packet> Agent<P> for AnyAgent<P> {
            #[inline]
            fn handle_packet(&mut self, now: Time, from: Side, packet: P) {
                match self { $(Self::$kind(agent) => agent.handle_packet(now, from, packet),)+ }
            }

            fn handle_message(&mut self, now: Time, from: Side, message: &Message) {
                match self { $(Self::$kind(agent) => agent.handle_message(now, from, message),)+ }
            }

            fn handle_link_event(&mut self, now: Time, event: LinkEvent) {
                match self { $(Self::$kind(agent) => agent.handle_link_event(now, event),)+ }
            }

            #[inline]
            fn watches_queue(&self) -> bool {
                match self { $(Self::$kind(agent) => agent.watches_queue(),)+ }
            }

            #[inline]
            fn handle_queue(&mut self, nearly_full: bool) {
                match self { $(Self::$kind(agent) => agent.handle_queue(nearly_full),)+ }
            }

            fn remove_mobile(&mut self, mobile: IpAddr) {
                match self { $(Self::$kind(agent) => agent.remove_mobile(mobile),)+ }
            }

            #[inline]
            fn poll_output(&mut self) -> Option<Output<P>> {
                match self { $(Self::$kind(agent) => agent.poll_output(),)+ }
            }

            #[inline]
            fn next_timeout(&self) -> Option<Time> {
                match self { $(Self::$kind(agent) => agent.next_timeout(),)+ }
            }

            fn handle_timeout(&mut self, now: Time) {
                match self { $(Self::$kind(agent) => agent.handle_timeout(now),)+ }
            }
        }
    };
}

agents! {
    /// Snoop.
    Snoop(Snoop),
    /// M-TCP's supervisor host.
    MTcp(MTcp),
    /// obTCP's agent at the base.
    ObtcpBase(Base),
    /// obTCP's agent at the mobile router.
    ObtcpRouter(Router),
    /// One end of a link that recovers its losses.
    Link(LinkRetransmission),
    /// Half of unsplit Mobile TCP.
    Unsplit(Unsplit),
    /// Delayed duplicate acknowledgements.
    DelayedDupacks(DelayedDupacks),
    /// The receiver's half of congestion coherence.
    CoherentDupacks(CoherentDupacks),
    /// Freeze-TCP, or the link-layer trigger method.
    Freeze(Freeze),
    /// The receiver's half of ATCP.
    Withhold(Withhold),
    /// Receiver window control.
    Windows(ReceiverWindows),
}

/// Some fields of an agent's statistics, with their names.
macro_rules! counters {
    ($stats:expr => $($field:ident)+) => {{
        let stats = $stats;
        vec![$((stringify!($field), stats.$field)),+]
    }};
}

impl<P: Packet> AnyAgent<P> {
    /// What it is called.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Snoop(_) => Scheme::Snoop.name(),
            Self::MTcp(_) => Scheme::MTcp.name(),
            Self::ObtcpBase(_) => "obtcp-base",
            Self::ObtcpRouter(_) => "obtcp-router",
            Self::Link(_) => "link",
            Self::Unsplit(_) => "unsplit",
            Self::DelayedDupacks(_) => Scheme::DelayedDupacks.name(),
            Self::CoherentDupacks(_) => "coherence",
            Self::Freeze(_) => Scheme::Freeze.name(),
            Self::Withhold(_) => Scheme::Atcp.name(),
            Self::Windows(_) => Scheme::Rwc.name(),
        }
    }

    /// What it has counted, and by what name; reports have these names.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        match self {
            Self::Snoop(agent) => counters!(agent.stats() =>
                local_retransmits timeouts suppressed duplicates_passed cached left_out evicted
                released marked passed),
            Self::MTcp(agent) => counters!(agent.stats() =>
                kept unkept held swallowed released made disconnections reconnections
                probes_answered repaired timeouts resumed dropped),
            Self::ObtcpBase(agent) => counters!(agent.stats() =>
                cached evicted refused snacks retransmitted congestions timeouts),
            Self::ObtcpRouter(agent) => counters!(agent.stats() =>
                gaps untracked snacks repeated lost_retransmissions recovered congestions given_up
                retransmitted timeouts suppressed passed replayed evicted),
            Self::Link(agent) => {
                let stats = agent.stats();
                let mut all = counters!(stats.sender =>
                    numbered acknowledged retransmitted probes given_up crowded_out);
                all.extend(counters!(stats.receiver => delivered duplicates restarts));
                all
            }
            Self::Unsplit(agent) => counters!(agent.stats() =>
                compressed plain local_retransmits timeouts suppressed),
            Self::DelayedDupacks(agent) => counters!(agent.stats() =>
                held discarded released hidden passed),
            Self::CoherentDupacks(agent) => counters!(agent.stats() =>
                held discarded released hidden passed),
            Self::Freeze(agent) => counters!(agent.stats() =>
                freezes thaws zero_windows opened rewritten probes_answered passed),
            Self::Withhold(agent) => counters!(agent.stats() =>
                lowered swallowed released reconnections made passed),
            Self::Windows(agent) => {
                let mut all = counters!(agent.stats() => narrowed divisions unscaled passed);
                all.push(("window_bytes", agent.total().map_or(0, |n| n.get())));
                all.push(("flows", agent.divided() as u64));
                all
            }
        }
    }
}
