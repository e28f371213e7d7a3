//! From what a scenario says about an end point to the end point's own configuration.

use lasthop_scenario::{DelayedAck, MOST_BUFFER, Stack, TcpSettings};
use lasthop_tcp::{Algorithm, Config, DelayedAck as Delay};
use lasthop_units::{Bytes, Duration};

/// What stands for a send buffer without a bound where bytes exist.
const HELD: Bytes = Bytes::from_mib(16);
/// IP and TCP headers without options.
const HEADERS: u32 = 40;

/// The configuration of an end point whose path carries datagrams of `mtu` bytes (LNK-3).
pub fn config(settings: &TcpSettings, mtu: u32) -> Config {
    let mut config = match settings.stack.unwrap_or_default() {
        Stack::Modern => Config::modern(),
        Stack::Bsd1990s => Config::bsd_1990s(),
        Stack::Ns2 => Config::ns2(),
    };
    loss(&mut config, settings);
    windows(&mut config, settings, mtu);
    timers(&mut config, settings);
    acknowledgements(&mut config, settings);
    set(&mut config.timestamps, settings.timestamps);
    set(&mut config.window_scale, settings.window_scale);
    set(&mut config.nagle, settings.nagle);
    set(&mut config.ecn, settings.ecn);
    set(&mut config.eln, settings.eln);
    config
}

/// The configuration of an end point whose bytes exist: a send buffer without a bound, as ns-2 has it,
/// becomes one that is above every window and that memory holds.
pub(super) fn held(config: Config) -> Config {
    let unbounded = config.send_buffer > MOST_BUFFER;
    let send_buffer = if unbounded { HELD } else { config.send_buffer };
    Config { send_buffer, ..config }
}

fn set<T: Copy>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}

fn loss(config: &mut Config, settings: &TcpSettings) {
    if let Some(variant) = settings.variant {
        config.algorithm = variant;
        // Recovery by selective acknowledgements needs them.
        config.sack |= variant == Algorithm::Sack;
    }
    set(&mut config.sack, settings.sack);
    set(&mut config.limited_transmit, settings.limited_transmit);
    set(&mut config.shrunk_window, settings.shrunk_window);
}

fn windows(config: &mut Config, settings: &TcpSettings, mtu: u32) {
    let said = settings.mss.and_then(|mss| u16::try_from(mss).ok()).unwrap_or(config.mss);
    let carried = u16::try_from(mtu.saturating_sub(HEADERS).max(1)).unwrap_or(u16::MAX);
    config.mss = said.min(carried);
    let mss = u32::from(config.mss);
    set(&mut config.initial_cwnd, settings.initial_window);
    set(&mut config.initial_ssthresh, settings.initial_ssthresh.map(Some));
    set(&mut config.cwnd_max, settings.max_window.map(Some));
    set(&mut config.recv_buffer, settings.receive_buffer.map(|w| w.bytes(mss)));
    set(&mut config.send_buffer, settings.send_buffer.map(|w| w.bytes(mss)));
}

fn timers(config: &mut Config, settings: &TcpSettings) {
    set(&mut config.rto.initial, settings.initial_rto.map(|s| s.0));
    set(&mut config.rto.min, settings.min_rto.map(|s| s.0));
    set(&mut config.rto.max, settings.max_rto.map(|s| s.0));
    set(&mut config.rto.tick, settings.tick.map(|s| s.0));
    set(&mut config.rto.fires_on_ticks, settings.timers_on_ticks);
    let never = |n: u32| Some(n).filter(|n| *n > 0);
    set(&mut config.rto.give_up_after, settings.give_up_after.map(never));
    // A preset's ceiling must not fall below a minimum that the scenario raised.
    config.rto.max = config.rto.max.max(config.rto.min);
}

fn acknowledgements(config: &mut Config, settings: &TcpSettings) {
    let usual = Delay { timeout: Duration::from_millis(200), every: 2, on_ticks: false };
    match settings.delayed_ack {
        Some(DelayedAck::Off) => config.delayed_ack = None,
        Some(DelayedAck::After(timeout)) => {
            config.delayed_ack = Some(Delay { timeout, ..config.delayed_ack.unwrap_or(usual) });
        }
        None => {}
    }
    if let (Some(delay), Some(every)) = (&mut config.delayed_ack, settings.ack_every) {
        delay.every = every;
    }
}
