use lasthop_units::{Duration, LinkNews, LinkWatch, Thaw, Time};

use super::{
    Acks, Action, ArrivedSegment, ConnectionView, MobilityScheme, OnTimeout, PATIENCE, Resend,
    TimerChange, Withhold,
};

/// ATCP of the RWC and ATCP paper (section V): TCP at the mobile is notified of connections and
/// disconnections when they happen; nothing is foreseen (ATR-8).
///
/// **As a receiver** (Table II) it leaves the last two bytes out of its acknowledgements until more
/// data has come or [`delay`](Self::delay) has passed. After a disconnection it acknowledges the
/// first of them with window 0 and then the second with the full window: both are new to the sender,
/// which goes to persist and resumes at once, with its windows kept. If its timer has expired before,
/// it at least need not wait for the next expiry (ATR-4). Where the delay had passed before the link
/// went down both acknowledgements have the same number (ATR-5).
///
/// The paper is silent on gaps. Here a gap ends the withholding before the first duplicate goes
/// out, and a gap's fill is acknowledged whole: a sender that repeats a segment from two bytes before
/// the gap would end two bytes short of its end. So do data that was there already, since its sender
/// has waited too long, and the end of the stream. Acknowledgement numbers never go back.
///
/// **As a sender** (Table I) it sends nothing while disconnected. If the windows had room for a
/// segment (ATS-2) its timer is stopped, and on reconnection new data goes out, whose acknowledgement
/// covers what was sent before. If not, the timer runs on; when it expires meanwhile ssthresh becomes
/// the window at the disconnection and cwnd one segment, and all is sent again on reconnection. The
/// first expiry afterwards leaves the windows alone, until data that was sent after the reconnection
/// is acknowledged (ATS-10).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Atcp {
    /// Which event counts as the connection.
    pub thaw: Thaw,
    /// How long the last two bytes wait for their acknowledgement; more than
    /// [`MOST`](Self::MOST) counts as that. It must be less than the sender's least retransmission
    /// timeout: else each pause of the stream costs the sender a needless timeout (ATR-7).
    pub delay: Duration,
    /// A sender that was cut off tries the link once in so long, in case the news was lost.
    pub patience: Duration,
}

impl Atcp {
    /// The longest delay of an acknowledgement (Table II).
    pub const MOST: Duration = Duration::from_millis(500);
}

impl Default for Atcp {
    /// A delay of 100 ms, which is below every preset's least timeout; plain disconnections; a try
    /// each 10 s.
    fn default() -> Self {
        Self { thaw: Thaw::Up, delay: Duration::from_millis(100), patience: PATIENCE }
    }
}

/// What a sender remembers of a disconnection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sending {
    /// As TCP does (ATS-11).
    Ordinary,
    /// Cut off, the windows had room (ATS-3).
    CutOpen,
    /// Cut off, the windows were full; cwnd then, and whether the timer has expired since (ATS-4,
    /// ATS-5).
    CutFull { cwnd: u64, fired: bool },
    /// Connected after a disconnection; what is sent beyond this position was sent since
    /// ("DisconnectionOccurred").
    Resumed { mark: u64 },
}

#[derive(Clone, Debug)]
pub(crate) struct AtcpState {
    delay: Duration,
    sending: Sending,
    /// The last bytes are withheld, as far as they lie at or after this position.
    floor: Option<u64>,
    /// When they are not any more; stands still while cut off (ATR-2).
    due: Time,
    /// Something was held above a gap.
    gap: bool,
}

impl AtcpState {
    pub(crate) fn new(config: Atcp) -> Self {
        Self {
            delay: config.delay.min(Atcp::MOST),
            sending: Sending::Ordinary,
            floor: None,
            due: Time::NEVER,
            gap: false,
        }
    }

    /// Table I and II, "Disconnection".
    fn disconnected(&mut self, view: &ConnectionView) -> Action {
        self.due = Time::NEVER;
        let (sending, timer) = if view.room {
            (Sending::CutOpen, TimerChange::Cancel)
        } else {
            (Sending::CutFull { cwnd: view.cwnd, fired: false }, TimerChange::Keep)
        };
        self.sending = sending;
        Action { hold: Some(true), timer, ..Action::default() }
    }

    /// Table I and II, "Connection". Who was notified of no disconnection has nothing to make good as a
    /// sender; its peer may.
    fn connected(&mut self, view: &ConnectionView) -> Action {
        let (mark, timer, resend) = match self.sending {
            Sending::CutOpen => (Some(view.max), TimerChange::Restart, Resend::Nothing),
            // The data from SND.UNA on is what is sent after the reconnection.
            Sending::CutFull { fired: true, .. } => {
                (Some(view.una), TimerChange::Keep, Resend::All)
            }
            Sending::CutFull { fired: false, .. } => {
                (Some(view.max), TimerChange::Keep, Resend::Nothing)
            }
            Sending::Ordinary | Sending::Resumed { .. } => {
                (None, TimerChange::Keep, Resend::Nothing)
            }
        };
        if let Some(mark) = mark {
            self.sending = Sending::Resumed { mark };
        }
        let pending = self.floor.take().is_some_and(|floor| view.received > floor);
        self.due = Time::NEVER;
        Action {
            withhold: Some(Withhold::No),
            hold: Some(false),
            timer,
            resend,
            acks: Acks::ZeroThenFull { withhold: u32::from(pending) },
            ..Action::default()
        }
    }

    /// ATR-1, and where it ends.
    fn withhold(&mut self, view: &ConnectionView, arrived: ArrivedSegment, cut: bool) -> Action {
        // The SYN is no byte.
        let news = arrived.before > 0 && view.received > arrived.before;
        let filled = core::mem::replace(&mut self.gap, view.gap);
        let repeated = arrived.len > 0 && !news;
        if view.ended || view.gap || filled || repeated {
            if self.floor.take().is_none() {
                return Action::default();
            }
            self.due = Time::NEVER;
            // Duplicates are to repeat a number that the sender has seen.
            let acks = if view.gap {
                Acks::Copies(1, crate::ack_request::AckWindow::Real)
            } else {
                Acks::Soon
            };
            return Action { withhold: Some(Withhold::No), acks, ..Action::default() };
        }
        if !news {
            return Action::default();
        }
        let floor = *self.floor.get_or_insert(arrived.before);
        if !cut {
            self.due = view.now + self.delay;
        }
        Action { withhold: Some(Withhold::From(floor)), ..Action::default() }
    }
}

impl MobilityScheme for AtcpState {
    fn on_news(&mut self, view: &ConnectionView, news: LinkNews) -> Action {
        match news {
            LinkNews::Nothing | LinkNews::Warned => Action::default(),
            LinkNews::Cut => self.disconnected(view),
            LinkNews::Back => self.connected(view),
        }
    }

    fn on_segment(
        &mut self,
        link: &mut LinkWatch,
        view: &ConnectionView,
        arrived: ArrivedSegment,
    ) -> Action {
        if link.on_segment(view.now) == LinkNews::Back {
            self.gap = view.gap;
            return self.connected(view);
        }
        if let Sending::Resumed { mark } = self.sending
            && view.una > mark
        {
            self.sending = Sending::Ordinary;
        }
        self.withhold(view, arrived, link.is_cut())
    }

    fn on_timer(&mut self, _link: &mut LinkWatch, view: &ConnectionView) -> Action {
        if self.due > view.now {
            return Action::default();
        }
        self.due = Time::NEVER;
        self.floor = None;
        Action { withhold: Some(Withhold::No), acks: Acks::Soon, ..Action::default() }
    }

    fn deadline(&self, _link: &LinkWatch) -> Time {
        self.due
    }

    fn on_timeout(&mut self, view: &ConnectionView, _held: bool) -> OnTimeout {
        match &mut self.sending {
            Sending::Ordinary => OnTimeout::Ordinary,
            Sending::CutOpen => OnTimeout::Hold,
            Sending::CutFull { cwnd, fired } => {
                *fired = true;
                OnTimeout::Collapse(*cwnd)
            }
            Sending::Resumed { mark } => {
                *mark = view.una;
                OnTimeout::KeepWindows
            }
        }
    }
}
