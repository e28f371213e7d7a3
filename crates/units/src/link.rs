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
    /// A handoff to another base is complete: packets for this host find it there (MIP-6, LNK-14).
    /// For those who take part in IP; machines of the hop itself, which live between `Down` and
    /// `Up`, treat it as nothing.
    Complete,
}
