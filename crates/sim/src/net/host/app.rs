//! What runs on a host, and what it sees of it.

use core::net::Ipv4Addr;

use lasthop_tcp as tcp;
use lasthop_units::{Bytes, LinkEvent, Time};

use super::{Content, FlowId, Sockets};
use crate::net::{Context, Datagram};

/// An application.
pub trait App {
    /// Something happened to one of the host's connections.
    fn handle_event(&mut self, io: &mut Io<'_, '_>, flow: FlowId, event: Event);

    /// A UDP datagram came for a port that was opened.
    fn handle_datagram(&mut self, _io: &mut Io<'_, '_>, _datagram: &Datagram) {}

    /// The link below has notified the host's connections of this (LNK-14).
    fn handle_link_event(&mut self, _io: &mut Io<'_, '_>, _event: LinkEvent) {}

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    fn next_timeout(&self) -> Option<Time>;

    /// The time asked for has come.
    fn handle_timeout(&mut self, io: &mut Io<'_, '_>);
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

/// The host as its application sees it.
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

    /// Accepts connections to a port. The SYN's MSS option is no more than the interface towards
    /// the peer carries (LNK-3).
    pub fn listen(&mut self, port: u16, config: tcp::Config, content: Content) {
        self.stack.listen(port, config, content);
    }

    /// Receives UDP datagrams for a port.
    pub fn open_udp(&mut self, port: u16) {
        self.stack.open_udp(port);
    }

    /// Sends `len` bytes that nobody looks at in a UDP datagram; whether it left.
    pub fn send_udp(&mut self, src_port: u16, dst: (Ipv4Addr, u16), len: Bytes) -> bool {
        self.stack.send_udp(self.ctx, src_port, dst, len)
    }

    /// `n` more bytes of a virtual stream exist; how many there was room for. If fewer,
    /// [`Event::Writable`] says when to go on.
    pub fn write(&mut self, flow: FlowId, n: Bytes) -> Bytes {
        self.stack.write(flow, n)
    }

    /// Writes real bytes; how many there was room for. If fewer, [`Event::Writable`] says when to
    /// go on.
    pub fn write_bytes(&mut self, flow: FlowId, data: &[u8]) -> usize {
        self.stack.write_bytes(flow, data)
    }

    /// Real bytes that have arrived in order: one contiguous piece.
    pub fn received(&self, flow: FlowId) -> &[u8] {
        self.stack.received(flow)
    }

    /// Bytes that have arrived in order and were not consumed.
    pub fn readable(&self, flow: FlowId) -> Bytes {
        self.stack.readable(flow)
    }

    /// Takes bytes that have arrived; at most what is readable, and of real bytes at most the
    /// piece that [`received`](Self::received) gives. How many were taken.
    pub fn consume(&mut self, flow: FlowId, n: Bytes) -> Bytes {
        self.stack.consume(flow, n)
    }

    /// Ends our stream after what was written.
    pub fn finish(&mut self, flow: FlowId) {
        self.stack.finish(flow);
    }

    /// Gives the connection up.
    pub fn abort(&mut self, flow: FlowId) {
        self.stack.abort(flow);
    }

    /// A connection, to watch.
    pub fn connection(&self, flow: FlowId) -> Option<&tcp::Connection> {
        self.stack.connection(flow)
    }

    /// Keeps the window that a connection of TCP's advertises at or below `share`, without taking
    /// back what it has promised (RWC-6, RWC-9); none lifts it. Does nothing to a connection that a
    /// session carries.
    pub fn set_window_share(&mut self, flow: FlowId, share: Option<Bytes>) {
        self.stack.set_window_share(flow, share);
    }

    /// Gives a connection that a session carries a priority relative to the session's others (UFB-3).
    /// Does nothing to a connection of TCP's: its priority is a share of the window.
    pub fn set_priority(&mut self, flow: FlowId, priority: u32) {
        self.stack.set_priority(flow, priority);
    }

    /// Tells all connections something of the link below, as the link itself would: what the user
    /// knows of it (UFB-1).
    pub fn report_link_event(&mut self, event: LinkEvent) {
        self.stack.report_link_event(self.ctx, event);
    }
}
