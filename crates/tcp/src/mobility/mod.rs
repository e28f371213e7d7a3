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

/// One scheme's state. News of the link has been sorted before it comes here.
pub(crate) trait MobilityScheme {
    /// The link as this scheme sees it.
    fn link(&mut self) -> &mut LinkWatch;

    /// The link's state changed.
    fn on_news(&mut self, view: &ConnectionView, news: LinkNews) -> Action;

    /// A segment was taken in.
    fn on_segment(&mut self, view: &ConnectionView, _arrived: ArrivedSegment) -> Action {
        match self.link().on_segment(view.now) {
            LinkNews::Nothing => Action::default(),
            news => self.on_news(view, news),
        }
    }

    /// [`deadline`](Self::deadline) has come.
    fn on_timer(&mut self, view: &ConnectionView) -> Action {
        match self.link().on_timer(view.now) {
            LinkNews::Nothing => Action::default(),
            news => self.on_news(view, news),
        }
    }

    /// When [`on_timer`](Self::on_timer) wants to be called.
    fn deadline(&self) -> Time;

    /// The retransmission timer expired with data outstanding.
    fn on_timeout(&mut self, _view: &ConnectionView, held: bool) -> OnTimeout {
        if held { OnTimeout::Hold } else { OnTimeout::Ordinary }
    }
}

/// The schemes that exist, so that none costs an allocation or an indirect call.
#[derive(Clone, Debug)]
pub(crate) enum MobilityState {
    None,
    FastRetransmit(handoff::FastRetransmitState),
    Freeze(freeze::FreezeState),
    LinkLayerFreeze(link_layer::LinkLayerFreezeState),
    Atcp(atcp::AtcpState),
    Greet(greet::GreetState),
}

macro_rules! each {
    ($self:ident, $none:expr, $part:ident => $call:expr) => {
        match $self {
            MobilityState::None => $none,
            MobilityState::FastRetransmit($part) => $call,
            MobilityState::Freeze($part) => $call,
            MobilityState::LinkLayerFreeze($part) => $call,
            MobilityState::Atcp($part) => $call,
            MobilityState::Greet($part) => $call,
        }
    };
}

impl MobilityState {
    pub(crate) fn new(mobility: Mobility) -> Self {
        match mobility {
            Mobility::None => Self::None,
            Mobility::FastRetransmit(config) => {
                Self::FastRetransmit(handoff::FastRetransmitState::new(config))
            }
            Mobility::Freeze(config) => Self::Freeze(freeze::FreezeState::new(config)),
            Mobility::LinkLayerFreeze(config) => {
                Self::LinkLayerFreeze(link_layer::LinkLayerFreezeState::new(config))
            }
            Mobility::Atcp(config) => Self::Atcp(atcp::AtcpState::new(config)),
            Mobility::Greet(config) => Self::Greet(greet::GreetState::new(config)),
        }
    }

    pub(crate) fn on_link_event(&mut self, view: &ConnectionView, event: LinkEvent) -> Action {
        each!(self, Action::default(), part => {
            match part.link().on_event(view.now, event) {
                LinkNews::Nothing => Action::default(),
                news => part.on_news(view, news),
            }
        })
    }

    pub(crate) fn on_segment(&mut self, view: &ConnectionView, arrived: ArrivedSegment) -> Action {
        each!(self, Action::default(), part => part.on_segment(view, arrived))
    }

    pub(crate) fn on_timer(&mut self, view: &ConnectionView) -> Action {
        each!(self, Action::default(), part => part.on_timer(view))
    }

    pub(crate) fn on_timeout(&mut self, view: &ConnectionView, held: bool) -> OnTimeout {
        each!(self, OnTimeout::Ordinary, part => part.on_timeout(view, held))
    }

    pub(crate) fn deadline(&self) -> Time {
        each!(self, Time::NEVER, part => part.deadline())
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
