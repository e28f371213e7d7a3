//! The quantities that every lasthop crate speaks in, and the list of [schemes](Scheme).
//!
//! Nothing here reads a clock or a random source: a [`Time`] is handed in by whichever world runs
//! the machines, and a [`Seed`] is an argument from which named streams of random numbers follow.
//! The crate is `no_std`, as are all crates that hold machines.

#![no_std]

extern crate alloc;

mod address;
mod deadlines;
mod gather;
mod line;
mod link;
mod parse;
mod rate;
mod scheme;
mod seed;
mod time;
mod watch;

pub use address::CarrierAddress;
pub use deadlines::{Deadlines, Timers};
pub use gather::gather;
pub use line::one_line;
pub use link::LinkEvent;
pub use parse::{ParseError, Span};
pub use rate::{Bytes, Rate};
pub use scheme::{AgentRole, HopEnd, Placement, Scheme, Traits, WorksAt};
pub use seed::{Seed, Stream};
pub use time::Time;
pub use watch::{LinkNews, LinkWatch, Thaw};

pub use core::time::Duration;
pub use parse::{deserialize_duration, parse_duration};
