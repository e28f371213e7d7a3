//! The plain case, which most links are in most of the time: a constant rate, no loss, no pause to
//! come, order kept. There a packet's whole way is known as soon as it is handed in.

use alloc::vec::Vec;

use lasthop_units::{Bytes, Duration, Rate, Time};

use super::held::QueuedPacket;
use crate::Count;
use crate::pacer::Work;
use crate::stats::QueueMeter;

/// A packet whose way is known.
#[derive(Debug)]
pub(crate) struct Passing<P> {
    pub(crate) packet: P,
    pub(crate) size: Bytes,
    pub(crate) entered: Time,
    /// When it goes on air, and when its last bit leaves.
    pub(crate) started: Time,
    pub(crate) due: Time,
    /// It is counted as sent already.
    pub(crate) counted: bool,
}

/// A packet that has arrived.
pub(crate) struct Passed<P> {
    pub(crate) packet: P,
    pub(crate) size: Bytes,
    pub(crate) entered: Time,
    pub(crate) at: Time,
    /// When the one behind it arrives.
    pub(crate) next: Time,
}

/// What a line did since it was last empty and reset.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tally {
    /// Taken in as they were offered, not as they were found in the link.
    pub(crate) offered: Count,
    /// Of those not counted before, taken out, and the air time that they had taken.
    pub(crate) sent: Count,
    pub(crate) air_time: Duration,
    /// Taken out.
    pub(crate) delivered: Count,
}

/// A place for a packet. Its fields are written one by one where they stay: a packet handed through
/// a queue as a whole costs more than all else that a link does.
#[derive(Debug)]
struct Slot<P> {
    packet: Option<P>,
    size: Bytes,
    entered: Time,
    started: Time,
    due: Time,
}

impl<P> Slot<P> {
    const FREE: Self = Self {
        packet: None,
        size: Bytes::ZERO,
        entered: Time::ZERO,
        started: Time::ZERO,
        due: Time::NEVER,
    };
}

/// The packets of a plain link in order, whether they wait, are on air or in flight.
///
/// Packets are numbered as they come. What has passed is what came less what is still there, so
/// that a packet on its way out costs no counting.
#[derive(Debug)]
pub(crate) struct Line<P> {
    /// A ring: packet `n` is at `n` modulo its length, which is a power of two, or zero.
    places: Vec<Slot<P>>,
    /// The number of the next packet to come out, and of the next to come in.
    head: usize,
    tail: usize,
    /// Packets below have gone on air as far as the queue's meter knows.
    begun: usize,
    /// Packets below are counted as sent, and what is in them.
    counted: Count,
    /// What was in the link before it had a line.
    restored: Count,
    /// Bytes of all packets that came.
    bytes: u64,
    /// Air time of those not counted before, in nanoseconds.
    air_time: u64,
    rate: Rate,
    /// Nanoseconds that the MAC takes before each packet.
    before: u64,
    /// Nanoseconds from the last bit's departure to its arrival.
    flight: u64,
    /// The size of the packet before, and how many nanoseconds it took: most packets are alike.
    last: (Bytes, u64),
    /// When the transmitter is free.
    free: Time,
}

impl<P> Line<P> {
    /// An empty line whose transmitter is free.
    pub(crate) fn new(before: u64, flight: u64) -> Self {
        Self {
            places: Vec::new(),
            head: 0,
            tail: 0,
            begun: 0,
            counted: Count::default(),
            restored: Count::default(),
            bytes: 0,
            air_time: 0,
            rate: Rate::ZERO,
            before,
            flight,
            last: (Bytes::ZERO, 0),
            free: Time::ZERO,
        }
    }

    /// A free transmitter of another rate; only for an empty line.
    pub(crate) fn reset(&mut self, rate: Rate) {
        let places = core::mem::take(&mut self.places);
        *self = Self { places, rate, ..Self::new(self.before, self.flight) };
        self.last = (Bytes::ZERO, self.work_time(Bytes::ZERO));
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.tail - self.head
    }

    /// Whether a packet that comes at `now` goes on air at once.
    #[inline]
    pub(crate) fn is_idle(&self, now: Time) -> bool {
        self.free <= now
    }

    /// Tells the meter of the packets that have gone on air by `now`.
    #[inline]
    pub(crate) fn begin(&mut self, now: Time, queue: &mut QueueMeter) {
        if self.begun < self.tail {
            self.begin_waiting(now, queue);
        }
    }

    #[inline(never)]
    fn begin_waiting(&mut self, now: Time, queue: &mut QueueMeter) {
        while self.begun < self.tail {
            let next = &self.places[self.place(self.begun)];
            if next.started > now {
                return;
            }
            queue.dequeue(next.started, next.size);
            queue.served(next.started.since(next.entered));
            self.begun += 1;
        }
    }

    /// Takes in a packet that goes on air at once.
    #[inline]
    pub(crate) fn start(&mut self, now: Time, size: Bytes, packet: P, queue: &mut QueueMeter) {
        queue.served_at_once();
        self.begun += 1;
        self.append(now, now, size, packet);
    }

    /// Takes in a packet that must wait.
    pub(crate) fn wait(&mut self, now: Time, size: Bytes, packet: P, queue: &mut QueueMeter) {
        queue.enter(now, size);
        self.append(now, self.free, size, packet);
    }

    #[inline]
    fn append(&mut self, entered: Time, started: Time, size: Bytes, packet: P) {
        if self.last.0 != size {
            self.last = (size, self.work_time(size));
        }
        let due = later(later(started, self.before), self.last.1);
        self.free = due;
        self.put(packet, size, entered, started, due);
    }

    #[inline]
    fn put(&mut self, packet: P, size: Bytes, entered: Time, started: Time, due: Time) {
        if self.len() == self.places.len() {
            self.grow();
        }
        let place = self.place(self.tail);
        let place = &mut self.places[place];
        place.packet = Some(packet);
        place.size = size;
        place.entered = entered;
        place.started = started;
        place.due = due;
        self.tail += 1;
        // What an endless transmission adds is taken off again, since it never ends.
        self.bytes += size.get();
        self.air_time = self.air_time.wrapping_add(due.as_nanos() - started.as_nanos());
    }

    /// Where packet `n` is.
    #[inline]
    fn place(&self, n: usize) -> usize {
        n & self.places.len().wrapping_sub(1)
    }

    #[cold]
    fn grow(&mut self) {
        let room = (2 * self.places.len()).max(16);
        let mut places: Vec<Slot<P>> = (0..room).map(|_| Slot::FREE).collect();
        for n in self.head..self.tail {
            let place = self.place(n);
            core::mem::swap(&mut places[n & (room - 1)], &mut self.places[place]);
        }
        self.places = places;
    }

    fn work_time(&self, size: Bytes) -> u64 {
        Work::of(size).done_at(self.rate, Time::ZERO).as_nanos()
    }

    /// When the first packet arrives.
    #[inline]
    pub(crate) fn next_time(&self) -> Time {
        if self.head == self.tail {
            return Time::NEVER;
        }
        later(self.places[self.place(self.head)].due, self.flight)
    }

    /// Takes out the first packet if it has arrived.
    #[inline]
    pub(crate) fn pop(&mut self, now: Time, queue: &mut QueueMeter) -> Option<Passed<P>> {
        if self.head == self.tail {
            return None;
        }
        let place = self.place(self.head);
        let place = &mut self.places[place];
        let at = later(place.due, self.flight);
        if at > now || at == Time::NEVER {
            return None;
        }
        let packet = place.packet.take()?;
        let Slot { size, entered, .. } = *place;
        if self.begun == self.head {
            self.begin(now, queue);
        }
        self.head += 1;
        let next = self.next_time();
        Some(Passed { packet, size, entered, at, next })
    }

    /// Takes out the first packet, arrived or not; only after the tally was taken.
    pub(crate) fn take(&mut self) -> Option<Passing<P>> {
        if self.head == self.tail {
            return None;
        }
        let place = self.place(self.head);
        let place = &mut self.places[place];
        let packet = place.packet.take()?;
        let Slot { size, entered, started, due, .. } = *place;
        let counted = self.is_counted(self.head);
        self.head += 1;
        Some(Passing { packet, size, entered, started, due, counted })
    }

    fn is_counted(&self, n: usize) -> bool {
        (n as u64) < self.counted.packets
    }

    /// What the line did so far.
    pub(crate) fn tally(&self) -> Tally {
        let (mut delivered, mut sent) = (self.bytes, self.bytes - self.counted.bytes);
        let mut air_time = self.air_time;
        for n in self.head..self.tail {
            let place = &self.places[self.place(n)];
            delivered -= place.size.get();
            if !self.is_counted(n) {
                sent -= place.size.get();
            }
            let on_air = place.due.as_nanos() - place.started.as_nanos();
            air_time = air_time.wrapping_sub(on_air);
        }
        let (head, tail) = (self.head as u64, self.tail as u64);
        Tally {
            offered: Count {
                packets: tail - self.restored.packets,
                bytes: self.bytes - self.restored.bytes,
            },
            sent: Count { packets: head.saturating_sub(self.counted.packets), bytes: sent },
            air_time: Duration::from_nanos(air_time),
            delivered: Count { packets: head, bytes: delivered },
        }
    }

    /// Takes in a packet in flight, counted as sent.
    pub(crate) fn restore_flying(&mut self, entered: Time, arrives: Time, size: Bytes, packet: P) {
        let due = Time::from_nanos(arrives.as_nanos().saturating_sub(self.flight));
        self.counted.add(size);
        // It has no air time that is not counted.
        self.restore_on_air(QueuedPacket { packet, size, entered }, due, due);
    }

    /// Takes in a packet on air.
    pub(crate) fn restore_on_air(&mut self, held: QueuedPacket<P>, started: Time, due: Time) {
        let QueuedPacket { packet, size, entered } = held;
        self.begun += 1;
        self.restored.add(size);
        self.free = due;
        self.put(packet, size, entered, started, due);
    }

    /// Takes in a packet that waits behind all others; the meter knows it already.
    pub(crate) fn restore_waiting(&mut self, held: QueuedPacket<P>) {
        let QueuedPacket { packet, size, entered } = held;
        self.restored.add(size);
        self.append(entered, self.free, size, packet);
    }
}

#[inline]
fn later(time: Time, ns: u64) -> Time {
    Time::from_nanos(time.as_nanos().saturating_add(ns))
}
