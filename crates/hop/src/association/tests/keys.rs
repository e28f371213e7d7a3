//! Keys grow old, and mobiles may no longer be allowed.

use super::*;
use crate::mobile_tcp::MobileTcp;

/// The names under which data came to `to`, with the first and the last time.
fn names(w: &[(Time, Addr, Vec<u8>)], to: Addr) -> Vec<(u32, Time, Time)> {
    let mut names: Vec<(u32, Time, Time)> = Vec::new();
    for (at, _, bytes) in w.iter().filter(|(_, addr, _)| *addr == to) {
        let Ok(data) = Data::new_checked(bytes) else { continue };
        let receiver = data.header().receiver;
        match names.iter_mut().find(|(name, ..)| *name == receiver) {
            Some((_, _, last)) => *last = *at,
            None => names.push((receiver, *at, *at)),
        }
    }
    names
}

/// Ten minutes of a stream in each direction.
fn stream_for_ten_minutes<T: Transport<Config: Default>>(loss: f64, seed: u64) {
    let mut w: Ends<T> = Ends::over(loss, seed);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"\xff").unwrap();
    w.run(Duration::from_secs(5));
    let (mut up, mut down) = (vec![0xff], Vec::new());
    let (mut got_up, mut got_down) = (Vec::new(), Vec::new());
    let mut sent = Vec::new();
    for n in 0..600_u64 {
        let piece = n.to_be_bytes();
        let written = w.mobile().write(id, &piece).unwrap();
        up.extend(&piece[..written]);
        let written = w.association().write(id, &piece).unwrap();
        down.extend(&piece[..written]);
        w.run(Duration::from_secs(1));
        sent.extend(w.recorded.drain(..).map(|(_, to, bytes)| (w.now, to, bytes)));
        got_up.extend(read(w.association(), id));
        got_down.extend(read(w.mobile(), id));
    }
    w.run(Duration::from_secs(20));
    got_up.extend(read(w.association(), id));
    got_down.extend(read(w.mobile(), id));
    assert!(got_up == up && got_down == down, "seed {seed}");
    assert_eq!(w.mobile_events(), [AssociationEvent::Up], "seed {seed}: no stream noticed");
    assert_eq!(w.base_events.len(), 1, "seed {seed}: {:?}", w.base_events);
    for to in [BASE, 1] {
        let names = names(&sent, to);
        assert!(names.len() >= 5, "seed {seed}: {names:?}");
        for (name, first, last) in names {
            assert!(last.since(first) <= Duration::from_secs(182), "seed {seed}: {name:x}");
        }
    }
    // Names of keys that are gone are not kept.
    assert!(w.base.links.by_receiver.len() <= 3, "seed {seed}");
}

/// SEC-4: keys are renewed at least every two minutes, and none is used for more than three.
#[test]
fn keys_are_renewed_without_a_stream_noticing() {
    for seed in 0..6 {
        stream_for_ten_minutes::<Srp>(if seed % 2 == 0 { 0.0 } else { 0.2 }, seed);
    }
    stream_for_ten_minutes::<MobileTcp>(0.0, 1);
    stream_for_ten_minutes::<MobileTcp>(0.1, 2);
}

/// SEC-4: where nothing but pings passes, keys may be somewhat older; what passes again does so under keys that are
/// not older than three minutes, and has others within two.
#[test]
fn keys_that_are_not_used_are_renewed_later() {
    for seed in 0..6 {
        let mut w = Ends::new(0.0, seed);
        let id = w.mobile().open().unwrap();
        w.run(Duration::from_secs(1));
        let (begun, minutes) = (w.mobile().mobile_stats().handshakes, 60);
        w.run(Duration::from_secs(60 * minutes));
        let unused = w.mobile().mobile_stats().handshakes - begun;
        assert!((21..=25).contains(&unused), "seed {seed}: {unused} in an hour");
        for _ in 0..6 * minutes {
            w.mobile().write(id, b".").unwrap();
            w.run(Duration::from_secs(10));
        }
        let used = w.mobile().mobile_stats().handshakes - begun - unused;
        assert!((30..=36).contains(&used), "seed {seed}: {used} in an hour");
        assert_eq!(read(w.association(), id).len() as u64, 6 * minutes);
    }
}

/// SEC-4: what was sealed more than three minutes ago is refused.
#[test]
fn a_datagram_under_old_keys_is_refused() {
    let mut w = Ends::new(0.0, 1);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"first").unwrap();
    w.run(Duration::from_secs(1));
    w.mobile().write(id, b"held back").unwrap();
    let (mut out, now) = ([0; 2000], w.now);
    let held = w.mobile().poll_transmit(now, &mut out).unwrap();
    w.run(Duration::from_secs(150));
    let refused = w.base.stats().refused;
    w.base.handle_datagram(w.now, 1, &mut out[..held.len].to_vec());
    assert_eq!(w.base.stats().refused, refused, "keys of before are believed for a while");
    let mut w = Ends::new(0.0, 1);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"first").unwrap();
    w.run(Duration::from_secs(1));
    w.mobile().write(id, b"held back").unwrap();
    let now = w.now;
    let held = w.mobile().poll_transmit(now, &mut out).unwrap();
    w.run(Duration::from_secs(182));
    let refused = w.base.stats().refused;
    w.base.handle_datagram(w.now, 1, &mut out[..held.len].to_vec());
    assert_eq!(w.base.stats().refused, refused + 1);
}

/// SEC-4: a dead zone that outlasts the keys costs a handshake, and no connection.
#[test]
fn a_silence_longer_than_the_keys_ends_nothing() {
    let mut w = Ends::new(0.0, 1);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"before ").unwrap();
    w.run(Duration::from_secs(1));
    w.association().write(id, b"down before ").unwrap();
    w.run(Duration::from_secs(1));
    w.loss = 1.0;
    w.mobile().write(id, b"in the tunnel ").unwrap();
    w.association().write(id, b"down in the tunnel ").unwrap();
    w.run(Duration::from_secs(400));
    let (sent, _) = (w.recorded.len(), w.recorded.clear());
    assert!(sent < 400 * 120, "{sent}");
    w.loss = 0.0;
    w.run(Duration::from_secs(2));
    assert_eq!(read(w.association(), id), b"before in the tunnel ");
    assert_eq!(read(w.mobile(), id), b"down before down in the tunnel ");
    assert_eq!(w.mobile_events(), [AssociationEvent::Up]);
    assert_eq!(w.base_events.len(), 1, "{:?}", w.base_events);
}

/// SEC-22: a host that was suspended has seen no time pass, and its keys are older than it knows.
#[test]
fn a_suspended_mobile_goes_on_where_it_was() {
    for minutes in [1, 4, 29] {
        let mut w = Ends::new(0.0, minutes);
        let id = w.mobile().open().unwrap();
        w.mobile().write(id, b"before ").unwrap();
        w.run(Duration::from_secs(1));
        w.association().write(id, b"down before ").unwrap();
        w.run(Duration::from_millis(5));
        w.suspend(Duration::from_secs(60 * minutes));
        w.association().write(id, b"down meanwhile ").unwrap();
        w.mobile().write(id, b"after").unwrap();
        w.run(Duration::from_secs(10));
        assert_eq!(read(w.association(), id), b"before after", "{minutes} min");
        assert_eq!(read(w.mobile(), id), b"down before down meanwhile ", "{minutes} min");
        assert_eq!(w.mobile_events(), [AssociationEvent::Up], "{minutes} min");
        assert_eq!(w.base_events.len(), 1, "{minutes} min: {:?}", w.base_events);
    }
}

/// SEC-22: a base gives up who was silent for half an hour, which the mobile has not seen pass.
#[test]
fn a_mobile_that_was_suspended_for_too_long_begins_anew_by_itself() {
    for hours in [1, 3 * 24] {
        let mut w = Ends::new(0.0, hours);
        let old = w.mobile().open().unwrap();
        w.mobile().write(old, b"before").unwrap();
        w.run(Duration::from_secs(1));
        w.suspend(Duration::from_secs(3600 * hours));
        assert_eq!(w.base.associations().count(), 0, "{hours} h");
        w.mobile().write(old, b"after").unwrap();
        w.run(Duration::from_secs(10));
        let lost = AssociationEvent::Lost(CloseReason::Silence);
        let events = [AssociationEvent::Up, lost, AssociationEvent::Up];
        assert_eq!(w.mobile_events(), events, "{hours} h");
        assert!(matches!(w.mobile().recv_state(old), RecvState::Reset(_)), "{hours} h");
        let new = w.mobile().open().unwrap();
        w.mobile().write(new, b"again").unwrap();
        w.run(Duration::from_secs(1));
        assert_eq!(read(w.association(), new), b"again", "{hours} h");
    }
}

/// SEC-5: a mobile that is no longer allowed is out at once, and the others notice nothing.
#[test]
fn a_revoked_mobile_is_out_and_stays_out() {
    let mut w = Ends::new(0.0, 1);
    w.mobiles.push((2, new_mobile(2, Time::ZERO, *keys(0).public())));
    w.run(Duration::from_secs(1));
    assert_eq!(w.base.associations().count(), 2);
    let id = w.mobiles[1].1.open().unwrap();
    w.base.set_allowed(&[*keys(2).public(), *keys(3).public()]);
    w.mobiles[1].1.write(id, b"still here").unwrap();
    w.run(Duration::from_secs(30));
    let left: Vec<_> = w.base.associations().map(|(_, mobile, _)| *mobile).collect();
    assert_eq!(left, [*keys(2).public()]);
    let lost = w.base_events.iter().filter(|e| matches!(e.1, AssociationEvent::Lost(_)));
    let lost: Vec<_> = lost.map(|e| e.1).collect();
    assert_eq!(lost, [AssociationEvent::Lost(CloseReason::Revoked)]);
    assert!(w.base.stats().strangers > 0);
    assert_eq!(read(w.association(), id), b"still here");
    // Who is allowed from now on comes in.
    w.base.set_allowed(&[*keys(1).public(), *keys(2).public()]);
    w.run(Duration::from_secs(3));
    assert_eq!(w.base.associations().count(), 2);
}
