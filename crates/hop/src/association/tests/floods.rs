//! Handshakes that nobody means: forged, recorded, and an allowed mobile's own.

use super::*;

/// Where floods come from: nobody there answers.
const FLOOD: Addr = 666;

/// The inits of one mobile, each another.
fn inits(key: u64, count: u64, wall_clock: u64) -> Vec<Vec<u8>> {
    let mut out = [0; 2000];
    let init = |n| {
        let seed = Seed::from_u64(n).child("flood");
        let (config, base) = (HopConfig::default(), *keys(0).public());
        let mobile: Mobile<Addr> = Mobile::new(config, keys(key), base, BASE, seed, Time::ZERO);
        let mut mobile = mobile.with_wall_clock(Time::ZERO, wall_clock);
        let sent = mobile.poll_transmit(Time::ZERO, &mut out).unwrap();
        out[..sent.len].to_vec()
    };
    (0..count).map(init).collect()
}

/// How long a mobile needs while `per_second` of these come, over and over.
fn time_until_up(flood: &[Vec<u8>], per_second: u64, from: impl Fn(usize) -> Addr) -> Duration {
    let mut w = Ends::new(0.0, 1);
    w.mobiles[0].0 = 5;
    let every = Duration::from_secs(1) / per_second as u32;
    let mut sent = 0;
    // The flood has begun long before.
    let genuine = core::mem::take(&mut w.mobiles);
    let mut began = None;
    while w.now < Time::ZERO + Duration::from_secs(9) {
        if began.is_none() && w.now >= Time::ZERO + Duration::from_secs(4) {
            began = Some(w.now);
            w.mobiles.push((5, new_mobile(1, w.now, *keys(0).public())));
        }
        w.base.handle_datagram(w.now, from(sent), &mut flood[sent % flood.len()].clone());
        sent += 1;
        w.run(every);
        w.recorded.clear();
        assert!(w.base.links.handshakes.candidates.len() <= 256);
        assert!(w.base.links.handshakes.replies.len() <= 256);
        if w.mobiles.first().is_some_and(|(_, mobile)| mobile.is_up()) {
            drop(genuine);
            return w.now.since(began.unwrap());
        }
    }
    panic!("never up: {:?}", w.base.stats());
}

/// SEC-1: forged, recorded and insiders' handshakes, in any number, keep no mobile out.
#[test]
fn a_mobile_is_up_at_once_whatever_floods_the_base() {
    let recorded = inits(1, 238, 1 << 50);
    let insider = inits(2, 400, u64::MAX / 2);
    let strangers = inits(77, 400, 1 << 60);
    for (name, flood) in [("recorded", recorded), ("insider", insider), ("strangers", strangers)] {
        for per_second in [1_000, 10_000] {
            let one = time_until_up(&flood, per_second, |_| FLOOD);
            let many = time_until_up(&flood, per_second, |n| 1001 + (n % 5000) as Addr);
            for took in [one, many] {
                assert!(took < Duration::from_millis(200), "{name}, {per_second}: {took:?}");
            }
        }
    }
}

/// SEC-1: whoever receives where it floods from can show cookies: it has what one source has.
#[test]
fn an_insider_that_shows_cookies_has_one_sources_share() {
    let mut w = Ends::new(0.0, 1);
    w.mobiles.clear();
    let mut joined = None;
    let mut out = [0; 2000];
    for n in 0..6_000 {
        let seed = Seed::from_u64(n).child("insider");
        let (config, base) = (HopConfig::default(), *keys(0).public());
        let insider: Mobile<Addr> = Mobile::new(config, keys(2), base, BASE, seed, w.now);
        let mut insider = insider.with_wall_clock(w.now, u64::MAX / 2);
        let init = insider.poll_transmit(w.now, &mut out).unwrap();
        w.base.handle_datagram(w.now, FLOOD, &mut out[..init.len]);
        let mut genuine = Vec::new();
        while let Some(reply) = w.base.poll_transmit(w.now, &mut out) {
            if reply.to == FLOOD {
                insider.handle_datagram(w.now, BASE, &mut out[..reply.len]);
            } else {
                genuine.push((reply.to, out[..reply.len].to_vec()));
            }
        }
        for (to, bytes) in genuine {
            w.fly(BASE, to, bytes);
        }
        if let Some(init) = insider.poll_transmit(w.now, &mut out) {
            w.base.handle_datagram(w.now, FLOOD, &mut out[..init.len]);
        }
        w.run(Duration::from_millis(1));
        if n == 3_000 {
            w.mobiles.push((5, new_mobile(1, w.now, *keys(0).public())));
        }
        if joined.is_none() && w.mobiles.first().is_some_and(|(_, mobile)| mobile.is_up()) {
            joined = Some(n - 3_000);
        }
    }
    assert!(joined.is_some_and(|ms| ms < 200), "{joined:?} {:?}", w.base.stats());
    // Those without a cookie, and a hundred a second: each costs four Diffie-Hellmans.
    assert!(w.base.stats().handshakes < 50 + 100 + 6 * 200, "{:?}", w.base.stats());
}

/// SEC-16: without a seal anybody claims any key: a base has as many associations as it may have,
/// those that are here stay, one of them may come again, and the log says why no more are answered.
#[test]
fn an_unsealed_base_has_no_more_mobiles_than_it_may() {
    let mut w = Ends::new(0.0, 1);
    let claimed = |n: u64| {
        let (config, seed) = (HopConfig::default(), Seed::from_u64(n).child("claim"));
        let claim = *keys(n).public();
        let mobile: Mobile<Addr> = Mobile::unsealed(config, claim, BASE, seed, Time::ZERO);
        (10 + n as Addr, mobile)
    };
    w.base = Base::unsealed(HopConfig::default(), Seed::from_u64(1)).with_at_most(2);
    w.mobiles = (1..=2).map(claimed).collect();
    w.run(Duration::from_secs(2));
    w.mobiles.extend((3..=5).map(claimed));
    w.run(Duration::from_secs(5));
    let up = |w: &Ends| w.mobiles.iter().filter(|(_, mobile)| mobile.is_up()).count();
    assert_eq!((up(&w), w.base.views().count()), (2, 2));
    assert!(core::iter::from_fn(|| w.base.poll_refused()).all(|r| r.why == Refusal::Full));

    w.mobiles[0] = (100, claimed(1).1);
    w.run(Duration::from_secs(5));
    assert!(w.mobiles[0].1.is_up());
    assert_eq!((up(&w), w.base.views().count()), (2, 2));

    // Those whose handshakes were answered at the same time: not all of them come to stand.
    w.base = Base::unsealed(HopConfig::default(), Seed::from_u64(2)).with_at_most(2);
    w.mobiles = (1..=5).map(claimed).collect();
    w.run(Duration::from_secs(5));
    assert_eq!(w.base.views().count(), 2);
}

/// SEC-2: what was recorded makes no candidate once its mobile has come with a later one.
#[test]
fn a_recorded_handshake_makes_no_candidate() {
    let mut w = Ends::new(0.0, 1);
    w.run(Duration::from_secs(8));
    let init = w.recorded.iter().find(|r| r.1 == BASE).map(|r| r.2.clone()).unwrap();
    assert!(w.mobile().is_up() && w.base.links.handshakes.candidates.is_empty());
    w.base.handle_datagram(w.now, FLOOD, &mut init.clone());
    assert!(w.base.links.handshakes.candidates.is_empty());
    assert_eq!(w.base.stats().stale, 1);
    assert!(w.base.poll_call().is_none());
}

/// SEC-3: a mobile whose clock was set back is not locked out, be it under a flood of its own recorded
/// handshakes.
#[test]
fn a_clock_that_was_set_back_locks_nobody_out() {
    for flooded in [false, true] {
        let mut w = Ends::new(0.0, 1);
        w.run(Duration::from_secs(1));
        assert!(w.mobile().is_up());
        let recorded = w.recorded.iter().find(|r| r.1 == BASE).map(|r| r.2.clone()).unwrap();
        // It is restarted a year before.
        let mut again: Mobile<Addr> = Mobile::new(
            HopConfig::default(),
            keys(1),
            *keys(0).public(),
            BASE,
            Seed::from_u64(9),
            w.now,
        );
        again = again.with_wall_clock(w.now, (1 << 60) - 31_536_000_000_000_000);
        w.mobiles[0].1 = again;
        for _ in 0..100 {
            if flooded {
                for _ in 0..20 {
                    w.base.handle_datagram(w.now, FLOOD, &mut recorded.clone());
                }
            }
            w.run(Duration::from_millis(2));
        }
        assert!(w.mobile().is_up(), "flooded {flooded}: {:?}", w.base.stats());
        // The next time it asks it begins above what the base has had.
        let stale = w.base.stats().stale;
        let now = w.now;
        w.mobile().start_question(now);
        w.run(Duration::from_secs(1));
        assert_eq!(w.base.stats().stale, stale);
    }
}

/// SEC-3: a clock that jumps ahead, even to the end of what a stamp can say, and is set right again.
#[test]
fn a_clock_that_jumps_ahead_and_back_locks_nobody_out() {
    for ahead in [1 << 62, u64::MAX - 1, u64::MAX] {
        let mut w = Ends::new(0.0, 1);
        w.run(Duration::from_secs(1));
        for wall in [ahead, 1 << 60, ahead, 1 << 60] {
            let (config, base) = (HopConfig::default(), *keys(0).public());
            let seed = Seed::from_u64(w.now.as_nanos());
            let mobile: Mobile<Addr> = Mobile::new(config, keys(1), base, BASE, seed, w.now);
            w.mobiles[0].1 = mobile.with_wall_clock(w.now, wall);
            w.run(Duration::from_secs(2));
            assert!(w.mobile().is_up(), "{ahead}, {wall}: {:?}", w.base.stats());
            let now = w.now;
            w.mobile().start_question(now);
            w.run(Duration::from_secs(1));
            assert!(w.mobile().is_up(), "{ahead}, {wall}: {:?}", w.base.stats());
        }
    }
}

/// Without a seal anybody claims any key, and so nothing is remembered of keys.
#[test]
fn an_unsealed_base_remembers_no_stamps() {
    let mut w = Ends::new(0.0, 1);
    let claim = *keys(1).public();
    w.base = Base::unsealed(HopConfig::default(), Seed::from_u64(1));
    let (config, seed) = (HopConfig::default(), Seed::from_u64(2));
    w.mobiles[0].1 = Mobile::unsealed(config, claim, BASE, seed, w.now);
    w.run(Duration::from_secs(1));
    assert!(w.mobile().is_up() && w.base.associations().count() == 1);
    assert_eq!(w.base.links.handshakes.stamps.outdone(&claim, 0), None);
}
