//! What clients do and services answer.

use std::collections::VecDeque;

use lasthop_units::{Bytes, Duration, Rate, Stream, Time};

/// The most keystrokes that wait for their echoes.
const MOST_WAITING: usize = 1 << 16;

/// How long something takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Span {
    /// Always as long.
    Constant(Duration),
    /// Exponential with this mean.
    Exponential(Duration),
}

impl Span {
    pub(super) fn draw(self, stream: &mut Stream) -> Duration {
        match self {
            Self::Constant(span) => span,
            Self::Exponential(mean) => {
                // 1 - u is never zero; libm's logarithm is the same on every machine.
                let factor = -libm::log(1.0 - stream.uniform());
                Duration::from_nanos((mean.as_nanos() as f64 * factor) as u64)
            }
        }
    }
}

/// What a client does on its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Sends without end.
    Bulk,
    /// Sends a file, then ends its stream.
    File(Bytes),
    /// Sends nothing, takes what comes, and ends when the service does.
    Download,
    /// Sends a request, awaits the answer, thinks, and begins again.
    Requests {
        /// Length of a request.
        request: Bytes,
        /// Length of its answer; [`Service::Respond`] must know the same.
        response: Bytes,
        /// From an answer to the next request.
        think: Span,
        /// How many; endless if `None`.
        count: Option<u64>,
    },
    /// Types: single bytes, echoed by [`Service::Echo`].
    Keystrokes {
        /// From one keystroke to the next.
        every: Span,
        /// How many; endless if `None`.
        count: Option<u64>,
    },
    /// Sends at a rate, in pieces, then pauses, and begins again.
    OnOff {
        /// How long it sends.
        on: Span,
        /// How long it pauses.
        off: Span,
        /// How fast it sends.
        rate: Rate,
        /// Bytes at a time.
        piece: Bytes,
    },
}

/// What a service does with a connection that it accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// Takes everything.
    Discard,
    /// Sends everything back.
    Echo,
    /// Answers each request.
    Respond {
        /// Length of a request.
        request: Bytes,
        /// Length of its answer.
        response: Bytes,
    },
    /// Sends a file, then ends its stream.
    Serve(Bytes),
    /// Sends without end.
    Stream,
}

/// A client's or a service's state, in counts of bytes.
#[derive(Debug)]
pub(super) enum State {
    /// `left` more bytes are to be written, then perhaps the end.
    Sending {
        left: Bytes,
        finish: bool,
    },
    /// Nothing is to be written.
    Taking,
    Echoing {
        owed: Bytes,
    },
    Responding {
        request: Bytes,
        response: Bytes,
        partial: Bytes,
        owed: Bytes,
    },
    Requesting(Requesting),
    Typing(Typing),
    OnOff(OnOff),
}

#[derive(Debug)]
pub(super) struct Requesting {
    pub(super) request: Bytes,
    pub(super) response: Bytes,
    pub(super) think: Span,
    pub(super) left: Option<u64>,
    /// Of the request, still to be written.
    pub(super) unsent: Bytes,
    /// Of the answer, still to come.
    pub(super) awaited: Bytes,
    pub(super) asked: Time,
}

#[derive(Debug)]
pub(super) struct Typing {
    pub(super) every: Span,
    pub(super) left: Option<u64>,
    pub(super) waiting: VecDeque<Time>,
    pub(super) unsent: Bytes,
}

impl Typing {
    /// One keystroke at `now`; false if too many wait.
    pub(super) fn strike(&mut self, now: Time) -> bool {
        if self.waiting.len() >= MOST_WAITING {
            return false;
        }
        self.waiting.push_back(now);
        self.unsent += Bytes::new(1);
        true
    }
}

#[derive(Debug)]
pub(super) struct OnOff {
    pub(super) on: Span,
    pub(super) off: Span,
    pub(super) rate: Rate,
    pub(super) piece: Bytes,
    /// When the present period of sending ends.
    pub(super) until: Time,
    pub(super) unsent: Bytes,
}

/// Counts one more of a number that may be endless; false if there is none left.
pub(super) fn use_one(left: &mut Option<u64>) -> bool {
    match left {
        None => true,
        Some(0) => false,
        Some(n) => {
            *n -= 1;
            true
        }
    }
}

impl State {
    pub(super) fn of_work(work: &Work) -> Self {
        match *work {
            Work::Bulk => Self::Sending { left: Bytes::new(u64::MAX), finish: false },
            Work::File(left) => Self::Sending { left, finish: true },
            Work::Download => Self::Taking,
            Work::Requests { request, response, think, count } => Self::Requesting(Requesting {
                request,
                response,
                think,
                left: count,
                unsent: Bytes::ZERO,
                awaited: Bytes::ZERO,
                asked: Time::ZERO,
            }),
            Work::Keystrokes { every, count } => Self::Typing(Typing {
                every,
                left: count,
                waiting: VecDeque::new(),
                unsent: Bytes::ZERO,
            }),
            Work::OnOff { on, off, rate, piece } => Self::OnOff(OnOff {
                on,
                off,
                rate,
                piece: piece.max(Bytes::new(1)),
                until: Time::ZERO,
                unsent: Bytes::ZERO,
            }),
        }
    }

    pub(super) fn of_service(service: &Service) -> Self {
        match *service {
            Service::Discard => Self::Taking,
            Service::Echo => Self::Echoing { owed: Bytes::ZERO },
            Service::Respond { request, response } => Self::Responding {
                request: request.max(Bytes::new(1)),
                response,
                partial: Bytes::ZERO,
                owed: Bytes::ZERO,
            },
            Service::Serve(left) => Self::Sending { left, finish: true },
            Service::Stream => Self::Sending { left: Bytes::new(u64::MAX), finish: false },
        }
    }

    /// Bytes that wait to be written.
    pub(super) fn owed(&mut self) -> Option<&mut Bytes> {
        match self {
            Self::Sending { left, .. } => Some(left),
            Self::Echoing { owed } | Self::Responding { owed, .. } => Some(owed),
            Self::Requesting(r) => Some(&mut r.unsent),
            Self::Typing(t) => Some(&mut t.unsent),
            Self::OnOff(o) => Some(&mut o.unsent),
            Self::Taking => None,
        }
    }
}
