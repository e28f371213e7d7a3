//! Proxies: addresses for which this host answers its neighbours' questions (ip-neighbour(8)).

use std::net::IpAddr;

use super::message::Message;
use super::{FAMILY_ANY, family};

// linux/neighbour.h
const DESTINATION: u16 = 1;
const FLAG_PROXY: u8 = 1 << 3;

/// struct ndmsg: family, padding, interface, state, flags, type
fn fields(family: u8, interface: u32) -> [u8; 12] {
    let [a, b, c, d] = interface.to_ne_bytes();
    [family, 0, 0, 0, a, b, c, d, 0, 0, FLAG_PROXY, 0]
}

/// The message that names one.
pub(super) fn message(kind: u16, interface: u32, ip: IpAddr) -> Message {
    Message::new(kind, &fields(family(ip.is_ipv6()), interface)).with_ip(DESTINATION, ip)
}

/// The message that asks for all.
pub(super) fn question(kind: u16) -> Message {
    Message::new(kind, &fields(FAMILY_ANY, 0))
}

/// The interface and the address that a message names.
pub(super) fn named(message: &Message) -> Option<(u32, IpAddr)> {
    let (&[_, _, _, _, a, b, c, d, ..], attributes) = message.parts::<12>()?;
    Some((u32::from_ne_bytes([a, b, c, d]), attributes.find(DESTINATION)?.ip()?))
}
