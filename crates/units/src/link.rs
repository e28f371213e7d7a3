use core::time::Duration;

/// What is known of the hop from below: from netlink, an operator's command, a script or the
/// simulator (LNK-14). One type for all worlds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// The hop carries again.
    Up,
    /// The hop carries nothing from now on.
    Down,
    /// The hop will fall silent, or be handed over, after about `lead`.
    Imminent {
        /// How long from now.
        lead: Duration,
    },
}
