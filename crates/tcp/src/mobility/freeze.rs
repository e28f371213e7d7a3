use lasthop_units::{Duration, LinkNews, LinkWatch, Thaw, deserialize_duration};
use serde::Deserialize;

use super::{Acks, Action, ConnectionView, MobilityScheme};
use crate::ack_request::AckWindow;

/// Freeze-TCP (Goff et al. 2000; FRZ): a mobile receiver that foresees a disconnection shuts its
/// window, so that the fixed sender goes to persist with its windows and estimates kept, and opens
/// it with several copies of one acknowledgement once the link is back, so that the sender need not
/// wait for its next probe. Only data to the mobile is helped (FRZ-6), and the window that the sender
/// resumes with is right only if the new network is like the old one (FRZ-7).
///
/// While the window is shut what is in flight is taken and acknowledged with window 0.
///
/// The warning's lead comes with the event (FRZ-5). Without a warning the copies are sent all the
/// same; they state the window that the peer knows, which makes duplicates of them as in
/// [`FastRetransmit`](super::FastRetransmit).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Freeze {
    /// Which event ends the freeze.
    #[serde(skip)]
    pub thaw: Thaw,
    /// Zero-window acknowledgements on a warning, 8 at most (FRZ-1; the paper is silent: 1).
    #[serde(rename = "copies")]
    pub copies_before: u8,
    /// Acknowledgements once the link is back, 8 at most (FRZ-3).
    #[serde(rename = "acks")]
    pub acks_after: u8,
    /// After so long beyond its lead a warning was false, and the window opens (silent: as LLT-9).
    #[serde(deserialize_with = "deserialize_duration")]
    pub bound: Duration,
}

impl Default for Freeze {
    /// One zero-window acknowledgement, three when the link is up, warnings that hold for 1 s.
    fn default() -> Self {
        Self { thaw: Thaw::Up, copies_before: 1, acks_after: 3, bound: LinkWatch::BOUND }
    }
}

/// The window is shut, and that is advertised.
pub(super) fn shut(copies: u8) -> Action {
    let acks = Acks::Copies(copies, AckWindow::Real);
    Action { shut: Some(true), acks, ..Action::default() }
}

/// The window opens, or if it was not shut it is repeated.
pub(super) fn open(view: &ConnectionView, frozen: u8, unwarned: u8) -> Action {
    let acks = if view.shut {
        Acks::Copies(frozen, AckWindow::Real)
    } else {
        Acks::Copies(unwarned, AckWindow::Unchanged)
    };
    Action { shut: Some(false), acks, ..Action::default() }
}

impl MobilityScheme for Freeze {
    fn on_news(&mut self, view: &ConnectionView, news: LinkNews) -> Action {
        match news {
            LinkNews::Warned => shut(self.copies_before),
            LinkNews::Back => open(view, self.acks_after, self.acks_after),
            LinkNews::Cut | LinkNews::Nothing => Action::default(),
        }
    }
}
