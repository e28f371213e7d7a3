//! A connection's state apart from its bytes, to recreate it elsewhere (MHP-17).

use alloc::vec::Vec;
use core::ops::Range;

use lasthop_units::{Bytes, Time};
use lasthop_wire::tcp::Seq;

use super::{Connection, Ports, State};
use crate::config::Config;
use crate::rtt::{Estimator, RttState};

/// What it takes to go on with a connection on another machine: the counterpart of what Linux gives
/// out under TCP_REPAIR. Offsets are of the two byte streams. The bytes themselves, written but not
/// acknowledged and received but not read, travel beside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// The state, half-closed ones too.
    pub state: State,
    /// The ports.
    pub ports: Ports,
    /// Our initial sequence number.
    pub iss: Seq,
    /// The peer's.
    pub irs: Seq,
    /// Our bytes before this offset are acknowledged.
    pub acknowledged: u64,
    /// Our SYN is acknowledged.
    pub syn_acknowledged: bool,
    /// Our FIN is acknowledged.
    pub fin_acknowledged: bool,
    /// Our bytes before this offset were sent at least once.
    pub sent: u64,
    /// Our SYN was sent at least once.
    pub syn_sent: bool,
    /// Our FIN was sent at least once.
    pub fin_sent: bool,
    /// Our bytes that were written.
    pub written: u64,
    /// Our stream ends with them.
    pub finished: bool,
    /// The peer's bytes before this offset have arrived.
    pub received: u64,
    /// The peer's bytes before this offset were read.
    pub consumed: u64,
    /// What has arrived above a gap.
    pub received_ahead: Vec<Range<u64>>,
    /// Where the peer's stream ends, if its FIN is known.
    pub peer_end: Option<u64>,
    /// The peer may send up to this offset: that was advertised.
    pub receive_edge: u64,
    /// We may send up to this offset.
    pub send_edge: u64,
    /// Payload of a full segment.
    pub mss: u32,
    /// Shift of the windows that we send, and of those that the peer sends; `None` if scaling is
    /// off.
    pub window_shifts: Option<(u8, u8)>,
    /// Selective acknowledgements are agreed on.
    pub sack: bool,
    /// Timestamps are agreed on: our clock, and the peer's that is echoed.
    pub timestamps: Option<(u32, u32)>,
    /// The congestion window.
    pub cwnd: Bytes,
    /// The slow-start threshold.
    pub ssthresh: Bytes,
    /// The round trip.
    pub rtt: RttState,
}

/// What a connection has learned of its path, for another one over the same path (ITCP-3).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Estimates {
    /// The congestion window.
    pub cwnd: Bytes,
    /// The slow-start threshold.
    pub ssthresh: Bytes,
    /// The round trip.
    pub rtt: RttState,
}

/// Positions of a restored connection lie below this, far from the end of their type.
const FARTHEST: u64 = 1 << 61;
/// No window is wider (RFC 7323 section 2.3).
const WIDEST: u64 = (u16::MAX as u64) << 14;
/// Ranges above a gap that are taken over at most.
const RANGES_KEPT: usize = 256;

impl Connection {
    /// The state at this instant. The connection here must send nothing from then on.
    pub fn snapshot(&self, now: Time) -> Snapshot {
        let offset = |position: u64| position.clamp(1, self.written) - 1;
        let received = self.recv.read - 1 + self.recv.readable();
        Snapshot {
            state: self.state,
            ports: self.ports,
            iss: self.iss,
            irs: self.recv.irs,
            acknowledged: offset(self.una),
            syn_acknowledged: self.una > 0,
            fin_acknowledged: self.fin && self.una > self.written,
            sent: offset(self.max),
            syn_sent: self.max > 0,
            fin_sent: self.fin && self.max > self.written,
            written: self.written - 1,
            finished: self.fin,
            received,
            consumed: self.recv.read - 1,
            received_ahead: self.recv.ahead.iter().map(|r| r.start - 1..r.end - 1).collect(),
            peer_end: self.recv.fin.map(|fin| fin - 1),
            receive_edge: self.recv.promised.max(1) - 1,
            send_edge: self.snd_edge.max(1) - 1,
            mss: self.mss,
            window_shifts: self.scaled.then_some((self.recv.shift, self.snd_shift)),
            sack: self.sack,
            timestamps: self.stamps.on.then(|| (self.clock(now), self.stamps.recent)),
            cwnd: Bytes::new(self.windows.cwnd),
            ssthresh: Bytes::new(self.windows.ssthresh),
            rtt: self.rtt.state(),
        }
    }

    /// Goes on where `snapshot` was taken. What is outstanding waits for an acknowledgement or the
    /// timer; [`retransmit_now`](Self::retransmit_now) sends it again at once.
    ///
    /// What a mobility scheme was in the midst of does not travel: the end is in a new place, where
    /// the link carries. With such a scheme an acknowledgement of all that has arrived, with the real
    /// window, goes out at once, so that a peer whose window is shut or who waits for the last two
    /// bytes goes on.
    pub fn restore(config: Config, now: Time, snapshot: &Snapshot) -> Self {
        let s = snapshot;
        let mut it = Self::new(config, s.ports, s.iss, s.state, now);
        it.restore_sending(s, now);
        it.restore_receiving(s);
        it.resume_timers(now);
        it.ack.now = it.mobile.on && it.receives();
        it
    }

    /// What the connection has learned of its path.
    pub fn estimates(&self) -> Estimates {
        Estimates {
            cwnd: Bytes::new(self.windows.cwnd),
            ssthresh: Bytes::new(self.windows.ssthresh),
            rtt: self.rtt.state(),
        }
    }

    /// Takes another connection's estimates for its own. The windows count only once the connection
    /// stands: opening sets them anew.
    pub fn adopt(&mut self, estimates: &Estimates) {
        self.windows.set_cwnd(estimates.cwnd.get());
        self.windows.ssthresh = estimates.ssthresh.get().max(2 * self.windows.mss);
        self.rtt = Estimator::restore(self.config.rto, estimates.rtt);
    }

    fn restore_sending(&mut self, s: &Snapshot, now: Time) {
        let position = |offset: u64| offset.min(s.written).saturating_add(1).min(FARTHEST);
        self.written = position(s.written);
        self.fin = s.finished;
        let after_fin = |acked: bool, at: u64| if acked && s.finished { at + 1 } else { at };
        self.una = after_fin(s.fin_acknowledged, position(s.acknowledged));
        self.max = after_fin(s.fin_sent, position(s.sent)).max(self.una);
        // A snapshot from elsewhere may contradict itself: a later state has its SYN behind it.
        let opens = match s.state {
            State::SynSent | State::SynReceived => true,
            State::Closed => !s.syn_acknowledged,
            _ => false,
        };
        if opens {
            self.una = 0;
            self.max = u64::from(s.syn_sent);
        }
        self.nxt = self.max;
        self.recover = self.una.saturating_sub(1);
        self.mss = s.mss.clamp(1, u32::from(self.config.mss.max(1)));
        self.windows.mss = u64::from(self.mss);
        self.windows.set_cwnd(s.cwnd.get());
        self.windows.ssthresh = s.ssthresh.get().max(2 * self.windows.mss);
        self.snd_edge = s.send_edge.saturating_add(1).clamp(self.una, self.una + WIDEST);
        self.snd_wnd = self.snd_edge - self.una;
        self.max_wnd = self.snd_wnd;
        self.wl2 = self.una;
        self.rtt = Estimator::restore(self.config.rto, s.rtt);
        self.sack = s.sack;
        if let Some((clock, recent)) = s.timestamps {
            self.stamps.on = true;
            self.stamps.recent = recent;
            self.stamps.recent_at = now;
            self.stamps.offset = clock.wrapping_sub(self.clock(now));
        }
    }

    fn restore_receiving(&mut self, s: &Snapshot) {
        if s.state == State::SynSent {
            return;
        }
        self.recv.begin(s.irs);
        let position = |offset: u64| offset.min(FARTHEST) + 1;
        self.recv.nxt = position(s.received);
        self.recv.read = position(s.consumed).min(self.recv.nxt);
        let farthest = self.recv.nxt.saturating_add(WIDEST);
        self.recv.promised = position(s.receive_edge).clamp(self.recv.nxt, farthest);
        self.recv.edge = self.recv.promised;
        for range in s.received_ahead.iter().take(RANGES_KEPT) {
            let (start, end) = (position(range.start), position(range.end));
            if start > self.recv.nxt && end <= self.recv.promised && start < end {
                self.recv.ahead.insert(start..end);
            }
        }
        s.peer_end.into_iter().for_each(|end| self.recv.on_fin(position(end)));
        self.recv.pass_fin();
        if let Some((ours, peers)) = s.window_shifts {
            self.scaled = true;
            self.recv.shift = ours.min(14);
            self.snd_shift = peers.min(14);
        }
        self.wl1 = self.recv.nxt;
        self.stamps.last_ack = self.recv.nxt;
    }

    fn resume_timers(&mut self, now: Time) {
        if self.state == State::Closed {
            return;
        }
        if self.state == State::TimeWait {
            self.enter_time_wait(now);
        } else if self.snd_edge <= self.una && self.una > 0 && self.una < self.written {
            self.nxt = self.una;
            self.start_persist(now);
        } else {
            self.restart_rtx(now);
        }
    }
}
