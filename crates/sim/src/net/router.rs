//! A router: forwards by its table and nothing else.

use core::net::Ipv4Addr;

use super::{Context, LinkId, Node, Packet};

/// Forwards packets by its table. What is addressed to it ends here.
#[derive(Clone, Debug, Default)]
pub struct Router {
    addrs: Vec<Ipv4Addr>,
    stats: RouterStats,
}

/// What a router did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RouterStats {
    /// Handed on.
    pub forwarded: u64,
    /// Addressed to the router itself.
    pub consumed: u64,
    /// Came in damaged (LNK-10).
    pub corrupted: u64,
    /// Had passed too many routers, or were frames of a link, which nobody forwards.
    pub expired: u64,
    /// No route, or the link did not take it.
    pub dropped: u64,
}

impl Router {
    /// A router with these addresses of its own.
    pub fn new(addrs: impl IntoIterator<Item = Ipv4Addr>) -> Self {
        Self { addrs: addrs.into_iter().collect(), ..Self::default() }
    }

    /// What it did.
    pub const fn stats(&self) -> &RouterStats {
        &self.stats
    }
}

impl Node for Router {
    #[inline]
    fn handle_packet(&mut self, ctx: &mut Context<'_>, _link: LinkId, mut packet: Packet) {
        if packet.corrupted {
            self.stats.corrupted += 1;
        } else if self.addrs.contains(&packet.next_address()) {
            self.stats.consumed += 1;
        } else if !packet.pass_router() {
            self.stats.expired += 1;
        } else if ctx.send(packet).is_ok() {
            self.stats.forwarded += 1;
        } else {
            self.stats.dropped += 1;
        }
    }
}
