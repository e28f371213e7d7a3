//! An application's connection to the mobile's listener, until its bytes are relayed.

use std::net::SocketAddr;

use lasthop_session::udp_sockets::SocketNumber;
use lasthop_session::{Ingress, Progress, Refusal, Target};
use socket2::SockRef;

use lasthop_kernel::tcp::{self, Moved, Socket};

/// Bytes that an application may send ahead of the answer.
const AHEAD_MAX: usize = 64 * 1024;

/// Associations in which the same connection is requested, at most.
const ATTEMPTS_MAX: u32 = 4;

/// What an application waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// It sends its request.
    Requesting,
    /// The base opens the connection.
    Opening,
    /// The connection is open; the answer is being sent.
    Admitted,
    /// The connection was refused; the answer is being sent.
    Refused,
    /// The answer was sent; what the application still sends is read and dropped, lest a reset
    /// overtake the answer.
    Draining,
    /// It has a UDP association, which goes on until it ends the connection (RFC 1928 section 7).
    Associated,
}

/// What is to be done next for an application.
#[derive(Debug)]
pub(super) enum Action {
    /// Nothing until more happens.
    Wait,
    /// Open this.
    Open(Target),
    /// Open a UDP association for datagrams from this address, which may be unknown.
    Associate(SocketAddr),
    /// Relay.
    Relay,
    /// Close its connection: it is gone, or has had its answer.
    Close,
}

/// The connection that an application asks the base for.
#[derive(Debug, Default)]
pub(super) struct OpenRequest {
    /// Where to, once it has asked.
    target: Option<Target>,
    /// How often it was requested from the base.
    attempts: u32,
    /// Its own address, if the connection is to leave from there.
    source: Option<SocketAddr>,
}

impl OpenRequest {
    /// Nothing yet, but from `source` if one is requested.
    pub(super) fn from(source: Option<SocketAddr>) -> Self {
        Self { source, ..Self::default() }
    }

    /// The address that the connection is to leave from, if one is requested.
    pub(super) fn source(&self) -> Option<SocketAddr> {
        self.source
    }

    /// Records that `target` is requested from a base.
    pub(super) fn record_attempt(&mut self, target: &Target) {
        self.target = Some(target.clone());
        self.attempts += 1;
    }

    /// The target, if a base may be asked for it once more.
    pub(super) fn retry_target(&self) -> Option<Target> {
        self.target.clone().filter(|_| self.attempts < ATTEMPTS_MAX)
    }
}

/// An application.
#[derive(Debug)]
pub(crate) struct Application {
    pub(super) socket: Socket,
    ingress: Ingress,
    stage: Stage,
    pub(super) open_request: OpenRequest,
    /// Its UDP association.
    pub(super) association: Option<SocketNumber>,
    /// It was intercepted: the kernel has completed its handshake already.
    intercepted: bool,
    /// Bytes that it sent behind its request.
    ahead: Vec<u8>,
}

impl Application {
    /// Nothing has come from it.
    pub(super) fn new(socket: Socket) -> Self {
        Self {
            socket,
            ingress: Ingress::new(),
            stage: Stage::Requesting,
            open_request: OpenRequest::default(),
            association: None,
            intercepted: false,
            ahead: Vec::new(),
        }
    }

    /// Whether it may ask for a UDP association.
    pub(super) fn with_udp_associate(self, served: bool) -> Self {
        Self { ingress: self.ingress.with_udp_associate(served), ..self }
    }

    /// An intercepted application: what it wants is known, and no answer can be given any more but
    /// a reset. It has its own address in `source` if the connection is to leave from there.
    pub(super) fn intercepted(socket: Socket, source: Option<SocketAddr>) -> Self {
        let open_request = OpenRequest::from(source);
        Self { intercepted: true, open_request, stage: Stage::Opening, ..Self::new(socket) }
    }

    /// Whether a reset is the only refusal that can still reach it.
    pub(super) fn is_intercepted(&self) -> bool {
        self.intercepted
    }

    /// Whether it waits for the base's answer.
    pub(super) fn is_opening(&self) -> bool {
        self.stage == Stage::Opening
    }

    /// The target, if it may be asked for again after the association was lost. Nothing can have
    /// reached the fixed host, for the application waits for the answer.
    pub(super) fn retry_target(&self) -> Option<Target> {
        self.open_request.retry_target().filter(|_| self.stage == Stage::Opening)
    }

    /// Whether it is ended by a timeout: while its request or its close is outstanding.
    pub(super) fn may_time_out(&self) -> bool {
        matches!(self.stage, Stage::Requesting | Stage::Refused | Stage::Draining)
    }

    /// Reads and writes what it can.
    pub(super) fn advance(&mut self) -> Action {
        if self.stage == Stage::Requesting {
            let wish = self.read_request();
            if !matches!(wish, Action::Wait) {
                return wish;
            }
        }
        if !self.send_replies() {
            return Action::Close;
        }
        let answered = self.ingress.output().is_empty();
        match self.stage {
            Stage::Requesting => Action::Wait,
            Stage::Opening if self.is_gone() => Action::Close,
            Stage::Opening => Action::Wait,
            Stage::Admitted if answered && self.association.is_some() => {
                self.stage = Stage::Associated;
                self.drain()
            }
            Stage::Admitted if answered => Action::Relay,
            Stage::Refused if self.intercepted => Action::Close,
            Stage::Refused if answered => {
                tcp::shutdown_write(&self.socket.fd);
                self.stage = Stage::Draining;
                self.drain()
            }
            Stage::Admitted | Stage::Refused => Action::Wait,
            Stage::Draining | Stage::Associated => self.drain(),
        }
    }

    /// Whether nobody waits for the answer. An application that ends its direction before the answer
    /// has gone, as proxies take it; but one that is intercepted, or has sent bytes behind its request,
    /// may only have sent all that it has to send.
    fn is_gone(&self) -> bool {
        match tcp::connected(&self.socket.fd) {
            Some(Ok(())) => {
                !self.intercepted && self.ahead.is_empty() && tcp::has_ended(&self.socket.fd)
            }
            _ => true,
        }
    }

    fn read_request(&mut self) -> Action {
        let mut piece = [0; 4096];
        loop {
            let n = match self.socket.read(&mut piece) {
                Moved::Bytes(n) => n,
                Moved::Blocked => return Action::Wait,
                Moved::End | Moved::Broken(_) => return Action::Close,
            };
            let taken = self.ingress.handle_input(&piece[..n]);
            match taken.progress {
                // Its answers must not pile up.
                Progress::NeedMore => {
                    if !self.send_replies() {
                        return Action::Close;
                    }
                }
                Progress::Request(target) => {
                    self.ahead = piece.get(taken.bytes..n).unwrap_or_default().to_vec();
                    self.stage = Stage::Opening;
                    return if self.is_gone() { Action::Close } else { Action::Open(target) };
                }
                Progress::Associate(expected) => {
                    self.stage = Stage::Opening;
                    return if self.is_gone() {
                        Action::Close
                    } else {
                        Action::Associate(expected)
                    };
                }
                Progress::Over => {
                    self.stage = Stage::Refused;
                    return Action::Wait;
                }
            }
        }
    }

    /// Sends the ingress's replies; false if the connection is broken.
    fn send_replies(&mut self) -> bool {
        loop {
            let output = self.ingress.output();
            if output.is_empty() {
                return true;
            }
            match self.socket.write(output) {
                Moved::Bytes(n) => self.ingress.sent(n),
                Moved::Blocked | Moved::End => return true,
                Moved::Broken(_) => return false,
            }
        }
    }

    /// Closing with unread bytes would send a reset, which may overtake the answer.
    fn drain(&mut self) -> Action {
        let mut piece = [0; 4096];
        for _ in 0..AHEAD_MAX / piece.len() {
            match self.socket.read(&mut piece) {
                Moved::Bytes(_) => {}
                Moved::Blocked => return Action::Wait,
                Moved::End | Moved::Broken(_) => return Action::Close,
            }
        }
        Action::Close
    }

    /// The result of what it asked for.
    pub(super) fn answer(&mut self, result: Result<Option<SocketAddr>, Refusal>) {
        self.stage = if result.is_ok() { Stage::Admitted } else { Stage::Refused };
        if !self.intercepted {
            self.ingress.reply(result);
        }
    }

    /// The UDP association that it asked for is not to be had from this base.
    pub(super) fn decline_association(&mut self) {
        self.stage = Stage::Refused;
        self.ingress.decline_association();
    }

    /// The near and the far end of its connection, if that stands.
    pub(super) fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        let far = SockRef::from(&self.socket.fd).peer_addr().ok()?.as_socket()?;
        Some((tcp::local_addr(&self.socket.fd), far))
    }

    /// The socket, and what goes into the connection before its bytes.
    pub(super) fn into_relay(mut self) -> (Socket, Vec<u8>) {
        let mut preface = self.ingress.take_preface();
        preface.append(&mut self.ahead);
        (self.socket, preface)
    }
}
