//! The parameters of what schemes do at the mobile. What is not said is left to the machines' own
//! defaults.

use std::time::Duration;

use lasthop_agent::edge::{CoherentConfig, DelayedDupacksConfig};
use lasthop_radio::Span;
use lasthop_tcp::mobility::{FastRetransmit, Freeze, Greet, LinkLayerFreeze};
use lasthop_units::{Bytes, Thaw};
use serde::Deserialize;

use super::complaint::Complaints;

/// What is done at the mobile where a scheme asks for it: the `[mobile]` table.
#[derive(Clone, PartialEq, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct MobileSettings {
    /// It is done by agents at the mobile's edge, between its link and its TCP, which is plain.
    pub edge: bool,
    /// Which event ends a gap; by default the handoff's completion where there are several cells,
    /// the link's return where there is one.
    pub thaw: Option<Thaw>,
    /// FRZ.
    pub freeze: Freeze,
    /// LLT.
    pub ll_freeze: LinkLayerFreeze,
    /// ATS, ATR.
    pub atcp: AtcpSettings,
    /// 3DA.
    pub fast_rtx_handoff: FastRetransmit,
    /// MTC-4, MTC-5.
    pub m_tcp: Greet,
    /// DDA.
    pub delayed_dupacks: DelayedDupacksConfig,
    /// CC.
    pub congestion_coherence: CoherentConfig,
}

/// ATCP.
#[derive(Clone, Copy, PartialEq, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct AtcpSettings {
    /// How long the last two bytes wait for their acknowledgement (ATR-1).
    pub delay: Option<Span>,
    /// A sender that was cut off tries the link once in so long.
    pub patience: Option<Span>,
    /// What comes without a gap, after one, before the two bytes wait again; by an agent only.
    pub calm: Option<Bytes>,
}

/// The most copies of an acknowledgement that a machine sends.
const MOST_COPIES: u8 = 8;

/// The longest that an acknowledgement may be held back (Table II).
const ATCP_MOST: Duration = Duration::from_millis(500);

impl MobileSettings {
    /// Complains about values that no machine can have.
    pub(crate) fn check(&self, wrong: &mut Complaints) {
        let copies = [
            ("freeze", "copies", self.freeze.copies_before),
            ("freeze", "acks", self.freeze.acks_after),
            ("ll-freeze", "copies", self.ll_freeze.copies_before),
            ("ll-freeze", "acks", self.ll_freeze.acks_after),
            ("ll-freeze", "acks-unforeseen", self.ll_freeze.acks_unforeseen),
            ("fast-rtx-handoff", "copies", self.fast_rtx_handoff.copies),
        ];
        for (scheme, key, count) in copies {
            if count > MOST_COPIES {
                let message = format!("{count} is more than {MOST_COPIES}");
                wrong.add(&["mobile", scheme, key], message, "1 and 3 are usual");
            }
        }
        if let Some(delay) = self.atcp.delay.filter(|d| d.0 > ATCP_MOST) {
            let message = format!("{:?} is longer than {ATCP_MOST:?}", delay.0);
            let remedy = "keep it below the sender's least retransmission timeout";
            wrong.add(&["mobile", "atcp", "delay"], message, remedy);
        }
        if self.atcp.calm.is_some() && !self.edge {
            let remedy = "say `mobile.edge = true`, or leave it out";
            wrong.add(&["mobile", "atcp", "calm"], "only an agent at the edge has it", remedy);
        }
        let zero = [
            ("delayed-dupacks", "delay", self.delayed_dupacks.delay),
            ("congestion-coherence", "hold", self.congestion_coherence.hold),
        ];
        for (scheme, key, time) in zero {
            if time.is_zero() {
                let remedy = "give the time that the link takes to repair a loss";
                wrong.add(&["mobile", scheme, key], "nothing would wait", remedy);
            }
        }
    }
}
