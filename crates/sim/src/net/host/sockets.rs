//! What applications need of whatever carries their connections: a host's own TCP, or a session.

use core::net::Ipv4Addr;

use lasthop_tcp as tcp;
use lasthop_units::{Bytes, LinkEvent};

use super::{Content, FlowId};
use crate::net::Context;

/// The calls behind [`Io`](super::Io), which says what each does.
pub trait Sockets {
    /// See [`Io::connect`](super::Io::connect).
    fn connect(
        &mut self,
        ctx: &mut Context<'_>,
        dst: (Ipv4Addr, u16),
        config: tcp::Config,
        content: Content,
    ) -> Option<FlowId>;
    /// See [`Io::listen`](super::Io::listen).
    fn listen(&mut self, port: u16, config: tcp::Config, content: Content);
    /// See [`Io::open_udp`](super::Io::open_udp).
    fn open_udp(&mut self, port: u16);
    /// See [`Io::send_udp`](super::Io::send_udp).
    fn send_udp(
        &mut self,
        ctx: &mut Context<'_>,
        src_port: u16,
        dst: (Ipv4Addr, u16),
        len: Bytes,
    ) -> bool;
    /// See [`Io::write`](super::Io::write).
    fn write(&mut self, flow: FlowId, n: Bytes) -> Bytes;
    /// See [`Io::write_bytes`](super::Io::write_bytes).
    fn write_bytes(&mut self, flow: FlowId, data: &[u8]) -> usize;
    /// See [`Io::received`](super::Io::received).
    fn received(&self, flow: FlowId) -> &[u8];
    /// See [`Io::readable`](super::Io::readable).
    fn readable(&self, flow: FlowId) -> Bytes;
    /// See [`Io::consume`](super::Io::consume).
    fn consume(&mut self, flow: FlowId, n: Bytes) -> Bytes;
    /// See [`Io::finish`](super::Io::finish).
    fn finish(&mut self, flow: FlowId);
    /// See [`Io::abort`](super::Io::abort).
    fn abort(&mut self, flow: FlowId);
    /// See [`Io::connection`](super::Io::connection).
    fn connection(&self, flow: FlowId) -> Option<&tcp::Connection>;
    /// See [`Io::set_window_share`](super::Io::set_window_share).
    fn set_window_share(&mut self, flow: FlowId, share: Option<Bytes>);
    /// See [`Io::set_priority`](super::Io::set_priority).
    fn set_priority(&mut self, flow: FlowId, priority: u32);
    /// See [`Io::report_link_event`](super::Io::report_link_event).
    fn report_link_event(&mut self, ctx: &mut Context<'_>, event: LinkEvent);
}
