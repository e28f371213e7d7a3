//! The link between two ends: frames handed over in memory.

/// Bytes of an Ethernet header.
pub const ETHERNET: usize = 14;
/// Bytes of a frame's payload at most.
pub const MTU: usize = 1500;
/// IPv4's type.
pub const TYPE_IPV4: u16 = 0x0800;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Frames that can wait in one direction. More than a window of full packets: nothing is lost.
const SLOTS: usize = 64;
/// A frame's memory, with room to spare for padding.
const ROOM: usize = 1600;

struct Frame {
    len: usize,
    bytes: [u8; ROOM],
}

/// Frames on their way to one end, oldest first. As with a driver's pool of buffers the one used last
/// is used again first, and none is ever allocated.
pub struct Queue {
    frames: Box<[Frame]>,
    head: usize,
    waiting: usize,
}

impl Default for Queue {
    fn default() -> Self {
        let frame = || Frame { len: 0, bytes: [0; ROOM] };
        Self { frames: (0..SLOTS).map(|_| frame()).collect(), head: 0, waiting: 0 }
    }
}

impl Queue {
    /// Room for one more frame, unless the queue is full. What is in it stays as it was.
    #[inline]
    pub fn slot(&mut self) -> Option<&mut [u8; ROOM]> {
        if self.waiting == SLOTS {
            return None;
        }
        let at = (self.head + self.waiting) % SLOTS;
        Some(&mut self.frames[at].bytes)
    }

    /// The first `len` bytes of [`slot`](Self::slot) are a frame.
    #[inline]
    pub fn send(&mut self, len: usize) {
        if self.waiting < SLOTS {
            let at = (self.head + self.waiting) % SLOTS;
            self.frames[at].len = len.min(ROOM);
            self.waiting += 1;
        }
    }

    /// The oldest frame.
    #[inline]
    pub fn front(&self) -> Option<&[u8]> {
        let frame = &self.frames[self.head];
        (self.waiting > 0).then(|| &frame.bytes[..frame.len])
    }

    /// The oldest frame was taken.
    #[inline]
    pub fn pop(&mut self) {
        self.waiting = self.waiting.saturating_sub(1);
        self.head = if self.waiting == 0 { 0 } else { (self.head + 1) % SLOTS };
    }
}

/// Writes an Ethernet header.
#[inline]
pub(crate) fn put_header(frame: &mut [u8; ROOM], to: Mac, from: Mac, ethertype: u16) {
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame[12..ETHERNET].copy_from_slice(&ethertype.to_be_bytes());
}

/// The payload of a frame of this type for this address.
#[inline]
pub(crate) fn payload(frame: &[u8], own: Mac, ethertype: u16) -> Option<&[u8]> {
    let (header, payload) = frame.split_first_chunk::<ETHERNET>()?;
    let wanted = header[..6] == own && header[12..] == ethertype.to_be_bytes();
    wanted.then_some(payload)
}

#[cfg(test)]
mod tests {
    use lasthop_wire::mobile_tcp::ETHERTYPE;

    use super::*;

    #[test]
    fn frames_arrive_in_order_and_a_full_queue_takes_none() {
        let mut queue = Queue::default();
        for round in 0..3 {
            for n in 0..SLOTS {
                queue.slot().unwrap()[0] = (n + round) as u8;
                queue.send(n + 1);
            }
            assert!(queue.slot().is_none());
            queue.send(7);
            for n in 0..SLOTS {
                let frame = queue.front().unwrap();
                assert_eq!((frame[0], frame.len()), ((n + round) as u8, n + 1));
                queue.pop();
            }
            assert!(queue.front().is_none());
            queue.pop();
        }
    }

    #[test]
    fn frames_for_others_and_of_other_types_are_not_ours() {
        let mut queue = Queue::default();
        put_header(queue.slot().unwrap(), [2; 6], [1; 6], TYPE_IPV4);
        queue.send(20);
        let frame = queue.front().unwrap();
        assert_eq!(payload(frame, [2; 6], TYPE_IPV4).map(<[u8]>::len), Some(6));
        assert!(payload(frame, [1; 6], TYPE_IPV4).is_none());
        assert!(payload(frame, [2; 6], ETHERTYPE).is_none());
        assert!(payload(&frame[..13], [2; 6], TYPE_IPV4).is_none());
    }
}
