//! Link events that are missed, doubled, late and out of order.

use lasthop_tcp::mobility::{Atcp, FastRetransmit, Freeze, Greet, LinkLayerFreeze, Thaw};
use lasthop_tcp::{Algorithm, Config, Mobility};
use lasthop_units::{Duration, LinkEvent, Time};
use proptest::prelude::*;

use crate::world::{Pair, Sender, at};

fn thaw() -> impl Strategy<Value = Thaw> {
    prop_oneof![Just(Thaw::Up), Just(Thaw::Complete)]
}

fn scheme() -> impl Strategy<Value = Mobility> {
    let fast = (thaw(), 0u8..12, any::<bool>()).prop_map(|(thaw, copies, sender)| {
        Mobility::FastRetransmit(FastRetransmit { thaw, copies, sender })
    });
    let freeze = (thaw(), 0u8..4, 0u8..4, 0u64..3000).prop_map(|(thaw, before, after, bound)| {
        Mobility::Freeze(Freeze {
            thaw,
            copies_before: before,
            acks_after: after,
            bound: Duration::from_millis(bound),
        })
    });
    let trigger =
        (thaw(), 0u8..12, 0u8..4, any::<bool>()).prop_map(|(thaw, before, after, sender)| {
            Mobility::LinkLayerFreeze(LinkLayerFreeze {
                thaw,
                copies_before: before,
                acks_after: after,
                acks_unforeseen: after,
                sender,
                ..LinkLayerFreeze::default()
            })
        });
    let atcp = (thaw(), 0u64..700).prop_map(|(thaw, delay)| {
        let delay = Duration::from_millis(delay);
        Mobility::Atcp(Atcp { thaw, delay, ..Atcp::default() })
    });
    let greet = thaw().prop_map(|thaw| Mobility::Greet(Greet { thaw, ..Greet::default() }));
    prop_oneof![fast, freeze, trigger, atcp, greet]
}

fn event() -> impl Strategy<Value = LinkEvent> {
    let lead = |ms| LinkEvent::Imminent { lead: Duration::from_millis(ms) };
    prop_oneof![
        Just(LinkEvent::Up),
        Just(LinkEvent::Down),
        Just(LinkEvent::Complete),
        (0u64..5000).prop_map(lead),
    ]
}

fn config() -> impl Strategy<Value = Config> {
    let preset =
        prop_oneof![Just(Config::bsd_1990s()), Just(Config::ns2()), Just(Config::modern())];
    let algorithm = prop_oneof![
        Just(Algorithm::Tahoe),
        Just(Algorithm::Reno),
        Just(Algorithm::NewReno),
        Just(Algorithm::Sack),
        Just(Algorithm::Cubic),
    ];
    (preset, algorithm).prop_map(|(preset, algorithm)| {
        let mut config = Config { algorithm, ..preset };
        config.rto.give_up_after = None;
        config
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// FRZ, LLT, ATS, ATR, 3DA, MTC: whatever the mobile hears, true or not, the transfer ends within
    /// a bounded time, its acknowledgement numbers never go back, and no byte is made up.
    #[test]
    fn no_sequence_of_events_stops_a_transfer(
        (mobility, mobile, fixed) in (scheme(), config(), config()),
        upwards in any::<bool>(),
        seed in any::<u64>(),
        loss in 0.0..0.1f64,
        cuts in prop::collection::vec((0u64..5000, 1u64..2000), 0..4),
        events in prop::collection::vec((0u64..3000, event()), 0..12),
    ) {
        let mobile = Config { mobility, ..mobile };
        let sender = if upwards { Sender::Mobile } else { Sender::Fixed };
        let mut w = Pair::new(mobile, fixed, sender, 200_000).with_loss(loss, seed);
        for (from, length) in cuts {
            w.cuts.push((at(from), at(from + length)));
        }
        w.events = events.into_iter().map(|(ms, event)| (at(ms), event)).collect();
        w.events.sort_by_key(|(at, _)| *at);
        prop_assert!(w.finish(Time::from_secs(1200)), "{:?} | {:?}", w.mobile, w.fixed);
        let acks: Vec<_> = w.sent.iter().map(|s| s.segment.ack).collect();
        prop_assert!(acks.windows(2).all(|pair| pair[1].ahead_of(pair[0]) >= 0));
    }
}
