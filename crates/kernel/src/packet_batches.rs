//! Whole frames of one interface, many in one system call.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::mmsg::{self, Inbox, Sent};
use crate::offload::{self, HEADER_LENGTH, NOTHING_LEFT, Unfinished};
use crate::packet_socket::PacketSocket;

/// A large packet, its Ethernet header and the offload header.
const LONGEST_FRAME: usize = HEADER_LENGTH + 18 + 65_535 + 64;
/// The most frames that are read at once.
const FRAMES: usize = 32;
/// Packets that should be handled before any are sent: more would make those late.
const FEW_PACKETS: u64 = 64;

/// Room for a batch of frames.
pub struct FrameInbox(Inbox);

/// What a batch of frames was.
#[derive(Clone, Copy, Default, Debug)]
pub struct Batch {
    /// Packets, after large ones were cut.
    pub packets: u64,
    /// Bytes of whole frames.
    pub bytes: u64,
    /// Frames of which the end is missing.
    pub cut_off: u64,
    /// Frames of a kind that cannot be finished.
    pub unknown: u64,
}

impl FrameInbox {
    /// Room for the largest batch.
    #[expect(clippy::new_without_default, reason = "two megabytes are nobody's default")]
    pub fn new() -> Self {
        Self(Inbox::new(LONGEST_FRAME, FRAMES))
    }

    /// Hands each packet to `take`, in a buffer that `empty` makes, cut to the size that is on the wire
    /// and with its checksums; and says whether that of its transport is known to be right.
    pub fn packets<B: AsMut<Vec<u8>>>(
        &mut self,
        empty: impl Fn() -> B,
        mut take: impl FnMut(B, bool),
    ) -> Batch {
        let mut batch = Batch::default();
        for (bytes, _, truncated) in self.0.messages() {
            let Some((header, frame)) = bytes.split_first_chunk().filter(|_| !truncated) else {
                batch.cut_off += 1;
                continue;
            };
            batch.bytes += frame.len() as u64;
            match offload::finish(Unfinished::parse(*header), frame, &empty, &mut take) {
                Ok(packets) => batch.packets += packets,
                Err(_) => batch.unknown += 1,
            }
        }
        batch
    }
}

/// A packet socket that is read in batches, which are small while packets are few.
#[derive(Debug)]
pub struct PacketBatches {
    socket: PacketSocket,
    /// How many frames are read at once.
    batch: usize,
}

impl From<PacketSocket> for PacketBatches {
    fn from(socket: PacketSocket) -> Self {
        Self { socket, batch: 1 }
    }
}

impl PacketBatches {
    /// Takes a batch of frames that have come. True if that was all that was asked for: there may be
    /// more.
    ///
    /// # Errors
    ///
    /// The interface is down, or a frame is of a kind that has no offload header.
    pub fn receive(&mut self, inbox: &mut FrameInbox) -> io::Result<bool> {
        Ok(inbox.0.receive(self.as_fd(), self.batch)? == self.batch)
    }

    /// The last batch has been handled. Large frames are cut into many packets: then fewer are read at
    /// once.
    pub fn adapt(&mut self, batch: &Batch) {
        self.batch = if batch.packets > FEW_PACKETS {
            (self.batch / 2).max(1)
        } else {
            (self.batch * 2).min(FRAMES)
        };
    }

    /// Sends finished frames from the front of `waiting`, until none waits or the kernel takes no more.
    pub fn send<F>(&self, waiting: &mut VecDeque<F>, bytes: impl Fn(&F) -> &[u8]) -> Sent {
        mmsg::send_waiting(self.as_fd(), &NOTHING_LEFT, waiting, |frame| Some((bytes(frame), ())))
    }

    /// Frames that the kernel dropped because nobody read them, since the last call.
    pub fn take_drops(&self) -> u64 {
        self.socket.take_drops().into()
    }
}

impl AsFd for PacketBatches {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
