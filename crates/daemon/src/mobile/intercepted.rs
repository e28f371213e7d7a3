//! The way in of applications that know nothing of lasthop.

use std::io;
use std::net::SocketAddr;

use lasthop_kernel::accept::{self, Accepted};
use lasthop_kernel::leave::Leave;
use lasthop_kernel::netlink::Ends;
use lasthop_kernel::reactor::{Interest, Reactor};
use lasthop_kernel::tcp::{self, Socket};
use lasthop_kernel::transparent::{Holding, Interception, Listener, Taken, TransparentConfig};
use lasthop_kernel::turn::Source;
use lasthop_session::{Families, Target};

use super::application::Application;
use super::{Connect, Core, MobileRole, Waiting};
use crate::error::RunError;

/// The first of the listening sockets' numbers, far from those of other listeners.
const FIRST: usize = usize::MAX / 2;
/// There is one for each family.
const SOCKETS: usize = 2;

/// The listener number of the packet queue in which SYNs are held.
pub(super) const SYNS: usize = FIRST + SOCKETS;

/// Which listening socket a listener's number means, if it means one of these.
pub(super) fn listener(n: usize) -> Option<usize> {
    n.checked_sub(FIRST).filter(|n| *n < SOCKETS)
}

/// Interception, if it is configured.
#[derive(Default)]
pub(super) struct Intercepted {
    config: Option<TransparentConfig>,
    /// None when no new connection is wanted any more.
    listener: Option<Listener>,
    /// `None` where SYNs are not held: then handshakes with applications are completed at once.
    holding: Option<Holding>,
    /// The kernel's rules, removed when this is dropped.
    interception: Option<Interception>,
}

impl Intercepted {
    /// Installs the kernel's rules and sockets that the configuration asks for.
    pub(super) fn open(
        config: Option<&TransparentConfig>,
        connect: Connect,
    ) -> Result<Self, RunError> {
        let Some(config) = config else { return Ok(Self::default()) };
        let (interception, listener, holding) = match connect {
            Connect::Faithful => Interception::holding(config)?,
            Connect::Early => {
                let (interception, listener) = Interception::mobile(config)?;
                (interception, listener, None)
            }
        };
        tracing::info!(host = config.host, interfaces = ?config.interfaces, "TCP is intercepted");
        Ok(Self {
            config: Some(config.clone()),
            listener: Some(listener),
            holding,
            interception: Some(interception),
        })
    }

    /// Watches the listening sockets.
    pub(super) fn watch(&self, reactor: &mut Reactor<Source>) -> io::Result<()> {
        let Some(listener) = &self.listener else { return Ok(()) };
        for (n, socket) in listener.sockets().enumerate() {
            reactor.add(socket, Interest::Read, Source::Listener(FIRST + n))?;
        }
        if let Some(holding) = &self.holding {
            reactor.add(holding, Interest::Read, Source::Listener(SYNS))?;
        }
        Ok(())
    }

    /// The mark with which lasthop's own sockets leave, so that they are not intercepted.
    pub(super) fn marked_leave(&self) -> Leave {
        Leave::marked(self.config.as_ref().map(|config| config.numbers.mark))
    }

    /// The address that a connection is to leave from, where the application's own is to be kept.
    pub(super) fn source(&self, client: SocketAddr) -> Option<SocketAddr> {
        let kept = &self.config.as_ref()?.keep_source;
        kept.iter().any(|network| network.contains(client.ip())).then_some(client)
    }

    /// The SYNs that are held.
    pub(super) fn holding(&mut self) -> Option<&mut Holding> {
        self.holding.as_mut()
    }

    /// Whether a base is to be asked which families it reaches.
    pub(super) fn is_open(&self) -> bool {
        self.listener.is_some()
    }

    /// Intercepts connections of these families only.
    pub(super) fn set_families(&mut self, families: Families) {
        let Some(interception) = &mut self.interception else { return };
        match interception.take_only(families) {
            Ok(true) => {
                let Families { ipv4, ipv6 } = families;
                tracing::info!(
                    ipv4,
                    ipv6,
                    "intercepting the address families that the base reaches"
                );
            }
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "cannot change the interception rules"),
        }
    }

    /// Stops the interception of new connections. Established ones go on to their end.
    pub(super) fn close(&mut self) {
        if self.listener.take().is_some()
            && let Some(interception) = &mut self.interception
        {
            interception.close();
        }
    }
}

impl MobileRole {
    /// Accepts intercepted connections from listening socket `n`.
    pub(super) fn read_intercepted(&mut self, core: &mut Core, n: usize) {
        let last = accept::share(|| {
            let Some(listener) = &self.intercepted.listener else { return Accepted::Empty };
            listener.accept(n).map(|taken| {
                if let Some(taken) = taken {
                    self.accept_intercepted(core, taken);
                }
            })
        });
        core.accept_again(FIRST + n, last);
    }

    fn accept_intercepted(&mut self, core: &mut Core, taken: Taken) {
        let Some(taken) = self.attach_held_syn(core, taken) else { return };
        // The application's handshake is complete: it can be refused only by a reset.
        if core.connections.len() >= self.config.connections {
            tracing::debug!("too many connections: one is reset");
            return tcp::abort_on_close(&taken.fd);
        }
        let source = self.intercepted.source(taken.source);
        tcp::tune_relayed(&taken.fd);
        // The source needs the key, and the key the socket: the source is corrected after.
        let Ok(socket) = Socket::new(&mut core.reactor, taken.fd, Source::Resolver) else { return };
        let token = socket.token;
        let key =
            core.add(String::new(), Waiting::Application(Application::intercepted(socket, source)));
        core.reactor.reassign(token, Source::Connection(key));
        self.priorities.identify_program(core, key, Ends::tcp(taken.source, taken.target));
        self.open(core, key, &Target::Addr(taken.target));
    }
}
