//! The simulated world: machines over radios in virtual time.
//!
//! A [`World`] holds nodes at addresses and the radios between them; a [`Host`] is a node made of
//! an [`Endpoint`] (one end of a hop) and an [`App`]. Everything follows from a seed.
//!
//! On that stand random schedules of faults and of application behaviour with checkers apart from
//! them. The [`naive`] transport exists to test the world itself.

mod addr;
mod air;
mod content;
mod endpoint;
mod host;
mod pool;
mod trace;
mod world;

pub mod agents;
pub mod capture;
pub mod hop;
pub mod measure;
pub mod mobile_ip;
pub mod naive;
pub mod net;
pub mod schedule;
pub mod schemes;
pub mod signals;

pub use addr::Addr;
pub use air::Stranger;
pub use content::Content;
pub use endpoint::{Endpoint, Probe, Transport};
pub use host::{App, Either, Host};
pub use trace::{Step, Trace};
pub use world::{Halt, Limits, Node, NodeId, OVERHEAD_IPV4, OVERHEAD_IPV6, RadioId, World};
