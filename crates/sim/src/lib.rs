//! The simulated world: machines over radios in virtual time.
//!
//! A [`net::Network`] holds nodes, the links between them and packets; the other modules are nodes
//! for it, and what is measured of them. Everything follows from a seed.

mod content;

pub mod agents;
pub mod capture;
pub mod measure;
pub mod mobile_ip;
pub mod net;
pub mod schemes;
pub mod signals;

pub use content::Content;
