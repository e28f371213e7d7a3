//! What the helper does and refuses, and what it leaves behind.

use std::path::PathBuf;

use lasthop_kernel::sockopt::{self, Repair};
use rustix::net::SocketAddrUnix;
use rustix::thread::CapabilitySet;

use super::super::message::SocketRequest;
use super::*;

fn v4() -> IpAddr {
    Family::V4.mobile()
}

/// A connection of a world's mobile and the server's end of it, of which each has heard the other.
fn talk(world: &mut Testbed) -> (OwnedFd, TcpStream) {
    let listener = world.listen();
    talk_to(world, &listener)
}

/// As [`talk`], with a server that listens already.
fn talk_to(world: &mut Testbed, listener: &TcpListener) -> (OwnedFd, TcpStream) {
    let fd = world.connect();
    let mut stream = accept(listener);
    still_talks(&fd, &mut stream);
    (fd, stream)
}

fn still_talks(fd: &OwnedFd, stream: &mut TcpStream) {
    write_all(fd, b"there?");
    let mut asked = [0; 6];
    stream.read_exact(&mut asked).unwrap();
    assert_eq!(&asked, b"there?");
    stream.write_all(b"here").unwrap();
    hears(fd, b"here");
}

/// The tables, rules and routes of lasthop in a base's namespace.
fn left(place: &BaseHost) -> String {
    let said =
        ["ip rule show", "ip -6 rule show", "ip route show proto 79", "ip -6 route show proto 79"]
            .map(|line| {
                let (program, line) = line.split_once(' ').unwrap();
                place.said(program, line)
            })
            .concat();
    let ours = |line: &&str| {
        !["local", "main", "default"].iter().any(|t| line.ends_with(&format!("lookup {t}")))
    };
    let lines: Vec<&str> = said.lines().map(str::trim).filter(ours).collect();
    place.said("nft", "list tables") + &lines.join("\n")
}

#[test]
fn tcp_that_meets_no_socket_is_dropped_and_never_reset() {
    let Some(mut world) = Testbed::new(Family::V4) else { return };
    let (fd, mut stream) = talk(&mut world);
    let nobody = SocketAddr::new(v4(), 9);
    let outcome = world
        .server
        .enter(|| TcpStream::connect_timeout(&nobody, Duration::from_millis(300)))
        .unwrap();
    assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::TimedOut);
    // Nor is what comes for a connection that has gone.
    let flow = Flow::of(&fd).unwrap();
    let image = dump(world.places[0].admin(), fd).unwrap();
    world.places[0].admin().thaw(&[flow]).unwrap();
    stream.write_all(b"anybody?").unwrap();
    thread::sleep(Duration::from_millis(300));
    let fd = restore(world.places[0].admin(), &image).unwrap();
    drop(stream);
    assert_eq!(read_all(&fd), b"anybody?");
    assert_eq!(world.end().resets, 0);
}

/// Once all connections of an address are known to be here, what meets none is nobody's, and its fixed
/// host learns that. As soon as one leaves nobody knows.
#[test]
fn strays_are_reset_where_an_address_is_answered_and_until_its_connections_move() {
    for family in [Family::V4, Family::V6] {
        let Some(mut world) = Testbed::new(family) else { return };
        let listener = world.listen();
        let (lost, mut orphan) = talk_to(&mut world, &listener);
        let (fd, mut stream) = talk_to(&mut world, &listener);
        let admin = world.places[0].admin();
        let flow = Flow::of(&lost).unwrap();
        drop(dump(admin, lost).unwrap());
        admin.thaw(&[flow]).unwrap();
        orphan.write_all(b"anybody?").unwrap();
        admin.answer(family.mobile(), true).unwrap();
        // When the server sends it again.
        let error = orphan.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        still_talks(&fd, &mut stream);

        let flow = Flow::of(&fd).unwrap();
        let image = dump(world.places[0].admin(), fd).unwrap();
        world.places[0].admin().thaw(&[flow]).unwrap();
        stream.write_all(b"anybody?").unwrap();
        thread::sleep(Duration::from_millis(300));
        let fd = restore(world.places[0].admin(), &image).unwrap();
        hears(&fd, b"anybody?");
        still_talks(&fd, &mut stream);
    }
}

/// MIP-7: a process that is being started has the descriptors of the one that starts it.
#[test]
fn what_is_dumped_acknowledges_nothing_although_another_process_has_its_descriptor() {
    for family in [Family::V4, Family::V6] {
        let Some(mut world) = Testbed::new(family) else { return };
        let (fd, mut stream) = talk(&mut world);
        let (flow, shared) = (Flow::of(&fd).unwrap(), fd.try_clone().unwrap());
        let image = dump(world.places[0].admin(), fd).unwrap();
        world.places[0].admin().thaw(&[flow]).unwrap();
        stream.write_all(b"anybody?").unwrap();
        thread::sleep(Duration::from_millis(300));
        drop(shared);
        let fd = restore(world.places[0].admin(), &image).unwrap();
        hears(&fd, b"anybody?");
        still_talks(&fd, &mut stream);
    }
}

/// A base that is killed as soon as a connection has come to it must not make half a stream look whole.
#[test]
fn what_is_restored_and_closed_at_once_is_reset_and_not_ended() {
    let Some(mut world) = Testbed::new(Family::V4) else { return };
    let (fd, mut stream) = talk(&mut world);
    drop(world.hand_over_one(fd));
    let error = stream.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[test]
fn a_frozen_connection_sends_and_receives_nothing_until_it_is_thawed() {
    for family in [Family::V4, Family::V6] {
        let Some(mut world) = Testbed::new(family) else { return };
        let (fd, mut stream) = talk(&mut world);
        let flow = Flow::of(&fd).unwrap();
        world.places[0].admin().freeze(&[flow]).unwrap();
        stream.write_all(b"down").unwrap();
        write_all(&fd, b"up");
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        assert!(stream.read(&mut [0; 8]).is_err(), "it heard");
        assert_eq!(sockopt::unread(fd.as_fd()).unwrap(), 0);
        world.places[0].admin().thaw(&[flow]).unwrap();
        world.places[0].admin().thaw(&[flow]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut got = [0; 2];
        stream.read_exact(&mut got).unwrap();
        wait_until(|| sockopt::unread(fd.as_fd()).unwrap() == 4);
    }
}

#[test]
fn everything_goes_with_the_client_but_the_way_to_another_base_stays_after_a_kill() {
    let Some(mut world) = Testbed::new(Family::V4) else { return };
    let permitted = [v4().into(), Family::V6.mobile().into()];
    let [place, _] = &mut world.places;
    for goodbye in [true, false] {
        let flow = Flow { local: SocketAddr::new(v4(), 4000), remote: Family::V4.server() };
        place.admin().guard(&permitted).unwrap();
        place.admin().freeze(&[flow]).unwrap();
        place.admin().route(v4(), Route::Via("10.0.2.1".parse().unwrap())).unwrap();
        place.admin().route(Family::V6.mobile(), Route::OnLink("eth0".into())).unwrap();
        let text = left(place);
        for what in
            ["lasthop_freeze", "lasthop_base", "10.9.0.7 via 10.0.2.1", "fd00:9::7 dev eth0"]
        {
            assert!(text.contains(what), "{what} in {text}");
        }
        place.end_helper(goodbye);
        let text = left(place);
        let way = if goodbye { "" } else { "10.9.0.7 via 10.0.2.1 dev eth0" };
        assert_eq!(text, way);
        place.start_helper(&permitted);
    }
    // The next helper knows it for its own.
    assert!(left(place).contains("10.9.0.7 via 10.0.2.1"));
    place.admin().route(v4(), Route::Local).unwrap();
    assert!(left(place).contains("local 10.9.0.7"), "{}", left(place));
    place.admin().route(v4(), Route::Via("10.0.2.1".parse().unwrap())).unwrap();
    place.end_helper(false);
    // To one for other addresses it is nothing but left behind.
    place.start_helper(&["10.9.0.8".parse().unwrap()]);
    assert!(!left(place).contains("10.9.0.7"), "{}", left(place));
}

/// SEC-30
#[test]
fn other_addresses_than_the_helper_was_started_for_are_refused() {
    let Some(mut world) = Testbed::new(Family::V4) else { return };
    let listener = world.listen();
    let own = world.places[0].netns.enter(|| TcpStream::connect(Family::V4.server()).unwrap());
    let own: OwnedFd = own.unwrap().into();
    rustix::io::ioctl_fionbio(&own, true).unwrap();
    let mut stream = accept(&listener);
    let place = &mut world.places[0];
    let other: IpAddr = "10.9.0.8".parse().unwrap();
    let flow = Flow::of(&own).unwrap();
    let refused = [
        place.admin().freeze(&[flow]).unwrap_err(),
        place.admin().guard(&["10.9.0.0/24".parse().unwrap()]).unwrap_err(),
        place.admin().route(other, Route::Local).unwrap_err(),
        place.admin().announce(other, "eth0").unwrap_err(),
    ];
    for error in refused {
        assert!(error.to_string().contains("--address"), "{error}");
    }
    assert!(place.admin().socket(SocketAddr::new(other, 0)).is_err());
    let failed = dump(place.admin(), own).unwrap_err();
    assert!(failed.error.to_string().contains("--address"), "{}", failed.error);
    still_talks(&failed.fd, &mut stream);
}

/// SEC-32: what anybody may take keeps no helper from starting, and only a helper keeps another.
#[test]
fn one_helper_serves_a_namespace_and_no_name_that_anybody_may_take_is_its_lock() {
    let new = || lasthop_testing::or_skip(Netns::anonymous(), NetnsError::is_unavailable);
    let Some(netns) = new() else { return };
    let serve = || {
        let (ours, theirs) = pair();
        drop(ours);
        let config = Config { addresses: vec![v4().into()], users: Vec::new() };
        netns.enter(|| helper::serve_client(theirs, &config, &Stop::new().unwrap())).unwrap()
    };
    let names = ["lasthop helper", "lasthop transparent base", "lasthop transparent mobile"];
    let _squatters = netns.enter(|| {
        names.map(|name| {
            let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
            let family = rustix::net::AddressFamily::UNIX;
            let fd = rustix::net::socket(family, SocketType::STREAM, None).unwrap();
            rustix::net::bind(&fd, &address).unwrap();
            fd
        })
    });
    serve().unwrap();
    let lock = netns.enter(|| lasthop_kernel::lock::Lock::take("helper", PATIENCE)).unwrap();
    assert!(matches!(serve(), Err(helper::HelperError::Taken)));
    drop(lock);
    serve().unwrap();
}

/// SEC-30: a helper that was started for no address does nothing for any.
#[test]
fn a_helper_for_no_address_permits_none() {
    let Some(mut world) = Testbed::new(Family::V4) else { return };
    let place = &mut world.places[0];
    place.end_helper(true);
    place.start_helper(&[]);
    let refused = [
        place.admin().guard(&[v4().into()]).unwrap_err(),
        place.admin().route(v4(), Route::Local).unwrap_err(),
        probe(place.admin(), v4()).unwrap_err(),
    ];
    for error in refused {
        assert!(error.to_string().contains("--address"), "{error}");
    }
}

/// SEC-30, FLT-3: who has started a helper says for what it works, as often as that changes.
#[test]
fn a_helper_works_for_what_the_one_says_that_started_it() {
    let Some(mut world) = Testbed::new(Family::V4) else { return };
    let place = &mut world.places[0];
    let (own, other) = (Network::from(v4()), IpAddr::from([10, 9, 0, 77]));
    let at = |ip| SocketAddr::new(ip, 0);
    assert!(place.admin().socket(at(other)).is_err());
    // More than there can be descriptors in a message.
    let many = (0..1000u16).map(|n| IpAddr::from([10, 8, (n / 250) as u8, (n % 250) as u8]).into());
    let all: Vec<Network> = many.chain([other.into()]).collect();
    assert_eq!(place.admin().change(&all, &[other.into()]).unwrap(), []);
    place.admin().socket(at(other)).unwrap();
    place.admin().route(other, Route::Local).unwrap();
    place.admin().answer(other, true).unwrap();
    assert!(place.admin().socket(at(v4())).is_err());
    // What stands for an address that is none of them any more can be taken back, and nothing else be done.
    assert_eq!(place.admin().change(&[own], &[own]).unwrap(), []);
    place.admin().socket(at(v4())).unwrap();
    assert!(place.admin().socket(at(other)).is_err());
    assert!(place.admin().route(other, Route::Local).is_err());
    place.admin().unroute(other).unwrap();
    place.end_helper(true);
    assert_eq!(left(place), "");
}

/// A helper at a path, which works for one address.
struct Served {
    dir: PathBuf,
    stop: Stop,
    helper: thread::JoinHandle<()>,
}

impl Served {
    fn start(name: &str) -> Option<Self> {
        let netns = lasthop_testing::or_skip(Netns::anonymous(), NetnsError::is_unavailable)?;
        let dir = std::env::temp_dir().join(format!("lasthop-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (stop, place) = (Stop::new().unwrap(), dir.join("helper.sock"));
        let theirs = stop.clone();
        let config = Config { addresses: vec![v4().into()], users: Vec::new() };
        let helper = thread::spawn(move || {
            netns.enter(|| helper::serve_path(&place, &config, &theirs)).unwrap().unwrap();
        });
        Some(Self { dir, stop, helper })
    }

    fn path(&self) -> PathBuf {
        self.dir.join("helper.sock")
    }

    /// It ends as it was asked to, and leaves nothing.
    fn end(self) {
        self.stop.request();
        self.helper.join().unwrap();
        assert!(!self.dir.join("helper.sock").exists());
        std::fs::remove_dir_all(&self.dir).unwrap();
    }
}

/// SEC-30: whom a helper merely serves cannot have it work for more.
#[test]
fn a_helper_that_somebody_else_started_works_for_nothing_more_whoever_asks() {
    let Some(served) = Served::start("permit") else { return };
    let path = served.path();
    wait_until(|| Admin::connect(&path).is_ok());
    let mut admin = Admin::connect(&path).unwrap();
    let [own, other] = [v4(), IpAddr::from([10, 9, 0, 77])].map(Network::from);
    for guarded in [vec![own, other], vec![other]] {
        assert_eq!(admin.change(&[own, other], &guarded).unwrap(), [other]);
        admin.socket(SocketAddr::new(v4(), 0)).unwrap();
        assert!(admin.socket(SocketAddr::new(other.prefix().0, 0)).is_err());
    }
    drop(admin);
    served.end();
}

/// SEC-31: whatever a client of the helper holds, `TCP_REPAIR` is for sockets of the mobiles' addresses.
#[test]
fn only_a_socket_that_is_bound_to_a_mobiles_address_is_repaired() {
    let Some(mut world) = Testbed::new(Family::V4) else { return };
    let place = &mut world.places[0];
    let unbound = lasthop_kernel::tcp::socket(v4()).unwrap();
    let own = place.netns.enter(|| {
        ["127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0", "0.0.0.0:0", "10.0.2.2:0"].map(|at| {
            let at: SocketAddr = at.parse().unwrap();
            let fd = lasthop_kernel::tcp::socket(at.ip()).unwrap();
            rustix::net::bind(&fd, &at).unwrap();
            fd
        })
    });
    let mut others = Vec::from(own.unwrap());
    others.push(unbound);
    let fds: Vec<_> = others.iter().map(AsFd::as_fd).collect();
    for outcome in place.admin().repair(&fds, Repair::On).unwrap() {
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
    for fd in &others {
        assert!(!sockopt::is_in_repair(fd.as_fd()).unwrap());
    }
    // Nor is one made for any other.
    for at in ["127.0.0.1:0", "0.0.0.0:0", "10.9.0.8:0"] {
        let wanted = SocketRequest { local: at.parse().unwrap(), repair: Some((0, 0)) };
        let error = place.admin().sockets(&[wanted]).unwrap().pop().unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{at}");
    }
    let mobiles = place.admin().socket(SocketAddr::new(v4(), 0)).unwrap();
    let done = place.admin().repair(&[mobiles.as_fd()], Repair::On).unwrap();
    assert!(done.into_iter().all(|outcome| outcome.is_ok()));
    assert!(sockopt::is_in_repair(mobiles.as_fd()).unwrap());
}

#[test]
fn without_the_privilege_the_probe_names_what_was_tried_and_the_connection_goes_on() {
    let Some(mut world) = Testbed::new(Family::V4) else { return };
    let (fd, mut stream) = talk(&mut world);
    let place = &mut world.places[0];
    let guarding = place.admin.take().unwrap();
    let (ours, theirs) = pair();
    let (stop, netns) = (Stop::new().unwrap(), Netns::anonymous().unwrap());
    let helper = thread::spawn(move || {
        netns.enter(|| {
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective -= CapabilitySet::NET_ADMIN;
            rustix::thread::set_capabilities(None, sets).unwrap();
            let config = Config { addresses: vec![v4().into()], users: Vec::new() };
            helper::serve_client(theirs, &config, &stop).unwrap();
        })
    });
    let mut admin = Admin::over(ours).unwrap();
    let error = probe(&mut admin, v4()).unwrap_err().to_string();
    for what in ["TCP_REPAIR", "CAP_NET_ADMIN", "mode = \"anchor\""] {
        assert!(error.contains(what), "{error}");
    }
    let failed = dump(&mut admin, fd).unwrap_err();
    assert!(failed.error.to_string().contains("CAP_NET_ADMIN"), "{}", failed.error);
    still_talks(&failed.fd, &mut stream);
    drop(admin);
    helper.join().unwrap().unwrap();
    drop(guarding);
}

/// SEC-33: whoever asks waits for nothing, and a helper that does not answer is as good as gone.
#[test]
fn a_helper_that_does_not_answer_is_given_up_and_whoever_asks_does_not_wait() {
    let (ours, _theirs) = pair();
    let worker = Worker::start(Admin::over(ours).unwrap()).unwrap();
    for n in 0..3 {
        worker.handle().submit(move |admin| Some((n, admin.unroute(v4()).unwrap_err().is_gone())));
    }
    assert!(worker.poll().is_none(), "somebody has waited");
    let mut told = Vec::new();
    while told.len() < 3 {
        let mut polled = [PollFd::new(&worker, PollFlags::IN)];
        let timeout = Timespec::try_from(PATIENCE).unwrap();
        assert_eq!(rustix::event::poll(&mut polled, Some(&timeout)), Ok(1), "nothing happens");
        worker.drain();
        told.extend(std::iter::from_fn(|| worker.poll()));
    }
    assert_eq!(told, [0, 1, 2].map(|n| (n, true)));
    wait_until(|| worker.handle().is_gone());
    assert!(worker.handle().wait_for(|admin| admin.unroute(v4())).unwrap_err().is_gone());
}

#[test]
fn a_helper_that_goes_takes_no_connection_with_it() {
    let Some(mut world) = Testbed::new(Family::V4) else { return };
    let (fd, mut stream) = talk(&mut world);
    let place = &mut world.places[1];
    place.stop.request();
    place.helper.take().unwrap().join().unwrap();
    let failed = dump(place.admin(), fd).unwrap_err();
    assert!(failed.error.to_string().contains("is gone"), "{}", failed.error);
    assert!(probe(place.admin(), v4()).is_err());
    still_talks(&failed.fd, &mut stream);
}

#[test]
fn what_is_no_standing_connection_fails_by_itself_among_others() {
    let Some(mut world) = Testbed::new(Family::V4) else { return };
    let (fd, mut stream) = talk(&mut world);
    let listening = OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
    let (pipe, _) = pair();
    let mut outcomes = dump_all(world.places[0].admin(), vec![listening, fd, pipe]).into_iter();
    let mut next = || outcomes.next().unwrap();
    assert!(matches!(next().unwrap_err().error, MigrateError::Over));
    let image = image(next().unwrap());
    assert!(matches!(next().unwrap_err().error, MigrateError::Kernel { .. }));
    let fd = restore(world.places[0].admin(), &image).unwrap();
    still_talks(&fd, &mut stream);
    // An image that the kernel does not take leaves nothing behind, and can be tried again.
    let image = dump(world.places[0].admin(), fd).unwrap();
    let mut bad = image.clone();
    bad.scales = Some((15, 15));
    let error = restore(world.places[0].admin(), &bad).unwrap_err();
    let doing = "set what the ends agreed on";
    assert!(matches!(error, MigrateError::Kernel { doing: at, .. } if at == doing), "{error}");
    // Windows that are ahead of what was received are put right: the kernel takes no others.
    let mut ahead = image;
    ahead.window.rcv_wup = ahead.rcv_nxt.wrapping_add(1);
    ahead.window.max_window = 0;
    let fd = restore(world.places[0].admin(), &ahead).unwrap();
    still_talks(&fd, &mut stream);
    assert_eq!(world.end().resets, 0);
}

#[test]
fn options_of_the_socket_travel() {
    let Some(mut world) = Testbed::new(Family::V6) else { return };
    let (fd, mut stream) = talk(&mut world);
    use rustix::net::sockopt as options;
    options::set_tcp_nodelay(&fd, true).unwrap();
    options::set_socket_keepalive(&fd, true).unwrap();
    options::set_tcp_keepidle(&fd, Duration::from_secs(77)).unwrap();
    options::set_tcp_congestion(&fd, "reno").unwrap();
    options::set_tcp_user_timeout(&fd, 12_345).unwrap();
    let snd_mss = sockopt::info(fd.as_fd()).unwrap().snd_mss;
    let image = dump(world.places[0].admin(), fd).unwrap();
    assert!(snd_mss > 1000, "{snd_mss}");
    let fd = restore(world.places[0].admin(), &image).unwrap();
    // Segments are as long as ever.
    assert_eq!(sockopt::info(fd.as_fd()).unwrap().snd_mss, snd_mss);
    assert!(options::tcp_nodelay(&fd).unwrap() && options::socket_keepalive(&fd).unwrap());
    assert_eq!(options::tcp_keepidle(&fd).unwrap(), Duration::from_secs(77));
    assert_eq!(options::tcp_congestion(&fd).unwrap(), "reno");
    assert_eq!(options::tcp_user_timeout(&fd).unwrap(), 12_345);
    still_talks(&fd, &mut stream);
}

/// MIP-7: on a segment that the bases share with their router, packets for the mobile go where it
/// was announced last.
#[test]
fn a_segment_follows_announcements() {
    let Some(mut world) = Testbed::new(Family::V4) else { return };
    let segment = |family: Family, last: &str| -> IpAddr {
        let text = family.pick("10.0.9.0", "fd00:9::").to_string();
        let text = text.trim_end_matches('0').to_owned();
        let text = if family == Family::V4 { text } else { "fd00:9::".into() };
        (text + last).parse().unwrap()
    };
    let both = |last: &str| [(segment(Family::V4, last), 24), (segment(Family::V6, last), 64)];
    let Testbed { router, places, .. } = &mut world;
    router.ip("link add br0 type bridge\n").unwrap();
    for (n, place) in places.iter_mut().enumerate() {
        router.veth(&format!("seg{n}"), &place.netns, "eth1").unwrap();
        router.ip(&format!("link set seg{n} master br0 up\n")).unwrap();
        place.netns.interface_up("eth1", &both(&format!("1{n}"))).unwrap();
        place.end_helper(true);
        let all = both("100").map(|(ip, _)| Network::from(ip));
        place.start_helper(&all);
        place.admin().guard(&all).unwrap();
    }
    router.interface_up("br0", &both("1")).unwrap();
    let routing = || Routing::new(RouteMode::Announce, Some("eth1".into()), Vec::new()).unwrap();
    let routings = [routing(), routing()];
    // Until the end: to close one resets it.
    let mut standing = Vec::new();
    for family in [Family::V4, Family::V6] {
        world.family = family;
        let mobile = segment(family, "100");
        let listener = world.listen();
        routings[0].gain(world.places[0].admin(), mobile, None).unwrap();
        let fd = world.places[0].admin().socket(SocketAddr::new(mobile, 0)).unwrap();
        let _ = rustix::net::connect(&fd, &family.server());
        let mut stream = accept(&listener);
        wait_for(&fd, PollFlags::OUT);
        still_talks(&fd, &mut stream);
        let mut fd = fd;
        for (old, new) in [(0, 1), (1, 0), (0, 1)] {
            let image = dump(world.places[old].admin(), fd).unwrap();
            fd = restore(world.places[new].admin(), &image).unwrap();
            routings[new].gain(world.places[new].admin(), mobile, None).unwrap();
            let to = Some(segment(family, &format!("1{new}")));
            routings[old].lose(world.places[old].admin(), mobile, to).unwrap();
            world.places[old].admin().thaw(&[image.flow()]).unwrap();
            still_talks(&fd, &mut stream);
        }
        standing.push((fd, stream));
        let text = world.places[0].said("ip", "neigh show proxy dev eth1");
        assert!(!text.contains(&mobile.to_string()), "{text}");
    }
    assert_eq!(world.end().resets, 0);
}

/// What is answered for another's address needs forwarding on the interface, and no more.
#[test]
fn a_kernel_that_does_not_forward_answers_for_no_mobile_and_that_is_reported_before() {
    let Some(world) = Testbed::new(Family::V4) else { return };
    let Testbed { router, places, .. } = &world;
    let mobile: IpAddr = "10.0.2.99".parse().unwrap();
    let netns = &places[0].netns;
    let check = |interface: &str| {
        let check = || Routing::check(RouteMode::Announce, Some(interface), [mobile]);
        netns.enter(check).unwrap().map_err(|e| e.to_string())
    };
    // Not even the setting for all interfaces is needed.
    netns.sysctl("ipv4.ip_forward", "0").unwrap();
    netns.sysctl("ipv4.conf.eth0.proxy_arp", "0").unwrap();
    let refused = check("eth0").unwrap_err();
    assert!(refused.contains("net.ipv4.conf.eth0.forwarding to 1"), "{refused}");
    assert_eq!(check("eth7"), Ok(()), "it may come");
    netns.sysctl("ipv4.conf.eth0.forwarding", "1").unwrap();
    assert_eq!(check("eth0"), Ok(()));

    let found = |netns: &Netns| {
        let socket = netns.enter(|| std::net::UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
        let start = Instant::now();
        loop {
            let _ = socket.send_to(b"?", SocketAddr::new(mobile, 9));
            let shown = netns.command("ip").args(["neigh", "show", "10.0.2.99"]).output().unwrap();
            let shown = String::from_utf8(shown.stdout).unwrap();
            match shown {
                _ if shown.contains("lladdr") => return true,
                _ if shown.contains("FAILED") => return false,
                _ => assert!(start.elapsed() < PATIENCE, "undecided: {shown}"),
            }
            thread::sleep(Duration::from_millis(20));
        }
    };
    // What the helper does, but for the announcements, which say it unasked.
    netns.sysctl("ipv4.neigh.eth0.proxy_delay", "0").unwrap();
    netns.ip("neigh add proxy 10.0.2.99 dev eth0\nroute add 10.0.2.99/32 dev lo\n").unwrap();
    assert!(found(router), "nobody answers for the mobile");
    netns.sysctl("ipv4.conf.eth0.forwarding", "0").unwrap();
    router.ip("neigh flush dev to2\n").unwrap();
    assert!(!found(router), "the check asks for what is not needed");
}

/// MHP-22: what still comes to the old base is sent on to the new one.
#[test]
fn the_old_base_passes_on_what_still_comes_to_it() {
    for family in [Family::V4, Family::V6] {
        let Some(mut world) = Testbed::new(family) else { return };
        let (fd, mut stream) = talk(&mut world);
        // The bases are neighbours, and the router knows nothing of the move.
        let [one, two] = &world.places;
        one.netns.veth("next", &two.netns, "next").unwrap();
        let prefix = |last: &str| {
            [
                (format!("10.0.8.{last}").parse().unwrap(), 24),
                (format!("fd00:8::{last}").parse().unwrap(), 64),
            ]
        };
        one.netns.interface_up("next", &prefix("1")).unwrap();
        two.netns.interface_up("next", &prefix("2")).unwrap();
        let image = dump(world.places[0].admin(), fd).unwrap();
        let fd = restore(world.places[1].admin(), &image).unwrap();
        let routing = Routing::new(RouteMode::Route, None, Vec::new()).unwrap();
        let to = Some(family.pick("10.0.8.2", "fd00:8::2"));
        let none = routing.lose(world.places[0].admin(), family.mobile(), None).unwrap_err();
        assert!(none.to_string().contains("`via`"), "{none}");
        routing.lose(world.places[0].admin(), family.mobile(), to).unwrap();
        world.places[0].admin().thaw(&[image.flow()]).unwrap();
        still_talks(&fd, &mut stream);
        let image = dump(world.places[1].admin(), fd).unwrap();
        let fd = restore(world.places[0].admin(), &image).unwrap();
        routing.gain(world.places[0].admin(), family.mobile(), None).unwrap();
        still_talks(&fd, &mut stream);
        assert_eq!(world.end().resets, 0);
    }
}

#[test]
fn a_helper_at_a_path_serves_who_connects() {
    let missing = Admin::connect(Path::new("/nonexistent/helper.sock")).unwrap_err().to_string();
    assert!(missing.contains("lasthop helper --socket /nonexistent/helper.sock"), "{missing}");
    let Some(served) = Served::start("helper") else { return };
    let path = served.path();
    wait_until(|| path.exists());
    wait_until(|| Admin::connect(&path).is_ok());
    let mut admins: Vec<Admin> = (0..16).map(|_| Admin::connect(&path).unwrap()).collect();
    for admin in &mut admins {
        probe(admin, v4()).unwrap();
    }
    let error = Admin::connect(&path).unwrap_err().to_string();
    assert!(error.contains("served already"), "{error}");
    drop(admins);
    served.end();
}
