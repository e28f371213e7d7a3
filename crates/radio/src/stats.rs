use core::ops::AddAssign;

use lasthop_units::{Bytes, Duration, Rate, Time};

/// A number of packets and the bytes of IP datagrams in them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Count {
    pub(crate) fn add(&mut self, size: Bytes) {
        self.packets += 1;
        self.bytes += size.get();
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// Packets that did not arrive, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Drops {
    /// The queue was full.
    pub queue: Count,
    /// Longer than the MTU (LNK-2).
    pub oversize: Count,
    /// The radio was silent when they came, or fell silent over them (LNK-7, LNK-12).
    pub silence: Count,
    /// An error process lost them; they had cost their air time.
    pub loss: Count,
    /// The link held as many packets as its capacity allows.
    pub capacity: Count,
}

/// What waited for the transmitter. The packet on air does not wait.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct QueueStats {
    /// Packets that reached the transmitter.
    pub served: u64,
    /// The sum of their waits.
    pub wait: Duration,
    /// The longest wait.
    pub wait_max: Duration,
    /// Packets waiting, integrated over time, in packet nanoseconds.
    pub packet_time: u128,
    /// Bytes waiting, integrated over time, in byte nanoseconds.
    pub byte_time: u128,
    /// The most packets that waited at once.
    pub packets_max: u32,
    /// The most bytes that waited at once.
    pub bytes_max: u64,
}

/// What one direction of a radio really did to packets between two points in time (MET-11).
///
/// At any time, and since the link was made, `offered + duplicated` packets equal those delivered,
/// dropped, and still held.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LinkStats {
    /// Counting began.
    pub since: Time,
    /// Counting ended.
    pub until: Time,
    /// Handed to the link.
    pub offered: Count,
    /// Of these, found so much waiting that they were to be marked (CC-2): those that the carrier
    /// asked about, which are those whose transport takes part.
    pub marked: Count,
    /// Left the transmitter, whatever became of them.
    pub sent: Count,
    /// Came out at the far end, corrupted ones and duplicates included.
    pub delivered: Count,
    /// Came out corrupted (LNK-10).
    pub corrupted: Count,
    /// Copies made.
    pub duplicated: Count,
    /// Held back so that others could overtake them.
    pub reordered: Count,
    /// Did not come out.
    pub dropped: Drops,
    /// Packets hit by error processes, lost or corrupted.
    pub hit: Count,
    /// Runs of consecutive transmissions that were hit.
    pub bursts: u64,
    /// Fades begun.
    pub fades: u64,
    /// Time spent in fades.
    pub faded: Duration,
    /// Pauses begun.
    pub pauses: u64,
    /// Time spent in pauses.
    pub silent: Duration,
    /// The queue.
    pub queue: QueueStats,
    /// Time for which the transmitter was busy.
    pub air_time: Duration,
    /// Packets inside the link at `until`.
    pub held: u64,
}

impl LinkStats {
    /// For how long was counted.
    pub fn elapsed(&self) -> Duration {
        self.until.since(self.since)
    }

    /// The share of transmissions that error processes hit: the loss really applied.
    pub fn loss(&self) -> f64 {
        ratio(self.hit.packets as f64, self.sent.packets as f64)
    }

    /// The mean number of consecutive transmissions hit.
    pub fn burst_length(&self) -> f64 {
        ratio(self.hit.packets as f64, self.bursts as f64)
    }

    /// The share of time spent in fades.
    pub fn fade_share(&self) -> f64 {
        ratio(self.faded.as_secs_f64(), self.elapsed().as_secs_f64())
    }

    /// The share of offered packets that the full queue dropped.
    pub fn queue_drop_share(&self) -> f64 {
        ratio(self.dropped.queue.packets as f64, self.offered.packets as f64)
    }

    /// The mean wait of the packets that reached the transmitter.
    pub fn mean_wait(&self) -> Duration {
        let served = self.queue.served.max(1);
        Duration::from_nanos((self.queue.wait.as_nanos() / u128::from(served)) as u64)
    }

    /// Packets waiting, averaged over time.
    pub fn mean_backlog_packets(&self) -> f64 {
        ratio(self.queue.packet_time as f64, self.elapsed().as_nanos() as f64)
    }

    /// Bytes waiting, averaged over time.
    pub fn mean_backlog_bytes(&self) -> f64 {
        ratio(self.queue.byte_time as f64, self.elapsed().as_nanos() as f64)
    }

    /// The share of time for which the transmitter was busy.
    pub fn utilisation(&self) -> f64 {
        ratio(self.air_time.as_secs_f64(), self.elapsed().as_secs_f64())
    }

    /// The rate of what was delivered.
    pub fn delivered_rate(&self) -> Rate {
        match self.elapsed() {
            Duration::ZERO => Rate::ZERO,
            elapsed => Rate::of(Bytes::new(self.delivered.bytes), elapsed),
        }
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Keeps the queue's statistics.
#[derive(Debug)]
pub(crate) struct QueueMeter {
    packets: u32,
    bytes: u64,
    last: Time,
    pub(crate) stats: QueueStats,
}

impl QueueMeter {
    pub(crate) fn new(now: Time) -> Self {
        Self { packets: 0, bytes: 0, last: now, stats: QueueStats::default() }
    }

    pub(crate) fn packets(&self) -> u32 {
        self.packets
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn enter(&mut self, now: Time, size: Bytes) {
        self.integrate(now);
        self.packets += 1;
        self.bytes += size.get();
        self.stats.packets_max = self.stats.packets_max.max(self.packets);
        self.stats.bytes_max = self.stats.bytes_max.max(self.bytes);
    }

    pub(crate) fn dequeue(&mut self, now: Time, size: Bytes) {
        self.integrate(now);
        self.packets -= 1;
        self.bytes -= size.get();
    }

    /// A packet went on air that did not wait.
    #[inline]
    pub(crate) fn served_at_once(&mut self) {
        self.stats.served += 1;
    }

    pub(crate) fn served(&mut self, wait: Duration) {
        self.stats.served += 1;
        self.stats.wait += wait;
        self.stats.wait_max = self.stats.wait_max.max(wait);
    }

    pub(crate) fn clear(&mut self, now: Time) {
        self.integrate(now);
        (self.packets, self.bytes) = (0, 0);
    }

    pub(crate) fn integrate(&mut self, now: Time) {
        let time = now.since(self.last).as_nanos();
        if self.packets > 0 {
            self.stats.packet_time += u128::from(self.packets) * time;
            self.stats.byte_time += u128::from(self.bytes) * time;
        }
        self.last = now;
    }

    pub(crate) fn restart(&mut self, now: Time) {
        self.integrate(now);
        self.stats = QueueStats {
            packets_max: self.packets,
            bytes_max: self.bytes,
            ..QueueStats::default()
        };
    }
}
