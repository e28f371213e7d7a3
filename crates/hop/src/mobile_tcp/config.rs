//! Limits and timing.

use core::time::Duration;

use lasthop_units::Bytes;
use lasthop_wire::mobile_tcp::MAX_WINDOW;

use crate::memory::Memory;

/// The smallest buffer, either way: it must hold the session's longest message.
const BUFFER_MIN: u16 = 2048;
/// The smallest packet that is worth its header.
const PACKET_MIN: u64 = 16;

/// Limits and timing of one end of Mobile TCP.
///
/// The defaults are the paper's where it has any. Nothing limits a sender but windows (MOB-3): over
/// a carrier that does not hold back what a slower radio cannot take, `inflight` does.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// What one connection may hold received and unread, and so its largest window (MOB-20). The
    /// paper's runs had 16 KiB; at most 32767 bytes can be told apart (MOB-13), and more than that
    /// is taken as that, and less than 2048 as 2048.
    pub window: Bytes,
    /// What one connection may hold written and not acknowledged; at least 2 KiB.
    pub send_buffer: Bytes,
    /// Data in one packet at most, both ways: the carrier's MTU less the 16 bytes of the header
    /// and `pad`.
    pub max_packet: Bytes,
    /// The one timer goes off this often (MOB-34).
    pub tick: Duration,
    /// The retransmission timeout before there is a round trip to go by (the paper is silent).
    pub rto_initial: Duration,
    /// A timeout that expires in vain doubles, up to this: low, since loss is no congestion (MOB-35
    /// is silent). The first timeout, if it is longer, stays as it is.
    pub backoff_max: Duration,
    /// A connection is aborted after so many expiries in a row without any packet of its peer's
    /// (the paper is silent).
    pub give_up_after: u32,
    /// Every so many packets in sequence are acknowledged at once, and the last of a whole window;
    /// fewer with the next tick (MOB-22).
    pub ack_every: u32,
    /// Holds back a packet that is not full while others are on their way (RFC 896). The paper is
    /// silent; it is off.
    pub nagle: bool,
    /// What all connections together may have on their way. `None`, the paper's way, leaves it to
    /// their windows.
    pub inflight: Option<Bytes>,
    /// What the buffers of all associations with a clone of this may take together. A connection takes
    /// both of its buffers when it is opened, and is refused if there is not so much.
    pub memory: Memory,
    /// Connections at once, both ends' openings together. One more is refused.
    pub connections_max: usize,
    /// Connections at once that the peer opens and that do not stand yet. One more is refused.
    pub half_open_max: usize,
    /// Bytes added behind each packet, which its receiver ignores: 24 make the headers as long as
    /// those of TCP and IP (the paper's MTCP_24, section 5.2).
    pub pad: Bytes,
    /// The longest time for which an idle end sends nothing; `None` for ever.
    pub keepalive: Option<Duration>,
    /// Silence, although an answer is due, after which all connections are aborted.
    pub silence_limit: Duration,
    /// How long a connection's identifier rests after its end, so that what is still on its way, or
    /// is repeated, meets its own connection (TIME-WAIT; the paper is silent). An end that has all
    /// acknowledges what the other repeats, and one that resets repeats that: each begins the rest
    /// anew. A tick at least.
    pub quiet: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            window: Bytes::from_kib(16),
            send_buffer: Bytes::from_kib(64),
            max_packet: Bytes::new(1460),
            tick: Duration::from_millis(200),
            rto_initial: Duration::from_secs(1),
            backoff_max: Duration::from_secs(1),
            give_up_after: 1800,
            ack_every: 2,
            nagle: false,
            inflight: None,
            memory: Memory::default(),
            connections_max: 1024,
            half_open_max: 256,
            pad: Bytes::ZERO,
            keepalive: None,
            silence_limit: Duration::from_secs(1800),
            quiet: Duration::from_secs(60),
        }
    }
}

impl Config {
    /// The window, as far as the format can express it.
    pub(super) fn window(&self) -> u16 {
        u16::try_from(self.window.get()).unwrap_or(MAX_WINDOW).clamp(BUFFER_MIN, MAX_WINDOW)
    }

    pub(super) fn send_buffer(&self) -> u64 {
        self.send_buffer.get().max(u64::from(BUFFER_MIN))
    }

    /// Data in one packet, as far as the format can express it.
    pub(super) fn max_packet(&self) -> u16 {
        let most = self.max_packet.get().max(PACKET_MIN);
        u16::try_from(most).unwrap_or(u16::MAX)
    }

    /// How long an identifier rests.
    pub(super) fn quiet(&self) -> Duration {
        self.quiet.max(self.tick())
    }

    /// The tick; a timer needs one.
    pub(super) fn tick(&self) -> Duration {
        self.tick.max(Duration::from_millis(1))
    }
}
