//! The plain case, which most links are in most of the time: a constant rate, no loss, no pause to
//! come, order kept. There a packet's whole way is known as soon as it is handed in.

use alloc::vec::Vec;

use lasthop_units::{Bytes, Duration, Rate, Time};

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
}

/// A packet that has arrived.
pub(crate) struct Passed<P> {
    pub(crate) packet: Passing<P>,
    pub(crate) at: Time,
    pub(crate) counted: bool,
}

/// A place for a packet. Its fields are written one by one where they stay: a packet handed through
/// a queue as a whole costs more than all else that a link does.
#[derive(Debug)]
struct Place<P> {
    packet: Option<P>,
    size: Bytes,
    entered: Time,
    started: Time,
    due: Time,
}

impl<P> Place<P> {
    const FREE: Self = Self {
        packet: None,
        size: Bytes::ZERO,
        entered: Time::ZERO,
        started: Time::ZERO,
        due: Time::NEVER,
    };
}

/// The packets of a plain link in order, whether they wait, are on air or in flight.
#[derive(Debug)]
pub(crate) struct Line<P> {
    /// A ring: `len` places from `first` on are taken. Its length is a power of two, or zero.
    places: Vec<Place<P>>,
    first: usize,
    len: usize,
    /// How many of them the queue's meter has seen going on air.
    begun: usize,
    /// How many of them are counted as sent.
    counted: usize,
    rate: Rate,
    /// Nanoseconds that the MAC takes before each packet.
    before: u64,
    /// Nanoseconds from the last bit's departure to its arrival.
    flight: u64,
    /// The size of the packet before, and how many nanoseconds it took: most packets are alike.
    last: (Bytes, u64),
    /// When the transmitter is free.
    free: Time,
    /// Air time of the packets taken out and not yet counted, in nanoseconds.
    air_time: u64,
}

impl<P> Line<P> {
    /// An empty line whose transmitter is free.
    pub(crate) fn new(before: u64, flight: u64) -> Self {
        Self {
            places: Vec::new(),
            first: 0,
            len: 0,
            begun: 0,
            counted: 0,
            rate: Rate::ZERO,
            before,
            flight,
            last: (Bytes::ZERO, 0),
            free: Time::ZERO,
            air_time: 0,
        }
    }

    /// A free transmitter of another rate; only for an empty line.
    pub(crate) fn reset(&mut self, rate: Rate) {
        self.rate = rate;
        self.free = Time::ZERO;
        self.last = (Bytes::ZERO, self.work_time(Bytes::ZERO));
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether a packet that comes at `now` goes on air at once.
    #[inline]
    pub(crate) fn is_idle(&self, now: Time) -> bool {
        self.free <= now
    }

    /// Tells the meter of the packets that have gone on air by `now`.
    #[inline]
    pub(crate) fn begin(&mut self, now: Time, queue: &mut QueueMeter) {
        while self.begun < self.len {
            let next = &self.places[self.place(self.begun)];
            if next.started > now {
                return;
            }
            queue.leave(next.started, next.size);
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
        if self.len == self.places.len() {
            self.grow();
        }
        let place = self.place(self.len);
        let place = &mut self.places[place];
        place.packet = Some(packet);
        place.size = size;
        place.entered = entered;
        place.started = started;
        place.due = due;
        self.len += 1;
    }

    /// Where the packet is that has `n` before it.
    #[inline]
    fn place(&self, n: usize) -> usize {
        (self.first + n) & (self.places.len() - 1)
    }

    #[cold]
    fn grow(&mut self) {
        self.places.rotate_left(self.first);
        self.first = 0;
        let room = (2 * self.places.len()).max(16);
        self.places.resize_with(room, || Place::FREE);
    }

    /// Air time of the packets taken out since the last time that this was asked for.
    pub(crate) fn take_air_time(&mut self) -> Duration {
        Duration::from_nanos(core::mem::take(&mut self.air_time))
    }

    fn work_time(&self, size: Bytes) -> u64 {
        Work::of(size).done_at(self.rate, Time::ZERO).as_nanos()
    }

    /// When the first packet arrives.
    #[inline]
    pub(crate) fn next_time(&self) -> Time {
        match self.len {
            0 => Time::NEVER,
            _ => later(self.places[self.first].due, self.flight),
        }
    }

    /// Takes out the first packet if it has arrived; whether it is counted as sent.
    #[inline]
    pub(crate) fn pop(&mut self, now: Time, queue: &mut QueueMeter) -> Option<Passed<P>> {
        let at = self.next_time();
        if at > now || at == Time::NEVER {
            return None;
        }
        if self.begun == 0 {
            self.begin(now, queue);
        }
        let (packet, counted) = self.take()?;
        if !counted {
            let air_time = packet.due.as_nanos() - packet.started.as_nanos();
            self.air_time = self.air_time.saturating_add(air_time);
        }
        Some(Passed { packet, at, counted })
    }

    /// Takes out the first packet, arrived or not; whether it is counted as sent.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<(Passing<P>, bool)> {
        if self.len == 0 {
            return None;
        }
        let place = &mut self.places[self.first];
        let packet = place.packet.take()?;
        let Place { size, entered, started, due, .. } = *place;
        let counted = self.counted > 0;
        self.begun = self.begun.saturating_sub(1);
        self.counted -= usize::from(counted);
        self.first = self.place(1);
        self.len -= 1;
        Some((Passing { packet, size, entered, started, due }, counted))
    }

    /// Takes in a packet in flight, counted as sent.
    pub(crate) fn restore_flying(&mut self, entered: Time, arrives: Time, size: Bytes, packet: P) {
        let due = Time::from_nanos(arrives.as_nanos().saturating_sub(self.flight));
        self.counted += 1;
        self.restore_on_air(Passing { packet, size, entered, started: due, due });
    }

    /// Takes in a packet on air.
    pub(crate) fn restore_on_air(&mut self, passing: Passing<P>) {
        self.begun += 1;
        let Passing { packet, size, entered, started, due } = passing;
        self.free = due;
        self.put(packet, size, entered, started, due);
    }

    /// Takes in a packet that waits behind all others; the meter knows it already.
    pub(crate) fn restore_waiting(&mut self, entered: Time, size: Bytes, packet: P) {
        self.append(entered, self.free, size, packet);
    }
}

#[inline]
fn later(time: Time, ns: u64) -> Time {
    Time::from_nanos(time.as_nanos().saturating_add(ns))
}
