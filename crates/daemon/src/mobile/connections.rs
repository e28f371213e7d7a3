//! Connections that applications ask for, and those of fixed hosts to servers here.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use lasthop_kernel::netlink::Ends;
use lasthop_kernel::slab::Key;
use lasthop_kernel::tcp::{self, Socket};
use lasthop_kernel::turn::Source;
use lasthop_session::{ConnId, Refusal, Target};

use super::application::{Action, Application};
use super::{Core, MobileRole, PATIENCE, Waiting, application, open_request, retry_target};
use crate::dial::{self, Dial};
use crate::driver::{Phase, Timer};
use crate::packets::OWN;

/// How long a server of the mobile's may take to answer.
const SERVER_TIMEOUT: Duration = Duration::from_secs(10);

impl MobileRole {
    pub(super) fn accept_application(&mut self, core: &mut Core, fd: OwnedFd, client: SocketAddr) {
        if core.connections.len() >= self.config.connections {
            return tracing::debug!("too many connections: one refused");
        }
        tcp::tune_relayed(&fd);
        // The source needs the key, and the key the socket: the source is corrected after.
        let Ok(socket) = Socket::new(&mut core.reactor, fd, Source::Resolver) else { return };
        let (token, server) = (socket.token, tcp::local_addr(&socket.fd));
        let application = Application::new(socket).with_udp_associate(self.udp.are_served());
        let key = core.add(String::new(), Waiting::Application(application));
        core.reactor.reassign(token, Source::Connection(key));
        self.priorities.identify_program(core, key, Ends::tcp(client, server));
        core.arm(core.now + PATIENCE, Timer::Connection(key));
    }

    pub(super) fn advance_application(&mut self, core: &mut Core, key: Key) {
        let Some(application) = application(core, key) else { return };
        match application.advance() {
            Action::Wait => {}
            Action::Open(target) => self.open(core, key, &target),
            Action::Associate(expected) => self.associate(core, key, expected),
            Action::Relay => core.relay(key, |waiting| match waiting {
                Waiting::Application(application) => Some(application.into_relay()),
                Waiting::HeldSyn(_) | Waiting::Calling(_) => None,
            }),
            Action::Close => self.close_application(core, key),
        }
    }

    pub(super) fn open(&mut self, core: &mut Core, key: Key, target: &Target) {
        if let Some(connection) = core.connections.get_mut(key) {
            connection.target = target.to_string();
        }
        if let Some(open_request) = open_request(core, key) {
            open_request.record_attempt(target);
        }
        self.priorities.begin(core, key, target);
        let (now, opening, id) = (core.now, self.config.connect.into(), self.at);
        let source = open_request(core, key).and_then(|open_request| open_request.source());
        let asked = core.session(id).map(|(session, mut streams)| {
            session.connect_from(now, &mut streams, target, opening, source)
        });
        match asked {
            Some(Ok(conn)) => {
                core.name(key, id, conn);
                self.priorities.reapply(core, key);
                self.name_client(core, key);
            }
            Some(Err(_)) => self.answer(core, key, Err(Refusal::TooMany)),
            None => self.answer(core, key, Err(Refusal::AssociationLost)),
        }
    }

    /// A connection has its share of the hop with the others of its application's host.
    fn name_client(&self, core: &mut Core, key: Key) {
        let Some(connection) = core.connections.get(key) else { return };
        let client = connection.who.client.map_or(OWN, |client| self.network.client(client.ip()));
        if let Some((id, conn)) = connection.name.filter(|_| client != OWN)
            && let Some((session, mut streams)) = core.session(id)
        {
            session.set_client(&mut streams, conn, client);
        }
    }

    /// Asks again for connections whose association was lost.
    pub(super) fn retry_opens(&mut self, core: &mut Core) {
        for key in std::mem::take(&mut self.retries) {
            match retry_target(core, key) {
                Some(target) => self.open(core, key, &target),
                None => self.answer(core, key, Err(Refusal::AssociationLost)),
            }
        }
    }

    pub(super) fn answer(
        &mut self,
        core: &mut Core,
        key: Key,
        result: Result<Option<SocketAddr>, Refusal>,
    ) {
        if self.answer_held_syn(core, key, result) {
            return;
        }
        if let Err(reason) = &result
            && let Some(connection) = core.connections.get(key)
        {
            core.counters.refused += 1;
            tracing::debug!(target = connection.target, %reason, "connection refused");
            core.arm(core.now + PATIENCE, Timer::Connection(key));
        }
        if let Some(application) = application(core, key) {
            application.answer(result);
            self.advance_application(core, key);
        }
    }

    /// Removes the connection of an application that is gone.
    pub(super) fn close_application(&mut self, core: &mut Core, key: Key) {
        let Some(connection) = core.remove(key) else { return };
        if let Phase::Waiting(Waiting::Application(application)) = connection.phase {
            self.end_association(core, application.association);
            let reset = application.is_intercepted();
            application.socket.close(&mut core.reactor, reset);
        }
        core.abort(connection.name);
    }

    /// There is no connection; if only the association was lost, it is requested again.
    pub(super) fn handle_failed(&mut self, core: &mut Core, key: Key, refusal: Refusal) {
        // The session has no further events for it.
        core.unname(key);
        let lost = refusal == Refusal::AssociationLost && !core.stopping;
        if lost && retry_target(core, key).is_some() {
            // The session that reports this is being replaced right now.
            return self.retries.push(key);
        }
        self.answer(core, key, Err(refusal));
    }

    /// Connects to the server of ours that a fixed host asks for (MOB-8).
    pub(super) fn connect_server(
        &mut self,
        core: &mut Core,
        id: u32,
        conn: ConnId,
        target: &Target,
    ) {
        let server = match target {
            Target::Addr(to) => self.config.publish.iter().find(|s| s.port == to.port()),
            Target::Name(..) => None,
        };
        let refusal = match server {
            _ if core.stopping => Refusal::ShuttingDown,
            // The mobile is not with that base.
            _ if id != self.at => Refusal::AssociationLost,
            Some(_) if core.connections.len() >= self.config.connections => Refusal::TooMany,
            Some(server) => {
                let caller = core.session(id).and_then(|(session, _)| session.caller(conn));
                tracing::debug!(connection = conn.0, ?caller, server = %server.server, "called");
                let dial = Dial::new(vec![server.server], core.now + SERVER_TIMEOUT)
                    .leaving(self.intercepted.marked_leave(), None);
                let key = core.add(server.server.to_string(), Waiting::Calling(dial));
                core.name(key, id, conn);
                self.priorities.begin_called(core, key, caller, server.port);
                return dial::advance(core, key, None);
            }
            // As a closed port answers.
            None => Refusal::Refused,
        };
        dial::refuse_request(core, id, conn, &target.to_string(), refusal);
    }
}
