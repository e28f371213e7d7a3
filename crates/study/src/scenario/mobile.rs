//! The parameters of what schemes do at the mobile. What is not said is left to the machines' own
//! defaults.

use std::time::Duration;

use lasthop_radio::Span;
use lasthop_units::Bytes;
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
    pub thaw: Option<ThawOn>,
    /// FRZ.
    pub freeze: FreezeSettings,
    /// LLT.
    pub ll_freeze: LinkLayerFreezeSettings,
    /// ATS, ATR.
    pub atcp: AtcpSettings,
    /// 3DA.
    pub fast_rtx_handoff: FastRtxSettings,
    /// MTC-4, MTC-5.
    pub m_tcp: GreetSettings,
    /// DDA.
    pub delayed_dupacks: DelayedDupacksSettings,
    /// CC.
    pub congestion_coherence: CoherenceSettings,
}

/// The event that ends a gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThawOn {
    /// The link is up.
    Up,
    /// Packets for the mobile find it at its new base.
    Complete,
}

/// Freeze-TCP.
#[derive(Clone, Copy, PartialEq, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct FreezeSettings {
    /// Zero-window acknowledgements on a warning (FRZ-1).
    pub copies: Option<u8>,
    /// Acknowledgements afterwards (FRZ-3).
    pub acks: Option<u8>,
    /// How long beyond its lead a warning holds.
    pub bound: Option<Span>,
}

/// The link-layer trigger method.
#[derive(Clone, Copy, PartialEq, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct LinkLayerFreezeSettings {
    /// Zero-window acknowledgements on the trigger (LLT-3).
    pub copies: Option<u8>,
    /// Acknowledgements after the handoff (LLT-6).
    pub acks: Option<u8>,
    /// Acknowledgements after a handoff without a trigger (LLT-10).
    pub acks_unforeseen: Option<u8>,
    /// How long beyond its lead a trigger holds (LLT-9).
    pub bound: Option<Span>,
    /// The mobile freezes its own sending too (LLT-11).
    pub sender: Option<bool>,
    /// A sender that was stopped tries the link once in so long.
    pub patience: Option<Span>,
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

/// Duplicate acknowledgements after a handoff.
#[derive(Clone, Copy, PartialEq, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct FastRtxSettings {
    /// How many (3DA-3).
    pub copies: Option<u8>,
    /// The mobile does the same to itself as a sender (3DA-5).
    pub sender: Option<bool>,
}

/// The mobile's part of M-TCP.
#[derive(Clone, Copy, PartialEq, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct GreetSettings {
    /// A sender that was cut off tries the link once in so long.
    pub patience: Option<Span>,
}

/// Duplicate acknowledgements that wait.
#[derive(Clone, Copy, PartialEq, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct DelayedDupacksSettings {
    /// How long (DDA-4).
    pub delay: Option<Span>,
}

/// Congestion coherence at the mobile.
#[derive(Clone, Copy, PartialEq, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct CoherenceSettings {
    /// How long duplicates of a loss on the radio wait (CC-5).
    pub hold: Option<Span>,
    /// Segments behind a gap whose marks count (CC-3).
    pub behind: Option<u8>,
}

/// The most copies of an acknowledgement that a machine sends.
const MOST_COPIES: u8 = 8;

/// The longest that an acknowledgement may be held back (Table II).
const ATCP_MOST: Duration = Duration::from_millis(500);

impl MobileSettings {
    /// Complains about values that no machine can have.
    pub(crate) fn check(&self, wrong: &mut Complaints) {
        let copies = [
            ("freeze", "copies", self.freeze.copies),
            ("freeze", "acks", self.freeze.acks),
            ("ll-freeze", "copies", self.ll_freeze.copies),
            ("ll-freeze", "acks", self.ll_freeze.acks),
            ("ll-freeze", "acks-unforeseen", self.ll_freeze.acks_unforeseen),
            ("fast-rtx-handoff", "copies", self.fast_rtx_handoff.copies),
        ];
        for (scheme, key, count) in copies {
            if let Some(count) = count.filter(|n| *n > MOST_COPIES) {
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
        for (scheme, key, span) in zero {
            if span.is_some_and(|s| s.0.is_zero()) {
                let remedy = "give the time that the link takes to repair a loss";
                wrong.add(&["mobile", scheme, key], "nothing would wait", remedy);
            }
        }
    }
}
