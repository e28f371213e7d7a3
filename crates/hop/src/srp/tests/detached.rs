//! Taking streams out.

use super::*;

/// Two ends, of which the mobile has the other's limits.
fn pair() -> (Srp, Srp) {
    let config = HopConfig::default();
    let limits = Limits::of(&config);
    let mut mobile = Srp::new(config.clone(), Role::Mobile, limits, 40, Time::ZERO);
    let base = Srp::new(config, Role::Base, limits, 40, Time::ZERO);
    mobile.establish(Time::ZERO, &limits);
    (mobile, base)
}

/// SRP-13: what was not acknowledged, and what was not read, leaves with the stream.
#[test]
fn a_detached_stream_has_its_unacknowledged_and_unread_bytes() {
    let (mut mobile, mut base) = pair();
    let id = mobile.open().unwrap();
    let data: Vec<u8> = (0..5000u32).map(|n| n as u8).collect();
    assert_eq!(mobile.write(id, &data), Ok(5000));
    mobile.finish(id);
    let (mut out, mut arrived) = (vec![0; 1500], 0);
    for ms in 0..100 {
        let now = Time::ZERO + Duration::from_millis(ms);
        while let Some(packet) = mobile.poll(now, &mut out) {
            // One datagram is lost, and nothing is ever acknowledged.
            if packet.number != 2 {
                base.handle(now, PathId::FIRST, packet.number, &out[..packet.len]).unwrap();
                arrived += 1;
            }
        }
    }
    assert!(arrived > 0);
    base.consume(id, 100);
    let sent = mobile.snapshot(id);
    assert_eq!(sent, mobile.snapshot(id), "a snapshot changes nothing");
    assert_eq!(sent, mobile.detach(id));
    let sent = sent.unwrap();
    assert_eq!((sent.send_start, &sent.send, sent.send_ended), (0, &data, true));
    let got = base.detach(id).unwrap();
    let received = got.received as usize;
    assert!((101..=5000).contains(&received));
    assert_eq!(got.unread, data[100..received]);
    assert_eq!(got.recv_ended, received == 5000);
    assert_eq!((mobile.detach(id), base.detach(id)), (None, None));
    assert_eq!(mobile.send_space(id), Err(crate::StreamError::Unknown));
}

/// MHP-19: what arrives for a stream that has moved is not acknowledged, so the peer still has it
/// when its end of the stream moves too.
#[test]
fn bytes_for_a_detached_stream_are_not_acknowledged() {
    let (mut mobile, mut base) = pair();
    let id = mobile.open().unwrap();
    let other = mobile.open().unwrap();
    mobile.write(id, b"before").unwrap();
    let run = |from: u64, mobile: &mut Srp, base: &mut Srp| {
        let mut out = vec![0; 1500];
        for ms in from..from + 300 {
            let now = Time::ZERO + Duration::from_millis(ms);
            for turn in [true, false] {
                let (a, b) =
                    if turn { (&mut *mobile, &mut *base) } else { (&mut *base, &mut *mobile) };
                a.handle_timeout(now);
                while let Some(packet) = a.poll(now, &mut out) {
                    b.handle(now, PathId::FIRST, packet.number, &out[..packet.len]).unwrap();
                }
            }
        }
    };
    run(0, &mut mobile, &mut base);
    assert_eq!(mobile.snapshot(id).unwrap().send_start, 6, "it was acknowledged");
    let moved = base.detach(id).unwrap();
    assert_eq!((moved.received, moved.unread), (6, b"before".to_vec()));
    mobile.write(id, b"after").unwrap();
    mobile.write(other, b"else").unwrap();
    run(300, &mut mobile, &mut base);
    let kept = mobile.detach(id).unwrap();
    assert_eq!((kept.send_start, kept.send), (6, b"after".to_vec()));
    // Other streams are none the worse, once the peer's end has moved as well.
    run(600, &mut mobile, &mut base);
    assert_eq!(base.received(other), b"else");
}

/// MHP-19: at the moment of a cut the sender knows within some ten milliseconds of its rate how far its bytes
/// have come, a round trip before it is told: never beyond, where nothing is lost.
#[test]
fn where_nothing_is_lost_the_presumption_is_right() {
    for ms in [1500, 1700, 2003] {
        let mut w = Pairs::new(ms);
        let cut = Time::from_millis(ms);
        w.silences = vec![(cut, Time::NEVER)];
        let mut bulk = Bulk::start(&mut w, 0, FOREVER);
        // Before its silence is noticed, and after.
        for later in [1, 100, 1000] {
            bulk.run(&mut w, cut + Duration::from_millis(later));
            let acked = w.ends[0][0].snapshot(bulk.id).unwrap().send_start;
            let presumed = w.ends[0][0].presumed(bulk.id).unwrap();
            let arrived = bulk.read;
            assert!((acked..=arrived).contains(&presumed), "{acked} {presumed} {arrived}");
            let near = Rate::from_mbps(20).bytes_in(Duration::from_millis(12)).get();
            assert!(arrived - presumed < near, "{acked} {presumed} {arrived}");
            assert!(presumed - acked > near, "{acked} {presumed} {arrived}");
        }
    }
}

/// What counts as lost is not presumed to have come, nor anything behind it.
#[test]
fn a_presumption_ends_at_a_loss() {
    let mut w = Pairs::new(1);
    let (cut, lost) = (Time::from_secs(2), Time::from_millis(1990));
    w.silences = vec![(cut, Time::NEVER)];
    w.pipes[0].loses = Some(Box::new(move |now, _| now >= lost));
    let mut bulk = Bulk::start(&mut w, 0, FOREVER);
    bulk.run(&mut w, cut + Duration::from_secs(1));
    let presumed = w.ends[0][0].presumed(bulk.id).unwrap();
    let before = Rate::from_mbps(20).bytes_in(Duration::from_millis(12)).get();
    assert!(presumed <= bulk.read + before, "{presumed} {}", bulk.read);
}

/// An association that was made ahead and carried nothing is silent because its first path is gone: on the new
/// one it begins as any does, and does not wait for the answer to a probe. One that knows its rate does wait.
#[test]
fn a_silence_of_another_path_keeps_back_nothing_from_an_unmeasured_one() {
    for (before, least, most) in [(0, 12, 32), (2_000_000, 0, 5)] {
        let mut w = Pairs::new(7);
        let mut bulk = Bulk::start(&mut w, 0, before + 1);
        bulk.run(&mut w, Time::from_secs(3));
        let id = w.ends[0][0].open().unwrap();
        w.silences = vec![(w.now, Time::NEVER)];
        w.ends[0][0].ping();
        w.step(Time::from_secs(4));
        while w.step(Time::from_secs(5)) {}
        assert!(w.ends[0][0].stats().silent);
        w.ends[0][0].handle_moved(w.now, PathId::FIRST);
        w.ends[0][0].write(id, &[0; 20_000]).unwrap();
        let offered = w.pipes[0].offered;
        while w.step(Time::from_millis(5035)) {}
        let sent = w.pipes[0].offered - offered;
        assert!((least..=most).contains(&sent), "{before}: {sent}");
    }
}
