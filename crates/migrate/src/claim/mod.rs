//! Takes connections over that a base had which is dead: what nobody else knows of them the fixed hosts are asked.
//!
//! A [`Ticket`] says how a connection began, and its mobile how much it has received, and which bytes it has sent and
//! keeps. How many of those have reached the fixed host only that knows. A segment that it has already it answers by how
//! far it is (RFC 9293 section 3.10.7.4), which is all that is missing for an [`Image`].

mod listen;
mod question;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use thiserror::Error;

use self::listen::Ear;
use self::question::{Ends, Word, read};
use super::ack_filter::Injector;
use super::image::Image;
use super::ticket::Ticket;

/// Who does not answer is asked again after so long, then after twice that, up to the second.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// After so many questions it is heard who has answered.
const BURST: usize = 64;
/// When the kernel takes no more packets, it has made room so much later.
const ROOM_PAUSE: Duration = Duration::from_millis(1);
/// Nobody waits longer.
const PATIENCE_MAX: Duration = Duration::from_secs(3600);
/// The share of the patience for those that are silent when others have answered.
const BESIDE_OTHERS: u32 = 4;
/// So many times as long as the slowest answer so far the others may take.
const SLOWER: u32 = 4;

/// A connection that stood at a base which is dead, and what its mobile says of it. Bytes are counted from the first of the
/// connection in each direction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// How it began.
    pub ticket: Ticket,
    /// Bytes of the fixed host's that the mobile has: what is behind them is still to come. No more may ever have been
    /// acknowledged.
    pub received: u64,
    /// The mobile has the fixed host's end, too, behind these bytes.
    pub received_end: bool,
    /// The first of its own bytes that the mobile still keeps: the fixed host has what is before.
    pub kept: u64,
    /// Behind the last byte that the mobile has ever sent.
    pub sent: u64,
    /// There the mobile has sent its end.
    pub sent_end: bool,
}

/// A connection of which everything is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claimed {
    /// To be given to [`restore_all`](super::restore_all), by which nothing is sent. What the dead base had sent and the fixed
    /// host gets late, or holds behind what was lost, it may acknowledge before it is sent again: the connection must be
    /// [resumed](super::Holding::resume) as this says, by which the kernel understands that.
    pub image: Image,
    /// So many of the mobile's bytes the fixed host has: the next to be written to the connection is this.
    pub up: u64,
    /// The fixed host has the mobile's end, too. Otherwise it is to be sent behind the last byte, if the mobile has ended.
    pub up_end: bool,
}

/// Why a connection is not taken over.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ClaimError {
    /// Raw packets cannot be sent or heard here.
    #[error("fixed hosts cannot be asked how far their connections are: {tried}")]
    NotHere {
        /// What was tried, and what happened.
        tried: String,
    },
    /// No mobile can mean that.
    #[error("the claim is wrong: {0}")]
    Wrong(&'static str),
    /// The fixed host knows no such connection.
    #[error("the fixed host has ended the connection by a reset")]
    Gone,
    /// The fixed host has what the mobile does not know of.
    #[error("the fixed host has {has} of the mobile's bytes, which has sent {sent}")]
    Beyond {
        /// Bytes, with an end as one.
        has: u64,
        /// Bytes.
        sent: u64,
    },
    /// No question could be sent.
    #[error("the fixed host could not be asked how far the connection is: {said}")]
    NotAsked {
        /// The kernel's error.
        said: String,
    },
    /// Nothing that makes sense was heard in time.
    #[error("the fixed host does not answer how far the connection is")]
    Silent,
}

/// Asks the fixed hosts of these connections, each of which is another, how far each is; outcomes are in the order of the
/// claims. Who does not answer is asked again, for as long as `patience` says if nobody does: a path with a full queue
/// takes long. Once others have answered, a quarter of it or four times what the slowest of them took is enough, so that
/// one dead server does not hold up the rest. Packets for the mobiles must come to this host, and nothing here may answer
/// them. Blocks, and works in the calling thread's network namespace. Needs
/// `CAP_NET_RAW`.
///
/// # Errors
///
/// [`ClaimError`] for each. Then nothing has changed at its fixed host.
pub fn claim_all(claims: &[Claim], patience: Duration) -> Vec<Result<Claimed, ClaimError>> {
    if claims.is_empty() {
        return Vec::new();
    }
    match Asking::new(claims, patience) {
        Ok(asking) => asking.ask(),
        Err(error) => claims.iter().map(|_| Err(error.clone())).collect(),
    }
}

/// Questions that are asked at once.
struct Asking<'a> {
    injector: Injector,
    ears: Vec<Ear>,
    answers: Answers<'a>,
    began: Instant,
    patience: Duration,
    /// The last answer came so long after the first question.
    slowest: Option<Duration>,
}

/// What has come of questions so far.
struct Answers<'a> {
    questions: Vec<Question<'a>>,
    by_ends: HashMap<Ends, usize>,
    /// Questions without an outcome.
    open: usize,
}

struct Question<'a> {
    claim: &'a Claim,
    packet: Vec<u8>,
    state: State,
    outcome: Option<Result<Claimed, ClaimError>>,
}

/// Why there is no outcome.
enum State {
    /// It was never sent, and why if that was tried.
    NotAsked(Option<io::Error>),
    Asked,
    /// It was answered like this.
    Beyond(u64),
}

impl<'a> Question<'a> {
    fn new(claim: &'a Claim) -> Self {
        let packet = claim.question();
        let wrong = || Err(ClaimError::Wrong("its ends are of different versions of IP"));
        let outcome = claim.check().err().map(Err);
        let outcome = outcome.or_else(|| packet.is_none().then(wrong));
        let (packet, state) = (packet.unwrap_or_default(), State::NotAsked(None));
        Self { claim, packet, state, outcome }
    }

    /// What has come of it when nothing will come any more.
    fn end(self) -> Result<Claimed, ClaimError> {
        let silent = || match self.state {
            State::NotAsked(Some(error)) => ClaimError::NotAsked { said: error.to_string() },
            State::Beyond(has) => ClaimError::Beyond { has, sent: self.claim.sent },
            _ => ClaimError::Silent,
        };
        self.outcome.unwrap_or_else(|| Err(silent()))
    }
}

impl Answers<'_> {
    fn hear(&mut self, packet: &[u8]) {
        let Some((ends, segment)) = read(packet) else { return };
        let question = self.by_ends.get(&ends).and_then(|n| self.questions.get_mut(*n));
        let Some(question) = question else { return };
        // What came before the question answers something else, and may be older than the dead base's last bytes.
        if question.outcome.is_some() || matches!(question.state, State::NotAsked(_)) {
            return;
        }
        question.outcome = match question.claim.hear(&segment) {
            Word::Nothing => return,
            // Who forges this should not win against who tells the truth, which may still come.
            Word::Beyond(has) => {
                question.state = State::Beyond(has);
                return;
            }
            Word::Gone => Some(Err(ClaimError::Gone)),
            Word::Answer(claimed) => Some(Ok(*claimed)),
        };
        self.open -= 1;
    }
}

impl<'a> Asking<'a> {
    fn new(claims: &'a [Claim], patience: Duration) -> Result<Self, ClaimError> {
        let fail = |e: &dyn fmt::Display| ClaimError::NotHere { tried: e.to_string() };
        let injector = Injector::open().map_err(|e| fail(&e))?;
        let addresses = claims.iter().map(|claim| claim.ends().0.ip());
        let ears = Ear::open(addresses)
            .map_err(|e| fail(&format_args!("cannot listen for answers: {e}")))?;
        let questions: Vec<Question<'_>> = claims.iter().map(Question::new).collect();
        let by_ends = claims.iter().enumerate().map(|(n, claim)| (claim.ends(), n)).collect();
        let open = questions.iter().filter(|question| question.outcome.is_none()).count();
        let answers = Answers { questions, by_ends, open };
        let (began, patience) = (Instant::now(), patience.min(PATIENCE_MAX));
        Ok(Self { injector, ears, answers, began, patience, slowest: None })
    }

    fn ask(mut self) -> Vec<Result<Claimed, ClaimError>> {
        let mut pause = FIRST_PAUSE;
        loop {
            self.send();
            self.listen(pause);
            if self.answers.open == 0 || Instant::now() >= self.end() {
                break;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        self.answers.questions.into_iter().map(Question::end).collect()
    }

    /// Who is silent then is not waited for.
    fn end(&self) -> Instant {
        let beside = |slowest: Duration| (slowest * SLOWER).max(self.patience / BESIDE_OTHERS);
        self.began + self.slowest.map_or(self.patience, beside).min(self.patience)
    }

    /// Sends all questions that have no outcome, and hears answers in between.
    fn send(&mut self) {
        for n in 0..self.answers.questions.len() {
            if n % BURST == 0 {
                self.hear();
            }
            while !self.send_one(n) && Instant::now() < self.end() {
                self.listen(ROOM_PAUSE);
            }
        }
    }

    /// `false` if the kernel takes no packet now.
    fn send_one(&mut self, n: usize) -> bool {
        let Some(question) = self.answers.questions.get_mut(n) else { return true };
        if question.outcome.is_some() {
            return true;
        }
        let to = SocketAddr::new(question.claim.ticket.flow.remote.ip(), 0);
        let outcome = self.injector.send_packet(&question.packet, to);
        match (outcome, &mut question.state) {
            (Err(e), _) if is_full(&e) => return false,
            (Ok(()), state @ State::NotAsked(_)) => *state = State::Asked,
            // A route may come.
            (Err(e), State::NotAsked(error)) => *error = Some(e),
            _ => {}
        }
        true
    }

    /// Listens for so long, or until all have answered or are not waited for.
    fn listen(&mut self, pause: Duration) {
        let until = Instant::now() + pause;
        loop {
            let more = self.hear();
            let left = until.min(self.end()).saturating_duration_since(Instant::now());
            if self.answers.open == 0 || left.is_zero() {
                return;
            }
            if more {
                continue;
            }
            let mut polled: Vec<PollFd<'_>> =
                self.ears.iter().map(|ear| PollFd::new(ear, PollFlags::IN)).collect();
            // Whatever else ends it is one more look.
            let _ = rustix::event::poll(&mut polled, Timespec::try_from(left).ok().as_ref());
        }
    }

    /// Takes what has come. `true` if there may be more.
    fn hear(&mut self) -> bool {
        let answers = &mut self.answers;
        let open = answers.open;
        let mut more = false;
        for ear in &self.ears {
            more |= ear.hear(|packet| answers.hear(packet));
        }
        if answers.open < open {
            self.slowest = Some(self.began.elapsed());
        }
        more
    }
}

/// Whether there is no room for a packet at the moment.
fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
        || error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error())
}
