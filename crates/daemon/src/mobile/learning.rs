//! What becomes of the bases that a mobile knows when one of them tells of others.

use std::net::SocketAddr;

use lasthop_hop::seal::PublicKey;
use lasthop_wire::mhp::fleet::{FLEET_MAX, FleetBase};

use super::config::{BaseAddress, Candidate};
use super::known_base::{KnownBase, Origin};
use crate::config::HopAddress;

/// What a base's word of another one comes to.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Lesson {
    /// This base is known, and is so from here on.
    Known(usize, Candidate),
    /// It is new, in place of that base if one is named.
    New(Option<usize>, Candidate),
}

/// Forgets learned bases that the base `here` does not name; it does not name itself. True if there were some.
pub(super) fn forget(known: &mut [KnownBase], here: usize, named: &[FleetBase]) -> bool {
    let mut some = false;
    for (i, one) in known.iter_mut().enumerate() {
        let is = |base: &FleetBase| one.config.key.is_some_and(|key| *key.as_bytes() == base.key);
        if i != here && one.origin == Origin::Learned && !named.iter().any(is) {
            one.origin = Origin::Forgotten;
            some = true;
        }
    }
    some
}

/// What is to be made of a base that is told of. Nothing, if the configuration names its key, if it cannot be where
/// it is said to be, or if there are too many.
pub(super) fn lesson(
    known: &[KnownBase],
    base: &FleetBase,
    is_free: impl Fn(usize) -> bool,
) -> Option<Lesson> {
    let key = PublicKey::from_bytes(base.key);
    let at = base.hop.iter().find(|at| may_serve(at))?;
    let is_it = |one: &KnownBase| one.config.key == Some(key);
    let taken = known.iter().any(|other| {
        !is_it(other) && other.origin != Origin::Forgotten && other.name() == base.name.as_str()
    });
    let name = if taken { key.to_string() } else { base.name.as_str().to_owned() };
    let place = BaseAddress { host: at.ip().to_string(), port: at.port() };
    let place = HopAddress::Internet(place);
    let config = Candidate { name, place, key: Some(key), psk: None, interface: None };
    if let Some(i) = known.iter().position(is_it) {
        return (known[i].origin != Origin::File).then_some(Lesson::Known(i, config));
    }
    let is_free = |i: &usize| {
        known[*i].origin == Origin::Forgotten && known[*i].part.is_none() && is_free(*i)
    };
    let instead = (0..known.len()).find(is_free);
    let learned = known.iter().filter(|one| one.origin != Origin::File).count();
    (instead.is_some() || learned < FLEET_MAX).then_some(Lesson::New(instead, config))
}

/// Whether that can be where somebody else serves mobiles.
fn may_serve(at: &SocketAddr) -> bool {
    let ip = at.ip().to_canonical();
    at.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !ip.is_loopback()
}

#[cfg(test)]
mod tests {
    use lasthop_wire::mhp::HostName;

    use super::*;

    fn told(n: u8, name: &str, at: &str) -> FleetBase {
        let (name, hop) = (HostName::new(name).unwrap(), vec![at.parse().unwrap()]);
        FleetBase { key: [n; 32], name, hop }
    }

    fn of_file(n: u8, name: &str) -> KnownBase {
        let place = BaseAddress { host: "192.0.2.1".to_owned(), port: 4433 };
        let (place, key) = (HopAddress::Internet(place), Some(PublicKey::from_bytes([n; 32])));
        KnownBase::new(Candidate { name: name.to_owned(), place, key, psk: None, interface: None })
    }

    /// Takes in what the base `here` tells, as a mobile does.
    fn learn(known: &mut Vec<KnownBase>, here: usize, named: &[FleetBase]) {
        forget(known, here, named);
        for base in named {
            let (place, config) = match lesson(known, base, |i| i != here) {
                Some(Lesson::Known(i, config)) => (Some(i), config),
                Some(Lesson::New(instead, config)) => (instead, config),
                None => continue,
            };
            let one = KnownBase::learned(config);
            match place {
                Some(i) => known[i] = one,
                None => known.push(one),
            }
        }
    }

    fn names(known: &[KnownBase]) -> Vec<(&str, Origin)> {
        known.iter().map(|one| (one.name(), one.origin)).collect()
    }

    /// EMP-6: neither key nor place nor name of a base of the file can be taken by another.
    #[test]
    fn what_the_file_says_stays_whatever_is_told() {
        let mut known = vec![of_file(1, "b1"), of_file(2, "b2")];
        let before = known[1].config.clone();
        learn(&mut known, 0, &[told(2, "mine", "203.0.113.9:1"), told(3, "b2", "203.0.113.9:2")]);
        assert_eq!(known[1].config, before);
        let key = PublicKey::from_bytes([3; 32]).to_string();
        assert_eq!(known[2].name(), key, "a name stands for one base");
        learn(&mut known, 0, &[]);
        let all = names(&known);
        assert_eq!(all[..2], [("b1", Origin::File), ("b2", Origin::File)]);
        assert_eq!(all[2].1, Origin::Forgotten);
    }

    /// EMP-6: what is said replaces what was told before, and never grows beyond its bound.
    #[test]
    fn what_is_told_takes_the_place_of_what_was_and_is_bounded() {
        let mut known = vec![of_file(1, "b1")];
        for round in 0..4_u8 {
            let first = 2 + round * 60;
            let named: Vec<_> =
                (first..=first + 59).map(|n| told(n, &format!("b{n}"), "192.0.2.9:4433")).collect();
            learn(&mut known, 0, &named);
            assert!(known.len() <= 1 + FLEET_MAX);
            let learned = known.iter().filter(|one| one.origin == Origin::Learned).count();
            assert_eq!(learned, named.len());
        }
    }

    #[test]
    fn the_base_that_tells_is_not_forgotten_and_one_that_moved_is_found() {
        let mut known = vec![of_file(1, "b1")];
        let (b2, b3) = (told(2, "b2", "192.0.2.2:4433"), told(3, "b3", "192.0.2.3:4433"));
        learn(&mut known, 0, &[b2, b3]);
        learn(&mut known, 1, &[told(3, "b3", "192.0.2.33:4433")]);
        let all = [("b1", Origin::File), ("b2", Origin::Learned), ("b3", Origin::Learned)];
        assert_eq!(names(&known), all);
        let HopAddress::Internet(at) = &known[2].config.place else { panic!() };
        assert_eq!(at.host, "192.0.2.33");
    }

    #[test]
    fn nobody_serves_at_an_address_that_leads_back_here_or_to_many() {
        for at in [
            "127.0.0.1:4433",
            "[::1]:1",
            "[::ffff:127.0.0.1]:1",
            "0.0.0.0:1",
            "[::]:1",
            "224.0.0.1:1",
            "192.0.2.1:0",
        ] {
            assert_eq!(lesson(&[], &told(2, "b2", at), |_| true), None, "{at}");
        }
    }
}
