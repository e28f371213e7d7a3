//! One connection at one half of a hop.

use core::net::IpAddr;

use lasthop_units::{Duration, Time};
use lasthop_wire::agent::Message;
use lasthop_wire::ip::{IPV4_HEADER, IPV6_HEADER};
use lasthop_wire::tcp::{Flags, Options, Segment, Seq};
use lasthop_wire::unsplit::Header;

use super::receiver::Receiver;
use super::sender::{Context, Sender};
use super::{Config, Stats};
use crate::{Packet, Queue, Side, Tcp};

/// What opens or ends a connection goes with IP's header (ALT-2).
const CONTROL: Flags = Flags::SYN.with(Flags::FIN).with(Flags::RST);

/// Doublings of the time between two offers that count.
const DOUBLINGS: u32 = 12;

/// What one call works with.
pub(super) struct Around<'a, P> {
    pub(super) now: Time,
    pub(super) config: &'a Config,
    pub(super) hop: Side,
    /// Bytes that may be kept beyond those that are.
    pub(super) room: u64,
    pub(super) out: &'a mut Queue<P>,
    pub(super) stats: &'a mut Stats,
}

impl<P> Around<'_, P> {
    pub(super) fn context(&mut self) -> Context<'_> {
        Context { now: self.now, config: self.config, stats: self.stats }
    }
}

/// A half's state of a connection. All of it is soft (ALT-7).
#[derive(Clone, Debug)]
pub(super) struct Flow<P> {
    /// What the other half puts into its packets.
    pub(super) cid: u16,
    /// What this half puts into its own: none as long as it does not know, and then they go as they
    /// are.
    pub(super) peer: Option<u16>,
    /// The other half knows `cid`.
    pub(super) heard: bool,
    /// The connection was opened without an offer coming: there is no other half.
    pub(super) mute: bool,
    /// The SYN of the end on this side of the hop.
    pub(super) own_syn: Option<Seq>,
    /// The SYN that came over the hop.
    pub(super) hop_syn: Option<Seq>,
    offers: u32,
    next_offer: Time,
    pub(super) sender: Sender<P>,
    pub(super) receiver: Receiver,
}

impl<P: Packet> Flow<P> {
    pub(super) fn new(config: &Config, cid: u16) -> Self {
        Self {
            cid,
            peer: None,
            heard: false,
            mute: false,
            own_syn: None,
            hop_syn: None,
            offers: 0,
            next_offer: Time::ZERO,
            sender: Sender::new(config),
            receiver: Receiver::default(),
        }
    }

    /// When it wants to be called.
    pub(super) fn due(&self) -> Option<Time> {
        [self.sender.due(), self.receiver.due()].into_iter().flatten().min()
    }

    /// The end on this side opens the connection or accepts it: the packet takes the CID along, if
    /// there is room and, on a SYN-ACK, somebody who takes it off (ALT-3).
    pub(super) fn open(&mut self, around: &mut Around<'_, P>, segment: &Segment, mut packet: P) {
        if self.own_syn != Some(segment.seq) {
            self.own_syn = Some(segment.seq);
            self.sender.begin(segment.end());
        }
        let answers = segment.flags.contains(Flags::ACK);
        let takes = with_cid(segment, self.cid).filter(|_| segment.len == 0);
        match takes.filter(|_| !answers || self.peer.is_some()) {
            Some(offer) => {
                packet.set_segment(&offer);
                around.stats.offers += 1;
            }
            None if answers => {
                self.peer = None;
                self.mute = true;
            }
            None => {}
        }
        around.stats.plain += 1;
        around.out.packet(around.hop, packet);
    }

    /// The end on this side sends something else.
    pub(super) fn send(&mut self, around: &mut Around<'_, P>, tcp: &Tcp, packet: P) {
        if tcp.segment.flags.contains(Flags::ACK) {
            self.receiver.on_own_ack(tcp.segment.ack);
        }
        // Nobody asks for a copy who does not know the connection.
        if self.peer.is_some() {
            let room = around.room;
            self.sender.on_data(&mut around.context(), &tcp.segment, &packet, room);
        }
        self.put(around, tcp, packet, false);
    }

    /// Sends the copies that are due.
    pub(super) fn repair(&mut self, around: &mut Around<'_, P>) {
        let mut repairs = core::mem::take(self.sender.repairs());
        for packet in repairs.drain(..) {
            if let Some(tcp) = packet.tcp() {
                self.put(around, &tcp, packet, true);
            }
        }
        *self.sender.repairs() = repairs;
    }

    /// The time asked for has come.
    pub(super) fn on_timeout(&mut self, around: &mut Around<'_, P>) {
        if self.receiver.due().is_some_and(|due| due <= around.now) {
            if let (Some(cid), Some(request)) = (self.peer, self.receiver.waiting()) {
                let reply = self.receiver.reply();
                around.out.message(around.hop, Message::Request { cid, reply, request });
                around.stats.requests += 1;
            }
            self.receiver.request_sent();
        }
        self.sender.on_timeout(&mut around.context());
        self.repair(around);
    }

    /// The other half does not know the connection: packets go as they are until it offers a CID
    /// again (ALT-7).
    pub(super) fn fall_back(&mut self, now: Time) {
        self.peer = None;
        self.heard = false;
        self.resume(now);
    }

    /// There may be a receiver again.
    pub(super) fn resume(&mut self, now: Time) {
        self.mute = false;
        self.offers = 0;
        self.next_offer = now;
        self.sender.hurry(now);
    }

    /// Puts a packet on the hop, with a compressed header if it can be (ALT-4).
    fn put(&mut self, around: &mut Around<'_, P>, tcp: &Tcp, mut packet: P, repeat: bool) {
        let control = tcp.segment.flags.intersects(CONTROL);
        if let Some(cid) = self.peer.filter(|_| !control) {
            let request = self.receiver.waiting();
            let header = Header {
                cid,
                cycle: self.sender.cycle(),
                reply: self.receiver.reply(),
                repeat,
                request,
                offer: (!self.heard).then_some(self.cid),
            };
            if packet.compress(&header) {
                if request.is_some() {
                    self.receiver.request_sent();
                    around.stats.ridden_requests += 1;
                }
                around.stats.compressed += 1;
                around.out.packet(around.hop, packet);
                return;
            }
        } else if !control {
            self.attach_cid(around, tcp, &mut packet);
        }
        around.stats.plain += 1;
        around.out.packet(around.hop, packet);
    }

    /// A packet of a connection in mid-stream takes the CID along, if there is room and it is time.
    fn attach_cid(&mut self, around: &mut Around<'_, P>, tcp: &Tcp, packet: &mut P) {
        let config = around.config;
        if self.mute || self.offers >= config.offers || around.now < self.next_offer {
            return;
        }
        let ip = match tcp.src.ip() {
            IpAddr::V4(_) => IPV4_HEADER,
            IpAddr::V6(_) => IPV6_HEADER,
        };
        let fits = |segment: &Segment| {
            (ip + segment.header_len()).saturating_add(segment.len) <= config.mtu
        };
        let Some(offer) = with_cid(&tcp.segment, self.cid).filter(fits) else { return };
        packet.set_segment(&offer);
        around.stats.offers += 1;
        let pause: Duration = config.tick.saturating_mul(1 << self.offers.min(DOUBLINGS));
        self.next_offer = around.now + pause;
        self.offers += 1;
    }
}

/// The segment with a CID, if its header has room for one and loses nothing.
fn with_cid(segment: &Segment, cid: u16) -> Option<Segment> {
    let options = Options { cid: Some(cid), ..segment.options };
    let keeps = options.sack_that_fits().len() == segment.options.sack_that_fits().len();
    let fits = options.len() <= Options::MAX_LEN;
    (keeps && fits).then_some(Segment { options, ..*segment })
}
