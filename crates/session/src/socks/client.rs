use alloc::vec::Vec;
use core::net::SocketAddr;

use lasthop_wire::mhp::{Refusal, Target};
use thiserror::Error;

use super::{
    Address, COMMAND_CONNECT, MAX_REQUEST, METHOD_NONE, VERSION_5, put_address, read_address,
    refusal_for,
};
use crate::backlog::Backlog;
use crate::conversation::{Gathered, Parsed};

/// A SOCKS5 client's side of one conversation: `lasthop exec` and tests speak with the listener
/// through it.
#[derive(Debug)]
pub struct Client {
    stage: Stage,
    target: Target,
    gathered: Gathered,
    outbox: Backlog,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Method,
    Reply,
    Over,
}

/// Where a client's conversation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientProgress {
    /// More input is wanted; there may be output.
    NeedMore,
    /// The connection stands; what follows is the target's. The server's near end, if it sent it.
    Connected(Option<SocketAddr>),
    /// There is no connection.
    Failed(ClientError),
}

/// Why a client got no connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ClientError {
    /// The server refused.
    #[error("{0}")]
    Refused(Refusal),
    /// The server wants an authentication that the client does not have.
    #[error("the SOCKS server wants authentication")]
    Authentication,
    /// What came is not SOCKS5, or came after the conversation was over.
    #[error("the server does not speak SOCKS5")]
    NotSocks,
}

impl Client {
    /// Asks for a connection to `target`; there is output at once.
    pub fn new(target: Target) -> Self {
        let mut outbox = Backlog::default();
        outbox.push(&[VERSION_5, 1, METHOD_NONE]);
        Self { stage: Stage::Method, target, gathered: Gathered::default(), outbox }
    }

    /// Takes bytes from the server; how many bytes of it belong to the conversation.
    pub fn handle_input(&mut self, input: &[u8]) -> (usize, ClientProgress) {
        let mut taken = 0;
        while taken < input.len() {
            let rest = &input[taken..];
            let (n, outcome) = match self.stage {
                Stage::Method => {
                    let (n, choice) = self.gathered.feed(rest, 2, read_choice);
                    (n, choice.and_then(|choice| self.choose(choice)))
                }
                Stage::Reply => self.gathered.feed(rest, MAX_REQUEST, read_reply),
                Stage::Over => (0, Some(Err(ClientError::NotSocks))),
            };
            taken += n;
            if let Some(outcome) = outcome {
                self.stage = Stage::Over;
                let progress =
                    outcome.map_or_else(ClientProgress::Failed, ClientProgress::Connected);
                return (taken, progress);
            }
        }
        (taken, ClientProgress::NeedMore)
    }

    /// Bytes for the server.
    pub fn output(&self) -> &[u8] {
        self.outbox.as_slice()
    }

    /// The first `n` bytes of [`output`](Self::output) were sent.
    pub fn sent(&mut self, n: usize) {
        self.outbox.take(n);
    }

    /// Sends the request if the server chose what was offered.
    fn choose(&mut self, choice: [u8; 2]) -> Option<Outcome> {
        match choice {
            [VERSION_5, METHOD_NONE] => {
                let mut request = Vec::with_capacity(MAX_REQUEST);
                request.extend_from_slice(&[VERSION_5, COMMAND_CONNECT, 0]);
                put_address(&mut request, &self.target);
                self.outbox.push(&request);
                self.stage = Stage::Reply;
                None
            }
            [VERSION_5, _] => Some(Err(ClientError::Authentication)),
            _ => Some(Err(ClientError::NotSocks)),
        }
    }
}

type Outcome = Result<Option<SocketAddr>, ClientError>;

fn read_choice(bytes: &[u8]) -> Parsed<[u8; 2]> {
    match bytes.first_chunk() {
        Some(choice) => Parsed::Complete(*choice, 2),
        None => Parsed::Incomplete,
    }
}

/// RFC 1928 section 6. A refusal counts from its code on: some servers send no more.
fn read_reply(bytes: &[u8]) -> Parsed<Outcome> {
    match *bytes {
        [version, ..] if version != VERSION_5 => {
            Parsed::Complete(Err(ClientError::NotSocks), bytes.len())
        }
        [_, code, ..] if code != 0 => {
            Parsed::Complete(Err(ClientError::Refused(refusal_for(code))), bytes.len())
        }
        [_, _, _, ref address @ ..] => match read_address(address) {
            Address::Incomplete => Parsed::Incomplete,
            Address::UnknownType => Parsed::Complete(Err(ClientError::NotSocks), bytes.len()),
            Address::Complete(bound, len) => {
                let bound = match bound {
                    Ok(Target::Addr(addr)) if !addr.ip().is_unspecified() => Some(addr),
                    _ => None,
                };
                Parsed::Complete(Ok(bound), 3 + len)
            }
        },
        _ => Parsed::Incomplete,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::Progress;
    use crate::socks::Server;

    /// Lets a client and the server talk, `step` bytes at a time, until the client has its answer.
    fn converse(
        target: &Target,
        result: Result<Option<SocketAddr>, Refusal>,
        step: usize,
    ) -> (Option<Target>, ClientProgress) {
        let (mut client, mut server) = (Client::new(target.clone()), Server::new());
        let mut asked = None;
        for _ in 0..1000 {
            let n = client.output().len().min(step);
            let taken = server.handle_input(&client.output()[..n]);
            client.sent(taken.bytes);
            if let Progress::Request(target) = taken.progress {
                asked = Some(target);
                server.reply(result);
            }
            let n = server.output().len().min(step);
            let (n, progress) = client.handle_input(&server.output()[..n]);
            server.sent(n);
            if progress != ClientProgress::NeedMore {
                return (asked, progress);
            }
        }
        panic!("they talk for ever")
    }

    #[test]
    fn client_and_server_understand_each_other_in_pieces_of_any_size() {
        for host in ["192.0.2.1", "2001:db8::1", "example.org", &"n".repeat(255)] {
            let target = Target::from_host(host, 8080).expect("host");
            for step in [1, 2, 3, 7, 1000] {
                let bound: SocketAddr = "[2001:db8::2]:5".parse().expect("address");
                let (asked, progress) = converse(&target, Ok(Some(bound)), step);
                assert_eq!(asked.as_ref(), Some(&target));
                assert_eq!(progress, ClientProgress::Connected(Some(bound)));
                let (_, progress) = converse(&target, Ok(None), step);
                assert_eq!(progress, ClientProgress::Connected(None));
            }
        }
    }

    /// MHP-5: what a program sees through `connect` is the fixed host's error.
    #[test]
    fn the_common_refusals_come_through_unchanged() {
        let target = Target::from_host("example.org", 80).expect("host");
        for refusal in [
            Refusal::Refused,
            Refusal::NetworkUnreachable,
            Refusal::HostUnreachable,
            Refusal::TimedOut,
            Refusal::NotAllowed,
        ] {
            let (_, progress) = converse(&target, Err(refusal), 3);
            assert_eq!(progress, ClientProgress::Failed(ClientError::Refused(refusal)));
        }
    }

    #[test]
    fn a_server_of_another_kind_is_named() {
        let target = Target::from_host("example.org", 80).expect("host");
        let fails = |bytes: &[u8]| Client::new(target.clone()).handle_input(bytes).1;
        assert_eq!(fails(b"HTTP/1.1 400"), ClientProgress::Failed(ClientError::NotSocks));
        assert_eq!(fails(&[5, 2]), ClientProgress::Failed(ClientError::Authentication));
        assert_eq!(fails(&[5, 0, 4]), ClientProgress::Failed(ClientError::NotSocks));
        assert_eq!(fails(&[5, 0, 5, 0, 0, 9]), ClientProgress::Failed(ClientError::NotSocks));
    }
}
