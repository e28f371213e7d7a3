//! The emulator between real sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lasthop_kernel::netns::{Netns, NetnsError};
use lasthop_kernel::offload;
use lasthop_radio::{Errors, LinkConfig, Loss, Pacing, RadioConfig};
use lasthop_units::{Rate, Seed};

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

/// A radio on a thread of its own; ends with the test.
struct Running {
    control: Control,
    thread: Option<JoinHandle<Result<Snapshot, EmulatorError>>>,
}

impl Running {
    fn start(ports: Ports, config: RadioConfig) -> Self {
        let control = Control::new().expect("a descriptor");
        let handle = control.clone();
        let thread = thread::spawn(move || run(ports, &config, Seed::from_u64(1), &handle));
        Self { control, thread: Some(thread) }
    }

    fn finish(mut self) -> Snapshot {
        self.control.stop();
        let thread = self.thread.take().expect("still there");
        thread.join().expect("no panic").expect("ran")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.control.stop();
    }
}

/// A mobile and a base, each in a namespace of its own, with interfaces towards the radio's. `None`
/// where namespaces are not permitted.
struct Namespaces {
    mobile: Netns,
    base: Netns,
    radio: Netns,
}

impl Namespaces {
    fn new() -> Option<Self> {
        let netns = || lasthop_testing::or_skip(Netns::anonymous(), NetnsError::is_unavailable);
        Some(Self { mobile: netns()?, base: netns()?, radio: netns()? })
    }

    fn with_veth(self) -> (Self, Ports) {
        for (netns, name, host) in [(&self.mobile, "mobile", 1), (&self.base, "base", 2)] {
            self.radio.veth(name, netns, "eth0").expect("a veth pair");
            self.radio.interface_up(name, &[]).expect("up");
            let address = Ipv4Addr::new(10, 9, 9, host).into();
            let address6 = format!("fd00::{host}").parse().expect("an address");
            netns.interface_up("eth0", &[(address, 24), (address6, 64)]).expect("up");
        }
        let ports = self.radio.enter(|| {
            let port = |name| Port::interface(name).expect("opens");
            Ports::interfaces(port("mobile"), port("base"))
        });
        (self, ports.expect("entered"))
    }

    fn with_tun(self) -> (Self, Ports) {
        let port = |netns: &Netns, host, route| {
            let port = netns.enter(|| Port::tun("radio0")).expect("entered").expect("a device");
            netns
                .interface_up("radio0", &[(Ipv4Addr::new(10, 9, 9, host).into(), 32)])
                .expect("up");
            netns.ip(&format!("route add {route}/32 dev radio0\n")).expect("a route");
            port
        };
        let mobile = port(&self.mobile, 1, "10.9.9.2");
        let base = port(&self.base, 2, "10.9.9.1");
        (self, Ports::interfaces(mobile, base))
    }

    /// Moves `length` bytes from base to mobile and as many back, and compares every one.
    fn exchange(&self, address: &str, length: usize) {
        let address: SocketAddr = address.parse().expect("an address");
        let listener = self.base.enter(|| TcpListener::bind(address)).expect("entered");
        let listener = listener.expect("binds");
        let server = thread::spawn(move || {
            let (stream, _) = listener.accept().expect("accepts");
            both_ways(stream, length);
        });
        let stream = self.mobile.enter(|| TcpStream::connect_timeout(&address, PATIENCE));
        both_ways(stream.expect("entered").expect("connects"), length);
        server.join().expect("no panic");
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn both_ways(stream: TcpStream, length: usize) {
    stream.set_read_timeout(Some(PATIENCE)).expect("sets");
    stream.set_write_timeout(Some(PATIENCE)).expect("sets");
    let sent = pattern(length);
    thread::scope(|scope| {
        scope.spawn(|| (&stream).write_all(&sent).expect("sends"));
        let mut got = vec![0; length];
        (&stream).read_exact(&mut got).expect("receives");
        assert!(got == sent, "the stream that arrived is not the stream that was sent");
    });
}

fn link(mbps: u64, losses: Vec<Loss>) -> LinkConfig {
    LinkConfig {
        pacing: Pacing::Rate(Rate::from_mbps(mbps)),
        delay: Duration::from_millis(2),
        losses,
        ..LinkConfig::default()
    }
}

/// Large packets with unfinished checksums go in; only packets that fit the interface, with good
/// checksums, come out, or the far kernel would drop them.
#[test]
fn kernel_tcp_crosses_the_radio_by_veth() {
    let Some(place) = Namespaces::new() else { return };
    let (place, ports) = place.with_veth();
    let radio = Running::start(ports, RadioConfig::both(link(400, vec![])));
    place.exchange("10.9.9.2:7000", 3_000_000);
    place.exchange("[fd00::2]:7000", 3_000_000);
    let snapshot = radio.finish();
    assert_eq!((snapshot.mobile.unreadable, snapshot.base.unreadable), (0, 0));
    for link in [snapshot.up, snapshot.down] {
        assert!(link.delivered.bytes > 6_000_000);
        assert!(link.delivered.bytes / link.delivered.packets <= 1500);
        assert!(link.queue.bytes_max <= 50 * 1500);
    }
}

/// CC-2: kernels that take part are marked, and take what is marked for valid.
#[test]
fn kernel_tcp_that_takes_part_is_marked() {
    let Some(place) = Namespaces::new() else { return };
    let (place, ports) = place.with_veth();
    for host in [&place.mobile, &place.base] {
        let set = host.enter(|| std::fs::write("/proc/sys/net/ipv4/tcp_ecn", "1"));
        set.expect("entered").expect("written");
    }
    let ecn_mark = Some(lasthop_radio::QueueLimit::Packets(5));
    let radio =
        Running::start(ports, RadioConfig::both(LinkConfig { ecn_mark, ..link(50, vec![]) }));
    place.exchange("10.9.9.2:7000", 1_000_000);
    place.exchange("[fd00::2]:7000", 1_000_000);
    let marked = place.mobile.enter(marked_packets).expect("entered");
    let snapshot = radio.finish();
    assert!(snapshot.up.marked.packets > 0 && snapshot.down.marked.packets > 0);
    assert_eq!(marked, snapshot.down.marked.packets);
}

/// Marked packets that came in: `InCEPkts` of IPv4 and `Ip6InCEPkts`.
fn marked_packets() -> u64 {
    let read =
        |name| std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).expect("reads");
    let netstat = read("netstat");
    let mut ip = netstat.lines().filter_map(|line| line.strip_prefix("IpExt:"));
    let (names, values) = (ip.next().expect("names"), ip.next().expect("values"));
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    let v4 = pairs.find(|(name, _)| *name == "InCEPkts").expect("listed").1;
    let snmp6 = read("snmp6");
    let v6 = snmp6.lines().find_map(|line| line.strip_prefix("Ip6InCEPkts")).expect("listed");
    let number = |text: &str| text.trim().parse::<u64>().expect("a number");
    number(v4) + number(v6)
}

/// LNK-10: what arrives damaged has a bad checksum, so that the receiver drops it.
#[test]
fn damaged_packets_never_reach_the_application() {
    let Some(place) = Namespaces::new() else { return };
    let (place, ports) = place.with_veth();
    let corrupt = vec![Loss::corrupt(Errors::Uniform(0.02))];
    let radio = Running::start(ports, RadioConfig::both(link(200, corrupt)));
    place.exchange("10.9.9.2:7000", 500_000);
    let bad = place.mobile.enter(|| std::fs::read_to_string("/proc/thread-self/net/snmp"));
    let bad = tcp_checksum_errors(&bad.expect("entered").expect("reads"));
    let snapshot = radio.finish();
    assert!(snapshot.down.corrupted.packets > 0);
    assert!(bad > 0 && bad <= snapshot.down.corrupted.packets, "{bad}");
}

/// `InCsumErrors` of TCP.
fn tcp_checksum_errors(snmp: &str) -> u64 {
    let lines: Vec<Vec<&str>> = snmp
        .lines()
        .filter(|line| line.starts_with("Tcp:"))
        .map(|line| line.split(' ').collect())
        .collect();
    let column = lines[0].iter().position(|name| *name == "InCsumErrors").expect("listed");
    lines[1][column].parse().expect("a number")
}

#[test]
fn frames_of_any_type_cross_the_radio_unchanged() {
    let Some(place) = Namespaces::new() else { return };
    let (place, ports) = place.with_veth();
    let mut frame = offload::NOTHING_LEFT.to_vec();
    // To everyone, from a locally administered address, of the first experimental type.
    frame.extend([0xff; 6]);
    frame.extend([2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame.extend(pattern(700));
    let socket = |host: &Netns| {
        let open = || PacketSocket::open("eth0").expect("opens");
        host.enter(open).expect("entered")
    };
    let (from, to) = (socket(&place.mobile), socket(&place.base));
    let running = Running::start(ports, RadioConfig::both(link(20, Vec::new())));
    let deadline = std::time::Instant::now() + PATIENCE;
    let mut got = [0; 2048];
    loop {
        assert!(std::time::Instant::now() < deadline, "it did not come");
        // Until the kernel has noticed that both ends are there it drops what is sent.
        rustix::net::send(&from, &frame, rustix::net::SendFlags::empty()).expect("sent");
        thread::sleep(Duration::from_millis(20));
        // What the hosts' own stacks say comes too.
        if let Ok((n, _)) = rustix::net::recv(&to, &mut got[..], rustix::net::RecvFlags::DONTWAIT)
            && got_type(&got[..n]) == Some([0x88, 0xb5])
        {
            break assert_eq!(got[..n], frame);
        }
    }
    assert!(running.finish().up.delivered.bytes >= 700);
}

/// The EtherType of a frame with an offload header.
fn got_type(frame: &[u8]) -> Option<[u8; 2]> {
    frame.get(offload::HEADER_LENGTH + 12..)?.first_chunk().copied()
}

#[test]
fn kernel_tcp_crosses_the_radio_by_tun() {
    let Some(place) = Namespaces::new() else { return };
    let (place, ports) = place.with_tun();
    let radio = Running::start(ports, RadioConfig::both(link(200, vec![])));
    place.exchange("10.9.9.2:7000", 1_000_000);
    assert!(radio.finish().down.delivered.bytes > 1_000_000);
}

#[test]
fn an_interface_and_a_tun_device_are_not_joined() {
    let Some(place) = Namespaces::new() else { return };
    let control = Control::new().expect("a descriptor");
    let ports = place.radio.enter(|| {
        let interface = Port::interface("lo").expect("opens");
        Ports::interfaces(interface, Port::tun("t0").expect("a device"))
    });
    let result = run(ports.expect("entered"), &RadioConfig::default(), Seed::from_u64(1), &control);
    assert!(matches!(result, Err(EmulatorError::MixedPorts)));
}

fn udp_socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("binds");
    socket.set_read_timeout(Some(PATIENCE)).expect("sets");
    socket
}

fn udp_relay(base: &UdpSocket, limits: UdpLimits) -> (UdpRelay, SocketAddr) {
    let any = "127.0.0.1:0".parse().expect("an address");
    let relay = UdpRelay::bind(any, base.local_addr().expect("bound"), limits).expect("binds");
    let address = relay.local_addr().expect("bound");
    (relay, address)
}

#[test]
fn answers_find_the_mobile_that_asked() {
    let base = udp_socket();
    let (relay, listen) = udp_relay(&base, UdpLimits::default());
    let radio = Running::start(Ports::udp(relay), RadioConfig::both(link(100, vec![])));
    let mobiles = [udp_socket(), udp_socket()];
    for (mobile, text) in mobiles.iter().zip([b"one", b"two"]) {
        mobile.send_to(text, listen).expect("sends");
    }
    let mut room = [0; 16];
    for _ in 0..2 {
        let (length, from) = base.recv_from(&mut room).expect("arrives");
        base.send_to(&room[..length], from).expect("sends");
    }
    for (mobile, text) in mobiles.iter().zip([b"one", b"two"]) {
        let (length, from) = mobile.recv_from(&mut room).expect("arrives");
        assert_eq!((&room[..length], from), (&text[..], listen));
    }
    let snapshot = radio.finish();
    // IP and UDP headers are charged: 28 bytes.
    assert_eq!((snapshot.up.delivered.packets, snapshot.up.delivered.bytes), (2, 62));
    assert_eq!((snapshot.mobile.received, snapshot.mobile.sent), (2, 2));
}

/// CC-2: a relay of UDP datagrams has no IP header to mark and says so.
#[test]
fn marks_between_udp_addresses_are_refused() {
    let base = udp_socket();
    let (relay, _) = udp_relay(&base, UdpLimits::default());
    let control = Control::new().expect("a descriptor");
    let mut config = RadioConfig::default();
    config.down.ecn_mark = Some(lasthop_radio::QueueLimit::Packets(15));
    let result = run(Ports::udp(relay), &config, Seed::from_u64(1), &control);
    assert!(matches!(result, Err(EmulatorError::NoMarks)));
}

#[test]
fn mobiles_beyond_the_limit_are_turned_away() {
    let base = udp_socket();
    let (relay, listen) = udp_relay(&base, UdpLimits { peers: 1, ..UdpLimits::default() });
    let radio = Running::start(Ports::udp(relay), RadioConfig::default());
    let (first, second) = (udp_socket(), udp_socket());
    let mut room = [0; 16];
    first.send_to(b"first", listen).expect("sends");
    base.recv_from(&mut room).expect("arrives");
    second.send_to(b"second", listen).expect("sends");
    first.send_to(b"third", listen).expect("sends");
    let (length, _) = base.recv_from(&mut room).expect("arrives");
    assert_eq!(&room[..length], b"third");
    assert_eq!(radio.finish().mobile.turned_away, 1);
}

#[test]
fn a_running_radio_can_be_paused_and_its_statistics_reset() {
    let base = udp_socket();
    let (relay, listen) = udp_relay(&base, UdpLimits::default());
    let radio = Running::start(Ports::udp(relay), RadioConfig::default());
    let mobile = udp_socket();
    let mut room = [0; 16];
    mobile.send_to(b"before", listen).expect("sends");
    base.recv_from(&mut room).expect("arrives");
    radio.control.pause(PATIENCE);
    radio.control.reset_stats();
    mobile.send_to(b"during", listen).expect("sends");
    while radio.control.fresh_snapshot().up.offered.packets == 0 {
        thread::yield_now();
    }
    radio.control.resume();
    radio.control.fresh_snapshot();
    mobile.send_to(b"after", listen).expect("sends");
    let (length, _) = base.recv_from(&mut room).expect("arrives");
    assert_eq!(&room[..length], b"after");
    let snapshot = radio.finish();
    assert_eq!(snapshot.up.dropped.silence.packets, 1);
    assert_eq!(snapshot.up.delivered.packets, 1);
}

#[test]
fn a_base_that_is_not_there_is_silence() {
    let base = udp_socket();
    let (relay, listen) = udp_relay(&base, UdpLimits::default());
    drop(base);
    let radio = Running::start(Ports::udp(relay), RadioConfig::default());
    let mobile = udp_socket();
    mobile.set_read_timeout(Some(Duration::from_millis(100))).expect("sets");
    for _ in 0..3 {
        mobile.send_to(b"anyone?", listen).expect("sends");
        let error = mobile.recv_from(&mut [0; 16]).expect_err("nothing comes back");
        assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    }
    assert_eq!(radio.finish().up.offered.packets, 3);
}
