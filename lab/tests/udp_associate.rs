//! UDP by SOCKS5 (RFC 1928 section 7): an application's datagrams leave by a socket of the base's, across a
//! radio that loses, without privilege at either end.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use common::pair::Pair;
use lasthop_control::UdpReport;
use lasthop_kernel::netns::Netns;
use lasthop_lab::process::Daemon;
use lasthop_lab::topology::{Family, Lab, Topology};
use lasthop_radio::Errors;
use lasthop_session::Target;
use lasthop_session::socks::Datagram;

const PATIENCE: Duration = Duration::from_secs(60);
const PROXY: &str = "127.0.0.1:1080";
const ECHO: u16 = 7;
/// Answers what is sent to the echo and asks for it.
const OTHER: u16 = 8;

/// fixed host -- base -- radio -- mobile
struct Scene {
    lab: Lab,
    pair: Pair,
}

impl Scene {
    /// With a radio that loses this share in both directions; none where a test may not have it.
    fn new(loss: f64) -> Option<Self> {
        let pair = Pair::new()?;
        let lab = common::lab(&Topology::losing(Errors::Uniform(loss)))?;
        echo(&lab.fixed);
        Some(Self { lab, pair })
    }

    /// A base, with more in its configuration, and a mobile whose association stands.
    fn daemons(&self, more: &str) -> [Daemon; 2] {
        self.daemons_with(more, "")
    }

    /// With more in both configurations.
    fn daemons_with(&self, more: &str, at_mobile: &str) -> [Daemon; 2] {
        let [base, mobile] = &self.pair.keys;
        let config = format!("listen = [\"[::]:4433\"]\nallow = [{mobile:?}]\n{more}\n");
        let at_base = self.pair.start(&self.lab.base, "base", &config);
        let address = self.lab.base_from_mobile(Family::V4);
        let config =
            format!("base = \"{address}\"\nbase_key = {base:?}\nproxy = [{PROXY:?}]\n{at_mobile}");
        let mut at_mobile = self.pair.start(&self.lab.mobile, "mobile", &config);
        self.pair.wait_up(&mut at_mobile);
        [at_base, at_mobile]
    }

    fn udp(&self, role: &str) -> UdpReport {
        self.pair.status(role).unwrap().udp.unwrap()
    }

    /// Waits until so many datagrams were refused by that name.
    fn wait_refused(&self, role: &str, why: &str, count: u64) {
        self.wait(role, |udp| udp.refused.get(why).copied().unwrap_or(0) >= count);
    }

    fn wait(&self, role: &str, is: impl Fn(&UdpReport) -> bool) {
        let start = Instant::now();
        while !is(&self.udp(role)) {
            assert!(start.elapsed() < Duration::from_secs(10), "{role}: {:?}", self.udp(role));
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn fixed(&self, family: Family, port: u16) -> SocketAddr {
        SocketAddr::new(self.lab.server_address(family).ip(), port)
    }
}

/// Sends each datagram back, by another port if it says so.
fn echo(netns: &Netns) {
    let bind = |port| netns.enter(|| UdpSocket::bind(("::", port)).unwrap()).unwrap();
    let (socket, other) = (bind(ECHO), bind(OTHER));
    thread::spawn(move || {
        let mut datagram = vec![0; 65_536];
        while let Ok((n, peer)) = socket.recv_from(&mut datagram) {
            let from = if datagram.starts_with(b"other") { &other } else { &socket };
            let _ = from.send_to(&datagram[..n], peer);
        }
    });
}

/// An application with a UDP association.
struct Application {
    control: TcpStream,
    socket: UdpSocket,
    relay: SocketAddr,
}

impl Application {
    /// The reply code, if it is not success.
    fn associate(mobile: &Netns) -> Result<Self, u8> {
        let (mut control, socket) = mobile
            .enter(|| (TcpStream::connect(PROXY).unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap()))
            .unwrap();
        control.set_read_timeout(Some(PATIENCE)).unwrap();
        control.write_all(&[5, 1, 0]).unwrap();
        let mut reply = [0; 10];
        control.read_exact(&mut reply[..2]).unwrap();
        assert_eq!(reply[..2], [5, 0]);
        control.write_all(&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
        control.read_exact(&mut reply).unwrap();
        if reply[1] != 0 {
            return Err(reply[1]);
        }
        assert_eq!(reply[..8], [5, 0, 0, 1, 127, 0, 0, 1]);
        let relay = ([127, 0, 0, 1], u16::from_be_bytes([reply[8], reply[9]])).into();
        socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        Ok(Self { control, socket, relay })
    }

    fn send(&self, to: impl Into<Target>, payload: &[u8]) {
        let mut datagram = Vec::new();
        Datagram { remote: to.into(), payload }.encode(&mut datagram);
        self.socket.send_to(&datagram, self.relay).unwrap();
    }

    /// From whom the next datagram is, and what it says; none if there is none for a second.
    fn receive(&self) -> Option<(Target, Vec<u8>)> {
        let mut bytes = vec![0; 65_536];
        let (n, from) = self.socket.recv_from(&mut bytes).ok()?;
        assert_eq!(from, self.relay);
        let Datagram { remote, payload } = Datagram::decode(&bytes[..n]).unwrap();
        Some((remote, payload.to_vec()))
    }

    /// What share of datagrams of a length comes back from an echo.
    fn echoed(&self, to: SocketAddr, count: usize, length: usize) -> f64 {
        let back = (0..count).filter(|n| {
            let sent: Vec<u8> = (0..length).map(|at| (at * 7 + n) as u8).collect();
            self.send(to, &sent);
            while let Some((from, got)) = self.receive() {
                assert_eq!(from, Target::Addr(to), "the remote host is named as it is");
                if got == sent {
                    return true;
                }
            }
            false
        });
        back.count() as f64 / count as f64
    }
}

/// Of a radio that loses a tenth each way little is seen, by datagrams of all sizes and of both families.
#[test]
fn datagrams_cross_a_radio_that_loses() {
    let Some(scene) = Scene::new(0.1) else { return };
    let [mut base, mut mobile] = scene.daemons("");
    let application = Application::associate(&scene.lab.mobile).unwrap();
    for family in Family::ALL {
        let to = scene.fixed(family, ECHO);
        for length in [1, 100, 1200, 1400, 8000] {
            let share = application.echoed(to, 25, length);
            assert!(share >= 0.9, "{share} of {length} bytes to {to}");
        }
    }
    // One socket, whatever it sends to.
    assert_eq!((scene.udp("mobile").sockets, scene.udp("base").sockets), (1, 1));
    let connections = scene.pair.status("mobile").unwrap().connections;
    assert_eq!((connections[0].state.as_str(), connections[0].target.as_str()), ("open", "UDP"));
    let (up, down) = (scene.udp("mobile"), scene.udp("base"));
    assert!(up.to_hop >= 250 && down.from_hop > 230, "{up:?} {down:?}");
    // The end of the TCP connection is the association's.
    drop(application.control);
    scene.wait("mobile", |udp| udp.sockets == 0);
    scene.wait("base", |udp| udp.sockets == 0);
    base.check().unwrap();
    mobile.check().unwrap();
}

/// A query for a name is answered, and by whomever an application introduces itself to it is reached.
#[test]
fn names_are_asked_for_and_others_may_answer() {
    let Some(scene) = Scene::new(0.02) else { return };
    let _daemons = scene.daemons("workers = 2");
    let application = Application::associate(&scene.lab.mobile).unwrap();
    let server = scene.fixed(Family::V4, 53);
    let names = scene.lab.fixed.enter(|| UdpSocket::bind(server).unwrap()).unwrap();
    thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((n, peer)) = names.recv_from(&mut query) {
            let mut answer = query[..n].to_vec();
            answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 77]);
            let _ = names.send_to(&answer, peer);
        }
    });
    let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x04name\x07example\0\0\x01\0\x01";
    let answer = (0..5).find_map(|_| {
        application.send(server, query);
        application.receive()
    });
    let (from, answer) = answer.expect("an answer");
    assert_eq!(from, Target::Addr(server));
    assert!(answer.starts_with(b"\x12\x34\x81\x80") && answer.ends_with(&[192, 0, 2, 77]));
    for family in Family::ALL {
        let answer = (0..5).find_map(|_| {
            application.send(scene.fixed(family, ECHO), b"other");
            application.receive()
        });
        let (from, _) = answer.expect("an answer from another port");
        assert_eq!(from, Target::Addr(scene.fixed(family, OTHER)));
    }
}

/// What the base's rules deny is not reached, by name neither; and nobody else uses an association.
#[test]
fn datagrams_keep_to_the_rules() {
    let Some(scene) = Scene::new(0.0) else { return };
    let (denied, open) = (scene.fixed(Family::V4, ECHO), scene.fixed(Family::V6, ECHO));
    let rules = format!("[targets]\ndeny = [\"{}\"]\nallow = [\"127.0.0.1\"]", denied.ip());
    let _daemons = scene.daemons(&rules);
    let application = Application::associate(&scene.lab.mobile).unwrap();
    application.send(denied, b"x");
    assert_eq!(application.receive(), None);
    scene.wait_refused("base", "target", 1);
    scene.wait_refused("mobile", "undelivered", 1);
    assert_eq!(application.echoed(open, 3, 100), 1.0);
    // The base itself is not reached but where its rules say so, here by a name.
    application.send("[::1]:7".parse::<SocketAddr>().unwrap(), b"x");
    scene.wait_refused("base", "target", 2);
    let local = "127.0.0.1:7".parse::<SocketAddr>().unwrap();
    let at_base = scene.lab.base.enter(|| UdpSocket::bind(local).unwrap()).unwrap();
    at_base.set_read_timeout(Some(PATIENCE)).unwrap();
    application.send(Target::from_host("localhost", 7).unwrap(), b"by name");
    let mut got = [0; 99];
    let (n, from) = at_base.recv_from(&mut got).expect("the name is known");
    assert_eq!(&got[..n], b"by name");
    at_base.send_to(b"here", from).unwrap();
    assert_eq!(application.receive(), Some((Target::Addr(local), b"here".to_vec())));
    application.send(Target::from_host("no-such-name.invalid", 7).unwrap(), b"x");
    scene.wait_refused("base", "name", 1);
    // Another host, another port of the application's host, and a fragment.
    let bind = |at: &str| scene.lab.mobile.enter(|| UdpSocket::bind(at).unwrap()).unwrap();
    let mut datagram = Vec::new();
    Datagram { remote: Target::Addr(open), payload: b"x" }.encode(&mut datagram);
    for (n, stranger) in ["127.0.0.2:0", "127.0.0.1:0"].into_iter().enumerate() {
        bind(stranger).send_to(&datagram, application.relay).unwrap();
        scene.wait_refused("mobile", "stranger", n as u64 + 1);
    }
    datagram[2] = 1;
    application.socket.send_to(&datagram, application.relay).unwrap();
    scene.wait_refused("mobile", "fragment", 1);
    // The longest that its header leaves room for.
    assert_eq!(application.echoed(open, 1, 65_485), 1.0);
}

/// A base that serves none says so, and an application is told.
#[test]
fn a_base_without_them_is_a_command_that_is_not_supported() {
    let Some(scene) = Scene::new(0.0) else { return };
    let _daemons = scene.daemons("[limits]\nudp_sockets = 0");
    assert_eq!(Application::associate(&scene.lab.mobile).err(), Some(7));
    assert_eq!(scene.pair.status("base").unwrap().udp, None);
}

/// As section 4.3 of RFC 4787 asks: a base's socket and an application's association are kept while something passes, and
/// are gone when nothing has passed for as long as is said.
#[test]
fn what_nothing_passes_is_closed() {
    let Some(scene) = Scene::new(0.0) else { return };
    let limits = |idle| format!("[limits]\nudp_idle = \"{idle}\"\n");
    let _daemons = scene.daemons_with(&limits("2s"), &limits("6s"));
    let mut application = Application::associate(&scene.lab.mobile).unwrap();
    let to = scene.fixed(Family::V4, ECHO);
    for _ in 0..4 {
        assert_eq!(application.echoed(to, 1, 100), 1.0);
        assert_eq!((scene.udp("mobile").sockets, scene.udp("base").sockets), (1, 1));
        thread::sleep(Duration::from_secs(1));
    }
    scene.wait("base", |udp| udp.sockets == 0);
    // The base makes another one.
    assert_eq!(application.echoed(to, 1, 100), 1.0);
    assert_eq!((scene.udp("mobile").sockets, scene.udp("base").sockets), (1, 1));
    scene.wait("mobile", |udp| udp.sockets == 0);
    scene.wait("base", |udp| udp.sockets == 0);
    application.control.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(application.control.read(&mut [0]).unwrap(), 0, "the application is told");
}

/// An application that says something and is gone leaves no socket at the base, also where the radio loses its last words, which
/// come behind what closes the socket then.
#[test]
fn last_words_leave_no_socket_open() {
    let Some(scene) = Scene::new(0.2) else { return };
    let [mut base, mut mobile] = scene.daemons("");
    for n in 0..60 {
        let application = Application::associate(&scene.lab.mobile).unwrap();
        application.send(scene.fixed(Family::V4, ECHO), &vec![7; [10, 1400, 8000][n % 3]]);
        thread::sleep(Duration::from_millis(n as u64));
    }
    scene.wait("mobile", |udp| udp.sockets == 0);
    scene.wait("base", |udp| udp.sockets == 0);
    // Most were heard.
    assert!(scene.udp("base").from_hop > 50, "{:?}", scene.udp("base"));
    base.check().unwrap();
    mobile.check().unwrap();
}
