//! Another base has an association for each session whose wired halves are here.

use super::*;

/// A base with so many places for each of its peers, of which the first makes an association for each of
/// `count` purposes, all at once.
fn peers(places: usize, count: u16) -> Ends {
    let mut w = Ends::new(0.0, 1);
    w.base = new_base(2).with_many(places);
    w.mobiles = (0..count).map(|n| (2000 + n, purpose(u64::from(n), w.now))).collect();
    w
}

fn purpose(n: u64, now: Time) -> Mobile<Addr> {
    let seed = Seed::from_u64(n).child("purpose");
    let mobile = Mobile::new(HopConfig::default(), keys(1), *keys(0).public(), BASE, seed, now);
    // One program's clock does not stand still.
    mobile.with_wall_clock(now, (1 << 60) + 1000 * n)
}

fn standing(w: &Ends) -> usize {
    w.mobiles.iter().filter(|(_, mobile)| mobile.is_up()).count()
}

fn lost(w: &Ends) -> Vec<(AssociationId, AssociationEvent)> {
    let lost = |event: &&(_, _)| matches!(event.1, AssociationEvent::Lost(_));
    w.base_events.iter().filter(lost).copied().collect()
}

/// SEC-9: whatever number of sessions one base carries on whose wired halves are at another, each has its
/// association, and none ends for another.
#[test]
fn a_thousand_associations_of_one_base_stand_side_by_side() {
    let mut w = peers(4096, 1000);
    let streams: Vec<StreamId> = w.mobiles.iter_mut().map(|m| m.1.open().unwrap()).collect();
    for ((n, mobile), stream) in w.mobiles.iter_mut().zip(&streams) {
        mobile.write(*stream, &n.to_be_bytes()).unwrap();
    }
    // So many handshakes of one source take a while, and their keys are renewed.
    for _ in 0..5 {
        w.run(Duration::from_secs(1));
        w.recorded.clear();
    }
    assert_eq!((standing(&w), lost(&w)), (1000, vec![]), "{:?}", w.base.stats());
    w.run(Duration::from_secs(150));
    assert_eq!((standing(&w), lost(&w)), (1000, vec![]), "{:?}", w.base.stats());
    let ids: Vec<_> = w.base.associations().map(|(id, ..)| id).collect();
    let mut heard: Vec<Vec<u8>> =
        ids.iter().map(|id| read(w.base.association_mut(*id).unwrap(), streams[0])).collect();
    heard.sort();
    let said: Vec<Vec<u8>> = (0..1000_u16).map(|n| (2000 + n).to_be_bytes().to_vec()).collect();
    assert_eq!(heard, said);
}

/// SEC-9: a peer's places are its own. One too many waits until one of them has ended.
#[test]
fn one_association_too_many_waits_for_a_place() {
    let mut w = peers(3, 5);
    let other = new_mobile(2, w.now, *keys(0).public());
    w.mobiles.push((7, other));
    w.run(Duration::from_secs(20));
    assert!(w.mobiles[5].1.is_up(), "another peer has its own");
    assert_eq!((standing(&w), lost(&w)), (4, vec![]));
    assert_eq!(w.base.associations().count(), 4);
    let now = w.now;
    let first = w.mobiles.iter_mut().find(|(_, mobile)| mobile.is_up()).unwrap();
    first.1.close(CloseReason::Shutdown);
    w.run(now.since(Time::ZERO) + Duration::from_secs(20));
    assert_eq!((lost(&w).len(), w.base.associations().count()), (1, 4));
}

/// After a restart of its base a whole fleet asks within a moment. None takes the place of another that was answered and
/// is about to confirm.
#[test]
fn whoever_was_answered_has_a_place_until_it_can_confirm() {
    const FLEET: u64 = 400;
    let config = HopConfig::default();
    let allowed: Vec<PublicKey> = (1..=FLEET).map(|n| *keys(n).public()).collect();
    let mut base = Base::<Addr, Srp>::new(config, keys(0), allowed, Seed::from_u64(2));
    let mut out = [0; 2000];
    // As fast as handshakes are read of whoever shows no cookie.
    let at = |n| Time::from_micros(10_100 * n);
    let ask = |n| {
        let mut mobile = new_mobile::<Srp>(n, at(n), *keys(0).public());
        let init = mobile.poll_transmit(at(n), &mut out).unwrap();
        base.handle_datagram(at(n), n as Addr, &mut out[..init.len]);
        let reply = base.poll_transmit(at(n), &mut out).unwrap();
        (mobile, reply.to, out[..reply.len].to_vec())
    };
    let fleet: Vec<_> = (1..=FLEET).map(ask).collect();
    assert_eq!(base.unconfirmed(), 400);
    let now = at(FLEET);
    for (mut mobile, address, mut reply) in fleet {
        mobile.handle_datagram(now, BASE, &mut reply);
        let ping = mobile.poll_transmit(now, &mut out).unwrap();
        base.handle_datagram(now, address, &mut out[..ping.len]);
    }
    assert_eq!((base.associations().count(), base.unconfirmed()), (400, 0));
}
