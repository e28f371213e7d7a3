//! Which agents a scheme needs, and at which bridge each belongs.

/// A bridge of a [`Path`](super::path::Path).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spot {
    /// The base, in front of the radio.
    Base,
    /// The edge or the mobile router, behind the radio.
    Behind,
}

/// An agent at its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Where.
    pub spot: Spot,
    /// What `lasthop agent` is told.
    pub args: &'static [&'static str],
}

const fn at(spot: Spot, args: &'static [&'static str]) -> Placement {
    Placement { spot, args }
}

/// Every scheme that acts from the path, by its name in the league, and its agents. `obtcp` needs a
/// mobile router with a hop of its own.
pub const SCHEMES: [(&str, &[Placement]); 10] = [
    ("none", &[]),
    ("snoop", &[at(Spot::Base, &["snoop"])]),
    ("delayed-dupacks", &DELAYED_DUPACKS),
    ("m-tcp", &[at(Spot::Base, &["m-tcp"])]),
    ("congestion-coherence", &CONGESTION_COHERENCE),
    ("freeze", &[at(Spot::Behind, &["freeze"])]),
    ("ll-freeze", &[at(Spot::Behind, &["ll-freeze"])]),
    ("atcp", &[at(Spot::Behind, &["atcp"])]),
    ("rwc", &[at(Spot::Behind, &["rwc"])]),
    ("obtcp", &OBTCP),
];

const DELAYED_DUPACKS: [Placement; 2] = [
    at(Spot::Base, &["delayed-dupacks", "--end", "base"]),
    at(Spot::Behind, &["delayed-dupacks", "--end", "mobile"]),
];
const CONGESTION_COHERENCE: [Placement; 2] = [
    at(Spot::Base, &["congestion-coherence", "--end", "base"]),
    at(Spot::Behind, &["congestion-coherence", "--end", "mobile"]),
];
const OBTCP: [Placement; 2] =
    [at(Spot::Base, &["obtcp-base"]), at(Spot::Behind, &["obtcp-mobile-router"])];

/// The agents of the scheme of this name; none if it does not act from the path.
pub fn of(scheme: &str) -> Option<&'static [Placement]> {
    SCHEMES.iter().find(|(name, _)| *name == scheme).map(|(_, placements)| *placements)
}

/// Whether the scheme has an agent behind the radio.
pub fn is_behind(placements: &[Placement]) -> bool {
    placements.iter().any(|placement| placement.spot == Spot::Behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_found_by_name_and_stand_where_their_packets_pass() {
        assert_eq!(of("none"), Some(&[][..]));
        assert_eq!(of("srp"), None);
        assert!(!is_behind(of("snoop").unwrap()) && is_behind(of("freeze").unwrap()));
        assert!(SCHEMES.iter().all(|(_, placements)| placements.len() <= 2));
    }
}
