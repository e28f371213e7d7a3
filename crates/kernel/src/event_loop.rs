//! The loop of a thread: it waits for descriptors and the next timer, and hands over what is ready.

use std::io;
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::thread;

use lasthop_units::{Duration, Time};

use crate::clock::Clock;
use crate::reactor::{Interest, Reactor, Readiness};
use crate::stop::Stop;
use crate::turn::Source;

/// After so many turns in a row with little work the loop rests.
const LIGHT_TURNS: u32 = 32;

/// What runs in a loop, turn by turn. No turn may be long: the others of the thread wait for it.
pub trait EventLoop {
    /// Why it cannot go on.
    type Error: From<io::Error>;

    /// Its descriptors.
    fn reactor(&mut self) -> &mut Reactor<Source>;

    /// When the next turn is due though nothing is ready: [`Time::ZERO`] for at once, [`Time::NEVER`] if
    /// there is nothing to wait for but descriptors.
    fn next_turn(&self) -> Time;

    /// How long what happens may go unnoticed after the turn that has ended, so that more is done in one
    /// wake-up. Whatever [`next_turn`](Self::next_turn) says is not put off.
    fn rest(&self) -> Duration {
        Duration::ZERO
    }

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
    let (mut ready, mut now) = (Vec::new(), clock.now());
    let (mut is_busy, mut light) = (false, LIGHT_TURNS);
    loop {
        let (at, rest) = (it.next_turn(), it.rest());
        let ended = clock.now();
        // Where it is the work that takes time, and not the wake-ups, more of it at once would only be late.
        light = if ended.since(now) < rest / 8 { light.saturating_add(1) } else { 0 };
        if is_busy && light > LIGHT_TURNS {
            thread::sleep(rest.min(at.since(ended)));
        }
        let from = clock.now();
        it.reactor().wait((at != Time::NEVER).then(|| at.since(from)), &mut ready)?;
        now = clock.now();
        // A rest in which nothing comes saves no wake-up, and is one itself.
        if !ready.is_empty() {
            is_busy = now.since(from) < rest / 4;
        }
        it.begin_turn(now);
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Two sockets that a turn may write to, and how many were readable in each turn.
    struct Busy {
        reactor: Reactor<Source>,
        ours: [UnixStream; 2],
        theirs: [UnixStream; 2],
        ready: Vec<usize>,
    }

    impl EventLoop for Busy {
        type Error = io::Error;

        fn reactor(&mut self) -> &mut Reactor<Source> {
            &mut self.reactor
        }

        fn next_turn(&self) -> Time {
            Time::NEVER
        }

        fn rest(&self) -> Duration {
            Duration::from_millis(200)
        }

        fn begin_turn(&mut self, _now: Time) {
            self.ready.push(0);
        }

        fn handle_ready(&mut self, source: Source, _readiness: Readiness) -> io::Result<()> {
            let Source::Listener(n) = source else { return Ok(()) };
            self.ours[n].read_exact(&mut [0])?;
            *self.ready.last_mut().unwrap() += 1;
            Ok(())
        }

        fn end_turn(&mut self, _stops: usize) -> io::Result<ControlFlow<()>> {
            if self.ready.len() == 2 {
                return Ok(ControlFlow::Break(()));
            }
            self.theirs[0].write_all(&[0])?;
            let mut later = self.theirs[1].try_clone()?;
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(20));
                later.write_all(&[0])
            });
            Ok(ControlFlow::Continue(()))
        }
    }

    #[test]
    fn what_comes_while_a_busy_loop_rests_is_handled_in_one_turn() {
        let (a, b) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        let (ours, theirs) = ([a.0, b.0], [a.1, b.1]);
        let mut busy = Busy { reactor: Reactor::new().unwrap(), ours, theirs, ready: Vec::new() };
        for (n, socket) in busy.ours.iter().enumerate() {
            busy.reactor.add(socket, Interest::Read, Source::Listener(n)).unwrap();
        }
        busy.theirs[0].write_all(&[0]).unwrap();
        run(&mut busy, Clock::start(), &Stop::new().unwrap()).unwrap();
        assert_eq!(busy.ready, [1, 2]);
    }
}
