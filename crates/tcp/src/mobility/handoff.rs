use lasthop_units::{LinkNews, LinkWatch, Thaw};
use serde::Deserialize;

use super::{Acks, Action, ArrivedSegment, ConnectionView, MobilityScheme, Resend};
use crate::ack_request::AckWindow;

/// Fast retransmit after a handoff (Caceres and Iftode 1995; 3DA): once the mobile can be reached
/// again it sends duplicate acknowledgements, so that the fixed sender goes into fast retransmit
/// instead of waiting for its timer. Its congestion window is halved (3DA-2). If its timer has
/// expired already, all that is gained is an earlier retransmission (3DA-4).
///
/// The copies state the window that was advertised last, byte for byte, since a changed window
/// makes an update of a duplicate (RENO-4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct FastRetransmit {
    /// Which event calls for it.
    #[serde(skip)]
    pub thaw: Thaw,
    /// Acknowledgements that are sent, 8 at most. Three suffice if the one that they repeat has
    /// arrived at the sender; 4 are safe where it may be lost (3DA-3; the paper is silent).
    pub copies: u8,
    /// As a sender the mobile does the same to itself, without any notification: off for the
    /// figures of the RWC and ATCP paper, which says that the scheme does not cover it (3DA-5).
    pub sender: bool,
}

impl Default for FastRetransmit {
    /// Three copies after a completed handoff, for the receiver only.
    fn default() -> Self {
        Self { thaw: Thaw::Complete, copies: 3, sender: false }
    }
}

impl MobilityScheme for FastRetransmit {
    fn on_news(&mut self, _view: &ConnectionView, news: LinkNews) -> Action {
        if news != LinkNews::Back {
            return Action::default();
        }
        let resend = if self.sender { Resend::AsLost } else { Resend::Nothing };
        let acks = Acks::Copies(self.copies, AckWindow::Unchanged);
        Action { resend, acks, ..Action::default() }
    }

    /// A sender to which the peer sends again needs no help.
    fn on_segment(
        &mut self,
        _link: &mut LinkWatch,
        _view: &ConnectionView,
        _arrived: ArrivedSegment,
    ) -> Action {
        Action::default()
    }
}
