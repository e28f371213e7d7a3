//! One connection whose window is to be narrowed.

use lasthop_units::{Duration, Time};
use lasthop_wire::tcp::{Segment, Seq};

use super::meter::{Share, Trips};
use crate::Side;
use crate::edge::flow::Seen;

/// What a segment's payload is taken for where nothing is known of it (RFC 9293 section 3.7.1).
const MSS: u64 = 536;

/// Bytes of a header that timestamps take, with their padding.
const STAMPS: u64 = 12;

/// What is kept of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WindowState {
    /// The priority that somebody has set.
    pub(super) set: Option<u32>,
    /// It takes part in the division.
    pub(super) takes_part: bool,
    /// The widest window that it is left with, in bytes.
    pub(super) share: Option<u64>,
    /// The right edge that was advertised to the sender (RWC-9).
    edge: Option<Seq>,
    /// When it had data last.
    pub(super) data: Option<Time>,
    pub(super) moved: Share,
    pub(super) trips: Trips,
    /// It was counted as one whose scale is unknown.
    pub(super) counted: bool,
}

impl WindowState {
    /// It had data within this time.
    pub(super) fn is_busy(&self, now: Time, quiet: Duration) -> bool {
        self.data.is_some_and(|at| now.since(at) < quiet)
    }

    /// What the sender may have sent and not acknowledged, in bytes; `ack` is the latest
    /// acknowledgement.
    pub(super) fn granted(&self, ack: Seq) -> u64 {
        self.edge.map_or(0, |edge| edge.ahead_of(ack).max(0).unsigned_abs().into())
    }

    /// The window field that the sender is to see in place of the receiver's own: no more than that,
    /// no less than was advertised before, and else the share, if the others have left so much
    /// (RWC-6, RWC-9, RWC-12).
    pub(super) fn window(&mut self, segment: &Segment, shift: u8, left: u64) -> u16 {
        let own = u64::from(segment.window) << shift;
        let granted = self.granted(segment.ack);
        let allowed = self.share.map_or(own, |share| own.min(share.min(left).max(granted)));
        // Rounded down it would take back what was granted; it is never more than the receiver's own.
        let field = allowed.div_ceil(1 << shift).min(u64::from(segment.window)) as u16;
        let edge = segment.ack + (u32::from(field) << shift);
        if self.edge.is_none_or(|before| edge.ahead_of(before) > 0) {
            self.edge = Some(edge);
        }
        field
    }
}

/// The payload of a full segment to the mobile (RWC-12).
pub(super) fn segment_size(seen: &Seen) -> u64 {
    let offered = seen.mobile.syn.and_then(|syn| syn.mss.map(|mss| (mss, syn.timestamps)));
    let stamped = seen.fixed.syn.is_some_and(|syn| syn.timestamps);
    let most = offered.map(|(mss, stamps)| {
        u64::from(mss).saturating_sub(if stamps && stamped { STAMPS } else { 0 })
    });
    let longest = u64::from(seen.end(Side::Fixed).longest);
    match most {
        Some(most) if longest == 0 => most,
        Some(most) => longest.min(most),
        None => longest.clamp(MSS, u64::from(u16::MAX)),
    }
    .max(1)
}
