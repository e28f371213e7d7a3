//! Mobiles and a base over a lossy carrier in virtual time.

mod bond;
mod floods;
mod keys;
mod many;
mod mobile_tcp;
mod parts;
mod paths;
mod psk;
mod transit;

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use lasthop_units::{Seed, Time};
use lasthop_wire::datagram::{Data, Unknown};

use super::testbed::{Addr, BASE, Testbed, read};
use super::*;
use crate::config::HopConfig;
use crate::seal::{Keypair, PublicKey};
use crate::streams::{RecvState, StreamId, Streams};
use crate::unreachable::Unreachable;

type Ends<T = Srp> = Testbed<NumberedLink<Addr, T>, NumberedLinks<Addr, T>>;

fn keys(n: u64) -> Keypair {
    Keypair::generate(Seed::from_u64(n))
}

fn new_mobile<T>(n: u64, now: Time, base: PublicKey) -> Mobile<Addr, T>
where
    T: Transport<Config: Default>,
{
    let seed = Seed::from_u64(100 + n).child("mobile");
    let config = T::Config::default();
    Mobile::new(config, keys(n), base, BASE, seed, now).with_wall_clock(now, 1 << 60)
}

fn new_base<T: Transport<Config: Default>>(seed: u64) -> Base<Addr, T> {
    let allowed = (1..=8).map(|n| *keys(n).public()).collect();
    Base::new(T::Config::default(), keys(0), allowed, Seed::from_u64(seed))
}

impl Ends {
    fn new(loss: f64, seed: u64) -> Self {
        Self::over(loss, seed)
    }
}

impl<T: Transport<Config: Default>> Ends<T> {
    fn over(loss: f64, seed: u64) -> Self {
        let mobile = new_mobile(1, Time::ZERO, *keys(0).public());
        Self::between(mobile, new_base(seed), Duration::from_millis(20), loss, seed)
    }

    /// The base's only association.
    fn association(&mut self) -> &mut Association<Addr, T> {
        let id = self.base.associations().next().map(|a| a.0).unwrap();
        self.base.association_mut(id).unwrap()
    }
}

#[test]
fn a_handshake_survives_heavy_loss_and_streams_written_before_it_follow() {
    for seed in 0..40 {
        let mut w = Ends::new(0.3, seed);
        let id = w.mobile().open().unwrap();
        w.mobile().write(id, b"early words").unwrap();
        w.run(Duration::from_secs(8));
        assert!(w.mobile().is_up(), "seed {seed}");
        assert_eq!(w.mobile_events(), [AssociationEvent::Up]);
        assert_eq!(read(w.association(), id), b"early words");
        w.association().write(id, b"an answer").unwrap();
        w.run(Duration::from_secs(2));
        assert_eq!(read(w.mobile(), id), b"an answer", "seed {seed}");
        assert_eq!(w.base_events.len(), 1, "seed {seed}: {:?}", w.base_events);
    }
}

#[test]
fn nothing_that_is_sent_can_be_read_on_the_way() {
    let mut w = Ends::new(0.0, 1);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"the password is swordfish").unwrap();
    w.run(Duration::from_secs(1));
    assert!(w.recorded.iter().all(|r| !r.2.windows(9).any(|s| s == b"swordfish")));
    assert_eq!(read(w.association(), id), b"the password is swordfish");
}

#[test]
fn an_authentic_datagram_from_a_new_address_moves_the_association() {
    let mut w = Ends::new(0.0, 1);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"a").unwrap();
    w.run(Duration::from_secs(1));
    w.mobiles[0].0 = 2;
    w.mobile().write(id, b"b").unwrap();
    w.run(Duration::from_secs(1));
    assert_eq!(w.association().peer(), Some(2));
    assert_eq!(w.base_events.last().map(|e| e.1), Some(AssociationEvent::Moved));
    w.association().write(id, b"to the new place").unwrap();
    w.run(Duration::from_secs(1));
    assert_eq!(read(w.mobile(), id), b"to the new place");
}

#[test]
fn replayed_forged_and_truncated_datagrams_change_nothing_but_a_counter() {
    let mut w = Ends::new(0.0, 1);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"words").unwrap();
    w.run(Duration::from_secs(1));
    assert_eq!(read(w.association(), id), b"words");
    let before = (w.association().stats(), w.base.stats().refused);
    let recorded: Vec<_> = w.recorded.iter().filter(|r| r.1 == BASE).cloned().collect();
    let mut attempts = 0;
    for (_, _, bytes) in &recorded {
        if bytes[0] & 0xf != 0 {
            continue;
        }
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
    let after = (w.association().stats(), w.base.stats().refused);
    assert_eq!(before.0, after.0);
    assert_eq!(after.1 - before.1, attempts);
    assert_eq!(w.association().peer(), Some(1), "a forger does not move an association");
}

#[test]
fn a_replayed_handshake_does_not_disturb_the_association() {
    let mut w = Ends::new(0.0, 1);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"a").unwrap();
    w.run(Duration::from_secs(8));
    let init = w.recorded.iter().find(|r| r.1 == BASE).map(|r| r.2.clone()).unwrap();
    for _ in 0..5 {
        w.base.handle_datagram(w.now, 666, &mut init.clone());
    }
    w.mobile().write(id, b"b").unwrap();
    w.run(Duration::from_secs(8));
    assert_eq!(read(w.association(), id), b"ab");
    assert_eq!(w.base_events.len(), 1);
}

#[test]
fn strangers_and_wrong_keys_get_no_answer() {
    let mut w = Ends::new(0.0, 1);
    let stranger = new_mobile(77, Time::ZERO, *keys(0).public());
    let mistaken = new_mobile(2, Time::ZERO, *keys(5).public());
    w.mobiles.push((7, stranger));
    w.mobiles.push((8, mistaken));
    w.run(Duration::from_secs(3));
    assert!(w.mobiles[0].1.is_up() && !w.mobiles[1].1.is_up() && !w.mobiles[2].1.is_up());
    assert!(w.base.stats().strangers > 0 && w.base.stats().refused > 0);
    assert!(w.recorded.iter().all(|r| r.1 != 7 && r.1 != 8));
}

#[test]
fn a_base_reports_whom_it_does_not_answer_and_why() {
    let mut w = Ends::new(0.0, 1);
    let sealless = Mobile::unsealed(
        HopConfig::default(),
        *keys(1).public(),
        BASE,
        Seed::from_u64(3),
        Time::ZERO,
    );
    w.mobiles.push((6, sealless));
    w.mobiles.push((7, new_mobile(77, Time::ZERO, *keys(0).public())));
    w.mobiles.push((8, new_mobile(2, Time::ZERO, *keys(5).public())));
    w.run(Duration::from_secs(3));
    let mut told: Vec<_> = core::iter::from_fn(|| w.base.poll_refused()).collect();
    told.sort_by_key(|refused| refused.from);
    let why: Vec<_> = told.iter().map(|refused| (refused.from, refused.why)).collect();
    let stranger = Refusal::Stranger(*keys(77).public());
    assert_eq!(why, [(6, Refusal::OtherSeal), (7, stranger), (8, Refusal::OtherBase)]);
    // They go on asking, and are reported again.
    w.run(Duration::from_secs(60));
    let again: Vec<_> = core::iter::from_fn(|| w.base.poll_refused()).collect();
    assert!(again.len() == 3 && again.iter().all(|refused| refused.again > 50), "{again:?}");
    assert!(w.recorded.iter().all(|r| ![6, 7, 8].contains(&r.1)));
    // Garbage is nobody's handshake.
    for garbage in [&[0x13_u8][..], &[0x11; 40], &[0; 60]] {
        w.base.handle_datagram(w.now, 9, &mut garbage.to_vec());
    }
    assert_eq!(w.base.poll_refused(), None);
}

#[test]
fn a_base_reports_mobiles_that_use_another_transport() {
    let mut base = new_base::<crate::mobile_tcp::MobileTcp>(1);
    let mut out = [0; 2000];
    let mut mobile: Mobile<Addr> = new_mobile(1, Time::ZERO, *keys(0).public());
    let sent = mobile.poll_transmit(Time::ZERO, &mut out).unwrap();
    base.handle_datagram(Time::ZERO, 1, &mut out[..sent.len]);
    assert_eq!(base.poll_refused().map(|refused| refused.why), Some(Refusal::OtherTransport));
    let mut bare = crate::BareMobile::new(
        crate::mobile_tcp::Config::default(),
        BASE,
        Seed::from_u64(1),
        Time::ZERO,
    );
    let sent = bare.poll_transmit(Time::ZERO, &mut out).unwrap();
    base.handle_datagram(Time::ZERO, 2, &mut out[..sent.len]);
    assert_eq!(base.poll_refused().map(|refused| refused.why), Some(Refusal::OtherSeal));
    assert!(base.poll_transmit(Time::ZERO, &mut out).is_none());
}

#[test]
fn a_flood_of_handshakes_is_throttled_and_keeps_no_memory() {
    let mut w = Ends::new(0.0, 1);
    for n in 0..2_000 {
        let mut m: Mobile<Addr> = new_mobile(2 + n % 3, Time::from_nanos(n), *keys(0).public());
        let mut out = [0; 2000];
        let t = m.poll_transmit(Time::from_nanos(n), &mut out).unwrap();
        w.base.handle_datagram(w.now, 9, &mut out[..t.len]);
    }
    assert!(
        w.base.links.handshakes.candidates.len() <= 64
            && w.base.links.handshakes.replies.len() <= 256
    );
    assert!(w.base.stats().throttled + w.base.stats().cookies > 1_900);
    // A genuine mobile still gets in.
    w.run(Duration::from_secs(8));
    assert!(w.mobile().is_up());
}

/// SEC-1: a mobile that is allowed here calls and calls, with the greatest stamps: others get in all the same.
#[test]
fn one_mobile_does_not_take_all_the_places_of_handshakes() {
    let mut w = Ends::new(0.0, 1);
    let mut out = [0; 2000];
    for n in 0..400 {
        let seed = Seed::from_u64(n).child("insider");
        let base = *keys(0).public();
        let mut insider: Mobile<Addr> =
            Mobile::new(HopConfig::default(), keys(2), base, BASE, seed, w.now)
                .with_wall_clock(w.now, u64::MAX / 2);
        let init = insider.poll_transmit(w.now, &mut out).unwrap();
        w.base.handle_datagram(w.now, 9, &mut out[..init.len]);
        assert!(w.base.links.handshakes.candidates.len() <= 5);
        // The other mobile begins when the insider has had three seconds.
        if n < 200 {
            while w.base.poll_transmit(w.now, &mut out).is_some() {}
            w.now += Duration::from_millis(15);
        } else {
            w.run(Duration::from_millis(15));
        }
    }
    assert!(w.mobile().is_up());
}

#[test]
fn a_restarted_base_gets_a_new_association_and_old_streams_are_reset() {
    let mut w = Ends::new(0.0, 1);
    let old = w.mobile().open().unwrap();
    w.mobile().write(old, b"a").unwrap();
    w.run(Duration::from_secs(2));
    w.base = new_base(2);
    w.mobile().write(old, b"into the void").unwrap();
    w.run(Duration::from_secs(3));
    let events = w.mobile_events();
    assert_eq!(
        events,
        [AssociationEvent::Up, AssociationEvent::Lost(CloseReason::Silence), AssociationEvent::Up]
    );
    assert!(matches!(w.mobile().recv_state(old), RecvState::Reset(_)));
    let new = w.mobile().open().unwrap();
    assert!(new > old, "stream numbers are never used twice");
    w.mobile().write(new, b"again").unwrap();
    w.run(Duration::from_secs(1));
    assert_eq!(read(w.association(), new), b"again");
}

/// The counters go on; what the hop loses is learnt from what is sent to the new base.
#[test]
fn what_was_lost_before_a_base_was_restarted_is_not_taken_for_the_hop_s_loss() {
    let mut w = Ends::new(0.1, 1);
    let send = |w: &mut Ends, pieces: usize| {
        let id = w.mobile().open().unwrap();
        for _ in 0..pieces {
            w.mobile().write(id, &[7; 10_000]).unwrap();
            w.run(Duration::from_millis(100));
        }
    };
    send(&mut w, 50);
    let before = w.mobile().stats();
    assert!(before.lost > 20 && before.loss < 0.3, "{before:?}");
    w.base = new_base(2);
    send(&mut w, 1);
    w.run(Duration::from_secs(10));
    assert!(w.mobile().is_up() && w.base.associations().count() == 1);
    for _ in 0..20 {
        send(&mut w, 1);
        let loss = w.mobile().stats().loss;
        assert!(loss < 0.5, "{:.1} %", loss * 100.0);
    }
    assert!(w.mobile().stats().lost >= before.lost);
}

#[test]
fn a_restarted_base_answers_that_it_does_not_know_the_association() {
    let mut w = Ends::new(0.0, 1);
    let old = w.mobile().open().unwrap();
    w.mobile().write(old, b"a").unwrap();
    w.run(Duration::from_secs(2));
    w.mobile_events();
    w.base = new_base(2);
    w.mobile().write(old, b"into the void").unwrap();
    // Two round trips, and no silence to wait for.
    w.run(Duration::from_millis(200));
    let events = w.mobile_events();
    assert_eq!(events, [AssociationEvent::Lost(CloseReason::Silence), AssociationEvent::Up]);
}

#[test]
fn a_forged_unknown_costs_a_handshake_and_no_more() {
    let mut w = Ends::new(0.0, 1);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"before ").unwrap();
    w.run(Duration::from_secs(2));
    w.mobile_events();
    // Whoever listens knows what the association is called.
    let heard = w.recorded.iter().rev().filter(|(_, to, _)| *to == BASE);
    let receiver = heard.filter_map(|(_, _, bytes)| Data::new_checked(bytes).ok()).next().unwrap();
    let mut forged = Unknown { receiver: receiver.header().receiver }.to_bytes();
    let (now, handshakes) = (w.now, w.mobile().mobile_stats().handshakes);
    for _ in 0..100 {
        w.mobile().handle_datagram(now, BASE, &mut forged);
        w.run(Duration::from_millis(1));
    }
    w.mobile().write(id, b"and after").unwrap();
    w.run(Duration::from_millis(900));
    assert_eq!(w.mobile().mobile_stats().handshakes, handshakes + 1);
    assert_eq!(w.mobile_events(), []);
    assert_eq!(read(w.association(), id), b"before and after");
}

#[test]
fn what_a_lost_association_has_received_can_be_taken_out_of_it() {
    let mut w = Ends::new(0.0, 1);
    let stream = w.mobile().open().unwrap();
    w.mobile().write(stream, b"the last words").unwrap();
    w.run(Duration::from_secs(1));
    let id = w.base.associations().next().unwrap().0;
    w.mobile().close(CloseReason::Shutdown);
    let mut room = [0; 2000];
    while let Some(sent) = w.mobiles[0].1.poll_transmit(w.now, &mut room) {
        let from = w.mobiles[0].0;
        w.base.handle_datagram(w.now, from, &mut room[..sent.len]);
    }
    while w.base.poll_transmit(w.now, &mut room).is_some() {}
    assert_eq!(w.base.associations().count(), 0);
    assert_eq!(w.base.poll_event(), Some((id, AssociationEvent::Lost(CloseReason::Shutdown))));
    let state = w.base.association_mut(id).unwrap().detach(stream).unwrap();
    assert_eq!(state.unread, b"the last words");
    assert_eq!(w.base.poll_event(), None);
    assert!(w.base.association_mut(id).is_none());
}

#[test]
fn a_silent_radio_does_not_cost_the_association() {
    let mut w = Ends::new(0.0, 1);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"before ").unwrap();
    w.run(Duration::from_secs(1));
    w.loss = 1.0;
    w.mobile().write(id, b"and after").unwrap();
    w.run(Duration::from_secs(60));
    w.loss = 0.0;
    w.run(Duration::from_secs(3));
    assert_eq!(read(w.association(), id), b"before and after");
    assert_eq!(w.mobile_events(), [AssociationEvent::Up]);
    assert_eq!(w.base_events.len(), 1);
}

#[test]
fn a_restarted_mobile_replaces_its_association_at_the_base() {
    let mut w = Ends::new(0.0, 1);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"a").unwrap();
    w.run(Duration::from_secs(1));
    w.mobiles[0].1 = new_mobile(1, w.now, *keys(0).public());
    w.run(Duration::from_secs(1));
    let reasons: Vec<_> = w.base_events.iter().map(|e| e.1).collect();
    assert!(reasons.contains(&AssociationEvent::Lost(CloseReason::Replaced)), "{reasons:?}");
    assert_eq!(w.base.associations().count(), 1);
}

#[test]
fn a_greeting_is_reported_before_the_association_stands_and_once() {
    let mut w = Ends::new(0.0, 1);
    w.mobile().greet(Time::ZERO, b"on my way");
    let heard = |w: &mut Ends| {
        let calls: Vec<_> = std::iter::from_fn(|| w.base.poll_call()).collect();
        (calls, w.base.associations().count())
    };
    let call = (*keys(1).public(), b"on my way".to_vec());
    let mut at_first = Vec::new();
    for _ in 0..1000 {
        w.run(Duration::from_millis(1));
        let (calls, associations) = heard(&mut w);
        if !calls.is_empty() {
            assert_eq!(associations, 0);
            at_first = calls;
            break;
        }
    }
    assert_eq!(at_first, [call]);
    w.run(Duration::from_secs(2));
    assert!(w.mobile().is_up());
    let now = w.now;
    w.mobile().greet(now, b"too late");
    w.base = new_base(2);
    w.run(Duration::from_secs(60));
    assert_eq!(heard(&mut w).0, [], "a new handshake says nothing of an old matter");
}

#[test]
fn a_close_is_sent_to_the_other_end() {
    let mut w = Ends::new(0.0, 1);
    w.run(Duration::from_secs(1));
    w.mobile().close(CloseReason::Shutdown);
    w.run(Duration::from_millis(500));
    assert_eq!(
        w.base_events.last().map(|e| e.1),
        Some(AssociationEvent::Lost(CloseReason::Shutdown))
    );
    assert_eq!(w.base.associations().count(), 0);
}

#[test]
fn an_unsealed_hop_works_by_explicit_choice_on_both_ends_only() {
    let mut w = Ends::new(0.1, 1);
    let seed = Seed::from_u64(5);
    let config = HopConfig::default();
    w.mobiles[0].1 = Mobile::unsealed(config.clone(), *keys(1).public(), BASE, seed, Time::ZERO);
    w.run(Duration::from_secs(2));
    assert!(!w.mobile().is_up());
    w.base = Base::unsealed(config, Seed::from_u64(6));
    w.run(Duration::from_secs(3));
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"for all to see").unwrap();
    w.run(Duration::from_secs(2));
    assert_eq!(read(w.association(), id), b"for all to see");
}

#[test]
fn eight_mobiles_share_one_carrier() {
    let mut w = Ends::new(0.1, 1);
    w.mobiles.clear();
    for n in 1..=8 {
        w.mobiles.push((n as Addr, new_mobile(n, Time::ZERO, *keys(0).public())));
    }
    w.run(Duration::from_secs(4));
    for (n, mobile) in &mut w.mobiles {
        let id = mobile.open().unwrap();
        mobile.write(id, &[*n as u8; 10]).unwrap();
    }
    w.run(Duration::from_secs(4));
    let ids: Vec<_> =
        w.base.associations().map(|(id, key, a)| (id, *key, a.peer().unwrap())).collect();
    assert_eq!(ids.len(), 8);
    for (id, key, peer) in ids {
        assert_eq!(key, *keys(u64::from(peer)).public());
        let association = w.base.association_mut(id).unwrap();
        assert_eq!(read(association, StreamId(0)), [peer as u8; 10]);
    }
}

/// What an earlier association still has on its way is not taken for the present one's, sealed or
/// not.
#[test]
fn datagrams_of_an_earlier_association_are_refused() {
    let mobile = |n: u64| {
        let claim = *keys(1).public();
        let seed = Seed::from_u64(n).child("mobile");
        Mobile::unsealed(HopConfig::default(), claim, BASE, seed, Time::ZERO)
    };
    let stand = |n: u64, words: usize| {
        let mut world = Ends::new(0.0, n);
        world.mobiles = vec![(1, mobile(n))];
        world.base = Base::unsealed(HopConfig::default(), Seed::from_u64(n));
        let id = world.mobiles[0].1.open().expect("room");
        world.mobiles[0].1.write(id, &vec![7; words]).expect("writable");
        while world.step(Time::from_millis(500)) {}
        assert!(world.mobiles[0].1.is_up());
        world
    };
    // The earlier one's numbers are higher: no replay gives them away.
    let (before, mut present) = (stand(1, 100_000), stand(2, 4));
    let old: Vec<_> = before.recorded.into_iter().filter(|(_, to, _)| *to == 1).collect();
    let taken = present.mobiles[0].1.mobile_stats().refused;
    let data = |bytes: &[u8]| Data::new_checked(bytes).is_ok();
    let number = old.iter().filter(|(_, _, bytes)| data(bytes)).count() as u64;
    assert!(number > 0);
    for (_, _, mut bytes) in old {
        present.mobiles[0].1.handle_datagram(present.now, BASE, &mut bytes);
    }
    assert!(present.mobiles[0].1.mobile_stats().refused >= taken + number);
}

/// The last acknowledgement of a download is all that a mobile sends when its base dies: what comes
/// back of it is enough.
#[test]
fn a_base_whose_host_keeps_saying_that_nobody_is_there_is_given_up_and_found_again() {
    let mut w = Ends::new(0.0, 1);
    w.run(Duration::from_secs(1));
    assert_eq!(w.mobile_events(), [AssociationEvent::Up]);
    w.network = Some(Unreachable::Port);
    let now = w.now;
    w.mobile().handle_unreachable(now, Unreachable::Port);
    w.run(Duration::from_secs(1));
    assert!(w.mobile().is_up(), "one that is started again at once may know the mobile");
    w.run(Duration::from_secs(2));
    assert_eq!(w.mobile_events(), [AssociationEvent::Lost(CloseReason::Unreachable)]);
    let now = w.now;
    assert_eq!(w.mobile().unreachable(now), Some(Unreachable::Port));

    (w.network, w.base) = (None, new_base(2));
    w.run(Duration::from_secs(1));
    assert_eq!(w.mobile_events(), [AssociationEvent::Up]);
    let now = w.now;
    assert_eq!(w.mobile().unreachable(now), None);
}

/// SEC-21
#[test]
fn forged_words_of_the_network_do_not_end_an_association() {
    let mut w = Ends::new(0.0, 1);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"a").unwrap();
    w.run(Duration::from_secs(1));
    let inits = w.mobile().mobile_stats().inits_sent;
    for _ in 0..100 {
        let now = w.now;
        w.mobile().handle_unreachable(now, Unreachable::Port);
        w.run(Duration::from_millis(100));
    }
    assert_eq!(w.mobile_events(), [AssociationEvent::Up]);
    assert!(w.mobile().mobile_stats().inits_sent - inits <= 11, "each costs a handshake");
    w.mobile().write(id, b"b").unwrap();
    w.run(Duration::from_secs(1));
    assert_eq!(read(w.association(), id), b"ab");
}

/// A dead zone behind a router: what the way says ends nothing.
#[test]
fn an_association_outlives_a_path_that_is_reported_as_unreachable() {
    for what in [Unreachable::Network, Unreachable::Host, Unreachable::Prohibited] {
        let mut w = Ends::new(0.0, 1);
        let id = w.mobile().open().unwrap();
        w.run(Duration::from_secs(1));
        w.network = Some(what);
        w.mobile().write(id, b"patience").unwrap();
        w.run(Duration::from_secs(60));
        let now = w.now;
        assert_eq!(w.mobile().unreachable(now), Some(what));
        w.network = None;
        w.run(Duration::from_secs(2));
        assert_eq!(w.mobile_events(), [AssociationEvent::Up], "{what}");
        assert_eq!(read(w.association(), id), b"patience");
    }
}
