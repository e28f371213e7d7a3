//! Connections that move between two kernels: a server, a router, and two bases on it, in network
//! namespaces. The mobile's address is on none of them; the router sends it to one base or the
//! other.

mod claiming;
mod duties;
mod moving;

use std::collections::BTreeSet;
use std::io;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use etherparse::{LaxSlicedPacket, TransportSlice};
use lasthop_kernel::netns::{Netns, NetnsError};
use lasthop_kernel::network::Network;
use lasthop_kernel::packet_socket::PacketSocket;
use lasthop_kernel::stop::Stop;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{RecvFlags, SocketFlags, SocketType};

use super::helper::{self, Config};
use super::*;

/// What is on its way has arrived by then.
const ARRIVAL: Duration = Duration::from_millis(50);
/// Nothing in these tests takes longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The server's port.
const PORT: u16 = 80;

/// An IP family with its addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Family {
    V4,
    V6,
}

impl Family {
    fn mobile(self) -> IpAddr {
        self.pick("10.9.0.7", "fd00:9::7")
    }

    fn server(self) -> SocketAddr {
        SocketAddr::new(self.pick("10.0.1.2", "fd00:1::2"), PORT)
    }

    fn base(self, n: usize) -> IpAddr {
        [self.pick("10.0.2.2", "fd00:2::2"), self.pick("10.0.3.2", "fd00:3::2")][n]
    }

    fn pick(self, v4: &str, v6: &str) -> IpAddr {
        if self == Self::V4 { v4 } else { v6 }.parse().unwrap()
    }
}

/// What the server's link has seen.
#[derive(Clone, Default, Debug)]
struct Seen {
    /// Connections that were begun: whose SYN is sent again is still one.
    begun: BTreeSet<(u16, u32)>,
    syns: usize,
    resets: usize,
    others: usize,
}

/// Counts TCP's flags on an interface, until it is asked for the counts.
struct Capture {
    stop: Stop,
    thread: JoinHandle<Seen>,
}

impl Capture {
    fn start(netns: &Netns, interface: &str) -> Self {
        let socket = netns.enter(|| PacketSocket::open(interface).unwrap()).unwrap();
        let stop = Stop::new().unwrap();
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            let mut seen = Seen::default();
            let mut frame = [0; 256];
            loop {
                match rustix::net::recv(&socket, &mut frame, RecvFlags::TRUNC) {
                    Ok((n, _)) => seen.count(&frame[10..n.max(10)]),
                    Err(_) if stopped.take() > 0 => break,
                    Err(_) => wait_for_either(&socket, &stopped),
                }
            }
            assert_eq!(socket.take_drops(), 0, "the capture has holes");
            seen
        });
        Self { stop, thread }
    }

    fn end(self) -> Seen {
        self.stop.request();
        self.thread.join().unwrap()
    }
}

impl Seen {
    fn count(&mut self, frame: &[u8]) {
        // The payload is cut off, so lengths do not fit.
        let Ok(packet) = LaxSlicedPacket::from_ethernet(frame) else { return };
        let Some(TransportSlice::Tcp(tcp)) = packet.transport else { return };
        match (tcp.syn(), tcp.rst()) {
            (true, _) => {
                self.begun.insert((tcp.source_port(), tcp.sequence_number()));
                self.syns = self.begun.len();
            }
            (_, true) => self.resets += 1,
            _ => self.others += 1,
        }
    }
}

/// A base's namespace and its helper.
struct BaseHost {
    netns: Netns,
    admin: Option<Admin>,
    stop: Stop,
    helper: Option<JoinHandle<()>>,
}

impl BaseHost {
    fn new(netns: Netns) -> Self {
        let mut place = Self { netns, admin: None, stop: Stop::new().unwrap(), helper: None };
        place.start_helper(&[Family::V4.mobile().into(), Family::V6.mobile().into()]);
        place
    }

    fn start_helper(&mut self, permitted: &[Network]) {
        let (ours, theirs) = pair();
        let config = Config { addresses: permitted.to_vec(), users: Vec::new() };
        let (netns, stop) = (self.netns.clone(), self.stop.clone());
        self.helper = Some(thread::spawn(move || {
            netns.enter(|| helper::serve_client(theirs, &config, &stop)).unwrap().unwrap();
        }));
        self.admin = Some(Admin::over(ours).unwrap());
        if let Some(network) = permitted.first() {
            probe(self.admin(), network.prefix().0).unwrap();
        }
    }

    fn admin(&mut self) -> &mut Admin {
        self.admin.as_mut().expect("a helper")
    }

    /// Ends the helper: in good order, or as if the client had been killed.
    fn end_helper(&mut self, goodbye: bool) {
        let mut admin = self.admin.take().unwrap();
        if !goodbye {
            admin.abandon();
        }
        drop(admin);
        self.helper.take().unwrap().join().unwrap();
    }

    /// What `nft` or `ip` says in the namespace.
    fn said(&self, program: &str, line: &str) -> String {
        let output = self.netns.command(program).args(line.split(' ')).output().unwrap();
        assert!(output.status.success(), "{program} {line}");
        String::from_utf8(output.stdout).unwrap()
    }
}

fn pair() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC;
    let family = rustix::net::AddressFamily::UNIX;
    rustix::net::socketpair(family, SocketType::SEQPACKET, flags, None).unwrap()
}

struct Testbed {
    family: Family,
    server: Netns,
    router: Netns,
    places: [BaseHost; 2],
    captures: [Capture; 2],
    here: usize,
}

impl Testbed {
    /// None where namespaces may not be had.
    fn new(family: Family) -> Option<Self> {
        let new = || lasthop_testing::or_skip(Netns::anonymous(), NetnsError::is_unavailable);
        let [server, router, one, two] = [new()?, new()?, new()?, new()?];
        for key in ["ipv4.ip_forward", "ipv6.conf.all.forwarding"] {
            router.sysctl(key, "1").unwrap();
            one.sysctl(key, "1").unwrap();
            two.sysctl(key, "1").unwrap();
        }
        for (n, host) in [(1, &server), (2, &one), (3, &two)] {
            let name = format!("to{n}");
            router.veth(&name, host, "eth0").unwrap();
            let prefixes = |last: &str| -> [(IpAddr, u8); 2] {
                [
                    (format!("10.0.{n}.{last}").parse().unwrap(), 24),
                    (format!("fd00:{n}::{last}").parse().unwrap(), 64),
                ]
            };
            router.interface_up(&name, &prefixes("1")).unwrap();
            host.interface_up("eth0", &prefixes("2")).unwrap();
            host.route(None, format!("10.0.{n}.1").parse().unwrap()).unwrap();
            host.route(None, format!("fd00:{n}::1").parse().unwrap()).unwrap();
        }
        let captures = [Capture::start(&server, "eth0"), Capture::start(&router, "to1")];
        let mut places = [BaseHost::new(one), BaseHost::new(two)];
        for place in &mut places {
            let all = [Family::V4.mobile().into(), Family::V6.mobile().into()];
            place.admin().guard(&all).unwrap();
        }
        let mut world = Self { family, server, router, places, captures, here: 0 };
        world.lead_to(0);
        Some(world)
    }

    /// From here on the router sends what is for the mobile to that base.
    fn lead_to(&mut self, n: usize) {
        let (mobile, base) = (self.family.mobile(), self.family.base(n));
        let bits = if mobile.is_ipv4() { 32 } else { 128 };
        self.router.ip(&format!("route replace {mobile}/{bits} via {base}\n")).unwrap();
        self.here = n;
    }

    fn listen(&self) -> TcpListener {
        let address = self.family.server();
        self.server.enter(|| TcpListener::bind(address).unwrap()).unwrap()
    }

    /// A connection of the mobile's to the server, through the base where it is.
    fn connect(&mut self) -> OwnedFd {
        let local = SocketAddr::new(self.family.mobile(), 0);
        let fd = self.places[self.here].admin().socket(local).unwrap();
        let outcome = rustix::net::connect(&fd, &self.family.server());
        assert!(matches!(outcome, Ok(()) | Err(rustix::io::Errno::INPROGRESS)), "{outcome:?}");
        wait_for(&fd, PollFlags::OUT);
        rustix::net::sockopt::socket_error(&fd).unwrap().unwrap();
        fd
    }

    /// Moves connections to the other base, as a handoff does.
    fn hand_over(&mut self, fds: Vec<OwnedFd>) -> Vec<OwnedFd> {
        let (old, new) = (self.here, 1 - self.here);
        let images: Vec<Image> = dump_all(self.places[old].admin(), fds)
            .into_iter()
            .map(|outcome| image(outcome.unwrap_or_else(|failed| panic!("{}", failed.error))))
            .map(|image| Image::decode(&image.encode()).unwrap())
            .collect();
        let fds = restore_all(self.places[new].admin(), &images);
        let fds = fds.into_iter().map(|fd| fd.unwrap()).collect();
        self.lead_to(new);
        // What was on its way to the old base is dropped there: it would be answered by a reset.
        thread::sleep(ARRIVAL);
        let flows: Vec<Flow> = images.iter().map(Image::flow).collect();
        self.places[old].admin().thaw(&flows).unwrap();
        fds
    }

    fn hand_over_one(&mut self, fd: OwnedFd) -> OwnedFd {
        self.hand_over(vec![fd]).pop().unwrap()
    }

    /// What is left to be read of a connection that is over.
    fn rest_of(&mut self, fd: OwnedFd) -> Vec<u8> {
        match dump_all(self.places[self.here].admin(), vec![fd]).pop().unwrap() {
            Ok(Dumped::Rest(rest)) => rest,
            other => panic!("{other:?}"),
        }
    }

    /// Ends the world, and says what the server's link saw in both directions.
    fn end(self) -> Seen {
        // What is still on its way arrives.
        thread::sleep(ARRIVAL);
        let [to, from] = self.captures.map(Capture::end);
        assert!(to.others > 0 && from.others > 0, "nothing was captured");
        let (resets, others) = (to.resets + from.resets, to.others + from.others);
        Seen { resets, others, ..to }
    }
}

/// Reads one connection out of the kernel that stands.
fn dump(admin: &mut Admin, fd: OwnedFd) -> Result<Image, Box<Failed>> {
    dump_all(admin, vec![fd]).pop().unwrap().map(image)
}

fn image(dumped: Dumped) -> Image {
    match dumped {
        Dumped::Image(image) => *image,
        Dumped::Rest(rest) => panic!("it is over, with {} bytes", rest.len()),
    }
}

/// Puts one connection into the kernel.
fn restore(admin: &mut Admin, image: &Image) -> Result<OwnedFd, MigrateError> {
    restore_all(admin, std::slice::from_ref(image)).pop().unwrap()
}

/// Waits until the socket is ready.
fn wait_for(fd: &OwnedFd, flags: PollFlags) {
    let timeout = Timespec::try_from(PATIENCE).unwrap();
    let mut polled = [PollFd::new(fd, flags)];
    assert_eq!(rustix::event::poll(&mut polled, Some(&timeout)), Ok(1), "nothing happens");
}

/// Waits until there is a frame or the capture is to end. Waking every millisecond instead can keep
/// the kernel's own threads, which packet rules wait for, off a busy processor for many seconds.
fn wait_for_either(socket: &PacketSocket, stop: &Stop) {
    let mut polled = [PollFd::new(socket, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
    // Whatever else ends it is one more look.
    let _ = rustix::event::poll(&mut polled, None);
}

fn wait_until(done: impl FnMut() -> bool) {
    lasthop_testing::wait_until("it happens", PATIENCE, done);
}

/// Writes what the socket takes at once.
fn write_some(fd: &OwnedFd, bytes: &[u8]) -> usize {
    match lasthop_kernel::tcp::write(fd, bytes) {
        lasthop_kernel::tcp::Moved::Bytes(n) => n,
        lasthop_kernel::tcp::Moved::Blocked => 0,
        other => panic!("{other:?}"),
    }
}

/// Reads what is there; `None` at the end.
fn read_some(fd: &OwnedFd, into: &mut Vec<u8>) -> Option<usize> {
    let mut buffer = [0; 65_536];
    match lasthop_kernel::tcp::read(fd, &mut buffer) {
        lasthop_kernel::tcp::Moved::Bytes(n) => {
            into.extend_from_slice(&buffer[..n]);
            Some(n)
        }
        lasthop_kernel::tcp::Moved::Blocked => Some(0),
        lasthop_kernel::tcp::Moved::End => None,
        lasthop_kernel::tcp::Moved::Broken(e) => panic!("{e}"),
    }
}

/// This comes, and nothing else.
fn hears(fd: &OwnedFd, expected: &[u8]) {
    let mut got = Vec::new();
    while got.len() < expected.len() {
        wait_for(fd, PollFlags::IN);
        read_some(fd, &mut got).expect("the end comes too early");
    }
    same(&got, expected);
}

/// Reads to the end.
fn read_all(fd: &OwnedFd) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        match read_some(fd, &mut all) {
            Some(0) => wait_for(fd, PollFlags::IN),
            Some(_) => {}
            None => return all,
        }
    }
}

/// Writes everything.
fn write_all(fd: &OwnedFd, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let n = write_some(fd, bytes);
        bytes = &bytes[n..];
        if n == 0 {
            wait_for(fd, PollFlags::OUT);
        }
    }
}

fn shut(fd: &OwnedFd) {
    rustix::net::shutdown(fd, rustix::net::Shutdown::Write).unwrap();
}

/// Accepts one.
fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Bytes that do not repeat within any buffer.
fn pattern(length: usize, seed: u64) -> Vec<u8> {
    (0..length as u64).map(|i| ((i * i + seed) ^ (i >> 8)) as u8).collect()
}

fn same(got: &[u8], expected: &[u8]) {
    let differs = got.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!((got.len(), differs), (expected.len(), None));
}
