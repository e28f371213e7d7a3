//! The answer to loss: a part that can be swapped.
//!
//! The connection decides what is lost and what to send; a [`Response`] decides how large the window
//! is. AckFacts go in, the windows change.

mod cubic;
mod lia;
mod reno;

use lasthop_units::{Duration, Time};
use serde::Deserialize;

pub use cubic::Cubic;
pub use lia::{Coupling, Lia};
pub use reno::Reno;

/// Which answer to loss a connection has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// Fast retransmit, then slow start (4.3BSD-Tahoe).
    Tahoe,
    /// Fast recovery that the first new acknowledgement ends (RFC 2001, RENO-3).
    Reno,
    /// Fast recovery that lasts until all that was out is acknowledged (RFC 6582).
    NewReno,
    /// Recovery by selective acknowledgements (RFC 6675); NewReno if the peer has none.
    Sack,
    /// CUBIC (RFC 9438), recovering as [`Sack`](Self::Sack).
    Cubic,
    /// Windows of subflows that grow together (RFC 6356), recovering as [`Sack`](Self::Sack).
    Lia,
}

/// How lost data is found and sent again once duplicate acknowledgements have reported a loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repair {
    /// From the first unacknowledged byte on, as after a timeout (Tahoe).
    GoBack,
    /// One segment; the next new acknowledgement ends recovery (Reno).
    Once,
    /// One segment for each partial acknowledgement (RFC 6582).
    Partial,
    /// What the scoreboard shows as lost (RFC 6675); as [`Partial`](Self::Partial) if the peer does
    /// not send selective acknowledgements.
    Sack,
}

/// What ssthresh is the half of after a loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossBase {
    /// The data in flight; ssthresh is left alone when the timer expires again for the same data
    /// (RFC 5681 section 3.1).
    Flight,
    /// min(cwnd, window) in whole segments, at every expiry anew: BSD and ns-2.
    Window,
}

/// The windows that a response governs, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Windows {
    /// The congestion window.
    pub cwnd: u64,
    /// The slow-start threshold.
    pub ssthresh: u64,
    /// The ceiling of `cwnd`.
    pub max: u64,
    /// The initial window, for a restart.
    pub initial: u64,
    /// The segment size.
    pub mss: u64,
    /// What ssthresh is the half of.
    pub base: LossBase,
}

/// What is known when a response is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckFacts {
    /// The present.
    pub now: Time,
    /// Bytes newly acknowledged.
    pub acked: u64,
    /// Bytes sent and not acknowledged, before this acknowledgement, at most `window`.
    pub flight: u64,
    /// min(cwnd, peer's window), without a recovery's inflation.
    pub window: u64,
    /// The congestion window is what limits the sender.
    pub limited: bool,
    /// The smoothed round trip, or zero.
    pub srtt: Duration,
    /// The data that the timer gave up had been given up by the timer before.
    pub repeated: bool,
}

/// Decides on the windows. All methods but [`repair`](Self::repair) may change them; none sends.
pub trait Response {
    /// How lost data is sent again.
    fn repair(&self) -> Repair;

    /// New data was acknowledged outside recovery.
    fn on_ack(&mut self, w: &mut Windows, f: &AckFacts) {
        if f.limited {
            w.increase_reno(f.acked);
        }
    }

    /// The third duplicate acknowledgement, or the scoreboard, tells of a loss: recovery begins.
    /// Without a scoreboard the connection itself adds one segment to the window for every segment
    /// that duplicates show to have arrived, and takes them away again (RFC 5681 section 3.2).
    fn on_loss(&mut self, w: &mut Windows, f: &AckFacts);

    /// The peer echoes a congestion mark: once in a window of data, as for a loss, but nothing is to
    /// be sent again (RFC 3168 section 6.1.2).
    fn on_echo(&mut self, w: &mut Windows, f: &AckFacts) {
        w.enter_recovery(f);
    }

    /// An acknowledgement of new data during recovery that does not end it.
    fn on_partial_ack(&mut self, _w: &mut Windows, _f: &AckFacts) {}

    /// The acknowledgement that ends recovery. [`AckFacts::flight`] is what is still out.
    fn on_recovered(&mut self, w: &mut Windows, f: &AckFacts);

    /// The retransmission timer expired.
    fn on_timeout(&mut self, w: &mut Windows, f: &AckFacts) {
        w.collapse(f);
    }

    /// Sending begins again after the connection was idle for a retransmission timeout.
    fn on_restart(&mut self, w: &mut Windows) {
        w.cwnd = w.cwnd.min(w.initial);
    }

    /// Sending goes on after a pause that was no sign of congestion: time that passed meanwhile is
    /// nobody's.
    fn on_resume(&mut self) {}
}

impl Windows {
    /// In slow start.
    pub const fn slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Sets the window, between one segment and the ceiling.
    pub fn set_cwnd(&mut self, cwnd: u64) {
        self.cwnd = cwnd.min(self.max).max(self.mss);
    }

    /// Slow start, or congestion avoidance by a segment each round trip (RFC 5681 section 3.1).
    pub fn increase_reno(&mut self, acked: u64) {
        let step = if self.slow_start() {
            acked.min(self.mss)
        } else {
            (self.mss * self.mss / self.cwnd.max(1)).max(1)
        };
        self.set_cwnd(self.cwnd + step);
    }

    /// ssthresh = max(flight / 2, 2 MSS) (RENO-3).
    pub fn halve(&mut self, f: &AckFacts) {
        let half = match self.base {
            LossBase::Flight => f.flight / 2,
            LossBase::Window => f.window / 2 / self.mss * self.mss,
        };
        self.ssthresh = half.max(2 * self.mss);
    }

    /// What fast recovery begins with (RENO-3): ssthresh halves and so does cwnd. With
    /// [`LossBase::Window`] cwnd keeps the part of a segment that ssthresh drops, as in ns-2.
    pub fn enter_recovery(&mut self, f: &AckFacts) {
        self.halve(f);
        match self.base {
            LossBase::Flight => self.set_cwnd(self.ssthresh),
            LossBase::Window => self.set_cwnd(f.window / 2),
        }
    }

    /// What fast recovery ends with: cwnd = ssthresh. With [`LossBase::Window`] cwnd stays and the
    /// acknowledgement that ends recovery lets it grow, as in BSD and ns-2.
    pub fn leave_recovery(&mut self, f: &AckFacts) {
        match self.base {
            LossBase::Flight => self.set_cwnd(self.ssthresh),
            LossBase::Window => self.increase_reno(f.acked),
        }
    }

    /// What a timeout does (RENO-6): ssthresh halves and the window is one segment.
    pub fn collapse(&mut self, f: &AckFacts) {
        if !(f.repeated && self.base == LossBase::Flight) {
            self.halve(f);
        }
        self.cwnd = self.mss;
    }
}

/// The responses that exist, so that none costs an allocation or an indirect call.
#[derive(Clone, Debug)]
pub(crate) enum Control {
    Reno(Reno),
    Cubic(Cubic),
    Lia(Lia),
}

macro_rules! each {
    ($self:ident, $part:ident => $call:expr) => {
        match $self {
            Control::Reno($part) => $call,
            Control::Cubic($part) => $call,
            Control::Lia($part) => $call,
        }
    };
}

impl Control {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Tahoe => Self::Reno(Reno(Repair::GoBack)),
            Algorithm::Reno => Self::Reno(Reno(Repair::Once)),
            Algorithm::NewReno => Self::Reno(Reno(Repair::Partial)),
            Algorithm::Sack => Self::Reno(Reno(Repair::Sack)),
            Algorithm::Cubic => Self::Cubic(Cubic::default()),
            Algorithm::Lia => Self::Lia(Lia::default()),
        }
    }

    /// What the window grows by, of all subflows; nothing changes unless windows are linked.
    pub(crate) fn set_coupling(&mut self, coupling: Option<Coupling>) {
        if let Self::Lia(lia) = self {
            lia.coupling = coupling;
        }
    }
}

impl Response for Control {
    fn repair(&self) -> Repair {
        each!(self, part => part.repair())
    }

    fn on_ack(&mut self, w: &mut Windows, f: &AckFacts) {
        each!(self, part => part.on_ack(w, f));
    }

    fn on_loss(&mut self, w: &mut Windows, f: &AckFacts) {
        each!(self, part => part.on_loss(w, f));
    }

    fn on_echo(&mut self, w: &mut Windows, f: &AckFacts) {
        each!(self, part => part.on_echo(w, f));
    }

    fn on_partial_ack(&mut self, w: &mut Windows, f: &AckFacts) {
        each!(self, part => part.on_partial_ack(w, f));
    }

    fn on_recovered(&mut self, w: &mut Windows, f: &AckFacts) {
        each!(self, part => part.on_recovered(w, f));
    }

    fn on_timeout(&mut self, w: &mut Windows, f: &AckFacts) {
        each!(self, part => part.on_timeout(w, f));
    }

    fn on_restart(&mut self, w: &mut Windows) {
        each!(self, part => part.on_restart(w));
    }

    fn on_resume(&mut self) {
        each!(self, part => part.on_resume());
    }
}
