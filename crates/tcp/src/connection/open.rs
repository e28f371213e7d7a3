//! Opening (RFC 9293 sections 3.5 and 3.10.7.3).

use lasthop_stream::{HeldDupacks, Marks};
use lasthop_units::Time;
use lasthop_wire::tcp::{Flags, Options, Segment, Seq};
use thiserror::Error;

use super::mobility::Mobile;
use super::{AckPlan, Arrival, Challenges, Connection, Event, Phase, Ports, Signs, Stamps, State};
use crate::config::Config;
use crate::ecn::Ecn;
use crate::receive::Receiver;
use crate::response::{Control, Windows};
use crate::rtt::Estimator;
use crate::sack::Scoreboard;
use crate::stats::Stats;

/// The least segment size that is taken from a peer: less would be an attack on us or on a link.
const LEAST_MSS: u16 = 48;
/// What a peer that announces no MSS can take (RFC 9293 section 3.7.1).
const DEFAULT_MSS: u16 = 536;
/// Header bytes of a timestamps option with its padding.
const STAMPS_LEN: u32 = 12;
/// The window is never greater (RFC 7323 section 2.3).
const LARGEST_WINDOW: u64 = (u16::MAX as u64) << 14;

/// A segment that opens nothing was taken for one that does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("a connection is opened by a segment with SYN and without ACK, RST and FIN, not by {0:?}")]
pub struct NotAnOpening(pub Flags);

impl Connection {
    /// Opens a connection: a SYN is ready to be sent. `iss` is the initial sequence number; choose
    /// it as RFC 6528 says where others could guess it.
    pub fn connect(config: Config, ports: Ports, iss: Seq, now: Time) -> Self {
        Self::new(config, ports, iss, State::SynSent, now)
    }

    /// Answers `syn`: a SYN with ACK is ready to be sent.
    ///
    /// # Errors
    ///
    /// If the segment is not a SYN.
    pub fn accept(
        config: Config,
        ports: Ports,
        syn: &Segment,
        iss: Seq,
        now: Time,
    ) -> Result<Self, NotAnOpening> {
        let others = Flags::ACK.with(Flags::RST).with(Flags::FIN);
        if !syn.flags.contains(Flags::SYN) || syn.flags.intersects(others) {
            return Err(NotAnOpening(syn.flags));
        }
        let mut it = Self::new(config, ports, iss, State::SynReceived, now);
        it.stats.segments_received = 1;
        it.take_syn(now, syn);
        Ok(it)
    }

    pub(crate) fn new(config: Config, ports: Ports, iss: Seq, state: State, now: Time) -> Self {
        let mss = config.mss.max(1);
        Self {
            state,
            phase: Phase::Open,
            events: 0,
            fin: false,
            sack: false,
            scaled: false,
            retransmit_first: false,
            probe_due: false,
            reset_due: false,
            reset_at: None,
            syn_lost: false,
            snd_shift: 0,
            mss: u32::from(mss),
            dupacks: 0,
            signs: Signs::default(),
            ecn: Ecn::default(),
            una: 0,
            nxt: 0,
            max: 0,
            written: 1,
            snd_edge: 0,
            snd_wnd: 0,
            max_wnd: 0,
            wl1: 0,
            wl2: 0,
            windows: Self::initial_windows(&config, u32::from(mss)),
            inflation: 0,
            recover: 0,
            control: Control::new(config.algorithm),
            timing: None,
            rtt: Estimator::new(config.rto),
            expiries: 0,
            board: Scoreboard::default(),
            last_sent: now,
            recv: Receiver::new(config.recv_buffer.get(), mss),
            ack: AckPlan::NONE,
            held: HeldDupacks::NONE,
            marks: Marks::default(),
            challenges: Challenges::NONE,
            stamps: Stamps::default(),
            rtx_timer: Time::NEVER,
            persist_timer: Time::NEVER,
            persist_shift: 0,
            probes: 0,
            time_wait_timer: Time::NEVER,
            mobile: Mobile::new(&config),
            iss,
            ports,
            config,
            stats: Stats::default(),
        }
    }

    fn initial_windows(config: &Config, mss: u32) -> Windows {
        let size = u64::from(mss);
        let max = config.cwnd_max.map_or(LARGEST_WINDOW, |w| w.bytes(mss).get());
        let max = max.clamp(size, LARGEST_WINDOW);
        let initial = config.initial_cwnd.bytes(mss).get().clamp(size, max);
        let ssthresh = config.initial_ssthresh.map_or(LARGEST_WINDOW, |w| w.bytes(mss).get());
        Windows { cwnd: initial, ssthresh, max, initial, mss: size, base: config.loss_base }
    }

    /// Takes the peer's SYN: its number and its options.
    fn take_syn(&mut self, now: Time, syn: &Segment) {
        self.recv.begin(syn.seq);
        let peer = syn.options.mss.unwrap_or(DEFAULT_MSS).max(LEAST_MSS);
        let mut mss = u32::from(self.config.mss.min(peer).max(1));
        if let (true, Some(stamps)) = (self.config.timestamps, syn.options.timestamps) {
            self.stamps.on = true;
            self.stamps.recent = stamps.value;
            self.stamps.recent_at = now;
            // The announced size counts the options' room too (RFC 6691).
            mss = mss.saturating_sub(STAMPS_LEN).max(1);
        }
        if let (true, Some(shift)) = (self.config.window_scale, syn.options.window_scale) {
            self.scaled = true;
            self.snd_shift = shift.min(14);
            self.recv.shift = self.recv.wanted_shift();
        }
        self.sack = self.config.sack && syn.options.sack_permitted;
        self.ecn.take_syn(self.config.ecn, syn.flags);
        self.mss = mss;
        self.windows = Self::initial_windows(&self.config, mss);
        // The window of a SYN is never scaled.
        self.snd_wnd = u64::from(syn.window);
        self.max_wnd = self.snd_wnd;
        self.snd_edge = 1 + self.snd_wnd;
        self.wl1 = 0;
        self.wl2 = 0;
    }

    /// The options of our SYN: an answer offers only what the peer offered.
    pub(super) fn syn_options(&self) -> Options {
        let answer = self.state == State::SynReceived;
        Options {
            mss: Some(self.config.mss),
            window_scale: (if answer { self.scaled } else { self.config.window_scale })
                .then(|| self.recv.wanted_shift()),
            sack_permitted: if answer { self.sack } else { self.config.sack },
            ..Options::default()
        }
    }

    /// A segment arrives while our SYN is out.
    pub(super) fn in_syn_sent(&mut self, now: Time, seg: &Segment) -> Arrival {
        let has_ack = seg.flags.contains(Flags::ACK);
        let acks_syn = has_ack && self.max > 0 && seg.ack == self.seq_at(1);
        if has_ack && !acks_syn {
            self.stats.unacceptable_segments += 1;
            if !seg.flags.contains(Flags::RST) {
                self.reset_with(seg.ack);
            }
            return Arrival::NONE;
        }
        if seg.flags.contains(Flags::RST) {
            if acks_syn {
                self.terminate(Event::Reset);
            }
            return Arrival::NONE;
        }
        if !seg.flags.contains(Flags::SYN) {
            return Arrival::NONE;
        }
        self.take_syn(now, seg);
        if acks_syn {
            self.ack.now = true;
            self.on_syn_acked(now);
        } else {
            // Simultaneous open: the SYN goes out again, as an answer.
            self.state = State::SynReceived;
            self.nxt = 0;
        }
        Arrival::NONE
    }

    /// Our SYN is acknowledged: the connection stands.
    pub(super) fn on_syn_acked(&mut self, now: Time) {
        if let Some((_, sent)) = self.timing.take() {
            self.take_sample(sent, now);
        }
        if self.syn_lost {
            // RFC 6298 section 5.7 and RFC 5681 section 3.1.
            self.rtt.syn_was_lost();
            self.windows.cwnd = self.windows.mss;
        }
        self.una = 1;
        self.nxt = self.nxt.max(1);
        self.max = self.max.max(1);
        self.expiries = 0;
        self.phase = Phase::Open;
        self.rtx_timer = Time::NEVER;
        self.state = if self.fin { State::FinWait1 } else { State::Established };
        self.emit(Event::Connected);
    }
}
