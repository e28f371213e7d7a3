//! Applications without proxy settings: a mobile takes their TCP, a base lets it leave from the
//! mobile's own address.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use lasthop_lab::lasthop_program;
use lasthop_lab::process::Daemon;
use lasthop_linux::keyfile::{self, Existing};
use lasthop_linux::netns::{Netns, NetnsError};

const PATIENCE: Duration = Duration::from_secs(20);
const SERVER: [&str; 2] = ["10.3.0.2", "fd03::2"];
/// The mobile's own addresses, which no host has.
const OWN: [&str; 2] = ["10.9.0.7", "fd09::7"];
const BASE: [&str; 2] = ["10.3.0.1", "fd03::1"];
const CLIENT: [&str; 2] = ["10.1.0.5", "fd01::5"];

/// client -- lan0 mobile -- hop0 base -- wired0 server
struct World {
    client: Netns,
    mobile: Netns,
    base: Netns,
    program: PathBuf,
    folder: tempfile::TempDir,
    keys: [String; 2],
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

impl World {
    /// None where a test may not have it.
    fn new() -> Option<Self> {
        let Some(program) = lasthop_program() else {
            eprintln!("skipped: no lasthop beside this test (cargo build -p lasthop)");
            return None;
        };
        let netns = || match Netns::anonymous() {
            Ok(netns) => Some(netns),
            Err(e @ NetnsError::NotPermitted(_)) => {
                eprintln!("skipped: {e}");
                None
            }
            Err(e) => panic!("{e}"),
        };
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
        let folder = tempfile::tempdir().unwrap();
        let keys = ["base", "mobile"].map(|name| {
            let keys = keyfile::generate().unwrap();
            keyfile::store(&folder.path().join(name), &keys, Existing::Keep).unwrap();
            keys.public().to_string()
        });
        serve(&server);
        Some(Self { client, mobile, base, program, folder, keys })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self, netns: &Netns, role: &str, config: &str) -> Daemon {
        let path = self.path(&format!("{role}.toml"));
        fs::write(&path, config).unwrap();
        let mut command = netns.command(&self.program);
        command.arg(role).arg("--config").arg(&path);
        Daemon::spawn(command).unwrap()
    }

    /// A base, with more in its configuration.
    fn base(&self, hop: &str, more: &str) -> Daemon {
        let (key, control) = (self.path("base"), self.path("base.sock"));
        let config = format!(
            "listen = [\"[::]:4433\"]\nkey = {key:?}\nallow = [{:?}]\nhop = {hop:?}\n\
             control = {control:?}\n{more}",
            self.keys[1]
        );
        self.start(&self.base, "base", &config)
    }

    /// A mobile that intercepts from here on.
    fn mobile(&self, hop: &str, transparent: &str) -> Daemon {
        let (key, control) = (self.path("mobile"), self.path("mobile.sock"));
        let config = format!(
            "base = \"10.2.0.1:4433\"\nbase_key = {:?}\nkey = {key:?}\nhop = {hop:?}\n\
             control = {control:?}\n[transparent]\n{transparent}",
            self.keys[0]
        );
        let mut mobile = self.start(&self.mobile, "mobile", &config);
        let start = Instant::now();
        while !mobile.said().contains("serving SOCKS5") {
            mobile.check().unwrap();
            assert!(start.elapsed() < PATIENCE, "it does not start");
            thread::sleep(Duration::from_millis(10));
        }
        mobile
    }

    /// `[[mobiles]]` of the base.
    fn own_addresses(&self) -> String {
        let key = &self.keys[1];
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
        ("ip", "-6 route show table all"),
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

fn is_installed(program: &str) -> bool {
    let found = Path::new("/usr/bin").join(program).exists();
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

#[test]
fn curl_on_the_mobile_needs_no_proxy_over_any_hop() {
    let Some(world) = World::new().filter(|_| is_installed("curl")) else { return };
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
    let Some(world) = World::new().filter(|_| is_installed("curl")) else { return };
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

#[test]
fn the_network_behind_a_mobile_router_is_carried_and_may_keep_its_addresses() {
    let Some(world) = World::new().filter(|_| is_installed("curl")) else { return };
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
fn an_address_that_is_not_the_mobiles_is_refused_as_a_reset() {
    let Some(world) = World::new().filter(|_| is_installed("curl")) else { return };
    let mut base = world.base("srp", "");
    let transparent = "interfaces = [\"lan0\"]\nhost = true\nkeep_source = [\"10.1.0.0/16\"]\n";
    let mut mobile = world.mobile("srp", transparent);
    // The association stands when the mobile's own connection does.
    world.fetched(&world.mobile, 0, &mut [&mut base, &mut mobile]);
    let said = curl(&world.client, 0, 5).unwrap_err();
    // Whether it has seen that it was connected before the reset or not.
    let resets = ["curl: (7)", "curl: (55)", "curl: (56)"];
    assert!(resets.iter().any(|reset| said.starts_with(reset)), "not reset: {said}");
}

#[test]
fn after_a_kill_the_next_start_cleans_and_works_and_a_stop_leaves_nothing() {
    let Some(world) = World::new().filter(|_| is_installed("curl")) else { return };
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
