//! Connections that move while they carry bytes.

use lasthop_kernel::sockopt;

use super::*;

const LENGTH: usize = 20 << 20;

/// A download and an upload at once over one connection, which changes base `times` times.
fn both_ways(family: Family, times: usize, prepare: impl Fn(&Testbed)) {
    let Some(mut world) = Testbed::new(family) else { return };
    prepare(&world);
    let (down, up) = (pattern(LENGTH, 1), pattern(LENGTH, 2));
    let listener = world.listen();
    let (sent, expected) = (down.clone(), up.clone());
    let server = thread::spawn(move || {
        let stream = accept(&listener);
        let peer = stream.peer_addr().unwrap();
        let mut reading = stream.try_clone().unwrap();
        let reader = thread::spawn(move || {
            let mut got = Vec::new();
            reading.read_to_end(&mut got).unwrap();
            same(&got, &expected);
        });
        (&stream).write_all(&sent).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        reader.join().unwrap();
        peer
    });
    let mut fd = world.connect();
    let flow = Flow::of(&fd).unwrap();
    let (mut got, mut written, mut ended) = (Vec::new(), 0, false);
    let mut moved = 0;
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE, "{} read, {written} written", got.len());
        let mut progress = 0;
        if written < up.len() {
            let n = write_some(&fd, &up[written..]);
            written += n;
            progress += n;
            if written == up.len() {
                shut(&fd);
            }
        }
        if !ended {
            match read_some(&fd, &mut got) {
                Some(n) => progress += n,
                None => ended = true,
            }
        }
        if ended && written == up.len() {
            break;
        }
        if got.len() + written > (moved + 1) * 2 * LENGTH / (times + 1) {
            moved += 1;
            // Towards the end the kernels may be done, and only bytes left to be read here.
            if written == up.len() && is_over(&fd) {
                got.extend(world.rest_of(fd));
                break;
            }
            fd = world.hand_over_one(fd);
            // It may be over as soon as it is here: the peer's last bytes and its end were waiting.
            match Flow::of(&fd) {
                Ok(now) => assert_eq!(now, flow),
                Err(e) => assert!(is_over(&fd), "{e}"),
            }
        } else if progress == 0 {
            let out = if written < up.len() { PollFlags::OUT } else { PollFlags::empty() };
            let flags = if ended { out } else { out | PollFlags::IN };
            wait_for(&fd, flags);
        }
    }
    assert_eq!(moved, times);
    same(&got, &down);
    assert_eq!(server.join().unwrap(), flow.local);
    let seen = world.end();
    assert_eq!((seen.syns, seen.resets), (1, 0), "{seen:?}");
}

/// Whether both ends are sent and acknowledged. A connection that has moved does not know that its
/// peer's was received but by its reader.
fn is_over(fd: &OwnedFd) -> bool {
    use sockopt::SocketState;
    let mut polled = [PollFd::new(fd, PollFlags::RDHUP)];
    rustix::event::poll(&mut polled, Some(&Timespec::default())).unwrap();
    match sockopt::info(fd.as_fd()).unwrap().state {
        SocketState::FinWait2 => polled[0].revents().contains(PollFlags::RDHUP),
        state => matches!(state, SocketState::Other(_)),
    }
}

/// MIP-7: after each handoff the packets for the mobile come to the new base, and the fixed host
/// sees the address that it always saw.
#[test]
fn twenty_megabytes_each_way_survive_four_moves() {
    both_ways(Family::V4, 4, |_| {});
}

#[test]
fn ipv6_moves_alike() {
    both_ways(Family::V6, 4, |_| {});
}

#[test]
fn without_timestamps_a_connection_moves_alike() {
    both_ways(Family::V4, 3, |world| {
        world.server.sysctl("ipv4.tcp_timestamps", "0").unwrap();
    });
}

#[test]
fn without_any_option_a_connection_moves_alike() {
    both_ways(Family::V6, 3, |world| {
        for option in ["timestamps", "sack", "window_scaling"] {
            world.server.sysctl(&format!("ipv4.tcp_{option}"), "0").unwrap();
        }
    });
}

/// Our end is sent, and perhaps acknowledged, before the move; the download goes on behind it.
#[test]
fn an_end_that_was_sent_stays_sent_and_the_other_direction_goes_on() {
    for family in [Family::V4, Family::V6] {
        let Some(mut world) = Testbed::new(family) else { return };
        let listener = world.listen();
        let body = pattern(1 << 20, 3);
        let sent = body.clone();
        let server = thread::spawn(move || {
            let mut stream = accept(&listener);
            let mut asked = Vec::new();
            stream.read_to_end(&mut asked).unwrap();
            stream.write_all(&sent).unwrap();
            (asked, stream)
        });
        let fd = world.connect();
        write_all(&fd, b"please");
        shut(&fd);
        wait_for(&fd, PollFlags::IN);
        let fd = world.hand_over_one(fd);
        hears(&fd, &body);
        let (asked, mut stream) = server.join().unwrap();
        assert_eq!(asked, b"please");
        let fd = world.hand_over_one(fd);
        stream.write_all(b"that was all").unwrap();
        drop(stream);
        assert_eq!(read_all(&fd), b"that was all");
        wait_until(|| is_over(&fd));
        assert!(world.rest_of(fd).is_empty());
        let seen = world.end();
        assert_eq!((seen.syns, seen.resets), (1, 0), "{seen:?}");
    }
}

/// Our end was called while nothing could leave: it goes out at the new base, behind every byte.
#[test]
fn an_end_that_never_left_is_sent_at_the_new_base() {
    let Some(mut world) = Testbed::new(Family::V4) else { return };
    let listener = world.listen();
    let fd = world.connect();
    let mut stream = accept(&listener);
    let flow = Flow::of(&fd).unwrap();
    world.places[0].admin().freeze(&[flow]).unwrap();
    write_all(&fd, b"last words");
    shut(&fd);
    let fd = world.hand_over_one(fd);
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"last words");
    stream.write_all(b"and mine").unwrap();
    drop(stream);
    assert_eq!(read_all(&fd), b"and mine");
    let seen = world.end();
    assert_eq!(seen.resets, 0, "{seen:?}");
}

/// The peer's end is there, with bytes before it that nobody has read; ours is sent later.
#[test]
fn an_end_that_was_received_is_read_behind_the_bytes_before_it() {
    for family in [Family::V4, Family::V6] {
        let Some(mut world) = Testbed::new(family) else { return };
        let listener = world.listen();
        let fd = world.connect();
        let mut stream = accept(&listener);
        let body = pattern(40_000, 4);
        stream.write_all(&body).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        wait_until(|| sockopt::unread(fd.as_fd()).unwrap() == 40_000);
        wait_for(&fd, PollFlags::RDHUP);
        let fd = world.hand_over_one(fd);
        same(&read_all(&fd), &body);
        let fd = world.hand_over_one(fd);
        assert_eq!(read_all(&fd), b"");
        let up = pattern(1 << 20, 5);
        let reader = thread::spawn(move || {
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            got
        });
        write_all(&fd, &up[..500_000]);
        let fd = world.hand_over_one(fd);
        write_all(&fd, &up[500_000..]);
        shut(&fd);
        same(&reader.join().unwrap(), &up);
        let seen = world.end();
        assert_eq!((seen.syns, seen.resets), (1, 0), "{seen:?}");
    }
}

/// Both ends are sent and acknowledged, and nobody has read what came: only that is left, and no
/// socket is needed for it.
#[test]
fn what_is_left_to_read_of_a_connection_that_is_over_comes_as_bytes() {
    let Some(mut world) = Testbed::new(Family::V6) else { return };
    let listener = world.listen();
    let fd = world.connect();
    let mut stream = accept(&listener);
    let body = pattern(60_000, 8);
    shut(&fd);
    stream.read_to_end(&mut Vec::new()).unwrap();
    stream.write_all(&body).unwrap();
    drop(stream);
    wait_until(|| {
        matches!(sockopt::info(fd.as_fd()).unwrap().state, sockopt::SocketState::Other(_))
    });
    let mut got = Vec::new();
    read_some(&fd, &mut got);
    got.extend(world.rest_of(fd));
    same(&got, &body);
    let seen = world.end();
    assert_eq!((seen.syns, seen.resets), (1, 0), "{seen:?}");
}

/// Both ends are sent, neither is acknowledged when the connection moves.
#[test]
fn both_ends_may_be_under_way() {
    let Some(mut world) = Testbed::new(Family::V4) else { return };
    let listener = world.listen();
    let fd = world.connect();
    let mut stream = accept(&listener);
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    wait_for(&fd, PollFlags::RDHUP);
    let flow = Flow::of(&fd).unwrap();
    world.places[0].admin().freeze(&[flow]).unwrap();
    write_all(&fd, b"bye");
    shut(&fd);
    let fd = world.hand_over_one(fd);
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"bye");
    assert_eq!(read_all(&fd), b"");
    let seen = world.end();
    assert_eq!(seen.resets, 0, "{seen:?}");
}

/// The server reads nothing: its window is shut, and most of what was written was never sent.
#[test]
fn a_shut_window_and_what_was_not_sent_move_too() {
    for family in [Family::V4, Family::V6] {
        let Some(mut world) = Testbed::new(family) else { return };
        let listener = world.listen();
        let mut fd = world.connect();
        let mut stream = accept(&listener);
        let bytes = pattern(32 << 20, 6);
        let mut written = 0;
        let mut idle = 0;
        while idle < 20 {
            let n = write_some(&fd, &bytes[written..]);
            written += n;
            idle = if n == 0 { idle + 1 } else { 0 };
            thread::sleep(Duration::from_millis(10));
        }
        let (sent, unsent) = (sockopt::unacknowledged(fd.as_fd()), sockopt::unsent(fd.as_fd()));
        assert!(unsent.unwrap() > 0 && sent.unwrap() > 0);
        for _ in 0..2 {
            fd = world.hand_over_one(fd);
        }
        let mut got = vec![0; written];
        let reader = thread::spawn(move || {
            stream.read_exact(&mut got).unwrap();
            (got, stream)
        });
        let (got, mut stream) = reader.join().unwrap();
        same(&got, &bytes[..written]);
        write_all(&fd, b"more");
        shut(&fd);
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"more");
        let seen = world.end();
        assert_eq!((seen.syns, seen.resets), (1, 0), "{seen:?}");
    }
}

/// We read nothing: what the server sent stands in our receive queue, and our window is shut.
#[test]
fn a_full_receive_queue_moves_too() {
    let Some(mut world) = Testbed::new(Family::V4) else { return };
    let listener = world.listen();
    let body = pattern(16 << 20, 7);
    let sent = body.clone();
    let server = thread::spawn(move || accept(&listener).write_all(&sent).unwrap());
    let mut fd = world.connect();
    let unread = |fd: &OwnedFd| sockopt::unread(fd.as_fd()).unwrap();
    let mut last = 0;
    wait_until(|| {
        thread::sleep(Duration::from_millis(100));
        let before = std::mem::replace(&mut last, unread(&fd));
        before == last && last > 0
    });
    fd = world.hand_over_one(fd);
    fd = world.hand_over_one(fd);
    assert!(unread(&fd) >= last);
    same(&read_all(&fd), &body);
    server.join().unwrap();
    let seen = world.end();
    assert_eq!((seen.syns, seen.resets), (1, 0), "{seen:?}");
}

/// A reader that was fast has taught the kernel to hold much; once it stalls, that must still fit an
/// image.
#[test]
fn what_nobody_reads_stays_short_enough_to_move() {
    let Some(mut world) = Testbed::new(Family::V4) else { return };
    let listener = world.listen();
    let server = thread::spawn(move || {
        let stream = accept(&listener);
        let block = pattern(1 << 20, 3);
        while (&stream).write_all(&block).is_ok() {}
    });
    let mut fd = world.connect();
    for _ in 0..2 {
        let mut got = Vec::new();
        while got.len() < 4 * LENGTH {
            wait_for(&fd, PollFlags::IN);
            read_some(&fd, &mut got).unwrap();
        }
        thread::sleep(Duration::from_millis(300));
        let unread = sockopt::unread(fd.as_fd()).unwrap();
        assert!(unread <= 2 << 20, "{unread} bytes are held");
        fd = world.hand_over_one(fd);
    }
    lasthop_kernel::tcp::abort_on_close(fd.as_fd());
    drop(fd);
    server.join().unwrap();
    world.end();
}

/// Marks of urgent data, at which each look into the queue stops, and bytes on both sides.
#[test]
fn urgent_data_that_nobody_has_read_move_in_line() {
    use rustix::net::{SendFlags, send};
    let pieces = [("abc", false), ("!", true), ("def", false), ("??", true), ("g", false)];
    for family in [Family::V4, Family::V6] {
        let Some(mut world) = Testbed::new(family) else { return };
        let listener = world.listen();
        let mut fd = world.connect();
        let stream = accept(&listener);
        let speak = |fd: &OwnedFd| {
            for (piece, urgent) in pieces {
                let flags = if urgent { SendFlags::OOB } else { SendFlags::empty() };
                assert_eq!(send(&stream, piece.as_bytes(), flags), Ok(piece.len()));
            }
            wait_until(|| sockopt::unread(fd.as_fd()).unwrap() == 10);
        };
        for _ in 0..2 {
            speak(&fd);
            fd = world.hand_over_one(fd);
            hears(&fd, b"abc!def??g");
        }
        // Once more with both ends sent and acknowledged.
        shut(&fd);
        speak(&fd);
        drop(stream);
        wait_until(|| {
            matches!(sockopt::info(fd.as_fd()).unwrap().state, sockopt::SocketState::Other(_))
        });
        assert_eq!(world.rest_of(fd), b"abc!def??g");
        assert_eq!(world.end().resets, 0);
    }
}

/// What was read out goes on where it was, if nobody takes it.
#[test]
fn a_connection_comes_back_to_the_base_that_gave_it_away() {
    let Some(mut world) = Testbed::new(Family::V4) else { return };
    let listener = world.listen();
    let fd = world.connect();
    let mut stream = accept(&listener);
    let image = dump(world.places[0].admin(), fd).unwrap();
    stream.write_all(b"while it was nowhere").unwrap();
    let fd = restore(world.places[0].admin(), &image).unwrap();
    drop(stream);
    assert_eq!(read_all(&fd), b"while it was nowhere");
    assert_eq!(world.end().resets, 0);
}

/// Measured, and printed; how long it takes is not asserted.
#[test]
fn a_thousand_connections_move_together() {
    let Some(mut world) = Testbed::new(Family::V4) else { return };
    let listener = world.listen();
    let server = thread::spawn(move || {
        let mut streams = Vec::new();
        for _ in 0..1000 {
            streams.push(accept(&listener));
        }
        streams
    });
    let fds: Vec<OwnedFd> = (0..1000).map(|_| world.connect()).collect();
    let streams = server.join().unwrap();
    let start = Instant::now();
    let images: Vec<Image> = dump_all(world.places[0].admin(), fds)
        .into_iter()
        .map(|outcome| image(outcome.unwrap_or_else(|failed| panic!("{}", failed.error))))
        .collect();
    let dumped = start.elapsed();
    let start = Instant::now();
    let fds: Vec<OwnedFd> =
        restore_all(world.places[1].admin(), &images).into_iter().map(|fd| fd.unwrap()).collect();
    let restored = start.elapsed();
    let bytes: usize = images.iter().map(|image| image.encode().len()).sum();
    eprintln!("1000 connections, {bytes} bytes: dump {dumped:?}, restore {restored:?}");
    world.lead_to(1);
    let ports: std::collections::BTreeMap<u16, usize> =
        fds.iter().enumerate().map(|(i, fd)| (Flow::of(fd).unwrap().local.port(), i)).collect();
    for mut stream in streams {
        let i = ports[&stream.peer_addr().unwrap().port()];
        write_all(&fds[i], &(i as u32).to_be_bytes());
        let mut asked = [0; 4];
        stream.read_exact(&mut asked).unwrap();
        assert_eq!(u32::from_be_bytes(asked), i as u32);
        stream.write_all(&asked).unwrap();
        drop(stream);
        assert_eq!(read_all(&fds[i]), asked);
    }
    // Whoever does not end what has moved resets it.
    fds.iter().for_each(shut);
    drop(fds);
    let seen = world.end();
    assert_eq!((seen.syns, seen.resets), (1000, 0), "{seen:?}");
}
