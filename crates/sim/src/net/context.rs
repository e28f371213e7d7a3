//! What a node sees of the network while it handles something.

use core::net::Ipv4Addr;

use lasthop_units::{Bytes, Time};

use super::shared::Core;
use super::{Body, LinkId, NodeId, Packet, Undelivered};

/// The network as one node sees it: the time, its own forwarding table and links.
pub struct Context<'a> {
    pub(super) core: &'a mut Core,
    pub(super) node: NodeId,
}

impl Context<'_> {
    /// The present.
    #[inline]
    pub fn now(&self) -> Time {
        self.core.now
    }

    /// Which node this is.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// A new packet without payload, or, if it is a segment's, with a virtual one.
    #[inline]
    pub fn packet(&self, src: Ipv4Addr, dst: Ipv4Addr, body: Body) -> Packet {
        self.core.pool.packet(src, dst, body)
    }

    /// Lets `act` send into `sent` instead of by the network, so that something may stand between a
    /// node and its links.
    pub fn divert(&mut self, sent: &mut Vec<Packet>, act: impl FnOnce(&mut Context<'_>)) {
        let before = self.core.diverted.replace(core::mem::take(sent));
        act(&mut Context { core: self.core, node: self.node });
        *sent = core::mem::replace(&mut self.core.diverted, before).unwrap_or_default();
    }

    /// Sends a packet by the link that the node's table gives for it.
    ///
    /// # Errors
    ///
    /// The packet is gone.
    #[inline]
    pub fn send(&mut self, packet: Packet) -> Result<(), Undelivered> {
        if let Some(sent) = &mut self.core.diverted {
            sent.push(packet);
            return Ok(());
        }
        match self.core.route(self.node, packet.next_address()) {
            Some(link) => self.core.push(self.node, link, packet),
            None => self.core.drop_unroutable(self.node, packet),
        }
    }

    /// Sends a packet by a link of this node, whatever the table says.
    ///
    /// # Errors
    ///
    /// The packet is gone.
    pub fn send_on(&mut self, link: LinkId, packet: Packet) -> Result<(), Undelivered> {
        if self.core.ends(link).is_none_or(|(from, _)| from != self.node) {
            return self.core.drop_unroutable(self.node, packet);
        }
        self.core.push(self.node, link, packet)
    }

    /// Sends a packet by this link of the node, or by the one that the table gives if none is named.
    ///
    /// # Errors
    ///
    /// The packet is gone.
    #[inline]
    pub(crate) fn send_by(
        &mut self,
        link: Option<LinkId>,
        packet: Packet,
    ) -> Result<(), Undelivered> {
        match link {
            Some(link) => self.send_on(link, packet),
            None => self.send(packet),
        }
    }

    /// The link by which the node sends to `dst`.
    pub fn route(&self, dst: Ipv4Addr) -> Option<LinkId> {
        self.core.route(self.node, dst)
    }

    /// Changes the node's own route for a host.
    pub fn set_route(&mut self, dst: Ipv4Addr, link: Option<LinkId>) {
        self.core.set_route(self.node, dst, link);
    }

    /// Changes the node's own default route.
    pub fn set_default_route(&mut self, link: Option<LinkId>) {
        self.core.set_default_route(self.node, link);
    }

    /// The longest IP datagram that the link towards `dst` carries (LNK-3).
    pub fn mtu_towards(&self, dst: Ipv4Addr) -> Option<Bytes> {
        self.core.mtu(self.route(dst)?)
    }

    /// Whether the queue of the link towards `dst` has room for one packet of `size` bytes at most.
    pub fn is_nearly_full(&mut self, dst: Ipv4Addr, size: Bytes) -> bool {
        self.route(dst).is_some_and(|link| self.core.is_nearly_full(link, size))
    }

    /// The node at the far end of a link.
    pub fn far_end(&self, link: LinkId) -> Option<NodeId> {
        self.core.ends(link).map(|(_, to)| to)
    }
}
