//! Path validation: an association moves with its mobile, but floods nobody else.

use super::*;

/// A download that has not ended; its stream.
fn downloading() -> (Ends, StreamId) {
    let mut w = Ends::new(0.0, 1);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"please").unwrap();
    w.run(Duration::from_secs(1));
    (w, id)
}

/// Writes and reads as fast as it goes; how many bytes have come.
fn download(w: &mut Ends, id: StreamId, time: Duration) -> usize {
    let (until, mut got) = (w.now + time, 0);
    while w.now < until {
        while w.association().write(id, &[7; 16_384]).unwrap() > 0 {}
        w.run(Duration::from_millis(5));
        got += read(w.mobile(), id).len();
        w.base_events.clear();
    }
    got
}

/// A base that begins anew with a mobile is told what the path was worth, and begins with half of it.
#[test]
fn what_a_path_was_worth_survives_the_base() {
    let (mut w, id) = downloading();
    let first = w.association().stats().pacing_rate;
    download(&mut w, id, Duration::from_secs(2));
    let worth = w.mobile().saved_path().unwrap();
    assert_eq!(worth.rtt, Duration::from_millis(40));
    w.base.close(CloseReason::Shutdown);
    w.run(Duration::from_millis(100));
    w.base = new_base(9);
    w.run(Duration::from_secs(3));
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"please").unwrap();
    w.run(Duration::from_secs(1));
    assert!(w.mobile().is_up());
    let again = w.association().stats().pacing_rate;
    assert!(again > first && again <= worth.receiving.scale(0.5), "{first} {again} {worth:?}");
}

/// SEC-6: whoever writes others' addresses into its datagrams has them sent little.
#[test]
fn an_address_that_does_not_answer_is_sent_little() {
    let (mut w, id) = downloading();
    download(&mut w, id, Duration::from_secs(1));
    w.recorded.clear();
    // The mobile's datagrams seem to come from thousands of victims, one after the other, which all drop what they
    // are sent.
    let (mut spoofed, began) = (0, w.now);
    for n in 0..1_000 {
        w.mobiles[0].0 = 2_000 + n;
        while w.association().write(id, &[7; 16_384]).unwrap() > 0 {}
        let now = w.now;
        w.mobile().handle_roamed(now, PathId::FIRST);
        w.run(Duration::from_millis(1));
        spoofed += 1;
    }
    let to_victims = w.recorded.iter().filter(|(from, to, _)| *from == BASE && *to >= 2_000);
    let bytes: usize = to_victims.map(|(.., bytes)| bytes.len()).sum();
    let claimed: usize =
        w.recorded.iter().filter(|(_, to, _)| *to == BASE).map(|(.., bytes)| bytes.len()).sum();
    let seconds = w.now.since(began).as_secs_f64();
    let allowed =
        48.0 * 1024.0 * (seconds + 1.0) + 3.0 * claimed as f64 + 30.0 * f64::from(spoofed);
    assert!((bytes as f64) < allowed + 3_000.0, "{bytes} of {allowed}, {claimed} came");
}

/// SEC-6: a mobile that really moves is challenged, responds, and has its rate again after a round trip.
#[test]
fn a_mobile_that_moves_has_its_rate_again_after_a_round_trip() {
    let (mut w, id) = downloading();
    let before = download(&mut w, id, Duration::from_secs(2));
    w.mobiles[0].0 = 2;
    let now = w.now;
    w.mobile().handle_roamed(now, PathId::FIRST);
    let after = download(&mut w, id, Duration::from_secs(2));
    assert!(after * 10 > before * 8, "{after} after {before}");
    assert_eq!(w.association().peer(), Some(2));
    assert!(w.association().link().unwrap().blocked_until().is_none());
}

/// SEC-6: a response from elsewhere, a recorded or a forged one, shows nothing.
#[test]
fn only_the_challenged_address_can_respond() {
    let (mut w, id) = downloading();
    w.mobiles[0].0 = 2;
    let now = w.now;
    w.mobile().handle_roamed(now, PathId::FIRST);
    // Its responses are caught on the way.
    w.run(Duration::from_millis(30));
    w.loss = 1.0;
    w.run(Duration::from_millis(100));
    let mut out = [0; 2000];
    let is_response = |r: &&(Addr, Addr, Vec<u8>)| r.2[0] == 0x18;
    let responses: Vec<_> = w.recorded.iter().filter(is_response).map(|r| r.2.clone()).collect();
    assert!(!responses.is_empty());
    let probation = |w: &mut Ends| w.association().link().unwrap().check_at().is_some();
    assert!(probation(&mut w));
    let at = w.now;
    let mut forged = responses[0].clone();
    forged[8] ^= 1;
    for (from, bytes) in [(3, &responses[0]), (2, &forged)] {
        w.base.handle_datagram(at, from, &mut bytes.clone());
        assert!(probation(&mut w));
    }
    w.base.handle_datagram(at, 2, &mut responses[0].clone());
    assert!(!probation(&mut w));
    // It moves on: what it said there is no answer here.
    w.mobiles[0].0 = 4;
    w.mobile().write(id, b"from another place").unwrap();
    let at = w.now;
    let t = w.mobile().poll_transmit(at, &mut out).unwrap();
    w.base.handle_datagram(at, 4, &mut out[..t.len]);
    assert!(probation(&mut w));
    w.base.handle_datagram(at, 4, &mut responses[0].clone());
    assert!(probation(&mut w));
}

/// SEC-6: nor does an association begin at an address that has shown nothing.
#[test]
fn an_association_does_not_begin_at_a_victims_address() {
    let mut w = Ends::new(0.0, 1);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"from here").unwrap();
    // The reply has come: what follows comes from elsewhere.
    while !w.mobile().is_up() {
        let until = w.now + Duration::from_secs(1);
        assert!(w.step(until));
    }
    w.mobiles[0].0 = 3;
    w.run(Duration::from_millis(30));
    assert_eq!(w.association().peer(), Some(3));
    let challenged = |w: &mut Ends| w.association().link().unwrap().check_at().is_some();
    assert!(challenged(&mut w), "and the challenge is on its way");
    w.run(Duration::from_millis(50));
    assert!(!challenged(&mut w), "this one is there, and has responded");
}
