//! Interception by a real kernel, in network namespaces.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::thread::CapabilitySet;

use super::*;
use crate::accept::Accepted;
use crate::leave::Leave;
use crate::netlink::Sets;
use crate::netns::{Netns, Prefix};
use crate::network::Network;
use crate::nft::NftError;
use crate::tcp;

/// Nothing in these tests should take longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// What is refused by silence is not answered within this time.
const SILENCE: Duration = Duration::from_millis(300);

fn prefix(s: &str) -> Prefix {
    let (ip, bits) = s.split_once('/').unwrap();
    (ip.parse().unwrap(), bits.parse().unwrap())
}

fn addr(s: &str) -> SocketAddr {
    s.parse().unwrap()
}

/// A link between two namespaces, with an address of each family at each end.
fn link(a: &Netns, name: &str, at_a: [&str; 2], b: &Netns, peer: &str, at_b: [&str; 2]) {
    a.veth(name, b, peer).unwrap();
    a.interface_up(name, &at_a.map(prefix)).unwrap();
    b.interface_up(peer, &at_b.map(prefix)).unwrap();
}

fn default_routes(netns: &Netns, via: [&str; 2]) {
    for via in via {
        netns.route(None, via.parse().unwrap()).unwrap();
    }
}

/// All that interception could change, as text. The kernel's own routes come when it has found that
/// nobody else has an address.
fn picture(netns: &Netns) -> String {
    let commands = [
        ("nft", "list ruleset"),
        ("ip", "rule"),
        ("ip", "-6 rule"),
        ("ip", "route show table all"),
        ("ip", "-6 route show table all"),
    ];
    let mut picture = String::new();
    for (program, args) in commands {
        let output = netns.command(program).args(args.split(' ')).output().unwrap();
        assert!(output.status.success(), "{program} {args}");
        let text = String::from_utf8(output.stdout).unwrap();
        picture.extend(
            text.lines().filter(|l| !l.contains(" proto kernel ")).map(|l| format!("{l}\n")),
        );
    }
    picture
}

/// What these names mean: this host, or networks behind interfaces.
pub(super) fn config(names: &str, f: impl FnOnce(&mut TransparentConfig)) -> TransparentConfig {
    let (host, interfaces): (Vec<&str>, _) = names.split(',').partition(|name| *name == "host");
    let interfaces = interfaces.into_iter().map(str::to_owned).collect();
    let host = !host.is_empty();
    let mut config = TransparentConfig { host, interfaces, ..TransparentConfig::default() };
    f(&mut config);
    config
}

fn start(netns: &Netns, config: &TransparentConfig) -> (Interception, Listener) {
    netns.enter(|| Interception::mobile(config)).unwrap().unwrap()
}

/// The next intercepted connection.
fn taken(listener: &Listener) -> Taken {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        for n in 0..listener.sockets().count() {
            if let Accepted::Connection(Some(taken)) = listener.accept(n) {
                return taken;
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("nothing was intercepted");
}

fn nothing_taken(listener: &Listener) {
    for n in 0..listener.sockets().count() {
        assert!(matches!(listener.accept(n), Accepted::Empty));
    }
}

/// The kernel ends the connection of `interception` as if the process had been killed.
fn kill(interception: Interception) {
    interception.abandon();
}

fn connect(netns: &Netns, to: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = netns.enter(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Ok(stream)
}

/// Bytes cross both ways between an application and its intercepted end.
fn talks(application: &mut TcpStream, taken: OwnedFd) {
    let mut end = TcpStream::from(taken);
    end.set_nonblocking(false).unwrap();
    end.set_read_timeout(Some(PATIENCE)).unwrap();
    application.write_all(b"question").unwrap();
    let mut got = [0; 8];
    end.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"question");
    end.write_all(b"answer").unwrap();
    let mut got = [0; 6];
    application.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"answer");
}

/// A datagram goes from one namespace to the other and one comes back.
fn udp_passes(from: &Netns, to: &Netns, at: SocketAddr) {
    let server = to.enter(|| UdpSocket::bind(at).unwrap()).unwrap();
    let any = if at.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let client = from.enter(|| UdpSocket::bind(any).unwrap()).unwrap();
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    client.send_to(b"x", at).unwrap();
    let (_, peer) = server.recv_from(&mut [0; 8]).unwrap();
    server.send_to(b"y", peer).unwrap();
    client.recv_from(&mut [0; 8]).unwrap();
}

/// A host with a server on the other side of a link.
fn host_and_server() -> Option<(Netns, Netns)> {
    let (host, server) = (Netns::for_test()?, Netns::for_test()?);
    link(
        &host,
        "wan0",
        ["10.7.0.2/24", "fd07::2/64"],
        &server,
        "eth0",
        ["10.7.0.1/24", "fd07::1/64"],
    );
    default_routes(&host, ["10.7.0.1", "fd07::1"]);
    Some((host, server))
}

#[test]
fn a_hosts_tcp_comes_to_the_listener_with_its_target_by_both_families() {
    let Some((host, _server)) = host_and_server() else { return };
    let (_interception, listener) = start(&host, &config("host", |_| {}));
    for target in [addr("192.0.2.80:80"), addr("[2001:db8::80]:80"), addr("10.7.0.1:22")] {
        let mut application = connect(&host, target).unwrap();
        assert_eq!(application.peer_addr().unwrap(), target);
        let taken = taken(&listener);
        assert_eq!(taken.target, target);
        assert_eq!(taken.source, application.local_addr().unwrap());
        talks(&mut application, taken.fd);
    }
}

/// Of what the application said before it was accepted no byte is missing.
#[test]
fn urgent_data_of_an_intercepted_application_are_in_line() {
    let Some((host, _server)) = host_and_server() else { return };
    let (_interception, listener) = start(&host, &config("host", |_| {}));
    for target in [addr("192.0.2.80:80"), addr("[2001:db8::80]:80")] {
        let mut application = connect(&host, target).unwrap();
        for urgent in [b"!", b"?"] {
            rustix::net::send(&application, urgent, rustix::net::SendFlags::OOB).unwrap();
            application.write_all(b"abc").unwrap();
        }
        let mut end = TcpStream::from(taken(&listener).fd);
        end.set_nonblocking(false).unwrap();
        end.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut got = [0; 8];
        end.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"!abc?abc");
    }
}

#[test]
fn a_hosts_tcp_needs_neither_a_route_nor_an_address_of_the_host() {
    let Some(host) = Netns::for_test() else { return };
    let (_interception, listener) = start(&host, &config("host", |_| {}));
    for target in [addr("192.0.2.80:80"), addr("[2001:db8::80]:80")] {
        let mut application = connect(&host, target).unwrap();
        talks(&mut application, taken(&listener).fd);
    }
}

#[test]
fn a_hosts_connection_outlives_its_addresses_and_its_interface() {
    let Some((host, _server)) = host_and_server() else { return };
    let (_interception, listener) = start(&host, &config("host", |_| {}));
    for target in [addr("192.0.2.80:80"), addr("[2001:db8::80]:80")] {
        let mut application = connect(&host, target).unwrap();
        let end = taken(&listener).fd;
        host.ip("address flush dev wan0\nlink set dev wan0 down\n").unwrap();
        talks(&mut application, end);
    }
}

#[test]
fn what_is_not_a_hosts_carried_tcp_passes_by() {
    let Some((host, server)) = host_and_server() else { return };
    let at_host = host.enter(|| TcpListener::bind("[::]:80").unwrap()).unwrap();
    let listening = ["10.7.0.1:81", "[fd07::1]:81"].map(|at| {
        let at = addr(at);
        (at, server.enter(|| TcpListener::bind(at).unwrap()).unwrap())
    });
    // One that stood before.
    let mut old = connect(&host, listening[0].0).unwrap();
    let (old_end, _) = listening[0].1.accept().unwrap();

    let excluded = ["10.7.0.0/24", "fd07::/64"].map(|n| n.parse().unwrap()).to_vec();
    let some = config("host", |f| f.exclude = excluded);
    let mark = some.numbers.mark;
    let (interception, listener) = start(&host, &some);
    for (at, listening) in &listening {
        // To an excluded network.
        let mut direct = connect(&host, *at).unwrap();
        talks(&mut direct, listening.accept().unwrap().0.into());
        udp_passes(&host, &server, *at);
    }
    drop(interception);
    let all = config("host", |_| {});
    let (_interception, listener_of_all) = start(&host, &all);
    drop(listener);
    let listener = listener_of_all;
    for (at, listening) in &listening {
        // By lasthop's own sockets.
        let own = host
            .enter(|| {
                let fd = Leave::marked(Some(mark)).connect(*at).unwrap();
                let stream = TcpStream::from(fd);
                stream.set_nonblocking(false).unwrap();
                stream
            })
            .unwrap();
        let (end, peer) = listening.accept().unwrap();
        assert!(!peer.ip().is_loopback());
        talks(&mut { own }, end.into());
        udp_passes(&host, &server, *at);
        // From the other side, to a server here.
        let here = if at.is_ipv4() { addr("10.7.0.2:80") } else { addr("[fd07::2]:80") };
        let mut inbound = connect(&server, here).unwrap();
        talks(&mut inbound, at_host.accept().unwrap().0.into());
        // From here to here.
        let mut own = connect(&host, here).unwrap();
        talks(&mut own, at_host.accept().unwrap().0.into());
    }
    talks(&mut old, old_end.into());
    nothing_taken(&listener);
}

#[test]
fn the_listener_itself_is_nobodys_target() {
    let Some(host) = Netns::for_test() else { return };
    let (_interception, listener) = start(&host, &config("host", |_| {}));
    let at = tcp::local_addr(listener.sockets().next().unwrap());
    let mut stray = connect(&host, at).unwrap();
    let start = Instant::now();
    while !matches!(listener.accept(0), Accepted::Connection(None)) {
        assert!(start.elapsed() < PATIENCE);
    }
    assert!(stray.read(&mut [0; 1]).is_err(), "not reset");
}

/// A network behind a mobile router, and a fixed host in front of it.
fn network() -> Option<(Netns, Netns, Netns)> {
    let (client, router, server) = (Netns::for_test()?, Netns::for_test()?, Netns::for_test()?);
    link(
        &client,
        "eth0",
        ["10.1.0.5/24", "fd01::5/64"],
        &router,
        "lan0",
        ["10.1.0.1/24", "fd01::1/64"],
    );
    link(
        &router,
        "wan0",
        ["10.7.0.2/24", "fd07::2/64"],
        &server,
        "eth0",
        ["10.7.0.1/24", "fd07::1/64"],
    );
    default_routes(&client, ["10.1.0.1", "fd01::1"]);
    default_routes(&server, ["10.7.0.2", "fd07::2"]);
    router.sysctl("ipv4.ip_forward", "1").unwrap();
    router.sysctl("ipv6.conf.all.forwarding", "1").unwrap();
    Some((client, router, server))
}

#[test]
fn a_networks_tcp_comes_to_the_listener_and_all_else_passes() {
    let Some((client, router, server)) = network() else { return };
    let listening = ["10.7.0.1:80", "[fd07::1]:80"].map(|at| {
        let at = addr(at);
        (at, server.enter(|| TcpListener::bind(at).unwrap()).unwrap())
    });
    let mut old = connect(&client, listening[0].0).unwrap();
    let (old_end, _) = listening[0].1.accept().unwrap();
    let at_router = router.enter(|| TcpListener::bind("[::]:53").unwrap()).unwrap();
    // As where a tunnel of another kind looks at marks on the way back too.
    router.sysctl("ipv4.conf.all.src_valid_mark", "1").unwrap();
    router.sysctl("ipv4.conf.all.rp_filter", "1").unwrap();
    let (mut interception, listener) = start(&router, &config("lan0", |_| {}));
    for (at, listening) in &listening {
        for target in [*at, addr(if at.is_ipv4() { "192.0.2.80:80" } else { "[2001:db8::1]:80" })] {
            let mut application = connect(&client, target).unwrap();
            let taken = taken(&listener);
            assert_eq!(taken.target, target);
            assert_eq!(taken.source, application.local_addr().unwrap());
            talks(&mut application, taken.fd);
        }
        udp_passes(&client, &server, *at);
        // To the router itself, and the router's own.
        let gateway = if at.is_ipv4() { "10.1.0.1:53" } else { "[fd01::1]:53" };
        let mut direct = connect(&client, addr(gateway)).unwrap();
        talks(&mut direct, at_router.accept().unwrap().0.into());
        let mut own = connect(&router, *at).unwrap();
        talks(&mut own, listening.accept().unwrap().0.into());
    }
    talks(&mut old, old_end.into());
    // What stands goes on after the last call, and what is new goes past.
    let at = listening[0].0;
    let mut standing = connect(&client, at).unwrap();
    let end = taken(&listener).fd;
    router.enter(|| interception.close()).unwrap();
    let mut fresh = connect(&client, at).unwrap();
    talks(&mut fresh, listening[0].1.accept().unwrap().0.into());
    talks(&mut standing, end);
    nothing_taken(&listener);
}

#[test]
fn an_excluded_network_is_reached_as_without_lasthop() {
    let Some((client, router, server)) = network() else { return };
    let some = config("lan0", |f| f.exclude = vec!["10.7.0.0/16".parse().unwrap()]);
    let (_interception, listener) = start(&router, &some);
    let listening = server.enter(|| TcpListener::bind("10.7.0.1:80").unwrap()).unwrap();
    let mut direct = connect(&client, addr("10.7.0.1:80")).unwrap();
    talks(&mut direct, listening.accept().unwrap().0.into());
    nothing_taken(&listener);
}

#[test]
fn after_the_last_call_a_hosts_new_connections_go_their_own_way() {
    let Some((host, server)) = host_and_server() else { return };
    let (mut interception, listener) = start(&host, &config("host", |_| {}));
    for at in ["10.7.0.1:80", "[fd07::1]:80"].map(addr) {
        let listening = server.enter(|| TcpListener::bind(at).unwrap()).unwrap();
        drop(listening);
    }
    let mut standing = connect(&host, addr("10.7.0.1:80")).unwrap();
    let end = taken(&listener).fd;
    host.enter(|| interception.close()).unwrap();
    for at in ["10.7.0.1:80", "[fd07::1]:80"].map(addr) {
        let listening = server.enter(|| TcpListener::bind(at).unwrap()).unwrap();
        let mut fresh = connect(&host, at).unwrap();
        talks(&mut fresh, listening.accept().unwrap().0.into());
    }
    talks(&mut standing, end);
}

#[test]
fn nothing_is_left_when_it_ends() {
    let Some((_client, router, _server)) = network() else { return };
    let before = picture(&router);
    let (interception, _listener) = start(&router, &config("host,lan0,absent0", |_| {}));
    let base = router
        .enter(|| Interception::base(Numbers::BASE, &of_mobile(), &Exceptions::default()))
        .unwrap()
        .unwrap();
    let during = picture(&router);
    assert!(during.contains("lasthop_mobile") && during.contains("lasthop_base"), "{during}");
    router.enter(|| drop(interception)).unwrap();
    router.enter(|| drop(base)).unwrap();
    assert_eq!(picture(&router), before);
}

#[test]
fn what_a_killed_process_left_is_removed_by_the_next_whatever_its_numbers() {
    let Some((host, _server)) = host_and_server() else { return };
    let before = picture(&host);
    let odd = config("host,wan1", |f| {
        f.numbers = Numbers { mark: 0x800, table: 4711, priority: 200 };
    });
    let (interception, listener) = start(&host, &odd);
    kill(interception);
    drop(listener);
    assert!(picture(&host).contains("4711"));
    let target = addr("192.0.2.80:80");
    for at in [target, addr("[2001:db8::80]:80")] {
        let error = connect(&host, at).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused, "{at}");
    }

    let (interception, listener) = start(&host, &config("host", |_| {}));
    assert!(!picture(&host).contains("4711"));
    let mut application = connect(&host, target).unwrap();
    talks(&mut application, taken(&listener).fd);
    host.enter(|| drop(interception)).unwrap();
    assert_eq!(picture(&host), before);
}

#[test]
fn a_second_process_in_the_same_namespace_is_refused_and_harms_nothing() {
    let Some(host) = Netns::for_test() else { return };
    let (_interception, listener) = start(&host, &config("host", |_| {}));
    let error = host.enter(|| Interception::mobile(&config("host", |_| {}))).unwrap().unwrap_err();
    assert!(matches!(error, TransparentError::Taken(_)), "{error}");
    assert!(error.to_string().contains("SOCKS5"), "{error}");
    let mut application = connect(&host, addr("192.0.2.80:80")).unwrap();
    talks(&mut application, taken(&listener).fd);
}

#[test]
fn where_there_is_no_ipv6_ipv4_is_intercepted_alone() {
    let Some(host) = Netns::for_test() else { return };
    host.sysctl("ipv6.conf.all.disable_ipv6", "1").unwrap();
    let (_interception, listener) = start(&host, &config("host", |_| {}));
    assert_eq!(listener.sockets().count(), 1);
    let mut application = connect(&host, addr("192.0.2.80:80")).unwrap();
    talks(&mut application, taken(&listener).fd);
}

/// A base with a server beside it; the server reaches mobiles' addresses through the base.
fn base_and_server() -> Option<(Netns, Netns)> {
    let (base, server) = (Netns::for_test()?, Netns::for_test()?);
    link(
        &base,
        "eth0",
        ["10.7.0.2/24", "fd07::2/64"],
        &server,
        "eth0",
        ["10.7.0.1/24", "fd07::1/64"],
    );
    default_routes(&server, ["10.7.0.2", "fd07::2"]);
    base.sysctl("ipv4.ip_forward", "1").unwrap();
    base.sysctl("ipv6.conf.all.forwarding", "1").unwrap();
    Some((base, server))
}

fn of_mobile() -> [Network; 2] {
    ["10.9.0.0/24", "fd09::/64"].map(|n| n.parse().unwrap())
}

/// How a connection leaves from these addresses.
fn leaving<const N: usize>(sources: [SocketAddr; N]) -> Leave {
    let of = |v4| sources.into_iter().find(|source| source.is_ipv4() == v4);
    Leave { v4: of(true), v6: of(false), ..Leave::default() }
}

#[test]
fn the_server_sees_the_mobiles_own_address_and_port() {
    let Some((base, server)) = base_and_server() else { return };
    base.sysctl("ipv4.conf.all.src_valid_mark", "1").unwrap();
    base.sysctl("ipv4.conf.all.rp_filter", "1").unwrap();
    let _interception = base
        .enter(|| Interception::base(Numbers::BASE, &of_mobile(), &Exceptions::default()))
        .unwrap()
        .unwrap();
    let own = |ip: &str| ip.parse::<IpAddr>().unwrap();
    for (at, mobile) in [("10.7.0.1:80", "10.9.0.7"), ("[fd07::1]:80", "fd09::7")] {
        let listening = server.enter(|| TcpListener::bind(addr(at)).unwrap()).unwrap();
        let dial = |asked: Option<SocketAddr>| {
            let source = asked.unwrap_or(SocketAddr::new(own(mobile), 0));
            let leave = leaving([source]);
            let fd = base.enter(|| leave.connect(addr(at)).unwrap()).unwrap();
            let (end, peer) = listening.accept().unwrap();
            let mut stream = TcpStream::from(fd);
            stream.set_nonblocking(false).unwrap();
            talks(&mut stream, end.into());
            (stream, peer)
        };
        let (_first, peer) = dial(None);
        assert_eq!(peer.ip(), own(mobile));
        let asked = SocketAddr::new(own(mobile), 5000);
        let (_second, peer) = dial(Some(asked));
        assert_eq!(peer, asked);
        // The very port is busy with the very server.
        let (_third, peer) = dial(Some(asked));
        assert_eq!(peer.ip(), own(mobile));
        assert_ne!(peer.port(), 5000);
    }
}

/// What the network says of a base's own connection from a mobile's address is for the base; all other
/// ICMP goes to the mobile.
#[test]
fn icmp_errors_reach_the_socket_whose_packet_they_quote() {
    let Some((base, router)) = base_and_server() else { return };
    let (Some(far), Some(mobile)) = (Netns::for_test(), Netns::for_test()) else { return };
    let (near, beyond) = (["10.8.0.1/24", "fd08::1/64"], ["10.8.0.2/24", "fd08::2/64"]);
    link(&router, "far0", near, &far, "eth0", beyond);
    router.ip("link set dev far0 mtu 1280").unwrap();
    router.sysctl("ipv4.ip_forward", "1").unwrap();
    router.sysctl("ipv6.conf.all.forwarding", "1").unwrap();
    default_routes(&base, ["10.7.0.1", "fd07::1"]);
    default_routes(&far, ["10.8.0.1", "fd08::1"]);
    let (at_base, at_mobile) = (["10.6.0.1/24", "fd06::1/64"], ["10.6.0.7/24", "fd06::7/64"]);
    link(&base, "radio0", at_base, &mobile, "eth0", at_mobile);
    default_routes(&mobile, ["10.6.0.1", "fd06::1"]);
    mobile.interface_up("lo", &["10.9.0.7/32", "fd09::7/128"].map(prefix)).unwrap();
    for (to, via) in [("10.9.0.7/32", "10.6.0.7"), ("fd09::7/128", "fd06::7")] {
        base.route(Some(prefix(to)), via.parse().unwrap()).unwrap();
    }
    // The router's own way back to whom nobody has must not be the base again.
    router.ip("route add unreachable 192.0.2.0/24\nroute add unreachable 2001:db8::/32").unwrap();
    let _interception = base
        .enter(|| Interception::base(Numbers::BASE, &of_mobile(), &Exceptions::default()))
        .unwrap()
        .unwrap();
    let own = ["10.9.0.7", "fd09::7"].map(|ip| ip.parse::<IpAddr>().unwrap());
    let leave = leaving(own.map(|ip| SocketAddr::new(ip, 0)));
    let nobody = ["192.0.2.1:80", "[2001:db8::1]:80"];
    for ((at, nobody), own) in ["10.8.0.2:80", "[fd08::2]:80"].into_iter().zip(nobody).zip(own) {
        // More than one packet fits nowhere on the way: it must be cut smaller.
        let listening = far.enter(|| TcpListener::bind(addr(at)).unwrap()).unwrap();
        let fd = base.enter(|| leave.connect(addr(at)).unwrap()).unwrap();
        let (mut end, peer) = listening.accept().unwrap();
        assert_eq!(peer.ip(), own);
        end.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut stream = TcpStream::from(fd);
        stream.set_nonblocking(false).unwrap();
        let sending = std::thread::spawn(move || {
            stream.write_all(&[7; 100_000]).unwrap();
            stream
        });
        end.read_exact(&mut [0; 100_000]).unwrap_or_else(|e| panic!("{at}: {e}"));
        sending.join().unwrap();
        // Nor has a dial to wait for what a router says at once.
        let dial = base.enter(|| leave.connect(addr(nobody)).unwrap()).unwrap();
        let start = Instant::now();
        let error = loop {
            if let Some(outcome) = tcp::connected(&dial) {
                break outcome.unwrap_err();
            }
            assert!(start.elapsed() < PATIENCE, "{nobody}: nothing was heard");
            std::thread::sleep(Duration::from_millis(5));
        };
        let unreachable =
            [std::io::ErrorKind::HostUnreachable, std::io::ErrorKind::NetworkUnreachable];
        assert!(unreachable.contains(&error.kind()), "{nobody}: {error}");
        // What the mobile itself sends is answered to the mobile.
        let closed = SocketAddr::new(addr(at).ip(), 9);
        let socket = mobile.enter(|| UdpSocket::bind((own, 0)).unwrap()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.connect(closed).unwrap();
        socket.send(b"x").unwrap();
        let error = socket.recv(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused, "{closed}");
    }
}

#[test]
fn tcp_to_a_mobile_without_a_socket_here_is_neither_answered_nor_passed_on() {
    let Some((base, server)) = base_and_server() else { return };
    // The mobile itself stands behind the base, with a server that nobody reaches by TCP.
    let Some(mobile) = Netns::for_test() else { return };
    link(
        &base,
        "radio0",
        ["10.9.0.1/24", "fd09::1/64"],
        &mobile,
        "eth0",
        ["10.9.0.7/24", "fd09::7/64"],
    );
    default_routes(&mobile, ["10.9.0.1", "fd09::1"]);
    let listening = mobile.enter(|| TcpListener::bind("[::]:80").unwrap()).unwrap();
    listening.set_nonblocking(true).unwrap();
    let mut interception = base
        .enter(|| Interception::base(Numbers::BASE, &of_mobile(), &Exceptions::default()))
        .unwrap()
        .unwrap();
    let tries = |at: SocketAddr| server.enter(|| TcpStream::connect_timeout(&at, SILENCE)).unwrap();
    for at in ["10.9.0.7:80", "[fd09::7]:80"].map(addr) {
        let error = tries(at).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "{at}");
        udp_passes(&server, &mobile, at);
    }
    assert!(listening.accept().is_err());
    // While another router gets what is for them, it passes.
    let none = Exceptions::default();
    let away = ["10.9.0.7", "fd09::7"].map(|ip| ip.parse().unwrap()).into();
    let away = Exceptions { away, ..Exceptions::default() };
    base.enter(|| Sets::default().change(&none.change(&away)).unwrap()).unwrap();
    for at in ["10.9.0.7:80", "[fd09::7]:80"].map(addr) {
        connect(&server, at).unwrap();
    }
    base.enter(|| Sets::default().change(&away.change(&none)).unwrap()).unwrap();
    assert_eq!(tries(addr("10.9.0.7:80")).unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    // Once the addresses are nobody's, they are reached as ever.
    base.enter(|| interception.renew(Numbers::BASE, &[], &Exceptions::default()).unwrap()).unwrap();
    for at in ["10.9.0.7:80", "[fd09::7]:80"].map(addr) {
        connect(&server, at).unwrap();
    }
}

#[test]
fn without_privilege_the_error_names_what_is_missing_and_what_still_works() {
    let Some(host) = Netns::for_test() else { return };
    let before = picture(&host);
    let error = host
        .enter(|| {
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW);
            rustix::thread::set_capabilities(None, sets).unwrap();
            Interception::mobile(&config("host", |_| {})).unwrap_err()
        })
        .unwrap()
        .to_string();
    for said in ["CAP_NET_ADMIN", "SOCKS5", "lasthop exec"] {
        assert!(error.contains(said), "{error}");
    }
    assert_eq!(picture(&host), before);
}

#[test]
fn without_nft_the_error_names_the_remedy_and_what_still_works() {
    let error = TransparentError::from(NftError::Missing).to_string();
    assert!(error.contains("install nftables") && error.contains("SOCKS5"), "{error}");
    assert!(!error.contains('\n'), "{error}");
}
