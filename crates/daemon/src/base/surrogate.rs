//! A base's half of a connection, before it stands.

use lasthop_kernel::leave::Leave;
use lasthop_kernel::reactor::Reactor;
use lasthop_kernel::tcp::Socket;
use lasthop_kernel::turn::Source;
use lasthop_session::Target;

use crate::dial::{Dial, Dials};

/// What a base's connection does before it stands.
#[derive(Debug)]
pub(crate) enum Surrogate {
    /// Its mobile opens many, and it waits for its turn; from where it will leave, and where it goes.
    Waiting(Leave, Target),
    /// Its name is being resolved; from where it will leave.
    Resolving(Leave),
    /// It connects.
    Dialling(Dial),
    /// A fixed host has made it, and the mobile's end is requested.
    Offered(Socket),
}

impl Dials for Surrogate {
    fn dial(&mut self) -> Option<&mut Dial> {
        match self {
            Self::Dialling(dial) => Some(dial),
            Self::Waiting(..) | Self::Resolving(_) | Self::Offered(_) => None,
        }
    }
}

impl Surrogate {
    /// Gives up what it does.
    pub(super) fn end(self, reactor: &mut Reactor<Source>) {
        match self {
            Self::Dialling(mut dial) => dial.cancel(reactor),
            Self::Offered(socket) => socket.close(reactor, true),
            Self::Waiting(..) | Self::Resolving(_) => {}
        }
    }
}
