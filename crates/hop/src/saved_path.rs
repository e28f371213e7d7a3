//! What a path was worth to an association, for the next one on it.

use core::time::Duration;

use lasthop_units::Rate;

/// What one end has seen of a path: the saved parameters of draft-ietf-tsvwg-careful-resume, both ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SavedPath {
    /// What was delivered of what this end sent; zero if that was never measured.
    pub sending: Rate,
    /// What arrived at this end when most did.
    pub receiving: Rate,
    /// The least round trip.
    pub rtt: Duration,
}
