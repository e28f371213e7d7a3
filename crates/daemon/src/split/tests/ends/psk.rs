//! Pre-shared keys beside the key pairs.

use lasthop_hop::seal::PresharedKey;

use super::*;

/// SEC-40, SEC-41: with the same pre-shared key a mobile comes in; with another, or one at one end only, it does not,
/// and both ends say what to compare.
#[test]
fn a_mobile_comes_in_with_the_pre_shared_key_that_the_base_has_and_no_other() {
    let psk = |n| PresharedKey::generate(Seed::from_u64(n));
    let none = PresharedKey::default();
    for (ours, theirs) in
        [(psk(1), psk(1)), (psk(1), psk(2)), (psk(1), none.clone()), (none, psk(2))]
    {
        let mut world = OneLoop::new(0);
        let key = *keypair(0).public();
        let mut turn = Turn::new(world.clock.now(), world.clock, &mut world.reactor);
        world.base.set_allowed(&mut turn, &[Allowed { key, psk: theirs.clone() }]);
        let base = *Keypair::generate(Seed::from_u64(3).child("base")).public();
        let mobile = SplitMobile::new(Seal::Noise(keypair(0), base), None, 10, Seed::from_u64(7));
        let mut mobile = mobile.with_psk(ours.clone());
        mobile.set_base(&mut turn.within(1), world.address);
        world.mobiles.push(Some(mobile));
        let mut logged = Vec::new();
        if ours == theirs {
            world.until("it stands", |world| world.associations.len() == 1);
            // Another ends what was made with the one before.
            let mut turn = Turn::new(world.clock.now(), world.clock, &mut world.reactor);
            world.base.set_allowed(&mut turn, &[Allowed { key, psk: theirs }]);
            world.step();
            assert!(world.lost.is_empty());
            let mut turn = Turn::new(world.clock.now(), world.clock, &mut world.reactor);
            world.base.set_allowed(&mut turn, &[Allowed { key, psk: psk(9) }]);
            world.until("it is lost", |world| world.lost.len() == 1);
            continue;
        }
        world.until("both ends say so", |world| {
            let refused = std::iter::from_fn(|| world.base.poll_refused());
            logged.extend(refused.map(|refused| refused.why));
            !logged.is_empty() && world.unreachable.len() >= 3
        });
        assert_eq!((logged, world.associations.len()), (vec![Refusal::Unconfirmed(key)], 0));
        let told = |why: &String| why.contains("compare the pre-shared keys");
        assert!(world.unreachable.iter().all(told), "{:?}", world.unreachable);
    }
}
