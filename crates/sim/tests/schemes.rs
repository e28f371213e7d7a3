//! Helpers of TCP in a network, by scheme.

#![allow(clippy::expect_used, reason = "a test says where it cannot go on")]

use std::cell::RefCell;
use std::rc::Rc;

use lasthop_hop::{Discipline, HopConfig, Window, mobile_tcp};
use lasthop_radio::{LinkConfig, Pacing, RadioConfig};
use lasthop_session::{Config as Session, handoff};
use lasthop_sim::net::{Datagram, Observer, SharedObserver, Sight, TapPoint};
use lasthop_sim::schemes::HopKind;
use lasthop_sim::schemes::journey::{Help, Journey, Outcome, Pause, Way};
use lasthop_tcp as tcp;
use lasthop_units::{Bytes, Duration, Rate, Seed, Time};
use lasthop_wire::tcp::Flags;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn link(rate: Rate, delay: Duration) -> LinkConfig {
    LinkConfig { pacing: Pacing::Rate(rate), delay, ..LinkConfig::default() }
}

fn hop_tcp() -> tcp::Config {
    tcp::Config { mss: 216, ..tcp::Config::bsd_1990s() }
}

fn srp() -> HopConfig {
    let memory = Bytes::from_kib(16);
    HopConfig {
        datagram_base: Bytes::new(228),
        datagram_max: Bytes::new(228),
        stream_window: memory,
        stream_memory: memory,
        association_window: memory,
        association_memory: memory,
        discipline: Discipline::Windowed(Window::default()),
        ..HopConfig::default()
    }
}

fn journey(help: Help, way: Way, pauses: &[(u64, u64)]) -> Journey {
    let mut radio = link(Rate::from_kbps(100), ms(5));
    radio.mtu = 256;
    let wired = link(Rate::from_kbps(1544), ms(35));
    Journey {
        help,
        file: Bytes::new(102_400),
        way,
        radio: RadioConfig::both(radio),
        half_duplex: false,
        wired_up: wired.clone(),
        wired_down: wired,
        campus: link(Rate::from_mbps(10), ms(1)),
        pauses: pauses.iter().map(|&(at, l)| Pause { at: ms(at), lasts: ms(l) }).collect(),
        mobile_tcp: tcp::Config::bsd_1990s(),
        fixed_tcp: tcp::Config::bsd_1990s(),
        wired_tcp: tcp::Config::bsd_1990s(),
        sessions: (Session::mobile(), Session::base()),
        handoffs: (handoff::Config::mobile(), handoff::Config::base()),
        give_up: Duration::from_secs(300),
    }
}

fn mobile_tcp() -> mobile_tcp::Config {
    mobile_tcp::Config { max_packet: Bytes::new(240), ..mobile_tcp::Config::default() }
}

fn schemes() -> [Help; 5] {
    [
        Help::Nothing,
        Help::Split(HopKind::SplitTcp(hop_tcp())),
        Help::Split(HopKind::ITcp(hop_tcp())),
        Help::Split(HopKind::Srp(srp())),
        Help::Split(HopKind::MobileTcp(mobile_tcp())),
    ]
}

fn run(journey: &Journey) -> Outcome {
    journey.run(Seed::from_u64(1)).expect("a journey")
}

#[test]
fn every_scheme_moves_a_file_both_ways() {
    for way in [Way::Up, Way::Down] {
        for help in schemes() {
            let name = format!("{help:?}");
            let outcome = run(&journey(help, way, &[]));
            assert_eq!(outcome.bytes.get(), 102_400, "{name} {way:?}: {outcome:?}");
            assert!(outcome.received.is_some());
            assert_eq!((outcome.resets, outcome.accepted), (0, 1));
        }
    }
}

#[test]
fn every_scheme_survives_handoffs_and_the_fixed_host_notices_nothing() {
    for way in [Way::Up, Way::Down] {
        for help in schemes() {
            let name = format!("{help:?}");
            let outcome = run(&journey(help, way, &[(3000, 1000), (8000, 2800)]));
            assert_eq!(outcome.bytes.get(), 102_400, "{name} {way:?}: {outcome:?}");
            assert!(outcome.received.is_some() && !outcome.broken);
            assert_eq!((outcome.resets, outcome.accepted), (0, 1));
        }
    }
}

/// MOB-1: frames of the hop cross a channel that both directions take turns on, too.
#[test]
fn every_scheme_moves_a_file_over_a_half_duplex_radio() {
    for help in schemes() {
        let name = format!("{help:?}");
        let half_duplex = Journey { half_duplex: true, ..journey(help, Way::Down, &[]) };
        let outcome = run(&half_duplex);
        assert_eq!(outcome.bytes.get(), 102_400, "{name}: {outcome:?}");
    }
}

/// The longest segments' payloads, and what SYNs announce, at the fixed host.
#[derive(Default)]
struct Segments {
    longest: u32,
    announced: Vec<Option<u16>>,
}

impl Observer for Segments {
    fn handle_packet(&mut self, _: Time, _: TapPoint, _: Sight, packet: &Datagram) {
        let Some(segment) = packet.tcp() else { return };
        self.longest = self.longest.max(segment.len);
        if segment.flags.contains(Flags::SYN) {
            self.announced.push(segment.options.mss);
        }
    }
}

/// LNK-3: without help small segments pass the whole path: the mobile takes their size from its
/// interface when it sends, and announces it in its SYN when it receives.
#[test]
fn unhelped_tcp_uses_the_hops_segments_all_the_way() {
    for way in [Way::Up, Way::Down] {
        let mut run = journey(Help::Nothing, way, &[]).start(Seed::from_u64(1)).expect("a start");
        let seen = Rc::new(RefCell::new(Segments::default()));
        let observer: SharedObserver = seen.clone();
        run.tap_fixed(&observer);
        run.finish().expect("a journey");
        let seen = seen.borrow();
        assert_eq!(seen.longest, 216);
        assert_eq!(seen.announced.iter().flatten().min(), Some(&216));
    }
}
