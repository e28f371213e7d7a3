//! Scenarios, sweeps, their results, and published experiments beside ours.

pub mod analysis;
pub mod emodel;
pub mod engine;
mod ordered;
pub mod published;
pub mod report;
pub mod reproduce;
pub mod results;
pub mod run;
pub mod scenario;
mod setup;
mod shard;
pub mod stats;
pub mod twin;
