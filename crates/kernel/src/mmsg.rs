//! Many datagrams in one system call: `recvmmsg` and `sendmmsg`.
#![allow(unsafe_code)]

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use socket2::{SockAddr, SockAddrStorage};

/// The most messages in one call.
pub const BATCH: usize = 32;

/// Room for received messages.
#[derive(Debug)]
pub struct Inbox {
    bytes: Vec<u8>,
    longest: usize,
    lengths: [usize; BATCH],
    truncated: [bool; BATCH],
    from: Vec<Option<SocketAddr>>,
    count: usize,
}

impl Inbox {
    /// Room for a batch of messages of at most `longest` bytes.
    pub fn new(longest: usize) -> Self {
        Self {
            bytes: vec![0; longest * BATCH],
            longest,
            lengths: [0; BATCH],
            truncated: [false; BATCH],
            from: vec![None; BATCH],
            count: 0,
        }
    }

    /// Takes at most `most` messages that have arrived, without waiting, in place of what was here
    /// before. Says how many there are, which is zero if none has arrived.
    pub fn receive(&mut self, fd: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
        self.count = 0;
        let mut names: [_; BATCH] = std::array::from_fn(|_| SockAddrStorage::zeroed());
        // SAFETY: these are plain C structures of integers and pointers, for which zero is valid.
        let mut parts: [libc::iovec; BATCH] = unsafe { mem::zeroed() };
        // SAFETY: as above.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        let rooms = self.bytes.chunks_exact_mut(self.longest);
        for (((message, part), name), room) in
            messages.iter_mut().zip(&mut parts).zip(&mut names).zip(rooms)
        {
            part.iov_base = room.as_mut_ptr().cast();
            part.iov_len = room.len();
            message.msg_hdr.msg_name = ptr::from_mut(name).cast();
            message.msg_hdr.msg_namelen = name.size_of();
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: every message points at a name and a part that live until the call returns, and
        // each part at its own room of `longest` bytes.
        let received = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                messages.as_mut_ptr(),
                most.min(BATCH) as u32,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        let Ok(count) = usize::try_from(received) else {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(0) } else { Err(error) };
        };
        for (i, (message, name)) in messages.iter().zip(names).take(count).enumerate() {
            self.lengths[i] = (message.msg_len as usize).min(self.longest);
            self.truncated[i] = message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            // SAFETY: the kernel wrote `msg_namelen` bytes of a socket address.
            let from = unsafe { SockAddr::new(name, message.msg_hdr.msg_namelen) };
            self.from[i] = from.as_socket();
        }
        self.count = count;
        Ok(count)
    }

    /// The messages of the last batch: what came, from whom, and whether its end is missing.
    pub fn messages(&self) -> impl Iterator<Item = (&[u8], Option<SocketAddr>, bool)> {
        let rooms = self.bytes.chunks_exact(self.longest);
        rooms
            .zip(&self.lengths)
            .zip(&self.from)
            .zip(&self.truncated)
            .take(self.count)
            .map(|(((room, &length), &from), &truncated)| (&room[..length], from, truncated))
    }
}

/// Sends up to a batch of messages, each with `prefix` before it. Says how many the kernel took;
/// an error concerns the first message.
pub fn send<'a>(
    fd: BorrowedFd<'_>,
    prefix: &[u8],
    messages: impl Iterator<Item = (&'a [u8], Option<SocketAddr>)>,
) -> io::Result<usize> {
    let mut names = [const { None::<SockAddr> }; BATCH];
    // SAFETY: these are plain C structures of integers and pointers, for which zero is valid.
    let mut parts: [[libc::iovec; 2]; BATCH] = unsafe { mem::zeroed() };
    // SAFETY: as above.
    let mut headers: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
    let mut count = 0;
    for (((header, part), name), (bytes, to)) in
        headers.iter_mut().zip(&mut parts).zip(&mut names).zip(messages)
    {
        *part = [io_part(prefix), io_part(bytes)];
        // An empty prefix is left out, for some sockets mind parts of no length.
        let used = &mut part[usize::from(prefix.is_empty())..];
        header.msg_hdr.msg_iov = used.as_mut_ptr();
        header.msg_hdr.msg_iovlen = used.len();
        if let Some(to) = to {
            let to = name.insert(SockAddr::from(to));
            header.msg_hdr.msg_name = to.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_namelen = to.len();
        }
        count += 1;
    }
    // SAFETY: the first `count` headers point at names, parts and bytes that live until the call
    // returns, and the kernel only reads them.
    let sent =
        unsafe { libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count, libc::MSG_DONTWAIT) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
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
        let mut inbox = Inbox::new(16);
        assert_eq!(inbox.receive(b.as_fd(), BATCH).expect("nothing there"), 0);
        let texts: [&[u8]; 4] = [b"one", b"", b"three", b"much too long for the room"];
        let sent = send(a.as_fd(), b">", texts.iter().map(|&t| (t, Some(to)))).expect("sends");
        assert_eq!(sent, 4);
        assert_eq!(inbox.receive(b.as_fd(), BATCH).expect("receives"), 4);
        let got: Vec<_> = inbox.messages().collect();
        assert_eq!(got[0], (&b">one"[..], Some(from), false));
        assert_eq!(got[1].0, b">");
        assert_eq!(got[2].0, b">three");
        assert_eq!(got[3], (&b">much too long f"[..], Some(from), true));
    }
}
