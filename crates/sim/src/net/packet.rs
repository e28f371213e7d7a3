//! IP packets, and the pool that their memory comes from and returns to.

use core::fmt;
use core::net::Ipv4Addr;
use core::ops::{Deref, DerefMut};
use std::cell::Cell;
use std::rc::Rc;

use lasthop_units::Bytes;
use lasthop_wire::tcp::Segment;
use lasthop_wire::unsplit;

use super::LinkId;
use super::trace::fold;

/// Bytes of an IPv4 header without options.
pub const IP_HEADER: u32 = 20;
/// Bytes of a UDP header.
pub const UDP_HEADER: u32 = 8;
/// What a fresh packet may still cross (RFC 1700's recommended default).
const TTL: u8 = 64;

/// The explicit congestion notification field (RFC 3168 section 5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Ecn {
    /// The transport does not take part.
    #[default]
    NotCapable,
    /// The transport takes part: ECT(0).
    Capable,
    /// Some queue on the way was congested: CE.
    Congested,
}

/// The outer header of a packet within a packet: 20 bytes more (RFC 2003; MIP-3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tunnel {
    /// Where the tunnel begins.
    pub src: Ipv4Addr,
    /// Where the tunnel ends.
    pub dst: Ipv4Addr,
}

/// What follows the IP header.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Body {
    /// A TCP segment; its `len` is the packet's payload length.
    Tcp(Segment),
    /// A UDP datagram.
    Udp {
        /// The sender's port.
        src_port: u16,
        /// The receiver's port.
        dst_port: u16,
    },
    /// Any other protocol, by its IP protocol number; its header is part of the payload.
    Other {
        /// The number, such as 1 for ICMP.
        protocol: u8,
    },
    /// A frame of one link: there is no IP header, and a link is charged the payload and nothing
    /// else (MOB-1). The packet's addresses stand for the two stations of the link; no router
    /// forwards it, and nothing can put it into a tunnel.
    Frame {
        /// What the payload is, as on Ethernet.
        ethertype: u16,
    },
    /// A TCP segment with a compressed header in place of IP's and TCP's (ALT-4): a frame too.
    Compressed {
        /// What the link is charged for beside options and payload.
        header: unsplit::Header,
        /// What it becomes again; its `len` is the packet's payload length. Its ports do not cross
        /// the link.
        segment: Segment,
    },
}

impl Body {
    /// Bytes of the header that the body puts before its payload.
    #[inline]
    pub fn header_len(&self) -> u32 {
        match self {
            Self::Tcp(segment) => segment.header_len(),
            Self::Udp { .. } => UDP_HEADER,
            Self::Other { .. } | Self::Frame { .. } => 0,
            Self::Compressed { header, segment } => header.header_len() + segment.options.len(),
        }
    }

    /// Whether it travels on one link only.
    #[inline]
    pub const fn is_frame(&self) -> bool {
        matches!(self, Self::Frame { .. } | Self::Compressed { .. })
    }
}

/// What a packet carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload<'a> {
    /// This many bytes that nobody looks at: bulk flows carry a length only.
    Virtual(u32),
    /// These bytes.
    Real(&'a [u8]),
}

impl Payload<'_> {
    /// Its length.
    pub fn len(&self) -> u32 {
        match self {
            Self::Virtual(len) => *len,
            Self::Real(bytes) => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        }
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Which lengths packets have on links.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Headers {
    /// Headers and payload, as everywhere in reality.
    #[default]
    Counted,
    /// Payload only, and 40 bytes for a packet that has none: ns-2 with `useHeaders_ false`.
    Free,
}

/// An IP packet, or a frame of one link, as the network sees it.
#[derive(Debug)]
pub struct Datagram {
    /// The source address.
    pub src: Ipv4Addr,
    /// The destination address, inside of any tunnel.
    pub dst: Ipv4Addr,
    /// Routers that it may still pass.
    pub ttl: u8,
    /// Its congestion notification.
    pub ecn: Ecn,
    /// A link damaged it: whoever receives it drops it (LNK-10).
    pub corrupted: bool,
    /// It is in a tunnel.
    pub tunnel: Option<Tunnel>,
    /// The number that the link's own recovery gave it, in the link's header, which no length here
    /// counts (DDA-1).
    pub frame: Option<u32>,
    /// What follows its IP header is encrypted from host to host: nobody on the way can read it.
    pub encrypted: bool,
    /// What follows the IP header.
    pub body: Body,
    /// Stands for the headers in the trace hash; zero if it is not known.
    pub(super) digest: u64,
    /// Length of the IP datagram; holds only as long as the digest does.
    ip_len: u32,
    /// Length of a payload that is not a segment's.
    len: u32,
    real: bool,
    /// Keeps its memory when the packet's is used again.
    bytes: Vec<u8>,
}

impl Datagram {
    fn new(src: Ipv4Addr, dst: Ipv4Addr, body: Body) -> Self {
        Self {
            src,
            dst,
            ttl: TTL,
            ecn: Ecn::NotCapable,
            corrupted: false,
            tunnel: None,
            frame: None,
            encrypted: false,
            body,
            digest: 0,
            ip_len: 0,
            len: 0,
            real: false,
            bytes: Vec::new(),
        }
    }

    #[inline]
    fn renew(&mut self, src: Ipv4Addr, dst: Ipv4Addr, body: Body) {
        self.src = src;
        self.dst = dst;
        self.ttl = TTL;
        self.ecn = Ecn::NotCapable;
        self.corrupted = false;
        self.tunnel = None;
        self.frame = None;
        self.encrypted = false;
        self.body = body;
        self.digest = 0;
        self.len = 0;
        self.real = false;
    }

    /// Becomes a copy, in the memory that it has.
    fn copy_from(&mut self, other: &Self) {
        let mut bytes = core::mem::take(&mut self.bytes);
        bytes.clear();
        bytes.extend_from_slice(if other.real { &other.bytes } else { &[] });
        *self = Self { bytes, ..other.shallow() };
    }

    /// All but the bytes.
    fn shallow(&self) -> Self {
        Self { bytes: Vec::new(), ..*self }
    }

    /// Its segment, if it is TCP's, compressed or not.
    #[inline]
    pub const fn tcp(&self) -> Option<&Segment> {
        match &self.body {
            Body::Tcp(segment) | Body::Compressed { segment, .. } => Some(segment),
            Body::Udp { .. } | Body::Other { .. } | Body::Frame { .. } => None,
        }
    }

    /// What it carries.
    #[inline]
    pub fn payload(&self) -> Payload<'_> {
        if self.real { Payload::Real(&self.bytes) } else { Payload::Virtual(self.payload_len()) }
    }

    /// The bytes that it carries, for those who open them where they lie; none if they are virtual.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        self.real.then_some(self.bytes.as_mut_slice())
    }

    /// Bytes of payload.
    #[inline]
    pub fn payload_len(&self) -> u32 {
        match &self.body {
            Body::Tcp(segment) | Body::Compressed { segment, .. } => segment.len,
            Body::Udp { .. } | Body::Other { .. } | Body::Frame { .. } => self.len,
        }
    }

    /// Lets it carry `len` bytes that nobody looks at.
    pub fn set_virtual(&mut self, len: u32) {
        self.real = false;
        self.set_len(len);
    }

    /// Lets it carry `len` bytes, zero until written through the reference.
    pub fn set_real(&mut self, len: u32) -> &mut [u8] {
        self.real = true;
        self.set_len(len);
        self.bytes.clear();
        self.bytes.resize(len as usize, 0);
        &mut self.bytes
    }

    /// Lets it carry a copy of `bytes`.
    pub fn set_bytes(&mut self, bytes: &[u8]) {
        self.set_parts(bytes, &[]);
    }

    /// Lets it carry a copy of two pieces, as a ring gives them.
    pub fn set_parts(&mut self, first: &[u8], second: &[u8]) {
        self.real = true;
        self.bytes.clear();
        self.bytes.extend_from_slice(first);
        self.bytes.extend_from_slice(second);
        self.set_len(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
    }

    fn set_len(&mut self, len: u32) {
        match &mut self.body {
            Body::Tcp(segment) | Body::Compressed { segment, .. } => segment.len = len,
            Body::Udp { .. } | Body::Other { .. } | Body::Frame { .. } => self.len = len,
        }
    }

    /// Where routers send it: the tunnel's end, or the destination.
    #[inline]
    pub fn next_address(&self) -> Ipv4Addr {
        self.tunnel.map_or(self.dst, |tunnel| tunnel.dst)
    }

    /// Length of the whole IP datagram, any tunnel's header included; of a frame, which has no IP
    /// header, its payload's and that of a compressed header.
    #[inline]
    pub fn ip_len(&self) -> Bytes {
        let tunnel = if self.tunnel.is_some() { IP_HEADER } else { 0 };
        let ip = if self.body.is_frame() { 0 } else { tunnel + IP_HEADER };
        let headers = ip + self.body.header_len();
        Bytes::new(u64::from(headers) + u64::from(self.payload_len()))
    }

    /// Length that a link is charged.
    pub fn wire_len(&self, headers: Headers) -> Bytes {
        match (headers, self.payload_len()) {
            (Headers::Counted, _) => self.ip_len(),
            (Headers::Free, 0) => Bytes::new(40),
            (Headers::Free, len) => Bytes::new(u64::from(len)),
        }
    }
}

/// What stands for a packet's headers: addresses, the transport's header, the length, and whether a
/// queue marked it or it is encrypted.
#[inline]
fn digest(packet: &Datagram) -> u64 {
    let frame = packet.frame.map_or(0, |frame| u64::from(frame) << 1 | 1).rotate_left(20);
    let congested = u64::from(packet.ecn == Ecn::Congested).rotate_right(1);
    let addresses = u64::from(packet.src.to_bits()) << 32 | u64::from(packet.dst.to_bits());
    let (body, more) = match &packet.body {
        Body::Tcp(segment) => {
            let ports = u64::from(segment.src_port) << 16 | u64::from(segment.dst_port);
            let numbers = u64::from(segment.seq.0) << 32 | u64::from(segment.ack.0);
            let rest = u64::from(segment.flags.bits()) << 16 | u64::from(segment.window);
            (numbers, ports << 32 | rest)
        }
        Body::Udp { src_port, dst_port } => (u64::from(*src_port) << 16 | u64::from(*dst_port), 17),
        Body::Other { protocol } => (u64::from(*protocol), 1),
        Body::Frame { ethertype } => (u64::from(*ethertype), 2),
        Body::Compressed { header, segment } => {
            let numbers = u64::from(segment.seq.0) << 32 | u64::from(segment.ack.0);
            let rest = u64::from(segment.flags.bits()) << 16 | u64::from(segment.window);
            (numbers, u64::from(header.cid) << 32 | rest | 1 << 63)
        }
    };
    let encrypted = u64::from(packet.encrypted).rotate_right(2);
    let rest = u64::from(packet.payload_len()).rotate_right(24) ^ frame ^ congested ^ encrypted;
    fold(fold(addresses, body), more ^ rest)
}

struct Slot {
    datagram: Datagram,
    /// The link that it entered last.
    link: LinkId,
    /// Where it returns to; none while it is there.
    home: Option<Rc<Home>>,
    /// The next one that is free, while it is itself.
    next: Option<Box<Slot>>,
}

/// Where packets' memory waits to be used again.
#[derive(Default)]
struct Home {
    free: Cell<Option<Box<Slot>>>,
}

impl Home {
    #[inline(always)]
    fn packet(self: &Rc<Self>, src: Ipv4Addr, dst: Ipv4Addr, body: Body) -> Packet {
        let home = Some(Rc::clone(self));
        match self.free.take() {
            Some(mut slot) => {
                core::mem::forget(self.free.replace(slot.next.take()));
                slot.datagram.renew(src, dst, body);
                slot.home = home;
                Packet(Some(slot))
            }
            None => Self::fresh(Datagram::new(src, dst, body), home),
        }
    }

    #[cold]
    fn fresh(datagram: Datagram, home: Option<Rc<Self>>) -> Packet {
        Packet(Some(Box::new(Slot { datagram, link: LinkId::default(), home, next: None })))
    }
}

impl Drop for Home {
    /// One by one: a chain that frees itself link by link within link would need a deep stack.
    fn drop(&mut self) {
        let mut next = self.free.take();
        while let Some(mut slot) = next {
            next = slot.next.take();
        }
    }
}

/// The memory of a network's packets: after warm-up a packet costs no allocation.
#[derive(Default)]
pub(super) struct Pool(Rc<Home>);

impl Pool {
    /// A packet without payload; a segment's payload is virtual.
    #[inline]
    pub(super) fn packet(&self, src: Ipv4Addr, dst: Ipv4Addr, body: Body) -> Packet {
        self.0.packet(src, dst, body)
    }

    /// Packets that exist.
    pub(super) fn in_use(&self) -> usize {
        // Each holds its home, and so does the pool.
        Rc::strong_count(&self.0) - 1
    }
}

/// A packet on its way: a handle of one word. Its memory returns to the network's pool when it is
/// dropped, wherever that is: in a queue, on the air, or at a node.
pub struct Packet(Option<Box<Slot>>);

impl Packet {
    /// Puts it into a tunnel; one that it was in already is replaced (MIP-3). A frame, which is no
    /// IP packet, stays outside.
    pub fn encapsulate(&mut self, src: Ipv4Addr, dst: Ipv4Addr) {
        if !self.body.is_frame() {
            self.tunnel = Some(Tunnel { src, dst });
        }
    }

    /// Takes it out of its tunnel.
    pub fn decapsulate(&mut self) -> Option<Tunnel> {
        self.tunnel.take()
    }

    /// A router's step: false if the packet has passed too many, or is a frame, which ends where its
    /// link ends.
    #[inline]
    pub fn pass_router(&mut self) -> bool {
        let datagram = self.datagram_mut();
        datagram.ttl = datagram.ttl.saturating_sub(1);
        datagram.ttl > 0 && !datagram.body.is_frame()
    }

    /// Sees to it that the digest stands for the headers; what a link is charged.
    #[inline]
    pub(super) fn seal(&mut self, headers: Headers) -> Bytes {
        let datagram = self.datagram_mut();
        if datagram.digest == 0 {
            datagram.digest = digest(datagram);
            datagram.ip_len = u32::try_from(datagram.ip_len().get()).unwrap_or(u32::MAX);
        }
        match headers {
            Headers::Counted => Bytes::new(u64::from(datagram.ip_len)),
            Headers::Free => datagram.wire_len(headers),
        }
    }

    /// A queue on its way is congested (CC-2).
    #[cold]
    pub(super) fn set_congested(&mut self) {
        self.ecn = Ecn::Congested;
    }

    #[inline]
    pub(super) fn set_corrupted(&mut self) {
        self.datagram_mut().corrupted = true;
    }

    /// It goes onto a link.
    #[inline]
    pub(super) fn enter(&mut self, link: LinkId) {
        self.slot_mut().link = link;
    }

    /// The link that it entered last, which may share the channel that it comes out of.
    #[inline]
    pub(super) fn link(&self) -> LinkId {
        self.slot().link
    }

    #[inline]
    fn datagram_mut(&mut self) -> &mut Datagram {
        &mut self.slot_mut().datagram
    }

    #[inline]
    fn slot_mut(&mut self) -> &mut Slot {
        match &mut self.0 {
            Some(slot) => slot,
            None => unreachable!("only drop empties a packet"),
        }
    }

    #[inline]
    fn slot(&self) -> &Slot {
        match &self.0 {
            Some(slot) => slot,
            None => unreachable!("only drop empties a packet"),
        }
    }
}

impl Deref for Packet {
    type Target = Datagram;

    #[inline]
    fn deref(&self) -> &Datagram {
        &self.slot().datagram
    }
}

impl DerefMut for Packet {
    #[inline]
    fn deref_mut(&mut self) -> &mut Datagram {
        // Whatever changes, the digest may not stand for it any more.
        let datagram = self.datagram_mut();
        datagram.digest = 0;
        datagram
    }
}

impl Clone for Packet {
    fn clone(&self) -> Self {
        let Slot { datagram, link, home, .. } = self.slot();
        let Some(home) = home else { unreachable!("a packet on its way knows its home") };
        let mut copy = home.packet(datagram.src, datagram.dst, datagram.body);
        copy.copy_from(datagram);
        copy.enter(*link);
        copy
    }
}

impl Drop for Packet {
    #[inline]
    fn drop(&mut self) {
        let Some(mut slot) = self.0.take() else { return };
        if let Some(home) = slot.home.take() {
            slot.next = home.free.take();
            // What it replaces is nothing, which needs no dropping.
            core::mem::forget(home.free.replace(Some(slot)));
        }
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.slot().datagram.fmt(f)
    }
}
