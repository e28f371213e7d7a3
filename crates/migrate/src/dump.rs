//! Reads connections out of the kernel.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use lasthop_kernel::sockopt::{self, Queue, Repair, SocketState};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::RecvFlags;

use super::error::MigrateError;
use super::image::{Image, QUEUE_MAX};
use super::settings::Settings;
use super::{Admin, Flow};

/// A queue is peeked from the beginning of its first buffer, part of which may be acknowledged
/// already: so much more than its length may come.
const SLACK: usize = 1 << 20;
/// A packet that was under way when the four-tuple was frozen may still arrive while the connection
/// is read; then it is read again.
const ATTEMPTS: usize = 4;

/// Said of a connection whose image could not be sent.
const TOO_LONG: &str = "its queues are too long";

/// Said of what cannot be.
const LOST: &str = "it was lost";

/// What was read out of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Dumped {
    /// A connection, which [`restore_all`](super::restore_all) makes anew.
    Image(Box<Image>),
    /// Bytes that are left to be read, and the peer's end behind them, of a connection of which both
    /// ends are sent and acknowledged: there is nothing to make anew.
    Rest(Vec<u8>),
}

/// A connection that was not read out. It is unharmed and goes on.
#[derive(Debug)]
pub struct Failed {
    /// The connection.
    pub fd: OwnedFd,
    /// What stood in the way.
    pub error: MigrateError,
}

/// Reads connections out of the kernel and closes them there without a word; outcomes are in the
/// order of the descriptors. What both ends send of the four-tuples is dropped from the first
/// moment on, in one step for all, and stays so until [`Admin::thaw`]: call that when packets for
/// the mobile go elsewhere, or when something else keeps this host from answering them
/// ([`Admin::guard`]). Thousands of connections take some ten milliseconds.
///
/// # Errors
///
/// [`Failed`] for each that could not be read, with the connection, which goes on as if nothing had
/// happened: what was dropped meanwhile its ends send again.
pub fn dump_all(admin: &mut Admin, fds: Vec<OwnedFd>) -> Vec<Result<Dumped, Box<Failed>>> {
    let dumps = dumps(admin, &fds);
    let outcome = |(fd, dumped): (OwnedFd, Outcome)| {
        if let Ok(Dumped::Image(_)) = dumped {
            // Neither this nor a close says anything in repair. A close alone would leave the connection to
            // acknowledge what nobody reads if a process that is being started has the descriptor, too.
            let _ = rustix::net::connect_unspec(&fd);
        }
        dumped.map_err(|error| Box::new(Failed { fd, error }))
    };
    fds.into_iter().zip(dumps).map(outcome).collect()
}

/// What came of a connection.
type Outcome = Result<Dumped, MigrateError>;

/// What is read of connections, in their order; those of which nothing could be had go on, and the
/// others stay in repair.
fn dumps(admin: &mut Admin, fds: &[OwnedFd]) -> Vec<Outcome> {
    let mut scratch = Vec::new();
    let inspections: Vec<Inspection> =
        fds.iter().map(|fd| inspect(fd.as_fd(), &mut scratch)).collect();
    let standing: Vec<(BorrowedFd<'_>, Flow)> = fds
        .iter()
        .zip(&inspections)
        .filter_map(|(fd, inspection)| match inspection {
            Inspection::Movable(flow) => Some((fd.as_fd(), *flow)),
            Inspection::Done(_) => None,
        })
        .collect();
    let mut dumps = read_all(admin, &standing, &mut scratch).into_iter();
    inspections
        .into_iter()
        .map(|inspection| match inspection {
            Inspection::Done(outcome) => *outcome,
            Inspection::Movable(_) => dumps.next().unwrap_or(Err(MigrateError::State(LOST))),
        })
        .collect()
}

/// What a connection is found to be.
enum Inspection {
    /// It can move.
    Movable(Flow),
    /// It is over or cannot move, which is known without stopping it.
    Done(Box<Outcome>),
}

fn inspect(fd: BorrowedFd<'_>, scratch: &mut Vec<u8>) -> Inspection {
    let state = sockopt::info(fd).map_err(MigrateError::kernel("read TCP_INFO"));
    let flow = || Flow::of(fd).map_err(MigrateError::kernel("read the ends of a connection"));
    let done = match state.map(|info| info.state) {
        Ok(SocketState::Other(SocketState::SYN_SENT | SocketState::SYN_RECEIVED)) => {
            Err(MigrateError::NotYet)
        }
        Ok(SocketState::Other(_)) => rest(fd, scratch),
        Ok(_) => match flow() {
            Ok(flow) => return Inspection::Movable(flow),
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    Inspection::Done(Box::new(done))
}

/// What is left to read of a connection of which both ends are sent and acknowledged.
fn rest(fd: BorrowedFd<'_>, scratch: &mut Vec<u8>) -> Outcome {
    let seen = poll(fd, PollFlags::RDHUP).map_err(MigrateError::kernel("look at a connection"))?;
    if seen.contains(PollFlags::ERR) || !seen.contains(PollFlags::RDHUP) {
        return Err(MigrateError::Over);
    }
    let kernel = || MigrateError::kernel("read the rest of a connection");
    let unread = sockopt::unread(fd).map_err(kernel())? as usize;
    if unread > QUEUE_MAX {
        return Err(MigrateError::State(TOO_LONG));
    }
    let unread = peek_received(fd, unread, scratch).map_err(kernel())?;
    unread.map(Dumped::Rest).ok_or(MigrateError::Over)
}

/// What is read of connections that stand, in their order; those of which nothing could be had go on.
fn read_all(
    admin: &mut Admin,
    standing: &[(BorrowedFd<'_>, Flow)],
    scratch: &mut Vec<u8>,
) -> Vec<Outcome> {
    if standing.is_empty() {
        return Vec::new();
    }
    let (fds, flows): (Vec<_>, Vec<_>) = standing.iter().copied().unzip();
    let entered = admin.freeze(&flows).and_then(|()| admin.repair(&fds, Repair::On));
    let dumps: Vec<Outcome> = match entered {
        Ok(entered) => entered
            .into_iter()
            .zip(standing)
            .map(|(entered, (fd, flow))| {
                entered.map_err(MigrateError::kernel("stop a connection (TCP_REPAIR)"))?;
                read(*fd, *flow, scratch)
            })
            .collect(),
        Err(error) => {
            let said = error.to_string();
            let again = || MigrateError::Refused { doing: "move connections", said: said.clone() };
            standing.iter().map(|_| Err(again())).collect()
        }
    };
    let which = |wanted: fn(&Outcome) -> bool| {
        let both = dumps.iter().zip(standing).filter(move |(outcome, _)| wanted(outcome));
        both.map(|(_, connection)| *connection).unzip::<_, _, Vec<_>, Vec<_>>()
    };
    let (failed, mut thawed) = which(Result::is_err);
    leave_repair(admin, &failed);
    thawed.extend(which(|outcome| matches!(outcome, Ok(Dumped::Rest(_)))).1);
    let _ = admin.thaw(&thawed);
    dumps
}

/// Takes connections out of repair.
fn leave_repair(admin: &mut Admin, fds: &[BorrowedFd<'_>]) {
    let done = if fds.is_empty() { Ok(Vec::new()) } else { admin.repair(fds, Repair::OffSilently) };
    if done.is_err() {
        // The helper is gone; we may have the privilege ourselves.
        fds.iter().for_each(|fd| drop(sockopt::set_repair(*fd, Repair::OffSilently)));
    }
}

/// Reads a connection that is frozen and in repair.
fn read(fd: BorrowedFd<'_>, flow: Flow, scratch: &mut Vec<u8>) -> Outcome {
    let kernel = MigrateError::kernel("read a connection out");
    let unread = sockopt::unread(fd).map_err(MigrateError::kernel("read a queue's length"))?;
    let outstanding = sockopt::unacknowledged(fd);
    let outstanding = outstanding.map_err(MigrateError::kernel("read a queue's length"))?;
    if unread.max(outstanding) as usize > QUEUE_MAX {
        return Err(MigrateError::State(TOO_LONG));
    }
    let settings =
        Settings::of(fd).map_err(MigrateError::kernel("read a connection's settings"))?;
    let mut over = false;
    let mut attempt = || -> io::Result<Option<Image>> {
        for _ in 0..ATTEMPTS {
            let before = Marks::of(fd)?;
            if before.is_over() {
                over = true;
                break;
            }
            let image = read_once(fd, flow, &before, settings.clone(), scratch)?;
            if image.is_some() && Marks::of(fd)? == before {
                return Ok(image);
            }
        }
        Ok(None)
    };
    let image = attempt().map_err(kernel)?;
    if over {
        sockopt::select_queue(fd, Queue::Receive)
            .map_err(MigrateError::kernel("select a queue"))?;
        return rest(fd, scratch);
    }
    let _ = sockopt::select_queue(fd, Queue::Neither);
    image
        .map(|image| Dumped::Image(Box::new(image)))
        .ok_or(MigrateError::State("its queues do not hold still"))
}

/// Where a connection is. One that is the same before and after has not changed in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Marks {
    state: SocketState,
    received_end: bool,
    rcv_nxt: u32,
    unread: u32,
    write_seq: u32,
    unacknowledged: u32,
}

impl Marks {
    fn of(fd: BorrowedFd<'_>) -> io::Result<Self> {
        sockopt::select_queue(fd, Queue::Receive)?;
        let rcv_nxt = sockopt::queue_seq(fd)?;
        sockopt::select_queue(fd, Queue::Send)?;
        let write_seq = sockopt::queue_seq(fd)?;
        Ok(Self {
            state: sockopt::info(fd)?.state,
            // The state does not tell it of a connection that was moved before.
            received_end: reads_end(fd)?,
            rcv_nxt,
            unread: sockopt::unread(fd)?,
            write_seq,
            unacknowledged: sockopt::unacknowledged(fd)?,
        })
    }

    /// Whether both ends are sent and acknowledged. A connection that was moved before does not
    /// know that its peer's was received.
    fn is_over(&self) -> bool {
        let both = self.state == SocketState::FinWait2 && self.received_end;
        both || matches!(self.state, SocketState::Other(_))
    }

    fn sent_end(&self) -> bool {
        use SocketState::{Closing, FinWait1, FinWait2, LastAck};
        matches!(self.state, FinWait1 | FinWait2 | Closing | LastAck)
    }

    /// The sequence number behind the last byte that was written; our end has it if we sent one.
    fn end_of_bytes(&self) -> u32 {
        self.write_seq.wrapping_sub(u32::from(self.sent_end()))
    }

    /// Bytes in the send queue, and where they begin.
    fn outstanding(&self) -> (usize, u32) {
        let una = self.write_seq.wrapping_sub(self.unacknowledged);
        let bytes = self.end_of_bytes().wrapping_sub(una);
        // Our end may be acknowledged; then so is all before it.
        if bytes > self.unacknowledged { (0, self.end_of_bytes()) } else { (bytes as usize, una) }
    }
}

/// One reading; nothing if what was read does not fit the marks.
fn read_once(
    fd: BorrowedFd<'_>,
    flow: Flow,
    marks: &Marks,
    settings: Settings,
    scratch: &mut Vec<u8>,
) -> io::Result<Option<Image>> {
    let info = sockopt::info(fd)?;
    let (outstanding, snd_una) = marks.outstanding();
    // Selected already: the send queue.
    let unsent = sockopt::unsent(fd)?.saturating_sub(u32::from(marks.sent_end())) as usize;
    let Some(mut unacknowledged) = peek_sent(fd, outstanding, scratch)? else { return Ok(None) };
    let unsent = unacknowledged.split_off(outstanding - unsent.min(outstanding));
    sockopt::select_queue(fd, Queue::Receive)?;
    let unread = peek_received(fd, marks.unread as usize, scratch)?;
    let Some(unread) = unread else { return Ok(None) };
    Ok(Some(Image {
        flow,
        received_end: marks.received_end,
        sent_end: marks.sent_end(),
        mss: sockopt::mss_clamp(fd)?.clamp(1, u32::from(u16::MAX)),
        scales: info.window_scaling.then_some((info.snd_wscale, info.rcv_wscale)),
        sack: info.sack,
        timestamp: if info.timestamps { Some(sockopt::timestamp(fd)?) } else { None },
        rcv_nxt: marks.rcv_nxt,
        unread,
        snd_una,
        unacknowledged,
        unsent,
        window: sockopt::window(fd)?,
        buffers: sockopt::buffers(fd)?,
        settings,
        held: None,
    }))
}

/// The last `length` bytes of the send queue, which is selected.
fn peek_sent(
    fd: BorrowedFd<'_>,
    length: usize,
    scratch: &mut Vec<u8>,
) -> io::Result<Option<Vec<u8>>> {
    if length == 0 {
        return Ok(Some(Vec::new()));
    }
    let room = room(scratch, length + SLACK);
    let got = peek(fd, room)?;
    Ok(got.checked_sub(length).and_then(|from| room.get(from..got)).map(<[u8]>::to_vec))
}

/// The first `length` bytes of the receive queue, which is selected if the connection is in repair.
fn peek_received(
    fd: BorrowedFd<'_>,
    length: usize,
    scratch: &mut Vec<u8>,
) -> io::Result<Option<Vec<u8>>> {
    if length == 0 {
        return Ok(Some(Vec::new()));
    }
    let room = room(scratch, length);
    let got = peek(fd, room)?;
    if got == length {
        return Ok(Some(room.to_vec()));
    }
    // It has stopped at a mark of urgent data, which only what begins behind the mark gets past.
    sockopt::set_peek_offset(fd, Some(got))?;
    let rest = peek_on(fd, &mut room[got..]);
    sockopt::set_peek_offset(fd, None)?;
    Ok((rest? == length - got).then(|| room.to_vec()))
}

/// Fills `room` in several steps, each of which begins where the last one ended.
fn peek_on(fd: BorrowedFd<'_>, room: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < room.len() {
        match peek(fd, &mut room[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}

fn peek(fd: BorrowedFd<'_>, room: &mut [u8]) -> io::Result<usize> {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let (_, got) = rustix::io::retry_on_intr(|| rustix::net::recv(fd, &mut *room, flags))?;
    Ok(got.min(room.len()))
}

fn room(scratch: &mut Vec<u8>, length: usize) -> &mut [u8] {
    if scratch.len() < length {
        scratch.resize(length, 0);
    }
    &mut scratch[..length]
}

/// Whether a reader finds the end behind what is there.
fn reads_end(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(poll(fd, PollFlags::RDHUP)?.contains(PollFlags::RDHUP))
}

fn poll(fd: BorrowedFd<'_>, flags: PollFlags) -> io::Result<PollFlags> {
    let mut polled = [PollFd::from_borrowed_fd(fd, flags)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, Some(&now)))?;
    Ok(polled[0].revents())
}
