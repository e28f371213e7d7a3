//! What a mobile needs of its hop.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use lasthop_hop::{PathStatus, SavedPath, Unreachable};
use lasthop_kernel::turn::Turn;
use lasthop_units::{Bytes, LinkEvent, Time};
use lasthop_wire::mhp::transit::TransitGrant;

use super::Hop;

/// By which way a link leads to a hop's base.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum LinkWay {
    /// It reaches it.
    #[default]
    Direct,
    /// It does not.
    None,
    /// Another base, at this address, passes on.
    Through(SocketAddr, TransitGrant),
}

/// The hop of a mobile: one association, to a base whose address may change.
pub(crate) trait MobileHop: Hop<Id = ()> {
    /// Starts to watch its sockets.
    fn start(&mut self, turn: &mut Turn<'_>) -> io::Result<()>;

    /// Whether the association stands.
    fn is_up(&self) -> bool;

    /// Sends this greeting with the handshake, before the association stands, where the hop can.
    fn greet(&mut self, _now: Time, _greeting: &[u8]) {}

    /// Uses this address of the base from here on.
    fn set_base(&mut self, turn: &mut Turn<'_>, addr: SocketAddr);

    /// Whether an association goes on from another address of ours.
    fn roams(&self) -> bool {
        true
    }

    /// Our address by a link may be another: sends something at once, by which the base learns it.
    fn roam(&mut self, _turn: &mut Turn<'_>, _link: usize) {}

    /// There is another link, of this name and interface.
    fn add_link(&mut self, _turn: &mut Turn<'_>, _name: &str, _interface: &str) {}

    /// A link leads to the base by this way from now on.
    fn set_way(&mut self, _turn: &mut Turn<'_>, _link: usize, _way: LinkWay) {}

    /// What a link costs has changed.
    fn set_link_status(&mut self, _turn: &mut Turn<'_>, _link: usize, _status: PathStatus) {}

    /// What each link has carried for this hop, both ways, with all headers.
    fn carried(&self) -> Vec<(usize, Bytes)> {
        Vec::new()
    }

    /// Takes an event of a link below.
    fn handle_link_event(&mut self, _turn: &mut Turn<'_>, _link: usize, _event: LinkEvent) {}

    /// For how long the base has not answered, if something is outstanding; `None` while it answers.
    fn silent_for(&self, _now: Time) -> Option<Duration> {
        None
    }

    /// The session is being moved away to another base, which may have it by now. Meanwhile reports that
    /// this base is unreachable do not end its association.
    fn set_leaving(&mut self, _leaving: bool) {}

    /// Why the base cannot be reached at present, if the network has reported so repeatedly and nothing
    /// has come from the base meanwhile.
    fn unreachable(&self, _now: Time) -> Option<Unreachable> {
        None
    }

    /// A number that changes when something comes from the base.
    fn received_count(&self) -> u64 {
        u64::from(self.is_up())
    }

    /// What it carries in a round trip, where that is known.
    fn in_round_trip(&self) -> Bytes {
        Bytes::ZERO
    }

    /// What the path to the base is worth, as far as it was seen.
    fn saved_path(&self) -> Option<SavedPath> {
        None
    }

    /// The association that is to be made is on a path that was worth this before.
    fn resume_path(&mut self, _now: Time, _saved: SavedPath) {}

    /// Announces servers on these ports to the base, after each handshake too (MOB-8). Where the hop
    /// has no message for it, the base offers each connection.
    fn listen(&mut self, _ports: &[u16]) {}
}
