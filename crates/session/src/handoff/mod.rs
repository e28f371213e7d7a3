//! Handing a session from base to base (MHP-15..MHP-23; ITCP-3, ITCP-7, SRP-13, SPL-3 and MOB-37
//! reuse it), and sending the next base ahead what can be sent (MOB-39..MOB-43).
//!
//! [`Mobile`] and [`Base`] are machines over datagrams: they ask, repeat and give up, and say when
//! the world is to suspend, freeze, rebuild and resume. What moves is a
//! [`Session`](crate::Session)'s connections: `suspend` and `resume` at the mobile, `freeze` and
//! `rebuild` at the bases. See `docs/handoff.md`.
//!
//! At any time at most one base may use a session's state. The old base stops using it before the
//! first piece leaves; the new one starts only when the old one has confirmed, and so recorded,
//! that the state is given to it and to nobody else.

use core::net::{IpAddr, SocketAddr};

use lasthop_units::{Bytes, Duration, Time};
use lasthop_wire::mhp::handoff::{BaseName, STATE_OVERHEAD};

mod ahead;
mod attach;
mod base;
mod copies;
mod delta;
mod entry;
mod fences;
mod fetch;
mod give;
mod guard;
mod keys;
mod mobile;
mod outbox;
mod pull;
mod sessions;
mod take_over;
#[cfg(test)]
pub(crate) mod tests;
mod trust;

pub use attach::{Attach, attached, read_attached, refuse};
pub use base::{Base, BaseEvent};
pub use keys::{BaseKeys, MobileKeys};
pub use lasthop_wire::mhp::handoff::{
    ConnectionState, Direction, Ended, Grant, Reason, SessionId, SessionState, Stage,
};
pub use mobile::{Broken, Mobile, MobileEvent};
pub use trust::{Authority, Claim, Denied, Granter, Open};

/// Patience and bounds of a handoff.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// A request is repeated after so long, then after twice as long, and so on (MHP-20).
    pub retry: Duration,
    /// But never later than this.
    pub retry_max: Duration,
    /// At the mobile: how long a handoff may take before the session is broken (MHP-21). At a base:
    /// how long the old base may be silent; a little less, so that the mobile gets the reason.
    pub give_up: Duration,
    /// At a base: how long another may be silent that has the session of a mobile which is here, before the session goes on
    /// from what the mobile has. `None`: it never does.
    pub take_over: Option<Duration>,
    /// How long an old base holds a frozen state that nobody fetches.
    pub hold: Duration,
    /// How long packets are forwarded to where a session went (MHP-22).
    pub forward: Duration,
    /// How long a base remembers where a session went. Longer than any mobile tries.
    pub remember: Duration,
    /// How long a copy that was sent ahead is kept without news (MOB-41).
    pub ahead: Duration,
    /// How long after one copy the next is made; as long again for every 256 KiB of it.
    pub renew: Duration,
    /// The largest datagram between bases.
    pub datagram: Bytes,
    /// Pieces of a state on their way at once.
    pub window: u16,
    /// The largest state of one session that is taken.
    pub state_max: Bytes,
    /// The memory of all states that are being fetched, and of copies, which give way to states. What comes
    /// from one base has half of what the others leave.
    pub memory_max: Bytes,
    /// Sessions on their way here at once. One mobile has at most two of these places, and one base that they
    /// come from half of those that the others leave.
    pub pending_max: usize,
    /// Sessions that are known at all, those that left included; at most 16 of one mobile.
    pub sessions_max: usize,
}

impl Config {
    /// For the mobile.
    pub const fn mobile() -> Self {
        Self {
            retry: Duration::from_millis(200),
            retry_max: Duration::from_millis(3200),
            give_up: Duration::from_secs(30),
            take_over: None,
            hold: Duration::from_secs(60),
            forward: Duration::from_secs(10),
            remember: Duration::from_secs(120),
            ahead: Duration::from_secs(5),
            renew: Duration::from_millis(50),
            datagram: Bytes::new(1200),
            window: 32,
            state_max: Bytes::from_mib(16),
            memory_max: Bytes::from_mib(256),
            pending_max: 256,
            sessions_max: 16 * 1024,
        }
    }

    /// For a base.
    pub const fn base() -> Self {
        Self { give_up: Duration::from_secs(25), ..Self::mobile() }
    }

    /// For datagrams that travel on a reliable stream: large pieces, more of them at once, and requests
    /// that are repeated only because the other end may have been restarted meanwhile. A stream's
    /// association notices by itself that the other end is gone, so a base waits less long for an
    /// answer.
    #[must_use]
    pub const fn over_streams(self) -> Self {
        let patience = Duration::from_secs(10);
        let hasty = self.give_up.as_nanos() < Self::mobile().give_up.as_nanos();
        Self {
            retry: Duration::from_secs(1),
            give_up: if hasty { patience } else { self.give_up },
            datagram: Bytes::new(16 * 1024 + STATE_OVERHEAD as u64),
            window: 64,
            ..self
        }
    }

    /// Bytes of state in one datagram.
    fn piece(&self) -> u16 {
        let room = self.datagram.get().saturating_sub(STATE_OVERHEAD as u64);
        room.clamp(1, 32 * 1024) as u16
    }
}

/// What bases are called by: where the datagrams of a handoff go.
pub trait Address: Copy + Ord {
    /// The name as other bases and mobiles write it.
    fn to_name(self) -> BaseName;
    /// Who is called so, if it can be read.
    fn from_name(name: &BaseName) -> Option<Self>;
}

impl Address for u32 {
    fn to_name(self) -> BaseName {
        BaseName::new(&self.to_be_bytes()).unwrap_or_default()
    }

    fn from_name(name: &BaseName) -> Option<Self> {
        name.as_bytes().try_into().ok().map(Self::from_be_bytes)
    }
}

impl Address for SocketAddr {
    fn to_name(self) -> BaseName {
        let port = self.port().to_be_bytes();
        let name = match self.ip() {
            IpAddr::V4(ip) => [&ip.octets()[..], &port].concat(),
            IpAddr::V6(ip) => [&ip.octets()[..], &port].concat(),
        };
        BaseName::new(&name).unwrap_or_default()
    }

    fn from_name(name: &BaseName) -> Option<Self> {
        let (ip, port) = name.as_bytes().split_last_chunk::<2>()?;
        let ip: IpAddr = match ip.len() {
            4 => <[u8; 4]>::try_from(ip).ok()?.into(),
            _ => <[u8; 16]>::try_from(ip).ok()?.into(),
        };
        Some(Self::new(ip, u16::from_be_bytes(*port)))
    }
}

/// What one base may have of `most` where others have so much of it: half of what they leave, so that something
/// is always left for the next.
const fn share(most: u64, others: u64) -> u64 {
    most.saturating_sub(others).div_ceil(2)
}

/// When a request is repeated.
#[derive(Clone, Copy, Debug)]
struct Retry {
    next: Time,
    wait: Duration,
}

impl Retry {
    /// At once, and then after `config.retry`.
    fn now(now: Time, config: &Config) -> Self {
        Self { next: now, wait: config.retry }
    }

    /// The request was sent just now for the first time since the last answer.
    fn after_progress(now: Time, config: &Config) -> Self {
        Self { next: now + config.retry, wait: config.retry.saturating_mul(2) }
    }

    /// The request goes out again.
    fn again(&mut self, now: Time, config: &Config) {
        self.again_within(now, config.retry_max);
    }

    /// The same, but never later than after `most`.
    fn again_within(&mut self, now: Time, most: Duration) {
        self.next = now + self.wait;
        self.wait = self.wait.saturating_mul(2).min(most);
    }
}
