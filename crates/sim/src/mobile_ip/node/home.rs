use lasthop_units::Time;

use super::{pack, unpack};
use crate::mobile_ip::{HomeAgent, Route};
use crate::net::{Context, LinkId, Node, Packet, Router};

/// A router with a home agent: packets for a mobile that is away leave it through a tunnel (MIP-1,
/// MIP-3).
#[derive(Clone, Debug)]
pub struct HomeRouter {
    agent: HomeAgent,
    router: Router,
    /// Where mobiles that are at home are.
    home_link: Option<LinkId>,
    tunnelled: u64,
    undelivered: u64,
}

impl HomeRouter {
    /// A router whose one address is the agent's.
    pub fn new(agent: HomeAgent) -> Self {
        let router = Router::new([agent.address()]);
        Self { agent, router, home_link: None, tunnelled: 0, undelivered: 0 }
    }

    /// Advertises, and delivers to mobiles that are at home, on `link`.
    pub fn set_home_link(&mut self, link: LinkId) {
        self.home_link = Some(link);
    }

    /// The agent.
    pub const fn agent(&self) -> &HomeAgent {
        &self.agent
    }

    /// Packets that left through a tunnel.
    pub const fn tunnelled(&self) -> u64 {
        self.tunnelled
    }

    /// Packets for a mobile that is neither bound nor, for want of a home link, at home.
    pub const fn undelivered(&self) -> u64 {
        self.undelivered
    }

    fn deliver_at_home(&mut self, ctx: &mut Context<'_>, mut packet: Packet) {
        match self.home_link {
            Some(link) if packet.pass_router() => {
                // What the link does not take is lost and counted there.
                let _ = ctx.send_on(link, packet);
            }
            _ => self.undelivered += 1,
        }
    }

    fn flush(&mut self, ctx: &mut Context<'_>) {
        while let Some(envelope) = self.agent.poll_transmit(ctx.now()) {
            let packet = pack(ctx, &envelope);
            // A mobile that is at home is asked and answered on the home link. What a link does
            // not take is lost and counted there.
            let local =
                envelope.is_local() || self.agent.route(ctx.now(), envelope.dst) == Route::Home;
            let _ = match self.home_link.filter(|_| local) {
                Some(link) => ctx.send_on(link, packet),
                None => ctx.send(packet),
            };
        }
    }
}

impl Node for HomeRouter {
    fn handle_packet(&mut self, ctx: &mut Context<'_>, link: LinkId, mut packet: Packet) {
        let here = packet.dst == self.agent.address() || packet.dst.is_multicast();
        if let Some(envelope) = unpack(&packet).filter(|_| here) {
            self.agent.handle(ctx.now(), &envelope);
            return self.flush(ctx);
        }
        if packet.tunnel.is_none() && !packet.corrupted {
            match self.agent.route(ctx.now(), packet.dst) {
                Route::Tunnel(care_of) => {
                    self.tunnelled += 1;
                    packet.encapsulate(self.agent.address(), care_of);
                }
                Route::Home => return self.deliver_at_home(ctx, packet),
                Route::Elsewhere => {}
            }
        }
        self.router.handle_packet(ctx, link, packet);
    }

    fn next_timeout(&self) -> Option<Time> {
        self.agent.next_timeout()
    }

    fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        self.flush(ctx);
    }
}
