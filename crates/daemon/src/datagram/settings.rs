//! From an operator's settings to the machines' own.

use std::time::Duration;

use lasthop_hop::{HopConfig, mobile_tcp};
use lasthop_units::Bytes;
use lasthop_wire::datagram::{DATA_HEADER_LEN, TAG_LEN};
use lasthop_wire::mobile_tcp::DATA_HEADER;

use crate::carrier::ether::Framing;
use crate::config::{HopKind, MTU, MobileTcpFile, SealKind, SrpFile};
use crate::error::RunError;

/// IPv4 and UDP headers.
const OVERHEAD_IPV4: u64 = 20 + 8;
/// IPv6 and UDP headers.
const OVERHEAD_IPV6: u64 = 40 + 8;

/// An idle mobile sends this often, lest address translators and bases remove its entry.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// What a carrier passes, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Passage {
    /// The longest packet, the carrier's own headers included, if that is known.
    mtu: Option<Bytes>,
    /// The carrier's own headers.
    overhead: Bytes,
    /// What does not fit waits instead of being lost.
    holds_back: bool,
}

impl Passage {
    /// UDP over a path that nobody knows; `ipv6` says that datagrams may travel in IPv6.
    pub(crate) fn udp(ipv6: bool) -> Self {
        let overhead = if ipv6 { OVERHEAD_IPV6 } else { OVERHEAD_IPV4 };
        Self { mtu: None, overhead: Bytes::new(overhead), holds_back: false }
    }

    /// Frames of an interface with payloads of `mtu` bytes, of which `overhead` are the carrier's.
    pub(crate) fn ether(mtu: usize, overhead: usize) -> Self {
        Self { mtu: Some(Bytes::from(mtu)), overhead: Bytes::from(overhead), holds_back: true }
    }
}

/// SRP's configuration.
pub(crate) fn srp(settings: &SrpFile, passage: Passage, streams_max: usize) -> HopConfig {
    let defaults = HopConfig::default();
    let mtu = settings.mtu_max.or(passage.mtu).unwrap_or(settings.mtu_max());
    // Frames that are longer than the interface's never leave it.
    let longest = passage.mtu.map_or(mtu, |own| own.min(mtu)) - passage.overhead;
    let base = match passage.mtu {
        Some(_) => defaults.datagram_base.min(longest),
        None => defaults.datagram_base,
    };
    HopConfig {
        datagram_base: base,
        datagram_max: longest.max(base),
        carrier_overhead: passage.overhead,
        stream_memory: settings.connection_memory(),
        association_memory: settings.association_memory(),
        streams_max,
        silence_limit: settings.silence_limit().0,
        // There is no way for them unless a TUN device or UDP sockets make one.
        packet_max: Bytes::ZERO,
        ..defaults
    }
}

/// Mobile TCP's configuration. `framing` is what the seal's association adds to each packet.
///
/// # Errors
///
/// A packet as configured does not fit into the interface's frames.
pub(crate) fn mobile_tcp(
    settings: &MobileTcpFile,
    passage: Passage,
    framing: usize,
    streams_max: usize,
) -> Result<mobile_tcp::Config, RunError> {
    let headers = passage.overhead + Bytes::from(framing) + Bytes::from(DATA_HEADER);
    let room = passage.mtu.unwrap_or(MTU) - headers;
    let packet = settings.packet.unwrap_or(settings.packet().min(room));
    if passage.mtu.is_some_and(|mtu| packet + headers > mtu) {
        let (packet, room) = (packet.get(), room.get());
        let why = format!(
            "`[mobile_tcp] packet`: {packet} bytes do not fit into the interface's frames, which \
             have room for {room}"
        );
        return Err(RunError::Misfit(why));
    }
    let inflight = match settings.inflight {
        None if passage.holds_back => None,
        _ => settings.inflight().0,
    };
    Ok(mobile_tcp::Config {
        window: settings.window(),
        send_buffer: settings.send_buffer(),
        max_packet: packet,
        tick: settings.tick().0,
        inflight,
        connections_max: streams_max,
        keepalive: Some(KEEPALIVE),
        silence_limit: settings.silence_limit().0,
        ..mobile_tcp::Config::default()
    })
}

/// What the seal's association adds to each packet.
pub(crate) const SEALED: usize = DATA_HEADER_LEN + TAG_LEN;

/// What the frames of a hop carry.
pub(crate) const fn framing(hop: HopKind, seal: SealKind) -> Framing {
    match (hop, seal) {
        (HopKind::MobileTcp, SealKind::None) => Framing::Bare,
        _ => Framing::Sized,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{INFLIGHT_UDP, Inflight};

    fn bytes(n: u64) -> Bytes {
        Bytes::new(n)
    }

    #[test]
    fn srp_never_tries_what_an_interface_cannot_send() {
        let ether = Passage::ether(1500, 2);
        let told = SrpFile { mtu_max: Some(bytes(9000)), ..SrpFile::default() };
        assert_eq!(srp(&told, ether, 1).datagram_max, bytes(1498));
        let small = srp(&SrpFile::default(), Passage::ether(576, 2), 1);
        assert_eq!((small.datagram_base, small.datagram_max), (bytes(574), bytes(574)));
        assert_eq!(srp(&told, Passage::udp(true), 1).datagram_max, bytes(9000 - 48));
    }

    #[test]
    fn what_is_on_its_way_is_bounded_where_the_carrier_does_not_hold_it_back() {
        let inflight = |settings: &MobileTcpFile, passage| {
            mobile_tcp(settings, passage, 0, 1).unwrap().inflight
        };
        let silent = MobileTcpFile::default();
        assert_eq!(inflight(&silent, Passage::udp(false)), Some(INFLIGHT_UDP));
        assert_eq!(inflight(&silent, Passage::ether(1500, 0)), None);
        let none = MobileTcpFile { inflight: Some(Inflight(None)), ..silent };
        assert_eq!(inflight(&none, Passage::udp(false)), None);
        let told = MobileTcpFile { inflight: Some(Inflight(Some(bytes(5000)))), ..silent };
        assert_eq!(inflight(&told, Passage::ether(1500, 0)), Some(bytes(5000)));
    }

    #[test]
    fn a_packet_fits_its_frame_or_is_refused() {
        let packet = |passage, framing| {
            mobile_tcp(&MobileTcpFile::default(), passage, framing, 1).unwrap().max_packet
        };
        assert_eq!(packet(Passage::ether(1500, 0), 0), bytes(1460));
        assert_eq!(packet(Passage::ether(576, 0), 0), bytes(560));
        let sealed = packet(Passage::udp(true), SEALED).get() as usize;
        assert!(sealed + DATA_HEADER + SEALED + 48 == 1500);
        let told = MobileTcpFile { packet: Some(bytes(1485)), ..MobileTcpFile::default() };
        let e = mobile_tcp(&told, Passage::ether(1500, 0), 0, 1).unwrap_err().to_string();
        assert!(e.contains("`[mobile_tcp] packet`") && e.contains("1484"), "{e}");
    }
}
