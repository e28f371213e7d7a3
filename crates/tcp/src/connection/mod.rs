//! One connection, in sequence space.
//!
//! Positions count from our SYN, which has position 0; the first byte has position 1 and the FIN
//! the position after the last byte. They do not wrap; sequence numbers are positions modulo 2^32.

mod ack;
mod close;
mod congestion;
mod held;
mod input;
mod mobility;
mod open;
mod output;
mod recovery;
mod snapshot;
mod subflow;
mod timers;

use lasthop_stream::{HeldDupacks, Marks};
use lasthop_units::{Bytes, Duration, Time};
use lasthop_wire::tcp::{Segment, Seq};

use mobility::Mobile;

pub use close::reset_for;
pub use open::NotAnOpening;
pub use snapshot::{Estimates, Snapshot};

use crate::ack_request::{AckRequest, AckWindow};
use crate::config::Config;
use crate::ecn::Ecn;
use crate::receive::Receiver;
use crate::response::{AckFacts, Control, Windows};
use crate::rtt::Estimator;
use crate::sack::Scoreboard;
use crate::state::State;
use crate::stats::{Probe, Stats};

/// The ports of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ports {
    /// Ours.
    pub local: u16,
    /// The peer's.
    pub remote: u16,
}

/// Something happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The connection stands.
    Connected,
    /// The peer's stream is over: no byte follows those that have arrived.
    PeerFinished,
    /// The peer acknowledged everything up to and including our end.
    Finished,
    /// The peer reset the connection, or refused it.
    Reset,
    /// The peer was silent to too many retransmissions or probes in a row.
    GaveUp,
    /// The connection is over and can be removed.
    Closed,
}

impl Event {
    const ALL: [Self; 6] = [
        Self::Connected,
        Self::PeerFinished,
        Self::Finished,
        Self::Reset,
        Self::GaveUp,
        Self::Closed,
    ];
}

/// Which part of a segment's payload was accepted: `len` bytes after the first `skip` belong at
/// `offset` of the peer's stream. They may lie above a gap; [`Connection::readable`] says what is
/// in order.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Arrival {
    /// Offset in the peer's stream of the first byte accepted.
    pub offset: u64,
    /// Bytes of the payload before it, which were there already.
    pub skip: u32,
    /// Bytes accepted.
    pub len: u32,
}

impl Arrival {
    /// Nothing was accepted.
    pub const NONE: Self = Self { offset: 0, skip: 0, len: 0 };
}

/// A segment to send. Its payload is the bytes of our stream from `offset` up to
/// `offset + segment.len`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// The header.
    pub segment: Segment,
    /// Offset in our stream of the first byte of payload.
    pub offset: u64,
    /// Whoever sends it is to state in the IP header that its transport takes part in congestion
    /// notification: ECT(0) (RFC 3168 section 5). Never so of what was sent before, of bare
    /// acknowledgements and of window probes.
    pub ecn_capable: bool,
}

impl Outgoing {
    /// A segment whose loss or mark would tell nothing.
    pub(crate) const fn plain(segment: Segment, offset: u64) -> Self {
        Self { segment, offset, ecn_capable: false }
    }
}

/// How the sender stands towards loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Nothing is known to be lost.
    Open,
    /// Duplicate acknowledgements reported a loss; recovery ends at `recover`.
    Recovery { repair: Repairing, partial_acks: u32 },
    /// The timer expired, or Tahoe goes back: what is below `recover` is being sent again.
    Loss,
}

/// How a recovery proceeds: the response's wish, as far as the peer's options allow it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Repairing {
    Once,
    Partial,
    Sack,
}

/// What the duplicate acknowledgements in a row say of the loss that they tell.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Signs {
    /// One echoed a congestion mark.
    echo: bool,
    /// One carried a loss notification.
    eln: bool,
    /// The recovery that they began leaves the windows alone.
    spared: bool,
}

/// The acknowledgements that are owed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckPlan {
    /// Send one at once.
    now: bool,
    /// Duplicates because of gaps, each of which goes out by itself.
    duplicates: u8,
    /// Segments that no acknowledgement covers yet.
    waiting: u32,
    /// When the wait is over.
    timer: Time,
    /// What helper schemes asked for, oldest first.
    requests: [AckRequest; AckPlan::REQUESTS],
    requested: u8,
    /// Acknowledgements leave out the last two bytes that have arrived, as far as they lie at or
    /// after this position (ATR-1).
    withhold_from: Option<u64>,
}

impl AckPlan {
    /// Requests that can wait at once.
    const REQUESTS: usize = 8;

    const NONE: Self = Self {
        now: false,
        duplicates: 0,
        waiting: 0,
        timer: Time::NEVER,
        requests: [AckRequest { withhold: 0, window: AckWindow::Real }; Self::REQUESTS],
        requested: 0,
        withhold_from: None,
    };
}

/// How many challenge acknowledgements went out lately: forged segments shall not make us flood
/// their alleged sender, nor two confused peers each other (RFC 5961 section 7).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Challenges {
    since: Time,
    count: u32,
}

impl Challenges {
    const MOST: u32 = 10;
    const INTERVAL: Duration = Duration::from_secs(1);
    const NONE: Self = Self { since: Time::ZERO, count: 0 };

    /// One more may go out.
    fn take(&mut self, now: Time) -> bool {
        if now.since(self.since) >= Self::INTERVAL {
            *self = Self { since: now, count: 0 };
        }
        let may = self.count < Self::MOST;
        self.count += u32::from(may);
        may
    }
}

/// The timestamps option's state (RFC 7323 section 4).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Stamps {
    pub(crate) on: bool,
    /// TS.Recent, and when it was taken.
    pub(crate) recent: u32,
    pub(crate) recent_at: Time,
    /// Last.ACK.sent: RCV.NXT when an acknowledgement went out last.
    pub(crate) last_ack: u64,
    /// Added to the clock, so that it goes on after a move.
    pub(crate) offset: u32,
    /// The clock at the last timeout's retransmission, until an acknowledgement shows whether it
    /// was needed.
    pub(crate) timeout_at: Option<u32>,
}

/// A TCP connection that knows lengths, not bytes.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(crate) state: State,
    pub(crate) phase: Phase,
    events: u8,
    pub(crate) fin: bool,
    /// Both sides offered selective acknowledgements.
    pub(crate) sack: bool,
    /// Both sides offered window scaling.
    pub(crate) scaled: bool,
    retransmit_first: bool,
    probe_due: bool,
    reset_due: bool,
    /// The number that the reset carries, if not our own.
    reset_at: Option<Seq>,
    syn_lost: bool,
    /// Shift of the windows that the peer sends.
    pub(crate) snd_shift: u8,
    /// Payload of a full segment.
    pub(crate) mss: u32,
    dupacks: u32,
    signs: Signs,
    ecn: Ecn,

    /// SND.UNA.
    pub(crate) una: u64,
    /// SND.NXT.
    pub(crate) nxt: u64,
    /// The highest SND.NXT so far.
    pub(crate) max: u64,
    /// After the last byte that was written.
    pub(crate) written: u64,
    /// The right edge of the peer's window, and its width when it was stated.
    pub(crate) snd_edge: u64,
    pub(crate) snd_wnd: u64,
    max_wnd: u64,
    /// SND.WL1 and SND.WL2.
    wl1: u64,
    wl2: u64,
    pub(crate) windows: Windows,
    /// What duplicates show to have left the network, added to cwnd during recovery.
    inflation: i64,
    /// Once SND.UNA has passed this, duplicates count as a sign of loss again (RFC 6582).
    pub(crate) recover: u64,
    control: Control,
    /// The segment that is timed: its end, and when it was sent.
    timing: Option<(u64, Time)>,
    pub(crate) rtt: Estimator,
    expiries: u32,
    board: Scoreboard,
    last_sent: Time,

    pub(crate) recv: Receiver,
    ack: AckPlan,
    held: HeldDupacks,
    /// Congestion marks of the peer's segments.
    marks: Marks,
    challenges: Challenges,
    pub(crate) stamps: Stamps,

    rtx_timer: Time,
    persist_timer: Time,
    persist_shift: u32,
    /// Probes in a row that nothing has answered.
    probes: u32,
    time_wait_timer: Time,
    mobile: Mobile,

    pub(crate) iss: Seq,
    pub(crate) ports: Ports,
    pub(crate) config: Config,
    stats: Stats,
}

impl Connection {
    /// The state.
    pub fn state(&self) -> State {
        self.state
    }

    /// The ports.
    pub fn ports(&self) -> Ports {
        self.ports
    }

    /// What the connection was given at its beginning.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Data flows, at least one way.
    pub fn is_established(&self) -> bool {
        !matches!(self.state, State::Closed | State::SynSent | State::SynReceived)
    }

    /// Over: nothing more happens.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Payload of a full segment.
    #[inline]
    pub fn segment_size(&self) -> Bytes {
        Bytes::new(u64::from(self.mss))
    }

    /// The next thing that happened, if any.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.events == 0 {
            return None;
        }
        let bit = self.events.trailing_zeros();
        self.events &= self.events - 1;
        Event::ALL.get(bit as usize).copied()
    }

    /// Something happened that [`poll_event`](Self::poll_event) tells.
    #[inline]
    pub fn has_events(&self) -> bool {
        self.events != 0
    }

    pub(crate) fn emit(&mut self, event: Event) {
        self.events |= 1 << event as u8;
    }

    /// `n` more bytes of our stream exist; how many of them there is room for. None after
    /// [`finish`](Self::finish).
    #[inline]
    pub fn write(&mut self, n: Bytes) -> Bytes {
        let taken = n.get().min(self.send_room().get());
        self.written += taken;
        Bytes::new(taken)
    }

    /// Bytes that can be written.
    #[inline]
    pub fn send_room(&self) -> Bytes {
        if self.fin || self.state == State::Closed {
            return Bytes::ZERO;
        }
        let held = self.written - self.una.clamp(1, self.written);
        // Positions stay far from the end of their type.
        let left = (1u64 << 62).saturating_sub(self.written);
        Bytes::new(self.config.send_buffer.get().saturating_sub(held).min(left))
    }

    /// Bytes of our stream that were written.
    pub fn written(&self) -> Bytes {
        Bytes::new(self.written - 1)
    }

    /// Bytes of our stream that the peer acknowledged.
    pub fn acknowledged(&self) -> Bytes {
        Bytes::new(self.una.clamp(1, self.written) - 1)
    }

    /// Bytes of the peer's stream that have arrived in order and were not consumed.
    #[inline]
    pub fn readable(&self) -> Bytes {
        Bytes::new(self.recv.readable())
    }

    /// Bytes of the peer's stream that have arrived in order.
    pub fn received(&self) -> Bytes {
        Bytes::new(self.recv.read - 1 + self.recv.readable())
    }

    /// The peer's stream is over, read or not.
    pub fn peer_finished(&self) -> bool {
        self.recv.ended()
    }

    /// `n` bytes were read; the window may open.
    #[inline]
    pub fn consume(&mut self, n: Bytes) {
        self.recv.consume(n.get());
        if self.receives() && self.recv.needs_window_update() {
            self.ack.now = true;
        }
    }

    /// The peer may still send data.
    #[inline]
    pub(crate) fn receives(&self) -> bool {
        matches!(self.state, State::Established | State::FinWait1 | State::FinWait2)
    }

    /// Keeps the advertised window at or below `limit` (Freeze-TCP); `None` lifts it. Moves
    /// the window's right edge back if it must. The peer learns with the next acknowledgement:
    /// [`request_ack`](Self::request_ack) sends one.
    pub fn set_advertised_limit(&mut self, limit: Option<Bytes>) {
        self.recv.set_limit(limit.map(Bytes::get));
    }

    /// Advertises the lesser of `share` and the free buffer from the next acknowledgement on (RWC-6);
    /// `None` lifts it. Unlike [`set_advertised_limit`](Self::set_advertised_limit) it never moves
    /// the window's right edge back: a window that is too wide shrinks as data arrives (RWC-9), and
    /// one that was wide open before the first share takes as long as it takes to fill it. Where
    /// that matters, give the first share before the connection's first segment goes out.
    ///
    /// The share counts in whole units of the window field, rounded up, and without window scaling
    /// at most 65535 bytes (RWC-12). Nothing is sent for it, unless the window was closed. It is
    /// told to nobody else: it has an effect while the peer is limited by the window and not by its
    /// congestion window (RWC-7, RWC-11). A [`Snapshot`] leaves it out.
    pub fn set_window_share(&mut self, share: Option<Bytes>) {
        self.recv.set_share(share.map(Bytes::get));
        if self.receives() && self.recv.edge <= self.recv.nxt && self.recv.needs_window_update() {
            self.ack.now = true;
        }
    }

    /// Sends an acknowledgement at once, by itself. False if too many wait already.
    pub fn request_ack(&mut self, request: AckRequest) -> bool {
        let at = usize::from(self.ack.requested);
        match self.ack.requests.get_mut(at) {
            Some(slot) if self.state != State::Closed && self.recv.nxt > 0 => {
                *slot = request;
                self.ack.requested += 1;
                true
            }
            _ => false,
        }
    }

    /// Requests that can still be made before the next is sent.
    fn room_for_requests(&self) -> usize {
        AckPlan::REQUESTS - usize::from(self.ack.requested)
    }

    /// Sends again at once from the first unacknowledged byte, as far as the windows allow, without
    /// taking the silence for congestion: for after a move.
    pub fn retransmit_now(&mut self, now: Time) {
        if self.una < self.max && self.state != State::Closed {
            self.nxt = self.una;
            self.timing = None;
            if self.persist_timer != Time::NEVER {
                self.probe_due = true;
            } else {
                self.restart_rtx(now);
            }
        }
    }

    /// What happened so far.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The state at this instant.
    pub fn probe(&self) -> Probe {
        let inflated = self.windows.cwnd.saturating_add_signed(self.inflation);
        Probe {
            state: self.state,
            cwnd: Bytes::new(inflated.max(self.windows.mss)),
            ssthresh: Bytes::new(self.windows.ssthresh),
            srtt: self.rtt.srtt(),
            rttvar: self.rtt.rttvar(),
            rto: self.rtt.rto(),
            flight: Bytes::new(self.nxt - self.una),
            snd_wnd: Bytes::new(self.snd_edge.saturating_sub(self.una)),
            rcv_wnd: Bytes::new(self.recv.edge.saturating_sub(self.recv.nxt)),
            dupacks: self.dupacks,
            recovering: matches!(self.phase, Phase::Recovery { .. }),
        }
    }

    /// The response's input. `before` is SND.UNA before the acknowledgement in question.
    #[inline]
    pub(crate) fn facts(&self, now: Time, acked: u64, before: u64) -> AckFacts {
        let window = self.windows.cwnd.min(self.snd_wnd.max(self.windows.mss));
        let out = self.nxt - before;
        let limited = !self.config.cwnd_validation
            || if self.windows.slow_start() {
                self.windows.cwnd < 2 * out
            } else {
                self.windows.cwnd < out + self.windows.mss
            };
        AckFacts {
            now,
            acked,
            flight: (self.max - before).min(window),
            window,
            limited,
            srtt: self.rtt.srtt().unwrap_or(Duration::ZERO),
            repeated: self.phase == Phase::Loss && self.expiries > 1,
        }
    }

    /// The segment's number for one of our positions.
    #[inline]
    pub(crate) fn seq_at(&self, position: u64) -> Seq {
        // Sequence numbers are positions modulo 2^32.
        self.iss + position as u32
    }

    /// The position after everything that can be sent: data, and the FIN if we finished.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.written + u64::from(self.fin)
    }
}
