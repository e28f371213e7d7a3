use lasthop_units::{LinkEvent, Time};

use super::{pack, unpack};
use crate::mobile_ip::{MobileRegistration, Upcall};
use crate::net::{Context, LinkId, Packet};

/// The Mobile IP layer of a mobile host or router, to be part of the node that is one. It has a
/// radio to each base station that it may meet, and sends everything over the one that is up.
#[derive(Clone, Debug)]
pub struct MobileIp {
    registration: MobileRegistration,
    /// The radios: the link down from the base, and the link up to it.
    radios: Vec<(LinkId, LinkId)>,
    attached: Option<usize>,
}

impl MobileIp {
    /// A mobile without radios.
    pub const fn new(registration: MobileRegistration) -> Self {
        Self { registration, radios: Vec::new(), attached: None }
    }

    /// Has a radio, given as [`Network::add_radio`](crate::net::Network::add_radio) gives it.
    pub fn add_radio(&mut self, [down, up]: [LinkId; 2]) {
        self.radios.push((down, up));
    }

    /// The registration.
    pub const fn registration(&self) -> &MobileRegistration {
        &self.registration
    }

    /// The next notification to the layers above (MIP-6).
    pub fn poll_upcall(&mut self) -> Option<Upcall> {
        self.registration.poll_upcall()
    }

    /// Mobile IP's part in a packet that came out of `link`; gives back what is not its own.
    pub fn handle_packet(
        &mut self,
        ctx: &mut Context<'_>,
        link: LinkId,
        packet: Packet,
    ) -> Option<Packet> {
        let here = packet.dst == self.registration.home() || packet.dst.is_multicast();
        let Some(envelope) = unpack(&packet).filter(|_| here) else { return Some(packet) };
        // Whatever the link reported or did not: there is the base.
        if let Some(radio) = self.radio(link) {
            self.attach(ctx, radio);
        }
        self.registration.handle(ctx.now(), &envelope);
        self.flush(ctx);
        None
    }

    /// Takes in what is known of one of the radios, named by either of its links. What is known of
    /// a radio that is not in use is of no use.
    pub fn handle_link_event(&mut self, ctx: &mut Context<'_>, link: LinkId, event: LinkEvent) {
        let Some(radio) = self.radio(link) else { return };
        match event {
            LinkEvent::Up => {
                if self.attached.is_some_and(|attached| attached != radio) {
                    self.registration.handle_link(ctx.now(), LinkEvent::Down);
                }
                self.attach(ctx, radio);
            }
            LinkEvent::Down | LinkEvent::Imminent { .. } | LinkEvent::Complete => {
                if self.attached != Some(radio) {
                    return;
                }
            }
        }
        self.registration.handle_link(ctx.now(), event);
        self.flush(ctx);
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub fn next_timeout(&self) -> Option<Time> {
        self.registration.next_timeout()
    }

    /// The time asked for has come.
    pub fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        self.flush(ctx);
    }

    fn radio(&self, link: LinkId) -> Option<usize> {
        self.radios.iter().position(|&(down, up)| link == down || link == up)
    }

    /// All that the mobile sends leaves by this radio, registered or not (MIP-5).
    fn attach(&mut self, ctx: &mut Context<'_>, radio: usize) {
        if self.attached != Some(radio) {
            self.attached = Some(radio);
            ctx.set_default_route(self.radios.get(radio).map(|radio| radio.1));
        }
    }

    fn flush(&mut self, ctx: &mut Context<'_>) {
        while let Some(envelope) = self.registration.poll_transmit(ctx.now()) {
            let attached = self.attached.and_then(|radio| self.radios.get(radio));
            let packet = pack(ctx, &envelope);
            // What the radio does not take is lost and counted there.
            let _ = match attached {
                Some(&(_, up)) => ctx.send_on(up, packet),
                None => ctx.send(packet),
            };
        }
    }
}
