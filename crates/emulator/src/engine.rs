//! The loop that runs a radio in real time.

use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use lasthop_kernel::clock::Clock;
use lasthop_kernel::event_loop::{self, EventLoop};
use lasthop_kernel::reactor::{Interest, Reactor, Readiness};
use lasthop_kernel::realtime;
use lasthop_kernel::turn::Source;
use lasthop_radio::{Direction, Radio, RadioConfig};
use lasthop_units::{Bytes, Seed, Stream, Time};

use super::control::{Command, PortStats};
use super::lateness::LatenessMeter;
use super::pool::{Packet, Pool};
use super::{Control, EmulatorError, Snapshot, mark};

/// Statistics are shown this often.
const PUBLISH_EVERY: Duration = Duration::from_millis(100);

/// When the kernel takes no more packets, the next try is after this.
const RETRY_AFTER: Duration = Duration::from_micros(100);

/// Packets that may wait for the kernel in one direction; more are dropped.
const MOST_UNSENT: usize = 4096;

/// The two ends between which the emulator sits.
pub(crate) trait Exchange {
    /// Requests a notification when something can be read.
    fn watch(&mut self, reactor: &mut Reactor<Source>) -> io::Result<()>;

    /// Reads what has come to port `n`, up to some bound.
    fn receive(&mut self, n: usize, intake: &mut Intake) -> io::Result<()>;

    /// Sends from the front of `outbox` what the kernel takes, and removes it.
    fn send(&mut self, direction: Direction, outbox: &mut VecDeque<Packet>);

    /// Where in a packet a damaged bit will be noticed at the far end.
    fn damageable(&self, packet: &[u8]) -> usize;

    /// Looks after what takes time, such as peers that went away. Called a few times a second.
    fn maintain(&mut self, reactor: &mut Reactor<Source>);

    /// What happened at the ports that face the mobile and the base.
    fn stats(&mut self) -> [PortStats; 2];

    /// Begins to count anew.
    fn reset_stats(&mut self);
}

/// Where packets enter the radio, and what tells that they have come.
pub(crate) struct Intake {
    pub(crate) reactor: Reactor<Source>,
    clock: Clock,
    now: Time,
    pool: Rc<Pool>,
    radio: Radio<Packet>,
}

impl Intake {
    /// Notes the time at which a batch was read.
    pub(crate) fn batch_read(&mut self) {
        self.now = self.clock.now();
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
}

/// A radio at work.
pub(crate) struct Engine<'a, X> {
    exchange: X,
    control: &'a Control,
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
        let mut reactor = Reactor::new()?;
        reactor.add(control.wake_fd(), Interest::Read, Source::Control(None))?;
        exchange.watch(&mut reactor)?;
        let most = (config.up.capacity as usize).saturating_add(config.down.capacity as usize);
        let (clock, now, pool) = (Clock::start(), Time::ZERO, Pool::new(most));
        let intake = Intake { reactor, clock, now, pool, radio };
        Ok(Self {
            exchange,
            control,
            intake,
            outboxes: [VecDeque::new(), VecDeque::new()],
            due: Vec::new(),
            damage: seed.stream("damage"),
            lateness: LatenessMeter::new(),
            overflows: 0,
            next_publication: Time::ZERO + PUBLISH_EVERY,
        })
    }

    /// Runs until it is stopped.
    pub(crate) fn run(&mut self) -> Result<Snapshot, EmulatorError> {
        // Without the privilege packets are late when the processors are busy; the report says so.
        let _ = realtime::prefer_this_thread();
        let (clock, control) = (self.intake.clock, self.control);
        event_loop::run(self, clock, control.stop_handle())?;
        let snapshot = self.snapshot();
        self.control.publish(snapshot, 0);
        Ok(snapshot)
    }

    /// Sends what is due. What the radio gave in one go is sent in one go.
    fn deliver(&mut self) {
        let now = self.intake.clock.now();
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
            let sent = self.intake.clock.now();
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

    fn run_commands(&mut self) {
        let commands = self.control.take_commands();
        self.intake.batch_read();
        let now = self.intake.now;
        for command in &commands {
            let radio = &mut self.intake.radio;
            match *command {
                Command::SetRate(direction, rate) => radio.set_rate(now, direction, rate),
                Command::Pause(duration) => radio.pause(now, duration),
                Command::Resume => radio.resume(now),
                Command::Reset => self.reset_stats(now),
                Command::Publish => {}
            }
        }
        if !commands.is_empty() {
            self.publish(commands.len());
        }
    }

    fn reset_stats(&mut self, now: Time) {
        self.intake.radio.reset_stats(now);
        self.exchange.reset_stats();
        self.lateness.reset();
        self.overflows = 0;
    }

    fn publish(&mut self, commands_done: usize) {
        let snapshot = self.snapshot();
        self.control.publish(snapshot, commands_done);
        self.next_publication = self.intake.clock.now() + PUBLISH_EVERY;
    }

    fn snapshot(&mut self) -> Snapshot {
        let now = self.intake.clock.now();
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

impl<X: Exchange> EventLoop for Engine<'_, X> {
    type Error = EmulatorError;

    fn reactor(&mut self) -> &mut Reactor<Source> {
        &mut self.intake.reactor
    }

    fn next_turn(&self) -> Time {
        let mut at = self.intake.radio.next_time().unwrap_or(Time::NEVER);
        if self.outboxes.iter().any(|outbox| !outbox.is_empty()) {
            at = at.min(self.intake.clock.now() + RETRY_AFTER);
        }
        at.min(self.next_publication)
    }

    fn begin_turn(&mut self, now: Time) {
        self.intake.now = now;
    }

    fn handle_ready(&mut self, source: Source, _readiness: Readiness) -> Result<(), EmulatorError> {
        match source {
            Source::Control(_) => self.run_commands(),
            Source::Listener(n) => self.exchange.receive(n, &mut self.intake)?,
            _ => {}
        }
        Ok(())
    }

    fn end_turn(&mut self, stops: usize) -> Result<ControlFlow<()>, EmulatorError> {
        if stops > 0 {
            return Ok(ControlFlow::Break(()));
        }
        self.deliver();
        if self.intake.clock.now() >= self.next_publication {
            self.exchange.maintain(&mut self.intake.reactor);
            self.publish(0);
        }
        Ok(ControlFlow::Continue(()))
    }
}

fn index(direction: Direction) -> usize {
    match direction {
        Direction::Up => 0,
        Direction::Down => 1,
    }
}
