//! Applications without proxy settings: a mobile takes their TCP, a base lets it leave from the
//! mobile's own address.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use common::pair::Pair;
use lasthop_kernel::netns::Netns;
use lasthop_lab::LabError;
use lasthop_lab::process::Daemon;

const PATIENCE: Duration = Duration::from_secs(60);
/// More than any buffer on the way.
const UPLOAD: usize = 8 << 20;
const SERVER: [&str; 2] = ["10.3.0.2", "fd03::2"];
/// The mobile's own addresses, which no host has.
const OWN: [&str; 2] = ["10.9.0.7", "fd09::7"];
const BASE: [&str; 2] = ["10.3.0.1", "fd03::1"];
const CLIENT: [&str; 2] = ["10.1.0.5", "fd01::5"];

/// client -- lan0 mobile -- hop0 base -- wired0 server
struct Lan {
    client: Netns,
    mobile: Netns,
    base: Netns,
    server: Netns,
    pair: Pair,
}

/// A link with the first addresses at `a` and the second at `b`.
fn link(a: &Netns, name: &str, b: &Netns, peer: &str, addresses: [[&str; 2]; 2]) {
    a.veth(name, b, peer).unwrap();
    for (host, name, addresses) in [(a, name, addresses[0]), (b, peer, addresses[1])] {
        let prefixes = addresses.map(|ip| {
            let ip: IpAddr = ip.parse().unwrap();
            (ip, if ip.is_ipv4() { 24 } else { 64 })
        });
        host.interface_up(name, &prefixes).unwrap();
    }
}

impl Lan {
    /// None where a test may not have it.
    fn new() -> Option<Self> {
        let pair = Pair::new()?;
        let netns = || common::permitted(Netns::anonymous().map_err(LabError::Netns));
        let (client, mobile, base, server) = (netns()?, netns()?, netns()?, netns()?);
        link(&client, "eth0", &mobile, "lan0", [CLIENT, ["10.1.0.1", "fd01::1"]]);
        link(&mobile, "hop0", &base, "hop0", [["10.2.0.2", "fd02::2"], ["10.2.0.1", "fd02::1"]]);
        link(&base, "wired0", &server, "eth0", [BASE, SERVER]);
        for (host, via) in [
            (&client, ["10.1.0.1", "fd01::1"]),
            (&mobile, ["10.2.0.1", "fd02::1"]),
            (&server, BASE),
        ] {
            via.into_iter().for_each(|via| host.route(None, via.parse().unwrap()).unwrap());
        }
        for (to, via) in [(("10.1.0.0", 16), "10.2.0.2"), (("fd01::", 64), "fd02::2")] {
            let to = (to.0.parse().unwrap(), to.1);
            base.route(Some(to), via.parse().unwrap()).unwrap();
        }
        for host in [&mobile, &base] {
            host.sysctl("ipv4.ip_forward", "1").unwrap();
            host.sysctl("ipv6.conf.all.forwarding", "1").unwrap();
        }
        serve(&server);
        Some(Self { client, mobile, base, server, pair })
    }

    /// A base, with more in its configuration.
    fn base(&self, hop: &str, more: &str) -> Daemon {
        let config = format!(
            "listen = [\"[::]:4433\"]\nallow = [{:?}]\nhop = {hop:?}\n{more}",
            self.pair.keys[1]
        );
        self.pair.start(&self.base, "base", &config)
    }

    /// A mobile that intercepts from here on.
    fn mobile(&self, hop: &str, transparent: &str) -> Daemon {
        self.mobile_with(hop, "", transparent)
    }

    /// The same, with more in its configuration.
    fn mobile_with(&self, hop: &str, more: &str, transparent: &str) -> Daemon {
        let config = format!(
            "base = \"10.2.0.1:4433\"\nbase_key = {:?}\nhop = {hop:?}\n{more}\n\
             [transparent]\n{transparent}",
            self.pair.keys[0]
        );
        let mut mobile = self.pair.start(&self.mobile, "mobile", &config);
        await_word(&mut mobile, "serving SOCKS5");
        mobile
    }

    /// `[[mobiles]]` of the base.
    fn own_addresses(&self) -> String {
        let key = &self.pair.keys[1];
        format!(
            "[[mobiles]]\nkey = {key:?}\naddress = {OWN:?}\nnetwork = [\"10.1.0.0/16\", \
             \"fd01::/64\"]\n"
        )
    }

    /// Waits until curl in `netns` has reached the server's `n`th address: whom the server saw.
    fn fetched(&self, netns: &Netns, n: usize, daemons: &mut [&mut Daemon]) -> String {
        let start = Instant::now();
        loop {
            match curl(netns, n, 5) {
                Ok(seen) => return seen,
                Err(said) => assert!(start.elapsed() < PATIENCE, "{said}"),
            }
            daemons.iter_mut().for_each(|daemon| daemon.check().unwrap());
        }
    }
}

/// A server that answers who it sees, by HTTP, and echoes datagrams.
fn serve(netns: &Netns) {
    let listener = netns.enter(|| TcpListener::bind("[::]:80").unwrap()).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let peer = stream.peer_addr()?.ip().to_canonical();
                let mut request = [0; 4096];
                let _ = stream.read(&mut request)?;
                write!(stream, "HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n{peer}")
            });
        }
    });
    let socket = netns.enter(|| UdpSocket::bind("[::]:7").unwrap()).unwrap();
    thread::spawn(move || {
        let mut datagram = [0; 64];
        while let Ok((n, peer)) = socket.recv_from(&mut datagram) {
            let _ = socket.send_to(&datagram[..n], peer);
        }
    });
}

fn url(n: usize) -> String {
    if n == 0 { format!("http://{}/", SERVER[0]) } else { format!("http://[{}]/", SERVER[1]) }
}

/// A client with a name for addresses in this order, and nothing else to do.
fn by_name(netns: &Netns, client: &str, addresses: &[&str]) -> Result<String, String> {
    let hosts: String = addresses.iter().map(|ip| format!("{ip} fixed.example\n")).collect();
    let url = "http://fixed.example/";
    let script = match client {
        "curl" => format!("curl -sS --noproxy '*' --max-time 60 --connect-timeout 40 {url}"),
        "wget" => format!("wget -q -t 1 --no-proxy -T 40 -O - {url}"),
        _ => format!(
            "python3 -c 'import urllib.request as u; u.install_opener(u.build_opener(\
             u.ProxyHandler(dict()))); print(u.urlopen(\"{url}\", timeout=40).read().decode(), end=\"\")'"
        ),
    };
    // The order of addresses is that of the file, but for what RFC 6724 says of families.
    let script = format!(
        "printf '%s' \"$HOSTS\" >\"$FILE\" && mount --bind \"$FILE\" /etc/hosts && {script}"
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    let output = netns
        .command("unshare")
        .args(["-m", "sh", "-c", &script])
        .env("HOSTS", hosts)
        .env("FILE", file.path())
        .output()
        .unwrap();
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout).unwrap());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

const CLIENTS: [&str; 3] = ["curl", "wget", "python3"];

/// What `connect` says, once it says anything at all.
fn connected(netns: &Netns, to: SocketAddr) -> Result<TcpStream, Option<i32>> {
    netns.enter(|| TcpStream::connect(to)).unwrap().map_err(|e| e.raw_os_error())
}

/// Waits until the mobile says this.
fn await_word(mobile: &mut Daemon, word: &str) {
    let start = Instant::now();
    while !mobile.said().contains(word) {
        mobile.check().unwrap();
        assert!(start.elapsed() < PATIENCE, "{word:?} is not said");
        thread::sleep(Duration::from_millis(10));
    }
}

/// What curl says without any proxy.
fn curl(netns: &Netns, n: usize, seconds: u32) -> Result<String, String> {
    let output = netns
        .command("curl")
        .args(["-sS", "-g", "--noproxy", "*", "--max-time", &seconds.to_string(), &url(n)])
        .output()
        .unwrap();
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout).unwrap());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

fn udp_passes(netns: &Netns) {
    for ip in SERVER {
        let to = SocketAddr::new(ip.parse().unwrap(), 7);
        let from = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = netns.enter(|| UdpSocket::bind(from).unwrap()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send_to(b"echo", to).unwrap();
        assert_eq!(socket.recv_from(&mut [0; 64]).unwrap().0, 4);
    }
}

/// All that interception could change in a host.
fn picture(netns: &Netns) -> String {
    let commands = [
        ("nft", "list ruleset"),
        ("ip", "rule"),
        ("ip", "-6 rule"),
        ("ip", "route show table all"),
        ("ip", "route show table all"),
    ];
    let mut picture = String::new();
    for (program, args) in commands {
        let output = netns.command(program).args(args.split(' ')).output().unwrap();
        assert!(output.status.success(), "{program} {args}");
        let text = String::from_utf8(output.stdout).unwrap();
        // The kernel makes routes of its own when it has found that an address is nobody else's.
        let lines = text.lines().filter(|line| !line.contains(" proto kernel "));
        picture.extend(lines.map(|line| format!("{line}\n")));
    }
    picture
}

#[test]
fn curl_on_the_mobile_needs_no_proxy_over_any_hop() {
    let Some(world) = Lan::new().filter(|_| lasthop_testing::is_installed("curl")) else {
        return;
    };
    for hop in ["srp", "mobile-tcp", "split-tcp"] {
        let mut base = world.base(hop, "");
        let mut mobile = world.mobile(hop, "host = true\n");
        for (n, seen) in BASE.iter().enumerate() {
            let got = world.fetched(&world.mobile, n, &mut [&mut base, &mut mobile]);
            // Straight, it would be the mobile's address on the hop.
            assert_eq!(got, *seen, "{hop}");
        }
        udp_passes(&world.mobile);
        assert!(mobile.stop() && base.stop());
    }
}

#[test]
fn the_server_sees_the_mobiles_own_address() {
    let Some(world) = Lan::new().filter(|_| lasthop_testing::is_installed("curl")) else {
        return;
    };
    let before = picture(&world.base);
    let own = world.own_addresses();
    let mut base = world.base("srp", &own);
    let mut mobile = world.mobile("srp", "host = true\n");
    for (n, seen) in OWN.iter().enumerate() {
        assert_eq!(world.fetched(&world.mobile, n, &mut [&mut base, &mut mobile]), *seen);
    }
    assert!(mobile.stop() && base.stop());
    let start = Instant::now();
    while picture(&world.base) != before {
        // The helper ends after the base.
        assert!(start.elapsed() < PATIENCE, "{}", picture(&world.base));
        thread::sleep(Duration::from_millis(20));
    }
}

/// What a server behind a narrower path got from a client in `netns`, as the server tells.
fn uploaded(netns: &Netns, to: SocketAddr) -> std::io::Result<String> {
    let mut stream = netns.enter(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap()?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&vec![7; UPLOAD])?;
    stream.shutdown(Shutdown::Write)?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said)
}

#[test]
fn an_upload_from_the_mobiles_own_address_passes_a_smaller_mtu() {
    let Some(world) = Lan::new() else { return };
    let (router, far) = (Netns::anonymous().unwrap(), Netns::anonymous().unwrap());
    let (near, beyond) = (["10.4.0.1", "fd04::1"], ["10.4.0.2", "fd04::2"]);
    link(&world.base, "narrow0", &router, "near0", [near, beyond]);
    let (near, beyond) = (["10.5.0.1", "fd05::1"], ["10.5.0.2", "fd05::2"]);
    link(&router, "far0", &far, "eth0", [near, beyond]);
    router.ip("link set dev far0 mtu 1280").unwrap();
    router.sysctl("ipv4.ip_forward", "1").unwrap();
    router.sysctl("ipv6.conf.all.forwarding", "1").unwrap();
    for (host, via) in [(&router, ["10.4.0.1", "fd04::1"]), (&far, ["10.5.0.1", "fd05::1"])] {
        via.into_iter().for_each(|via| host.route(None, via.parse().unwrap()).unwrap());
    }
    for (to, via) in [(("10.5.0.0", 24), "10.4.0.2"), (("fd05::", 64), "fd04::2")] {
        let to = (to.0.parse().unwrap(), to.1);
        world.base.route(Some(to), via.parse().unwrap()).unwrap();
    }
    let listener = far.enter(|| TcpListener::bind("[::]:80").unwrap()).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let peer = stream.peer_addr()?.ip().to_canonical();
                let n = std::io::copy(&mut stream, &mut std::io::sink())?;
                write!(stream, "{n} from {peer}")
            });
        }
    });
    let own = world.own_addresses();
    let mut base = world.base("srp", &own);
    let mut mobile = world.mobile("srp", "host = true\n");
    for (to, own) in ["10.5.0.2:80", "[fd05::2]:80"].into_iter().zip(OWN) {
        let said = uploaded(&world.mobile, to.parse().unwrap());
        base.check().unwrap();
        mobile.check().unwrap();
        assert_eq!(said.unwrap_or_else(|e| panic!("{to}: {e}")), format!("{UPLOAD} from {own}"));
    }
}

#[test]
fn the_network_behind_a_mobile_router_is_carried_and_may_keep_its_addresses() {
    let Some(world) = Lan::new().filter(|_| lasthop_testing::is_installed("curl")) else {
        return;
    };
    let own = world.own_addresses();
    let mut base = world.base("srp", &own);
    for (keep, seen) in [("", OWN), ("keep_source = [\"10.1.0.0/16\", \"fd01::/64\"]\n", CLIENT)] {
        let transparent = format!("interfaces = [\"lan0\"]\n{keep}");
        let mut mobile = world.mobile("srp", &transparent);
        for (n, seen) in seen.iter().enumerate() {
            let got = world.fetched(&world.client, n, &mut [&mut base, &mut mobile]);
            assert_eq!(got, *seen);
        }
        udp_passes(&world.client);
        // The router's own is not meant.
        assert_eq!(curl(&world.mobile, 0, 5).unwrap(), "10.2.0.2");
        assert!(mobile.stop());
    }
    // The base would drop what comes for the mobile's network and was never its own.
    assert!(base.stop());
    assert_eq!(curl(&world.client, 0, 5).unwrap(), CLIENT[0], "straight again");
}

#[test]
fn an_address_that_is_not_the_mobiles_is_refused() {
    let Some(world) = Lan::new().filter(|_| lasthop_testing::is_installed("curl")) else {
        return;
    };
    let mut base = world.base("srp", "");
    let transparent = "interfaces = [\"lan0\"]\nhost = true\nkeep_source = [\"10.1.0.0/16\"]\n";
    let mut mobile = world.mobile("srp", transparent);
    // The association stands when the mobile's own connection does.
    world.fetched(&world.mobile, 0, &mut [&mut base, &mut mobile]);
    let said = curl(&world.client, 0, 5).unwrap_err();
    assert!(said.starts_with("curl: (7)"), "not refused: {said}");
}

#[test]
fn after_a_kill_the_next_start_cleans_and_works_and_a_stop_leaves_nothing() {
    let Some(world) = Lan::new().filter(|_| lasthop_testing::is_installed("curl")) else {
        return;
    };
    let before = picture(&world.mobile);
    let mut base = world.base("split-tcp", "");
    let mut mobile = world.mobile("split-tcp", "host = true\ninterfaces = [\"lan0\"]\n");
    world.fetched(&world.mobile, 0, &mut [&mut base, &mut mobile]);
    mobile.kill();
    assert_ne!(picture(&world.mobile), before);
    let said = curl(&world.mobile, 0, 5).unwrap_err();
    assert!(said.starts_with("curl: (7)"), "not refused: {said}");

    let other = "host = true\nmark = 0x400\ntable = 77\npriority = 300\n";
    let mut mobile = world.mobile("split-tcp", other);
    assert_eq!(world.fetched(&world.mobile, 0, &mut [&mut base, &mut mobile]), BASE[0]);
    assert!(!picture(&world.mobile).contains("1080"));
    assert!(mobile.stop());
    assert_eq!(picture(&world.mobile), before);
    assert_eq!(curl(&world.mobile, 0, 5).unwrap(), "10.2.0.2", "straight again");
}

const ENETUNREACH: Option<i32> = Some(101);
const BOTH: &str = "host = true\ninterfaces = [\"lan0\"]\n";

#[test]
fn a_dual_stack_name_is_reached_over_ipv4_where_the_base_has_no_ipv6() {
    let Some(world) =
        Lan::new().filter(|_| CLIENTS.iter().all(|c| lasthop_testing::is_installed(c)))
    else {
        return;
    };
    world.base.sysctl("ipv6.conf.all.disable_ipv6", "1").unwrap();
    for connect in ["faithful", "early"] {
        let mut base = world.base("srp", "");
        let more = format!("connect = \"{connect}\"\n");
        let mut mobile = world.mobile_with("srp", &more, BOTH);
        await_word(&mut mobile, "intercepting the address families");
        for netns in [&world.mobile, &world.client] {
            for client in CLIENTS {
                let got = by_name(netns, client, &[SERVER[1], SERVER[0]]);
                assert_eq!(got.as_deref(), Ok(BASE[0]), "{client}, {connect}");
            }
            // A host without IPv6 has no route.
            let address = SocketAddr::new(SERVER[1].parse().unwrap(), 80);
            assert_eq!(connected(netns, address).map(drop), Err(ENETUNREACH));
        }
        assert!(mobile.stop() && base.stop());
    }
}

#[test]
fn a_family_that_the_base_gains_or_loses_is_intercepted_or_not_from_then_on() {
    let Some(world) = Lan::new().filter(|_| lasthop_testing::is_installed("curl")) else {
        return;
    };
    let mut base = world.base("srp", "");
    let mut mobile = world.mobile("srp", BOTH);
    let address = SocketAddr::new(SERVER[1].parse().unwrap(), 80);
    for _ in 0..2 {
        for netns in [&world.mobile, &world.client] {
            let got = world.fetched(netns, 1, &mut [&mut base, &mut mobile]);
            assert_eq!(got, BASE[1], "through the base");
        }
        let standing = connected(&world.mobile, address).unwrap();
        world
            .base
            .ip("address del fd03::1/64 dev wired0\naddress del fd02::1/64 dev hop0\n")
            .unwrap();
        for netns in [&world.mobile, &world.client] {
            let start = Instant::now();
            while connected(netns, address).map(drop) != Err(ENETUNREACH) {
                assert!(start.elapsed() < PATIENCE, "it is still intercepted");
            }
            let got = world.fetched(netns, 0, &mut [&mut base, &mut mobile]);
            assert_eq!(got, BASE[0], "the other family as ever");
        }
        drop(standing);
        world
            .base
            .ip("address add fd03::1/64 dev wired0 nodad\naddress add fd02::1/64 dev hop0 nodad\n")
            .unwrap();
        world.base.ip("route replace fd01::/64 via fd02::2\n").unwrap();
    }
    assert!(mobile.stop() && base.stop());
}

const EHOSTUNREACH: Option<i32> = Some(113);
const ECONNREFUSED: Option<i32> = Some(111);
const EACCES: Option<i32> = Some(13);
/// More addresses of the server: one refuses, one is silent, and one nobody has.
const REFUSES: [&str; 2] = ["10.3.0.3", "fd03::3"];
const SILENT: [&str; 2] = ["10.3.0.4", "fd03::4"];
const ABSENT: [&str; 2] = ["10.3.0.9", "fd03::9"];
/// A base that gives a silent host up soon.
/// Not a whole number of seconds: SYNs come again at those (RFC 6298 section 2.1), and which of the
/// two is first would be chance.
const IMPATIENT: &str = "[targets]\nconnect_timeout = \"2500ms\"\n";

impl Lan {
    /// Gives the server addresses that do not answer as they should.
    fn with_dead_addresses(self) -> Self {
        for ip in REFUSES.into_iter().chain(SILENT) {
            let ip: IpAddr = ip.parse().unwrap();
            let rest = if ip.is_ipv4() { "24 dev eth0" } else { "64 dev eth0 nodad" };
            self.server.ip(&format!("address add {ip}/{rest}\n")).unwrap();
        }
        let rules = format!(
            "add table inet dead; add chain inet dead in {{ type filter hook input priority 0; }}; \
             add rule inet dead in ip daddr {} tcp dport 80 reject with tcp reset; \
             add rule inet dead in ip6 daddr {} tcp dport 80 reject with tcp reset; \
             add rule inet dead in ip daddr {} drop; \
             add rule inet dead in ip6 daddr {} tcp dport 80 drop",
            REFUSES[0], REFUSES[1], SILENT[0], SILENT[1]
        );
        assert!(self.server.command("nft").arg(rules).status().unwrap().success());
        self
    }

    /// How many connections the mobile has.
    fn connections(&self) -> usize {
        self.pair.status("mobile").unwrap().connections.len()
    }

    /// Waits until the mobile has no connection any more.
    fn await_none(&self) {
        let start = Instant::now();
        while self.connections() > 0 {
            assert!(start.elapsed() < 3 * PATIENCE, "a connection is left");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// MHP-5: `connect` fails as the fixed host said, for applications here and behind the mobile.
#[test]
fn an_intercepted_connect_says_what_the_fixed_host_said() {
    let Some(world) = Lan::new().map(Lan::with_dead_addresses) else { return };
    for hop in ["srp", "mobile-tcp", "split-tcp"] {
        let mut base = world.base(hop, IMPATIENT);
        let mut mobile = world.mobile(hop, BOTH);
        await_word(&mut mobile, "association up");
        for netns in [&world.mobile, &world.client] {
            for n in [0, 1] {
                let says = |ip: &str| {
                    let address = SocketAddr::new(ip.parse().unwrap(), 80);
                    connected(netns, address).map(drop)
                };
                assert_eq!(says(SERVER[n]), Ok(()), "{hop}");
                assert_eq!(says(REFUSES[n]), Err(ECONNREFUSED), "{hop}");
                assert_eq!(says(SILENT[n]), Err(EHOSTUNREACH), "{hop}");
                assert_eq!(says(ABSENT[n]), Err(EHOSTUNREACH), "{hop}");
                // The base has no way there.
                assert_eq!(says(["192.0.2.1", "2001:db8::1"][n]), Err(ENETUNREACH), "{hop}");
                // It is the base itself.
                let forbidden = [EHOSTUNREACH, EACCES][n];
                assert_eq!(says(BASE[n]), Err(forbidden), "{hop}");
            }
        }
        world.await_none();
        assert!(mobile.stop() && base.stop());
    }
}

#[test]
fn a_name_with_a_dead_address_is_reached_by_its_others() {
    let Some(world) =
        Lan::new().filter(|_| CLIENTS.iter().all(|c| lasthop_testing::is_installed(c)))
    else {
        return;
    };
    let world = world.with_dead_addresses();
    let mut base = world.base("srp", IMPATIENT);
    let mut mobile = world.mobile("srp", BOTH);
    await_word(&mut mobile, "association up");
    for netns in [&world.mobile, &world.client] {
        for client in CLIENTS {
            let dead = [REFUSES[0], SILENT[0], ABSENT[0], REFUSES[1], SILENT[1], "2001:db8::1"];
            for dead in dead {
                let got = by_name(netns, client, &[dead, SERVER[0]]);
                let said = || format!("{client}, {dead}\n{}\n{}", base.said(), mobile.said());
                assert_eq!(got.as_deref(), Ok(BASE[0]), "{}", said());
            }
        }
    }
    assert!(mobile.stop() && base.stop());
}

#[test]
fn early_connections_succeed_at_once_and_are_reset() {
    let Some(world) = Lan::new().map(Lan::with_dead_addresses) else { return };
    let mut base = world.base("srp", "");
    let mut mobile = world.mobile_with("srp", "connect = \"early\"\n", BOTH);
    await_word(&mut mobile, "association up");
    for netns in [&world.mobile, &world.client] {
        let mut stream =
            connected(netns, SocketAddr::new(REFUSES[0].parse().unwrap(), 80)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let said = stream.read(&mut [0; 8]).map_err(|e| e.kind());
        assert_eq!(said, Err(std::io::ErrorKind::ConnectionReset));
    }
    assert!(mobile.stop() && base.stop());
}

#[test]
fn a_connection_opened_before_there_is_a_base_waits_for_it() {
    let Some(world) = Lan::new().filter(|_| lasthop_testing::is_installed("curl")) else {
        return;
    };
    let mut mobile = world.mobile("srp", BOTH);
    thread::scope(|scope| {
        let waiting: Vec<_> = [&world.mobile, &world.client]
            .into_iter()
            .flat_map(|netns| [0, 1].map(|n| (netns, n)))
            .map(|(netns, n)| scope.spawn(move || curl(netns, n, 60)))
            .collect();
        let start = Instant::now();
        while world.connections() < waiting.len() {
            mobile.check().unwrap();
            assert!(start.elapsed() < PATIENCE, "they do not come");
            thread::sleep(Duration::from_millis(20));
        }
        let _base = world.base("srp", "");
        for (n, waiting) in waiting.into_iter().enumerate() {
            assert_eq!(waiting.join().unwrap().as_deref(), Ok(BASE[n % 2]));
        }
    });
    assert!(mobile.stop());
}

#[test]
fn an_application_that_goes_away_while_its_syn_waits_is_given_up() {
    let Some(world) = Lan::new().map(Lan::with_dead_addresses) else { return };
    let mut base = world.base("srp", "[targets]\nconnect_timeout = \"600s\"\n");
    let mut mobile = world.mobile("srp", BOTH);
    await_word(&mut mobile, "association up");
    for netns in [&world.mobile, &world.client] {
        for address in SILENT.map(|ip| SocketAddr::new(ip.parse().unwrap(), 80)) {
            let tries = || TcpStream::connect_timeout(&address, Duration::from_secs(2));
            let said = netns.enter(tries).unwrap().map(drop).map_err(|e| e.kind());
            assert_eq!(said, Err(std::io::ErrorKind::TimedOut));
        }
    }
    world.await_none();
    assert!(mobile.stop() && base.stop());
}
