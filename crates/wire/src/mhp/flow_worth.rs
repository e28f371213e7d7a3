//! The record by which a mobile tells its base what packets of a flow are worth, in the hop's datagram lane beside IP packets
//! and [records of UDP sockets](super::udp_relay).
//!
//! Type 4, and behind it the protocol in one byte, the mobile's address and the fixed host's as in
//! [`Open`](super::Message::Open), the class in one byte and the priority as a [`varint`]. Behind these a newer
//! peer may add others, which are skipped. A class that a base does not know is none.

use alloc::vec::Vec;
use core::net::SocketAddr;

use super::MhpError;
use super::field::{Field, Reader, put};
use crate::varint;

const TYPE: u8 = 4;

/// The two ends of a flow of packets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FlowEnds {
    /// The transport (IANA's protocol numbers).
    pub protocol: u8,
    /// At the mobile.
    pub mobile: SocketAddr,
    /// The fixed host's.
    pub fixed: SocketAddr,
}

/// What a flow is worth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowWorth {
    /// Which flow.
    pub ends: FlowEnds,
    /// The number of its class; 0 where nothing is said of it.
    pub class: u8,
    /// Relative to others'; 1 where nothing is said of it.
    pub priority: u32,
    /// The number of the policy by which paths carry it, as in SRP's frames; 0 where nothing is said of it.
    pub policy: u32,
}

impl FlowWorth {
    /// Whether bytes in the lane are such a record rather than something else.
    pub fn is_meant(bytes: &[u8]) -> bool {
        bytes.first() == Some(&TYPE)
    }

    /// Appends the record to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let FlowEnds { protocol, mobile, fixed } = self.ends;
        put!(out, TYPE, protocol, mobile, fixed, self.class);
        varint::push(out, self.priority.into());
        varint::push(out, self.policy.into());
    }

    /// Reads a record, which is all of `bytes`.
    ///
    /// # Errors
    ///
    /// Says what is wrong with it: the record is to be dropped.
    pub fn decode(bytes: &[u8]) -> Result<Self, MhpError> {
        let mut body = Reader(bytes);
        match body.get("type")? {
            TYPE => {}
            kind => return Err(MhpError::Type(kind)),
        }
        let ends = FlowEnds {
            protocol: body.get("protocol")?,
            mobile: body.get("address")?,
            fixed: body.get("address")?,
        };
        let class = body.get("class")?;
        let priority = u32::try_from(body.take_varint("priority")?).unwrap_or(u32::MAX);
        // An older peer says nothing of it.
        let policy = body.take_varint("policy").ok().and_then(|n| u32::try_from(n).ok());
        let policy = policy.unwrap_or(0);
        Ok(Self { ends, class, priority, policy })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_on_the_wire_as_it_is_described() {
        let ends = FlowEnds {
            protocol: 17,
            mobile: "10.9.0.7:4500".parse().expect("address"),
            fixed: "[2001:db8::7]:53".parse().expect("address"),
        };
        let worth = FlowWorth { ends, class: 2, priority: 300, policy: 3 };
        let mut out = Vec::new();
        worth.encode(&mut out);
        assert_eq!(out[..9], *b"\x04\x11\x01\x11\x94\x0a\x09\0\x07");
        assert_eq!(out[out.len() - 4..], *b"\x02\x41\x2c\x03");
        let older = FlowWorth { policy: 0, ..worth };
        assert_eq!(FlowWorth::decode(&out[..out.len() - 1]), Ok(older));
        assert!(FlowWorth::is_meant(&out) && !FlowWorth::is_meant(&[0x45]));
        assert_eq!(FlowWorth::decode(&out), Ok(worth));
        out.push(9);
        assert_eq!(FlowWorth::decode(&out), Ok(worth), "a newer peer's");
        for length in 0..out.len() - 2 {
            assert!(FlowWorth::decode(&out[..length]).is_err(), "{length}");
        }
        assert_eq!(FlowWorth::decode(&[1, 2, 3]), Err(MhpError::Type(1)));
    }
}
