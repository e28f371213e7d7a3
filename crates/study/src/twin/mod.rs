//! Cells that a simulated world and real kernels both run, so that one can be held against the other.
//!
//! A [`Cell`] says everything that both have to build: links, gaps, who stands where with what, and
//! whose TCP sends. [`run`] is the simulated half; the kernels' half is the lab's, which reads the
//! same cell.

mod cell;
mod judge;
mod simulated;
mod table;
#[cfg(test)]
mod tests;

pub use cell::{Cell, Condition, Outage, Sender};
pub use judge::{Effect, MARGIN, Verdict};
pub use simulated::{run, scenario};
pub use table::cells;
