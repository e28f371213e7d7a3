//! Our TCP and our simulated network beside ns-2's.
//!
//! A [`Cell`](reference::Cell) is one scenario that both run. [`ours::run`] runs it here, a
//! [`Ns2`](ns2::Ns2) runs it there, and [`Compared`](verdict::Compared) says whether the two agree.

pub mod ns2;
pub mod options;
pub mod ours;
pub mod reference;
pub mod run;
pub mod scenario;
pub mod speed;
pub mod verdict;
