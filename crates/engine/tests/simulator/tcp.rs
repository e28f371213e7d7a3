//! From what a scenario says of an end point to its configuration.

use lasthop_engine::tcp::config;
use lasthop_scenario::{DelayedAck, Stack, TcpSettings};
use lasthop_tcp::{Algorithm, Config, Window};

#[test]
fn what_a_scenario_says_replaces_the_stacks_own_values() {
    let settings = TcpSettings {
        stack: Some(Stack::Bsd1990s),
        variant: Some(Algorithm::Sack),
        delayed_ack: Some(DelayedAck::Off),
        give_up_after: Some(0),
        receive_buffer: Some(Window::Segments(4)),
        ..TcpSettings::default()
    };
    let config = config(&settings, 256);
    assert_eq!((config.algorithm, config.sack), (Algorithm::Sack, true));
    assert_eq!((config.delayed_ack, config.rto.give_up_after), (None, None));
    assert_eq!(config.rto.min, Config::bsd_1990s().rto.min);
    assert_eq!((config.mss, config.recv_buffer.get()), (216, 864));
}
