//! Several paths under one association, with their keys and addresses.

use super::super::testbed::BY_NEXT_PATH;
use super::*;
use crate::path_id::PATHS_MAX;

const SECOND: PathId = PathId(1);

/// A mobile with two links, which has said something.
fn bonded() -> (Ends, StreamId) {
    let mut w = Ends::new(0.0, 1);
    w.mobile().set_base_address(Time::ZERO, SECOND, BASE);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"please").unwrap();
    w.run(Duration::from_secs(1));
    (w, id)
}

/// Sends so many bytes down, and checks them; by which of the mobile's addresses how many datagrams went.
fn download(w: &mut Ends, id: StreamId, size: usize) -> [usize; 2] {
    w.recorded.clear();
    let (mut sent, mut got) = (0, Vec::new());
    let byte = |n: usize| (n * 7 + n / 251) as u8;
    let until = w.now + Duration::from_secs(60);
    while got.len() < size {
        loop {
            let piece: Vec<u8> = (sent..size.min(sent + 16_384)).map(byte).collect();
            match w.association().write(id, &piece).unwrap() {
                0 => break,
                n => sent += n,
            }
        }
        w.run(Duration::from_millis(5));
        got.extend(read(w.mobile(), id));
        assert!(w.now < until, "{} of {size}", got.len());
    }
    assert!(got.iter().enumerate().all(|(n, b)| *b == byte(n)));
    let by = |path| {
        let is_there = |r: &&(Addr, Addr, Vec<u8>)| r.0 == BASE && r.1 / BY_NEXT_PATH == path;
        w.recorded.iter().filter(is_there).count()
    };
    [by(0), by(1)]
}

/// Whether a base has challenged an address that has not answered.
fn is_challenging(w: &mut Ends) -> bool {
    w.association().link().unwrap().check_at().is_some()
}

/// SRP-38: a path is there when something authentic comes by it. The base challenges the mobile's address there, and both
/// carry.
#[test]
fn a_second_path_is_challenged_and_carries() {
    let (mut w, id) = bonded();
    assert_eq!(w.association().peer_by(SECOND), Some(1 + BY_NEXT_PATH));
    assert!(!is_challenging(&mut w));
    let challenges = |w: &Ends| {
        let to_second = w.recorded.iter().filter(|r| r.1 == 1 + BY_NEXT_PATH);
        to_second.filter(|r| r.2[0] == 0x17 && r.2[1] == SECOND.0).count()
    };
    assert_eq!(challenges(&w), 1);
    let by = download(&mut w, id, 3_000_000);
    assert!(by.iter().all(|n| *n > 500), "{by:?}");
    assert_eq!(w.base.stats().refused, 0);
    assert_eq!(w.mobile().refused(), 0);
    // The second link has another address now: it is challenged anew, and the first is where it was.
    w.dark = vec![PathId::FIRST];
    w.mobiles[0].0 = 2;
    let now = w.now;
    w.mobile().handle_roamed(now, SECOND);
    w.run(Duration::from_millis(30));
    assert_eq!(w.association().peer_by(SECOND), Some(2 + BY_NEXT_PATH));
    assert_eq!(w.association().peer(), Some(1));
    assert!(is_challenging(&mut w));
    w.run(Duration::from_millis(50));
    assert!(!is_challenging(&mut w));
}

/// SRP-38: what two paths carry goes on when keys are renewed, again and again; each path's numbers do too.
#[test]
fn keys_are_renewed_for_all_paths() {
    let (mut w, id) = bonded();
    let mut names = Vec::new();
    for _ in 0..6 {
        let by = download(&mut w, id, 1_000_000);
        assert!(by.iter().all(|n| *n > 100), "{by:?}");
        let data = w.recorded.iter().filter(|r| r.1 == BASE && r.2[0] == 0x10);
        names.extend(data.map(|r| r.2[2..6].to_vec()));
        w.run(Duration::from_secs(50));
    }
    names.dedup();
    assert!(names.len() >= 3, "{names:?}");
    assert_eq!((w.base.stats().refused, w.mobile().refused()), (0, 0));
}

/// SRP-38, SEC-6: nothing is kept of a path on which nothing opens, and none has a name beyond those that there may be. What
/// was sent by one path does not open on another, nor twice.
#[test]
fn forged_paths_leave_nothing() {
    let (mut w, id) = bonded();
    download(&mut w, id, 100_000);
    w.mobile().write(id, b"more").unwrap();
    w.run(Duration::from_millis(100));
    let is_data = |r: &&(Addr, Addr, Vec<u8>)| r.1 == BASE && r.2[0] == 0x10;
    let data: Vec<_> = w.recorded.iter().filter(is_data).map(|r| r.2.clone()).collect();
    let before = (w.association().stats(), w.base.stats().refused);
    let (now, mut attempts) = (w.now, 0);
    for datagram in &data {
        for path in 0..=255 {
            let mut forged = datagram.clone();
            forged[1] = path;
            w.base.handle_datagram(now, 77, &mut forged);
            attempts += 1;
        }
    }
    assert!(attempts > 1000);
    assert_eq!((w.association().stats(), w.base.stats().refused), (before.0, before.1 + attempts));
    for path in 2..=255 {
        assert_eq!(w.association().peer_by(PathId(path)), None);
    }
    w.mobile().set_base_address(now, PathId(PATHS_MAX as u8), BASE);
    download(&mut w, id, 100_000);
    assert!(w.recorded.iter().all(|r| r.2[1] < PATHS_MAX as u8));
}

/// SRP-40: an association begins by whichever link there is, and goes on by the other.
#[test]
fn one_link_is_enough() {
    for (first, later) in [(PathId::FIRST, SECOND), (SECOND, PathId::FIRST)] {
        let mut w = Ends::new(0.0, 1);
        w.dark = vec![first];
        w.mobile().set_base_address(Time::ZERO, SECOND, BASE);
        let id = w.mobile().open().unwrap();
        w.mobile().write(id, b"please").unwrap();
        w.run(Duration::from_millis(500));
        assert_eq!(read(w.association(), id), b"please", "{first:?} is dark");
        download(&mut w, id, 200_000);
        w.dark = vec![later];
        download(&mut w, id, 200_000);
        w.dark.clear();
        download(&mut w, id, 1_000_000);
        assert!(w.base_events.iter().all(|e| !matches!(e.1, AssociationEvent::Lost(_))));
    }
}

/// SRP-40: nor does it matter what is lost of the handshake, again and again.
#[test]
fn a_lossy_handshake_has_both_paths() {
    for seed in 0..40 {
        let mut w = Ends::new(0.3, seed);
        w.mobile().set_base_address(Time::ZERO, SECOND, BASE);
        let id = w.mobile().open().unwrap();
        w.mobile().write(id, b"early words").unwrap();
        w.run(Duration::from_secs(8));
        assert_eq!(read(w.association(), id), b"early words", "seed {seed}");
        // The question may have come by the second path, and what follows by the first: then the association moves.
        let is_kept = |event: &AssociationEvent| !matches!(event, AssociationEvent::Lost(_));
        let events: Vec<_> = w.base_events.iter().map(|(_, event)| *event).collect();
        assert!(events.iter().all(is_kept), "seed {seed}: {events:?}");
        let up = events.iter().filter(|event| **event == AssociationEvent::Up).count();
        assert_eq!(up, 1, "seed {seed}: {events:?}");
        w.loss = 0.0;
        w.dark = vec![PathId::FIRST];
        download(&mut w, id, 100_000);
    }
}

/// A base that begins anew knows both paths again.
#[test]
fn both_paths_survive_the_base() {
    let (mut w, _) = bonded();
    w.base = new_base(9);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"is anybody there").unwrap();
    w.run(Duration::from_secs(3));
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"please").unwrap();
    w.run(Duration::from_secs(1));
    let by = download(&mut w, id, 3_000_000);
    assert!(by.iter().all(|n| *n > 500), "{by:?}");
}
