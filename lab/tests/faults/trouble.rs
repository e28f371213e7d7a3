//! What a host may come to lack, and what strangers may make its kernel believe.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use etherparse::{Icmpv4Header, Icmpv4Type, PacketBuilder, icmpv4::DestUnreachableHeader};
use lasthop_kernel::netns::Netns;
use lasthop_lab::LabError;
use lasthop_lab::arrivals::Watched;
use lasthop_lab::client::Stop;
use lasthop_lab::process::Daemon;
use lasthop_lab::roam::{Mode, hop_address, mobile_address};
use lasthop_lab::talk::{self, Amounts};
use lasthop_lab::topology::Family;
use lasthop_testing::wait_or;
use lasthop_units::Seed;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use socket2::{Domain, Protocol, Socket, Type};

use crate::common;
use crate::stage::{PATIENCE, Stage};
use crate::talks;
use crate::tracer::Tracer;

/// For how long there are no descriptors.
const DEARTH: Duration = Duration::from_secs(2);
/// Bytes of a download that moves, for which the radio needs a second and more.
const MOVING: u64 = 20_000_000;
/// System calls of a process whose applications try again ten times a second, and of one that spins, are far
/// below and far above this.
const SPINS: u64 = 10_000;

fn limit(id: u32, descriptors: Option<u64>) -> Option<u64> {
    let pid = Pid::from_raw(id.cast_signed());
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    let new = Rlimit { current: descriptors, maximum };
    prlimit(pid, Resource::Nofile, new).unwrap().current
}

/// SEC-20: without descriptors connections wait or are refused, nothing spins, and with descriptors
/// everything goes on.
#[test]
fn a_process_without_descriptors_rests_and_goes_on_when_it_has_some() {
    for hop in ["srp", "split-tcp"] {
        for (n, role) in ["base", "mobile"].into_iter().enumerate() {
            let Some(stage) = Stage::start(hop, None, Seed::from_u64(20)) else { return };
            talks(&stage, "before", 2);
            let before = stage.holdings(None);
            let id = stage.ids()[n];
            let usual = limit(id, Some(3));
            thread::scope(|scope| {
                let under = scope.spawn(|| talks(&stage, "without", 6));
                if role == "mobile" {
                    let paused = || stage.mobile_said().contains("accept failed: tried again");
                    wait_or(PATIENCE, paused, || format!("no accept fails\n{}", stage.said()));
                }
                let asking = scope.spawn(|| stage.asked(n).map(drop).map_err(|e| e.to_string()));
                let calls = stage.calls()[n];
                thread::sleep(DEARTH);
                let calls = stage.calls()[n] - calls;
                limit(id, usual);
                under.join().unwrap();
                assert_eq!(asking.join().unwrap(), Ok(()), "{hop}, {role}: the status");
                println!("{hop}, {role}: {calls} calls");
                assert!(calls < SPINS, "{hop}, {role}: {calls} calls");
            });
            stage.check();
            let after = stage.holdings(Some(&before));
            assert_eq!(after.descriptors, before.descriptors, "{hop}, {role}");
            stage.end();
        }
    }
}

/// SEC-20: the way to the next base needs descriptors.
#[test]
fn a_mobile_that_moves_without_descriptors_arrives_when_it_has_some() {
    let Some(stage) = Stage::start("srp", Some(Mode::Anchor), Seed::from_u64(23)) else { return };
    talks(&stage, "before", 2);
    let id = *stage.ids().last().unwrap();
    let usual = limit(id, Some(3));
    thread::scope(|scope| {
        let move_over = scope.spawn(|| stage.go(2));
        thread::sleep(DEARTH);
        assert!(!move_over.is_finished(), "it moves with no descriptor");
        limit(id, usual);
        assert!(move_over.join().unwrap(), "{}", stage.said());
    });
    talks(&stage, "after", 2);
    stage.go(1);
    stage.end();
}

/// SEC-20: so does the way to the base that has kept a connection's wired half.
#[test]
fn a_base_that_reaches_a_wired_half_without_descriptors_does_so_when_it_has_some() {
    let Some(stage) = Stage::start("srp", Some(Mode::Anchor), Seed::from_u64(24)) else { return };
    talks(&stage, "before", 2);
    let (client, seed) = (stage.client(false), stage.seed());
    let stream = client.connect(PATIENCE).unwrap();
    let (received, stop) = (Watched::default(), Stop::default());
    let id = stage.ids()[1];
    thread::scope(|scope| {
        let ended = scope.spawn(|| {
            let amounts = Amounts { up: 4_000_000, down: MOVING };
            talk::both_over(&stream, "moving", amounts, seed, &received, &stop)
        });
        let some = || received.lock().total().get() > 0;
        wait_or(PATIENCE, some, || format!("nothing comes\n{}", stage.said()));
        let usual = limit(id, Some(3));
        let move_over = scope.spawn(|| stage.go(2));
        thread::sleep(DEARTH);
        assert!(received.lock().total().get() < MOVING, "it has ended before it moved");
        limit(id, usual);
        assert!(move_over.join().unwrap(), "{}", stage.said());
        ended.join().unwrap().unwrap();
    });
    assert_eq!(received.lock().total().get(), MOVING);
    assert!(received.lock().is_prefix_of(talk::server_seed(seed)));
    stage.go(1);
    stage.end();
}

/// SEC-20
#[test]
fn a_helper_without_descriptors_rests_and_serves_when_it_has_some() {
    let Some(program) = common::program() else { return };
    let Some(host) = common::permitted(Netns::anonymous().map_err(LabError::Netns)) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("helper.sock");
    let mut command = host.command(program);
    command.args(["helper", "--address", "10.9.0.7", "--socket"]).arg(&path);
    let helper = Daemon::spawn(command).unwrap();
    let address = SocketAddrUnix::new(&path).unwrap();
    let kind = SocketType::SEQPACKET;
    let connect = || -> rustix::io::Result<OwnedFd> {
        let fd = rustix::net::socket(AddressFamily::UNIX, kind, None)?;
        rustix::net::connect(&fd, &address).map(|()| fd)
    };
    wait_or(PATIENCE, || connect().is_ok(), || format!("no helper: {}", helper.said()));
    let tracer = Tracer::attach(helper.id(), Seed::from_u64(22));
    let usual = limit(helper.id(), Some(3));
    let client = connect().unwrap();
    let paused = || helper.said().contains("accept failed: tried again");
    let rests = (0..DEARTH.as_millis() / 20).any(|_| {
        thread::sleep(Duration::from_millis(20));
        paused()
    });
    let before = tracer.calls();
    thread::sleep(DEARTH);
    let calls = tracer.calls() - before;
    limit(helper.id(), usual);
    assert!(rests && calls < SPINS, "{calls} calls: {}", helper.said());
    // What it does not understand it answers by hanging up.
    set_socket_timeout(&client, Timeout::Recv, Some(PATIENCE)).unwrap();
    rustix::net::send(&client, b"?", SendFlags::NOSIGNAL).unwrap();
    let answer = rustix::net::recv(&client, &mut [0; 100][..], RecvFlags::empty());
    assert!(answer.is_ok() || answer == Err(Errno::CONNRESET), "{answer:?}");
    tracer.terminate();
    wait_or(PATIENCE, || !tracer.is_running(), || "the helper stays".into());
    assert_eq!(tracer.ended(), Some(0), "{}", helper.said());
}

/// The port of the mobile's UDP socket.
fn hop_port(id: u32) -> u16 {
    let tables = ["udp", "udp6"]
        .map(|name| fs::read_to_string(format!("/proc/{id}/net/{name}")).unwrap_or_default());
    let ports = tables.iter().flat_map(|table| table.lines().skip(1)).filter_map(|line| {
        let local = line.split_ascii_whitespace().nth(1)?;
        u16::from_str_radix(local.rsplit(':').next()?, 16).ok()
    });
    ports.into_iter().next().unwrap()
}

/// What somebody on the way would say of a datagram from `source` to `target`.
fn forged(what: DestUnreachableHeader, source: SocketAddrV4, target: SocketAddrV4) -> Vec<u8> {
    let quoted = PacketBuilder::ipv4(source.ip().octets(), target.ip().octets(), 64)
        .udp(source.port(), target.port());
    let mut packet = Vec::new();
    quoted.write(&mut packet, &[0; 64]).unwrap();
    let icmp = Icmpv4Type::DestinationUnreachable(what);
    let mut bytes = Icmpv4Header::with_checksum(icmp, &packet).to_bytes().to_vec();
    bytes.extend(packet);
    bytes
}

/// SEC-21: whoever knows the mobile's port and sends ICMP errors in the base's name neither ends the
/// association nor lowers what a datagram may carry.
#[test]
fn forged_icmp_errors_end_nothing_and_shrink_nothing() {
    for hop in ["srp", "mobile-tcp"] {
        let Some(stage) = Stage::start(hop, None, Seed::from_u64(21)) else { return };
        talks(&stage, "before", 6);
        let before = stage.association();
        let SocketAddr::V4(base) = hop_address(Family::V4, 1) else { unreachable!() };
        let IpAddr::V4(mobile) = mobile_address(Family::V4, 1) else { unreachable!() };
        let source = SocketAddrV4::new(mobile, hop_port(stage.ids()[1]));
        let open = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).unwrap();
        let socket = stage.base().enter(open).unwrap();
        let to = SocketAddr::from((mobile, 0)).into();
        thread::scope(|scope| {
            let meanwhile = scope.spawn(|| talks(&stage, "meanwhile", 12));
            let mut sent = 0;
            while !meanwhile.is_finished() || sent < 500 {
                for what in [
                    DestUnreachableHeader::Port,
                    DestUnreachableHeader::Host,
                    DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: 68 },
                    DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: 576 },
                ] {
                    match socket.send_to(&forged(what, source, base), &to) {
                        Err(e) if e.kind() != ErrorKind::WouldBlock => panic!("{e}"),
                        _ => sent += 1,
                    }
                }
                thread::sleep(Duration::from_millis(2));
            }
            meanwhile.join().unwrap();
        });
        talks(&stage, "after", 2);
        let after = stage.association();
        assert!(after.mtu >= before.mtu, "{:?} and then {:?}", before.mtu, after.mtu);
        let heard = stage.mobile_said().contains("the network says");
        assert!(heard, "no error was heard\n{}", stage.said());
        assert!(!stage.said().contains("association lost"), "{}", stage.said());
        stage.end();
    }
}

/// SEC-23: a key that cannot be written whole is not there at all.
#[test]
fn a_full_disk_leaves_no_part_of_a_key() {
    let Some(program) = common::program() else { return };
    if !rustix::process::geteuid().is_root() {
        return lasthop_testing::skip("a small file system needs root");
    }
    let folder = tempfile::tempdir().unwrap();
    let script = r#"mount -t tmpfs -o size=64k none "$0" || exit 77
        cat /dev/zero >"$0/filler" 2>/dev/null
        "$1" keygen --out "$0/key"; echo "ended with $?"; ls -A "$0"
        rm "$0/filler"; "$1" keygen --out "$0/key" && "$1" keygen --public "$0/key""#;
    let mut command = std::process::Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(folder.path()).arg(program);
    let output = command.output().unwrap();
    if output.status.code() == Some(77) {
        return lasthop_testing::skip("no file system can be mounted");
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, complaint) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}{complaint}");
    assert!(said.starts_with("ended with 1\nfiller\n"), "{said}");
    assert!(complaint.contains("No space left"), "{complaint}");
}
