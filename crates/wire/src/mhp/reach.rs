//! Which families a base reaches, and so what a mobile intercepts: a mobile asks once for each
//! association, and its base tells, then and whenever that changes.
//!
//! Both are datagrams in the [envelope](Envelope) of those of handoffs, which sessions carry; whoever
//! is too old to know them skips them. Session and attempt are zero.

use alloc::vec::Vec;

use super::field::flag;
use super::handoff::{COMMON_LEN, Envelope};
use super::{HEADER_LEN, VERSION};

const TYPE_ASK: u8 = 48;
const TYPE_TOLD: u8 = 49;

const FLAG_IPV4: u8 = 1;
const FLAG_IPV6: u8 = 2;

/// Families of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Families {
    /// IPv4.
    pub ipv4: bool,
    /// IPv6.
    pub ipv6: bool,
}

impl Families {
    /// Both of them.
    pub const ALL: Self = Self { ipv4: true, ipv6: true };

    /// Whether a family is among them.
    pub fn has(self, ipv6: bool) -> bool {
        if ipv6 { self.ipv6 } else { self.ipv4 }
    }
}

/// A base's message of the families that it reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Mobile to base: which are they? Tell me again when they change.
    Ask,
    /// Base to mobile: these.
    Told(Families),
}

impl Reach {
    /// Adds the datagram to `out`.
    pub fn encode(self, out: &mut Vec<u8>) {
        let (kind, flags) = match self {
            Self::Ask => (TYPE_ASK, None),
            Self::Told(Families { ipv4, ipv6 }) => {
                (TYPE_TOLD, Some(flag(ipv4, FLAG_IPV4) | flag(ipv6, FLAG_IPV6)))
            }
        };
        let len = COMMON_LEN + usize::from(flags.is_some());
        out.extend_from_slice(&[VERSION, kind, 0, len as u8]);
        out.extend_from_slice(&[0; COMMON_LEN]);
        out.extend(flags);
    }

    /// Reads a datagram; `None` if it says something else, or is cut short.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let envelope = Envelope::read(bytes)?;
        match (envelope.version, envelope.kind) {
            (VERSION, TYPE_ASK) => Some(Self::Ask),
            (VERSION, TYPE_TOLD) => {
                let flags = *bytes.get(HEADER_LEN + COMMON_LEN)?;
                Some(Self::Told(Families {
                    ipv4: flags & FLAG_IPV4 != 0,
                    ipv6: flags & FLAG_IPV6 != 0,
                }))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mhp::handoff::{DATAGRAM_TYPES, Datagram};

    fn encoded(said: Reach) -> Vec<u8> {
        let mut out = Vec::new();
        said.encode(&mut out);
        out
    }

    const ALL: [Reach; 5] = [
        Reach::Ask,
        Reach::Told(Families { ipv4: false, ipv6: false }),
        Reach::Told(Families { ipv4: true, ipv6: false }),
        Reach::Told(Families { ipv4: false, ipv6: true }),
        Reach::Told(Families::ALL),
    ];

    #[test]
    fn what_is_said_is_read_also_where_more_follows() {
        for said in ALL {
            let mut bytes = encoded(said);
            assert_eq!(Reach::decode(&bytes), Some(said));
            assert_eq!(bytes.len(), HEADER_LEN + usize::from(bytes[3]));
            bytes.push(7);
            assert_eq!(Reach::decode(&bytes), Some(said));
        }
    }

    #[test]
    fn what_is_cut_short_says_nothing() {
        for said in ALL {
            let bytes = encoded(said);
            for n in 0..bytes.len() {
                assert_eq!(Reach::decode(&bytes[..n]), None);
            }
        }
    }

    #[test]
    fn a_peer_that_is_too_old_skips_it() {
        for said in ALL {
            let bytes = encoded(said);
            assert!(DATAGRAM_TYPES.contains(&bytes[1]), "a session carries it");
            assert!(Datagram::decode(&bytes).is_err(), "no machine of handoffs knows it");
            assert!(!Envelope::read(&bytes).unwrap().critical, "and none refuses it");
        }
    }
}
