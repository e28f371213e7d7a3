//! Random settings: of agents, and of TCP at both ends.

use lasthop_agent::link::LinkConfig;
use lasthop_agent::m_tcp::MTcpConfig;
use lasthop_agent::obtcp::{self, Eviction, LocalTimer, Memory};
use lasthop_agent::snoop::{self, Timer};
use lasthop_agent::unsplit;
use lasthop_tcp::mobility::{Atcp, FastRetransmit, Freeze, Greet, LinkLayerFreeze};
use lasthop_tcp::{Algorithm, Coherence, Config, DelayedAck, Mobility};
use lasthop_units::{Bytes, Duration, Stream};

/// What an agent is made from.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Settings {
    Snoop(snoop::Config),
    MTcp(MTcpConfig),
    Base(obtcp::Config),
    Router(obtcp::Config),
    LinkAtBase(LinkConfig),
    LinkAtMobile(LinkConfig),
    UnsplitAtBase(unsplit::Config),
    UnsplitAtMobile(unsplit::Config),
}

/// One of these.
pub(crate) fn pick<T: Clone>(random: &mut Stream, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize].clone()
}

pub(crate) fn millis(random: &mut Stream, from: u64, to: u64) -> Duration {
    Duration::from_millis(from + random.below(to - from + 1))
}

pub(crate) fn snoop(random: &mut Stream) -> snoop::Config {
    let tight = random.chance(0.3);
    snoop::Config {
        dupacks: 1 + random.below(3) as u32,
        timer: match random.below(4) {
            0 => Timer::Stock,
            1 => Timer::Pinned(millis(random, 0, 300)),
            _ => Timer::Measured,
        },
        tick: millis(random, 0, 200),
        initial: millis(random, 0, 1500),
        tries: pick(random, &[0, 1, 3, 10]),
        segments: if tight { 1 + random.below(8) as usize } else { 100 },
        memory: if tight { Bytes::new(random.below(20_000)) } else { Bytes::from_mib(64) },
        connections: if tight { 1 + random.below(2) as usize } else { 64 },
        idle: if tight { millis(random, 10, 3000) } else { Duration::from_secs(300) },
        use_sack: random.chance(0.3),
        heed_backlog: random.chance(0.3),
        go_back: random.chance(0.3),
        hide_sack: random.chance(0.3),
        eln: random.chance(0.3),
    }
}

pub(crate) fn m_tcp(random: &mut Stream) -> MTcpConfig {
    let tight = random.chance(0.3);
    MTcpConfig {
        connections: if tight { 1 + random.below(2) as usize } else { 64 },
        idle: if tight { millis(random, 200, 5000) } else { Duration::from_secs(900) },
        buffer: if tight { 1 + random.below(8) as usize } else { 512 },
        hop_window: pick(random, &[2, 4, 32]),
        disconnect_after: millis(random, 50, 500),
        disconnect_round_trips: 2 + random.below(4) as u32,
        probe_interval: millis(random, 20, 500),
        tail_after: millis(random, 1, 100),
        initial_timeout: millis(random, 50, 500),
        least_timeout: millis(random, 10, 100),
    }
}

fn memory(random: &mut Stream) -> Memory {
    let tight = random.chance(0.3);
    Memory {
        segments: if tight { obtcp::LEAST_CACHE } else { 100 },
        bytes: Bytes::from_mib(64),
        eviction: pick(random, &[Eviction::Lowest, Eviction::Newest]),
        connections: if tight { 1 + random.below(2) as usize } else { 64 },
        idle: if tight { millis(random, 10, 3000) } else { Duration::from_secs(3600) },
    }
}

fn timer(random: &mut Stream) -> (bool, LocalTimer) {
    let tries = 1 + random.below(10) as u32;
    (random.chance(0.5), LocalTimer { tries, ..LocalTimer::default() })
}

pub(crate) fn base(random: &mut Stream) -> obtcp::Config {
    let (memory, (timers, timer)) = (memory(random), timer(random));
    let heed_backlog = random.chance(0.5);
    obtcp::Config { memory, timers, timer, heed_backlog, ..obtcp::Config::default() }
}

pub(crate) fn router(random: &mut Stream) -> obtcp::Config {
    let (memory, (timers, timer)) = (memory(random), timer(random));
    obtcp::Config {
        memory,
        timers,
        timer,
        go_back_n: pick(random, &[false, true]),
        dupacks: 1 + random.below(3) as u32,
        tries: pick(random, &[1, 3, 10]),
        partial_acks: random.chance(0.5),
        gaps: pick(random, &[1, 4, 32]),
        snacks: 1 + random.below(3) as u32,
        replay: random.below(5) as u32,
        detect_lost_retransmissions: random.chance(0.5),
        ..obtcp::Config::default()
    }
}

pub(crate) fn link(random: &mut Stream, notify: bool) -> LinkConfig {
    LinkConfig {
        retries: random.below(5) as u32,
        copies: pick(random, &[1, 8, 64, 256]),
        in_order: random.chance(0.3),
        hold: millis(random, 5, 400),
        initial_timeout: millis(random, 20, 500),
        least_timeout: millis(random, 5, 50),
        notify,
        notice_interval: millis(random, 5, 200),
        ..LinkConfig::default()
    }
}

pub(crate) fn unsplit(random: &mut Stream) -> unsplit::Config {
    let tight = random.chance(0.3);
    unsplit::Config {
        segments: if tight { 1 + random.below(8) as usize } else { 256 },
        memory: if tight { Bytes::new(random.below(20_000)) } else { Bytes::from_mib(64) },
        connections: if tight { 1 + random.below(2) as usize } else { 64 },
        idle: Duration::from_secs(pick(random, &[0, 15, 300])),
        first_cid: 1,
        tries: pick(random, &[0, 1, 3, 10]),
        tick: millis(random, 0, 300),
        longest: millis(random, 0, 3000),
        initial: millis(random, 0, 1500),
        ride: millis(random, 0, 20),
        offers: random.below(10) as u32,
        mtu: pick(random, &[0, 576, 1500]),
        gaps: pick(random, &[1, 4, 32]),
        hide_sack: random.chance(0.3),
    }
}

/// TCP at one end. No timer waits longer than some seconds, so that what hangs is soon told from
/// what only waits.
pub(crate) fn tcp(random: &mut Stream, mobile: bool) -> Config {
    let longest = Duration::from_secs(8);
    let preset = pick(random, &[Config::ns2(), Config::bsd_1990s(), Config::modern()]);
    let mut tcp = Config {
        mss: pick(random, &[536, 1000, 1460]),
        recv_buffer: Bytes::new(pick(random, &[4096, 16_000, 60_000, 250_000])),
        send_buffer: Bytes::new(pick(random, &[8192, 60_000, 250_000])),
        cwnd_max: None,
        algorithm: pick(
            random,
            &[
                Algorithm::Tahoe,
                Algorithm::Reno,
                Algorithm::NewReno,
                Algorithm::Sack,
                Algorithm::Cubic,
            ],
        ),
        window_scale: random.chance(0.5),
        timestamps: random.chance(0.5),
        sack: random.chance(0.6),
        ecn: random.chance(0.5),
        eln: random.chance(0.2),
        // An end that forgets at once would answer the peer's last FIN with a reset.
        time_wait: Duration::from_secs(30),
        ..preset
    };
    if random.chance(0.5) {
        let (timeout, every) = (millis(random, 20, 200), 2);
        tcp.delayed_ack = Some(DelayedAck { timeout, every, on_ticks: false });
    }
    tcp.rto.max = tcp.rto.max.min(longest);
    tcp.rto.give_up_after = None;
    tcp.persist.min = tcp.persist.min.min(longest);
    tcp.persist.max = tcp.persist.max.min(longest);
    tcp.persist.gives_up = false;
    if mobile {
        tcp.mobility = mobility(random);
        if random.chance(0.2) {
            tcp.coherence = Some(Coherence::new(millis(random, 10, 300)));
        } else if random.chance(0.2) {
            tcp.delayed_dupacks = Some(millis(random, 5, 200));
        }
    }
    tcp
}

fn mobility(random: &mut Stream) -> Mobility {
    match random.below(10) {
        0 => Mobility::FastRetransmit(FastRetransmit::default()),
        1 => Mobility::Freeze(Freeze::default()),
        2 => Mobility::LinkLayerFreeze(LinkLayerFreeze::default()),
        3 => Mobility::Atcp(Atcp::default()),
        4 | 5 => Mobility::Greet(Greet::default()),
        _ => Mobility::None,
    }
}
