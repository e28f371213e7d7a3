//! What people look at: what running bases, mobiles and agents do, in a terminal, in a browser and
//! for monitoring systems.
//!
//! Everything here knows a process by its control socket only ([`lasthop_control`]), so that
//! looking costs the process no more than one answer each time.

pub mod history;
mod http;
pub mod metrics;
pub mod sample;
pub mod top;

pub use self::http::{Bound, DEFAULT_UI, Handle, Options, ServeError, serve};
