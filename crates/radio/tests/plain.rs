//! A plain link and one that goes the general way do the same.

use lasthop_radio::{
    Errors, Link, LinkConfig, LinkStats, Loss, Pacing, Pause, QueueLimit, RateStep, RateSteps,
};
use lasthop_units::{Bytes, Duration, Rate, Seed, Time};
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Call {
    Push(u16),
    Marks(u16),
    Pop,
    PopPacket,
    Pause(u16),
    Resume,
    Rate(u16),
    Steps(u16),
    Stats,
    Queued,
    ResetStats,
    IsSilent,
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        12 => (20u16..1600).prop_map(Call::Push),
        4 => (20u16..1600).prop_map(Call::Marks),
        6 => Just(Call::Pop),
        4 => Just(Call::PopPacket),
        1 => (0u16..50).prop_map(Call::Pause),
        1 => Just(Call::Resume),
        1 => (0u16..20).prop_map(Call::Rate),
        1 => (1u16..20).prop_map(Call::Steps),
        1 => Just(Call::Stats),
        1 => Just(Call::Queued),
        1 => Just(Call::ResetStats),
        1 => Just(Call::IsSilent),
    ]
}

fn config() -> impl Strategy<Value = LinkConfig> {
    let queue = prop_oneof![
        (0u32..6).prop_map(QueueLimit::Packets),
        (0u64..6000).prop_map(|n| QueueLimit::Bytes(Bytes::new(n))),
        (0u64..30).prop_map(|ms| QueueLimit::Time(Duration::from_millis(ms))),
    ];
    let rate = prop_oneof![(0u64..20).prop_map(Rate::from_mbps), Just(Rate::UNLIMITED)];
    let pause = (0u64..60, 0u64..20).prop_map(|(start, length)| {
        Pause::once(Duration::from_millis(start), Duration::from_millis(length))
    });
    (queue, rate, 0u64..30, 0u64..3, any::<bool>(), vec(pause, 0..2), 1u32..12).prop_map(
        |(queue, rate, delay, mac, mac_occupies, pauses, capacity)| LinkConfig {
            pacing: Pacing::Rate(rate),
            delay: Duration::from_millis(delay),
            queue,
            mtu: 1500,
            mac_delay: Duration::from_millis(mac),
            mac_occupies,
            pauses,
            capacity,
            ecn_mark: halved(queue),
            ..LinkConfig::default()
        },
    )
}

/// A threshold below the queue's limit, if there is one.
fn halved(queue: QueueLimit) -> Option<QueueLimit> {
    match queue {
        QueueLimit::Packets(n) => (n > 0).then_some(QueueLimit::Packets(n / 2)),
        QueueLimit::Bytes(n) => {
            (n > Bytes::ZERO).then(|| QueueLimit::Bytes(Bytes::new(n.get() / 2)))
        }
        QueueLimit::Time(t) => (t > Duration::ZERO).then_some(QueueLimit::Time(t / 2)),
    }
}

#[derive(PartialEq, Debug)]
enum Answer {
    Refused(lasthop_radio::Refusal),
    Delivered(Vec<lasthop_radio::Delivery<u32>>),
    Packet(Option<(u32, bool)>),
    Stats(Box<LinkStats>),
    Queued(lasthop_radio::Count),
    Silent(bool),
    Marks(bool),
    Nothing,
}

fn do_call(link: &mut Link<u32>, now: Time, number: u32, call: Call) -> Answer {
    let ms = |n: u16| Duration::from_millis(u64::from(n));
    let rate = |n: u16| Rate::from_kbps(u64::from(n) * 1000);
    match call {
        Call::Push(size) => match link.push(now, Bytes::new(u64::from(size)), number) {
            Ok(()) => return Answer::Nothing,
            Err(refused) => return Answer::Refused(refused.reason),
        },
        Call::Marks(size) => {
            return Answer::Marks(link.marks(now, Bytes::new(u64::from(size))));
        }
        Call::Pop => {
            return Answer::Delivered(core::iter::from_fn(|| link.pop(now)).collect());
        }
        Call::PopPacket => {
            let (packet, next) = link.pop_packet(now);
            assert_eq!(link.next_time().unwrap_or(Time::NEVER), next);
            return Answer::Packet(packet);
        }
        Call::Stats => return Answer::Stats(Box::new(link.stats(now))),
        Call::Queued => return Answer::Queued(link.queued(now)),
        Call::IsSilent => return Answer::Silent(link.is_silent(now)),
        Call::Pause(n) => link.pause(now, ms(n)),
        Call::Resume => link.resume(now),
        Call::Rate(n) => link.set_rate(now, rate(n)),
        Call::Steps(n) => {
            let steps = vec![RateStep { at: ms(n), rate: rate(n + 1) }];
            let steps = RateSteps { initial: rate(n), steps, period: None };
            link.set_pacing(now, &Pacing::Steps(steps));
        }
        Call::ResetStats => link.reset_stats(now),
    }
    Answer::Nothing
}

proptest! {
    /// A loss process that never hits keeps a link from being plain, and must change nothing.
    #[test]
    fn a_plain_link_does_what_the_general_one_does(
        config in config(),
        calls in vec((0u64..4000, call()), 1..120),
    ) {
        let harmless = vec![Loss::lose(Errors::Uniform(0.0))];
        let general = LinkConfig { losses: harmless, ..config.clone() };
        let seed = Seed::from_u64(1);
        let mut plain = Link::new(&config, seed, Time::ZERO).expect("a link");
        let mut general = Link::new(&general, seed, Time::ZERO).expect("a link");
        let mut now = Time::ZERO;
        for (number, (wait, call)) in calls.into_iter().enumerate() {
            now += Duration::from_micros(wait);
            let a = do_call(&mut plain, now, number as u32, call);
            let b = do_call(&mut general, now, number as u32, call);
            prop_assert_eq!(a, b);
            prop_assert_eq!(plain.next_time(), general.next_time());
        }
        now += Duration::from_secs(10);
        let a = do_call(&mut plain, now, 0, Call::Pop);
        prop_assert_eq!(a, do_call(&mut general, now, 0, Call::Pop));
        prop_assert_eq!(plain.stats(now), general.stats(now));
    }
}
