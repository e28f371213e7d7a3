//! The base's own addresses, as a mobile asks for them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use lasthop_daemon::config::HopKind;
use lasthop_kernel::netlink::Rtnetlink;
use lasthop_kernel::netns::{Netns, NetnsError};

use crate::harness::{self, Pair, Setting, read_all};

/// What SOCKS5 says of a target that is not allowed.
const NOT_ALLOWED: u8 = 2;
const PORT: u16 = 8000;
const PATIENCE: Duration = Duration::from_secs(20);
/// The addresses of an interface, and one of a network that is local by a route.
const LAN: [&str; 2] = ["10.3.0.1", "fd03::1"];
const ROUTED: &str = "192.0.2.7";

fn at(ip: &str) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), PORT)
}

/// A host with a LAN; none where a test may not have it.
fn host() -> Option<Netns> {
    let host = lasthop_testing::or_skip(Netns::anonymous(), NetnsError::is_unavailable)?;
    host.veth("lan0", &host, "lan1").unwrap();
    host.interface_up("lan0", &[(LAN[0].parse().unwrap(), 24), (LAN[1].parse().unwrap(), 64)])
        .unwrap();
    host.interface_up("lan1", &[]).unwrap();
    host.ip("route add local 192.0.2.0/24 dev lo\n").unwrap();
    LAN.into_iter().for_each(|ip| await_own(&host, ip));
    Some(host)
}

/// Waits until the kernel takes an address for its own: an IPv6 one waits for a carrier.
fn await_own(host: &Netns, ip: &str) {
    let mut kernel = host.enter(Rtnetlink::open).unwrap().unwrap();
    let start = Instant::now();
    while kernel.local_route_prefix(at(ip)).unwrap().is_none() {
        assert!(start.elapsed() < PATIENCE, "{ip} is not there");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A server of the host's own, on all of its addresses: it says one word.
fn serve() {
    let listener = TcpListener::bind(("::", PORT)).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"inside");
        }
    });
}

fn pair(allowed: &[&'static str]) -> Pair {
    let mut setting = Setting::new(HopKind::Srp);
    setting.allowed.extend(allowed);
    Pair::start(setting)
}

fn answer(pair: &Pair, to: SocketAddr) -> Result<Vec<u8>, u8> {
    pair.socks(to).map(|mut stream| read_all(&mut stream))
}

#[test]
fn a_mobile_does_not_reach_the_bases_own_addresses() {
    let Some(host) = host() else { return };
    host.enter(|| {
        serve();
        let pair = pair(&[]);
        assert_eq!(answer(&pair, at("127.0.0.1")).unwrap(), b"inside", "the pair works");
        let mapped = ["::ffff:10.3.0.1", "::ffff:192.0.2.7"];
        // The IPv4 address as a host between IPv6 and IPv4 has it (RFC 6052, RFC 8215).
        let translated = ["64:ff9b::10.3.0.1", "64:ff9b:1::10.3.0.1"];
        for ip in LAN.into_iter().chain([ROUTED]).chain(mapped).chain(translated) {
            assert_eq!(answer(&pair, at(ip)), Err(NOT_ALLOWED), "{ip}");
        }
        // A name, as inet_aton(3) reads it.
        assert_eq!(pair.socks_name("10.3.1", PORT).map(drop), Err(NOT_ALLOWED));
    })
    .unwrap();
}

#[test]
fn an_address_that_comes_while_the_base_runs_is_its_own_from_then_on() {
    let Some(host) = host() else { return };
    host.enter(|| {
        serve();
        let pair = pair(&[]);
        // Nobody is there, which is another thing than what is not allowed.
        for (ip, length) in [("10.3.0.9", 24), ("fd03::9", 64)] {
            host.ip(&format!("address add {ip}/{length} dev lan0 nodad\n")).unwrap();
            await_own(&host, ip);
            assert_eq!(answer(&pair, at(ip)), Err(NOT_ALLOWED), "{ip}");
            host.ip(&format!("address del {ip}/{length} dev lan0\n")).unwrap();
            host.ip(&format!("route add unreachable {ip}\n")).unwrap();
            assert_ne!(answer(&pair, at(ip)), Err(NOT_ALLOWED), "{ip}");
        }
    })
    .unwrap();
}

#[test]
fn only_an_allow_as_specific_as_the_local_route_opens_an_own_address() {
    let Some(host) = host() else { return };
    host.enter(|| {
        serve();
        let wide = pair(&["0.0.0.0/0", "::/0", "10.3.0.0/24", "fd03::/64", "192.0.2.0/23"]);
        for ip in LAN.into_iter().chain([ROUTED]) {
            assert_eq!(answer(&wide, at(ip)), Err(NOT_ALLOWED), "{ip}");
        }
        let exact = pair(&["10.3.0.1", "fd03::1", "192.0.2.0/24"]);
        for ip in LAN.into_iter().chain([ROUTED, "::ffff:10.3.0.1"]) {
            assert_eq!(answer(&exact, at(ip)).unwrap(), b"inside", "{ip}");
        }
    })
    .unwrap();
}

/// MHP-7: a mobile reaches what another has published at the same base; here, its own.
#[test]
fn a_published_port_at_the_bases_own_address_is_reached_by_mobiles_too() {
    let Some(host) = host() else { return };
    host.enter(|| {
        serve();
        let server = harness::serve_all(|mut stream| {
            let _ = stream.write_all(b"published");
            let _ = stream.read(&mut [0]);
        });
        let own = "10.3.0.1".parse().unwrap();
        // A port for each: a process that another test starts may have the first's listener for a moment more.
        for listen in ["[::]:8001", "10.3.0.1:8002"] {
            let listen: SocketAddr = listen.parse().unwrap();
            let published = vec![(listen, Some(server))];
            let pair = Pair::start(Setting { published, ..Setting::new(HopKind::Srp) });
            let mut stream = pair.connect_patiently(SocketAddr::new(own, listen.port()));
            let mut word = [0; 9];
            stream.read_exact(&mut word).unwrap();
            assert_eq!(&word, b"published");
            assert_eq!(answer(&pair, at("10.3.0.1")), Err(NOT_ALLOWED), "the next port");
            let other = SocketAddr::new("192.0.2.7".parse().unwrap(), listen.port());
            let expected = if listen.is_ipv6() { Ok(()) } else { Err(NOT_ALLOWED) };
            assert_eq!(pair.socks(other).map(drop), expected, "{listen}");
        }
    })
    .unwrap();
}
