use lasthop_units::{Duration, LinkNews, LinkWatch, Thaw, deserialize_duration};
use serde::Deserialize;

use super::{Action, ConnectionView, MobilityScheme, PATIENCE, TimerChange, freeze};

/// The freezing of the link-layer trigger method (LLT): the link layer foresees the handoff, the
/// mobile shuts its window before the link is cut and opens it when the handoff is complete at the
/// network layer, not merely at the link (LLT-5). Only the mobile takes part; it makes its TCP
/// headers itself, so that an encrypted payload is no obstacle (LLT-1). A new network that is unlike
/// the old one finds the sender with the wrong window (LLT-12).
///
/// The window at the end is the one before the handoff, less what has arrived since and was not read
/// (LLT-6). Between handoffs losses are told apart by
/// [`Config::coherence`](crate::Config::coherence), which knows nothing of freezing: the two combine
/// by being set together (LLT-8).
///
/// As a sender the mobile stops on the warning, timers included, and goes on at the end with a timer
/// started anew (LLT-11; the paper is silent). Should the end never be notified, one segment each
/// [`patience`](Self::patience) finds out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct LinkLayerFreeze {
    /// Which event ends the freeze.
    #[serde(skip)]
    pub thaw: Thaw,
    /// Zero-window acknowledgements on the trigger, 8 at most: one or a few (LLT-3).
    #[serde(rename = "copies")]
    pub copies_before: u8,
    /// Acknowledgements at the end, 8 at most. The paper has one; the sender's next probe mends its
    /// loss (LLT-6).
    #[serde(rename = "acks")]
    pub acks_after: u8,
    /// Acknowledgements at the end of a handoff that nothing has foretold, 8 at most. One tells the
    /// sender nothing; three are duplicates that call for a fast retransmit (LLT-10).
    pub acks_unforeseen: u8,
    /// After so long beyond its lead a trigger was false, and the window opens (LLT-9).
    #[serde(deserialize_with = "deserialize_duration")]
    pub bound: Duration,
    /// The mobile freezes itself as a sender, too.
    pub sender: bool,
    /// A sender that was stopped tries the link once in so long.
    #[serde(deserialize_with = "deserialize_duration")]
    pub patience: Duration,
}

impl Default for LinkLayerFreeze {
    /// One acknowledgement before and one after a handoff, triggers that hold for 1 s, both
    /// directions, a try each 10 s.
    fn default() -> Self {
        Self {
            thaw: Thaw::Complete,
            copies_before: 1,
            acks_after: 1,
            acks_unforeseen: 1,
            bound: LinkWatch::BOUND,
            sender: true,
            patience: PATIENCE,
        }
    }
}

impl LinkLayerFreeze {
    fn stop(&self, action: Action) -> Action {
        if !self.sender {
            return action;
        }
        Action { hold: Some(true), timer: TimerChange::Cancel, ..action }
    }
}

impl MobilityScheme for LinkLayerFreeze {
    fn on_news(&mut self, view: &ConnectionView, news: LinkNews) -> Action {
        match news {
            LinkNews::Nothing => Action::default(),
            LinkNews::Warned => self.stop(freeze::shut(self.copies_before)),
            LinkNews::Cut => self.stop(Action::default()),
            LinkNews::Back => {
                let open = freeze::open(view, self.acks_after, self.acks_unforeseen);
                Action { hold: Some(false), ..open }
            }
        }
    }
}
