//! The end of an association: the close frames, and that it is over.

use crate::transport::CloseReason;

/// Close frames that are sent: nothing acknowledges them.
const COPIES: u32 = 3;

/// How far an association is from its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CloseState {
    Open,
    /// So many close frames are still to be sent.
    Closing(CloseReason, u32),
    Closed(CloseReason),
}

impl CloseState {
    /// Neither end has closed it.
    pub(super) fn is_open(self) -> bool {
        self == Self::Open
    }

    /// Why it is over, if it is.
    pub(super) fn closed(self) -> Option<CloseReason> {
        match self {
            Self::Closed(reason) => Some(reason),
            Self::Open | Self::Closing(..) => None,
        }
    }

    /// Closes it from this end, unless either has closed it.
    pub(super) fn close(&mut self, reason: CloseReason) {
        if self.is_open() {
            *self = Self::Closing(reason, COPIES);
        }
    }

    /// The reason to send in a close frame at once; when enough were sent, the association is closed.
    pub(super) fn next_close(&mut self) -> Option<CloseReason> {
        let Self::Closing(reason, copies) = *self else { return None };
        *self = match copies.checked_sub(1) {
            Some(left) => Self::Closing(reason, left),
            None => Self::Closed(reason),
        };
        (copies > 0).then_some(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_is_sent_three_times_with_the_first_reason() {
        let mut state = CloseState::Open;
        assert_eq!(state.next_close(), None);
        state.close(CloseReason::Protocol);
        state.close(CloseReason::Silence);
        assert!(!state.is_open() && state.closed().is_none());
        for _ in 0..3 {
            assert_eq!(state.next_close(), Some(CloseReason::Protocol));
        }
        assert_eq!((state.next_close(), state.closed()), (None, Some(CloseReason::Protocol)));
    }
}
