//! Long transfers in virtual time: what the harness measures, and what SRP reaches in it.

use lasthop_radio::{Direction, Errors, LinkConfig, Loss, Pacing, Pause, QueueLimit, RadioConfig};
use lasthop_sim::Transport;
use lasthop_sim::bulk::{self, BulkConfig, BulkReport, Wired};
use lasthop_sim::hop::Hop;
use lasthop_sim::naive::Naive;
use lasthop_units::{Bytes, Duration, Rate, Time};

/// 20 Mbit/s, 20 ms one way, 100 packets: the radio on which every claim is made.
fn radio(loss: f64) -> RadioConfig {
    let losses = if loss > 0.0 { vec![Loss::lose(Errors::Uniform(loss))] } else { Vec::new() };
    RadioConfig::both(LinkConfig {
        pacing: Pacing::Rate(Rate::from_mbps(20)),
        delay: Duration::from_millis(20),
        queue: QueueLimit::Packets(100),
        mtu: 1500,
        losses,
        ..LinkConfig::default()
    })
}

fn run<T: Transport>(transport: &T, config: &BulkConfig) -> BulkReport {
    let report = bulk::run(transport, config).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(report.wrong, None, "a wrong byte arrived");
    report
}

/// SRP-4, SRP-7: random loss costs only itself, and the radio's queue stays short, both ways.
#[test]
fn srp_fills_a_radio_that_loses_up_to_30_percent() {
    for direction in Direction::ALL {
        for loss in [0.0, 0.05, 0.1, 0.2, 0.3] {
            let duration = Duration::from_secs(12);
            let config =
                BulkConfig { radio: radio(loss), direction, duration, ..BulkConfig::default() };
            let report = run(&Hop::default(), &config);
            assert!(report.share_of_limit >= 0.96, "{direction}, {loss}:\n{report}");
            assert!(report.queue_drop_share <= 0.03, "{direction}, {loss}:\n{report}");
            let half_rtt = Duration::from_millis(20);
            assert!(report.queue_delay_mean < half_rtt, "{direction}, {loss}:\n{report}");
        }
    }
}

/// LNK-7, SRP-13: the harness sees when a silence ends, and SRP resumes at once.
#[test]
fn srp_resumes_at_once_after_a_silence() {
    let mut radio = radio(0.05);
    let pause = Pause::once(Duration::from_secs(4), Duration::from_millis(2800));
    radio.up.pauses.push(pause);
    radio.down.pauses.push(pause);
    let duration = Duration::from_secs(10);
    let report = run(&Hop::default(), &BulkConfig { radio, duration, ..BulkConfig::default() });
    let [recovery] = report.recoveries[..] else { panic!("{report}") };
    assert_eq!((recovery.at, recovery.silence), (Time::from_millis(6800), pause.duration));
    assert!(recovery.first_byte.is_some_and(|d| d <= Duration::from_millis(120)), "{report}");
    assert!(recovery.full_rate.is_some_and(|d| d <= Duration::from_secs(1)), "{report}");
}

/// LNK-15: one configuration, one run.
#[test]
fn the_same_transfer_twice_is_the_same_transfer() {
    let duration = Duration::from_secs(3);
    let config = BulkConfig { radio: radio(0.1), duration, mobiles: 2, ..BulkConfig::default() };
    assert_eq!(run(&Hop::default(), &config), run(&Hop::default(), &config));
}

#[test]
fn a_wired_path_bounds_what_the_base_has_to_send() {
    let wired = Wired {
        rate: Rate::from_mbps(5),
        delay: Duration::from_millis(25),
        buffer: Bytes::from_kib(256),
    };
    let config = BulkConfig { radio: radio(0.0), wired: Some(wired), ..BulkConfig::default() };
    let report = run(&Naive::default(), &config);
    let mbps = report.goodput.as_bps() as f64 / 1e6;
    assert!((mbps - 5.0).abs() < 0.05, "{report}");
}

#[test]
fn a_go_back_n_sender_suffers_where_srp_does_not() {
    let config = BulkConfig { radio: radio(0.05), ..BulkConfig::default() };
    assert!(run(&Naive::default(), &config).share_of_limit < 0.5);
}
