//! Which agents a scheme needs, and at which bridge of a [`Path`](super::path::Path) each belongs: those
//! at the base's end of the hop in front of the radio, those at the mobile's end behind it.

use lasthop_units::{Placement, Scheme};

/// Every scheme that acts from the path, and `none`. Last is `obtcp`, which needs a mobile router with
/// a hop of its own.
pub fn schemes() -> Vec<Scheme> {
    let acts = |scheme: &Scheme| !scheme.roles().is_empty();
    let mut schemes: Vec<_> = Scheme::ALL.into_iter().filter(acts).collect();
    schemes.sort_by_key(|scheme| scheme.traits().needs_mobile_router);
    schemes
}

/// The agents of the scheme of this name; none if it does not act from the path.
pub fn of(scheme: &str) -> Option<Vec<Placement>> {
    schemes().into_iter().find(|known| known.name() == scheme).map(Scheme::placements)
}

#[cfg(test)]
mod tests {
    use lasthop_units::HopEnd;

    use super::*;

    #[test]
    fn schemes_are_found_by_name_and_stand_where_their_packets_pass() {
        assert_eq!(of("none"), Some(Vec::new()));
        assert_eq!(of("srp"), None);
        let behind = |scheme: &str| of(scheme).unwrap().iter().any(|p| p.end == HopEnd::Mobile);
        assert!(!behind("snoop") && behind("freeze"));
        assert!(schemes().into_iter().all(|scheme| scheme.placements().len() <= 2));
    }
}
