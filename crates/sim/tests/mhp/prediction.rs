//! Handoffs that were foreseen.

use lasthop_sim::schemes::HopKind;
use lasthop_units::{Duration, Rate};

use crate::world::*;

/// A download whose base holds a good deal, between bases with a slow link.
fn travel(hop: &HopKind, warning: Option<(u64, usize)>) -> (Site, Duration) {
    let mut plan = Plan::new(hop.clone());
    plan.campus = link(Rate::from_kbps(500), ms(1));
    plan.wired = link(Rate::from_kbps(400), ms(20));
    plan.bases = 3;
    let mut world = plan.build();
    world.deal(at(0), world.mobiles[0], world.fixed, Deal::new(80, 100, 150_000));
    if let Some((lead, to)) = warning {
        world.warn(0, at(3000 - lead), ms(lead), to);
    }
    world.hand_over(0, at(3000), ms(20), 1);
    world.run_to_the_end(at(300_000));
    world.expect_whole(1);
    let latency = world.mobile(0).handoffs()[0].latency().unwrap();
    (world, latency)
}

/// MOB-39, MOB-40, MOB-44: what went ahead need not go at the handoff, which takes less time.
#[test]
fn a_handoff_that_was_foreseen_takes_less_time() {
    for hop in schemes() {
        let (_, unforeseen) = travel(&hop, None);
        let (_, foreseen) = travel(&hop, Some((900, 1)));
        assert!(foreseen * 5 < unforeseen * 4, "{}: {foreseen:?}, {unforeseen:?}", hop.scheme());
    }
}

/// MOB-43: with a wrong candidate the handoff is as one that was not foreseen, but for what the copy
/// took from the link between the bases.
#[test]
fn a_wrong_candidate_is_no_worse_than_none() {
    for hop in schemes() {
        let (_, unforeseen) = travel(&hop, None);
        let (_, wrong) = travel(&hop, Some((900, 2)));
        assert!(wrong < unforeseen * 2, "{}: {wrong:?}, {unforeseen:?}", hop.scheme());
    }
}
