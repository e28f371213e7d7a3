//! Connections that mobiles ask for, and those of fixed hosts that mobiles are offered.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use lasthop_kernel::leave::Leave;
use lasthop_kernel::slab::Key;
use lasthop_kernel::tcp::{self, Socket};
use lasthop_kernel::turn::Source;
use lasthop_session::{ConnId, Refusal, Target};

use super::super::openings::Admission;
use super::super::published_port::PublishedPort;
use super::super::surrogate::Surrogate;
use super::BaseRole;
use crate::backhaul::BaseAssociationId;
use crate::dial::{self, Dial};
use crate::driver::{Asker, CoreOf, Phase, Timer};

impl BaseRole {
    /// Whether there are as many connections as there may be.
    pub(super) fn is_full(&self, core: &CoreOf<Self>) -> bool {
        let own = core.connections.len();
        let all = self.workers.as_ref().map_or(own, |workers| {
            workers.set_connections(own);
            workers.connections()
        });
        all >= self.connections_max
    }

    pub(super) fn open(
        &mut self,
        core: &mut CoreOf<Self>,
        id: BaseAssociationId,
        conn: ConnId,
        target: &Target,
        source: Option<SocketAddr>,
    ) {
        let leave = match self.exits.choose(self.key_of(id), source) {
            Ok(leave) => leave,
            Err(refusal) => {
                return dial::refuse_request(core, id, conn, &target.to_string(), refusal);
            }
        };
        if core.stopping {
            return dial::refuse_request(
                core,
                id,
                conn,
                &target.to_string(),
                Refusal::ShuttingDown,
            );
        }
        if self.is_full(core) {
            return dial::refuse_request(core, id, conn, &target.to_string(), Refusal::TooMany);
        }
        let admission = self.openings.admit(core.now, self.client(id));
        if admission == Admission::Never {
            return dial::refuse_request(core, id, conn, &target.to_string(), Refusal::TooMany);
        }
        let mobile = self.key_of(id);
        if let (Some(handoffs), Some(mobile)) = (&mut self.handoffs, mobile) {
            handoffs.end_move(mobile);
        }
        let key = core.add(target.to_string(), Surrogate::Waiting(leave, target.clone()));
        core.name(key, id, conn);
        match admission {
            Admission::At(at) => core.arm(at, Timer::Connection(key)),
            Admission::Now | Admission::Never => self.begin(core, key),
        }
    }

    /// It is the turn of an opening that waits.
    pub(super) fn begin(&mut self, core: &mut CoreOf<Self>, key: Key) {
        let Some(connection) = core.connections.get_mut(key) else { return };
        let (Some((id, _)), Phase::Waiting(waiting)) = (connection.name, &mut connection.phase)
        else {
            return;
        };
        let Surrogate::Waiting(leave, target) = waiting else { return };
        let target = target.clone();
        *waiting = Surrogate::Resolving(std::mem::take(leave));
        match target {
            Target::Addr(addr) => self.dial(core, key, vec![addr]),
            Target::Name(name, port) => {
                core.arm(core.now + self.connect_timeout, Timer::Connection(key));
                let (client, asker) = (self.client(id), Asker::Connection(key));
                if core.resolver.request(client, asker, name.as_str(), port).is_err() {
                    dial::refuse(core, key, Refusal::TooMany);
                }
            }
        }
    }

    pub(super) fn dial(&mut self, core: &mut CoreOf<Self>, key: Key, addresses: Vec<SocketAddr>) {
        let deadline = core.now + self.connect_timeout;
        let id = core.connections.get(key).and_then(|connection| connection.name);
        let holder = self.exits.holder(id.and_then(|(id, _)| self.key_of(id)));
        if let Some(waiting) = core.waiting(key) {
            let leave = match waiting {
                Surrogate::Resolving(leave) => std::mem::take(leave),
                _ => Leave::default(),
            };
            let dial = Dial::new(addresses, deadline)
                .leaving(leave, self.exits.exit())
                .holding(holder)
                .within(self.targets.clone());
            *waiting = Surrogate::Dialling(dial);
            dial::advance(core, key, None);
        }
    }

    /// Offers the mobile a connection that a fixed host has made (MOB-8).
    pub(super) fn offer(
        &mut self,
        core: &mut CoreOf<Self>,
        n: usize,
        fd: OwnedFd,
        from: SocketAddr,
    ) {
        let Some(PublishedPort { rule, .. }) = self.published_ports.get(n) else { return };
        let (port, mobile) = (rule.port, self.association_with(rule.mobile));
        let to = SocketAddr::new(tcp::local_addr(&fd).ip(), port);
        let full = core.stopping || self.is_full(core);
        // Where the mobile has announced its ports, no request is needed.
        let Some(id) = mobile.filter(|id| !full && core.hop.listens(*id, port) != Some(false))
        else {
            tracing::debug!(%from, port, "connection to a published port refused");
            core.counters.refused += 1;
            return tcp::abort_on_close(&fd);
        };
        tcp::tune_relayed(&fd);
        // The source needs the key, and the key the socket: the source is corrected after.
        let Ok(socket) = Socket::new(&mut core.reactor, fd, Source::Resolver) else { return };
        let token = socket.token;
        let key = core.add(format!("{from} -> mobile:{port}"), Surrogate::Offered(socket));
        core.reactor.reassign(token, Source::Connection(key));
        let now = core.now;
        let offered = core
            .session(id)
            .map(|(session, mut streams)| session.offer(now, &mut streams, to, from));
        match offered {
            Some(Ok(conn)) => core.name(key, id, conn),
            _ => self.refuse_offered(core, key, Refusal::TooMany),
        }
    }

    /// Resets a fixed host whose connection the mobile does not take, or not any more (MOB-9).
    pub(super) fn refuse_offered(&mut self, core: &mut CoreOf<Self>, key: Key, refusal: Refusal) {
        let Some(connection) = core.remove(key) else { return };
        core.counters.refused += 1;
        tracing::debug!(target = connection.target, reason = %refusal, "connection refused");
        if let Phase::Waiting(Surrogate::Offered(socket)) = connection.phase {
            socket.close(&mut core.reactor, true);
        }
    }
}
