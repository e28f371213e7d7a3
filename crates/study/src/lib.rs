//! Sweeps, their results, and published experiments beside ours.

pub mod analysis;
pub mod published;
pub mod report;
pub mod reproduce;
pub mod results;
pub mod run;
mod setup;
mod shard;
pub mod stats;
pub mod twin;
