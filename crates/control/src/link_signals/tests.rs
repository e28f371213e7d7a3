//! In network namespaces, against the kernel itself.

use std::time::Instant;

use lasthop_kernel::netns::{Netns, NetnsError};
use rustix::event::{PollFd, PollFlags, poll};

use super::*;

/// A namespace, or none where tests may not have one.
fn netns() -> Option<Netns> {
    lasthop_testing::or_skip(Netns::anonymous(), NetnsError::is_unavailable)
}

const PATIENCE: Duration = Duration::from_secs(60);

use LinkEvent::{Complete, Down, Imminent, Up};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Two namespaces joined by `left`, which has these addresses, and `right`.
fn pair(addresses: &[(IpAddr, u8)]) -> Option<(Netns, Netns)> {
    let (a, b) = (netns()?, netns()?);
    a.veth("left", &b, "right").unwrap();
    b.interface_up("right", &[]).unwrap();
    a.interface_up("left", addresses).unwrap();
    Some((a, b))
}

fn signals(netns: &Netns, predictor: Option<SignalConfig>) -> Signals {
    netns.enter(|| Signals::open("left", predictor)).unwrap().unwrap()
}

/// What is told until `last` is.
fn told_until(signals: &mut Signals, last: LinkEvent) -> Vec<LinkEvent> {
    let (start, mut told) = (Instant::now(), Vec::new());
    loop {
        while let Some(event) = signals.poll_event() {
            told.push(event);
            if event == last {
                return told;
            }
        }
        assert!(start.elapsed() < PATIENCE, "{last:?} is not among {told:?}");
        let mut fds: Vec<_> =
            signals.fds().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        poll(&mut fds, Some(&Duration::from_millis(100).try_into().unwrap())).unwrap();
        while signals.handle_ready(Time::ZERO) {}
    }
}

fn wait_for_carrier(signals: &mut Signals) {
    let start = Instant::now();
    while signals.carries() != Some(true) {
        assert!(start.elapsed() < PATIENCE, "there is no carrier");
        std::thread::sleep(Duration::from_millis(5));
        while signals.handle_ready(Time::ZERO) {}
    }
    while signals.poll_event().is_some() {}
}

/// LNK-14: what becomes of the carrier is told, and the end of a gap twice: the link is there, and
/// the host is found by it.
#[test]
fn a_carrier_that_is_lost_and_found_is_down_and_up() {
    let Some((a, b)) = pair(&[(ip("10.0.0.1"), 24)]) else { return };
    let mut signals = signals(&a, None);
    wait_for_carrier(&mut signals);
    b.ip("link set right down").unwrap();
    assert_eq!(told_until(&mut signals, Down), [Down]);
    assert_eq!(signals.carries(), Some(false));
    b.interface_up("right", &[]).unwrap();
    assert_eq!(told_until(&mut signals, Complete), [Up, Complete]);
    assert_eq!(signals.carries(), Some(true));
}

#[test]
fn a_port_without_an_address_is_complete_once_it_is_up() {
    let Some((a, b)) = pair(&[]) else { return };
    let mut signals = signals(&a, None);
    wait_for_carrier(&mut signals);
    b.ip("link set right down").unwrap();
    assert_eq!(told_until(&mut signals, Down), [Down]);
    b.interface_up("right", &[]).unwrap();
    assert_eq!(told_until(&mut signals, Complete), [Up, Complete]);
}

/// LLT-5: the gap lasts until the host has an address again, if it lost it.
#[test]
fn an_address_that_was_lost_is_waited_for() {
    let Some((a, b)) = pair(&[(ip("10.0.0.1"), 24)]) else { return };
    let mut signals = signals(&a, None);
    wait_for_carrier(&mut signals);
    b.ip("link set right down").unwrap();
    assert_eq!(told_until(&mut signals, Down), [Down]);
    a.ip("address delete 10.0.0.1/24 dev left").unwrap();
    b.interface_up("right", &[]).unwrap();
    assert_eq!(told_until(&mut signals, Up), [Up]);
    assert_eq!(signals.poll_event(), None, "nobody finds it yet");
    a.ip("address add 10.0.0.9/24 dev left").unwrap();
    assert_eq!(told_until(&mut signals, Complete), [Complete]);
}

/// Interfaces vanish and come back, with another number.
#[test]
fn an_interface_that_vanishes_and_returns_is_the_same_by_its_name() {
    let Some((a, b)) = pair(&[]) else { return };
    let mut signals = signals(&a, Some(SignalConfig::default()));
    wait_for_carrier(&mut signals);
    b.ip("link delete right").unwrap();
    assert_eq!(told_until(&mut signals, Down), [Down]);
    a.veth("left", &b, "right").unwrap();
    b.interface_up("right", &[]).unwrap();
    a.interface_up("left", &[]).unwrap();
    assert_eq!(told_until(&mut signals, Complete), [Up, Complete]);
}

/// One that nobody has to open a namespace for: what the kernel says of the interface is not heard.
fn unwatched(predictor: Option<SignalConfig>) -> Signals {
    let forecast = predictor.map(|config| Forecast::open(None, config).unwrap());
    Signals { link: LinkState::new("left"), monitor: None, forecast }
}

fn events(signals: &mut Signals) -> Vec<LinkEvent> {
    std::iter::from_fn(|| signals.poll_event()).collect()
}

#[test]
fn an_operators_events_are_passed_on() {
    let mut signals = unwatched(None);
    let lead = Duration::from_millis(300);
    for (link, expected) in [
        (Link::Imminent { to: None, in_ms: 300 }, &[Imminent { lead }][..]),
        (Link::Imminent { to: Some("b2".into()), in_ms: 300 }, &[Imminent { lead }]),
        (Link::Down { interface: None }, &[Down]),
        (Link::Up { interface: Some("left".into()) }, &[Up, Complete]),
        (Link::Complete {}, &[Complete]),
    ] {
        signals.handle_link(Time::ZERO, &link).unwrap();
        assert_eq!(events(&mut signals), expected, "{link:?}");
    }
    for link in [
        Link::Down { interface: Some("eth7".into()) },
        Link::Quality { interface: Some("eth7".into()), dbm: -50 },
    ] {
        let error = signals.handle_link(Time::ZERO, &link).unwrap_err();
        assert!(error.contains("left") && error.contains("eth7"), "{error}");
    }
    let quality = Link::Quality { interface: None, dbm: -50 };
    assert!(signals.handle_link(Time::ZERO, &quality).unwrap_err().contains("[signal]"));
}

#[test]
fn an_operators_link_down_holds_until_his_link_up() {
    let mut signals = unwatched(None);
    signals.handle_link(Time::ZERO, &Link::Down { interface: None }).unwrap();
    assert_eq!(signals.carries(), Some(false));
    signals.link.note(&NetworkEvent::Up { interface: "left".into() });
    assert_eq!(events(&mut signals), [Down]);
    signals.handle_link(Time::ZERO, &Link::Up { interface: None }).unwrap();
    signals.link.note(&NetworkEvent::Down { interface: "other".into() });
    assert_eq!(events(&mut signals), [Up, Complete]);
}

fn tell(signals: &mut Signals, now: Time, dbm: i16) {
    signals.handle_link(now, &Link::Quality { interface: None, dbm }).unwrap();
}

/// LLT-2: what a script tells of the level is enough for a warning, which its recovery takes back.
#[test]
fn a_level_from_a_script_warns_and_recovers() {
    let mut signals = unwatched(Some(SignalConfig::default()));
    let mut now = Time::ZERO;
    for step in 0..60_i16 {
        // Down to -80 dBm in four seconds, and up again in two.
        let dbm = if step <= 40 { -60 - step / 2 } else { -80 + (step - 40) };
        tell(&mut signals, now, dbm);
        now += Duration::from_millis(100);
    }
    let told = events(&mut signals);
    assert!(matches!(told[..], [Imminent { .. }, Up]), "{told:?}");
    // Of a link that is down nothing is foretold.
    signals.handle_link(now, &Link::Down { interface: None }).unwrap();
    for step in 0..60 {
        tell(&mut signals, now, -60 - step);
        now += Duration::from_millis(100);
    }
    assert_eq!(events(&mut signals), [Down]);
    let strange = Link::Quality { interface: None, dbm: -1000 };
    assert!(signals.handle_link(now, &strange).unwrap_err().contains("-1000"));
}

/// A source that falls silent is no warning, and no timer turns without end.
#[test]
fn silence_ends_the_timers() {
    let mut signals = unwatched(Some(SignalConfig::default()));
    let mut now = Time::ZERO;
    for step in 0..20 {
        tell(&mut signals, now, -60 - step / 10);
        now += Duration::from_millis(100);
    }
    for _ in 0..10 {
        let Some(at) = signals.next_timeout() else { break };
        now = now.max(at);
        signals.handle_timeout(now);
    }
    assert_eq!((signals.next_timeout(), events(&mut signals)), (None, vec![]));
}

#[test]
fn events_that_nobody_fetches_do_not_pile_up() {
    let mut signals = unwatched(None);
    for _ in 0..1000 {
        signals.handle_link(Time::ZERO, &Link::Up { interface: None }).unwrap();
    }
    assert_eq!(events(&mut signals).len(), EVENTS_MAX);
}
