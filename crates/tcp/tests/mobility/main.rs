//! Mobile ends against plain fixed ends, through disconnections and handoffs: what the schemes are
//! for, and where they fail.

#![allow(missing_docs, clippy::unwrap_used)]

mod random;
mod world;

use lasthop_tcp::mobility::{Atcp, FastRetransmit, Freeze, Greet, LinkLayerFreeze, Thaw};
use lasthop_tcp::{Algorithm, Coherence, Config, Mobility, ShrunkWindow, Window};
use lasthop_units::{Bytes, Duration, LinkEvent};
use world::{Pair, Sender, at};

const BULK: u64 = 100_000_000;

/// Reno with a window of at most 20 segments and a least timeout of a second.
fn reno() -> Config {
    let cwnd_max = Some(Window::Segments(20));
    let mut config = Config { cwnd_max, limited_transmit: false, ..Config::ns2() };
    config.rto.min = Duration::from_secs(1);
    config
}

fn with(mobility: Mobility) -> Config {
    Config { mobility, ..reno() }
}

fn world(mobility: Mobility, sender: Sender) -> Pair {
    Pair::new(with(mobility), reno(), sender, BULK)
}

/// A disconnection from 2 s to `up`, foretold `lead` ahead.
fn foretold(lead: u64, up: u64) -> [(u64, LinkEvent); 3] {
    let imminent = LinkEvent::Imminent { lead: Duration::from_millis(lead) };
    [(2000 - lead, imminent), (2000, LinkEvent::Down), (up, LinkEvent::Up)]
}

fn unforeseen(up: u64) -> [(u64, LinkEvent); 2] {
    [(2000, LinkEvent::Down), (up, LinkEvent::Up)]
}

fn freeze() -> Mobility {
    Mobility::Freeze(Freeze::default())
}

fn atcp() -> Mobility {
    Mobility::Atcp(Atcp::default())
}

/// FRZ-1 to FRZ-4 and FRZ-7: the fixed sender goes to persist, loses nothing of its windows and
/// estimates, whatever the network is afterwards, and sends a round trip after the reconnection.
#[test]
fn a_frozen_sender_resumes_at_once_with_its_old_window() {
    let mut w = world(freeze(), Sender::Fixed).cut(2000, 6000, &foretold(150, 6000));
    w.run_until(1840);
    let before = w.fixed.probe();
    w.run_until(5900);
    let during = w.fixed.probe();
    assert_eq!((during.cwnd, during.ssthresh), (before.cwnd, before.ssthresh));
    assert_eq!((during.srtt, during.snd_wnd), (before.srtt, Bytes::ZERO));
    assert_eq!(w.fixed.stats().timeouts, 0);
    let received = w.mobile.received();
    w.run_until(6115);
    assert!(w.mobile.received() > received, "a round trip and a segment's time suffice");
    let copies = w.between(6000, 6001);
    assert_eq!(copies.len(), 3);
    assert!(copies.iter().all(|s| s.ack == copies[0].ack && s.window == copies[0].window));
    w.run_until(12_000);
    let stats = w.fixed.stats();
    assert_eq!((stats.timeouts, stats.fast_retransmits, stats.retransmits), (0, 0, 0));
}

/// RENO-9: a sender whose timer runs on over a shut window cannot be frozen.
#[test]
fn a_sender_that_keeps_its_timer_cannot_be_frozen() {
    let fixed = Config { shrunk_window: ShrunkWindow::KeepTimer, ..reno() };
    for mobility in [freeze(), Mobility::LinkLayerFreeze(LinkLayerFreeze::default()), atcp()] {
        let events = [
            (1950, LinkEvent::Imminent { lead: Duration::from_millis(50) }),
            (2000, LinkEvent::Down),
            (7000, LinkEvent::Up),
            (7000, LinkEvent::Complete),
        ];
        let mut w = Pair::new(with(mobility), fixed, Sender::Fixed, BULK);
        w = w.cut(2000, 7000, &events);
        w.run_until(7000);
        assert!(w.fixed.stats().timeouts > 0, "{mobility:?}");
        assert_eq!(w.fixed.probe().cwnd, Bytes::new(1000), "{mobility:?}");
    }
}

/// FRZ-5: a warning too late loses data and the sender's timer expires; one too early wastes time.
#[test]
fn the_lead_of_a_warning_matters() {
    let run = |lead| {
        let mut w = world(freeze(), Sender::Fixed).cut(2000, 7000, &foretold(lead, 7000));
        w.run_until(12_000);
        (w.fixed.stats().timeouts, w.mobile.received())
    };
    let (late, right, early) = (run(0), run(150), run(900));
    assert!(late.0 > 0);
    assert_eq!((right.0, early.0), (0, 0));
    assert!(late.1 < right.1 && early.1 < right.1, "{late:?} {right:?} {early:?}");
}

/// FRZ-3 without a warning: what 3DA does, as long as the sender's timer has not expired.
#[test]
fn without_a_warning_freeze_calls_for_a_fast_retransmit() {
    let mut w = world(freeze(), Sender::Fixed).cut(2000, 2500, &unforeseen(2500));
    w.restart(with(freeze()), Config { algorithm: Algorithm::Tahoe, ..reno() });
    w.run_until(5000);
    let stats = w.fixed.stats();
    assert_eq!((stats.timeouts, stats.fast_retransmits), (0, 1));
}

/// A handoff whose link part ends at `up`, and whose registration is done at `complete`.
fn handoff(mobility: Mobility, up: u64, complete: u64) -> Pair {
    let mut events = foretold(150, up).to_vec();
    events.push((complete, LinkEvent::Complete));
    // Until then nothing finds the mobile, and what it sends is lost (MIP-5).
    world(mobility, Sender::Fixed).cut(2000, complete, &events)
}

/// 3DA-1, 3DA-2: the sender retransmits at once, at the price of half its window. Tahoe, which goes
/// back, is spared the timeout; Reno repairs one segment of the window that was lost and times out.
#[test]
fn three_duplicates_after_a_handoff_start_the_repair() {
    let scheme = Mobility::FastRetransmit(FastRetransmit::default());
    let run = |mobility, algorithm| {
        let mut w = handoff(mobility, 2200, 2500);
        let fixed = Config { algorithm, ..reno() };
        w.restart(with(mobility), fixed);
        w.run_until(5000);
        (w.fixed.stats().timeouts, w.mobile.received())
    };
    let tahoe = run(scheme, Algorithm::Tahoe);
    let plain = run(Mobility::None, Algorithm::Tahoe);
    assert_eq!((tahoe.0, plain.0), (0, 1));
    assert!(tahoe.1 > plain.1);
    assert_eq!(run(scheme, Algorithm::Reno).0, 1);

    let mut helped = handoff(scheme, 2200, 2500);
    helped.run_until(2499);
    let before = helped.fixed.probe();
    helped.run_until(2560);
    let after = helped.fixed.probe();
    assert_eq!(helped.fixed.stats().fast_retransmits, 1);
    assert_eq!(after.ssthresh.get(), before.cwnd.get() / 2);
}

/// 3DA-3: if the acknowledgement that the three repeat was lost, one more is needed for a fast
/// retransmit at once.
#[test]
fn a_fourth_duplicate_makes_up_for_a_lost_original() {
    for (copies, expected) in [(3, 0), (4, 1)] {
        let scheme = FastRetransmit { copies, ..FastRetransmit::default() };
        let mut w = handoff(Mobility::FastRetransmit(scheme), 2200, 2500);
        w.lost_acks.push((at(1995), at(2000)));
        w.run_until(2600);
        assert_eq!(w.fixed.stats().fast_retransmits, expected, "{copies} copies");
    }
}

/// 3DA-4: once the sender's timer has expired, duplicates neither help nor hurt its window.
#[test]
fn after_a_timeout_duplicates_change_no_window() {
    let run = |mobility| {
        let mut w = handoff(mobility, 2200, 4000);
        w.run_until(4200);
        (w.fixed.stats().timeouts, w.fixed.stats().fast_retransmits, w.fixed.probe().ssthresh)
    };
    let helped = run(Mobility::FastRetransmit(FastRetransmit::default()));
    assert_eq!(helped, run(Mobility::None));
    assert!(helped.0 > 0);
}

/// LLT-1, LLT-4, LLT-5, LLT-7: a plain sender stops with everything kept, and data starts once the
/// mobile can be reached, limited by the kept window.
#[test]
fn a_triggered_handoff_costs_the_sender_nothing() {
    let mut w = handoff(Mobility::LinkLayerFreeze(LinkLayerFreeze::default()), 2500, 4000);
    w.run_until(1840);
    let before = w.fixed.probe();
    w.run_until(3999);
    assert!(w.between(2000, 4000).is_empty(), "the link part alone ends nothing");
    w.run_until(4052);
    assert_eq!(w.between(4000, 4052).len(), 1);
    let after = w.fixed.probe();
    assert_eq!((after.cwnd, after.ssthresh, after.rto), (before.cwnd, before.ssthresh, before.rto));
    assert_eq!(after.flight, before.cwnd);
    w.run_until(8000);
    assert_eq!((w.fixed.stats().timeouts, w.fixed.stats().retransmits), (0, 0));
}

/// LLT-6: if the one acknowledgement is lost the sender's probe mends it.
#[test]
fn a_probe_mends_a_lost_reopening() {
    let mut w = handoff(Mobility::LinkLayerFreeze(LinkLayerFreeze::default()), 2500, 4000);
    w.lost_acks.push((at(4000), at(4001)));
    w.run_until(6000);
    let stuck = w.mobile.received();
    w.run_until(9000);
    assert!(w.mobile.received() > stuck);
    assert_eq!(w.fixed.stats().timeouts, 0);
    assert!(w.fixed.stats().window_probes_sent > 0);
}

/// ATR-4: the sender goes to persist and resumes at once, without slow start, if its timer has not
/// expired; if it has, at least the wait for the next expiry ends.
#[test]
fn atcp_needs_no_warning() {
    let mut w = world(atcp(), Sender::Fixed).cut(2000, 2800, &unforeseen(2800));
    w.run_until(1990);
    let before = w.fixed.probe();
    w.run_until(2920);
    let after = w.fixed.probe();
    assert_eq!((after.ssthresh, w.fixed.stats().timeouts), (before.ssthresh, 0));
    assert!(after.cwnd >= before.cwnd);
    assert_eq!(w.fixed.stats().zero_windows, 1);
    w.run_until(6000);
    assert_eq!((w.fixed.stats().timeouts, w.fixed.stats().fast_retransmits), (0, 0));

    let run = |mobility| {
        let mut w = world(mobility, Sender::Fixed).cut(2000, 5300, &unforeseen(5300));
        w.run_until(5300);
        let before = w.mobile.received();
        w.run_until(6000);
        w.mobile.received().get() - before.get()
    };
    assert!(run(atcp()) > run(Mobility::None));
}

/// ATR-7: a delay that is not below the sender's least timeout costs a timeout at each pause.
#[test]
fn a_delay_beyond_the_least_timeout_is_a_hazard() {
    let run = |millis| {
        let delay = Duration::from_millis(millis);
        let mobile = with(Mobility::Atcp(Atcp { delay, ..Atcp::default() }));
        let mut w = Pair::new(mobile, Config::ns2(), Sender::Fixed, 100_000);
        w.run_until(20_000);
        assert!(w.is_done());
        w.fixed.stats().timeouts
    };
    assert_eq!(run(100), 0);
    assert!(run(500) > 0);
}

/// ATS: as a sender ATCP keeps what Reno loses, with the window open or closed at the disconnection.
#[test]
fn atcp_gains_as_a_sender_too() {
    for up in [2600, 5000, 9300] {
        let run = |mobility| {
            let mut w = world(mobility, Sender::Mobile).cut(2000, up, &unforeseen(up));
            w.run_until(up + 3000);
            w.fixed.received()
        };
        assert!(run(atcp()) > run(Mobility::None), "up at {up} ms");
    }
}

/// MTC-5: a disconnection costs the mobile nothing of its window.
#[test]
fn a_greeting_mobile_loses_no_window() {
    let greet = Mobility::Greet(Greet::default());
    let mut w = world(greet, Sender::Mobile).cut(2000, 5000, &unforeseen(5000));
    w.run_until(1999);
    let before = w.mobile.probe();
    w.run_until(8000);
    assert_eq!(w.mobile.probe().ssthresh, before.ssthresh);
    assert_eq!((w.mobile.stats().timeouts, w.mobile.stats().fast_retransmits), (0, 0));
}

/// LLT-8: freezing and telling losses apart are set together and do not meet.
#[test]
fn freezing_combines_with_coherence() {
    let mobility = Mobility::LinkLayerFreeze(LinkLayerFreeze::default());
    let mobile =
        Config { coherence: Some(Coherence::new(Duration::from_millis(100))), ..with(mobility) };
    let coherent = Config { ecn: true, ..mobile };
    let fixed = Config { ecn: true, ..reno() };
    let mut events = foretold(150, 2500).to_vec();
    events.push((4000, LinkEvent::Complete));
    let mut w = Pair::new(coherent, fixed, Sender::Fixed, BULK).cut(2000, 4000, &events);
    w.run_until(8000);
    assert_eq!((w.fixed.stats().timeouts, w.fixed.stats().retransmits), (0, 0));
}

/// MHP-17: a connection that moves in the midst of a freeze, or with bytes held back, tells its peer
/// at once where it stands.
#[test]
fn a_restored_end_speaks_first() {
    use lasthop_tcp::Connection;
    for mobility in [freeze(), atcp()] {
        let mut w = world(mobility, Sender::Fixed).cut(2000, 2000, &foretold(150, 100_000));
        w.run_until(1990);
        let snapshot = w.mobile.snapshot(w.now);
        let mut moved = Connection::restore(with(mobility), w.now, &snapshot);
        let ack = moved.poll_transmit(w.now).unwrap().segment;
        assert!(ack.window > 0, "{mobility:?}");
        assert_eq!(u64::from((ack.ack - snapshot.irs.0 - 1).0), snapshot.received, "{mobility:?}");
        assert!(moved.poll_transmit(w.now).is_none());
    }
}

/// A handoff's event is a matter of configuration for every scheme.
#[test]
fn plain_disconnections_suit_the_link_layer_method_too() {
    let scheme = LinkLayerFreeze { thaw: Thaw::Up, ..LinkLayerFreeze::default() };
    let mut w = world(Mobility::LinkLayerFreeze(scheme), Sender::Fixed).cut(
        2000,
        5000,
        &foretold(150, 5000),
    );
    w.run_until(8000);
    assert_eq!((w.fixed.stats().timeouts, w.fixed.stats().retransmits), (0, 0));
}
