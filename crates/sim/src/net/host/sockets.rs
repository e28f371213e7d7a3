//! What applications need of whatever carries their connections: a host's own TCP, or a session.

use core::net::Ipv4Addr;

use lasthop_tcp as tcp;
use lasthop_units::{Bytes, LinkEvent};

use super::{Content, FlowId};
use crate::net::Context;

/// What an application does with its connections, through [`Io`](super::Io).
pub trait Sockets {
    /// The host's address.
    fn addr(&self) -> Ipv4Addr;

    /// See [`Io::connect`](super::Io::connect).
    fn connect(
        &mut self,
        ctx: &mut Context<'_>,
        dst: (Ipv4Addr, u16),
        config: tcp::Config,
        content: Content,
    ) -> Option<FlowId>;

    /// Accepts connections to a port. The SYN's MSS option is no more than the interface towards
    /// the peer carries (LNK-3).
    fn listen(&mut self, port: u16, config: tcp::Config, content: Content);

    /// `n` more bytes of a virtual stream exist; how many there was room for. If fewer,
    /// [`Event::Writable`](super::Event::Writable) says when to go on.
    fn write(&mut self, flow: FlowId, n: Bytes) -> Bytes;

    /// Writes real bytes; how many there was room for. If fewer,
    /// [`Event::Writable`](super::Event::Writable) says when to go on.
    fn write_bytes(&mut self, flow: FlowId, data: &[u8]) -> usize;

    /// Real bytes that have arrived in order: one contiguous piece.
    fn received(&self, flow: FlowId) -> &[u8];

    /// Bytes that have arrived in order and were not consumed.
    fn readable(&self, flow: FlowId) -> Bytes;

    /// Takes bytes that have arrived; at most what is readable, and of real bytes at most the
    /// piece that [`received`](Self::received) gives. How many were taken.
    fn consume(&mut self, flow: FlowId, n: Bytes) -> Bytes;

    /// Ends our stream after what was written.
    fn finish(&mut self, flow: FlowId);

    /// Gives the connection up.
    fn abort(&mut self, flow: FlowId);

    /// A connection, to watch.
    fn connection(&self, flow: FlowId) -> Option<&tcp::Connection>;

    /// What a connection did, on all of its paths.
    fn stats(&self, flow: FlowId) -> Option<tcp::Stats> {
        self.connection(flow).map(|connection| *connection.stats())
    }

    /// Keeps the window that a connection of TCP's advertises at or below `share`, without taking
    /// back what it has promised (RWC-6, RWC-9); none lifts it. Does nothing to a connection that a
    /// session carries.
    fn set_window_share(&mut self, _flow: FlowId, _share: Option<Bytes>) {}

    /// Gives a connection that a session carries a priority relative to the session's others (UFB-3).
    /// Does nothing to a connection of TCP's: its priority is a share of the window.
    fn set_priority(&mut self, _flow: FlowId, _priority: u32) {}

    /// See [`Io::report_link_event`](super::Io::report_link_event).
    fn report_link_event(&mut self, ctx: &mut Context<'_>, event: LinkEvent);
}
