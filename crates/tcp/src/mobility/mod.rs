//! What the mobile end of a connection does at disconnections and handoffs: a part that can be
//! swapped, beside the answer to loss.
//!
//! A scheme is notified of the hop ([`LinkEvent`]), of each segment that has arrived and of the
//! retransmission timer, and says what the connection is to do. None needs anything from the fixed
//! end but TCP; those that shut the window need a fixed end that then goes to persist at once
//! ([`ShrunkWindow::Persist`](crate::ShrunkWindow), RENO-9).

mod atcp;
mod freeze;
mod greet;
mod handoff;
mod link_layer;

use lasthop_units::{Duration, LinkEvent, LinkNews, LinkWatch, Time};

pub use atcp::Atcp;
pub use freeze::Freeze;
pub use greet::Greet;
pub use handoff::FastRetransmit;
pub use lasthop_units::Thaw;
pub use link_layer::LinkLayerFreeze;

use atcp::AtcpState;
use greet::GreetState;

use crate::ack_request::AckWindow;

/// Which scheme the mobile end of a connection follows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Mobility {
    /// None: link events change nothing.
    #[default]
    None,
    /// Duplicate acknowledgements after a handoff (3DA).
    FastRetransmit(FastRetransmit),
    /// Freeze-TCP (FRZ).
    Freeze(Freeze),
    /// The freezing of the link-layer trigger method (LLT).
    LinkLayerFreeze(LinkLayerFreeze),
    /// ATCP: feedback of connections and disconnections, without foresight (ATS, ATR).
    Atcp(Atcp),
    /// The mobile's part of M-TCP (MTC-4, MTC-5).
    Greet(Greet),
}

/// How long a sender that was cut off waits before it tries the link, where nothing else is said.
const PATIENCE: Duration = Duration::from_secs(10);

/// A scheme's input of its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionView {
    pub(crate) now: Time,
    /// SND.UNA, and the highest SND.NXT so far.
    pub(crate) una: u64,
    pub(crate) max: u64,
    pub(crate) cwnd: u64,
    /// The windows leave room for a segment (ATS-2).
    pub(crate) room: bool,
    /// RCV.NXT.
    pub(crate) received: u64,
    /// Something is held above a gap.
    pub(crate) gap: bool,
    /// The peer's FIN has arrived in order.
    pub(crate) ended: bool,
    /// The window that we advertise is shut.
    pub(crate) shut: bool,
}

/// A scheme's input of a segment that was taken in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrivedSegment {
    /// Its payload.
    pub(crate) len: u32,
    /// RCV.NXT before it.
    pub(crate) before: u64,
}

/// What to do with the retransmission timer.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum TimerChange {
    #[default]
    Keep,
    Cancel,
    Restart,
}

/// What to send again at once.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Resend {
    #[default]
    Nothing,
    /// Everything from SND.UNA on, as far as the windows allow, which stay as they are.
    All,
    /// The first segment, as the third duplicate has it sent.
    AsLost,
}

/// Acknowledgements to send at once.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Acks {
    #[default]
    None,
    /// One, with the next segment if there is one.
    Soon,
    /// So many of RCV.NXT, equal to each other.
    Copies(u8, AckWindow),
    /// One that covers so many bytes less than what has arrived and shuts the window, then one of
    /// RCV.NXT with the real window (ATR-3, ATR-5).
    ZeroThenFull {
        /// Bytes that the first leaves out.
        withhold: u32,
    },
}

/// Whether the last bytes that have arrived are left out of acknowledgements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Withhold {
    No,
    /// Two bytes are left out, as far as they lie at or after this position.
    From(u64),
}

/// What a connection does, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Action {
    /// Shut the window that is advertised, or open it.
    pub(crate) shut: Option<bool>,
    pub(crate) withhold: Option<Withhold>,
    /// Send nothing of our stream, or go on. Going on starts the timer if it is off.
    pub(crate) hold: Option<bool>,
    pub(crate) timer: TimerChange,
    pub(crate) resend: Resend,
    pub(crate) acks: Acks,
}

/// What to do when the retransmission timer has expired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnTimeout {
    /// As TCP does (RENO-6).
    Ordinary,
    /// As TCP does, but leave cwnd and ssthresh alone (ATS-9).
    KeepWindows,
    /// Nothing; the timer stays off.
    Hold,
    /// Nothing but setting ssthresh to this and cwnd to one segment; the timer stays off (ATS-5).
    Collapse(u64),
}

/// One scheme, with its state. News of the link has been sorted before it comes here.
pub(crate) trait MobilityScheme {
    /// The link's state changed.
    fn on_news(&mut self, view: &ConnectionView, news: LinkNews) -> Action;

    /// A segment was taken in.
    fn on_segment(
        &mut self,
        link: &mut LinkWatch,
        view: &ConnectionView,
        _arrived: ArrivedSegment,
    ) -> Action {
        match link.on_segment(view.now) {
            LinkNews::Nothing => Action::default(),
            news => self.on_news(view, news),
        }
    }

    /// [`deadline`](Self::deadline) has come.
    fn on_timer(&mut self, link: &mut LinkWatch, view: &ConnectionView) -> Action {
        match link.on_timer(view.now) {
            LinkNews::Nothing => Action::default(),
            news => self.on_news(view, news),
        }
    }

    /// When [`on_timer`](Self::on_timer) wants to be called.
    fn deadline(&self, link: &LinkWatch) -> Time {
        link.deadline()
    }

    /// The retransmission timer expired with data outstanding.
    fn on_timeout(&mut self, _view: &ConnectionView, held: bool) -> OnTimeout {
        if held { OnTimeout::Hold } else { OnTimeout::Ordinary }
    }
}

/// The schemes that exist, so that none costs an allocation or an indirect call.
#[derive(Clone, Debug)]
enum Scheme {
    None,
    FastRetransmit(FastRetransmit),
    Freeze(Freeze),
    LinkLayerFreeze(LinkLayerFreeze),
    Atcp(AtcpState),
    Greet(GreetState),
}

macro_rules! each {
    ($scheme:ident, $none:expr, $part:ident => $call:expr) => {
        match $scheme {
            Scheme::None => $none,
            Scheme::FastRetransmit($part) => $call,
            Scheme::Freeze($part) => $call,
            Scheme::LinkLayerFreeze($part) => $call,
            Scheme::Atcp($part) => $call,
            Scheme::Greet($part) => $call,
        }
    };
}

/// A connection's scheme, and the link as that sees it.
#[derive(Clone, Debug)]
pub(crate) struct MobilityState {
    link: LinkWatch,
    scheme: Scheme,
}

impl MobilityState {
    pub(crate) fn new(mobility: Mobility) -> Self {
        let (thaw, bound, scheme) = match mobility {
            Mobility::None => (Thaw::Up, None, Scheme::None),
            Mobility::FastRetransmit(config) => (config.thaw, None, Scheme::FastRetransmit(config)),
            Mobility::Freeze(config) => (config.thaw, Some(config.bound), Scheme::Freeze(config)),
            Mobility::LinkLayerFreeze(config) => {
                (config.thaw, Some(config.bound), Scheme::LinkLayerFreeze(config))
            }
            Mobility::Atcp(config) => (config.thaw, None, Scheme::Atcp(AtcpState::new(config))),
            Mobility::Greet(config) => (config.thaw, None, Scheme::Greet(GreetState::default())),
        };
        Self { link: LinkWatch::new(thaw, bound), scheme }
    }

    pub(crate) fn on_link_event(&mut self, view: &ConnectionView, event: LinkEvent) -> Action {
        let Self { link, scheme } = self;
        each!(scheme, Action::default(), part => {
            match link.on_event(view.now, event) {
                LinkNews::Nothing => Action::default(),
                news => part.on_news(view, news),
            }
        })
    }

    pub(crate) fn on_segment(&mut self, view: &ConnectionView, arrived: ArrivedSegment) -> Action {
        let Self { link, scheme } = self;
        each!(scheme, Action::default(), part => part.on_segment(link, view, arrived))
    }

    pub(crate) fn on_timer(&mut self, view: &ConnectionView) -> Action {
        let Self { link, scheme } = self;
        each!(scheme, Action::default(), part => part.on_timer(link, view))
    }

    pub(crate) fn on_timeout(&mut self, view: &ConnectionView, held: bool) -> OnTimeout {
        let Self { scheme, .. } = self;
        each!(scheme, OnTimeout::Ordinary, part => part.on_timeout(view, held))
    }

    pub(crate) fn deadline(&self) -> Time {
        let Self { link, scheme } = self;
        each!(scheme, Time::NEVER, part => part.deadline(link))
    }
}

impl Mobility {
    /// How long a sender that was cut off waits before it tries the link; never for schemes that
    /// do not hold the sender.
    pub(crate) const fn patience(&self) -> Option<Duration> {
        match self {
            Self::None | Self::FastRetransmit(_) | Self::Freeze(_) => None,
            Self::LinkLayerFreeze(config) => Some(config.patience),
            Self::Atcp(config) => Some(config.patience),
            Self::Greet(config) => Some(config.patience),
        }
    }
}
