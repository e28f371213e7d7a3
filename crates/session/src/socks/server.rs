use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use lasthop_wire::mhp::{NameError, Refusal, Target};

use super::{
    Address, COMMAND_CONNECT, COMMAND_UDP_ASSOCIATE, MAX_REQUEST, METHOD_NONE, NO_METHOD,
    ReplyCode, UNSPECIFIED, VERSION_4, VERSION_5, put_address, read_address, read_name,
};
use crate::backlog::Backlog;
use crate::conversation::{Gathered, Parsed, Progress, Taken};

/// Version 4a: eight bytes, a user id and a name, each with its NUL.
const MAX_VERSION_4: usize = 8 + 2 * (MAX_TEXT + 1);
/// The longest user id or name of version 4a that is read.
const MAX_TEXT: usize = 255;
const GRANTED_4: u8 = 90;
const REJECTED_4: u8 = 91;

/// A SOCKS server's side of one conversation, versions 5, 4 and 4a.
#[derive(Debug)]
pub struct Server {
    stage: Stage,
    gathered: Gathered,
    outbox: Backlog,
    udp_associate: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Start,
    /// Version 5: the method was chosen, the request follows.
    Request,
    Version4,
    /// Asked for a connection, in that version.
    Asked(u8),
    /// Version 5: asked for a UDP association.
    AskedAssociation,
    /// Answered; what follows is none of ours.
    Over,
}

/// What a request asks for, or the reply to one that is answered without asking anybody.
type Answer = Result<Progress, ReplyCode>;

impl Default for Server {
    fn default() -> Self {
        Self::new()
    }
}

impl Server {
    /// A conversation without a message yet.
    pub fn new() -> Self {
        let (gathered, outbox) = (Gathered::default(), Backlog::default());
        Self { stage: Stage::Start, gathered, outbox, udp_associate: false }
    }

    /// Whether UDP ASSOCIATE is served; where it is not, it is answered with X'07'.
    #[must_use]
    pub fn with_udp_associate(mut self, served: bool) -> Self {
        self.udp_associate = served;
        self
    }

    /// Takes bytes from the client.
    pub fn handle_input(&mut self, input: &[u8]) -> Taken {
        let mut bytes = 0;
        loop {
            let rest = &input[bytes..];
            let progress = match self.stage {
                Stage::Asked(_) | Stage::AskedAssociation => Progress::NeedMore,
                Stage::Over => {
                    bytes = input.len();
                    Progress::Over
                }
                _ if rest.is_empty() => Progress::NeedMore,
                Stage::Start => {
                    bytes += self.greeting(rest);
                    continue;
                }
                Stage::Request => {
                    let udp_associate = self.udp_associate;
                    let read = |bytes: &[u8]| read_request(bytes, udp_associate);
                    let (n, answer) = self.gathered.feed(rest, MAX_REQUEST, read);
                    bytes += n;
                    match answer {
                        Some(answer) => self.decide(VERSION_5, answer),
                        None => continue,
                    }
                }
                Stage::Version4 => {
                    let (n, answer) = self.gathered.feed(rest, MAX_VERSION_4, read_version_4);
                    bytes += n;
                    match answer {
                        Some(answer) => self.decide(VERSION_4, answer),
                        None => continue,
                    }
                }
            };
            return Taken { bytes, progress };
        }
    }

    /// The result of the requested connection with its near end, or of the UDP association with the
    /// relay's address and port, without which an application has no association.
    pub fn reply(&mut self, result: Result<Option<SocketAddr>, Refusal>) {
        let (version, result) = match (self.stage, result) {
            (Stage::Asked(version), result) => (version, result),
            (Stage::AskedAssociation, Ok(None)) => (VERSION_5, Err(Refusal::Other(0))),
            (Stage::AskedAssociation, result) => (VERSION_5, result),
            _ => return,
        };
        let code = result.map_or_else(ReplyCode::from, |_| ReplyCode::Succeeded);
        self.answer(version, code, result.ok().flatten());
    }

    /// The requested UDP association cannot be had: X'07', as where none is served.
    pub fn decline_association(&mut self) {
        if self.stage == Stage::AskedAssociation {
            self.answer(VERSION_5, ReplyCode::CommandNotSupported, None);
        }
    }

    /// Bytes for the client.
    pub fn output(&self) -> &[u8] {
        self.outbox.as_slice()
    }

    /// The first `n` bytes of [`output`](Self::output) were sent.
    pub fn sent(&mut self, n: usize) {
        self.outbox.take(n);
    }

    /// RFC 1928 section 3: version and methods; version 4 is told apart by its first byte.
    fn greeting(&mut self, input: &[u8]) -> usize {
        if self.gathered.is_empty() && input.first() == Some(&VERSION_4) {
            self.stage = Stage::Version4;
            return 0;
        }
        let (n, choice) = self.gathered.feed(input, 2 + 255, read_greeting);
        match choice {
            None => {}
            Some(true) => {
                self.outbox.push(&[VERSION_5, METHOD_NONE]);
                self.stage = Stage::Request;
            }
            Some(false) => {
                self.outbox.push(&[VERSION_5, NO_METHOD]);
                self.stage = Stage::Over;
            }
        }
        n
    }

    fn decide(&mut self, version: u8, answer: Answer) -> Progress {
        match answer {
            Ok(wish) => {
                let association = matches!(wish, Progress::Associate(_));
                self.stage =
                    if association { Stage::AskedAssociation } else { Stage::Asked(version) };
                wish
            }
            Err(code) => {
                self.answer(version, code, None);
                Progress::Over
            }
        }
    }

    fn answer(&mut self, version: u8, code: ReplyCode, bound: Option<SocketAddr>) {
        self.stage = Stage::Over;
        let bound = bound.unwrap_or(UNSPECIFIED);
        let mut reply = Vec::with_capacity(22);
        if version == VERSION_4 {
            let granted = code == ReplyCode::Succeeded;
            reply.extend_from_slice(&[0, if granted { GRANTED_4 } else { REJECTED_4 }]);
            reply.extend_from_slice(&bound.port().to_be_bytes());
            let ip = match bound.ip() {
                IpAddr::V4(ip) => ip,
                IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
            };
            reply.extend_from_slice(&ip.octets());
        } else {
            reply.extend_from_slice(&[VERSION_5, code as u8, 0]);
            put_address(&mut reply, &Target::Addr(bound));
        }
        self.outbox.push(&reply);
    }
}

/// Whether the client offers to go without authentication.
fn read_greeting(bytes: &[u8]) -> Parsed<bool> {
    match bytes {
        [version, ..] if *version != VERSION_5 => Parsed::Complete(false, bytes.len()),
        [_, count, methods @ ..] if methods.len() >= usize::from(*count) => {
            let count = usize::from(*count);
            Parsed::Complete(methods[..count].contains(&METHOD_NONE), 2 + count)
        }
        _ => Parsed::Incomplete,
    }
}

/// RFC 1928 section 4.
fn read_request(bytes: &[u8], udp_associate: bool) -> Parsed<Answer> {
    match *bytes {
        [version, ..] if version != VERSION_5 => {
            Parsed::Complete(Err(ReplyCode::GeneralFailure), bytes.len())
        }
        [_, command, _, ref address @ ..] => match read_address(address) {
            Address::Incomplete => Parsed::Incomplete,
            Address::UnknownType => {
                Parsed::Complete(Err(ReplyCode::AddressTypeNotSupported), bytes.len())
            }
            Address::Complete(target, len) => {
                let answer = match command {
                    COMMAND_CONNECT => connect(target),
                    COMMAND_UDP_ASSOCIATE if udp_associate => Ok(associate(target)),
                    _ => Err(ReplyCode::CommandNotSupported),
                };
                Parsed::Complete(answer, 3 + len)
            }
        },
        _ => Parsed::Incomplete,
    }
}

fn connect(target: Result<Target, NameError>) -> Answer {
    // What cannot be a name does not exist as one.
    target.map(Progress::Request).map_err(|_| Refusal::NameNotFound.into())
}

/// The address is only what a client expects to send from, and one that is a name says nothing.
fn associate(target: Result<Target, NameError>) -> Progress {
    match target {
        Ok(Target::Addr(addr)) => Progress::Associate(addr),
        _ => Progress::Associate(UNSPECIFIED),
    }
}

/// SOCKS4: command, port, address, user id. 4a: an address 0.0.0.x stands for a name behind.
fn read_version_4(bytes: &[u8]) -> Parsed<Answer> {
    let Some((&[_, command, high, low, a, b, c, d], texts)) = bytes.split_first_chunk() else {
        return Parsed::Incomplete;
    };
    let port = u16::from_be_bytes([high, low]);
    let by_name = [a, b, c] == [0, 0, 0] && d != 0;
    // The user id says nothing that can be checked.
    let behind = match split_text(texts) {
        Parsed::Incomplete => return Parsed::Incomplete,
        Parsed::Complete(None, _) => return reject(bytes),
        Parsed::Complete(Some(_), len) => len,
    };
    let (target, len) = if by_name {
        match split_text(&texts[behind..]) {
            Parsed::Incomplete => return Parsed::Incomplete,
            Parsed::Complete(None, _) => return reject(bytes),
            Parsed::Complete(Some(name), len) => (read_name(name, port), behind + len),
        }
    } else {
        let addr = SocketAddr::new(Ipv4Addr::new(a, b, c, d).into(), port);
        (Ok(Target::Addr(addr)), behind)
    };
    let answer = if command == COMMAND_CONNECT {
        connect(target)
    } else {
        Err(ReplyCode::CommandNotSupported)
    };
    Parsed::Complete(answer, 8 + len)
}

fn reject(bytes: &[u8]) -> Parsed<Answer> {
    Parsed::Complete(Err(ReplyCode::GeneralFailure), bytes.len())
}

/// A text before its NUL and the length of both; `None` for one that is too long.
fn split_text(bytes: &[u8]) -> Parsed<Option<&[u8]>> {
    match bytes.iter().take(MAX_TEXT + 1).position(|&b| b == 0) {
        Some(end) => Parsed::Complete(Some(&bytes[..end]), end + 1),
        None if bytes.len() > MAX_TEXT => Parsed::Complete(None, bytes.len()),
        None => Parsed::Incomplete,
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use super::*;
    use crate::socks::{ATYP_IPV4, ATYP_IPV6};

    fn asked(input: &[u8]) -> (Server, Progress) {
        let mut server = Server::new();
        let taken = server.handle_input(input);
        assert_eq!(taken.bytes, input.len());
        (server, taken.progress)
    }

    fn target(progress: &Progress) -> alloc::string::String {
        match progress {
            Progress::Request(target) => target.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_kind_of_address_is_asked_for() {
        let (server, progress) = asked(b"\x05\x01\x00\x05\x01\x00\x01\xc0\0\x02\x07\x01\xbb");
        assert_eq!(target(&progress), "192.0.2.7:443");
        assert_eq!(server.output(), [5, 0]);
        let (_, progress) = asked(b"\x05\x01\x00\x05\x01\x00\x03\x0bexample.org\x00\x50");
        assert_eq!(target(&progress), "example.org:80");
        let (_, progress) = asked(b"\x05\x01\x00\x05\x01\x00\x03\x0810.1.2.3\x00\x50");
        assert_eq!(target(&progress), "10.1.2.3:80");
        let mut v6 = b"\x05\x01\x00\x05\x01\x00\x04".to_vec();
        v6.extend([0; 15]);
        v6.extend([1, 0, 80]);
        let (_, progress) = asked(&v6);
        assert_eq!(target(&progress), "[::1]:80");
    }

    #[test]
    fn success_names_the_bound_address() {
        let (mut server, _) = asked(b"\x05\x01\x00\x05\x01\x00\x01\xc0\0\x02\x07\x01\xbb");
        server.sent(2);
        server.reply(Ok(Some("10.0.0.1:258".parse().expect("address"))));
        assert_eq!(server.output(), [5, 0, 0, 1, 10, 0, 0, 1, 1, 2]);
        server.sent(4);
        assert_eq!(server.output(), [10, 0, 0, 1, 1, 2]);
        server.sent(100);
        assert!(server.output().is_empty());
    }

    /// MHP-5: the reply field carries the fixed host's error.
    #[test]
    fn each_refusal_has_its_reply() {
        let expected = [
            (Refusal::Refused, 5),
            (Refusal::NetworkUnreachable, 3),
            (Refusal::HostUnreachable, 4),
            (Refusal::TimedOut, 6),
            (Refusal::NameNotFound, 4),
            (Refusal::ResolverFailed, 4),
            (Refusal::NotAllowed, 2),
            (Refusal::NotPermitted, 2),
            (Refusal::ConnectionReset, 1),
            (Refusal::Other(99), 1),
        ];
        for (refusal, code) in expected {
            let (mut server, _) = asked(b"\x05\x01\x00\x05\x01\x00\x01\xc0\0\x02\x07\x01\xbb");
            server.sent(2);
            server.reply(Err(refusal));
            assert_eq!(server.output(), [5, code, 0, 1, 0, 0, 0, 0, 0, 0]);
            assert_eq!(server.handle_input(b"more").progress, Progress::Over);
        }
    }

    /// A UDP ASSOCIATE from `addr` and `port`, each with its type in front; the answer is the caller's.
    fn associating(addr: &[u8], port: u16) -> (Server, Progress) {
        let mut server = Server::new().with_udp_associate(true);
        let request = [&[5, 1, 0, 5, COMMAND_UDP_ASSOCIATE, 0], addr, &port.to_be_bytes()].concat();
        let progress = server.handle_input(&request).progress;
        server.sent(2);
        (server, progress)
    }

    /// RFC 1928 section 6: X'07', and for UDP ASSOCIATE too where the hop carries no datagrams.
    #[test]
    fn commands_that_are_not_served_are_not_supported() {
        for (command, udp_associate) in [(2, false), (3, false), (9, false), (2, true), (9, true)] {
            let input = [5, 1, 0, 5, command, 0, 1, 1, 2, 3, 4, 0, 80];
            let mut server = Server::new().with_udp_associate(udp_associate);
            assert_eq!(server.handle_input(&input).progress, Progress::Over);
            assert_eq!(server.output()[2..4], [5, ReplyCode::CommandNotSupported as u8]);
        }
    }

    /// RFC 1928 section 4: the client's own address, or zeros where it does not know it yet.
    #[test]
    fn udp_associate_says_where_datagrams_will_come_from() {
        let v6 = [&[ATYP_IPV6][..], &[0; 15], &[1]].concat();
        for (addr, port, expected) in [
            (&[ATYP_IPV4, 0, 0, 0, 0][..], 0, "0.0.0.0:0"),
            (&[ATYP_IPV4, 192, 0, 2, 7], 5060, "192.0.2.7:5060"),
            (&v6, 9, "[::1]:9"),
            (b"\x03\x04host", 9, "0.0.0.0:0"),
            (b"\x03\x00", 9, "0.0.0.0:0"),
        ] {
            let expected = expected.parse().expect("address");
            assert_eq!(associating(addr, port).1, Progress::Associate(expected));
        }
    }

    /// RFC 1928 section 6: the bound address is where the client must send its datagrams.
    #[test]
    fn the_reply_to_udp_associate_names_the_relay() {
        let (mut server, _) = associating(&[ATYP_IPV4, 0, 0, 0, 0], 0);
        server.reply(Ok(Some("192.0.2.1:258".parse().expect("address"))));
        assert_eq!(server.output(), [5, 0, 0, 1, 192, 0, 2, 1, 1, 2]);
        assert_eq!(server.handle_input(b"more").progress, Progress::Over);

        let (mut server, _) = associating(&[ATYP_IPV4, 0, 0, 0, 0], 0);
        server.reply(Ok(Some("[2001:db8::1]:258".parse().expect("address"))));
        let v6 = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(server.output(), [&[5, 0, 0, 4][..], &v6, &[1, 2]].concat());
    }

    /// RFC 1928 section 6: what fails has a reply other than X'00'.
    #[test]
    fn a_udp_association_without_a_relay_is_no_success() {
        for (result, code) in
            [(Ok(None), 1), (Err(Refusal::NotAllowed), 2), (Err(Refusal::TooMany), 1)]
        {
            let (mut server, _) = associating(&[ATYP_IPV4, 0, 0, 0, 0], 0);
            server.reply(result);
            assert_eq!(server.output(), [5, code, 0, 1, 0, 0, 0, 0, 0, 0]);
        }
    }

    #[test]
    fn a_client_that_insists_on_authentication_is_told_so() {
        let (server, progress) = asked(&[5, 2, 1, 2]);
        assert_eq!((progress, server.output()), (Progress::Over, &[5, 0xff][..]));
        let (server, progress) = asked(&[5, 0]);
        assert_eq!((progress, server.output()), (Progress::Over, &[5, 0xff][..]));
    }

    #[test]
    fn an_address_of_no_known_type_is_answered() {
        let (server, progress) = asked(&[5, 1, 0, 5, 1, 0, 2]);
        assert_eq!(progress, Progress::Over);
        assert_eq!(server.output()[2..4], [5, ReplyCode::AddressTypeNotSupported as u8]);
    }

    #[test]
    fn version_4_and_4a_are_served() {
        let (mut server, progress) = asked(b"\x04\x01\x00\x50\x0a\x00\x00\x01me\0");
        assert_eq!(target(&progress), "10.0.0.1:80");
        server.reply(Ok(Some("10.0.0.9:258".parse().expect("address"))));
        assert_eq!(server.output(), [0, 90, 1, 2, 10, 0, 0, 9]);

        let (mut server, progress) = asked(b"\x04\x01\x00\x50\x00\x00\x00\x01\0example.org\0");
        assert_eq!(target(&progress), "example.org:80");
        server.reply(Err(Refusal::Refused));
        assert_eq!(server.output(), [0, 91, 0, 0, 0, 0, 0, 0]);

        let (server, progress) = asked(b"\x04\x02\x00\x50\x0a\x00\x00\x01\0");
        assert_eq!((progress, server.output()[1]), (Progress::Over, 91));
    }

    #[test]
    fn texts_of_version_4_are_bounded() {
        let mut server = Server::new();
        server.handle_input(&[4, 1, 0, 80, 10, 0, 0, 1]);
        assert_eq!(server.handle_input(&vec![b'x'; 255]).progress, Progress::NeedMore);
        assert_eq!(server.handle_input(b"x").progress, Progress::Over);
    }
}
