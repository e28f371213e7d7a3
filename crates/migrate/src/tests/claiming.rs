//! Connections whose base has died: another takes them over by a ticket, the mobile's word, and the fixed host's answer.

use std::sync::Arc;

use lasthop_kernel::nft;
use lasthop_kernel::sockopt::{self, Queue, Repair};

use lasthop_session::acknowledge::Control;

use super::*;

/// So long a fixed host is asked.
const ASKING: Duration = Duration::from_secs(20);

/// Tickets of connections at the first base that have carried nothing.
fn tickets(world: &mut Testbed, fds: &[OwnedFd]) -> Vec<Ticket> {
    let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    let admin = world.places[0].admin();
    admin.repair(&borrowed, Repair::On).unwrap().into_iter().for_each(|done| done.unwrap());
    let number = |fd: &OwnedFd, queue| {
        sockopt::select_queue(fd.as_fd(), queue).unwrap();
        sockopt::queue_seq(fd.as_fd()).unwrap()
    };
    let first = |fd: &OwnedFd| loop {
        let (sent, received) = (number(fd, Queue::Send), number(fd, Queue::Receive));
        // What a server has said at once is there, and more may be coming.
        let mut polled = [PollFd::new(fd, PollFlags::RDHUP)];
        let ended = rustix::event::poll(&mut polled, Some(&Timespec::default())).unwrap() as u32;
        let said = ended + sockopt::unread(fd.as_fd()).unwrap();
        if number(fd, Queue::Receive) == received {
            return (sent, received.wrapping_sub(said));
        }
    };
    let first: Vec<(u32, u32)> = fds.iter().map(first).collect();
    admin
        .repair(&borrowed, Repair::OffSilently)
        .unwrap()
        .into_iter()
        .for_each(|done| done.unwrap());
    fds.iter()
        .zip(first)
        .map(|(fd, (sent, received))| {
            let clock = sockopt::timestamp(fd.as_fd()).unwrap();
            let flow = Flow::of(fd).unwrap();
            let ticket = Ticket::of(fd, flow, sent, received, clock).unwrap();
            Ticket::decode(&ticket.encode()).unwrap()
        })
        .collect()
}

/// A connection at the first base, and what it has carried, as its mobile knows it.
struct Carried {
    fd: OwnedFd,
    ticket: Ticket,
    written: Vec<u8>,
    read: Vec<u8>,
    sent_end: bool,
    received_end: bool,
}

impl Carried {
    fn new(world: &mut Testbed) -> Self {
        let fd = world.connect();
        rustix::net::sockopt::set_tcp_nodelay(&fd, true).unwrap();
        let ticket = tickets(world, std::slice::from_ref(&fd)).remove(0);
        let (written, read) = (Vec::new(), Vec::new());
        Self { fd, ticket, written, read, sent_end: false, received_end: false }
    }

    fn write(&mut self, bytes: &[u8]) {
        write_all(&self.fd, bytes);
        self.written.extend_from_slice(bytes);
    }

    fn shut(&mut self) {
        shut(&self.fd);
        self.sent_end = true;
    }

    fn read(&mut self, length: usize) {
        while self.read.len() < length {
            wait_for(&self.fd, PollFlags::IN);
            read_some(&self.fd, &mut self.read).unwrap();
        }
    }

    /// The base dies, and packets for the mobile come to the other. The mobile has what the base's kernel has acknowledged,
    /// and keeps what it knows nothing of, and some more.
    fn lose_base(&mut self, world: &mut Testbed) -> Claim {
        die(world);
        while !self.received_end {
            match read_some(&self.fd, &mut self.read) {
                Some(0) => break,
                Some(_) => {}
                None => self.received_end = true,
            }
        }
        let sent = self.written.len() as u64;
        let unknown = u64::from(sockopt::unacknowledged(self.fd.as_fd()).unwrap());
        Claim {
            ticket: self.ticket.clone(),
            received: self.read.len() as u64,
            received_end: self.received_end,
            kept: sent.saturating_sub(unknown + 1000),
            sent,
            sent_end: self.sent_end,
        }
    }
}

/// Nothing leaves the first base any more, and nothing comes to it.
fn die(world: &mut Testbed) {
    world.places[0].netns.ip("link set dev eth0 down\n").unwrap();
    world.lead_to(1);
}

fn claim_for(
    world: &Testbed,
    claims: &[Claim],
    patience: Duration,
) -> Vec<Result<Claimed, ClaimError>> {
    world.places[1].netns.enter(|| claim_all(claims, patience)).unwrap()
}

fn claim(world: &Testbed, claim: &Claim) -> Result<Claimed, ClaimError> {
    let start = Instant::now();
    let outcome = claim_for(world, std::slice::from_ref(claim), ASKING).remove(0);
    eprintln!("one connection is claimed in {:?}", start.elapsed());
    outcome
}

/// The second base has the connection. What its kernel acknowledges is not held.
fn take_over(world: &mut Testbed, claimed: &Claimed) -> (OwnedFd, HeldFlow) {
    let image = Image::decode(&claimed.image.encode()).unwrap();
    let place = &mut world.places[1];
    let slots = place.admin().slots().unwrap();
    let holding = Arc::new(place.netns.enter(|| Holding::new(slots)).unwrap().unwrap());
    let slot = place.admin().hold(image.flow()).unwrap();
    let held = holding.resume(&image, image.held().unwrap(), slot, |_| {});
    let (_, scale) = image.scales.unwrap_or_default();
    held.set_control(Control { hold: false, may_end: true, ..HeldFlow::resumed(scale) });
    (restore(place.admin(), &image).unwrap(), held)
}

/// Bytes go on both ways over a connection that was taken over, to the end of each.
fn goes_on(
    world: Testbed,
    fd: &OwnedFd,
    server: JoinHandle<(Vec<u8>, usize)>,
    carried: &Carried,
    from: u64,
    down: &[u8],
) {
    let more = pattern(300_000, 9);
    let mut got = carried.read.clone();
    let up = [&carried.written[..], &more].concat();
    let mut written = from as usize;
    let start = Instant::now();
    let mut ended = false;
    while written < up.len() || !ended {
        assert!(start.elapsed() < PATIENCE, "{} read, {written} written", got.len());
        if written < up.len() {
            written += write_some(fd, &up[written..]);
            if written == up.len() {
                shut(fd);
            }
        }
        ended = ended || read_some(fd, &mut got).is_none();
        let out = if written < up.len() { PollFlags::OUT } else { PollFlags::empty() };
        if !ended {
            wait_for(fd, PollFlags::IN | out);
        } else if !out.is_empty() {
            wait_for(fd, out);
        }
    }
    same(&got, down);
    let (heard, _) = server.join().unwrap();
    same(&heard, &up);
    let seen = world.end();
    assert_eq!((seen.syns, seen.resets), (1, 0), "{seen:?}");
}

/// A server that writes all of it and reads to the end, at the same time.
fn serve(listener: TcpListener, down: Vec<u8>) -> JoinHandle<(Vec<u8>, usize)> {
    thread::spawn(move || {
        let stream = accept(&listener);
        let mut reading = stream.try_clone().unwrap();
        let reader = thread::spawn(move || {
            let mut got = Vec::new();
            reading.read_to_end(&mut got).unwrap();
            got
        });
        (&stream).write_all(&down).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        (reader.join().unwrap(), down.len())
    })
}

/// A base dies with a download in full flight, and so many bytes of the mobile's that never left it.
fn survives(family: Family, lost: usize, prepare: impl Fn(&Testbed)) {
    let Some(mut world) = Testbed::new(family) else { return };
    prepare(&world);
    let down = pattern(16 << 20, 1);
    let server = serve(world.listen(), down.clone());
    let mut carried = Carried::new(&mut world);
    let flow = carried.ticket.flow();
    carried.write(&pattern(100_000, 2));
    carried.read(2 << 20);
    wait_until(|| sockopt::unacknowledged(carried.fd.as_fd()).unwrap() == 0);
    if lost > 0 {
        world.places[0].admin().freeze(&[flow]).unwrap();
        carried.write(&pattern(lost, 3));
    }
    let claimable = carried.lose_base(&mut world);
    assert!(claimable.received < down.len() as u64, "nothing was under way");
    let claimed = claim(&world, &claimable).unwrap();
    assert_eq!((claimed.up, claimed.up_end), (100_000, false));
    assert_eq!(claimed.image.flow(), flow);
    let (fd, _held) = take_over(&mut world, &claimed);
    goes_on(world, &fd, server, &carried, claimed.up, &down);
}

#[test]
fn a_connection_survives_its_base() {
    survives(Family::V4, 0, |_| {});
}

#[test]
fn what_the_dead_base_did_not_send_the_mobile_sends_again() {
    survives(Family::V4, 30_000, |_| {});
}

#[test]
fn over_ipv6_a_connection_survives_alike() {
    survives(Family::V6, 0, |_| {});
    survives(Family::V6, 30_000, |_| {});
}

#[test]
fn without_timestamps_a_connection_survives_alike() {
    survives(Family::V4, 30_000, |world| world.server.sysctl("ipv4.tcp_timestamps", "0").unwrap());
}

#[test]
fn without_any_option_a_connection_survives_alike() {
    for (family, lost) in [(Family::V4, 0), (Family::V6, 10_000)] {
        survives(family, lost, |world| {
            for option in ["timestamps", "sack", "window_scaling"] {
                world.server.sysctl(&format!("ipv4.tcp_{option}"), "0").unwrap();
            }
        });
    }
}

/// The mobile has nothing to lose, and its first byte is still to come.
#[test]
fn a_mobile_that_has_sent_nothing_is_asked_for_alike() {
    for (family, timestamps) in [(Family::V4, "1"), (Family::V6, "1"), (Family::V4, "0")] {
        let Some(mut world) = Testbed::new(family) else { return };
        world.server.sysctl("ipv4.tcp_timestamps", timestamps).unwrap();
        let down = pattern(4 << 20, 1);
        let server = serve(world.listen(), down.clone());
        let mut carried = Carried::new(&mut world);
        carried.read(1 << 20);
        let claimable = carried.lose_base(&mut world);
        assert_eq!((claimable.kept, claimable.sent), (0, 0));
        let claimed = claim(&world, &claimable).unwrap();
        assert_eq!(claimed.up, 0);
        let (fd, _held) = take_over(&mut world, &claimed);
        goes_on(world, &fd, server, &carried, 0, &down);
    }
}

/// ACK-11: the fixed host holds bytes of the mobile's behind some that were lost, and acknowledges them as soon as those come,
/// before they are sent again.
#[test]
fn what_the_fixed_host_holds_behind_a_hole_it_may_acknowledge_at_any_time() {
    let Some(mut world) = Testbed::new(Family::V4) else { return };
    let down = pattern(1000, 1);
    let server = serve(world.listen(), down.clone());
    let mut carried = Carried::new(&mut world);
    carried.read(down.len());
    carried.write(&pattern(10_000, 2));
    wait_until(|| sockopt::unacknowledged(carried.fd.as_fd()).unwrap() == 0);
    let rules = "table ip hole { chain forwarded { type filter hook forward priority 0; \
                 tcp dport 80 ip length > 1000 drop; }; }\n";
    world.router.enter(|| nft::apply(rules)).unwrap().unwrap();
    carried.write(&pattern(4000, 3));
    carried.write(&pattern(300, 4));
    thread::sleep(ARRIVAL);
    world.places[0].admin().freeze(&[carried.ticket.flow()]).unwrap();
    carried.write(&pattern(200, 5));
    let claimable = carried.lose_base(&mut world);
    world.router.enter(|| nft::apply("delete table ip hole\n")).unwrap().unwrap();
    let claimed = claim(&world, &claimable).unwrap();
    assert_eq!(claimed.up, 10_000);
    let (fd, held) = take_over(&mut world, &claimed);
    write_all(&fd, &carried.written[10_000..14_000]);
    wait_until(|| held.seen().cut > 0);
    goes_on(world, &fd, server, &carried, 14_000, &down);
}

/// What the mobile has of the fixed host ends there, which is not said twice.
#[test]
fn an_end_that_was_received_stays_received() {
    for family in [Family::V4, Family::V6] {
        let Some(mut world) = Testbed::new(family) else { return };
        let down = pattern(40_000, 1);
        let server = serve(world.listen(), down.clone());
        let mut carried = Carried::new(&mut world);
        carried.read(down.len());
        wait_for(&carried.fd, PollFlags::RDHUP);
        carried.write(&pattern(5000, 2));
        wait_until(|| sockopt::unacknowledged(carried.fd.as_fd()).unwrap() == 0);
        let claimable = carried.lose_base(&mut world);
        assert!(claimable.received_end);
        let claimed = claim(&world, &claimable).unwrap();
        let up = claimed.up;
        assert_eq!(up, 5000);
        let (fd, _held) = take_over(&mut world, &claimed);
        goes_on(world, &fd, server, &carried, up, &down);
    }
}

/// The fixed host has the mobile's end, or not, and still has something to say.
#[test]
fn an_end_that_was_sent_arrives_once() {
    for (family, lost) in
        [(Family::V4, false), (Family::V4, true), (Family::V6, false), (Family::V6, true)]
    {
        let Some(mut world) = Testbed::new(family) else { return };
        let listener = world.listen();
        let mut carried = Carried::new(&mut world);
        let mut stream = accept(&listener);
        carried.write(b"please");
        wait_until(|| sockopt::unacknowledged(carried.fd.as_fd()).unwrap() == 0);
        if lost {
            world.places[0].admin().freeze(&[carried.ticket.flow()]).unwrap();
            carried.write(b", now");
        }
        carried.shut();
        let mut asked = Vec::new();
        if !lost {
            stream.read_to_end(&mut asked).unwrap();
            wait_until(|| sockopt::unacknowledged(carried.fd.as_fd()).unwrap() == 0);
        }
        let claimable = carried.lose_base(&mut world);
        let claimed = claim(&world, &claimable).unwrap();
        let (up, up_end) = (claimed.up, claimed.up_end);
        assert_eq!((up, up_end), (6, !lost));
        let (fd, _held) = take_over(&mut world, &claimed);
        if !up_end {
            write_all(&fd, &carried.written[up as usize..]);
            shut(&fd);
            stream.read_to_end(&mut asked).unwrap();
        }
        assert_eq!(asked, carried.written);
        stream.write_all(b"that was all").unwrap();
        drop(stream);
        assert_eq!(read_all(&fd), b"that was all");
        thread::sleep(ARRIVAL);
        drop(fd);
        let seen = world.end();
        assert_eq!((seen.syns, seen.resets), (1, 0), "{seen:?}");
    }
}

/// Both ends are sent, and the fixed host waits for who has not heard it (TIME-WAIT).
#[test]
fn a_connection_that_is_over_says_so_too() {
    let Some(mut world) = Testbed::new(Family::V4) else { return };
    let listener = world.listen();
    let mut carried = Carried::new(&mut world);
    drop(accept(&listener));
    wait_for(&carried.fd, PollFlags::RDHUP);
    carried.shut();
    wait_until(|| {
        !matches!(sockopt::info(carried.fd.as_fd()).unwrap().state, sockopt::SocketState::LastAck)
    });
    let mut claimable = carried.lose_base(&mut world);
    claimable.received_end = true;
    let claimed = claim(&world, &claimable).unwrap();
    assert_eq!((claimed.up, claimed.up_end), (0, true));
}

/// The fixed host's process died while there was no base.
#[test]
fn a_connection_that_the_fixed_host_has_reset_is_gone() {
    for (family, timestamps) in [(Family::V4, "1"), (Family::V4, "0"), (Family::V6, "1")] {
        let Some(mut world) = Testbed::new(family) else { return };
        world.server.sysctl("ipv4.tcp_timestamps", timestamps).unwrap();
        let listener = world.listen();
        let mut carried = Carried::new(&mut world);
        let mut stream = accept(&listener);
        stream.write_all(b"something").unwrap();
        carried.read(9);
        carried.write(b"unread");
        wait_until(|| sockopt::unacknowledged(carried.fd.as_fd()).unwrap() == 0);
        let claimable = carried.lose_base(&mut world);
        // A close alone would leave it to a process that is being started.
        rustix::net::connect_unspec(&stream).unwrap();
        assert_eq!(claim(&world, &claimable), Err(ClaimError::Gone));
    }
}

#[test]
fn who_does_not_answer_or_cannot_be_asked_is_told_apart() {
    let Some(mut world) = Testbed::new(Family::V4) else { return };
    let listener = world.listen();
    let mut carried = Carried::new(&mut world);
    let _stream = accept(&listener);
    carried.write(&pattern(5000, 2));
    wait_until(|| sockopt::unacknowledged(carried.fd.as_fd()).unwrap() == 0);
    let claimable = carried.lose_base(&mut world);
    let short = Duration::from_millis(100);
    let ask = |world: &Testbed, claim: &Claim| {
        claim_for(world, std::slice::from_ref(claim), short).remove(0)
    };
    let forgetful = Claim { sent: 4500, ..claimable.clone() };
    let beyond = ClaimError::Beyond { has: 5000, sent: 4500 };
    assert_eq!(ask(&world, &forgetful), Err(beyond));
    let wrong = Claim { kept: claimable.sent + 1, ..claimable.clone() };
    assert!(matches!(ask(&world, &wrong), Err(ClaimError::Wrong(_))));
    world.router.ip("link set dev to1 down\n").unwrap();
    assert_eq!(ask(&world, &claimable), Err(ClaimError::Silent));
    world.places[1].netns.ip("route del default\n").unwrap();
    assert!(matches!(ask(&world, &claimable), Err(ClaimError::NotAsked { .. })));
}

#[test]
fn who_does_not_answer_does_not_hold_up_the_others() {
    let Some(mut world) = Testbed::new(Family::V4) else { return };
    let listener = world.listen();
    let [mut answers, mut silent] = [Carried::new(&mut world), Carried::new(&mut world)];
    let _streams = [accept(&listener), accept(&listener)];
    for carried in [&mut answers, &mut silent] {
        carried.write(b"heard");
        wait_until(|| sockopt::unacknowledged(carried.fd.as_fd()).unwrap() == 0);
    }
    let claims = [&mut answers, &mut silent].map(|carried| carried.lose_base(&mut world));
    // A mobile that has sent less than the fixed host has, which is waited for like one that does not answer.
    let [answers, silent] = claims.map(|claim| Claim { kept: 0, ..claim });
    let silent = Claim { sent: 4, ..silent };
    let start = Instant::now();
    let outcomes = claim_for(&world, &[answers, silent], ASKING);
    assert!(matches!(&outcomes[..], [Ok(_), Err(ClaimError::Beyond { has: 5, sent: 4 })]));
    assert!(start.elapsed() < ASKING);
}

/// Measured, and printed; how long it takes is not asserted.
#[test]
fn a_thousand_connections_are_taken_over_together() {
    let Some(mut world) = Testbed::new(Family::V4) else { return };
    let listener = world.listen();
    let server =
        thread::spawn(move || -> Vec<TcpStream> { (0..1000).map(|_| accept(&listener)).collect() });
    let fds: Vec<OwnedFd> = (0..1000).map(|_| world.connect()).collect();
    let tickets = tickets(&mut world, &fds);
    for (i, fd) in fds.iter().enumerate() {
        write_all(fd, &(i as u32).to_be_bytes());
    }
    let mut streams = server.join().unwrap();
    for stream in &mut streams {
        let mut asked = [0; 4];
        stream.read_exact(&mut asked).unwrap();
    }
    wait_until(|| fds.iter().all(|fd| sockopt::unacknowledged(fd.as_fd()).unwrap() == 0));
    die(&mut world);
    let claims: Vec<Claim> = tickets
        .into_iter()
        .map(|ticket| Claim {
            ticket,
            received: 0,
            received_end: false,
            kept: 0,
            sent: 4,
            sent_end: false,
        })
        .collect();
    let start = Instant::now();
    let claimed = claim_for(&world, &claims, ASKING);
    let asked = start.elapsed();
    let images: Vec<Image> = claimed
        .into_iter()
        .map(|claimed| {
            let claimed = claimed.unwrap();
            assert_eq!(claimed.up, 4);
            claimed.image
        })
        .collect();
    let start = Instant::now();
    let restored: Vec<OwnedFd> =
        restore_all(world.places[1].admin(), &images).into_iter().map(|fd| fd.unwrap()).collect();
    eprintln!("1000 connections: claimed in {asked:?}, restored in {:?}", start.elapsed());
    let ports: std::collections::BTreeMap<u16, usize> =
        images.iter().enumerate().map(|(i, image)| (image.flow().local.port(), i)).collect();
    for mut stream in streams {
        let i = ports[&stream.peer_addr().unwrap().port()];
        write_all(&restored[i], &(i as u32).to_be_bytes());
        let mut asked = [0; 4];
        stream.read_exact(&mut asked).unwrap();
        assert_eq!(u32::from_be_bytes(asked), i as u32);
        stream.write_all(&asked).unwrap();
        drop(stream);
        assert_eq!(read_all(&restored[i]), asked);
    }
    // Whoever does not end what was taken over resets it.
    restored.iter().for_each(shut);
    drop(restored);
    let seen = world.end();
    assert_eq!((seen.syns, seen.resets), (1000, 0), "{seen:?}");
}
