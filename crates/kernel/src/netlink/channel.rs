//! A netlink socket: messages out, answers in.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::Duration;

use netlink_packet_core::{
    ErrorMessage, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer,
    NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_sys::Socket;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::NetlinkError;
use super::attributes::Attributes;
use super::message::Message;

/// Longer than any answer: the kernel fills 32 KiB at most, and more only for an interface with
/// hundreds of virtual functions.
const BUFFER: usize = 64 * 1024;
/// How long the kernel may take to answer; another process may hold its lock meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a list is requested that changes while it is sent, and anything whose answer is lost.
const ATTEMPTS: usize = 10;
/// How long a kernel without memory is left alone before the next attempt.
const PAUSE: Duration = Duration::from_millis(2);
/// The kernel's own netlink address.
const KERNEL: u32 = 0;
/// A message's header (RFC 3549, 2.3.2).
const HEADER: usize = 16;
/// The kernel's words in an extended acknowledgement (`NLMSGERR_ATTR_MSG`).
const ATTRIBUTE_WORDS: u16 = 1;

/// What one read brought.
pub(super) enum Read {
    /// Messages; `true` if they were all understood.
    Some(bool),
    /// Nothing is there.
    Empty,
    /// The kernel had more to tell than the socket could hold, and dropped it.
    Overrun,
}

/// A netlink socket.
#[derive(Debug)]
pub(super) struct Channel {
    socket: Socket,
    buffer: Vec<u8>,
    sequence: u32,
}

impl Channel {
    /// A socket for questions and orders of a protocol (`NETLINK_*`).
    pub(super) fn open(protocol: isize) -> Result<Self, NetlinkError> {
        let channel = Self::bound(protocol, &[])?;
        set_socket_timeout(&channel.socket, Timeout::Recv, Some(PATIENCE))
            .map_err(|e| NetlinkError::Socket(e.into()))?;
        Ok(channel)
    }

    /// A socket that receives notifications of `groups`, and never waits.
    pub(super) fn listening(protocol: isize, groups: &[u32]) -> Result<Self, NetlinkError> {
        let channel = Self::bound(protocol, groups)?;
        channel.socket.set_non_blocking(true).map_err(NetlinkError::Socket)?;
        Ok(channel)
    }

    fn bound(protocol: isize, groups: &[u32]) -> Result<Self, NetlinkError> {
        let mut socket = Socket::new(protocol).map_err(NetlinkError::Socket)?;
        socket.bind_auto().map_err(NetlinkError::Socket)?;
        // Without these an error has no words, and carries the whole request along.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        for group in groups {
            socket.add_membership(*group).map_err(NetlinkError::Socket)?;
        }
        Ok(Self { socket, buffer: vec![0; BUFFER], sequence: 0 })
    }

    /// Gives an order and waits until the kernel has carried it out; `what` it is, for the error.
    pub(super) fn order(
        &mut self,
        message: Message,
        flags: u16,
        what: &dyn Fn() -> String,
    ) -> Result<(), NetlinkError> {
        for attempt in 0..ATTEMPTS {
            self.send(message.clone(), flags | NLM_F_ACK)?;
            match self.acknowledged(what)? {
                // An order whose answer was lost has been carried out before.
                Some(Err(e)) if attempt > 0 && (e.is_present() || e.is_absent()) => return Ok(()),
                Some(verdict) => return verdict,
                None => {}
            }
        }
        Err(lost(what))
    }

    /// The kernel's verdict; none if it was lost.
    fn acknowledged(
        &mut self,
        what: &dyn Fn() -> String,
    ) -> Result<Option<Result<(), NetlinkError>>, NetlinkError> {
        let mut answer = None;
        while answer.is_none() {
            let whole = self.answers(what, &mut |payload, _| {
                if let NetlinkPayload::Error(error) = payload {
                    answer = Some(verdict(&error, what));
                }
            })?;
            if !whole {
                break;
            }
        }
        Ok(answer)
    }

    /// Gives orders that are carried out together or not at all, and waits; as
    /// [`order`](Self::order), but with the flags of each.
    pub(super) fn order_all(
        &mut self,
        messages: &[(Message, u16)],
        what: &dyn Fn() -> String,
    ) -> Result<(), NetlinkError> {
        self.next_sequence();
        let bytes: Vec<u8> = messages
            .iter()
            .flat_map(|(message, flags)| self.bytes(message.clone(), *flags))
            .collect();
        self.transmit(&bytes)?;
        self.acknowledged(what)?.unwrap_or_else(|| Err(lost(what)))
    }

    /// Says something that is not answered.
    pub(super) fn send_unanswered(&mut self, message: Message) -> Result<(), NetlinkError> {
        self.send(message, 0)
    }

    /// From here on it is listened to without waiting.
    pub(super) fn never_wait(&self) -> Result<(), NetlinkError> {
        self.socket.set_non_blocking(true).map_err(NetlinkError::Socket)
    }

    /// Asks for one thing.
    pub(super) fn query(
        &mut self,
        question: Message,
        what: &dyn Fn() -> String,
    ) -> Result<Message, NetlinkError> {
        for _ in 0..ATTEMPTS {
            self.send(question.clone(), 0)?;
            let (mut answer, mut whole) = (None, true);
            while answer.is_none() && whole {
                whole = self.answers(what, &mut |payload, _| match payload {
                    NetlinkPayload::InnerMessage(message) => answer = Some(Ok(message)),
                    NetlinkPayload::Error(error) => answer = verdict(&error, what).err().map(Err),
                    _ => {}
                })?;
            }
            if let Some(answer) = answer {
                return answer;
            }
        }
        Err(lost(what))
    }

    /// Asks for a list, and keeps what `each` makes of its messages; asks again if the list changed
    /// while it was sent.
    pub(super) fn list<T>(
        &mut self,
        question: &Message,
        what: &dyn Fn() -> String,
        each: impl Fn(&Message) -> Option<T>,
    ) -> Result<Vec<T>, NetlinkError> {
        for _ in 0..ATTEMPTS {
            if let Some(list) = self.list_once(question.clone(), what, &each)? {
                return Ok(list);
            }
        }
        Err(NetlinkError::Strange { what: what(), why: "changes faster than it can be read" })
    }

    fn list_once<T>(
        &mut self,
        question: Message,
        what: &dyn Fn() -> String,
        each: &impl Fn(&Message) -> Option<T>,
    ) -> Result<Option<Vec<T>>, NetlinkError> {
        self.send(question, NLM_F_DUMP)?;
        let (mut list, mut end, mut whole) = (Vec::new(), None, true);
        while end.is_none() {
            let all = self.answers(what, &mut |payload, header| {
                whole &= header.flags & NLM_F_DUMP_INTR == 0;
                match payload {
                    NetlinkPayload::InnerMessage(message) => list.extend(each(&message)),
                    NetlinkPayload::Done(_) => end = Some(Ok(())),
                    NetlinkPayload::Error(error) => end = Some(verdict(&error, what)),
                    _ => {}
                }
            })?;
            if !all {
                return Ok(None);
            }
        }
        end.unwrap_or(Ok(()))?;
        Ok(whole.then_some(list))
    }

    /// Asks for a list without waiting for it; the number that the answers carry.
    pub(super) fn request(&mut self, question: Message) -> Result<u32, NetlinkError> {
        self.send(question, NLM_F_DUMP)?;
        Ok(self.sequence)
    }

    fn send(&mut self, message: Message, flags: u16) -> Result<(), NetlinkError> {
        self.next_sequence();
        // An unconnected netlink socket sends to the kernel.
        let bytes = self.bytes(message, flags);
        self.transmit(&bytes)
    }

    /// Hands bytes to the kernel, which may have no memory for them at the moment.
    fn transmit(&self, bytes: &[u8]) -> Result<(), NetlinkError> {
        let mut attempts = 1;
        loop {
            let Err(error) = self.socket.send(bytes, 0) else { return Ok(()) };
            match Errno::from_io_error(&error) {
                Some(Errno::INTR) => {}
                Some(Errno::NOBUFS | Errno::NOMEM) if attempts < ATTEMPTS => {
                    attempts += 1;
                    thread::sleep(PAUSE);
                }
                _ => return Err(NetlinkError::Socket(error)),
            }
        }
    }

    fn next_sequence(&mut self) {
        self.sequence = self.sequence.wrapping_add(1).max(1);
    }

    fn bytes(&self, message: Message, flags: u16) -> Vec<u8> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    /// Reads once, and hands over what answers the latest request. False if some of it was lost.
    fn answers(
        &mut self,
        what: &dyn Fn() -> String,
        each: &mut dyn FnMut(NetlinkPayload<Message>, &NetlinkHeader),
    ) -> Result<bool, NetlinkError> {
        let sequence = self.sequence;
        let read = self.read(&mut |message| {
            let (header, payload) = message.into_parts();
            // An answer to a request that was given up may still come.
            if header.sequence_number == sequence {
                each(payload, &header);
            }
        });
        match read {
            Ok(Read::Some(_)) => Ok(true),
            Ok(Read::Empty) => Err(NetlinkError::Strange { what: what(), why: "does not come" }),
            Ok(Read::Overrun) => Ok(false),
            Err(error) => Err(NetlinkError::Socket(error)),
        }
    }

    /// Reads once, and hands over every message that is understood.
    pub(super) fn read(
        &mut self,
        each: &mut dyn FnMut(NetlinkMessage<Message>),
    ) -> io::Result<Read> {
        let (length, from) = loop {
            // The flag makes the kernel tell the true length.
            match self.socket.recv_from(&mut &mut self.buffer[..], libc::MSG_TRUNC) {
                Ok(read) => break read,
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::INTR) => {}
                    Some(Errno::AGAIN) => return Ok(Read::Empty),
                    Some(Errno::NOBUFS) => return Ok(Read::Overrun),
                    _ => return Err(error),
                },
            }
        };
        // Only the kernel is trusted.
        if from.port_number() != KERNEL {
            return Ok(Read::Some(true));
        }
        let Some(read) = self.buffer.get(..length) else { return Ok(Read::Overrun) };
        Ok(Read::Some(messages(read, each)))
    }

    /// Lets the kernel hold no more than about `bytes` for this socket.
    #[cfg(test)]
    pub(super) fn set_buffer(&self, bytes: usize) {
        rustix::net::sockopt::set_socket_recv_buffer_size(&self.socket, bytes).unwrap();
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Hands over the messages of one read that are understood; whether all were.
pub(super) fn messages(mut rest: &[u8], each: &mut dyn FnMut(NetlinkMessage<Message>)) -> bool {
    let mut understood = true;
    while let Ok(frame) = NetlinkBuffer::new_checked(rest) {
        let length = frame.length() as usize;
        match NetlinkMessage::deserialize(rest) {
            Ok(message) => each(message),
            Err(error) => {
                understood = false;
                tracing::debug!(%error, "malformed netlink message");
            }
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    understood
}

fn lost(what: &dyn Fn() -> String) -> NetlinkError {
    NetlinkError::Strange { what: what(), why: "is lost again and again" }
}

/// What an acknowledgement says.
pub(super) fn verdict(error: &ErrorMessage, what: &dyn Fn() -> String) -> Result<(), NetlinkError> {
    if error.code.is_none() {
        return Ok(());
    }
    let source = io::Error::from_raw_os_error(error.raw_code().saturating_abs());
    if Errno::from_io_error(&source) == Some(Errno::PERM) {
        return Err(NetlinkError::NotPermitted { what: what() });
    }
    let attributes = error.header.get(HEADER..).unwrap_or_default();
    let said = Attributes(attributes)
        .find(ATTRIBUTE_WORDS)
        .map(|words| String::from_utf8_lossy(words.0).trim_end_matches('\0').to_owned())
        .unwrap_or_default();
    Err(NetlinkError::Refused { what: what(), said, source })
}
