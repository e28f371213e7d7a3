//! Many datagrams in one system call: `recvmmsg` and `sendmmsg`.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use socket2::{SockAddr, SockAddrStorage};

use crate::mac::Mac;

/// The most messages in one call.
pub const BATCH: usize = 64;

/// From whom a message came, as the kernel tells it.
#[derive(Clone, Copy)]
pub struct Sender<'a>(&'a SockAddrStorage, libc::socklen_t);

impl Sender<'_> {
    /// The Internet address, if it is one.
    pub fn internet(self) -> Option<SocketAddr> {
        // SAFETY: the kernel wrote so many bytes of a socket address, which are copied.
        unsafe { SockAddr::new(ptr::read(self.0), self.1) }.as_socket()
    }

    /// The Ethernet address that a frame came from, unless the frame was for somebody else on the
    /// interface.
    pub fn ethernet(self) -> Option<Mac> {
        // SAFETY: the storage is longer than this structure of integers, and was zero before.
        let address = unsafe { &*ptr::from_ref(self.0).cast::<libc::sockaddr_ll>() };
        let [a, b, c, d, e, f, ..] = address.sll_addr;
        let is_ours = matches!(address.sll_pkttype, libc::PACKET_HOST | libc::PACKET_BROADCAST);
        (address.sll_family == libc::AF_PACKET as u16 && is_ours).then_some(Mac([a, b, c, d, e, f]))
    }
}

/// To whom a message goes: the pointer and the length of a socket address, or null where the socket
/// knows it.
///
/// # Safety
///
/// So many bytes lie at the pointer for as long as the value is borrowed.
pub unsafe trait Target {
    /// Where the address lies, and how long it is.
    fn as_raw(&self) -> (*const libc::c_void, libc::socklen_t);
}

// SAFETY: nothing lies there.
unsafe impl Target for () {
    fn as_raw(&self) -> (*const libc::c_void, libc::socklen_t) {
        (ptr::null(), 0)
    }
}

// SAFETY: the address owns its bytes.
unsafe impl Target for SockAddr {
    fn as_raw(&self) -> (*const libc::c_void, libc::socklen_t) {
        (self.as_ptr().cast(), self.len())
    }
}

// SAFETY: the pointer is to the structure itself.
unsafe impl Target for libc::sockaddr_ll {
    fn as_raw(&self) -> (*const libc::c_void, libc::socklen_t) {
        (ptr::from_ref(self).cast(), mem::size_of_val(self) as libc::socklen_t)
    }
}

/// Room for received messages.
pub struct Inbox {
    bytes: Box<[u8]>,
    longest: usize,
    names: Vec<SockAddrStorage>,
    /// Of each message the length, that of the sender's name, and whether its end is missing.
    heads: Vec<(usize, libc::socklen_t, bool)>,
}

impl Inbox {
    /// Room for `most` messages of at most `longest` bytes each.
    pub fn new(longest: usize, most: usize) -> Self {
        let most = most.min(BATCH);
        let names = std::iter::repeat_with(SockAddrStorage::zeroed).take(most).collect();
        let bytes = vec![0; longest * most].into();
        Self { bytes, longest, names, heads: Vec::with_capacity(most) }
    }

    /// Takes at most `most` messages that have arrived, without waiting, in place of what was here
    /// before. Says how many there are, which is zero if none has arrived.
    pub fn receive(&mut self, fd: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
        self.heads.clear();
        // SAFETY: these are plain C structures of integers and pointers, for which zero is valid.
        let mut parts: [libc::iovec; BATCH] = unsafe { mem::zeroed() };
        // SAFETY: as above.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        let mut count = 0;
        let rooms = self.bytes.chunks_exact_mut(self.longest).take(most);
        for (((message, part), name), room) in
            messages.iter_mut().zip(&mut parts).zip(&mut self.names).zip(rooms)
        {
            part.iov_base = room.as_mut_ptr().cast();
            part.iov_len = room.len();
            message.msg_hdr.msg_name = ptr::from_mut(name).cast();
            message.msg_hdr.msg_namelen = name.size_of();
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            count += 1;
        }
        // SAFETY: the first `count` messages point at a name and a part that live until the call
        // returns, and each part at its own room of `longest` bytes.
        let received = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                messages.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        let Ok(count) = usize::try_from(received) else {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(0) } else { Err(error) };
        };
        for message in messages.iter().take(count) {
            let length = (message.msg_len as usize).min(self.longest);
            let truncated = message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            self.heads.push((length, message.msg_hdr.msg_namelen, truncated));
        }
        Ok(count)
    }

    /// The messages of the last batch: what came, from whom, and whether its end is missing.
    pub fn messages(&mut self) -> impl Iterator<Item = (&mut [u8], Sender<'_>, bool)> {
        let rooms = self.bytes.chunks_exact_mut(self.longest);
        rooms.zip(&self.names).zip(&self.heads).map(
            |((room, name), &(length, named, truncated))| {
                (&mut room[..length], Sender(name, named), truncated)
            },
        )
    }
}

/// Sends up to a batch of messages, each with `prefix` before it. Says how many the kernel took;
/// an error concerns the first message.
pub fn send<'a, T: Target>(
    fd: BorrowedFd<'_>,
    prefix: &[u8],
    messages: impl Iterator<Item = (&'a [u8], T)>,
) -> io::Result<usize> {
    let mut targets = [const { None::<T> }; BATCH];
    // SAFETY: these are plain C structures of integers and pointers, for which zero is valid.
    let mut parts: [[libc::iovec; 2]; BATCH] = unsafe { mem::zeroed() };
    // SAFETY: as above.
    let mut headers: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
    let mut count = 0;
    for (((header, part), target), (bytes, to)) in
        headers.iter_mut().zip(&mut parts).zip(&mut targets).zip(messages)
    {
        *part = [io_part(prefix), io_part(bytes)];
        // An empty prefix is left out, for some sockets mind parts of no length.
        let used = &mut part[usize::from(prefix.is_empty())..];
        header.msg_hdr.msg_iov = used.as_mut_ptr();
        header.msg_hdr.msg_iovlen = used.len();
        let (name, length) = target.insert(to).as_raw();
        header.msg_hdr.msg_name = name.cast_mut();
        header.msg_hdr.msg_namelen = length;
        count += 1;
    }
    // SAFETY: the first `count` headers point at addresses, parts and bytes that live until the call
    // returns, and the kernel only reads them.
    let sent =
        unsafe { libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count, libc::MSG_DONTWAIT) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// What became of messages that waited.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sent {
    /// Messages that the kernel took.
    pub messages: u64,
    /// Their bytes, without what was put before them.
    pub bytes: u64,
    /// Messages that it refused: too long, or the interface is down or its queue full.
    pub refused: u64,
    /// It takes no more at the moment.
    pub blocked: bool,
}

/// Sends what waits, from the front on as long as `part` says what and to whom, each with `prefix`
/// before it. What the kernel takes or refuses waits no more.
pub fn send_waiting<M, T: Target>(
    fd: BorrowedFd<'_>,
    prefix: &[u8],
    waiting: &mut VecDeque<M>,
    part: impl Fn(&M) -> Option<(&[u8], T)>,
) -> Sent {
    let mut all = Sent::default();
    while waiting.front().is_some_and(|first| part(first).is_some()) {
        match send(fd, prefix, waiting.iter().map_while(&part)) {
            Ok(sent) => {
                all.messages += sent as u64;
                for message in waiting.drain(..sent.min(waiting.len())) {
                    all.bytes += part(&message).map_or(0, |(bytes, _)| bytes.len() as u64);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                all.blocked = true;
                break;
            }
            Err(_) => {
                all.refused += 1;
                waiting.pop_front();
            }
        }
    }
    all
}

fn io_part(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_batch_arrives_as_it_was_sent() {
        let a = UdpSocket::bind("127.0.0.1:0").expect("binds");
        let b = UdpSocket::bind("127.0.0.1:0").expect("binds");
        let (from, to) = (a.local_addr().expect("bound"), b.local_addr().expect("bound"));
        let mut inbox = Inbox::new(16, BATCH);
        assert_eq!(inbox.receive(b.as_fd(), BATCH).expect("nothing there"), 0);
        let texts: [&[u8]; 4] = [b"one", b"", b"three", b"much too long for the room"];
        let to = SockAddr::from(to);
        let mut waiting = VecDeque::from(texts);
        let sent = send_waiting(a.as_fd(), b">", &mut waiting, |text| Some((*text, to.clone())));
        assert_eq!(sent, Sent { messages: 4, bytes: 34, ..Sent::default() });
        assert_eq!(inbox.receive(b.as_fd(), BATCH).expect("receives"), 4);
        let messages = inbox.messages();
        let got: Vec<_> =
            messages.map(|(bytes, sender, end)| (&*bytes, sender.internet(), end)).collect();
        assert_eq!(got[0], (&b">one"[..], Some(from), false));
        assert_eq!(got[1].0, b">");
        assert_eq!(got[2].0, b">three");
        assert_eq!(got[3], (&b">much too long f"[..], Some(from), true));
    }
}
