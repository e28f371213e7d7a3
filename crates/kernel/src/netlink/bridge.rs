//! Bridges and their ports.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};

use super::requests::was_new;
use super::{NetlinkError, Rtnetlink};

impl Rtnetlink {
    /// Makes a bridge and switches it on. `false` if an interface of that name was there already.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn add_bridge(&mut self, name: &str) -> Result<bool, NetlinkError> {
        let mut link = LinkMessage::default();
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        link.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]),
        ];
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        was_new(self.order(Message::NewLink(link), flags, || format!("make the bridge {name}")))
    }

    /// Makes an interface a port of a bridge, and switches it on.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn join_bridge(&mut self, interface: u32, bridge: u32) -> Result<(), NetlinkError> {
        let mut link = LinkMessage::default();
        link.header.index = interface;
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        link.attributes = vec![LinkAttribute::Controller(bridge)];
        let what = || format!("make interface {interface} a port of bridge {bridge}");
        self.order(Message::SetLink(link), 0, what)
    }
}
