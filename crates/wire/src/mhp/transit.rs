//! How a mobile has a base pass datagrams on to another one, and the base's answer.
//!
//! Both are datagrams in the [envelope](Envelope) of those of handoffs, which sessions carry; whoever
//! is too old to know them skips them. Session and attempt are zero.

use alloc::vec::Vec;

use super::field::Reader;
use super::handoff::{COMMON_LEN, Envelope};
use super::{HEADER_LEN, VERSION};
use crate::datagram::KEY_LEN;

const TYPE_ASK: u8 = 50;
const TYPE_GRANTED: u8 = 51;
const TYPE_REFUSED: u8 = 52;

/// By what a base recognises datagrams of a mobile that it is to pass on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransitGrant {
    /// The name of the mobile's association with it.
    pub receiver: u32,
    /// By which the mobile proves where it is.
    pub token: [u8; 16],
}

/// A message about datagrams that are to be passed on to the base with this key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransitMessage {
    /// Mobile to base: pass mine on there, and nowhere else any more.
    Ask([u8; KEY_LEN]),
    /// Base to mobile: I do, under this name.
    Granted([u8; KEY_LEN], TransitGrant),
    /// Base to mobile: I do not.
    Refused([u8; KEY_LEN]),
}

impl TransitMessage {
    /// Adds the datagram to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (kind, base, grant) = match self {
            Self::Ask(base) => (TYPE_ASK, base, None),
            Self::Granted(base, grant) => (TYPE_GRANTED, base, Some(grant)),
            Self::Refused(base) => (TYPE_REFUSED, base, None),
        };
        let mut body = Vec::from([0; COMMON_LEN]);
        body.extend_from_slice(base);
        if let Some(TransitGrant { receiver, token }) = grant {
            body.extend_from_slice(&receiver.to_be_bytes());
            body.extend_from_slice(token);
        }
        out.extend_from_slice(&[VERSION, kind, 0, body.len() as u8]);
        out.extend_from_slice(&body);
    }

    /// Reads a datagram; `None` if it says something else, or is cut short.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let envelope = Envelope::read(bytes)?;
        if envelope.version != VERSION || !(TYPE_ASK..=TYPE_REFUSED).contains(&envelope.kind) {
            return None;
        }
        let mut body = Reader(bytes.get(HEADER_LEN + COMMON_LEN..)?);
        let base = body.take("base").ok()?;
        Some(match envelope.kind {
            TYPE_ASK => Self::Ask(base),
            TYPE_REFUSED => Self::Refused(base),
            _ => {
                let receiver = u32::from_be_bytes(body.take("receiver").ok()?);
                Self::Granted(base, TransitGrant { receiver, token: body.take("token").ok()? })
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_as_they_went_in_and_never_cut_short() {
        let grant = TransitGrant { receiver: 0x0102_0304, token: [7; 16] };
        let base = [9; KEY_LEN];
        let all = [
            TransitMessage::Ask(base),
            TransitMessage::Granted(base, grant),
            TransitMessage::Refused(base),
        ];
        for said in all {
            let mut bytes = Vec::new();
            said.encode(&mut bytes);
            assert_eq!(TransitMessage::decode(&bytes), Some(said));
            for n in 0..bytes.len() {
                assert_eq!(TransitMessage::decode(&bytes[..n]), None);
            }
            bytes.push(1);
            assert_eq!(TransitMessage::decode(&bytes), Some(said), "more may follow");
            bytes[1] = 49;
            assert_eq!(TransitMessage::decode(&bytes), None);
        }
    }
}
