//! An Ethernet frame as agents see it.

use lasthop_agent::{Packet, Tcp};
use lasthop_wire::tcp::Segment;

use super::ethernet::HEADER;
use super::pool::{Buffer, Pool};
use super::view::View;

/// A whole, finished Ethernet frame: cut to size and with its checksums in place, as
/// [`offload`](lasthop_kernel::offload) leaves it. A clone shares the bytes.
///
/// Only [plain TCP](is_plain_tcp) that is whole and undamaged has a [`tcp`](Packet::tcp). Anything
/// else goes on as it came: a wrong checksum is the receiver's to see, so nobody helps such a packet,
/// and nobody mends it.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    buffer: Buffer,
    number: Option<u32>,
}

impl Frame {
    /// Reads a frame once. Its IPv4 and TCP checksums are verified.
    pub(super) fn parse(buffer: Buffer) -> Self {
        Self::with_view(buffer, View::parse)
    }

    /// The same for a frame whose TCP checksum is known to be right: it was just computed, or the
    /// network card has verified it.
    pub(super) fn parse_summed(buffer: Buffer) -> Self {
        Self::with_view(buffer, View::parse_summed)
    }

    fn with_view(mut buffer: Buffer, parse: fn(&[u8]) -> Option<View>) -> Self {
        let own = buffer.own();
        own.view = parse(&own.bytes);
        Self { buffer, number: None }
    }

    /// A frame with a copy of these bytes, as [`parse`](Self::parse) reads it.
    #[cfg(test)]
    pub(super) fn copy_of(pool: &Pool, bytes: &[u8]) -> Self {
        let mut buffer = pool.take();
        buffer.edit().extend_from_slice(bytes);
        Self::parse(buffer)
    }

    /// The frame from its destination address to its end.
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.bytes()
    }

    /// Where its buffer came from.
    pub(super) fn pool(&self) -> &Pool {
        self.buffer.pool()
    }

    /// The frame up to the end of the IP packet: without Ethernet's padding.
    pub(super) fn without_padding(&self) -> &[u8] {
        let bytes = self.bytes();
        self.buffer.view().and_then(|view| bytes.get(..view.end)).unwrap_or(bytes)
    }
}

impl Packet for Frame {
    fn tcp(&self) -> Option<Tcp> {
        self.buffer.view().map(|view| view.tcp)
    }

    fn set_segment(&mut self, segment: &Segment) {
        let Some(View { tcp, .. }) = self.buffer.view() else { return };
        let (src_port, dst_port, len) = (tcp.src.port(), tcp.dst.port(), tcp.segment.len);
        let segment = Segment { src_port, dst_port, len, ..*segment };
        if segment == tcp.segment {
            return;
        }
        let own = self.buffer.own();
        if let Some(view) = &mut own.view {
            view.rewrite(&mut own.bytes, &segment);
        }
    }

    fn is_marked(&self) -> bool {
        let Some(view) = self.buffer.view() else { return false };
        // IPv6 has its traffic class four bits further to the left.
        let ce = if view.is_v4 { 0x03 } else { 0x30 };
        self.bytes().get(HEADER + 1).is_some_and(|byte| byte & ce == ce)
    }

    fn frame(&self) -> Option<u32> {
        self.number
    }

    fn set_frame(&mut self, frame: Option<u32>) {
        self.number = frame;
    }
}

#[cfg(test)]
mod tests;
