//! The end of an association: the last word, and that it is over.

use crate::transport::CloseReason;

/// Times that the last word is said: nothing acknowledges it.
const COPIES: u32 = 3;

/// How far an association is from its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// It goes on.
    Open,
    /// The peer is yet to be told, so many times more.
    Closing(CloseReason, u32),
    Closed(CloseReason),
}

impl Ending {
    /// Nobody has ended it.
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

    /// This end ends it, unless either has.
    pub(super) fn close(&mut self, reason: CloseReason) {
        if self.is_open() {
            *self = Self::Closing(reason, COPIES);
        }
    }

    /// The peer is to be told this at once; when that was said often enough, it is over.
    pub(super) fn last_word(&mut self) -> Option<CloseReason> {
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
    fn the_last_word_is_said_three_times_and_the_first_reason_stands() {
        let mut ending = Ending::Open;
        assert_eq!(ending.last_word(), None);
        ending.close(CloseReason::Protocol);
        ending.close(CloseReason::Silence);
        assert!(!ending.is_open() && ending.closed().is_none());
        for _ in 0..3 {
            assert_eq!(ending.last_word(), Some(CloseReason::Protocol));
        }
        assert_eq!((ending.last_word(), ending.closed()), (None, Some(CloseReason::Protocol)));
    }
}
