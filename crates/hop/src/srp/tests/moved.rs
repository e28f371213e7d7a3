//! Taking streams out.

use super::*;
use crate::streams::Movable;

/// Two ends, of which the mobile knows the other's limits.
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
fn a_stream_leaves_with_all_that_either_end_still_owes() {
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
                base.handle(now, packet.number, &out[..packet.len]).unwrap();
                arrived += 1;
            }
        }
    }
    assert!(arrived > 0);
    base.consume(id, 100);
    let sent = mobile.snapshot(id);
    assert_eq!(sent, mobile.snapshot(id), "a look changes nothing");
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
fn bytes_for_a_stream_that_was_taken_out_stay_with_the_peer() {
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
                    b.handle(now, packet.number, &out[..packet.len]).unwrap();
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
