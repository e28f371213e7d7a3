use alloc::vec::Vec;
use core::net::SocketAddr;

use lasthop_wire::mhp::Refusal;

use crate::conversation::{Progress, Taken};
use crate::{http, socks};

/// A conversation on the mobile's listener, which serves SOCKS5, SOCKS4(a) and HTTP alike: the
/// first byte decides (RFC 1928 section 3 and SOCKS4 begin with their version; no HTTP method does).
///
/// The caller bounds how long a conversation may take; its memory is bounded here.
#[derive(Debug, Default)]
pub struct Ingress {
    protocol: Protocol,
    udp_associate: bool,
}

#[derive(Debug, Default)]
enum Protocol {
    #[default]
    Undecided,
    Socks(socks::Server),
    Http(http::Server),
}

impl Ingress {
    /// A conversation without a message yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether UDP ASSOCIATE is served, which it is not by default: the hop has to carry datagrams.
    #[must_use]
    pub fn with_udp_associate(mut self, served: bool) -> Self {
        self.udp_associate = served;
        self
    }

    /// Takes bytes from the application.
    pub fn handle_input(&mut self, input: &[u8]) -> Taken {
        if let (Protocol::Undecided, Some(&first)) = (&self.protocol, input.first()) {
            self.protocol = match first {
                4 | 5 => {
                    let server = socks::Server::new();
                    Protocol::Socks(server.with_udp_associate(self.udp_associate))
                }
                _ => Protocol::Http(http::Server::new()),
            };
        }
        match &mut self.protocol {
            Protocol::Undecided => Taken { bytes: 0, progress: Progress::NeedMore },
            Protocol::Socks(server) => server.handle_input(input),
            Protocol::Http(server) => server.handle_input(input),
        }
    }

    /// The result of the requested connection or UDP association. After `Ok` and once the output is
    /// sent, a connection's bytes are relayed; after `Err` the output is sent and the conversation is
    /// over.
    pub fn reply(&mut self, result: Result<Option<SocketAddr>, Refusal>) {
        match &mut self.protocol {
            Protocol::Undecided => {}
            Protocol::Socks(server) => server.reply(result),
            Protocol::Http(server) => server.reply(result),
        }
    }

    /// The requested UDP association cannot be had, for the hop turns out to carry no datagrams. Once the
    /// output is sent, the conversation is over.
    pub fn decline_association(&mut self) {
        if let Protocol::Socks(server) = &mut self.protocol {
            server.decline_association();
        }
    }

    /// Bytes for the application.
    pub fn output(&self) -> &[u8] {
        match &self.protocol {
            Protocol::Undecided => &[],
            Protocol::Socks(server) => server.output(),
            Protocol::Http(server) => server.output(),
        }
    }

    /// The first `n` bytes of [`output`](Self::output) were sent.
    pub fn sent(&mut self, n: usize) {
        match &mut self.protocol {
            Protocol::Undecided => {}
            Protocol::Socks(server) => server.sent(n),
            Protocol::Http(server) => server.sent(n),
        }
    }

    /// Bytes for the target, to be written before anything of the application's: the rewritten head
    /// of a proxied HTTP request. At most [`http::MAX_HEAD_LEN`] and a little more; empty for SOCKS
    /// and CONNECT, and when asked again.
    pub fn take_preface(&mut self) -> Vec<u8> {
        match &mut self.protocol {
            Protocol::Http(server) => server.take_preface(),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Says `pieces` one after the other; how much was taken, where it ended, what was answered.
    fn talk(pieces: &[&[u8]]) -> (usize, Progress, Vec<u8>) {
        let mut ingress = Ingress::new().with_udp_associate(true);
        let mut total = 0;
        for piece in pieces {
            let taken = ingress.handle_input(piece);
            total += taken.bytes;
            if taken.progress != Progress::NeedMore {
                ingress.reply(Err(Refusal::Refused));
                return (total, taken.progress, ingress.output().to_vec());
            }
            assert_eq!(taken.bytes, piece.len());
        }
        (total, Progress::NeedMore, ingress.output().to_vec())
    }

    const CONVERSATIONS: [&[u8]; 6] = [
        b"\x05\x02\x02\x00\x05\x01\x00\x03\x04host\x00\x50rest",
        b"\x05\x01\x00\x05\x01\x00\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x00\x50rest",
        b"\x05\x01\x00\x05\x03\x00\x01\0\0\0\0\x00\x50rest",
        b"\x04\x01\x00\x50\x00\x00\x00\x01me\0host\0rest",
        b"CONNECT host:80 HTTP/1.1\r\nHost: host:80\r\n\r\nrest",
        b"GET http://host/x HTTP/1.1\r\nHost: host\r\nA: b\r\n\r\nrest",
    ];

    #[test]
    fn one_listener_tells_socks_from_http() {
        for conversation in CONVERSATIONS {
            let (taken, progress, output) = talk(&[conversation]);
            assert_eq!(taken, conversation.len() - 4, "{}", conversation.escape_ascii());
            let port = match progress {
                Progress::Request(target) => target.port(),
                Progress::Associate(from) => from.port(),
                other => panic!("{other:?}"),
            };
            assert_eq!(port, 80);
            assert!(!output.is_empty());
        }
    }

    proptest! {
        #[test]
        fn any_split_of_the_input_gives_the_same_result(
            which in prop::sample::select(CONVERSATIONS.to_vec()),
            mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
            flip in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
        ) {
            let mut input = which.to_vec();
            if let Some((at, value)) = flip {
                let at = at.index(input.len());
                input[at] = value;
            }
            cuts.sort_unstable_by_key(|cut| cut.index(input.len()));
            let mut pieces = Vec::new();
            let mut rest = &input[..];
            for cut in cuts {
                let at = cut.index(input.len()) - (input.len() - rest.len());
                let (piece, tail) = rest.split_at(at);
                pieces.push(piece);
                rest = tail;
            }
            pieces.push(rest);
            let (whole, split) = (talk(&[&input]), talk(&pieces));
            if whole.1 != Progress::Over {
                prop_assert_eq!(whole.0, split.0);
            }
            prop_assert_eq!((whole.1, whole.2), (split.1, split.2));
        }

        #[test]
        fn garbage_never_panics_nor_gathers_without_bound(
            first in prop_oneof![4u8..6, any::<u8>()],
            rest in prop::collection::vec(any::<u8>(), 0..2000),
            times in 1usize..20,
        ) {
            let mut ingress = Ingress::new().with_udp_associate(true);
            let mut over = matches!(ingress.handle_input(&[first]).progress, Progress::Over);
            for _ in 0..times {
                let taken = ingress.handle_input(&rest);
                prop_assert!(taken.bytes <= rest.len());
                prop_assert!(!over || taken.progress == Progress::Over);
                over |= taken.progress == Progress::Over;
                prop_assert!(ingress.output().len() < 1024);
            }
        }
    }
}
