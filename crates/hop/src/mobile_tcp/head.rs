//! The session's first messages, carried by control packets.
//!
//! The session knows streams only: it opens one and writes one whole message, and the other side's
//! first bytes are the answer. Here the message that the paper's control packet can say becomes its
//! addresses (MOB-6), and comes out of it again, byte for byte; any other travels whole in a packet
//! of version 1.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use lasthop_wire::mhp::{self, Decoded, Message, Opening, ResetReason, Target};
use lasthop_wire::mobile_tcp::{CONTROL_HEADER, Control, Extensions};

use crate::transport::Role;

/// Bytes of a packet of version 1 around its message.
const AROUND: usize = CONTROL_HEADER + 8;
/// Bytes that an answer may have to travel with the SYN that answers: an address fits.
pub(super) const ANSWER_MAX: usize = 32;

/// A stream's first bytes, as a control packet carries them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Head {
    /// They are what these addresses say, in the paper's packet.
    Addresses {
        /// Where the connection goes.
        destination: SocketAddrV4,
        /// Where it comes from.
        source: SocketAddrV4,
    },
    /// They are this message.
    Message(Vec<u8>),
    /// They follow as data.
    Nothing,
}

/// The meaning of an answering stream's first bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum AnswerHead {
    /// The connection stands; so many bytes are in the answer itself.
    Stands(Head, usize),
    /// It does not, with the session's code.
    Refused(u64),
}

/// What the first bytes of a stream opened at `role` are, and how many of them the opening says
/// itself; `None` while they may become a message.
pub(super) fn read_opening(
    bytes: &[u8],
    role: Role,
    stream: u64,
    room: usize,
) -> Option<(Head, usize)> {
    let (message, len) = match mhp::decode(bytes) {
        Ok(Decoded::Incomplete { .. }) => return None,
        Ok(Decoded::Complete { message, len }) => (message, len),
        Err(_) => return Some((Head::Nothing, 0)),
    };
    let written = &bytes[..len];
    let nowhere = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, stream as u16);
    let addresses = match (role, message) {
        (
            Role::Mobile,
            Message::Open {
                opening: Opening::Faithful,
                target: Target::Addr(SocketAddr::V4(destination)),
                ..
            },
        ) => Some((destination, nowhere)),
        (Role::Base, Message::Offer { to: SocketAddr::V4(to), from: SocketAddr::V4(from), .. }) => {
            Some((to, from))
        }
        _ => None,
    };
    // What the addresses cannot say, such as another connection's number, travels as it is.
    if let Some((destination, source)) = addresses
        && encoded(&opening(role, destination, source)) == written
    {
        return Some((Head::Addresses { destination, source }, len));
    }
    Some(whole(written, room))
}

/// What the first bytes of a stream that the peer opened are; `None` while they may become a
/// message. The connection was requested to `destination`.
pub(super) fn read_answer(
    bytes: &[u8],
    destination: SocketAddrV4,
    room: usize,
) -> Option<AnswerHead> {
    let (message, len) = match mhp::decode(bytes) {
        Ok(Decoded::Incomplete { .. }) => return None,
        Ok(Decoded::Complete { message, len }) => (message, len),
        Err(_) => return Some(AnswerHead::Stands(Head::Nothing, 0)),
    };
    let written = &bytes[..len];
    let (head, len) = match message {
        Message::Refused(refusal) => {
            return Some(AnswerHead::Refused(ResetReason::Refused(refusal).code()));
        }
        Message::Opened { bound: SocketAddr::V4(source) }
            if encoded(&Message::Opened { bound: source.into() }) == written =>
        {
            (Head::Addresses { destination, source }, len)
        }
        Message::Opened { .. } if len <= ANSWER_MAX => whole(written, room),
        _ => (Head::Nothing, 0),
    };
    Some(AnswerHead::Stands(head, len))
}

/// The first bytes that an opening from `opener` says, and whether whoever opens waits for the
/// answer. Of a packet of version 1, `extensions` are what it has.
pub(super) fn write_opening(
    control: &Control,
    extensions: Option<Extensions<'_>>,
    opener: Role,
) -> (Vec<u8>, bool) {
    let Some(extensions) = extensions else {
        let message = opening(opener, control.destination, control.source);
        return (encoded(&message), true);
    };
    let bytes = extensions.message().unwrap_or_default();
    let waits = matches!(
        mhp::decode(bytes),
        Ok(Decoded::Complete {
            message: Message::Open { opening: Opening::Faithful, .. } | Message::Offer { .. },
            ..
        })
    );
    (bytes.to_vec(), waits)
}

/// The first bytes that an answer says; `None` if they are more than an answer may bring.
pub(super) fn write_answer(
    control: &Control,
    extensions: Option<Extensions<'_>>,
) -> Option<Vec<u8>> {
    let bytes = match extensions {
        None => encoded(&Message::Opened { bound: control.source.into() }),
        Some(extensions) => extensions.message().unwrap_or_default().to_vec(),
    };
    (bytes.len() <= ANSWER_MAX).then_some(bytes)
}

fn whole(message: &[u8], room: usize) -> (Head, usize) {
    if message.len() + AROUND > room {
        return (Head::Nothing, 0);
    }
    (Head::Message(message.to_vec()), message.len())
}

fn opening(opener: Role, destination: SocketAddrV4, source: SocketAddrV4) -> Message {
    match opener {
        Role::Mobile => Message::Open {
            opening: Opening::Faithful,
            target: Target::Addr(destination.into()),
            connection: None,
            source: None,
            resumed: None,
        },
        Role::Base => {
            Message::Offer { to: destination.into(), from: source.into(), connection: None }
        }
    }
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use core::net::SocketAddrV6;

    use lasthop_wire::mhp::{HostName, Refusal};
    use lasthop_wire::mobile_tcp::{Extension, Packet};

    use super::*;

    const ROOM: usize = 1476;

    fn v4(last: u8, port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), port)
    }

    fn v6() -> SocketAddr {
        SocketAddrV6::new(core::net::Ipv6Addr::LOCALHOST, 80, 0, 0).into()
    }

    fn open(opening: Opening, target: Target, connection: Option<u64>) -> Vec<u8> {
        encoded(&Message::Open { opening, target, connection, source: None, resumed: None })
    }

    /// What the peer's stream begins with, after a packet of `head`.
    fn carried(head: &Head, opener: Role) -> (Vec<u8>, bool) {
        let mut out = [0; 1500];
        let mut control = Control::default();
        let len = match head {
            Head::Addresses { destination, source } => {
                (control.destination, control.source) = (*destination, *source);
                control.emit(&mut out)
            }
            Head::Message(m) => control.emit_extended(&[Extension::Message(m)], &mut out),
            Head::Nothing => control.emit_extended(&[], &mut out),
        };
        let Ok(Packet::Control(control, extensions)) = Packet::decode(&out[..len.unwrap()]) else {
            panic!("no control packet");
        };
        write_opening(&control, extensions, opener)
    }

    /// MOB-6: what the paper's control packet can say is said by its addresses, and comes out of it
    /// as it was written; everything else does so by a packet of version 1.
    #[test]
    fn every_first_message_arrives_as_it_was_written() {
        let target = |t: SocketAddrV4| Target::Addr(t.into());
        let name = Target::Name(HostName::new("fixed.example").unwrap(), 443);
        let offer = |to, from, connection| encoded(&Message::Offer { to, from, connection });
        let (here, there) = (v4(1, 80), v4(2, 5000));
        let from = encoded(&Message::Open {
            opening: Opening::Faithful,
            target: target(here),
            connection: None,
            source: Some(there.into()),
            resumed: None,
        });
        let mut longer = open(Opening::Faithful, target(here), None);
        longer.push(7);
        longer[3] += 1;
        let cases = [
            (Role::Mobile, open(Opening::Faithful, target(here), None), true, true),
            (Role::Mobile, open(Opening::Faithful, target(here), Some(6)), false, true),
            (Role::Mobile, open(Opening::Early, target(here), None), false, false),
            (Role::Mobile, open(Opening::Faithful, name, None), false, true),
            (Role::Mobile, open(Opening::Faithful, Target::Addr(v6()), None), false, true),
            (Role::Mobile, from, false, true),
            (Role::Mobile, longer, false, true),
            (Role::Base, open(Opening::Faithful, target(here), None), false, true),
            (Role::Base, offer(here.into(), there.into(), None), true, true),
            (Role::Base, offer(here.into(), there.into(), Some(3)), false, true),
            (Role::Base, offer(v6(), v6(), None), false, true),
            (Role::Mobile, offer(here.into(), there.into(), None), false, true),
        ];
        for (role, written, paper, waits) in cases {
            for cut in 0..written.len() {
                assert_eq!(read_opening(&written[..cut], role, 6, ROOM), None);
            }
            let mut followed = written.clone();
            followed.extend(b"behind");
            let (head, len) = read_opening(&followed, role, 6, ROOM).unwrap();
            assert_eq!(len, written.len());
            assert_eq!(matches!(head, Head::Addresses { .. }), paper, "{written:?}");
            assert_eq!(carried(&head, role), (written, waits));
        }
    }

    #[test]
    fn bytes_that_are_no_message_or_too_long_follow_as_data() {
        let nothing = Some((Head::Nothing, 0));
        assert_eq!(read_opening(b"GET / HTTP/1.1", Role::Mobile, 0, ROOM), nothing);
        assert_eq!(carried(&Head::Nothing, Role::Mobile), (vec![], false));
        let early = open(Opening::Early, Target::Addr(v6()), None);
        assert_eq!(read_opening(&early, Role::Mobile, 0, early.len() + AROUND - 1), nothing);
        assert_ne!(read_opening(&early, Role::Mobile, 0, early.len() + AROUND), nothing);
    }

    /// MOB-7: the surrogate's address is the source of the answer; a refusal is a code.
    #[test]
    fn answers_say_where_the_surrogate_is_or_why_there_is_none() {
        let asked = v4(1, 80);
        let stands = encoded(&Message::Opened { bound: v4(9, 6000).into() });
        let head = Head::Addresses { destination: asked, source: v4(9, 6000) };
        let expected = AnswerHead::Stands(head, stands.len());
        assert_eq!(read_answer(&stands, asked, ROOM), Some(expected));
        assert_eq!(read_answer(&stands[..5], asked, ROOM), None);
        let control = Control { source: v4(9, 6000), ..Control::default() };
        assert_eq!(write_answer(&control, None), Some(stands));

        let stands = encoded(&Message::Opened { bound: v6() });
        let expected = AnswerHead::Stands(Head::Message(stands.clone()), stands.len());
        assert_eq!(read_answer(&stands, asked, ROOM), Some(expected));

        let refusal = Refusal::Other(99);
        let code = ResetReason::Refused(refusal).code();
        let refused = encoded(&Message::Refused(refusal));
        assert_eq!(read_answer(&refused, asked, ROOM), Some(AnswerHead::Refused(code)));
        let nothing = Some(AnswerHead::Stands(Head::Nothing, 0));
        assert_eq!(read_answer(b"220 ready", asked, ROOM), nothing);
    }
}
