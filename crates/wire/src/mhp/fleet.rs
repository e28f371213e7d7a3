//! Which bases there are, and how the one that says so is: a mobile asks once for each association, and its
//! base tells, then and whenever that changes.
//!
//! Both are datagrams in the [envelope](Envelope) of those of handoffs, which sessions carry; whoever
//! is too old to know them skips them. Session and attempt are zero.

use alloc::vec::Vec;
use core::net::SocketAddr;

use super::field::{Field, Reader, flag, put};
use super::handoff::{COMMON_LEN, Envelope};
use super::{HEADER_LEN, HostName, MhpError, VERSION};

const TYPE_ASK: u8 = 54;
const TYPE_TOLD: u8 = 55;

const FLAG_STAYS: u8 = 1;
const FLAG_HERE: u8 = 2;
const FLAG_DRAINING: u8 = 1;
const FLAG_BASES: u8 = 2;

/// Other bases that are told of at most.
pub const FLEET_MAX: usize = 64;
/// Addresses of one of them at most.
pub const HOPS_MAX: usize = 4;
/// The longest name of one of them, in bytes.
pub const FLEET_NAME_MAX: usize = 64;

/// Another base of the fleet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FleetBase {
    /// Its public key.
    pub key: [u8; 32],
    /// What people call it; of at most [`FLEET_NAME_MAX`] bytes.
    pub name: HostName,
    /// Where it serves mobiles: at least one, and at most [`HOPS_MAX`].
    pub hop: Vec<SocketAddr>,
}

/// What a base says of itself and of the others.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct FleetNews {
    /// It is being emptied: its mobiles should go elsewhere.
    pub draining: bool,
    /// How much of what it may have it has, of 255.
    pub load: u8,
    /// If it is draining: its mobiles should begin to leave within so many milliseconds, each at a random
    /// moment.
    pub spread: u16,
    /// The other bases, at most [`FLEET_MAX`], each with a key of its own; none if nothing is said of them.
    pub bases: Option<Vec<FleetBase>>,
}

/// A message about the bases of a fleet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FleetMessage {
    /// Mobile to base: which bases are there, and how are you? Tell me again when that changes.
    Ask {
        /// The mobile is with this base, or on its way there; else it only looks.
        here: bool,
        /// It knows no other base that it could go to, and stays whatever this one says.
        stays: bool,
    },
    /// Base to mobile.
    Told(FleetNews),
}

impl Field<'_> for FleetBase {
    fn put(&self, out: &mut Vec<u8>) {
        let (name, hop) = (self.name.as_str().as_bytes(), &self.hop);
        put!(out, self.key.as_slice(), name.len() as u8, name, hop.len() as u8);
        hop.iter().for_each(|hop| hop.put(out));
    }

    fn take(body: &mut Reader<'_>, _: &'static str) -> Result<Self, MhpError> {
        let key = body.take("base's key")?;
        let len = usize::from(body.get::<u8>("name length")?);
        if len > FLEET_NAME_MAX {
            return Err(MhpError::TooLong(len));
        }
        let name = HostName::from_bytes(body.take_slice(len, "base's name")?)?;
        let count = usize::from(body.get::<u8>("count of addresses")?);
        if count == 0 {
            return Err(MhpError::Truncated("base's address"));
        }
        if count > HOPS_MAX {
            return Err(MhpError::TooLong(count));
        }
        let hop = (0..count).map(|_| body.get("base's address")).collect::<Result<_, _>>()?;
        Ok(Self { key, name, hop })
    }
}

impl FleetBase {
    /// Whether it is within the bounds of what is sent.
    fn fits(&self) -> bool {
        self.name.as_str().len() <= FLEET_NAME_MAX && (1..=HOPS_MAX).contains(&self.hop.len())
    }
}

impl FleetMessage {
    /// Adds the datagram to `out`: at most 12 KiB. Bases beyond the bounds are left out.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut body = Vec::from([0; COMMON_LEN]);
        let kind = match self {
            Self::Ask { here, stays } => {
                (flag(*stays, FLAG_STAYS) | flag(*here, FLAG_HERE)).put(&mut body);
                TYPE_ASK
            }
            Self::Told(FleetNews { draining, load, spread, bases }) => {
                let flags = flag(*draining, FLAG_DRAINING) | flag(bases.is_some(), FLAG_BASES);
                put!(&mut body, flags, *load, *spread);
                if let Some(bases) = bases {
                    let fit = || bases.iter().filter(|base| base.fits()).take(FLEET_MAX);
                    (fit().count() as u8).put(&mut body);
                    fit().for_each(|base| base.put(&mut body));
                }
                TYPE_TOLD
            }
        };
        put!(out, VERSION, kind, body.len() as u16, body.as_slice());
    }

    /// Reads a datagram; `None` if it says something else, or cannot be right.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let envelope = Envelope::read(bytes)?;
        let mut body = Reader(bytes.get(HEADER_LEN + COMMON_LEN..)?);
        match (envelope.version, envelope.kind) {
            (VERSION, TYPE_ASK) => {
                let flags: u8 = body.get("flags").ok()?;
                Some(Self::Ask { here: flags & FLAG_HERE != 0, stays: flags & FLAG_STAYS != 0 })
            }
            (VERSION, TYPE_TOLD) => FleetNews::decode(&mut body).ok().map(Self::Told),
            _ => None,
        }
    }
}

impl FleetNews {
    fn decode(body: &mut Reader<'_>) -> Result<Self, MhpError> {
        let (flags, load): (u8, u8) = body.get("flags")?;
        let spread = body.get("spread")?;
        let told = flags & FLAG_BASES != 0;
        let bases = told.then(|| Self::decode_bases(body)).transpose()?;
        Ok(Self { draining: flags & FLAG_DRAINING != 0, load, spread, bases })
    }

    fn decode_bases(body: &mut Reader<'_>) -> Result<Vec<FleetBase>, MhpError> {
        let count: u8 = body.get("count of bases")?;
        if usize::from(count) > FLEET_MAX {
            return Err(MhpError::TooLong(usize::from(count)));
        }
        let mut bases: Vec<FleetBase> = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let base: FleetBase = body.get("base")?;
            // Two places for one key: nobody knows which is meant.
            if bases.iter().any(|other| other.key == base.key) {
                return Err(MhpError::Address(0));
            }
            bases.push(base);
        }
        Ok(bases)
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;
    use crate::mhp::handoff::{DATAGRAM_TYPES, Datagram};

    fn encoded(message: &FleetMessage) -> Vec<u8> {
        let mut out = Vec::new();
        message.encode(&mut out);
        out
    }

    fn base(n: u8, name: &str) -> FleetBase {
        let hop = vec!["192.0.2.7:4433".parse().expect("address")];
        FleetBase { key: [n; 32], name: HostName::new(name).expect("fit"), hop }
    }

    fn news() -> impl Strategy<Value = FleetNews> {
        let hop = prop::collection::vec((any::<core::net::IpAddr>(), any::<u16>()), 1..=HOPS_MAX);
        let base = (any::<[u8; 31]>(), "[a-z0-9.-]{1,64}", hop);
        let bases = prop::option::of(prop::collection::vec(base, 0..=FLEET_MAX));
        (any::<bool>(), any::<u8>(), any::<u16>(), bases).prop_map(
            |(draining, load, spread, bases)| {
                let base =
                    |(n, (rest, name, hop)): (usize, ([u8; 31], String, Vec<_>))| FleetBase {
                        key: core::array::from_fn(|i| if i == 0 { n as u8 } else { rest[i - 1] }),
                        name: HostName::new(&name).expect("fit"),
                        hop: hop.into_iter().map(SocketAddr::from).collect(),
                    };
                let bases = bases.map(|all| all.into_iter().enumerate().map(base).collect());
                FleetNews { draining, load, spread, bases }
            },
        )
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let bases = Some(vec![base(9, "b2")]);
        let news = FleetNews { draining: true, load: 7, spread: 0x102, bases };
        let bytes = encoded(&FleetMessage::Told(news));
        assert_eq!(bytes[..4], [1, 55, 0, 14 + 5 + 32 + 3 + 1 + 7]);
        assert_eq!(bytes[18..23], [3, 7, 1, 2, 1]);
        assert_eq!(bytes[23..55], [9; 32]);
        assert_eq!(bytes[55..], [2, b'b', b'2', 1, 1, 0x11, 0x51, 192, 0, 2, 7]);
        let brief = FleetNews { load: 7, ..FleetNews::default() };
        assert_eq!(encoded(&FleetMessage::Told(brief))[18..], [0, 7, 0, 0]);
        assert_eq!(encoded(&FleetMessage::Ask { here: true, stays: true })[18..], [3]);
    }

    #[test]
    fn what_cannot_be_right_says_nothing() {
        let told = |bases| {
            let bases = Some(bases);
            encoded(&FleetMessage::Told(FleetNews { bases, ..FleetNews::default() }))
        };
        let twice = told(vec![base(1, "b1"), base(1, "b2")]);
        assert_eq!(FleetMessage::decode(&twice), None, "one key, two places");
        let mut many = told(vec![base(1, "b1")]);
        many[22] = FLEET_MAX as u8 + 1;
        assert_eq!(FleetMessage::decode(&many), None);
        let mut nowhere = told(vec![base(1, "b1")]);
        nowhere[58] = 0;
        assert_eq!(FleetMessage::decode(&nowhere), None);
        let mut loud = told(vec![base(1, "b1")]);
        loud[56] = b'\n';
        assert_eq!(FleetMessage::decode(&loud), None);
    }

    #[test]
    fn what_is_beyond_the_bounds_is_left_out() {
        let long = base(200, &"x".repeat(FLEET_NAME_MAX + 1));
        let nowhere = FleetBase { hop: Vec::new(), ..base(201, "x") };
        let good = (0..FLEET_MAX as u8 + 1).map(|n| base(n, &format!("b{n}")));
        let bases = Some([long, nowhere].into_iter().chain(good).collect());
        let sent = FleetMessage::Told(FleetNews { bases, ..FleetNews::default() });
        let Some(FleetMessage::Told(read)) = FleetMessage::decode(&encoded(&sent)) else {
            panic!()
        };
        let read = read.bases.unwrap_or_default();
        assert_eq!(read.len(), FLEET_MAX);
        assert!(read.iter().all(|base| base.key[0] < FLEET_MAX as u8));
    }

    /// EMP-4: older peers skip it.
    #[test]
    fn a_peer_that_is_too_old_skips_it() {
        for said in [
            FleetMessage::Ask { here: true, stays: false },
            FleetMessage::Told(FleetNews::default()),
        ] {
            let bytes = encoded(&said);
            assert!(DATAGRAM_TYPES.contains(&bytes[1]), "a session carries it");
            assert!(Datagram::decode(&bytes).is_err(), "no machine of handoffs knows it");
            assert!(!Envelope::read(&bytes).unwrap().critical, "and none refuses it");
        }
    }

    proptest! {
        /// EMP-4: what is sent is bounded, and read whole or not at all.
        #[test]
        fn what_is_encoded_is_decoded_and_what_is_cut_short_is_not(
            news in news(),
            cut in any::<prop::sample::Index>(),
        ) {
            let said = FleetMessage::Told(news);
            let mut bytes = encoded(&said);
            prop_assert!(bytes.len() <= 12 * 1024);
            prop_assert_eq!(FleetMessage::decode(&bytes[..cut.index(bytes.len())]), None);
            bytes.push(7);
            prop_assert_eq!(FleetMessage::decode(&bytes), Some(said), "a newer peer's");
        }

        #[test]
        fn garbage_never_panics_and_says_no_more_than_the_bounds(
            kind in prop_oneof![Just(TYPE_ASK), Just(TYPE_TOLD)],
            rest in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            let mut bytes = vec![VERSION, kind];
            bytes.extend((rest.len() as u16).to_be_bytes());
            bytes.extend([0; COMMON_LEN]);
            bytes.extend(rest);
            if let Some(FleetMessage::Told(news)) = FleetMessage::decode(&bytes) {
                prop_assert!(news.bases.is_none_or(|bases| bases.len() <= FLEET_MAX));
            }
        }
    }
}
