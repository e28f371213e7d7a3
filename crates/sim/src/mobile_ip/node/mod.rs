//! The machines in a [`Network`](crate::net::Network): what an IP layer adds to a node.

mod base;
mod home;
mod mobile;

pub use base::{BaseIp, Passage};
pub use home::HomeRouter;
pub use mobile::MobileIp;

use super::{Envelope, Message, REGISTRATION_PORT};
use crate::net::{Body, Context, Datagram, Packet, Payload};

const ICMP: u8 = 1;

/// The packet that carries a message.
fn pack(ctx: &Context<'_>, envelope: &Envelope) -> Packet {
    let body = if envelope.message.is_icmp() {
        Body::Other { protocol: ICMP }
    } else {
        Body::Udp { src_port: REGISTRATION_PORT, dst_port: REGISTRATION_PORT }
    };
    let mut packet = ctx.packet(envelope.src, envelope.dst, body);
    packet.set_bytes(&envelope.message.encode());
    packet
}

/// The message that a packet carries, if it carries one. One in a tunnel is the tunnel's affair.
fn unpack(packet: &Datagram) -> Option<Envelope> {
    if packet.tunnel.is_some() || packet.corrupted {
        return None;
    }
    let Payload::Real(bytes) = packet.payload() else { return None };
    let message = match packet.body {
        Body::Other { protocol: ICMP } => Message::decode_icmp(bytes),
        Body::Udp { dst_port: REGISTRATION_PORT, .. } => Message::decode_udp(bytes),
        Body::Tcp(_)
        | Body::Udp { .. }
        | Body::Other { .. }
        | Body::Frame { .. }
        | Body::Compressed { .. } => None,
    }?;
    Some(Envelope { src: packet.src, dst: packet.dst, message })
}
