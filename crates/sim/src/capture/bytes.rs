//! Packets of the simulated network as bytes.

use core::net::Ipv4Addr;

use lasthop_wire::ip::{self, Addresses, Header, Protocol};
use lasthop_wire::mobile_tcp::ETHERTYPE_HOP;
use lasthop_wire::tcp::{Flags, Segment};
use lasthop_wire::{udp, unsplit};

use super::PacketError;
use crate::net::{Body, Datagram, Ecn, Payload};

/// The pattern repeats after this many bytes.
const PERIOD: usize = 256;
/// No packet has a longer payload.
const MOST: usize = u16::MAX as usize;
/// What IANA keeps for nobody: a frame has no protocol of IP's.
const RESERVED: Protocol = Protocol(255);

/// Where packets are built, again and again in the same memory.
pub(super) struct Scratch {
    packet: Vec<u8>,
    /// The payload that nobody wrote: at place `n` of a stream the low byte of `n`. As long as the
    /// longest payload from any place within a period.
    pattern: Box<[u8]>,
}

impl Scratch {
    pub(super) fn new() -> Self {
        let pattern = (0..PERIOD + MOST).map(|n| n as u8).collect();
        Self { packet: Vec::new(), pattern }
    }

    /// The packet built last.
    pub(super) fn packet(&self) -> &[u8] {
        &self.packet
    }

    pub(super) fn datagram(&mut self, packet: &Datagram) -> Result<(), PacketError> {
        self.packet.clear();
        match &packet.body {
            Body::Frame { ethertype } => {
                self.push_frame(packet, *ethertype);
                return Ok(());
            }
            Body::Compressed { header, segment } => {
                return self.push_compressed(packet, header, segment);
            }
            _ => {}
        }
        let between = Addresses::V4 { src: packet.src, dst: packet.dst };
        let mut header = Header::new(between, protocol(&packet.body));
        header.ttl = packet.ttl;
        header.traffic_class = ecn_bits(packet.ecn);

        let payload = packet.payload();
        let len = packet.body.header_len() as usize + payload.len() as usize;
        if let Some(tunnel) = packet.tunnel {
            let ends = Addresses::V4 { src: tunnel.src, dst: tunnel.dst };
            let inner = ip::IPV4_HEADER as usize + len;
            header.encapsulated(ends).emit(inner, &mut self.packet)?;
        }
        header.emit(len, &mut self.packet)?;
        self.push_body(&between, &packet.body, payload)?;
        if packet.corrupted {
            self.corrupt();
        }
        Ok(())
    }

    fn push_body(
        &mut self,
        between: &Addresses,
        body: &Body,
        payload: Payload<'_>,
    ) -> Result<(), PacketError> {
        match *body {
            Body::Tcp(ref segment) => return self.push_segment(between, segment, payload),
            Body::Udp { src_port, dst_port } => {
                let payload = bytes(&self.pattern, 0, payload);
                let header = udp::Header { src_port, dst_port };
                header.emit(between, payload, &mut self.packet)?;
            }
            Body::Other { .. } | Body::Frame { .. } | Body::Compressed { .. } => {
                let payload = bytes(&self.pattern, 0, payload);
                self.packet.extend_from_slice(payload);
            }
        }
        Ok(())
    }

    fn push_frame(&mut self, frame: &Datagram, ethertype: u16) {
        self.push_stations(frame, ethertype);
        self.packet.extend_from_slice(bytes(&self.pattern, 0, frame.payload()));
        if frame.corrupted {
            self.corrupt();
        }
    }

    fn push_stations(&mut self, frame: &Datagram, ethertype: u16) {
        self.packet.extend_from_slice(&station(frame.dst));
        self.packet.extend_from_slice(&station(frame.src));
        self.packet.extend_from_slice(&ethertype.to_be_bytes());
    }

    /// The length in front is the carrier's: Ethernet pads short frames.
    fn push_compressed(
        &mut self,
        packet: &Datagram,
        header: &unsplit::Header,
        segment: &Segment,
    ) -> Result<(), PacketError> {
        let between = Addresses::V4 { src: packet.src, dst: packet.dst };
        let mut ip = Header::new(between, Protocol::TCP);
        ip.ttl = packet.ttl;
        ip.traffic_class = ecn_bits(packet.ecn);
        let len = segment.header_len() as usize + packet.payload_len() as usize;
        ip.emit(len, &mut self.packet)?;
        self.push_segment(&between, segment, packet.payload())?;
        let mut compressed = Vec::with_capacity(self.packet.len());
        unsplit::compress(&self.packet, header, &mut compressed)?;
        let len = u16::try_from(compressed.len()).unwrap_or(u16::MAX);
        self.packet.clear();
        self.push_stations(packet, ETHERTYPE_HOP);
        self.packet.extend_from_slice(&len.to_be_bytes());
        self.packet.extend_from_slice(&compressed);
        if packet.corrupted {
            self.corrupt();
        }
        Ok(())
    }

    fn push_segment(
        &mut self,
        between: &Addresses,
        segment: &Segment,
        payload: Payload<'_>,
    ) -> Result<(), PacketError> {
        let first = segment.seq + u32::from(segment.flags.contains(Flags::SYN));
        let payload = bytes(&self.pattern, first.0, payload);
        Ok(segment.emit(between, payload, &mut self.packet)?)
    }

    /// Flips a bit that the transport's checksum covers.
    fn corrupt(&mut self) {
        if let Some(last) = self.packet.last_mut() {
            *last ^= 1;
        }
    }
}

/// The payload, or the pattern in its stead from place `from` of its stream. What is too long for
/// any packet is cut: its IP header has refused it before.
fn bytes<'a>(pattern: &'a [u8], from: u32, payload: Payload<'a>) -> &'a [u8] {
    match payload {
        Payload::Real(bytes) => bytes,
        Payload::Virtual(len) => {
            let start = from as usize % PERIOD;
            &pattern[start..start + (len as usize).min(MOST)]
        }
    }
}

/// A station's Ethernet address: locally administered, with its IP address in it.
fn station(addr: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = addr.octets();
    [0x02, 0, a, b, c, d]
}

fn protocol(body: &Body) -> Protocol {
    match *body {
        Body::Tcp(_) => Protocol::TCP,
        Body::Udp { .. } => Protocol::UDP,
        Body::Other { protocol } => Protocol(protocol),
        Body::Frame { .. } | Body::Compressed { .. } => RESERVED,
    }
}

/// RFC 3168 section 5.
fn ecn_bits(ecn: Ecn) -> u8 {
    match ecn {
        Ecn::NotCapable => 0b00,
        Ecn::Capable => 0b10,
        Ecn::Congested => 0b11,
    }
}
