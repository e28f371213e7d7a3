//! What an agent does not help leaves its bridge as it leaves a bridge without one: no frame changed,
//! none lost, none doubled.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::thread;
use std::time::Duration;

use common::helped::PATIENCE;
use common::program;
use etherparse::{EtherType, IpNumber, Ipv4Header, Ipv6Header, TcpHeader, TcpOptionElement};
use lasthop_lab::agent::ends::{End, Ends};
use lasthop_lab::agent::helper::Helper;
use lasthop_lab::agent::placement;

/// Larger than any frame sent here.
const MTU: u32 = 9216;
/// How long a frame may take that need not come at all.
const LINGER: Duration = Duration::from_millis(60);
/// The frames of agents among themselves.
const BETWEEN_AGENTS: [u8; 3] = [0x88, 0xb6, 0xff];

const MACS: [[u8; 6]; 2] = [[2, 0, 0x5e, 0x30, 0, 2], [2, 0, 0x5e, 0x30, 0, 3]];
const V4: [[u8; 4]; 2] = [[10, 0, 0, 2], [10, 0, 0, 3]];
const PORTS: [u16; 2] = [80, 40_000];

fn ends() -> Option<Ends> {
    common::permitted(Ends::start(MTU))
}

/// A frame by its name, and the end that sends it.
struct Sample {
    name: String,
    from: End,
    frame: Vec<u8>,
}

/// Makes frames from one end to the other.
struct Maker {
    sent: usize,
    received: usize,
}

impl Maker {
    fn new(from: End) -> Self {
        let (sent, received) = match from {
            End::Fixed => (0, 1),
            End::Mobile => (1, 0),
        };
        Self { sent, received }
    }

    fn ethernet(&self, tags: &[[u8; 4]], ethertype: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = [MACS[self.received], MACS[self.sent]].concat();
        frame.extend(tags.concat());
        frame.extend(ethertype.to_be_bytes());
        frame.extend(payload);
        frame
    }

    fn v6(n: usize) -> [u8; 16] {
        let mut address = [0; 16];
        (address[0], address[15]) = (0xfd, V4[n][3]);
        address
    }

    fn ipv4(
        &self,
        protocol: IpNumber,
        payload: &[u8],
        change: impl Fn(&mut Ipv4Header),
    ) -> Vec<u8> {
        let length = payload.len() as u16;
        let addresses = (V4[self.sent], V4[self.received]);
        let mut header = Ipv4Header::new(length, 64, protocol, addresses.0, addresses.1).unwrap();
        header.identification = 0x1234;
        change(&mut header);
        header.set_payload_len(payload.len()).unwrap();
        header.header_checksum = header.calc_header_checksum();
        let mut packet = Vec::new();
        header.write_raw(&mut packet).unwrap();
        packet.extend(payload);
        self.ethernet(&[], EtherType::IPV4.0, &packet)
    }

    fn ipv6(&self, next: IpNumber, payload: &[u8], ecn: u8) -> Vec<u8> {
        let header = Ipv6Header {
            traffic_class: ecn,
            flow_label: 0x12345.try_into().unwrap(),
            payload_length: payload.len() as u16,
            next_header: next,
            hop_limit: 64,
            source: Self::v6(self.sent),
            destination: Self::v6(self.received),
        };
        let mut packet = header.to_bytes().to_vec();
        packet.extend(payload);
        self.ethernet(&[], EtherType::IPV6.0, &packet)
    }

    /// A segment whose checksum is right for IPv4.
    fn tcp(&self, length: usize, change: impl Fn(&mut TcpHeader)) -> Vec<u8> {
        let mut header = TcpHeader::new(PORTS[self.sent], PORTS[self.received], 1000, 8000);
        header.ack = true;
        header.acknowledgment_number = 5000;
        change(&mut header);
        let payload: Vec<u8> = (0..length).map(|i| (i * 7) as u8).collect();
        let sums = (V4[self.sent], V4[self.received]);
        header.checksum = header.calc_checksum_ipv4_raw(sums.0, sums.1, &payload).unwrap();
        let mut segment = Vec::new();
        header.write(&mut segment).unwrap();
        segment.extend(payload);
        segment
    }

    /// A segment whose checksum is right for IPv6.
    fn tcp_v6(&self, length: usize) -> Vec<u8> {
        let mut header = TcpHeader::new(PORTS[self.sent], PORTS[self.received], 1000, 8000);
        (header.ack, header.acknowledgment_number) = (true, 5000);
        let payload: Vec<u8> = (0..length).map(|i| (i * 5) as u8).collect();
        let sums = (Self::v6(self.sent), Self::v6(self.received));
        header.checksum = header.calc_checksum_ipv6_raw(sums.0, sums.1, &payload).unwrap();
        let mut segment = Vec::new();
        header.write(&mut segment).unwrap();
        segment.extend(payload);
        segment
    }

    fn udp(&self, length: usize) -> Vec<u8> {
        let mut datagram = Vec::new();
        for number in [PORTS[self.sent], PORTS[self.received], length as u16 + 8, 0] {
            datagram.extend(number.to_be_bytes());
        }
        datagram.extend((0..length).map(|i| i as u8));
        datagram
    }

    /// What no agent may touch.
    fn others(&self) -> Vec<(&'static str, Vec<u8>)> {
        let asis = |_: &mut Ipv4Header| {};
        let syn = |header: &mut TcpHeader| (header.syn, header.ack) = (true, false);
        let tcp = IpNumber::TCP;
        let plain = |frame: &[u8]| frame[14..].to_vec();
        let whole = plain(&self.ipv4(tcp, &self.tcp(100, |_| {}), asis));
        let whole_v6 = plain(&self.ipv6(tcp, &self.tcp_v6(100), 0));
        let open = plain(&self.ipv4(tcp, &self.tcp(0, syn), asis));
        let fragment = |offset: u16, more| {
            let part = self.tcp(64, |_| {});
            self.ipv4(tcp, &part, |header: &mut Ipv4Header| {
                header.fragment_offset = offset.try_into().unwrap();
                header.more_fragments = more;
            })
        };
        // Hop-by-hop, destination options and routing headers of eight bytes; a fragment header.
        let extended = |kind: IpNumber, header: [u8; 8]| {
            self.ipv6(kind, &[&header[..], &self.tcp_v6(50)].concat(), 0)
        };
        let padding = [6, 0, 1, 4, 0, 0, 0, 0];
        vec![
            ("ARP", self.ethernet(&[], 0x0806, &[1; 28])),
            ("a bare packet of Mobile TCP", self.ethernet(&[], 0x88b5, &[1; 28])),
            ("a datagram of a hop", self.ethernet(&[], 0x88b6, &[0; 66])),
            ("a neighbour's question", self.ipv6(IpNumber::IPV6_ICMP, &[135; 32], 0)),
            ("ICMP", self.ipv4(IpNumber::ICMP, &[8; 64], asis)),
            ("UDP", self.ipv4(IpNumber::UDP, &self.udp(300), asis)),
            ("UDP over IPv6", self.ipv6(IpNumber::UDP, &self.udp(300), 0)),
            ("a jumbo frame of UDP", self.ipv4(IpNumber::UDP, &self.udp(8900), asis)),
            ("SCTP", self.ipv4(IpNumber::SCTP, &[3; 64], asis)),
            ("a first fragment", fragment(0, true)),
            ("a middle fragment", fragment(8, true)),
            ("a last fragment", fragment(16, false)),
            ("a tagged opening", self.ethernet(&[[0x81, 0, 0, 5]], 0x0800, &open)),
            ("a tagged segment", self.ethernet(&[[0x81, 0, 0x20, 5]], 0x0800, &whole)),
            ("a tagged segment of IPv6", self.ethernet(&[[0x81, 0, 0, 5]], 0x86dd, &whole_v6)),
            ("a priority tag", self.ethernet(&[[0x81, 0, 0xe0, 0]], 0x0800, &whole)),
            ("two tags", self.ethernet(&[[0x88, 0xa8, 0, 9], [0x81, 0, 0, 5]], 0x0800, &whole)),
            ("hop-by-hop options", extended(IpNumber::IPV6_HEADER_HOP_BY_HOP, padding)),
            ("destination options", extended(IpNumber::IPV6_DESTINATION_OPTIONS, padding)),
            ("a routing header", extended(IpNumber::IPV6_ROUTE_HEADER, [6, 0, 4, 0, 0, 0, 0, 0])),
            (
                "a fragment header",
                extended(IpNumber::IPV6_FRAGMENTATION_HEADER, [6, 0, 0, 1, 0, 0, 0, 9]),
            ),
            ("ESP", self.ipv4(IpNumber::ENCAPSULATING_SECURITY_PAYLOAD, &[7; 80], asis)),
            ("another EtherType", self.ethernet(&[], 0x88b6, &[9; 60])),
            ("an LLC frame", self.ethernet(&[], 60, &[0xaa; 60])),
        ]
    }

    /// TCP that looks strange, of a connection that nobody saw begin.
    fn strangers(&self) -> Vec<(&'static str, Vec<u8>)> {
        let tcp = IpNumber::TCP;
        let asis = |_: &mut Ipv4Header| {};
        let marked = |ecn: u8| {
            self.ipv4(tcp, &self.tcp(200, |header| header.ece = ecn == 3), |header| {
                header.ecn = ecn.try_into().unwrap();
            })
        };
        let mut padded = self.ipv4(tcp, &self.tcp(0, |_| {}), asis);
        padded.resize(60, 0);
        let mut damaged = self.ipv4(tcp, &self.tcp(100, |_| {}), asis);
        *damaged.last_mut().unwrap() ^= 1;
        vec![
            ("a segment", self.ipv4(tcp, &self.tcp(1460, |_| {}), asis)),
            ("a segment over IPv6", self.ipv6(tcp, &self.tcp_v6(1440), 0)),
            ("ECT(0)", marked(2)),
            ("ECT(1)", marked(1)),
            ("congestion experienced", marked(3)),
            ("congestion experienced over IPv6", self.ipv6(tcp, &self.tcp_v6(100), 3)),
            ("the window was reduced", self.ipv4(tcp, &self.tcp(10, |h| h.cwr = true), asis)),
            ("a jumbo frame", self.ipv4(tcp, &self.tcp(8900, |_| {}), asis)),
            ("a jumbo frame over IPv6", self.ipv6(tcp, &self.tcp_v6(8900), 0)),
            (
                "an urgent byte",
                self.ipv4(tcp, &self.tcp(9, |h| (h.urg, h.urgent_pointer) = (true, 1)), asis),
            ),
            (
                "time stamps",
                self.ipv4(
                    tcp,
                    &self.tcp(9, |h| h.set_options(&[TcpOptionElement::Timestamp(1, 2)]).unwrap()),
                    asis,
                ),
            ),
            (
                "an unknown option",
                self.ipv4(tcp, &self.tcp(9, |h| h.set_options_raw(&[253, 4, 1, 2]).unwrap()), asis),
            ),
            (
                "IPv4 options",
                self.ipv4(tcp, &self.tcp(30, |_| {}), |h| h.options = [148, 4, 0, 0].into()),
            ),
            ("a padded acknowledgement", padded),
            ("a wrong checksum", damaged),
            ("a reset", self.ipv4(tcp, &self.tcp(0, |h| h.rst = true), asis)),
            ("half a header", self.ipv4(tcp, &[0; 11], asis)),
            ("a last hop", self.ipv4(tcp, &self.tcp(5, |_| {}), |h| h.time_to_live = 1)),
        ]
    }
}

fn samples() -> Vec<Sample> {
    let mut samples = Vec::new();
    for from in End::BOTH {
        let maker = Maker::new(from);
        for (name, frame) in maker.others().into_iter().chain(maker.strangers()) {
            let from_whom = if from == End::Fixed { "fixed" } else { "mobile" };
            samples.push(Sample { name: format!("{name} from the {from_whom} end"), from, frame });
        }
    }
    samples
}

/// What comes out at the other end of each.
fn pass(ends: &Ends, samples: &[Sample], expected: Option<&[Vec<Vec<u8>>]>) -> Vec<Vec<Vec<u8>>> {
    let is_theirs = |frame: &Vec<u8>| frame.get(12..15) != Some(&BETWEEN_AGENTS[..]);
    let one = |(n, sample): (usize, &Sample)| {
        ends.send(sample.from, &sample.frame).unwrap();
        let to = sample.from.other();
        let wanted = expected.map_or(1, |expected| expected[n].len());
        let patience = if expected.is_some() { PATIENCE } else { LINGER };
        let count = |frames: &[Vec<u8>]| frames.iter().filter(|f| is_theirs(f)).count() >= wanted;
        let mut frames = ends.receive(to, patience, count).unwrap();
        frames.retain(is_theirs);
        frames
    };
    let mut passed: Vec<Vec<Vec<u8>>> = samples.iter().enumerate().map(one).collect();
    // A second copy of any would have come by now.
    thread::sleep(LINGER);
    for (sample, frames) in samples.iter().zip(&mut passed) {
        let late = ends.receive(sample.from.other(), Duration::ZERO, |_| false).unwrap();
        frames.extend(late.into_iter().filter(is_theirs));
    }
    passed
}

/// The frame up to the end of its IPv4 packet: some kernels cut off in bridges what is behind it.
fn without_padding(frame: &[u8]) -> &[u8] {
    match frame.get(12..18) {
        Some([0x08, 0x00, _, _, high, low]) => {
            let end = 14 + usize::from(u16::from_be_bytes([*high, *low]));
            &frame[..end.min(frame.len())]
        }
        _ => frame,
    }
}

fn is_unchanged(samples: &[Sample], passed: &[Vec<Vec<u8>>], bare: &[Vec<Vec<u8>>], what: &str) {
    for ((sample, passed), bare) in samples.iter().zip(passed).zip(bare) {
        let same = passed
            .iter()
            .map(|frame| without_padding(frame))
            .eq(bare.iter().map(|frame| without_padding(frame)));
        assert!(same, "{what}: {}: {passed:02x?} instead of {bare:02x?}", sample.name);
    }
}

/// What a bridge without an agent does.
fn bare(samples: &[Sample]) -> Option<Vec<Vec<Vec<u8>>>> {
    let ends = ends()?;
    let passed = pass(&ends, samples, None);
    let is_whole = |(sample, passed): &(&Sample, &Vec<Vec<u8>>)| {
        passed.iter().map(|frame| without_padding(frame)).eq([without_padding(&sample.frame)])
    };
    let untouched = samples.iter().zip(&passed).filter(is_whole).count();
    // Some kernels check headers in bridges, and drop what is malformed.
    assert!(
        untouched + 6 >= samples.len(),
        "a bare bridge passes {untouched} of {}",
        samples.len()
    );
    Some(passed)
}

#[test]
fn what_is_no_plain_tcp_of_a_known_connection_leaves_as_it_came() {
    let samples = samples();
    let Some(bare) = bare(&samples) else { return };
    let Some(program) = program() else { return };
    for scheme in placement::schemes() {
        let mut arguments: Vec<_> = scheme.placements().into_iter().map(|at| at.args).collect();
        if arguments.is_empty() {
            arguments.push(vec!["none"]);
        }
        for args in arguments {
            let Some(ends) = ends() else { return };
            let mut helper = Helper::start(&ends.base, &program, &args, PATIENCE).unwrap();
            is_unchanged(&samples, &pass(&ends, &samples, Some(&bare)), &bare, &args.join(" "));
            helper.daemon.check().unwrap_or_else(|e| panic!("{scheme}: {e}"));
        }
    }
}
