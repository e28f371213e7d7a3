use lasthop_units::Seed;
use proptest::prelude::*;

use super::*;
use std::println;

const EVERY: Duration = Duration::from_millis(100);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn predictor(config: SignalConfig) -> SignalPredictor {
    SignalPredictor::new(config).unwrap()
}

/// Runs whatever timer is due until `now`.
fn pass(it: &mut SignalPredictor, until: Time, events: &mut Vec<(Time, LinkEvent)>) {
    while let Some(at) = it.next_timeout().filter(|at| *at <= until) {
        it.handle_timeout(at);
        events.extend(it.poll_event().map(|event| (at, event)));
    }
}

/// What a predictor says of a level that is looked at `every` so often.
fn run_every(
    config: SignalConfig,
    every: Duration,
    lasting: Duration,
    mut level: impl FnMut(f64) -> f64,
) -> Vec<(Time, LinkEvent)> {
    let mut it = predictor(config);
    let (mut events, mut now) = (Vec::new(), Time::ZERO);
    while now < Time::ZERO + lasting {
        pass(&mut it, now, &mut events);
        // Receivers tell whole decibels.
        let dbm = libm::round(level(now.as_secs_f64()));
        it.handle_sample(now, Dbm::new(dbm).unwrap());
        events.extend(it.poll_event().map(|event| (now, event)));
        now += every;
    }
    events
}

fn run(lasting: Duration, level: impl FnMut(f64) -> f64) -> Vec<(Time, LinkEvent)> {
    run_every(SignalConfig::default(), EVERY, lasting, level)
}

fn warnings(events: &[(Time, LinkEvent)]) -> Vec<Time> {
    let is_warning = |event: &LinkEvent| matches!(event, LinkEvent::Imminent { .. });
    events.iter().filter(|(_, event)| is_warning(event)).map(|(at, _)| *at).collect()
}

/// Good for two seconds, then falling by `slope` dB each second.
fn fade(from: f64, slope: f64) -> impl Fn(f64) -> f64 {
    move |t| from - slope * (t - 2.0).max(0.0)
}

/// When such a level crosses the default threshold.
fn crossing(from: f64, slope: f64) -> f64 {
    2.0 + (from + 82.0) / slope
}

/// Noise with a density that is even from -4 to 4 dB.
fn noise(seed: u64) -> impl FnMut() -> f64 {
    let mut random = Seed::from_u64(seed).stream("signal");
    move || random.uniform() * 8.0 - 4.0
}

/// LLT-2, FRZ-1: a steady fade is foretold about a horizon ahead, however steep, whatever the
/// interval of the samples, and the lead that is reported is when it happens.
#[test]
fn a_steady_fade_warns_in_time() {
    for slope in [2.0, 5.0, 10.0, 15.0] {
        for every in [50, 100, 250] {
            let config = SignalConfig::default();
            let when = crossing(-55.0, slope);
            let lasting = Duration::from_secs_f64(when + 0.2);
            let events = run_every(config, ms(every), lasting, fade(-55.0, slope));
            let [(at, LinkEvent::Imminent { lead })] = events[..] else {
                panic!("{slope} dB/s every {every} ms: {events:?}")
            };
            let ahead = when - at.as_secs_f64();
            // Whole decibels are half of one wrong, and what happens between samples is seen later.
            let tolerance = 0.1 + 0.5 / slope + every as f64 / 1e3;
            assert!((ahead - 0.5).abs() < tolerance, "{slope} dB/s every {every} ms: {ahead} s");
            assert!(lead <= config.horizon);
            let error = (lead.as_secs_f64() - ahead).abs();
            assert!(error < tolerance, "{slope} dB/s every {every} ms: wrong by {error} s");
        }
    }
}

/// FRZ-5: the lead is a parameter.
#[test]
fn the_horizon_says_how_far_ahead_it_warns() {
    let ahead = |horizon| {
        let config = SignalConfig { horizon: ms(horizon), ..SignalConfig::default() };
        let when = crossing(-55.0, 5.0);
        let events = run_every(config, EVERY, Duration::from_secs_f64(when), fade(-55.0, 5.0));
        when - warnings(&events)[0].as_secs_f64()
    };
    for horizon in [200, 500, 1000, 2000] {
        let (wanted, got) = (horizon as f64 / 1e3, ahead(horizon));
        assert!((got - wanted).abs() < 0.25, "{horizon} ms: {got} s");
    }
}

/// A fade that is buried in noise is foretold, too, but not on the tenth of a second.
#[test]
fn a_noisy_fade_warns_before_the_link_is_lost() {
    for (slope, least) in [(3.0, 80), (5.0, 80), (10.0, 85), (20.0, 95)] {
        let when = crossing(-57.0, slope);
        let mut leads: Vec<f64> = (0..100)
            .map(|seed| {
                let (level, mut noise) = (fade(-57.0, slope), noise(seed));
                let lasting = Duration::from_secs_f64(when + 1.0);
                let events = run(lasting, |t| level(t) + noise());
                warnings(&events).first().map_or(-1.0, |at| when - at.as_secs_f64())
            })
            .collect();
        leads.sort_by(f64::total_cmp);
        let (early, late) = (leads[95], leads[5]);
        println!("{slope} dB/s, noise of 4 dB: warned {late:.2} to {early:.2} s ahead");
        let ahead = leads.iter().filter(|lead| **lead > 0.0).count();
        assert!(ahead >= least, "{slope} dB/s: {ahead} of 100 were warned before");
        assert!(late > -0.5 && early < 3.0, "{slope} dB/s: {late} to {early} s");
    }
}

/// Warnings in an hour of a level that stays `margin` dB above the threshold, with noise of 4 dB.
fn false_alarms(margin: f64) -> usize {
    let mut noise = noise(76);
    let events = run(Duration::from_secs(3600), |_| -82.0 + margin + noise());
    warnings(&events).len()
}

/// LLT-9: false triggers are rare.
#[test]
fn noise_around_a_good_level_does_not_warn() {
    for margin in [20.0, 12.0, 10.0, 8.0, 6.0] {
        println!("{margin} dB above the threshold: {} warnings an hour", false_alarms(margin));
    }
    assert_eq!(false_alarms(12.0), 0);
    assert!(false_alarms(8.0) <= 2);
}

/// Receivers report deep and short outliers: two in five samples of a second are 25 dB too low.
#[test]
fn short_deep_dips_do_not_warn() {
    let events = run(Duration::from_secs(600), |t| {
        let tenths = libm::round(t * 10.0) as u64 % 10;
        if tenths < 2 { -85.0 } else { -60.0 }
    });
    assert_eq!(events, []);
}

/// LLT-9: what was foretold and does not come is taken back.
#[test]
fn a_dip_that_recovers_is_taken_back() {
    let dip = |t: f64| -60.0 - 12.0 * (2.0 - (t - 5.0).abs()).max(0.0);
    // The bottom, -84 dBm, is reached after 5 s, and left at once.
    let events = run(Duration::from_secs(20), dip);
    let [(warned, LinkEvent::Imminent { .. }), (back, LinkEvent::Up)] = events[..] else {
        panic!("{events:?}")
    };
    assert!(warned < Time::from_secs(5), "{warned}");
    assert!(back > Time::from_secs(5) && back < Time::from_millis(6500), "{back}");
}

/// A level that stays near the threshold is reported once, not with every sample.
#[test]
fn a_link_at_the_edge_is_told_once() {
    let mut noise = noise(1);
    let level = |t: f64| -60.0 - (2.0 * t).min(21.5);
    let events = run(Duration::from_secs(300), |t| level(t) + noise() / 4.0);
    assert_eq!(warnings(&events).len(), 1, "{events:?}");
}

/// What works below the threshold was not lost there; but it may be, further down.
#[test]
fn a_warning_that_came_to_nothing_is_repeated_further_down() {
    let level = |t: f64| match t {
        ..=10.0 => -70.0 - 1.4 * t,
        ..=60.0 => -84.0,
        _ => -84.0 - (t - 60.0),
    };
    let events = run(Duration::from_secs(64), level);
    assert_eq!(warnings(&events).len(), 2, "{events:?}");
    let again = warnings(&events)[1];
    assert!(again > Time::from_secs(60), "{again}");
}

#[test]
fn a_link_that_is_weak_from_the_start_is_no_warning() {
    assert_eq!(run(Duration::from_secs(30), |_| -86.0), []);
    // Nor is its recovery news; what comes after that is.
    let events =
        run(Duration::from_secs(39), |t| -86.0 + 2.0 * if t < 20.0 { t } else { 40.0 - t });
    let [(_, LinkEvent::Imminent { .. })] = events[..] else { panic!("{events:?}") };
}

/// LNK-14: a source that falls silent is no warning, and its earlier samples are
/// removed.
#[test]
fn silence_is_no_warning() {
    let mut it = predictor(SignalConfig::default());
    let mut events = Vec::new();
    for n in 0..40 {
        it.handle_sample(Time::ZERO + EVERY * n, Dbm::new(-60.0 - f64::from(n) / 4.0).unwrap());
    }
    assert!(it.level_dbm().is_some_and(|level| (level + 69.75).abs() < 0.5));
    assert!(it.slope_db_per_s().is_some_and(|slope| (slope + 2.5).abs() < 0.2));
    pass(&mut it, Time::from_secs(3600), &mut events);
    assert_eq!(events, []);
    assert_eq!((it.level_dbm(), it.next_timeout()), (None, None));
    // A sample from another place begins anew: it makes no slope with those from before.
    it.handle_sample(Time::from_secs(3600), Dbm::new(-81.0).unwrap());
    assert_eq!((it.level_dbm(), it.poll_event()), (None, None));
}

/// Between the samples of a slow source the line goes on.
#[test]
fn a_slow_source_warns_between_its_samples() {
    let config = SignalConfig { silence: Duration::from_secs(20), ..SignalConfig::default() };
    let level = |t: f64| -60.0 - t;
    let every = Duration::from_secs(5);
    let events = run_every(config, every, Duration::from_secs(30), level);
    let [(at, LinkEvent::Imminent { .. })] = events[..] else { panic!("{events:?}") };
    assert!(at > Time::from_secs(20) && at < Time::from_secs(22), "{at}: at 22 s it is lost");
    assert_ne!(at.as_nanos() % 5_000_000_000, 0, "{at}: no sample came then");
}

fn faded() -> SignalPredictor {
    let mut it = predictor(SignalConfig::default());
    for n in 0..=40 {
        it.handle_sample(Time::ZERO + EVERY * n, Dbm::new(-62.0 - f64::from(n) / 2.0).unwrap());
    }
    assert!(matches!(it.poll_event(), Some(LinkEvent::Imminent { .. })));
    it
}

/// A station that roams is with another one, whose signal is another.
#[test]
fn roaming_takes_a_warning_back_and_begins_anew() {
    let mut it = faded();
    it.handle_attached();
    assert_eq!((it.poll_event(), it.level_dbm()), (Some(LinkEvent::Up), None));
    it.handle_attached();
    assert_eq!(it.poll_event(), None, "nothing was said since");
    it.handle_sample(Time::from_secs(5), Dbm::new(-50.0).unwrap());
    assert_eq!((it.poll_event(), it.level_dbm()), (None, None));
}

#[test]
fn a_link_that_is_lost_needs_no_warning() {
    let mut it = faded();
    it.handle_detached();
    assert_eq!((it.poll_event(), it.next_timeout()), (None, None));
    it.handle_attached();
    assert_eq!(it.poll_event(), None, "who says that it is back is another");
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let refused = |config| SignalPredictor::new(config).map(|_| ()).unwrap_err();
    let good = SignalConfig::default();
    let zero = Duration::ZERO;
    assert_eq!(refused(SignalConfig { window: zero, ..good }), SignalError::Zero("window"));
    assert_eq!(refused(SignalConfig { smoothing: zero, ..good }), SignalError::Zero("smoothing"));
    assert_eq!(refused(SignalConfig { silence: zero, ..good }), SignalError::Zero("silence"));
    assert_eq!(
        refused(SignalConfig { hysteresis_db: -1.0, ..good }),
        SignalError::Hysteresis(-1.0)
    );
    for samples_min in [0, 2, 33] {
        let config = SignalConfig { samples_min, ..good };
        assert_eq!(refused(config), SignalError::Samples(samples_min));
    }
    assert_eq!(Dbm::new(f64::NAN), None);
    assert_eq!((Dbm::new(-201.0), Dbm::new(101.0)), (None, None));
    assert_eq!(Dbm::new(-67.5).map(Dbm::get), Some(-67.5));
}

#[test]
fn a_median_lies_in_the_middle_of_the_weight() {
    let median = |values: &[(f64, f64)]| weighted_median(&mut values.to_vec());
    assert_eq!(median(&[]), None);
    assert_eq!(median(&[(3.0, 1.0), (1.0, 1.0), (2.0, 1.0)]), Some(2.0));
    assert_eq!(median(&[(1.0, 1.0), (4.0, 1.0)]), Some(2.5));
    assert_eq!(median(&[(9.0, 5.0), (1.0, 1.0), (2.0, 1.0)]), Some(9.0));
}

/// A trace as a source may give it: irregular, of any level.
fn trace() -> impl Strategy<Value = Vec<(u64, f64)>> {
    prop::collection::vec((0..4000_u64, -200.0..100.0), 1..200)
}

fn play(it: &mut SignalPredictor, offset: Duration, trace: &[(u64, f64)]) -> Vec<(u64, LinkEvent)> {
    let (mut now, mut events) = (Time::ZERO + offset, Vec::new());
    for (gap, dbm) in trace {
        now += ms(*gap);
        pass(it, now, &mut events);
        it.handle_sample(now, Dbm::new(*dbm).unwrap());
        events.extend(it.poll_event().map(|event| (now, event)));
        assert!(it.samples.len() <= SAMPLES_MAX);
        assert!(it.scratch.capacity() <= PAIRS_MAX, "nothing is allocated for a sample");
    }
    events.into_iter().map(|(at, event)| ((at - offset).as_nanos(), event)).collect()
}

proptest! {
    /// Nothing is taken back that was not reported, every lead is within the horizon, and every timer
    /// that is run is done with.
    #[test]
    fn what_it_says_is_in_order(trace in trace()) {
        let config = SignalConfig::default();
        let mut told = false;
        for (_, event) in play(&mut predictor(config), Duration::ZERO, &trace) {
            match event {
                LinkEvent::Imminent { lead } => {
                    prop_assert!(lead <= config.horizon);
                    told = true;
                }
                LinkEvent::Up => {
                    prop_assert!(told);
                    told = false;
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }

    /// Only differences of time matter.
    #[test]
    fn the_same_later_is_the_same(trace in trace(), offset in 0..1_000_000_000_u64) {
        let at_once = play(&mut predictor(SignalConfig::default()), Duration::ZERO, &trace);
        let later = play(&mut predictor(SignalConfig::default()), ms(offset), &trace);
        prop_assert_eq!(at_once, later);
    }

    /// A signal that only grows is no reason to warn, once it is above the threshold.
    #[test]
    fn a_growing_signal_never_warns(
        steps in prop::collection::vec((1..500_u64, 0.0..3.0), 1..100),
    ) {
        let mut dbm = -81.0;
        let trace: Vec<_> = steps
            .into_iter()
            .map(|(gap, step): (u64, f64)| {
                dbm = (dbm + step).min(100.0);
                (gap, dbm)
            })
            .collect();
        prop_assert_eq!(play(&mut predictor(SignalConfig::default()), Duration::ZERO, &trace), []);
    }

    /// Time that runs backwards, too, and times at the end of all times.
    #[test]
    fn no_time_breaks_it(times in prop::collection::vec((any::<u64>(), -200.0..100.0), 1..100)) {
        let mut it = predictor(SignalConfig::default());
        for (at, dbm) in times {
            let now = Time::from_nanos(at);
            it.handle_timeout(now);
            it.handle_sample(now, Dbm::new(dbm).unwrap());
            let _ = (it.poll_event(), it.next_timeout());
        }
    }
}
