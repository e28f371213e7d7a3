//! What the applications of a schedule will do.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use lasthop_session::{HostName, Opening, Refusal, Target};
use lasthop_units::{Duration, Stream, Time};

/// One connection from an application at a mobile to a fixed host behind the base.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ConnectionPlan {
    /// Which mobile opens it.
    pub(crate) mobile: usize,
    /// When.
    pub(crate) at: Time,
    /// When its application is told.
    pub(crate) opening: Opening,
    /// How the mobile names the fixed host.
    pub(crate) name: Naming,
    /// How long the fixed host takes to answer.
    pub(crate) answer_after: Duration,
    /// What it then says; nothing means that it accepts.
    pub(crate) refusal: Option<Refusal>,
    /// What the application does.
    pub(crate) application: SidePlan,
    /// What the fixed host does.
    pub(crate) fixed_host: SidePlan,
}

/// How a target is named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Naming {
    /// By IPv4 address.
    Ipv4,
    /// By IPv6 address.
    Ipv6,
    /// By a name.
    Name,
}

/// What one end of a connection does.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct SidePlan {
    /// Bytes that it wants to send.
    pub(crate) bytes: u64,
    /// It begins to write once it has read this many.
    pub(crate) write_after: u64,
    /// The most it writes at a time.
    pub(crate) write_piece: usize,
    /// Mean pause after each write; zero means that it writes whenever it can.
    pub(crate) write_gap: Duration,
    /// The most it reads at a time.
    pub(crate) read_piece: usize,
    /// Mean stall after each read; zero means that it reads whenever it can.
    pub(crate) read_gap: Duration,
    /// It gives the connection up once it has read and written this many bytes in all.
    pub(crate) reset_after: Option<u64>,
}

/// First port of the fixed hosts: the port tells which connection a target belongs to.
const FIRST_PORT: u16 = 1000;

impl ConnectionPlan {
    /// Where connection number `index` goes.
    pub(crate) fn target(&self, index: usize) -> Target {
        let port = FIRST_PORT + index as u16;
        match self.name {
            Naming::Ipv4 => SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), port).into(),
            Naming::Ipv6 => SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), port).into(),
            Naming::Name => match HostName::new(&format!("fixed-host-{index}.example")) {
                Ok(name) => Target::Name(name, port),
                Err(_) => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port).into(),
            },
        }
    }

    /// The number of the connection that goes to `target`.
    pub(crate) fn index_of(target: &Target) -> Option<usize> {
        target.port().checked_sub(FIRST_PORT).map(usize::from)
    }

    /// Whether every byte of both directions should arrive.
    pub(crate) fn completes(&self) -> bool {
        self.refusal.is_none()
            && self.application.reset_after.is_none()
            && self.fixed_host.reset_after.is_none()
    }

    /// A connection opened before `last`, of at most `most` bytes in both directions together.
    pub(crate) fn random(random: &mut Stream, mobiles: usize, last: Duration, most: u64) -> Self {
        let mut application = SidePlan::random(random, most / 2);
        let mut fixed_host = SidePlan::random(random, most / 2);
        match random.below(4) {
            // A request and its response; or a greeting first, as mail servers do.
            0 => {
                application.bytes = application.bytes.clamp(1, 2000);
                fixed_host.write_after = 1 + random.below(application.bytes);
            }
            1 => {
                fixed_host.bytes = fixed_host.bytes.clamp(1, 200);
                application.write_after = 1 + random.below(fixed_host.bytes);
            }
            2 => application.bytes = 0,
            _ => {}
        }
        let all = application.bytes + fixed_host.bytes;
        if random.chance(0.08) {
            application.reset_after = Some(random.below(all + 1));
        }
        if random.chance(0.08) {
            fixed_host.reset_after = Some(random.below(all + 1));
        }
        Self {
            mobile: random.below(mobiles as u64) as usize,
            at: Time::ZERO + upto(random, last),
            opening: if random.chance(0.3) { Opening::Early } else { Opening::Faithful },
            name: pick(random, &[Naming::Ipv4, Naming::Ipv6, Naming::Name]),
            answer_after: if random.chance(0.5) {
                Duration::ZERO
            } else {
                upto(random, Duration::from_millis(500))
            },
            refusal: random.chance(0.1).then(|| pick(random, &Refusal::NAMED)),
            application,
            fixed_host,
        }
    }
}

impl SidePlan {
    fn random(random: &mut Stream, most: u64) -> Self {
        let gap = |random: &mut Stream| match random.below(3) {
            0 => Duration::from_micros(log_uniform(random, 10, 200_000)),
            _ => Duration::ZERO,
        };
        Self {
            bytes: match random.below(10) {
                0 => 0,
                1..=3 => log_uniform(random, 1, most.max(2)),
                _ => most / 2 + random.below(most / 2 + 1),
            },
            write_after: 0,
            write_piece: log_uniform(random, 1, 65_536) as usize + 50,
            write_gap: gap(random),
            read_piece: log_uniform(random, 1, 65_536) as usize + 50,
            read_gap: gap(random),
            reset_after: None,
        }
    }
}

/// A whole number between `low` and `high` whose logarithm is uniform.
pub(crate) fn log_uniform(random: &mut Stream, low: u64, high: u64) -> u64 {
    // Octave by octave instead of with logarithms: the same on every machine.
    let octaves = u64::from((high / low.max(1)).max(1).ilog2()) + 1;
    let base = low.saturating_mul(1 << random.below(octaves));
    (base + random.below(base.max(1))).clamp(low, high)
}

/// A duration uniform below `most`.
pub(crate) fn upto(random: &mut Stream, most: Duration) -> Duration {
    Duration::from_nanos(random.below(most.as_nanos() as u64))
}

/// One of several values.
pub(crate) fn pick<T: Copy>(random: &mut Stream, from: &[T]) -> T {
    from[random.below(from.len() as u64) as usize]
}
