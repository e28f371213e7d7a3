//! Associations that carry Mobile TCP.

use super::*;
use crate::mobile_tcp::MobileTcp;

type Paper = Ends<MobileTcp>;

/// Begins no message of the session, so that bytes are not kept back until they are one.
const NO_MESSAGE: u8 = 0xff;

#[test]
fn a_handshake_survives_heavy_loss_and_streams_written_before_it_follow() {
    for seed in 0..40 {
        let mut w = Paper::over(0.3, seed);
        let id = w.mobile().open().unwrap();
        w.mobile().write(id, b"\xffearly words").unwrap();
        w.run(Duration::from_secs(20));
        assert!(w.mobile().is_up(), "seed {seed}");
        assert_eq!(w.mobile_events(), [AssociationEvent::Up]);
        assert_eq!(read(w.association(), id), b"\xffearly words", "seed {seed}");
        w.association().write(id, b"an answer").unwrap();
        w.run(Duration::from_secs(20));
        assert_eq!(read(w.mobile(), id), b"an answer", "seed {seed}");
        assert_eq!(w.base_events.len(), 1, "seed {seed}: {:?}", w.base_events);
    }
}

#[test]
fn nothing_that_is_sent_can_be_read_on_the_way() {
    let mut w = Paper::over(0.0, 1);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"\xffthe password is swordfish").unwrap();
    w.run(Duration::from_secs(1));
    assert!(w.recorded.iter().all(|r| !r.2.windows(9).any(|s| s == b"swordfish")));
    assert_eq!(read(w.association(), id), b"\xffthe password is swordfish");
}

#[test]
fn the_association_follows_the_mobile_to_a_new_address() {
    let mut w = Paper::over(0.0, 1);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"\xffa").unwrap();
    w.run(Duration::from_secs(1));
    w.mobiles[0].0 = 2;
    w.mobile().write(id, b"b").unwrap();
    w.run(Duration::from_secs(2));
    assert_eq!(w.association().peer(), Some(2));
    assert_eq!(w.base_events.last().map(|e| e.1), Some(AssociationEvent::Moved));
    assert_eq!(read(w.association(), id), b"\xffab");
    w.association().write(id, b"to the new place").unwrap();
    w.run(Duration::from_secs(2));
    assert_eq!(read(w.mobile(), id), b"to the new place");
}

#[test]
fn replayed_forged_and_truncated_datagrams_change_nothing_but_a_counter() {
    let mut w = Paper::over(0.0, 1);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"\xffwords").unwrap();
    w.run(Duration::from_secs(1));
    assert_eq!(read(w.association(), id), b"\xffwords");
    let before = (w.association().stats(), w.base.stats().refused);
    let recorded: Vec<_> = w.recorded.iter().filter(|r| r.1 == BASE).cloned().collect();
    let mut attempts = 0;
    for (_, _, bytes) in recorded.iter().filter(|r| Data::new_checked(&r.2).is_ok()) {
        for cut in [bytes.len(), bytes.len() - 1, 12, 9, 1, 0] {
            w.base.handle_datagram(w.now, 666, &mut bytes[..cut].to_vec());
            attempts += 1;
        }
        for at in 0..bytes.len() {
            let mut forged = bytes.clone();
            forged[at] ^= 0x40;
            w.base.handle_datagram(w.now, 666, &mut forged);
            attempts += 1;
        }
    }
    assert!(attempts > 100);
    let after = (w.association().stats(), w.base.stats().refused);
    assert_eq!(before.0, after.0);
    assert_eq!(after.1 - before.1, attempts);
    assert_eq!(w.association().peer(), Some(1), "a forger does not move an association");
}

/// The numbers that Mobile TCP lacks and the seal needs: each once, whatever is sent again, and from
/// the beginning under new keys only.
#[test]
fn no_number_is_used_twice_under_the_same_keys() {
    let numbers = |w: &Paper| {
        let data = w.recorded.iter().filter_map(|(_, _, bytes)| {
            let header = Data::new_checked(bytes.as_slice()).ok()?.header();
            Some((header.receiver, header.number_low))
        });
        data.collect::<Vec<_>>()
    };
    let mut w = Paper::over(0.3, 1);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, &[0xff; 20_000]).unwrap();
    w.run(Duration::from_secs(20));
    w.base = new_base(2);
    w.mobile().write(id, b"into the void").unwrap();
    w.run(Duration::from_secs(20));
    let again = w.mobile().open().unwrap();
    w.mobile().write(again, &[0xff; 20_000]).unwrap();
    w.run(Duration::from_secs(20));
    let mut used = numbers(&w);
    let all = used.len();
    used.sort_unstable();
    used.dedup();
    assert_eq!(used.len(), all);
    // Two associations, each with a direction of its own either way.
    let firsts = used.iter().filter(|(_, number)| *number == 0).count();
    assert!(firsts >= 4, "{firsts} counts began");
}

#[test]
fn a_restarted_base_gets_a_new_association_and_old_streams_are_reset() {
    for seed in 0..20 {
        let mut w = Paper::over(if seed == 0 { 0.0 } else { 0.2 }, seed);
        let old = w.mobile().open().unwrap();
        w.mobile().write(old, b"\xffa").unwrap();
        w.run(Duration::from_secs(10));
        assert!(w.mobile().is_up(), "seed {seed}");
        w.base = new_base(1000 + seed);
        w.mobile().write(old, b"into the void").unwrap();
        w.run(Duration::from_secs(10));
        let lost = AssociationEvent::Lost(CloseReason::Silence);
        let events = w.mobile_events();
        assert_eq!(events, [AssociationEvent::Up, lost, AssociationEvent::Up], "seed {seed}");
        assert!(matches!(w.mobile().recv_state(old), RecvState::Reset(_)));
        let new = w.mobile().open().unwrap();
        assert!(new > old, "stream numbers are never used twice");
        w.mobile().write(new, b"\xffagain").unwrap();
        w.run(Duration::from_secs(10));
        assert_eq!(read(w.association(), new), b"\xffagain", "seed {seed}");
    }
}

#[test]
fn a_silent_radio_does_not_cost_the_association() {
    let mut w = Paper::over(0.0, 1);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"\xffbefore ").unwrap();
    w.run(Duration::from_secs(1));
    w.loss = 1.0;
    w.mobile().write(id, b"and after").unwrap();
    w.run(Duration::from_secs(60));
    w.loss = 0.0;
    w.run(Duration::from_secs(5));
    assert_eq!(read(w.association(), id), b"\xffbefore and after");
    assert_eq!(w.mobile_events(), [AssociationEvent::Up]);
    assert_eq!(w.base_events.len(), 1);
}

#[test]
fn a_restarted_mobile_replaces_its_association_at_the_base() {
    let mut w = Paper::over(0.0, 1);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"\xffa").unwrap();
    w.run(Duration::from_secs(1));
    w.mobiles[0].1 = new_mobile(1, w.now, *keys(0).public());
    let again = w.mobile().open().unwrap();
    assert_eq!(again, id, "the case is not met");
    w.mobile().write(again, b"\xffb").unwrap();
    w.run(Duration::from_secs(2));
    let reasons: Vec<_> = w.base_events.iter().map(|e| e.1).collect();
    assert!(reasons.contains(&AssociationEvent::Lost(CloseReason::Replaced)), "{reasons:?}");
    assert_eq!(w.base.associations().count(), 1);
    assert_eq!(read(w.association(), id), b"\xffb");
}

#[test]
fn a_close_is_sent_to_the_other_end() {
    let mut w = Paper::over(0.0, 1);
    w.run(Duration::from_secs(1));
    w.mobile().close(CloseReason::Shutdown);
    w.run(Duration::from_millis(500));
    let last = w.base_events.last().map(|e| e.1);
    assert_eq!(last, Some(AssociationEvent::Lost(CloseReason::Shutdown)));
    assert_eq!(w.base.associations().count(), 0);
}

#[test]
fn an_unsealed_association_works_by_explicit_choice_on_both_ends() {
    let mut w = Paper::over(0.1, 1);
    let config = crate::mobile_tcp::Config::default();
    let (claim, seed) = (*keys(1).public(), Seed::from_u64(5));
    w.mobiles[0].1 = Mobile::unsealed(config.clone(), claim, BASE, seed, Time::ZERO);
    w.run(Duration::from_secs(2));
    assert!(!w.mobile().is_up());
    w.base = Base::unsealed(config, Seed::from_u64(6));
    w.run(Duration::from_secs(3));
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"\xfffor all to see").unwrap();
    w.run(Duration::from_secs(5));
    assert_eq!(read(w.association(), id), b"\xfffor all to see");
}

/// Ends that carry different transports would not understand each other, and do not associate.
#[test]
fn another_transport_s_handshake_is_refused() {
    let mut srp = Ends::new(0.0, 1);
    let mut paper = Paper::over(0.0, 1);
    let mut out = [0; 2000];
    let t = srp.mobile().poll_transmit(Time::ZERO, &mut out).unwrap();
    paper.base.handle_datagram(Time::ZERO, 1, &mut out[..t.len]);
    assert_eq!((paper.base.stats().handshakes, paper.base.stats().refused), (0, 1));
    let t = paper.mobile().poll_transmit(Time::ZERO, &mut out).unwrap();
    srp.base.handle_datagram(Time::ZERO, 1, &mut out[..t.len]);
    assert_eq!((srp.base.stats().handshakes, srp.base.stats().refused), (0, 1));
}

/// What the base has for the mobile, if anything.
fn read_at_base(w: &mut Paper, id: StreamId) -> Vec<u8> {
    let found = w.base.associations().next().is_some();
    if found { read(w.association(), id) } else { Vec::new() }
}

/// Roaming, silence and restarts of the base in any order: a stream carries a prefix of what was
/// written into it, and after the last of them a new stream carries everything.
#[test]
fn streams_stay_exact_under_random_schedules() {
    let mut whole = 0;
    for seed in 0..30 {
        let mut w = Paper::over(0.15, seed);
        let mut dice = Seed::from_u64(seed).stream("schedule");
        for turn in 0..6 {
            let id = w.mobile().open().unwrap();
            let mut data: Vec<u8> = (0..4_000_u32).map(|n| (n * 7 + turn) as u8).collect();
            data[0] = NO_MESSAGE;
            w.mobile().write(id, &data).unwrap();
            w.run(Duration::from_millis(dice.next_u64() % 3_000));
            let mut got = read_at_base(&mut w, id);
            match dice.next_u64() % 4 {
                0 => w.mobiles[0].0 = 1 + (w.mobiles[0].0 % 500),
                1 => w.base = new_base(10_000 * seed + u64::from(turn)),
                2 => {
                    w.loss = 1.0;
                    w.run(Duration::from_millis(dice.next_u64() % 5_000));
                    w.loss = 0.15;
                }
                _ => {}
            }
            w.run(Duration::from_secs(8));
            got.extend(read_at_base(&mut w, id));
            assert!(data.starts_with(&got), "seed {seed}, turn {turn}");
            whole += u32::from(got == data);
        }
        // That the base was restarted is noticed when something is sent to it, at the latest now.
        let mut last = Vec::new();
        for _ in 0..2 {
            let id = w.mobile().open().unwrap();
            w.mobile().write(id, b"\xffthe last").unwrap();
            w.run(Duration::from_secs(30));
            last = read_at_base(&mut w, id);
            assert_eq!(last.is_empty(), w.mobile().recv_state(id) != RecvState::Open);
            if !last.is_empty() {
                break;
            }
        }
        assert_eq!(last, b"\xffthe last", "seed {seed}");
    }
    assert!(whole > 60, "{whole} of 180 arrived whole");
}
