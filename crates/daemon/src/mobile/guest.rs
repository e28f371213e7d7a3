//! An application on the mobile's listener, until its bytes are relayed.

use std::net::SocketAddr;

use lasthop_session::{Ingress, Progress, Refusal, Target};

use lasthop_kernel::tcp::{self, Moved, Socket};

/// Bytes that an application may send ahead of the answer.
const AHEAD_MAX: usize = 64 * 1024;

/// A base that is lost again and again is not asked for ever.
const ASKED_MAX: u32 = 4;

/// What an application waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// It says what it wants.
    Talking,
    /// The base opens the connection.
    Asking,
    /// The connection stands; the answer is being sent.
    Admitted,
    /// There is none; the answer is being sent.
    Dismissed,
    /// The answer was sent; it is given time to read it.
    Leaving,
}

/// What is to be done for an application.
#[derive(Debug)]
pub(super) enum Wish {
    /// Nothing until more happens.
    Wait,
    /// Open this.
    Open(Target),
    /// Relay.
    Relay,
    /// It is gone, or has had its answer.
    Leave,
}

/// What an application wants of the base.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// Where to, once it has said so.
    target: Option<Target>,
    /// How often the base was asked for it.
    asked: u32,
    /// Its own address, if the connection is to leave from there.
    source: Option<SocketAddr>,
}

impl Wanted {
    /// Nothing yet, but from `source` if one is asked for.
    pub(super) fn from(source: Option<SocketAddr>) -> Self {
        Self { source, ..Self::default() }
    }

    /// The address that the connection is to leave from, if one is asked for.
    pub(super) fn source(&self) -> Option<SocketAddr> {
        self.source
    }

    /// The base is being asked for it.
    pub(super) fn asking(&mut self, target: &Target) {
        self.target = Some(target.clone());
        self.asked += 1;
    }

    /// What a base may be asked for once more.
    pub(super) fn again(&self) -> Option<Target> {
        self.target.clone().filter(|_| self.asked < ASKED_MAX)
    }
}

/// An application.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(super) socket: Socket,
    ingress: Ingress,
    stage: Stage,
    pub(super) wanted: Wanted,
    /// It was intercepted: the kernel has told it that its connection stands.
    taken: bool,
    /// What it said beyond its wish.
    ahead: Vec<u8>,
}

impl Guest {
    /// Nothing was said.
    pub(super) fn new(socket: Socket) -> Self {
        Self {
            socket,
            ingress: Ingress::new(),
            stage: Stage::Talking,
            wanted: Wanted::default(),
            taken: false,
            ahead: Vec::new(),
        }
    }

    /// An intercepted application: what it wants is known, and no answer can be given any more but
    /// a reset. It has its own address in `source` if the connection is to leave from there.
    pub(super) fn taken(socket: Socket, source: Option<SocketAddr>) -> Self {
        let wanted = Wanted::from(source);
        Self { taken: true, wanted, stage: Stage::Asking, ..Self::new(socket) }
    }

    /// Whether a reset is all that it can be told.
    pub(super) fn is_taken(&self) -> bool {
        self.taken
    }

    /// Whether it waits for the base's answer.
    pub(super) fn is_asking(&self) -> bool {
        self.stage == Stage::Asking
    }

    /// What a base may be asked for once more, after the association was lost in which it was asked:
    /// nothing of it can have reached the fixed host, for the application waits for the answer.
    pub(super) fn wants_still(&self) -> Option<Target> {
        self.wanted.again().filter(|_| self.stage == Stage::Asking)
    }

    /// Whether it still has to say what it wants, or to go.
    pub(super) fn dawdles(&self) -> bool {
        matches!(self.stage, Stage::Talking | Stage::Dismissed | Stage::Leaving)
    }

    /// Says and hears what it can.
    pub(super) fn advance(&mut self) -> Wish {
        if self.stage == Stage::Talking {
            let wish = self.listen();
            if !matches!(wish, Wish::Wait) {
                return wish;
            }
        }
        if !self.talk() {
            return Wish::Leave;
        }
        let answered = self.ingress.output().is_empty();
        match self.stage {
            Stage::Talking => Wish::Wait,
            Stage::Asking if self.is_gone() => Wish::Leave,
            Stage::Asking => Wish::Wait,
            Stage::Admitted if answered => Wish::Relay,
            Stage::Dismissed if self.taken => Wish::Leave,
            Stage::Dismissed if answered => {
                tcp::shutdown_write(&self.socket.fd);
                self.stage = Stage::Leaving;
                self.leave()
            }
            Stage::Admitted | Stage::Dismissed => Wish::Wait,
            Stage::Leaving => self.leave(),
        }
    }

    /// Whether nobody waits for the answer. Who ends its direction before it has heard the answer has
    /// gone, as proxies take it; but an intercepted application, or one that has sent more behind its wish,
    /// may have ended what it has to say.
    fn is_gone(&self) -> bool {
        match tcp::connected(&self.socket.fd) {
            Some(Ok(())) => !self.taken && self.ahead.is_empty() && tcp::has_ended(&self.socket.fd),
            _ => true,
        }
    }

    fn listen(&mut self) -> Wish {
        let mut piece = [0; 4096];
        loop {
            let n = match self.socket.read(&mut piece) {
                Moved::Bytes(n) => n,
                Moved::Blocked => return Wish::Wait,
                Moved::End | Moved::Broken(_) => return Wish::Leave,
            };
            let taken = self.ingress.handle_input(&piece[..n]);
            match taken.progress {
                // Its answers must not pile up.
                Progress::NeedMore => {
                    if !self.talk() {
                        return Wish::Leave;
                    }
                }
                Progress::Request(target) => {
                    self.ahead = piece.get(taken.bytes..n).unwrap_or_default().to_vec();
                    self.stage = Stage::Asking;
                    return if self.is_gone() { Wish::Leave } else { Wish::Open(target) };
                }
                Progress::Over => {
                    self.stage = Stage::Dismissed;
                    return Wish::Wait;
                }
            }
        }
    }

    /// Sends what the ingress has to say; false if nobody hears it.
    fn talk(&mut self) -> bool {
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
    fn leave(&mut self) -> Wish {
        let mut piece = [0; 4096];
        for _ in 0..AHEAD_MAX / piece.len() {
            match self.socket.read(&mut piece) {
                Moved::Bytes(_) => {}
                Moved::Blocked => return Wish::Wait,
                Moved::End | Moved::Broken(_) => return Wish::Leave,
            }
        }
        Wish::Leave
    }

    /// The result of what it asked for.
    pub(super) fn answer(&mut self, result: Result<Option<SocketAddr>, Refusal>) {
        self.stage = if result.is_ok() { Stage::Admitted } else { Stage::Dismissed };
        if !self.taken {
            self.ingress.reply(result);
        }
    }

    /// The socket, and what goes into the connection before its bytes.
    pub(super) fn into_relay(mut self) -> (Socket, Vec<u8>) {
        let mut preface = self.ingress.take_preface();
        preface.append(&mut self.ahead);
        (self.socket, preface)
    }
}
