//! When to tell the peer that its credit keeps us waiting.

/// Of what the peer was told, for a stream or for all together.
#[derive(Debug, Default)]
pub(super) struct Blocked {
    /// The limit that was reached when it was last told so.
    reached: Option<u64>,
    /// The limit when it was last told ahead.
    ahead_of: Option<u64>,
}

impl Blocked {
    /// Whether to tell it that `used` is close to the `limit`: once when no more than `ahead` is left, and again
    /// when nothing is. What was granted in answer is used before more is asked for ahead, or each answer
    /// would bring a question.
    pub(super) fn take(&mut self, used: u64, limit: u64, ahead: u64) -> bool {
        let left = limit.saturating_sub(used);
        let tells = match left {
            0 => self.reached != Some(limit),
            _ => left <= ahead && self.ahead_of.is_none_or(|limit| limit < used),
        };
        if tells && left == 0 {
            self.reached = Some(limit);
        } else if tells {
            self.ahead_of = Some(limit);
        }
        tells
    }

    /// What was told was lost.
    pub(super) fn on_lost(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_told_once_when_it_is_reached() {
        let mut b = Blocked::default();
        assert!(!b.take(9, 10, 0));
        assert!(b.take(10, 10, 0) && !b.take(10, 10, 0));
        b.on_lost();
        assert!(b.take(10, 10, 0));
        assert!(!b.take(10, 11, 0));
        assert!(b.take(11, 11, 0));
    }

    #[test]
    fn it_is_told_once_ahead_and_once_when_it_is_reached() {
        let mut b = Blocked::default();
        assert!(!b.take(59, 100, 40));
        assert!(b.take(60, 100, 40) && !b.take(61, 101, 40));
        assert!(!b.take(100, 120, 40));
        assert!(b.take(101, 120, 40) && !b.take(119, 120, 40));
        assert!(b.take(120, 120, 40));
    }
}
