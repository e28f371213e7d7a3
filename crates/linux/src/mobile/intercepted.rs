//! The way in of applications that know nothing of lasthop.

use std::io;
use std::net::SocketAddr;

use lasthop_session::Target;

use super::guest::Guest;
use super::{ACCEPT_PAUSE, Core, MobileHop, MobileRole, Waiting};
use crate::driver::Timer;
use crate::error::RunError;
use crate::hop::Source;
use crate::programs::Ends;
use crate::reactor::{Interest, Reactor};
use crate::tcp::{self, Socket};
use crate::transparent::{Interception, Leave, Listener, Taken, Taking, TransparentConfig};

/// The first of the listening sockets' numbers, far from those of other listeners.
const FIRST: usize = usize::MAX / 2;
/// There is one for each family.
const SOCKETS: usize = 2;

/// Which listening socket a listener's number means, if it means one of these.
pub(super) fn listener(n: usize) -> Option<usize> {
    n.checked_sub(FIRST).filter(|n| *n < SOCKETS)
}

/// Interception, if it was asked for.
#[derive(Default)]
pub(super) struct Intercepted {
    config: Option<TransparentConfig>,
    /// None when no new connection is wanted any more.
    listener: Option<Listener>,
    /// What stands in the kernel goes when this goes.
    interception: Option<Interception>,
}

impl Intercepted {
    /// Puts into the kernel what the configuration asks for.
    pub(super) fn open(config: Option<&TransparentConfig>) -> Result<Self, RunError> {
        let Some(config) = config else { return Ok(Self::default()) };
        let (interception, listener) = Interception::mobile(config)?;
        tracing::info!(host = config.host, interfaces = ?config.interfaces, "TCP is intercepted");
        Ok(Self {
            config: Some(config.clone()),
            listener: Some(listener),
            interception: Some(interception),
        })
    }

    /// Watches the listening sockets.
    pub(super) fn watch(&self, reactor: &mut Reactor<Source>) -> io::Result<()> {
        let Some(listener) = &self.listener else { return Ok(()) };
        for (n, socket) in listener.sockets().enumerate() {
            reactor.add(socket, Interest::Read, Source::Listener(FIRST + n))?;
        }
        Ok(())
    }

    /// How sockets of lasthop's own leave, so that they are not intercepted.
    pub(super) fn own_way(&self) -> Leave {
        Leave::marked(self.config.as_ref().map(|config| config.numbers.mark))
    }

    /// The address that a connection is to leave from, where the application's own is to be kept.
    fn source(&self, taken: &Taken) -> Option<SocketAddr> {
        let kept = &self.config.as_ref()?.keep_source;
        kept.iter().any(|network| network.contains(taken.source.ip())).then_some(taken.source)
    }

    /// Lets new connections go past. Those that stand go on to the end.
    pub(super) fn close(&mut self) {
        if self.listener.take().is_some()
            && let Some(interception) = &self.interception
        {
            interception.close();
        }
    }
}

impl<H: MobileHop> MobileRole<H> {
    /// Intercepted connections wait at listening socket `n`.
    pub(super) fn accept_taken(&mut self, core: &mut Core<H>, n: usize) {
        // A flood of connections must not starve the others; the rest comes with the timer.
        for _ in 0..64 {
            let Some(listener) = &self.intercepted.listener else { return };
            match listener.accept(n) {
                Taking::Taken(taken) => self.welcome_taken(core, taken),
                Taking::Stray => {}
                Taking::Empty => return,
                Taking::Exhausted(e) => {
                    tracing::warn!(error = %e, "accepting pauses");
                    return core.arm(core.now + ACCEPT_PAUSE, Timer::Accept(FIRST + n));
                }
            }
        }
        core.arm(core.now, Timer::Accept(FIRST + n));
    }

    fn welcome_taken(&mut self, core: &mut Core<H>, taken: Taken) {
        // The application was told that its connection stands: from here on a reset is all that
        // it can be told.
        if core.connections.len() >= self.config.connections {
            tracing::debug!("too many connections: one is reset");
            return tcp::abort_on_close(&taken.fd);
        }
        let source = self.intercepted.source(&taken);
        tcp::tune_relayed(&taken.fd);
        // The source needs the key, and the key the socket: the source is corrected after.
        let Ok(socket) = Socket::new(&mut core.reactor, taken.fd, Source::Resolver) else { return };
        let token = socket.token;
        let key = core.add(String::new(), Waiting::Guest(Guest::taken(socket, source)));
        core.reactor.reassign(token, Source::Connection(key));
        self.users.meet(core, key, Ends { client: taken.source, server: taken.target });
        self.open(core, key, &Target::Addr(taken.target));
    }
}
