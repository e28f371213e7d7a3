//! What a connection is given when it begins.

use lasthop_units::{Bytes, Duration};
use serde::Deserialize;

use crate::mobility::Mobility;
use crate::response::{Algorithm, LossBase};
use crate::window::Window;

/// When acknowledgements may wait (RFC 9293 section 3.8.6.3, RENO-7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DelayedAck {
    /// The longest wait.
    pub timeout: Duration,
    /// An acknowledgement is sent at once for every so many segments.
    pub every: u32,
    /// The wait ends at the next whole multiple of `timeout`, as BSD's fast timer has it, instead of
    /// a full `timeout` after the segment.
    pub on_ticks: bool,
}

/// What ends the doubling of the retransmission timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackoffReset {
    /// A valid round-trip sample (RFC 6298 section 5, Karn's second rule).
    Sample,
    /// Any acknowledgement of new data.
    AnyAck,
}

/// The retransmission timer (RFC 6298, RENO-5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rto {
    /// Before the first sample.
    pub initial: Duration,
    /// The least timeout, before doubling.
    pub min: Duration,
    /// The greatest timeout, after doubling.
    pub max: Duration,
    /// The clock that round trips are measured with: a sample is the number of its ticks that
    /// passed, at least one. A nanosecond is as good as exact; BSD has 500 ms.
    pub tick: Duration,
    /// The timer fires on ticks, as BSD's slow timer does. Without it only measurement is coarse,
    /// as in ns-2.
    pub fires_on_ticks: bool,
    /// What ends the doubling.
    pub backoff_reset: BackoffReset,
    /// After so many expiries in a row the smoothed round trip is cleared and the next sample
    /// starts it anew, the variance growing by the old estimate. BSD and ns-2 do so after the
    /// fourth (RFC 6298 section 5, last paragraph, allows it).
    pub forget_after: Option<u32>,
    /// The connection is given up at the expiry after so many in a row; never if `None`.
    pub give_up_after: Option<u32>,
}

/// Zero-window probing (RFC 9293 section 3.8.6.1, RENO-8): probes are spaced by the retransmission
/// timeout, doubling, kept within these bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Persist {
    /// The least time between probes.
    pub min: Duration,
    /// The greatest.
    pub max: Duration,
    /// Probes that nothing answers count like expiries against [`Rto::give_up_after`]. Without it
    /// probing goes on for ever, as in BSD up to 4.4BSD-Lite, whose persist timer only sends and
    /// starts anew.
    pub gives_up: bool,
}

/// What happens when the peer closes its window while data is outstanding (RENO-9).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShrunkWindow {
    /// The retransmission timer is cancelled, SND.NXT returns to SND.UNA and the connection goes to
    /// persist, as in BSD.
    Persist,
    /// The retransmission timer keeps running: what Freeze-TCP and its kin cannot live with.
    KeepTimer,
}

/// The configuration of a connection. Start from a preset and change what
/// differs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Config {
    /// The largest payload; announced on the SYN. Segments carry the lesser of this and what the
    /// peer announced, less options.
    pub mss: u16,
    /// The congestion window at the start (RENO-2).
    pub initial_cwnd: Window,
    /// ssthresh at the start; unlimited if `None`.
    pub initial_ssthresh: Option<Window>,
    /// The congestion window never exceeds this.
    pub cwnd_max: Option<Window>,
    /// Bytes that may wait for the reader; what the advertised window follows.
    pub recv_buffer: Bytes,
    /// Bytes that may be written and not yet acknowledged.
    pub send_buffer: Bytes,
    /// Offer and accept window scaling (RFC 7323 section 2); without it no window exceeds 65535
    /// bytes.
    pub window_scale: bool,
    /// Offer and accept timestamps (RFC 7323 section 3): PAWS, and samples over retransmissions.
    pub timestamps: bool,
    /// Offer and accept selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// When acknowledgements may wait; each segment is acknowledged at once if `None`.
    pub delayed_ack: Option<DelayedAck>,
    /// The retransmission timer.
    pub rto: Rto,
    /// Small segments wait while data is outstanding (RFC 9293 section 3.7.4).
    pub nagle: bool,
    /// Zero-window probing.
    pub persist: Persist,
    /// What happens when the window closes on outstanding data.
    pub shrunk_window: ShrunkWindow,
    /// The first two duplicate acknowledgements each let out one new segment (RFC 3042).
    pub limited_transmit: bool,
    /// After an idle retransmission timeout the window returns to its initial value (RFC 5681
    /// section 4.1).
    pub restart_after_idle: bool,
    /// The window grows only while it is what limits the sender (RFC 9438 section 5.8, RFC 7661).
    pub cwnd_validation: bool,
    /// What ssthresh is the half of after a loss.
    pub loss_base: LossBase,
    /// How long TIME-WAIT lasts: two maximum segment lifetimes (RFC 9293 section 3.4.2).
    pub time_wait: Duration,
    /// The answer to loss.
    pub algorithm: Algorithm,
    /// What this end, if it moves, does at disconnections and handoffs.
    pub mobility: Mobility,
    /// Offer and accept explicit congestion notification (RFC 3168).
    pub ecn: bool,
    /// Tell losses to congestion from losses on the radio by the marks around them (CC-3). In force
    /// only where [`ecn`](Self::ecn) is on and the peer agreed, for without marks every loss would
    /// pass for the radio's.
    pub coherence: Option<Coherence>,
    /// As receiver, send the first two duplicate acknowledgements of a gap at once and the others
    /// only if the gap is still there so long after the third was due (DDA-2, DDA-3). Not published;
    /// the time that a link takes to repair a loss is in place (DDA-4). Where
    /// [`coherence`](Self::coherence) is in force it decides alone.
    pub delayed_dupacks: Option<Duration>,
    /// As sender, repair a loss without giving up window if duplicate acknowledgements carry a loss
    /// notification (SNP-10, [`Options::eln`](lasthop_wire::tcp::Options::eln)).
    pub eln: bool,
}

/// How congestion coherence judges a loss (CC-3): it is congestion's if a neighbour of what is
/// missing carries a mark, the segment before it or one of the first behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Coherence {
    /// As receiver, how long duplicate acknowledgements of a loss on the radio wait for the link to
    /// repair it (CC-5). Not published (CC-8): longer than the link needs for it, and so much shorter
    /// than the peer's retransmission timeout that duplicates released still find it waiting.
    pub hold: Duration,
    /// How many segments behind the missing ones are neighbours: "one or two".
    pub behind: u8,
}

impl Coherence {
    /// With two neighbours behind.
    pub const fn new(hold: Duration) -> Self {
        Self { hold, behind: 2 }
    }
}

impl Config {
    /// A BSD-derived TCP of the early 1990s, such as SunOS 4.1 (RENO-12): 500 ms ticks, 1 s least
    /// and 64 s greatest timeout, 200 ms delayed acknowledgements, 4 kB buffers, a window of one
    /// segment at the start, no options but MSS 512 (4.3BSD-Tahoe and Net/2's `tcp_timer.h` and
    /// `tcp_input.c` have these values). Tahoe; set [`algorithm`](Self::algorithm) for Reno.
    pub const fn bsd_1990s() -> Self {
        Self {
            mss: 512,
            initial_cwnd: Window::Segments(1),
            initial_ssthresh: None,
            cwnd_max: None,
            recv_buffer: Bytes::from_kib(4),
            send_buffer: Bytes::from_kib(4),
            window_scale: false,
            timestamps: false,
            sack: false,
            delayed_ack: Some(DelayedAck {
                timeout: Duration::from_millis(200),
                every: 2,
                on_ticks: true,
            }),
            rto: Rto {
                initial: Duration::from_secs(6),
                min: Duration::from_secs(1),
                max: Duration::from_secs(64),
                tick: Duration::from_millis(500),
                fires_on_ticks: true,
                backoff_reset: BackoffReset::Sample,
                forget_after: Some(4),
                give_up_after: Some(12),
            },
            nagle: true,
            persist: Persist {
                min: Duration::from_secs(5),
                max: Duration::from_secs(60),
                gives_up: false,
            },
            shrunk_window: ShrunkWindow::Persist,
            limited_transmit: false,
            restart_after_idle: false,
            cwnd_validation: false,
            loss_base: LossBase::Window,
            time_wait: Duration::from_secs(60),
            algorithm: Algorithm::Tahoe,
            mobility: Mobility::None,
            ecn: false,
            coherence: None,
            delayed_dupacks: None,
            eln: false,
        }
    }

    /// What ns-2.35's one-way agents do with its default parameters (`ns-default.tcl`): 1000-byte
    /// segments, a window of 2 segments at the start and 20 at most, every segment acknowledged,
    /// 10 ms measuring clock, 0.2 s least, 3 s initial and 60 s greatest timeout, limited transmit
    /// (`singledup_`), Reno. ns-2 has no reader and no opening: the buffers are as large as
    /// the window field allows and the window is set by [`cwnd_max`](Self::cwnd_max).
    pub const fn ns2() -> Self {
        Self {
            mss: 1000,
            initial_cwnd: Window::Segments(2),
            cwnd_max: Some(Window::Segments(20)),
            recv_buffer: Bytes::from_mib(4),
            send_buffer: Bytes::new(u64::MAX),
            window_scale: true,
            delayed_ack: None,
            rto: Rto {
                initial: Duration::from_secs(3),
                min: Duration::from_millis(200),
                max: Duration::from_secs(60),
                tick: Duration::from_millis(10),
                fires_on_ticks: false,
                backoff_reset: BackoffReset::Sample,
                forget_after: Some(4),
                give_up_after: None,
            },
            nagle: false,
            limited_transmit: true,
            time_wait: Duration::ZERO,
            algorithm: Algorithm::Reno,
            ..Self::bsd_1990s()
        }
    }

    /// What a current stack does: CUBIC (RFC 9438), SACK, timestamps, window scaling, an initial
    /// window of ten segments (RFC 6928), 1 s initial (RFC 6298) and, as Linux has it, 200 ms least
    /// timeout and 40 ms delayed acknowledgements.
    pub const fn modern() -> Self {
        Self {
            mss: 1460,
            initial_cwnd: Window::Segments(10),
            recv_buffer: Bytes::from_mib(4),
            send_buffer: Bytes::from_mib(4),
            window_scale: true,
            timestamps: true,
            sack: true,
            delayed_ack: Some(DelayedAck {
                timeout: Duration::from_millis(40),
                every: 2,
                on_ticks: false,
            }),
            rto: Rto {
                initial: Duration::from_secs(1),
                min: Duration::from_millis(200),
                max: Duration::from_secs(120),
                tick: Duration::from_nanos(1),
                fires_on_ticks: false,
                backoff_reset: BackoffReset::Sample,
                forget_after: None,
                give_up_after: Some(15),
            },
            persist: Persist {
                min: Duration::from_millis(200),
                max: Duration::from_secs(120),
                gives_up: true,
            },
            limited_transmit: true,
            restart_after_idle: true,
            cwnd_validation: true,
            loss_base: LossBase::Flight,
            algorithm: Algorithm::Cubic,
            ..Self::bsd_1990s()
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::modern()
    }
}
