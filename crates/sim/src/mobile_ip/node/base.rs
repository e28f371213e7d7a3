use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use lasthop_units::Time;

use super::{pack, unpack};
use crate::mobile_ip::{Delivery, Envelope, ForeignAgent};
use crate::net::{Context, LinkId, Packet};

/// What a packet is to a base station, once Mobile IP has had its part.
#[derive(Debug)]
pub enum Passage {
    /// Mobile IP took it.
    Taken,
    /// It is for a mobile here and out of its tunnel: an agent may look at it, keep it, or hand it
    /// back to [`BaseIp::deliver`] (MIP-7).
    ToMobile(Packet),
    /// It came from a mobile: it may be intercepted, and goes on by the forwarding table (MIP-3).
    FromMobile(Packet),
    /// It is none of Mobile IP's: for the node itself, or to be forwarded by its table.
    Other(Packet),
}

/// The Mobile IP layer of a base station, to be part of any node that is one.
#[derive(Clone, Debug)]
pub struct BaseIp {
    agent: ForeignAgent,
    /// The radios: the link up from the mobile, and the link down to it.
    radios: Vec<(LinkId, LinkId)>,
    /// The link down to each mobile that ever asked here.
    mobiles: BTreeMap<Ipv4Addr, LinkId>,
}

impl BaseIp {
    /// Mobiles remembered; beyond, those that are not visitors are removed.
    const MOBILES: usize = 4096;

    /// A base without radios.
    pub fn new(agent: ForeignAgent) -> Self {
        Self { agent, radios: Vec::new(), mobiles: BTreeMap::new() }
    }

    /// Serves a radio, given as [`Network::add_radio`](crate::net::Network::add_radio) gives it.
    pub fn add_radio(&mut self, [down, up]: [LinkId; 2]) {
        self.radios.push((up, down));
    }

    /// The agent.
    pub const fn agent(&self) -> &ForeignAgent {
        &self.agent
    }

    /// Mobile IP's part in a packet that came out of `link`.
    pub fn handle_packet(
        &mut self,
        ctx: &mut Context<'_>,
        link: LinkId,
        mut packet: Packet,
    ) -> Passage {
        let here = packet.dst == self.agent.address() || packet.dst.is_multicast();
        if let Some(envelope) = unpack(&packet).filter(|_| here) {
            self.handle_message(ctx, link, &envelope);
            return Passage::Taken;
        }
        if packet.corrupted {
            return Passage::Other(packet);
        }
        if packet.tunnel.is_some_and(|tunnel| tunnel.dst == self.agent.address()) {
            packet.decapsulate();
            return self.detunnelled(ctx, packet);
        }
        if self.down(link).is_some() {
            return Passage::FromMobile(packet);
        }
        match self.agent.deliver(ctx.now(), packet.dst) {
            Delivery::Visitor(_) if packet.tunnel.is_none() => Passage::ToMobile(packet),
            _ => Passage::Other(packet),
        }
    }

    /// Sends a packet over the radio to the visitor that it is for, or that routes for it. One for
    /// nobody here is dropped: its mobile has left (MIP-4).
    pub fn deliver(&mut self, ctx: &mut Context<'_>, packet: Packet) {
        if let Delivery::Visitor(home) = self.agent.deliver(ctx.now(), packet.dst)
            && let Some(&down) = self.mobiles.get(&home)
        {
            // What the radio does not take is lost and counted there.
            let _ = ctx.send_on(down, packet);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub fn next_timeout(&self) -> Option<Time> {
        self.agent.next_timeout()
    }

    /// The time asked for has come.
    pub fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        self.flush(ctx);
    }

    fn down(&self, up: LinkId) -> Option<LinkId> {
        self.radios.iter().find(|radio| radio.0 == up).map(|radio| radio.1)
    }

    fn handle_message(&mut self, ctx: &mut Context<'_>, link: LinkId, envelope: &Envelope) {
        if let Some(down) = self.down(link) {
            if self.mobiles.len() >= Self::MOBILES {
                let now = ctx.now();
                self.mobiles.retain(|&home, _| self.agent.is_visitor(now, home));
            }
            self.mobiles.insert(envelope.src, down);
        }
        self.agent.handle(ctx.now(), envelope);
        self.flush(ctx);
    }

    fn detunnelled(&self, ctx: &mut Context<'_>, mut packet: Packet) -> Passage {
        match self.agent.deliver(ctx.now(), packet.dst) {
            Delivery::Visitor(_) => Passage::ToMobile(packet),
            Delivery::Forward(care_of) => {
                packet.encapsulate(self.agent.address(), care_of);
                Passage::Other(packet)
            }
            Delivery::Nobody => Passage::Taken,
        }
    }

    fn flush(&mut self, ctx: &mut Context<'_>) {
        while let Some(envelope) = self.agent.poll_transmit(ctx.now()) {
            // What a link does not take is lost and counted there.
            if envelope.is_local() {
                for &(_, down) in &self.radios {
                    let _ = ctx.send_on(down, pack(ctx, &envelope));
                }
            } else if let Some(&down) = self.mobiles.get(&envelope.dst) {
                let _ = ctx.send_on(down, pack(ctx, &envelope));
            } else {
                let _ = ctx.send(pack(ctx, &envelope));
            }
        }
    }
}
