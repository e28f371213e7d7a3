use lasthop_units::{Duration, LinkNews, Thaw, deserialize_duration};
use serde::Deserialize;

use super::{Acks, Action, ConnectionView, MobilityScheme, PATIENCE, Resend, TimerChange};
use crate::ack_request::AckWindow;

/// The mobile's part of M-TCP (Brown and Singh 1997): while it is cut off its timers stand still and
/// it sends nothing of its stream; once it is back it greets its supervisor with an acknowledgement
/// of all that has arrived, and sends again at once what was not acknowledged (MTC-4). A cut costs
/// it nothing of its windows (MTC-5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Greet {
    /// Which event calls for the greeting.
    #[serde(skip)]
    pub thaw: Thaw,
    /// A sender that was cut off tries the link once in so long, in case the news was lost.
    #[serde(deserialize_with = "deserialize_duration")]
    pub patience: Duration,
}

impl Default for Greet {
    /// A greeting when the link is up, and a try each 10 s.
    fn default() -> Self {
        Self { thaw: Thaw::Up, patience: PATIENCE }
    }
}

#[derive(Clone, Default, Debug)]
pub(crate) struct GreetState {
    cut: bool,
}

impl MobilityScheme for GreetState {
    fn on_news(&mut self, _view: &ConnectionView, news: LinkNews) -> Action {
        match news {
            LinkNews::Nothing | LinkNews::Warned => Action::default(),
            LinkNews::Cut => {
                self.cut = true;
                let timer = TimerChange::Cancel;
                Action { hold: Some(true), timer, ..Action::default() }
            }
            LinkNews::Back => {
                let resend = if self.cut { Resend::All } else { Resend::Nothing };
                self.cut = false;
                let acks = Acks::Copies(1, AckWindow::Real);
                Action { hold: Some(false), resend, acks, ..Action::default() }
            }
        }
    }
}
