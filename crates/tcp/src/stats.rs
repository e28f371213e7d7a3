//! What is counted, and what can be watched.

use lasthop_units::{Bytes, Duration};

use crate::state::State;

/// What a connection did so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Segments sent, pure acknowledgements and resets too.
    pub segments_sent: u64,
    /// Of these, segments with payload.
    pub data_segments_sent: u64,
    /// Payload sent, repeated payload too.
    pub bytes_sent: u64,
    /// Segments whose first byte of payload had been sent before.
    pub retransmits: u64,
    /// Payload in them.
    pub bytes_retransmitted: u64,
    /// Losses that duplicate acknowledgements reported.
    pub fast_retransmits: u64,
    /// Expiries of the retransmission timer, each one (RENO-6).
    pub timeouts: u64,
    /// Of these, expiries while a SYN was not acknowledged.
    pub syn_timeouts: u64,
    /// Timeouts that an acknowledgement's timestamp showed to be needless (RFC 3522).
    pub spurious_timeouts: u64,
    /// Our payload that was acknowledged.
    pub bytes_acked: u64,
    /// Segments received, whatever became of them.
    pub segments_received: u64,
    /// Of these, segments with payload.
    pub data_segments_received: u64,
    /// Payload accepted for the first time.
    pub bytes_received: u64,
    /// Segments with payload that was all there already: needless retransmissions by the peer, or
    /// copies made on the way.
    pub duplicate_segments_received: u64,
    /// Segments that arrived above a gap.
    pub out_of_order_segments: u64,
    /// Segments that no rule accepted.
    pub unacceptable_segments: u64,
    /// Segments that PAWS refused (RFC 7323 section 5).
    pub paws_rejected: u64,
    /// Acknowledgements without payload sent.
    pub acks_sent: u64,
    /// Duplicate acknowledgements sent because of a gap.
    pub dupacks_sent: u64,
    /// Duplicate acknowledgements received (RENO-4).
    pub dupacks_received: u64,
    /// Duplicate acknowledgements that waited until their gap was filled, and were thrown away
    /// (DDA-3, CC-5).
    pub dupacks_discarded: u64,
    /// Segments received that carried a congestion mark (RFC 3168).
    pub marks_received: u64,
    /// Times that the window was cut because the peer echoed a mark.
    pub echo_cuts: u64,
    /// Of the losses that duplicate acknowledgements reported, those that cost no window: they were not
    /// congestion's (CC-6, SNP-10), or an echo had cost it already.
    pub spared_losses: u64,
    /// Notifications of a bad hop that started the retransmission timer anew (EBS-2).
    pub bad_states: u64,
    /// Challenge acknowledgements sent (RFC 5961).
    pub challenge_acks_sent: u64,
    /// Probes into a closed window sent (RENO-8).
    pub window_probes_sent: u64,
    /// Times that the peer's window closed on data that was out or waiting.
    pub zero_windows: u64,
    /// Round-trip samples taken.
    pub rtt_samples: u64,
}

impl Stats {
    /// What two connections did together.
    pub(crate) const fn plus(&self, other: &Self) -> Self {
        Self {
            segments_sent: self.segments_sent + other.segments_sent,
            data_segments_sent: self.data_segments_sent + other.data_segments_sent,
            bytes_sent: self.bytes_sent + other.bytes_sent,
            retransmits: self.retransmits + other.retransmits,
            bytes_retransmitted: self.bytes_retransmitted + other.bytes_retransmitted,
            fast_retransmits: self.fast_retransmits + other.fast_retransmits,
            timeouts: self.timeouts + other.timeouts,
            syn_timeouts: self.syn_timeouts + other.syn_timeouts,
            spurious_timeouts: self.spurious_timeouts + other.spurious_timeouts,
            bytes_acked: self.bytes_acked + other.bytes_acked,
            segments_received: self.segments_received + other.segments_received,
            data_segments_received: self.data_segments_received + other.data_segments_received,
            bytes_received: self.bytes_received + other.bytes_received,
            duplicate_segments_received: self.duplicate_segments_received
                + other.duplicate_segments_received,
            out_of_order_segments: self.out_of_order_segments + other.out_of_order_segments,
            unacceptable_segments: self.unacceptable_segments + other.unacceptable_segments,
            paws_rejected: self.paws_rejected + other.paws_rejected,
            acks_sent: self.acks_sent + other.acks_sent,
            dupacks_sent: self.dupacks_sent + other.dupacks_sent,
            dupacks_received: self.dupacks_received + other.dupacks_received,
            dupacks_discarded: self.dupacks_discarded + other.dupacks_discarded,
            marks_received: self.marks_received + other.marks_received,
            echo_cuts: self.echo_cuts + other.echo_cuts,
            spared_losses: self.spared_losses + other.spared_losses,
            bad_states: self.bad_states + other.bad_states,
            challenge_acks_sent: self.challenge_acks_sent + other.challenge_acks_sent,
            window_probes_sent: self.window_probes_sent + other.window_probes_sent,
            zero_windows: self.zero_windows + other.zero_windows,
            rtt_samples: self.rtt_samples + other.rtt_samples,
        }
    }
}

/// The state of a connection at one instant, for time series (MET).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// The state.
    pub state: State,
    /// The congestion window, with what fast recovery adds to it for segments that duplicates show
    /// to have left the network.
    pub cwnd: Bytes,
    /// The slow-start threshold.
    pub ssthresh: Bytes,
    /// The smoothed round trip, once there is a sample.
    pub srtt: Option<Duration>,
    /// Its mean deviation.
    pub rttvar: Duration,
    /// The retransmission timeout with its doublings.
    pub rto: Duration,
    /// Data sent from SND.UNA up to SND.NXT.
    pub flight: Bytes,
    /// The peer's window from SND.UNA on.
    pub snd_wnd: Bytes,
    /// The window that was last advertised, from RCV.NXT on.
    pub rcv_wnd: Bytes,
    /// Duplicate acknowledgements in a row.
    pub dupacks: u32,
    /// Recovering from a loss that duplicate acknowledgements reported.
    pub recovering: bool,
}
