//! What runs on a host, and what it sees of it.

use core::net::{Ipv4Addr, SocketAddrV4};
use core::ops::{Deref, DerefMut};

use lasthop_tcp as tcp;
use lasthop_units::{LinkEvent, Time};

use super::{Content, FlowId, Sockets};
use crate::net::Context;

/// A datagram to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutgoingDatagram {
    /// The port that it comes from.
    pub from: u16,
    /// Where it goes.
    pub to: SocketAddrV4,
    /// Its payload.
    pub bytes: Vec<u8>,
}

/// An application.
pub trait App {
    /// Something happened to one of the host's connections.
    fn handle_event(&mut self, io: &mut Io<'_, '_>, flow: FlowId, event: Event);

    /// The link below has notified the host's connections of this (LNK-14).
    fn handle_link_event(&mut self, _io: &mut Io<'_, '_>, _event: LinkEvent) {}

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    fn next_timeout(&self) -> Option<Time>;

    /// The time asked for has come.
    fn handle_timeout(&mut self, io: &mut Io<'_, '_>);

    /// A UDP datagram has come to a port of the host; whether the application takes it.
    fn handle_datagram(
        &mut self,
        _now: Time,
        _from: SocketAddrV4,
        _port: u16,
        _bytes: &[u8],
    ) -> bool {
        false
    }

    /// A UDP datagram that the application sends now.
    fn poll_datagram(&mut self, _now: Time) -> Option<OutgoingDatagram> {
        None
    }
}

/// What happens to a connection, as an application sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A listener accepted it.
    Accepted {
        /// The listener's port.
        port: u16,
    },
    /// It stands.
    Connected,
    /// Bytes arrived in order.
    Readable,
    /// A write that had taken less than was offered can go on.
    Writable,
    /// The peer's stream is over: no byte follows.
    PeerFinished,
    /// The peer has everything up to our end.
    Finished,
    /// It is over; its number means nothing after this call.
    Closed(Ending),
}

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ending {
    /// Both sides finished, or this one gave it up.
    Orderly,
    /// The peer reset or refused it.
    Reset,
    /// The retransmission timer expired too often.
    GaveUp,
}

/// The host as its application sees it: its [`Sockets`], in the present.
pub struct Io<'a, 'b> {
    pub(super) stack: &'a mut dyn Sockets,
    pub(super) ctx: &'a mut Context<'b>,
}

impl<'a, 'b> Io<'a, 'b> {
    /// What an application sees of `sockets`.
    pub fn new(sockets: &'a mut dyn Sockets, ctx: &'a mut Context<'b>) -> Self {
        Self { stack: sockets, ctx }
    }

    /// The present.
    pub fn now(&self) -> Time {
        self.ctx.now()
    }

    /// Opens a connection; none if the host has no port or room left. Segments are no longer than
    /// the interface towards `dst` carries (LNK-3).
    pub fn connect(
        &mut self,
        dst: Ipv4Addr,
        port: u16,
        config: tcp::Config,
        content: Content,
    ) -> Option<FlowId> {
        self.stack.connect(self.ctx, (dst, port), config, content)
    }

    /// Tells all connections something of the link below, as the link itself would: what the user
    /// knows of it (UFB-1).
    pub fn report_link_event(&mut self, event: LinkEvent) {
        self.stack.report_link_event(self.ctx, event);
    }
}

impl<'a> Deref for Io<'a, '_> {
    type Target = dyn Sockets + 'a;

    fn deref(&self) -> &Self::Target {
        self.stack
    }
}

impl DerefMut for Io<'_, '_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.stack
    }
}
