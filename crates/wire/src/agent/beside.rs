//! What two agents at the ends of a hop send each other beside the traffic: the payload of Ethernet
//! frames of [`ETHERTYPE`].
//!
//! Each begins with [`SUBTYPE`], for the type is a hop datagram's too, and goes on with the version and
//! the kind, four bits each. A hello goes on with the sender's epoch and that of
//! the peer from which it receives, zero if none. A message goes on with the bytes of a
//! [`Message`](super::Message). A numbered packet goes on with its number and its own EtherType, and
//! then the packet as it was; the addresses are those of the frame around it. All numbers are big
//! endian. What follows a hello or a message is skipped: it is Ethernet's padding, or a later
//! version's.
//!
//! Nothing here is authenticated. Whoever can send frames on the hop's link can feign a peer, stop
//! and start the numbering, acknowledge frames that were lost and name bytes that were not, so that
//! repairs are missing or needless; he could as well forge TCP's own acknowledgements there, or
//! answer ARP. He cannot reach connections' content, nor make an agent keep or send more than the
//! bounds of its tables, nor put anything but IPv4 and IPv6 into a numbered packet. From beyond the
//! link none of this can be done: no router forwards the EtherType.

use thiserror::Error;

use crate::mobile_tcp::ETHERTYPE_HOP;

/// The EtherType of agents: IEEE's second for local experiments. Several protocols may share such a
/// type, told apart by the subtype that follows it (IEEE 802, clause 9.2.4).
pub const ETHERTYPE: u16 = ETHERTYPE_HOP;

/// The first byte of a payload. A hop datagram's frames begin with its length, which never begins so
/// ([`HOP_LEN_END`](crate::mobile_tcp::HOP_LEN_END)).
pub const SUBTYPE: u8 = 0xff;

/// Bytes that a numbered packet is longer than the packet.
pub const NUMBERED_HEADER: usize = 8;

/// Bytes of a hello.
pub const HELLO: usize = 10;

/// Bytes before those of a message.
pub const MESSAGE_HEADER: usize = 2;

/// EtherTypes of packets that can be numbered: IPv4 and IPv6.
pub const CARRIED: [u16; 2] = [0x0800, 0x86dd];

const VERSION: u8 = 1;

const KIND_HELLO: u8 = 1;
const KIND_MESSAGE: u8 = 2;
const KIND_NUMBERED: u8 = 3;

/// Why bytes are nothing that an agent sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ParseError {
    /// The frame ends within this field.
    #[error("an agent's frame ends within its {0}")]
    Truncated(&'static str),
    /// It is no frame between agents.
    #[error("subtype {0:#04x} of EtherType {ETHERTYPE:#06x}; that of agents is {SUBTYPE:#04x}")]
    Subtype(u8),
    /// A version that is not known here.
    #[error("version {0} of agents' frames; version 1 is understood")]
    Version(u8),
    /// A kind that is not known here.
    #[error("an agent's frame of unknown kind {0}")]
    Kind(u8),
    /// No epoch is zero.
    #[error("a hello of epoch 0, which no agent has")]
    Epoch,
    /// A numbered packet is neither IPv4 nor IPv6.
    #[error("a numbered packet of EtherType {0:#06x}; IPv4 and IPv6 are carried")]
    EtherType(u16),
}

/// What an agent says of itself, again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Drawn at random when the agent starts, so that the other end notices; not zero.
    pub epoch: u32,
    /// The epoch of the peer from which it receives.
    pub heard: Option<u32>,
}

/// The payload of a frame of [`ETHERTYPE`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beside<'a> {
    /// An agent is there.
    Hello(Hello),
    /// The bytes of a [`Message`](super::Message), with what follows them.
    Message(&'a [u8]),
    /// A packet with a number for the link's own recovery (DDA-1).
    Numbered {
        /// The number.
        number: u32,
        /// What kind of packet it is: one of [`CARRIED`].
        ethertype: u16,
        /// The packet, with the padding that a short one may have.
        packet: &'a [u8],
    },
}

impl Hello {
    /// The payload of its frame.
    pub fn emit(&self) -> [u8; HELLO] {
        let mut out = [SUBTYPE, of_kind(KIND_HELLO), 0, 0, 0, 0, 0, 0, 0, 0];
        out[2..6].copy_from_slice(&self.epoch.to_be_bytes());
        out[6..].copy_from_slice(&self.heard.unwrap_or(0).to_be_bytes());
        out
    }
}

/// The second byte.
const fn of_kind(kind: u8) -> u8 {
    VERSION << 4 | kind
}

/// What comes before the bytes of a message.
pub const fn message_header() -> [u8; MESSAGE_HEADER] {
    [SUBTYPE, of_kind(KIND_MESSAGE)]
}

/// What comes before a numbered packet.
pub fn numbered_header(number: u32, ethertype: u16) -> [u8; NUMBERED_HEADER] {
    let mut out = [SUBTYPE, of_kind(KIND_NUMBERED), 0, 0, 0, 0, 0, 0];
    out[2..6].copy_from_slice(&number.to_be_bytes());
    out[6..].copy_from_slice(&ethertype.to_be_bytes());
    out
}

impl<'a> Beside<'a> {
    /// Reads the payload of a frame of [`ETHERTYPE`].
    ///
    /// # Errors
    ///
    /// Says what is cut short, unknown or not to be carried.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (&[subtype], bytes) = split(bytes, "subtype")?;
        if subtype != SUBTYPE {
            return Err(ParseError::Subtype(subtype));
        }
        let (&[kind], bytes) = split(bytes, "kind")?;
        let (version, kind) = (kind >> 4, kind & 0x0f);
        if version != VERSION {
            return Err(ParseError::Version(version));
        }
        match kind {
            KIND_HELLO => parse_hello(bytes).map(Self::Hello),
            KIND_MESSAGE => Ok(Self::Message(bytes)),
            KIND_NUMBERED => {
                let (number, bytes) = split(bytes, "number")?;
                let (ethertype, packet) = split(bytes, "EtherType")?;
                let ethertype = u16::from_be_bytes(*ethertype);
                if !CARRIED.contains(&ethertype) {
                    return Err(ParseError::EtherType(ethertype));
                }
                Ok(Self::Numbered { number: u32::from_be_bytes(*number), ethertype, packet })
            }
            _ => Err(ParseError::Kind(kind)),
        }
    }
}

fn parse_hello(bytes: &[u8]) -> Result<Hello, ParseError> {
    let (epoch, bytes) = split(bytes, "epoch")?;
    let (heard, _) = split(bytes, "peer's epoch")?;
    match (u32::from_be_bytes(*epoch), u32::from_be_bytes(*heard)) {
        (0, _) => Err(ParseError::Epoch),
        (epoch, 0) => Ok(Hello { epoch, heard: None }),
        (epoch, heard) => Ok(Hello { epoch, heard: Some(heard) }),
    }
}

fn split<'a, const N: usize>(
    bytes: &'a [u8],
    field: &'static str,
) -> Result<(&'a [u8; N], &'a [u8]), ParseError> {
    bytes.split_first_chunk().ok_or(ParseError::Truncated(field))
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::mobile_tcp::HOP_LEN_END;

    #[test]
    fn frames_are_laid_out_as_described() {
        let hello = Hello { epoch: 0x0102_0304, heard: Some(5) };
        assert_eq!(hello.emit(), [0xff, 0x11, 1, 2, 3, 4, 0, 0, 0, 5]);
        assert_eq!(message_header(), [0xff, 0x12]);
        assert_eq!(numbered_header(0x0a0b_0c0d, 0x0800), [0xff, 0x13, 10, 11, 12, 13, 8, 0]);
    }

    #[test]
    fn every_cut_names_the_field_that_it_cuts() {
        let hello = Hello { epoch: 1, heard: None }.emit();
        for cut in 0..hello.len() {
            let error = Beside::parse(&hello[..cut]).unwrap_err();
            assert!(matches!(error, ParseError::Truncated(_)), "{cut}: {error}");
        }
        assert_eq!(
            Beside::parse(&hello[..9]).unwrap_err().to_string(),
            "an agent's frame ends within its peer's epoch"
        );
        let numbered = numbered_header(1, 0x86dd);
        assert_eq!(Beside::parse(&numbered[..7]), Err(ParseError::Truncated("EtherType")));
    }

    #[test]
    fn what_is_unknown_is_refused() {
        assert_eq!(Beside::parse(&[0xff, 0x21]), Err(ParseError::Version(2)));
        assert_eq!(Beside::parse(&[0xff, 0x14]), Err(ParseError::Kind(4)));
        assert_eq!(Beside::parse(&[0xff, 0x11, 0, 0, 0, 0, 0, 0, 0, 1]), Err(ParseError::Epoch));
    }

    #[test]
    fn no_frame_of_an_agent_is_one_of_a_hop() {
        let longest = HOP_LEN_END - 1;
        assert_eq!(Beside::parse(&longest.to_be_bytes()), Err(ParseError::Subtype(0xfe)));
        let hello = Hello { epoch: 1, heard: None }.emit();
        for header in [hello[..2].to_vec(), message_header().to_vec()] {
            assert!(u16::from_be_bytes([header[0], header[1]]) >= HOP_LEN_END);
        }
        assert!(numbered_header(1, 0x0800)[0] == SUBTYPE);
    }

    /// An agent takes no frame of its own kind, nor ARP, out of another: what a bridge filters
    /// cannot pass in disguise.
    #[test]
    fn only_ip_is_carried() {
        for ethertype in [ETHERTYPE, 0x0806, 0x8100, 46] {
            let bytes = numbered_header(1, ethertype);
            assert_eq!(Beside::parse(&bytes), Err(ParseError::EtherType(ethertype)));
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(epoch in 1u32.., heard: Option<u32>, after: Vec<u8>) {
            let hello = Hello { epoch, heard: heard.filter(|&heard| heard != 0) };
            let bytes = [&hello.emit()[..], &after].concat();
            prop_assert_eq!(Beside::parse(&bytes), Ok(Beside::Hello(hello)));
            let bytes = [&message_header()[..], &after].concat();
            prop_assert_eq!(Beside::parse(&bytes), Ok(Beside::Message(&after)));
            for ethertype in CARRIED {
                let bytes = [&numbered_header(epoch, ethertype)[..], &after].concat();
                let numbered = Beside::Numbered { number: epoch, ethertype, packet: &after };
                prop_assert_eq!(Beside::parse(&bytes), Ok(numbered));
            }
        }

        #[test]
        fn arbitrary_bytes_make_nothing_panic(mut bytes: Vec<u8>, kind in 0..5u8) {
            let _ = Beside::parse(&bytes);
            bytes.splice(0..0, [SUBTYPE, of_kind(kind)]);
            let _ = Beside::parse(&bytes);
        }
    }
}
