//! The loop that runs a radio in real time.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lasthop_kernel::realtime;
use lasthop_radio::{Direction, Radio, RadioConfig};
use lasthop_units::{Bytes, Seed, Stream, Time};
use rustix::event::{Timespec, epoll};

use super::control::{Order, PortStats};
use super::lateness::LatenessMeter;
use super::pool::{Packet, Pool};
use super::{Control, EmulatorError, Snapshot, mark};

/// Statistics are shown this often.
const PUBLISH_EVERY: Duration = Duration::from_millis(100);

/// When the kernel takes no more packets, it is asked again after this.
const RETRY_AFTER: Duration = Duration::from_micros(100);

/// Packets that may wait for the kernel in one direction; more are dropped.
const MOST_UNSENT: usize = 4096;

/// The epoll name of the control; ports use smaller numbers.
const CONTROL: u64 = u64::MAX;

/// The two ends between which the emulator sits.
pub(crate) trait Exchange {
    /// Asks to be told when something can be read.
    fn register(&mut self, epoll: &Arc<OwnedFd>) -> io::Result<()>;

    /// Reads what has come to the port registered as `token`, up to some bound.
    fn receive(&mut self, token: u64, intake: &mut Intake) -> io::Result<()>;

    /// Sends from the front of `outbox` what the kernel takes, and removes it.
    fn send(&mut self, direction: Direction, outbox: &mut VecDeque<Packet>);

    /// Where in a packet a damaged bit will be noticed at the far end.
    fn damageable(&self, packet: &[u8]) -> usize;

    /// Looks after what takes time, such as peers that went away. Called a few times a second.
    fn tend(&mut self);

    /// What happened at the ports that face the mobile and the base.
    fn stats(&mut self) -> [PortStats; 2];

    /// Begins to count anew.
    fn reset_stats(&mut self);
}

/// Where packets enter the radio.
#[derive(Debug)]
pub(crate) struct Intake {
    origin: Instant,
    now: Time,
    pool: Rc<Pool>,
    radio: Radio<Packet>,
}

impl Intake {
    /// Notes the time at which a batch was read.
    pub(crate) fn batch_read(&mut self) {
        self.now = self.clock();
    }

    /// Where buffers of packets rest.
    pub(crate) fn pool(&self) -> &Rc<Pool> {
        &self.pool
    }

    /// An empty packet from `peer`.
    pub(crate) fn packet(&self, peer: usize) -> Packet {
        Packet::new(&self.pool, peer)
    }

    /// Offers a packet to the radio, which drops what it does not take.
    pub(crate) fn push(&mut self, direction: Direction, size: usize, packet: Packet) {
        let _ = self.radio.push(self.now, direction, Bytes::from(size), packet);
    }

    /// Offers the packet whose IP header begins at `ip`, marked if it meets a congested queue and
    /// its transport takes part (CC-2).
    pub(crate) fn push_ip(
        &mut self,
        direction: Direction,
        size: usize,
        mut packet: Packet,
        ip: usize,
    ) {
        let header = packet.bytes.get_mut(ip..).unwrap_or_default();
        if mark::is_markable(header) && self.radio.marks(self.now, direction, Bytes::from(size)) {
            mark::mark(header);
        }
        self.push(direction, size, packet);
    }

    fn clock(&self) -> Time {
        Time::ZERO + self.origin.elapsed()
    }
}

/// A radio at work.
pub(crate) struct Engine<'a, X> {
    exchange: X,
    control: &'a Control,
    epoll: Arc<OwnedFd>,
    intake: Intake,
    /// Packets on their way out, by direction.
    outboxes: [VecDeque<Packet>; 2],
    /// When each packet of the present batch was due.
    due: Vec<Time>,
    damage: Stream,
    lateness: LatenessMeter,
    overflows: u64,
    next_publication: Time,
}

impl<'a, X: Exchange> Engine<'a, X> {
    pub(crate) fn new(
        mut exchange: X,
        config: &RadioConfig,
        seed: Seed,
        control: &'a Control,
    ) -> Result<Self, EmulatorError> {
        let radio = Radio::new(config, seed, Time::ZERO)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
        let epoll = Arc::new(epoll);
        let wake = epoll::EventData::new_u64(CONTROL);
        epoll::add(&epoll, control.wake_fd(), wake, epoll::EventFlags::IN)
            .map_err(io::Error::from)?;
        exchange.register(&epoll)?;
        let most = (config.up.capacity as usize).saturating_add(config.down.capacity as usize);
        let intake =
            Intake { origin: Instant::now(), now: Time::ZERO, pool: Pool::new(most), radio };
        Ok(Self {
            exchange,
            control,
            epoll,
            intake,
            outboxes: [VecDeque::new(), VecDeque::new()],
            due: Vec::new(),
            damage: seed.stream("damage"),
            lateness: LatenessMeter::new(),
            overflows: 0,
            next_publication: Time::ZERO + PUBLISH_EVERY,
        })
    }

    /// Runs until it is told to stop.
    pub(crate) fn run(&mut self) -> Result<Snapshot, EmulatorError> {
        // The kernel may round a sleep up by this much; its usual 50 us would make packets late.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        // Without the privilege packets are late when the processors are busy; the report says so.
        let _ = realtime::prefer_this_thread();
        let mut events = Vec::with_capacity(64);
        while !self.control.should_stop() {
            events.clear();
            self.wait(&mut events)?;
            for event in &events {
                match event.data.u64() {
                    CONTROL => self.follow_orders(),
                    token => self.exchange.receive(token, &mut self.intake)?,
                }
            }
            self.deliver();
            if self.intake.clock() >= self.next_publication {
                self.exchange.tend();
                self.publish(0);
            }
        }
        let snapshot = self.snapshot();
        self.control.publish(snapshot, 0);
        Ok(snapshot)
    }

    fn wait(&self, events: &mut Vec<epoll::Event>) -> Result<(), EmulatorError> {
        let now = self.intake.clock();
        let mut until = self.intake.radio.next_time().unwrap_or(Time::NEVER);
        if self.outboxes.iter().any(|outbox| !outbox.is_empty()) {
            until = until.min(now + RETRY_AFTER);
        }
        let wait = until.min(self.next_publication).since(now);
        let timeout =
            Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    /// Sends what is due. What the radio gave in one go is sent in one go.
    fn deliver(&mut self) {
        let now = self.intake.clock();
        while let Some((direction, delivery)) = self.intake.radio.pop(now) {
            let mut packet = delivery.packet;
            if delivery.corrupted {
                self.damage(&mut packet.bytes);
            }
            self.due.push(delivery.at);
            let outbox = &mut self.outboxes[index(direction)];
            if outbox.len() < MOST_UNSENT {
                outbox.push_back(packet);
            } else {
                self.overflows += 1;
            }
        }
        for direction in Direction::ALL {
            let outbox = &mut self.outboxes[index(direction)];
            if !outbox.is_empty() {
                self.exchange.send(direction, outbox);
            }
        }
        if !self.due.is_empty() {
            let sent = self.intake.clock();
            self.due.drain(..).for_each(|due| self.lateness.add(sent.since(due)));
        }
    }

    /// Turns one bit, which any checksum notices (LNK-10).
    fn damage(&mut self, packet: &mut [u8]) {
        let start = self.exchange.damageable(packet);
        let length = packet.len().saturating_sub(start) as u64;
        let at = start + self.damage.below(length) as usize;
        if let Some(byte) = packet.get_mut(at) {
            *byte ^= 1 << self.damage.below(8);
        }
    }

    fn follow_orders(&mut self) {
        let orders = self.control.take_orders();
        self.intake.batch_read();
        let now = self.intake.now;
        for order in &orders {
            let radio = &mut self.intake.radio;
            match *order {
                Order::SetRate(direction, rate) => radio.set_rate(now, direction, rate),
                Order::Pause(duration) => radio.pause(now, duration),
                Order::Resume => radio.resume(now),
                Order::Reset => self.reset_stats(now),
                Order::Publish => {}
            }
        }
        if !orders.is_empty() {
            self.publish(orders.len());
        }
    }

    fn reset_stats(&mut self, now: Time) {
        self.intake.radio.reset_stats(now);
        self.exchange.reset_stats();
        self.lateness.reset();
        self.overflows = 0;
    }

    fn publish(&mut self, orders_done: usize) {
        let snapshot = self.snapshot();
        self.control.publish(snapshot, orders_done);
        self.next_publication = self.intake.clock() + PUBLISH_EVERY;
    }

    fn snapshot(&mut self) -> Snapshot {
        let now = self.intake.clock();
        let [mobile, mut base] = self.exchange.stats();
        base.unsent += self.overflows;
        Snapshot {
            up: self.intake.radio.stats(now, Direction::Up),
            down: self.intake.radio.stats(now, Direction::Down),
            lateness: self.lateness.result(),
            mobile,
            base,
        }
    }
}

fn index(direction: Direction) -> usize {
    match direction {
        Direction::Up => 0,
        Direction::Down => 1,
    }
}
