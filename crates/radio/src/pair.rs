use core::fmt;

use lasthop_units::{Bytes, Duration, Rate, Seed, Time};

use crate::{ConfigError, Delivery, Link, LinkStats, RadioConfig, Refused};

/// A direction of a radio.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// From the mobile to the base.
    Up,
    /// From the base to the mobile.
    Down,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Up, Self::Down];
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Down => "down",
        })
    }
}

/// A radio: one [`Link`] each way, with independent random processes (LNK-6, LNK-15).
#[derive(Debug)]
pub struct Radio<P> {
    up: Link<P>,
    down: Link<P>,
}

impl<P: Clone> Radio<P> {
    /// A radio whose random processes follow from `seed`, and whose schedules count from `now`.
    ///
    /// # Errors
    ///
    /// If either direction's configuration describes no link.
    pub fn new(config: &RadioConfig, seed: Seed, now: Time) -> Result<Self, ConfigError> {
        let (up, down) = (seed.child("up"), seed.child("down"));
        let (up_fades, down_fades) = if config.shared_fades { (seed, seed) } else { (up, down) };
        Ok(Self {
            up: Link::with_fades(&config.up, up, up_fades, now)?,
            down: Link::with_fades(&config.down, down, down_fades, now)?,
        })
    }

    /// Offers a packet of `size` bytes, an IP datagram's length, to one direction.
    ///
    /// # Errors
    ///
    /// Gives the packet back if it is dropped at once. It may still be lost later.
    pub fn push(
        &mut self,
        now: Time,
        direction: Direction,
        size: Bytes,
        packet: P,
    ) -> Result<(), Refused<P>> {
        self.link_mut(direction).push(now, size, packet)
    }

    /// Whether a packet handed to one direction at `now` is to be marked: [`Link::marks`].
    pub fn marks(&mut self, now: Time, direction: Direction, size: Bytes) -> bool {
        self.link_mut(direction).marks(now, size)
    }

    /// When it is next worth calling [`Radio::pop`]; nothing comes out before.
    pub fn next_time(&self) -> Option<Time> {
        self.up.next_time().into_iter().chain(self.down.next_time()).min()
    }

    /// Takes out the earliest packet that has arrived by `now` in either direction. Call until
    /// `None`.
    pub fn pop(&mut self, now: Time) -> Option<(Direction, Delivery<P>)> {
        let direction = match (self.up.ready(now), self.down.ready(now)) {
            (None, None) => return None,
            (Some(up), Some(down)) if down < up => Direction::Down,
            (Some(_), _) => Direction::Up,
            (None, Some(_)) => Direction::Down,
        };
        self.link_mut(direction).pop(now).map(|delivery| (direction, delivery))
    }

    /// The two directions, up and down, for a caller who keeps them apart.
    pub fn into_links(self) -> [Link<P>; 2] {
        [self.up, self.down]
    }

    /// One direction.
    pub fn link(&self, direction: Direction) -> &Link<P> {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    /// One direction, to be changed.
    pub fn link_mut(&mut self, direction: Direction) -> &mut Link<P> {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }

    /// Changes the rate of one direction from `now` on.
    pub fn set_rate(&mut self, now: Time, direction: Direction, rate: Rate) {
        self.link_mut(direction).set_rate(now, rate);
    }

    /// Makes both directions silent from `now` on (LNK-7).
    pub fn pause(&mut self, now: Time, duration: Duration) {
        self.up.pause(now, duration);
        self.down.pause(now, duration);
    }

    /// Ends a silence begun by [`Radio::pause`].
    pub fn resume(&mut self, now: Time) {
        self.up.resume(now);
        self.down.resume(now);
    }

    /// What one direction did since it was made, or since the last reset.
    pub fn stats(&mut self, now: Time, direction: Direction) -> LinkStats {
        self.link_mut(direction).stats(now)
    }

    /// Begins to count anew in both directions.
    pub fn reset_stats(&mut self, now: Time) {
        self.up.reset_stats(now);
        self.down.reset_stats(now);
    }
}
