//! Pre-shared keys beside the key pairs.

use super::*;
use crate::seal::{Allowed, PresharedKey};

fn psk(n: u64) -> PresharedKey {
    PresharedKey::generate(Seed::from_u64(n))
}

/// A mobile and its base, of which each has its pre-shared key, or none.
fn ends<T: Transport<Config: Default>>(mobile: Option<u64>, base: Option<u64>) -> Ends<T> {
    let mut w = Ends::over(0.0, 1);
    if let Some(n) = mobile {
        w.mobiles[0].1 = new_mobile(1, w.now, *keys(0).public()).with_psk(w.now, psk(n));
    }
    w.base.set_allowed(&[allowed(1, base), allowed(2, None)]);
    w
}

fn allowed(mobile: u64, shared: Option<u64>) -> Allowed {
    Allowed { key: *keys(mobile).public(), psk: shared.map(psk).unwrap_or_default() }
}

/// SEC-40: what both ends share lets the association stand, also when its keys are renewed.
#[test]
fn with_the_same_pre_shared_key_an_association_stands_and_its_keys_are_renewed() {
    fn check<T: Transport<Config: Default>>() {
        let mut w = ends::<T>(Some(1), Some(1));
        let id = w.mobile().open().unwrap();
        w.mobile().write(id, b"words").unwrap();
        for _ in 0..5 {
            w.run(Duration::from_secs(60));
            w.recorded.clear();
        }
        assert_eq!(read(w.association(), id), b"words");
        assert_eq!(w.mobile_events(), [AssociationEvent::Up]);
        assert!(w.base.stats().handshakes >= 3 && w.mobile().unopened() == 0);
    }
    check::<Srp>();
    check::<crate::mobile_tcp::MobileTcp>();
}

/// SEC-41: with others than the other end has there is none, the mobile knows why, and others come in.
#[test]
fn with_another_pre_shared_key_or_one_at_one_end_only_there_is_no_association() {
    for (mobile, base) in [(Some(1), Some(2)), (Some(1), None), (None, Some(1))] {
        let mut w = ends::<Srp>(mobile, base);
        w.mobiles.push((2, new_mobile(2, Time::ZERO, *keys(0).public())));
        w.run(Duration::from_secs(60));
        assert!(!w.mobile().is_up(), "{mobile:?} {base:?}");
        assert!(w.mobile().unopened() > 0, "{mobile:?} {base:?}");
        let here: Vec<_> = w.base.associations().map(|(_, mobile, _)| *mobile).collect();
        assert_eq!(here, [*keys(2).public()], "{mobile:?} {base:?}");
        // It is answered as seldom as anybody who does not confirm: a candidate lives for five seconds.
        assert!(w.base.stats().handshakes <= 14, "{:?}", w.base.stats());
        assert!(w.base.unconfirmed() <= 1);
        // The operator hears of it, and not of the other.
        let refused: Vec<_> = core::iter::from_fn(|| w.base.poll_refused()).collect();
        assert!(!refused.is_empty() && refused.len() <= 2, "{refused:?}");
        let why = Refusal::Unconfirmed(*keys(1).public());
        assert!(refused.iter().all(|refused| refused.why == why), "{refused:?}");
    }
}

/// SEC-42: another pre-shared key ends what was made with the one before, and the mobile comes with it.
#[test]
fn a_pre_shared_key_that_is_changed_ends_the_association_and_the_new_one_makes_another() {
    let mut w = ends::<Srp>(Some(1), Some(1));
    w.mobiles.push((2, new_mobile(2, Time::ZERO, *keys(0).public())));
    w.run(Duration::from_secs(1));
    assert_eq!(w.base.associations().count(), 2);
    // Nothing is another than before.
    w.base.set_allowed(&[allowed(2, None), allowed(1, Some(1))]);
    w.run(Duration::from_secs(1));
    assert_eq!((w.base.associations().count(), w.base_events.len()), (2, 2));
    w.base.set_allowed(&[allowed(1, Some(2)), allowed(2, None)]);
    w.run(Duration::from_secs(30));
    let lost = w.base_events.last().map(|e| e.1);
    assert_eq!(lost, Some(AssociationEvent::Lost(CloseReason::Revoked)));
    let here: Vec<_> = w.base.associations().map(|(_, mobile, _)| *mobile).collect();
    assert_eq!(here, [*keys(2).public()]);
    assert!(w.mobile().unopened() > 0);
    w.mobiles[0].1 = new_mobile(1, w.now, *keys(0).public()).with_psk(w.now, psk(2));
    w.run(Duration::from_secs(1));
    assert!(w.mobile().is_up());
    assert_eq!(w.base.associations().count(), 2);
}
