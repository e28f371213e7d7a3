//! What a wireless hop does to packets: rate, delay, a queue, an MTU, loss, fades and pauses.
//!
//! A [`Link`] is one direction, a [`Radio`] both. They are machines: a packet is any handle `P`,
//! time comes in as an argument, and every random process draws from its own named stream of the
//! seed. The simulator and the real-time emulator run these very types, so that what is simulated
//! is what is emulated (LNK-1..13, LNK-15, ERR-1..8).
//!
//! ```
//! use lasthop_radio::{Direction, LinkConfig, Pacing, Radio, RadioConfig};
//! use lasthop_units::{Bytes, Duration, Rate, Seed, Time};
//!
//! let link = LinkConfig {
//!     pacing: Pacing::Rate(Rate::from_mbps(20)),
//!     delay: Duration::from_millis(20),
//!     ..LinkConfig::default()
//! };
//! let mut radio = Radio::new(&RadioConfig::both(link), Seed::from_u64(1), Time::ZERO)?;
//! radio.push(Time::ZERO, Direction::Down, Bytes::new(1500), "a packet").ok();
//! assert_eq!(radio.next_time(), Some(Time::from_micros(20_600)));
//! let (direction, delivery) = radio.pop(Time::from_millis(21)).ok_or("nothing came")?;
//! assert_eq!((direction, delivery.packet), (Direction::Down, "a packet"));
//! assert_eq!(delivery.at, Time::from_micros(20_600));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![no_std]

extern crate alloc;

mod config;
mod link;
mod loss_and_fades;
mod pacer;
mod pair;
mod pauses;
mod settings;
mod stats;
mod text;
mod trace;

pub use config::{
    ConfigError, Damage, Errors, Gap, LinkConfig, Loss, Pacing, Pause, QueueLimit, RadioConfig,
    RateStep, RateSteps, Reorder,
};
pub use lasthop_units::Span;
pub use link::Link;
pub use link::held::{Delivery, Refusal, Refused};
pub use pair::{Direction, Radio};
pub use settings::{LinkSettings, LossList, PauseList, RadioSettings, Share, StepList, TextList};
pub use stats::{Count, Drops, LinkStats, QueueStats};
pub use text::TextError;
pub use trace::{Trace, TraceError};
