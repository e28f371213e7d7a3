//! The outside of a running emulator: what it did, and what it shall do.

use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lasthop_kernel::stop::Stop;
use lasthop_radio::{Direction, LinkStats};
use lasthop_units::Rate;
use rustix::event::{EventfdFlags, eventfd};

use super::Lateness;

/// How long a caller waits for a running emulator to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// The most orders that may wait for an emulator that does not run.
const MOST_ORDERS: usize = 1024;

/// What an emulator did between two points in time.
#[derive(Clone, Copy, Default, Debug)]
pub struct Snapshot {
    /// From the mobile to the base.
    pub up: LinkStats,
    /// From the base to the mobile.
    pub down: LinkStats,
    /// How late packets left, both directions together.
    pub lateness: Lateness,
    /// The port that faces the mobile.
    pub mobile: PortStats,
    /// The port that faces the base.
    pub base: PortStats,
}

impl Snapshot {
    /// One direction of the radio.
    pub fn link(&self, direction: Direction) -> &LinkStats {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }
}

/// What happened at a port, beside what the radio did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PortStats {
    /// Packets read, after large ones were cut.
    pub received: u64,
    /// Packets written.
    pub sent: u64,
    /// Packets that the kernel dropped because the emulator did not read them in time.
    pub missed: u64,
    /// Packets that were too long to be read, or of a kind that cannot be finished.
    pub unreadable: u64,
    /// Packets that the kernel refused to send.
    pub unsent: u64,
    /// Packets of peers for whom there was no room.
    pub turned_away: u64,
}

/// An order to a running emulator.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Command {
    SetRate(Direction, Rate),
    Pause(Duration),
    Resume,
    Reset,
    Publish,
}

/// The handle to an emulator, made before it runs. Clones share it.
#[derive(Clone, Debug)]
pub struct Control {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    wake: OwnedFd,
    stop: Stop,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    orders: Vec<Command>,
    /// Orders given and orders carried out, ever.
    given: u64,
    done: u64,
    snapshot: Snapshot,
    ended: bool,
}

impl Control {
    /// A handle for one emulator.
    ///
    /// # Errors
    ///
    /// The process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let state = Mutex::new(State::default());
        let stop = Stop::new()?;
        Ok(Self { shared: Arc::new(Shared { wake, stop, state, changed: Condvar::new() }) })
    }

    /// Ends the emulator, cleanly and at once.
    pub fn stop(&self) {
        self.shared.stop.request();
    }

    /// What the emulator did up to at most 0.1 s ago; up to its end if it has ended.
    pub fn snapshot(&self) -> Snapshot {
        self.state().snapshot
    }

    /// What the emulator did up to this moment. Waits for it to answer, for at most a second.
    pub fn fresh_snapshot(&self) -> Snapshot {
        self.submit_and_wait(Command::Publish);
        self.snapshot()
    }

    /// Begins all statistics anew, and returns when that has happened, after at most a second.
    pub fn reset_stats(&self) {
        self.submit_and_wait(Command::Reset);
    }

    /// Changes the rate of one direction, in place of any steps or trace.
    pub fn set_rate(&self, direction: Direction, rate: Rate) {
        self.submit(Command::SetRate(direction, rate));
    }

    /// Makes the radio silent in both directions (LNK-7).
    pub fn pause(&self, duration: Duration) {
        self.submit(Command::Pause(duration));
    }

    /// Ends a silence begun by [`Control::pause`].
    pub fn resume(&self) {
        self.submit(Command::Resume);
    }

    pub(crate) fn stop_handle(&self) -> &Stop {
        &self.shared.stop
    }

    /// Becomes readable when there are orders.
    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }

    /// Takes the orders that have come.
    pub(crate) fn take_commands(&self) -> Vec<Command> {
        let mut count = [0; 8];
        // Nothing to read means that the orders have been taken already.
        let _ = rustix::io::read(&self.shared.wake, &mut count);
        mem::take(&mut self.state().orders)
    }

    /// Shows what happened, and says that `done` orders were carried out before.
    pub(crate) fn publish(&self, snapshot: Snapshot, done: usize) {
        let mut state = self.state();
        state.snapshot = snapshot;
        state.done += done as u64;
        self.shared.changed.notify_all();
    }

    /// Says that no order will be carried out any more.
    pub(crate) fn end(&self) {
        self.state().ended = true;
        self.shared.changed.notify_all();
    }

    fn submit(&self, order: Command) -> u64 {
        let mut state = self.state();
        if state.ended || state.orders.len() >= MOST_ORDERS {
            return state.done;
        }
        state.orders.push(order);
        state.given += 1;
        let number = state.given;
        drop(state);
        self.wake();
        number
    }

    fn submit_and_wait(&self, order: Command) {
        let number = self.submit(order);
        let waiting = |state: &mut State| state.done < number && !state.ended;
        // An emulator that does not answer leaves the snapshot as it was.
        let _ = self.shared.changed.wait_timeout_while(self.state(), PATIENCE, waiting);
    }

    fn wake(&self) {
        // Full means that the emulator has been notified often enough.
        let _ = rustix::io::write(&self.shared.wake, &1_u64.to_ne_bytes());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn orders_reach_the_emulator_and_a_waiting_caller_is_answered() {
        let control = Control::new().expect("a descriptor");
        let other = control.clone();
        let caller = thread::spawn(move || {
            other.set_rate(Direction::Up, Rate::ZERO);
            other.reset_stats();
        });
        let mut taken = Vec::new();
        while taken.len() < 2 {
            let orders = control.take_commands();
            control.publish(Snapshot::default(), orders.len());
            taken.extend(orders);
        }
        caller.join().expect("answered");
        assert!(matches!(taken[..], [Command::SetRate(Direction::Up, Rate::ZERO), Command::Reset]));
    }

    #[test]
    fn nobody_waits_for_an_emulator_that_has_ended() {
        let control = Control::new().expect("a descriptor");
        control.end();
        control.reset_stats();
        assert!(control.take_commands().is_empty());
    }
}
