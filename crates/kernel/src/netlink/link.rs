//! Interfaces and their addresses, as they are to be.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};

use super::message::Message;
use super::requests::{DELETE_ADDRESS, NEW_ADDRESS, SET_LINK, was_new, was_there};
use super::{
    ADDRESS_ADDRESS, ADDRESS_LOCAL, LINK_MTU, LINK_UP, NetlinkError, Prefix, Rtnetlink, family,
};

// linux/if_addr.h: nobody is asked first whether he has the address
const ADDRESS_NODAD: u8 = 1 << 1;

/// The message that sets those of an interface's flags that `which` has; a new one has no number yet.
pub(super) fn message(kind: u16, interface: u32, flags: u32, which: u32) -> Message {
    // struct ifinfomsg: family, padding, type, index, flags, which of them change
    let fields = [0, interface, flags, which];
    let fields: Vec<u8> = fields.iter().flat_map(|field: &u32| field.to_ne_bytes()).collect();
    Message::new(kind, &fields)
}

/// The message that gives the interface an address, or takes it away.
fn address(kind: u16, interface: u32, (ip, length): Prefix) -> Message {
    // struct ifaddrmsg: family, prefix, flags, scope, interface
    let [a, b, c, d] = interface.to_ne_bytes();
    let flags = if ip.is_ipv6() { ADDRESS_NODAD } else { 0 };
    Message::new(kind, &[family(ip.is_ipv6()), length, flags, 0, a, b, c, d])
        .with_ip(ADDRESS_LOCAL, ip)
        .with_ip(ADDRESS_ADDRESS, ip)
}

impl Rtnetlink {
    /// Switches an interface on, or off.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn set_up(&mut self, interface: u32, up: bool) -> Result<(), NetlinkError> {
        let link = message(SET_LINK, interface, if up { LINK_UP } else { 0 }, LINK_UP);
        let state = if up { "on" } else { "off" };
        self.order(link, 0, &|| format!("switch interface {interface} {state}"))
    }

    /// Sets the longest packet that an interface sends, bytes of IP.
    ///
    /// # Errors
    ///
    /// The kernel's error, such as that the interface cannot have it. Below 1280 there is no IPv6.
    pub fn set_mtu(&mut self, interface: u32, mtu: u32) -> Result<(), NetlinkError> {
        let link = message(SET_LINK, interface, 0, 0).with_u32(LINK_MTU, mtu);
        self.order(link, 0, &|| format!("set the MTU of interface {interface} to {mtu}"))
    }

    /// Gives an interface an address, and this host the route to its prefix. Neighbours are not asked
    /// first whether they have an IPv6 address: sockets can be bound to it at once, and what comes for
    /// it arrives a moment later. `false` if the interface had it already.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn add_address(&mut self, interface: u32, prefix: Prefix) -> Result<bool, NetlinkError> {
        let (ip, length) = prefix;
        let what = || format!("give interface {interface} the address {ip}/{length}");
        let message = address(NEW_ADDRESS, interface, prefix);
        was_new(self.order(message, NLM_F_CREATE | NLM_F_EXCL, &what))
    }

    /// Takes an address from an interface. `false` if it did not have it.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn delete_address(&mut self, interface: u32, prefix: Prefix) -> Result<bool, NetlinkError> {
        let (ip, length) = prefix;
        let what = || format!("take the address {ip}/{length} from interface {interface}");
        was_there(self.order(address(DELETE_ADDRESS, interface, prefix), 0, &what))
    }
}
