//! The loop of a thread: it waits for descriptors and the next timer, and hands over what is ready.

use std::io;
use std::num::NonZeroU64;
use std::ops::ControlFlow;

use lasthop_units::Time;

use crate::clock::Clock;
use crate::reactor::{Interest, Reactor, Readiness};
use crate::stop::Stop;
use crate::turn::Source;

/// What runs in a loop, turn by turn. No turn may be long: the others of the thread wait for it.
pub trait EventLoop {
    /// Why it cannot go on.
    type Error: From<io::Error>;

    /// Its descriptors.
    fn reactor(&mut self) -> &mut Reactor<Source>;

    /// When the next turn is due though nothing is ready: [`Time::ZERO`] for at once, [`Time::NEVER`] if
    /// there is nothing to wait for but descriptors.
    fn next_turn(&self) -> Time;

    /// A turn begins.
    fn begin_turn(&mut self, now: Time);

    /// Something changed on a descriptor.
    ///
    /// # Errors
    ///
    /// It cannot go on.
    fn handle_ready(&mut self, source: Source, readiness: Readiness) -> Result<(), Self::Error>;

    /// The configuration is to be read again. What has none that it reads while it runs does nothing.
    fn handle_reload(&mut self) {}

    /// All that is ready was handled: timers are looked at, and what is to be sent is sent. `stops` says
    /// how often the stop was requested meanwhile.
    ///
    /// # Errors
    ///
    /// It cannot go on.
    fn end_turn(&mut self, stops: usize) -> Result<ControlFlow<()>, Self::Error>;
}

/// Runs it in the calling thread until it breaks off.
///
/// # Errors
///
/// It cannot go on, or the kernel refuses to wait.
pub fn run<L: EventLoop>(it: &mut L, clock: Clock, stop: &Stop) -> Result<(), L::Error> {
    // The kernel puts wake-ups off by 50 µs to save power, which would be latency.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    it.reactor().add(stop, Interest::Read, Source::Stop)?;
    it.reactor().add(stop.reloads(), Interest::Read, Source::Reload)?;
    let mut ready = Vec::new();
    loop {
        let at = it.next_turn();
        let timeout = (at != Time::NEVER).then(|| at.since(clock.now()));
        it.reactor().wait(timeout, &mut ready)?;
        it.begin_turn(clock.now());
        let mut stops = 0;
        for (source, readiness) in ready.drain(..) {
            match source {
                Source::Stop => stops += stop.take(),
                Source::Reload if stop.take_reload() => it.handle_reload(),
                Source::Reload => {}
                _ => it.handle_ready(source, readiness)?,
            }
        }
        if it.end_turn(stops)?.is_break() {
            return Ok(());
        }
    }
}
