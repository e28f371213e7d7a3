//! Acknowledgements that are sent because a helper scheme asks for them.

/// An acknowledgement that a helper scheme wants on the wire (ATR-3, 3DA-1, FRZ-1, FRZ-3).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AckRequest {
    /// Acknowledge so many bytes less than what has arrived in order.
    pub withhold: u32,
    /// The window to state.
    pub window: AckWindow,
}

/// The window that a requested acknowledgement states.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum AckWindow {
    /// The one that holds.
    #[default]
    Real,
    /// What is left of the one that was last advertised to the peer: as long as nothing has arrived since, the
    /// same field, so that the acknowledgement counts as a duplicate (RENO-4).
    Unchanged,
    /// None, whatever there is.
    Zero,
}
