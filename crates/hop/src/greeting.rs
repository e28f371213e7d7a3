//! What the two ends of a bare hop say to each other about themselves: data packets with
//! connection 0 and RST, which name no connection to reset.

use lasthop_wire::mobile_tcp::{Cid, Code, DATA_HEADER, DataHeader, Packet};

/// A message of one end about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkMessage {
    /// The mobile begins, or asks whether it is known: RST, PSH and 16 bytes.
    Greeting {
        /// Drawn at random when the mobile began.
        life: u64,
        /// The first stream of the mobile's that may come.
        first_stream: u64,
    },
    /// The base answers: RST, ACK and 24 bytes.
    Answer {
        /// The greeting's.
        life: u64,
        /// Drawn at random when the base began with this mobile.
        instance: u64,
        /// The first stream of the base's that may come.
        first_stream: u64,
    },
    /// The base does not know who is speaking: RST, UNKNOWN, no data.
    Unknown,
}

/// Whether a datagram is how a mobile begins on a bare hop.
pub(crate) fn is_greeting(datagram: &[u8]) -> bool {
    LinkMessage::is_one(datagram)
        && matches!(LinkMessage::decode(datagram), Some(LinkMessage::Greeting { .. }))
}

const GREETING: Code = Code::RST.with(Code::PSH);
const ANSWER: Code = Code::RST.with(Code::ACK);
const UNKNOWN: Code = Code::RST.with(Code::UNKNOWN);

fn number(data: &[u8], at: usize) -> Option<u64> {
    data.get(at..)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

impl LinkMessage {
    /// Whether a packet is a word rather than Mobile TCP's, by its first bytes alone: costs next to
    /// nothing on packets that carry data.
    pub(crate) fn is_one(packet: &[u8]) -> bool {
        let Some(&[code_high, code_low, 0, 0]) = packet.first_chunk() else { return false };
        let code = Code::from_bits(u16::from_be_bytes([code_high, code_low]));
        code_high & 0xf0 == 0 && [GREETING, ANSWER, UNKNOWN].contains(&code)
    }

    /// Reads a word; `None` if the packet is none, or damaged. Data behind what is known is
    /// ignored: a later version appends.
    pub(crate) fn decode(packet: &[u8]) -> Option<Self> {
        let Packet::Data(header, data) = Packet::decode(packet).ok()? else { return None };
        if !header.cid.is_none() {
            return None;
        }
        match header.code {
            GREETING => {
                Some(Self::Greeting { life: number(data, 0)?, first_stream: number(data, 8)? })
            }
            ANSWER => Some(Self::Answer {
                life: number(data, 0)?,
                instance: number(data, 8)?,
                first_stream: number(data, 16)?,
            }),
            UNKNOWN => Some(Self::Unknown),
            _ => None,
        }
    }

    /// Writes the word at the start of `out`, which must have room for it; how many bytes it took.
    pub(crate) fn emit(self, out: &mut [u8]) -> Option<usize> {
        let (code, numbers) = match self {
            Self::Greeting { life, first_stream } => (GREETING, [life, first_stream, 0]),
            Self::Answer { life, instance, first_stream } => {
                (ANSWER, [life, instance, first_stream])
            }
            Self::Unknown => (UNKNOWN, [0; 3]),
        };
        let len = match self {
            Self::Greeting { .. } => 16,
            Self::Answer { .. } => 24,
            Self::Unknown => 0,
        };
        let room = out.get_mut(DATA_HEADER..DATA_HEADER + len)?;
        for (bytes, n) in room.chunks_exact_mut(8).zip(numbers) {
            bytes.copy_from_slice(&n.to_be_bytes());
        }
        let header = DataHeader { code, cid: Cid::NONE, ..DataHeader::default() };
        header.emit(len, out).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The longest word, in bytes.
    const WORD_MAX: usize = DATA_HEADER + 24;

    fn message() -> impl Strategy<Value = LinkMessage> {
        prop_oneof![
            any::<(u64, u64)>()
                .prop_map(|(life, first_stream)| LinkMessage::Greeting { life, first_stream }),
            any::<(u64, u64, u64)>().prop_map(|(life, instance, first_stream)| {
                LinkMessage::Answer { life, instance, first_stream }
            }),
            Just(LinkMessage::Unknown),
        ]
    }

    proptest! {
        #[test]
        fn words_survive_the_hop_padded_or_not(message in message(), padding in 0..50_usize) {
            let mut out = [0; WORD_MAX + 50];
            let len = message.emit(&mut out).unwrap();
            prop_assert!(len <= WORD_MAX && LinkMessage::is_one(&out[..len]));
            prop_assert_eq!(LinkMessage::decode(&out[..len + padding]), Some(message));
        }

        #[test]
        fn damaged_and_cut_words_are_none(message in message(), at in any::<usize>(), bit in 0..8) {
            let mut out = [0; WORD_MAX];
            let len = message.emit(&mut out).unwrap();
            for cut in 0..len {
                prop_assert_eq!(LinkMessage::decode(&out[..cut]), None);
            }
            out[at % len] ^= 1_u8 << bit;
            prop_assert_eq!(LinkMessage::decode(&out[..len]), None);
        }

        #[test]
        fn only_words_are_read_as_words(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if LinkMessage::decode(&bytes).is_some() {
                prop_assert!(LinkMessage::is_one(&bytes));
            }
        }
    }
}
