//! Compressed packets as bytes.

use alloc::vec::Vec;
use core::net::SocketAddr;

use thiserror::Error;

use super::{Header, MARK, Request};
use crate::ip::{self, Addresses, Protocol};
use crate::tcp::Seq;

/// Code bits, in the first byte.
mod code {
    pub(super) const REPEAT: u8 = 0x08;
    pub(super) const RRQ: u8 = 0x04;
    pub(super) const RCR: u8 = 0x02;
    pub(super) const RC: u8 = 0x01;
}

/// What else the header has, in the second byte.
mod has {
    pub(super) const URGENT: u8 = 0x40;
    pub(super) const OFFER: u8 = 0x20;
    pub(super) const LABEL: u8 = 0x10;
    pub(super) const DSCP: u8 = 0x08;
    pub(super) const DF: u8 = 0x04;
    pub(super) const ECN: u8 = 0x03;
}

/// Bytes of a TCP header without options.
const TCP_HEADER: usize = 20;

/// Why a packet crosses the hop as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum CompressError {
    /// It is no IP packet, or a fragment.
    #[error(transparent)]
    Ip(#[from] ip::ParseError),
    /// What its IP header has beyond the plain one would be lost.
    #[error("the IP header has options, extensions or a reserved bit: send the packet as it is")]
    Extended,
    /// It is of another protocol.
    #[error("IP protocol {0} is not TCP: send the packet as it is")]
    Protocol(u8),
    /// Its TCP header is cut short or says so.
    #[error("{found} bytes of a TCP header, at least {least} are needed")]
    Truncated {
        /// How many bytes there are.
        found: usize,
        /// How many are needed.
        least: usize,
    },
}

/// Why bytes are not the compressed packet they were taken for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ParseError {
    /// The first byte is another one.
    #[error("{0:#04x} does not begin a compressed packet")]
    Mark(u8),
    /// The packet ends within this part of its header.
    #[error("a compressed packet ends within its {0}")]
    Truncated(&'static str),
    /// The data offset points into the TCP header.
    #[error("a TCP header of {0} words, at least 5 are needed")]
    HeaderLength(u8),
    /// The connection's ends cannot have sent it.
    #[error(transparent)]
    Ip(#[from] ip::EmitError),
}

/// Appends the compressed form of a whole IP packet.
///
/// # Errors
///
/// The packet has to go as it is; nothing is written. See [`CompressError`].
pub fn compress(packet: &[u8], header: &Header, out: &mut Vec<u8>) -> Result<(), CompressError> {
    let (ip, segment) = ip::Header::parse(packet)?;
    let label = plain_label(packet).ok_or(CompressError::Extended)?;
    if ip.protocol != Protocol::TCP {
        return Err(CompressError::Protocol(ip.protocol.0));
    }
    let (tcp, payload) = split(segment)?;
    let urgent = &tcp[18..TCP_HEADER];
    let dscp = ip.traffic_class & !has::ECN;

    let mut first = MARK;
    first |= bit(code::REPEAT, header.repeat);
    first |= bit(code::RRQ, header.request.is_some());
    first |= bit(code::RCR, header.reply);
    first |= bit(code::RC, header.cycle);
    let mut second = ip.traffic_class & has::ECN;
    second |= bit(has::URGENT, urgent != [0, 0]);
    second |= bit(has::OFFER, header.offer.is_some());
    second |= bit(has::LABEL, label != [0; 3]);
    second |= bit(has::DSCP, dscp != 0);
    second |= bit(has::DF, ip.dont_fragment);

    out.extend_from_slice(&[first, second]);
    out.extend_from_slice(&header.cid.to_be_bytes());
    // Sequence number to checksum.
    out.extend_from_slice(&tcp[4..18]);
    out.push(ip.ttl);
    if let Some(Request { ack, nis }) = header.request {
        out.extend_from_slice(&ack.0.to_be_bytes());
        out.extend_from_slice(&nis.0.to_be_bytes());
    }
    if let Some(offer) = header.offer {
        out.extend_from_slice(&offer.to_be_bytes());
    }
    if dscp != 0 {
        out.push(dscp);
    }
    if label != [0; 3] {
        out.extend_from_slice(&label);
    }
    if !ip.dont_fragment {
        out.extend_from_slice(&ip.id.to_be_bytes());
    }
    if urgent != [0, 0] {
        out.extend_from_slice(urgent);
    }
    out.extend_from_slice(&tcp[TCP_HEADER..]);
    out.extend_from_slice(payload);
    Ok(())
}

/// Reads what the header of a compressed packet says to this half, to find the connection.
///
/// # Errors
///
/// Names what is wrong or cut short.
pub fn parse(bytes: &[u8]) -> Result<Header, ParseError> {
    Ok(read(bytes)?.0)
}

/// Appends the whole IP packet, from `src` to `dst`, that was compressed to `bytes`.
///
/// # Errors
///
/// Names what is wrong or cut short; nothing is written.
pub fn expand(
    bytes: &[u8],
    (src, dst): (SocketAddr, SocketAddr),
    out: &mut Vec<u8>,
) -> Result<Header, ParseError> {
    let (header, rest) = read(bytes)?;
    let (options, payload) = rest.body.split_at(rest.options);
    let addresses = Addresses::new(src.ip(), dst.ip())?;
    let ip = ip::Header {
        ttl: rest.ttl,
        traffic_class: rest.traffic_class,
        id: rest.id,
        dont_fragment: rest.dont_fragment || matches!(addresses, Addresses::V6 { .. }),
        ..ip::Header::new(addresses, Protocol::TCP)
    };
    let start = out.len();
    ip.emit(TCP_HEADER + rest.body.len(), out)?;
    if let Addresses::V6 { .. } = addresses
        && let Some(label) = out.get_mut(start + 1..start + 4)
    {
        label.iter_mut().zip(rest.label).for_each(|(byte, bits)| *byte |= bits);
    }
    out.extend_from_slice(&src.port().to_be_bytes());
    out.extend_from_slice(&dst.port().to_be_bytes());
    out.extend_from_slice(&rest.tcp);
    out.extend_from_slice(&rest.urgent);
    out.extend_from_slice(options);
    out.extend_from_slice(payload);
    Ok(header)
}

/// What a compressed packet has beside what it says to the half.
struct PacketFields<'a> {
    /// TCP's header from the sequence number to the checksum.
    tcp: [u8; 14],
    ttl: u8,
    traffic_class: u8,
    label: [u8; 3],
    dont_fragment: bool,
    id: u16,
    urgent: [u8; 2],
    /// Options and payload.
    body: &'a [u8],
    /// Bytes of options.
    options: usize,
}

fn read(bytes: &[u8]) -> Result<(Header, PacketFields<'_>), ParseError> {
    let mut reader = Reader(bytes);
    let [first, second] = reader.take("first bytes")?;
    if first & 0xf0 != MARK {
        return Err(ParseError::Mark(first));
    }
    let says = |bit: u8| first & bit != 0;
    let with = |bit: u8| second & bit != 0;
    let mut header = Header {
        cid: u16::from_be_bytes(reader.take("CID")?),
        cycle: says(code::RC),
        reply: says(code::RCR),
        repeat: says(code::REPEAT),
        request: None,
        offer: None,
    };
    let tcp: [u8; 14] = reader.take("TCP fields")?;
    let words = tcp[8] >> 4;
    let options = usize::from(words.checked_sub(5).ok_or(ParseError::HeaderLength(words))?) * 4;
    let [ttl] = reader.take("time to live")?;
    if says(code::RRQ) {
        let ack = Seq(u32::from_be_bytes(reader.take("request")?));
        header.request = Some(Request { ack, nis: Seq(u32::from_be_bytes(reader.take("NIS")?)) });
    }
    if with(has::OFFER) {
        header.offer = Some(u16::from_be_bytes(reader.take("offered CID")?));
    }
    let [dscp] = if with(has::DSCP) { reader.take("traffic class")? } else { [0] };
    let label = if with(has::LABEL) { reader.take("flow label")? } else { [0; 3] };
    let dont_fragment = with(has::DF);
    let id = if dont_fragment { [0; 2] } else { reader.take("identification")? };
    let urgent = if with(has::URGENT) { reader.take("urgent pointer")? } else { [0; 2] };
    if reader.0.len() < options {
        return Err(ParseError::Truncated("TCP options"));
    }
    let rest = PacketFields {
        tcp,
        ttl,
        traffic_class: dscp & !has::ECN | second & has::ECN,
        label: [label[0] & 0x0f, label[1], label[2]],
        dont_fragment,
        id: u16::from_be_bytes(id),
        urgent,
        body: reader.0,
        options,
    };
    Ok((header, rest))
}

/// The flow label, zero for IPv4; none if the IP header has what the compressed one cannot tell.
fn plain_label(packet: &[u8]) -> Option<[u8; 3]> {
    match *packet {
        [0x45, _, _, _, _, _, flags, ..] if flags & 0x80 == 0 => Some([0; 3]),
        [first, a, b, c, _, _, next, ..] if first >> 4 == 6 && next == Protocol::TCP.0 => {
            Some([a & 0x0f, b, c])
        }
        _ => None,
    }
}

/// TCP's header with its options, and the payload.
fn split(segment: &[u8]) -> Result<(&[u8], &[u8]), CompressError> {
    let least = match segment.get(12) {
        Some(offset) => usize::from(offset >> 4) * 4,
        None => TCP_HEADER,
    };
    let truncated = CompressError::Truncated { found: segment.len(), least };
    if least < TCP_HEADER {
        return Err(CompressError::Truncated { found: least, least: TCP_HEADER });
    }
    segment.split_at_checked(least).ok_or(truncated)
}

const fn bit(bit: u8, set: bool) -> u8 {
    if set { bit } else { 0 }
}

/// The part of a packet that is not read yet.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self, part: &'static str) -> Result<[u8; N], ParseError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(ParseError::Truncated(part))?;
        self.0 = rest;
        Ok(*head)
    }
}
