//! In network namespaces, against the kernel itself.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use lasthop_testing::wait_until;
use lasthop_wire::ip::{Addresses, Protocol};
use lasthop_wire::packet::Packet;
use lasthop_wire::udp;
use rustix::event::{PollFd, PollFlags, poll};

use super::*;
use crate::netlink::Route;
use crate::netns::{Netns, Prefix};
use crate::sockopt;

const PATIENCE: Duration = Duration::from_secs(60);
const MTU: u16 = 1400;
/// `UDP_SEGMENT`: the size that the kernel cuts what is written to.
const UDP_SEGMENT: i32 = 103;

/// Addresses of this host, and of one that is reached through the device.
const ADDRESSES: [(&str, u8, &str); 2] =
    [("10.0.0.1", 24, "10.9.0.2"), ("2001:db8::1", 64, "2001:db8:9::2")];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A device in a namespace of its own, switched on, with addresses and routes; none where tests may
/// not have one.
fn device(queues: usize) -> Option<(Netns, Vec<PacketTun>)> {
    let netns = Netns::for_test()?;
    let tuns = netns
        .enter(|| {
            let tuns = PacketTun::open("tun%d", queues, MTU).unwrap();
            let mut requests = Rtnetlink::open().unwrap();
            let interface = requests.interface(tuns[0].name()).unwrap();
            assert!(!interface.up && interface.mtu == MTU.into(), "{interface:?}");
            requests.set_up(interface.index, true).unwrap();
            for (here, length, there) in ADDRESSES {
                assert!(requests.add_address(interface.index, (ip(here), length)).unwrap());
                let to: Prefix = (ip(there), if ip(there).is_ipv4() { 32 } else { 128 });
                let route = Route { interface: Some(interface.index), ..Route::to(to) };
                requests.replace_route(&route).unwrap();
                // The kernel makes the route to an IPv6 address of its own a little later.
                let here = SocketAddr::new(ip(here), 9);
                wait_until("the address is this host's", PATIENCE, || {
                    requests.local_route_prefix(here).unwrap() == Some(to.1)
                });
            }
            tuns
        })
        .unwrap();
    assert_eq!(tuns.len(), queues);
    Some((netns, tuns))
}

/// Receives until `done`; the kernel's own packets, such as router solicitations, come too.
fn receive_until(tuns: &mut [PacketTun], mut each: impl FnMut(usize, &[u8]) -> bool) {
    let start = Instant::now();
    let mut done = false;
    while !done {
        assert!(start.elapsed() < PATIENCE, "{:?}", tuns[0].counts());
        wait_for(tuns);
        for (queue, tun) in tuns.iter_mut().enumerate() {
            while tun.receive(&mut |packet| done |= each(queue, packet)).unwrap() {}
        }
    }
}

fn wait_for(tuns: &[PacketTun]) {
    let mut fds: Vec<_> = tuns.iter().map(|tun| PollFd::new(tun, PollFlags::IN)).collect();
    poll(&mut fds, Some(&Duration::from_millis(100).try_into().unwrap())).unwrap();
}

/// The datagram in a packet whose lengths and checksums are right; none if it is not one of `from`.
fn datagram(packet: &[u8], from: SocketAddr) -> Option<Vec<u8>> {
    let said = Packet::inspect(packet).ok()?;
    if (said.protocol, said.ports?.0, said.source()) != (Protocol::UDP, from.port(), from.ip()) {
        return None;
    }
    let sliced = SlicedPacket::from_ip(packet).unwrap();
    if let Some(NetSlice::Ipv4(ip)) = &sliced.net {
        let header = ip.header().to_header();
        assert_eq!(header.calc_header_checksum(), header.header_checksum);
    }
    let Some(TransportSlice::Udp(datagram)) = &sliced.transport else { panic!("{sliced:?}") };
    let between = Addresses::new(said.source(), said.destination()).unwrap();
    let (_, payload) = udp::Header::parse(&between, datagram.slice()).unwrap();
    assert_ne!(datagram.checksum(), 0);
    Some(payload.to_vec())
}

#[test]
fn what_a_socket_writes_as_one_arrives_as_whole_datagrams() {
    let Some((netns, mut tuns)) = device(1) else { return };
    for (here, _, there) in ADDRESSES {
        let socket = netns.enter(|| UdpSocket::bind((here, 0)).unwrap()).unwrap();
        sockopt::set(socket.as_fd(), libc::IPPROTO_UDP, UDP_SEGMENT, &[1000_i32]).unwrap();
        let whole: Vec<u8> = (0..40_500_u32).map(|n| (n / 1000 + n) as u8).collect();
        let before = tuns[0].counts();
        assert_eq!(socket.send_to(&whole, (there, 9)).unwrap(), whole.len());
        let from = socket.local_addr().unwrap();
        let mut parts = Vec::new();
        receive_until(&mut tuns, |_, packet| {
            parts.extend(datagram(packet, from));
            parts.len() == 41
        });
        assert_eq!(parts.iter().map(Vec::len).max(), Some(1000));
        assert_eq!(parts.concat(), whole);
        let counts = tuns[0].counts();
        let (packets, reads) = (counts.received - before.received, counts.reads - before.reads);
        assert!(!tuns[0].has_udp_offload() || reads < packets, "{counts:?}");
        assert_eq!(counts.unfinished, 0);
    }
    assert!(!tuns[0].receive(&mut |packet| assert!(Packet::inspect(packet).is_err())).unwrap());
}

#[test]
fn what_is_sent_together_arrives_at_a_socket_in_its_order() {
    let Some((netns, mut tuns)) = device(1) else { return };
    let tun = &mut tuns[0];
    for (here, _, there) in ADDRESSES {
        let socket = netns.enter(|| UdpSocket::bind((here, 0)).unwrap()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let port = socket.local_addr().unwrap().port();
        let payload = |n: u32| vec![n as u8; if n == 30 { 500 } else { 1000 }];
        let before = tun.counts();
        for n in 0..40 {
            let mut packet = Vec::new();
            let step = match (ip(there), ip(here)) {
                (IpAddr::V4(a), IpAddr::V4(b)) => PacketBuilder::ipv4(a.octets(), b.octets(), 9),
                (IpAddr::V6(a), IpAddr::V6(b)) => PacketBuilder::ipv6(a.octets(), b.octets(), 9),
                other => panic!("{other:?}"),
            };
            step.udp(7, port).write(&mut packet, &payload(n)).unwrap();
            tun.send(&packet);
        }
        tun.flush();
        let counts = tun.counts();
        assert_eq!((counts.sent - before.sent, counts.refused), (40, 0));
        let writes = counts.writes - before.writes;
        assert_eq!(writes, if tun.has_udp_offload() { 2 } else { 40 });
        for n in 0..40 {
            let mut out = [0; 2000];
            let (length, from) =
                socket.recv_from(&mut out).unwrap_or_else(|e| panic!("{here}, {n}: {e}"));
            assert_eq!((from.ip(), from.port()), (ip(there), 7));
            assert_eq!(out[..length], payload(n));
        }
    }
    // What is no IP, and what comes while the interface is off, is refused.
    let before = tun.counts();
    tun.send(&[0; 40]);
    tun.flush();
    assert_eq!(tun.counts(), TunCounts { refused: 1, ..before });
    netns.ip("link set tun0 down\n").unwrap();
    tun.send(&[0x45; 40]);
    tun.flush();
    assert_eq!(tun.counts(), TunCounts { refused: 2, ..before });
}

#[test]
fn two_queues_share_the_flows_and_each_can_send() {
    let Some((netns, mut tuns)) = device(2) else { return };
    let (here, _, there) = ADDRESSES[0];
    let sockets: Vec<_> =
        netns.enter(|| (0..64).map(|_| UdpSocket::bind((here, 0)).unwrap()).collect()).unwrap();
    for (n, socket) in sockets.iter().enumerate() {
        socket.send_to(&[n as u8], (there, 9)).unwrap();
    }
    let (mut seen, mut queues) = (HashSet::new(), HashSet::new());
    receive_until(&mut tuns, |queue, packet| {
        for (n, socket) in sockets.iter().enumerate() {
            if let Some(payload) = datagram(packet, socket.local_addr().unwrap()) {
                assert_eq!(payload, [n as u8]);
                seen.insert(n);
                queues.insert(queue);
            }
        }
        seen.len() == sockets.len()
    });
    assert_eq!(queues.len(), 2);
    sockets[0].set_read_timeout(Some(PATIENCE)).unwrap();
    for (n, tun) in tuns.iter_mut().enumerate() {
        let mut packet = Vec::new();
        PacketBuilder::ipv4([10, 9, 0, 2], [10, 0, 0, 1], 9)
            .udp(7, sockets[0].local_addr().unwrap().port())
            .write(&mut packet, &[n as u8])
            .unwrap();
        tun.send(&packet);
        tun.flush();
        let mut out = [0; 10];
        assert_eq!(sockets[0].recv(&mut out).unwrap(), 1);
        assert_eq!(out[0], n as u8);
    }
    // The device is taken: with one queue it would be another.
    let name = tuns[0].name().to_owned();
    assert!(netns.enter(|| PacketTun::open(&name, 1, MTU)).unwrap().is_err());
}

/// Carries packets both ways between two devices until `done`.
fn carry(a: &mut PacketTun, b: &mut PacketTun, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{:?} {:?}", a.counts(), b.counts());
        {
            let mut fds = [PollFd::new(&*a, PollFlags::IN), PollFd::new(&*b, PollFlags::IN)];
            poll(&mut fds, Some(&Duration::from_millis(10).try_into().unwrap())).unwrap();
        }
        carry_what_came(a, b);
        carry_what_came(b, a);
    }
}

fn carry_what_came(from: &mut PacketTun, to: &mut PacketTun) {
    let mut each = |packet: &[u8]| {
        assert!(packet.len() <= usize::from(MTU));
        if Packet::inspect(packet).is_ok() {
            to.send(packet);
        }
    };
    while from.receive(&mut each).unwrap() {}
    to.flush();
}

/// The kernels' own TCP judges every checksum, length and sequence number.
#[test]
fn tcp_crosses_from_one_kernel_to_another() {
    let (Some((near, mut a)), Some((far, mut b))) = (device(1), device(1)) else { return };
    let length = 8_000_000;
    for (here, _, there) in ADDRESSES {
        let prefix = if ip(there).is_ipv4() { 32 } else { 128 };
        far.interface_up("lo", &[(ip(there), prefix)]).unwrap();
        // Theirs is the same address otherwise.
        let (mine, bits) = (ip(here), if ip(here).is_ipv4() { 24 } else { 64 });
        far.ip(&format!(
            "address del {mine}/{bits} dev tun0\nroute add {mine}/{prefix} dev tun0\n"
        ))
        .unwrap();
        let listener = far.enter(|| TcpListener::bind((there, 0)).unwrap()).unwrap();
        let to = listener.local_addr().unwrap();
        let bytes: Vec<u8> = (0..length).map(|n: u32| (n / 251 + n) as u8).collect();
        thread::scope(|scope| {
            let server = scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut all = Vec::new();
                stream.read_to_end(&mut all).unwrap();
                stream.write_all(b"thanks").unwrap();
                all
            });
            let client = scope.spawn(|| {
                let mut stream = near.enter(|| TcpStream::connect(to).unwrap()).unwrap();
                stream.write_all(&bytes).unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                let mut answer = Vec::new();
                stream.read_to_end(&mut answer).unwrap();
                answer
            });
            carry(&mut a[0], &mut b[0], || server.is_finished() && client.is_finished());
            assert_eq!(client.join().unwrap(), b"thanks");
            assert!(server.join().unwrap() == bytes, "other bytes arrived");
        });
    }
    for counts in [a[0].counts(), b[0].counts()] {
        assert_eq!((counts.unfinished, counts.refused), (0, 0), "{counts:?}");
    }
    // Many packets went through each system call, out of one kernel and into the other.
    let (from, to) = (a[0].counts(), b[0].counts());
    assert!(from.reads < from.received, "{from:?}");
    assert!(to.writes < to.sent, "{to:?}");
}
