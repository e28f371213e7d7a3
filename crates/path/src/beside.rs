//! Frames between agents ([`lasthop_wire::agent::beside`]) as whole Ethernet frames.

use lasthop_agent::Packet;
use lasthop_kernel::mac::Mac;
use lasthop_wire::agent::beside::{
    self as format, CARRIED, ETHERTYPE, Hello, NUMBERED_HEADER, ParseError, SUBTYPE,
};
use lasthop_wire::agent::{self, Message};
use thiserror::Error;

use super::ethernet::{ADDRESSES, HEADER, ethertype};
use super::frame::Frame;
use super::pool::Pool;

/// Where hellos go, and messages before a peer's address is known: a group of local kind, which
/// switches on the hop pass on.
pub(super) const GROUP: Mac = Mac([0x03, 0x4c, 0x48, 0x00, 0x88, 0xb6]);

/// Why a frame is nothing that an agent sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(super) enum BesideError {
    /// The frame is shorter than an Ethernet header, or another protocol's.
    #[error("not a frame of EtherType {ETHERTYPE:#06x} and subtype {SUBTYPE:#04x}")]
    Other,
    /// The payload is nothing that an agent sends.
    #[error(transparent)]
    Payload(#[from] ParseError),
    /// The message in it is none.
    #[error("an agent's frame: {0}")]
    Message(#[from] agent::ParseError),
}

/// What another agent sent.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "it is handled at once and kept nowhere")]
pub(super) enum Received {
    /// It is there.
    Hello(Hello),
    /// A message.
    Message(Message),
    /// A packet, as it was before it was numbered; its [`frame`](Packet::frame) is the number.
    Numbered(Frame),
}

/// Whether the frame is one between agents.
pub(super) fn is_beside(frame: &[u8]) -> bool {
    ethertype(frame) == Some(ETHERTYPE) && frame.get(HEADER) == Some(&SUBTYPE)
}

/// The frame of a hello from `source`.
pub(super) fn hello(source: Mac, hello: &Hello, pool: &Pool) -> Frame {
    frame(pool, GROUP, source, |out| out.extend_from_slice(&hello.emit()))
}

/// The frame of a message from `source` to `to`; none if the message says what cannot be.
pub(super) fn message(source: Mac, to: Mac, message: &Message, pool: &Pool) -> Option<Frame> {
    let mut bytes = [0; Message::MAX_LEN];
    let len = message.emit(&mut bytes).ok()?;
    Some(frame(pool, to, source, |out| {
        out.extend_from_slice(&format::message_header());
        out.extend_from_slice(&bytes[..len]);
    }))
}

/// The packet in a frame of its own kind, with the number of the link's own recovery; Ethernet's
/// padding is left out. None if it is no IP, or if with the number it is longer than `mtu`, the most
/// that the hop's interface takes behind an Ethernet header.
pub(super) fn wrap(packet: &Frame, number: u32, mtu: usize) -> Option<Frame> {
    let bytes = packet.without_padding();
    let ethertype = ethertype(bytes).filter(|ethertype| CARRIED.contains(ethertype))?;
    let payload = bytes.get(HEADER..)?;
    if payload.len() + NUMBERED_HEADER > mtu {
        return None;
    }
    let (addresses, _) = bytes.split_at_checked(ADDRESSES)?;
    let mut buffer = packet.pool().take();
    let out = buffer.edit();
    out.extend_from_slice(addresses);
    out.extend_from_slice(&ETHERTYPE.to_be_bytes());
    out.extend_from_slice(&format::numbered_header(number, ethertype));
    out.extend_from_slice(payload);
    Some(Frame::parse(buffer))
}

/// Reads a frame between agents: from which interface it is, and what it says.
///
/// # Errors
///
/// It is another frame, or nothing that an agent sends.
pub(super) fn unwrap(frame: &[u8], pool: &Pool) -> Result<(Mac, Received), BesideError> {
    if !is_beside(frame) {
        return Err(BesideError::Other);
    }
    let (addresses, rest) = frame.split_at_checked(ADDRESSES).ok_or(BesideError::Other)?;
    let payload = rest.get(HEADER - ADDRESSES..).ok_or(BesideError::Other)?;
    let source = addresses.last_chunk().ok_or(BesideError::Other)?;
    let received = match format::Beside::parse(payload)? {
        format::Beside::Hello(hello) => Received::Hello(hello),
        format::Beside::Message(bytes) => Received::Message(Message::parse(bytes)?),
        format::Beside::Numbered { number, ethertype, packet } => {
            let mut buffer = pool.take();
            let out = buffer.edit();
            out.extend_from_slice(addresses);
            out.extend_from_slice(&ethertype.to_be_bytes());
            out.extend_from_slice(packet);
            let mut packet = Frame::parse(buffer);
            packet.set_frame(Some(number));
            Received::Numbered(packet)
        }
    };
    Ok((Mac(*source), received))
}

fn frame(pool: &Pool, to: Mac, source: Mac, payload: impl FnOnce(&mut Vec<u8>)) -> Frame {
    let mut buffer = pool.take();
    let out = buffer.edit();
    out.extend_from_slice(&to.0);
    out.extend_from_slice(&source.0);
    out.extend_from_slice(&ETHERTYPE.to_be_bytes());
    payload(out);
    Frame::parse(buffer)
}

#[cfg(test)]
mod tests;
