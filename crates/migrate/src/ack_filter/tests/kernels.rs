//! A base and a server in network namespaces, each with its kernel's TCP.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use lasthop_kernel::netns::{Netns, NetnsError};
use lasthop_kernel::sockopt::{self, Progress, SocketState};
use lasthop_kernel::tcp::{self, Moved};
use lasthop_kernel::tun::Tun;
use lasthop_testing::wait_until;
use lasthop_wire::tcp as wire;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::*;

const LENGTH: usize = 1 << 20;
/// What is told of it at first.
const TOLD: usize = 100_000;
/// Nothing here takes longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Nothing comes any more.
const QUIET: Duration = Duration::from_millis(200);

struct Testbed {
    filter: AckFilter,
    injector: Injector,
    client: OwnedFd,
    server: TcpStream,
    flow: Flow,
    slot: u32,
    data: Vec<u8>,
    /// What has come of it to the client, and to the server, and how much each has written.
    down: (Vec<u8>, usize),
    up: (Vec<u8>, usize),
}

impl Testbed {
    fn new(is_ipv4: bool, offload: bool) -> Option<Self> {
        let new = || lasthop_testing::or_skip(Netns::anonymous(), NetnsError::is_unavailable);
        let [base, server] = [new()?, new()?];
        base.veth("eth0", &server, "eth0").unwrap();
        for (netns, last) in [(&base, 1), (&server, 2)] {
            let v4 = format!("10.0.0.{last}").parse().unwrap();
            let v6 = format!("fd00::{last}").parse().unwrap();
            netns.interface_up("eth0", &[(v4, 24), (v6, 64)]).unwrap();
        }
        if !offload {
            // Checksums are written after the program has seen a packet, and the other kernel checks them.
            let mut command = base.command("ethtool");
            let status = command.args(["-K", "eth0", "tx", "off"]).output().unwrap().status;
            assert!(status.success());
        }
        // The server sends nothing again for the time alone that this test takes.
        server.sysctl("ipv4.tcp_early_retrans", "0").unwrap();
        server
            .ip("route add 10.0.0.1/32 dev eth0 rto_min 60s\nroute add fd00::1/128 dev eth0 rto_min 60s\n")
            .unwrap();
        let pick =
            |v4: &str, v6: &str| -> IpAddr { if is_ipv4 { v4 } else { v6 }.parse().unwrap() };
        let (from, to) = (pick("10.0.0.1", "fd00::1"), pick("10.0.0.2", "fd00::2"));
        let listener = server.enter(|| TcpListener::bind((to, 80)).unwrap()).unwrap();
        let made = base.enter(|| {
            let mut filter = filter_for_test(4)?;
            let interface = Rtnetlink::open().unwrap().interface("eth0").unwrap();
            filter.attach(&interface).unwrap();
            let client = tcp::socket(from).unwrap();
            rustix::net::bind(&client, &SocketAddr::new(from, 0)).unwrap();
            Some((filter, Injector::open().unwrap(), client))
        });
        let (mut filter, injector, client) = made.unwrap()?;
        let remote = SocketAddr::new(to, 80);
        let flow = Flow { local: tcp::local_addr(&client), remote };
        let slot = filter.insert(flow).unwrap();
        let held = Slot { told: Told { offset: TOLD as u32, echo: 0 }, ..live() };
        let control = Control { window_scale: None, ..held.control };
        filter.slots().put(slot, &Slot { control, ..held });
        let client = tcp::connect_by(client, remote).unwrap();
        wait_until("it is connected", PATIENCE, || tcp::connected(&client).is_some());
        let window_scale = Some(sockopt::info(client.as_fd()).unwrap().rcv_wscale);
        filter.slots().set_control(slot, Control { window_scale, ..control });
        let server = listener.accept().unwrap().0;
        server.set_nonblocking(true).unwrap();
        let data = (0..LENGTH as u64).map(|i| ((i * i) ^ (i >> 8)) as u8).collect();
        let (down, up) = ((Vec::new(), 0), (Vec::new(), 0));
        Some(Self { filter, injector, client, server, flow, slot, data, down, up })
    }

    /// Writes and reads what can be, both ways. Whether anything moved.
    fn pump(&mut self) -> bool {
        let moved =
            |world: &Self| world.down.0.len() + world.down.1 + world.up.0.len() + world.up.1;
        let (before, mut piece) = (moved(self), [0; 65_536]);
        self.down.1 += self.server.write(&self.data[self.down.1..]).unwrap_or(0);
        if self.up.1 < LENGTH
            && let Moved::Bytes(n) = tcp::write(&self.client, &self.data[self.up.1..])
        {
            self.up.1 += n;
        }
        while let Moved::Bytes(n) = tcp::read(&self.client, &mut piece) {
            self.down.0.extend_from_slice(&piece[..n]);
        }
        while let Ok(n @ 1..) = self.server.read(&mut piece) {
            self.up.0.extend_from_slice(&piece[..n]);
        }
        moved(self) > before
    }

    fn progress(&self) -> Progress {
        sockopt::progress(self.server.as_fd()).unwrap()
    }

    fn tell(&mut self, bytes: usize) {
        let told = Told { offset: bytes as u32, echo: 0 };
        self.filter.slots().write(self.slot, 1, told.word());
        self.injector.send(&Acknowledgement::new(&self.flow, true, 0).unwrap()).unwrap();
    }

    /// The client goes as if its process were killed: with an end, or with a reset.
    fn kill(self, with_reset: bool) {
        let Self { filter, client, server, slot, .. } = self;
        if with_reset {
            tcp::abort_on_close(&client);
        }
        drop(client);
        wait_until("the end is held back", PATIENCE, || filter.slots().slot(slot).seen.ended > 0);
        std::thread::sleep(QUIET);
        let state = sockopt::info(server.as_fd()).unwrap().state;
        assert_eq!(state, SocketState::Established);
    }
}

fn a_server_keeps_what_is_not_told(is_ipv4: bool, offload: bool, with_reset: bool) {
    let Some(mut world) = Testbed::new(is_ipv4, offload) else { return };
    let mut moved = Instant::now();
    while moved.elapsed() < QUIET {
        if world.pump() {
            moved = Instant::now();
        }
        assert!(world.progress().bytes_acked <= TOLD as u64);
    }
    assert_eq!(world.progress().bytes_acked, TOLD as u64);
    let came = world.down.0.len();
    assert!(came > TOLD + 20_000, "{came} bytes came");
    let (start, mut told) = (Instant::now(), TOLD);
    while world.progress().bytes_acked < LENGTH as u64 || world.up.0.len() < LENGTH {
        let came = world.down.0.len();
        assert!(start.elapsed() < PATIENCE, "{told} of {came} told, {} up", world.up.0.len());
        if came > told {
            told = came;
            world.tell(told);
        }
        world.pump();
        assert!(world.progress().bytes_acked <= told as u64);
    }
    assert_eq!(world.progress().total_retrans, 0);
    assert!(world.down.0 == world.data && world.up.0 == world.data, "other bytes came");
    let seen = world.filter.slots().slot(world.slot).seen;
    assert!(seen.lowered > 10 && seen.injected > 0, "{seen:?}");
    world.kill(with_reset);
}

#[test]
fn a_server_keeps_what_is_not_told_of_and_hears_no_end() {
    a_server_keeps_what_is_not_told(true, true, false);
    a_server_keeps_what_is_not_told(true, true, true);
}

#[test]
fn ipv6_is_held_alike() {
    a_server_keeps_what_is_not_told(false, true, false);
    a_server_keeps_what_is_not_told(false, true, true);
}

#[test]
fn checksums_that_software_writes_are_right() {
    if lasthop_testing::is_installed("ethtool") {
        a_server_keeps_what_is_not_told(true, false, false);
        a_server_keeps_what_is_not_told(false, false, true);
    }
}

/// An interface without Ethernet, and a base that knows a connection which it has not made.
#[test]
fn a_connection_taken_over_is_acknowledged_over_a_tunnel() {
    let netns = lasthop_testing::or_skip(Netns::anonymous(), NetnsError::is_unavailable);
    let Some((netns, mut filter)) = netns.zip(filter_for_test(2)) else { return };
    netns
        .enter(|| {
            let tun = Tun::open("tun0").unwrap();
            let prefixes = ["10.0.0.1", "fd00::1"].map(|ip| ip.parse().unwrap());
            netns.interface_up("tun0", &[(prefixes[0], 24), (prefixes[1], 64)]).unwrap();
            filter.attach(&Rtnetlink::open().unwrap().interface("tun0").unwrap()).unwrap();
            let injector = Injector::open().unwrap();
            for remote in ["10.0.0.2:80", "[fd00::2]:80"] {
                let remote: SocketAddr = remote.parse().unwrap();
                // The mobile's address is not this host's.
                let flow = Flow { local: super::flow(remote.is_ipv4()).local, remote };
                let slot = filter.insert(flow).unwrap();
                let known = Known { base: true, kernel: true, edge: true, let_out: false };
                let seen = Seen { known, base: 100, next_seq: 7, edge: 100_000, ..Seen::default() };
                let told = Told { offset: 5000, echo: 9 };
                filter.slots().put(slot, &Slot { told, seen, ..live() });
                // Two that say the same are one.
                let one = Acknowledgement::new(&flow, true, 0).unwrap();
                for _ in 0..2 {
                    injector.send(&one).unwrap();
                }
                let mut packet = [0; 200];
                let segment = loop {
                    wait_for(&tun);
                    let length = tun.receive(&mut packet).unwrap().unwrap_or(0);
                    // The kernel has words of its own, to routers.
                    let Ok((header, payload)) = Header::parse(&packet[..length]) else { continue };
                    let Ok((segment, _)) = wire::Segment::parse(&header.addresses, payload) else {
                        continue;
                    };
                    break segment;
                };
                assert_eq!((segment.seq.0, segment.ack.0), (7, 5100), "{segment:?}");
                assert_eq!(u32::from(segment.window), (100_000 - 5100) >> 7);
                assert_eq!(segment.options.timestamps.map(|clocks| clocks.echo), Some(9));
                let seen = filter.slots().slot(slot).seen;
                assert_eq!((seen.injected, seen.swallowed), (1, 1));
            }
        })
        .unwrap();
}

fn wait_for(tun: &Tun) {
    let timeout = Timespec::try_from(PATIENCE).unwrap();
    let mut polled = [PollFd::new(tun, PollFlags::IN)];
    assert_eq!(rustix::event::poll(&mut polled, Some(&timeout)), Ok(1), "nothing leaves");
}
