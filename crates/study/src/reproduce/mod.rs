//! Published experiments, run again and printed beside what was published.
//!
//! An experiment is a list of [`Cell`]s, each with what the paper prints there and a case that says
//! what to run; a [`CellRunner`] runs cases; [`run_cells`] runs every cell many times on all cores;
//! a [`Comparison`] marks each cell; and a paper's module turns that into a report.

mod cell;
mod compare;
pub mod equations;
mod gain;
pub mod league;
pub mod lines;
pub mod ll_trigger_2017;
pub mod mhp_srp_1994;
pub mod mobile_tcp_2001;
pub mod obtcp_2010;
mod page;
mod papers;
pub mod print;
pub mod processing;
mod prose;
#[cfg(test)]
pub(crate) mod recorded;
mod run;
pub mod rwc_atcp_2003;
pub mod sheet;
mod study;
#[cfg(test)]
pub(crate) mod testing;

pub use crate::setup::{Kind, Parameter, Setup};
pub use cell::{Cell, Label, Only, OnlyError, chosen, chosen_labels};
pub use compare::{Compared, Comparison, Criterion, Mark, NEAR, Order, Pair, RATIO_TOLERANCE};
pub use gain::Gain;
pub use papers::{PAPERS, Paper, find};
pub use prose::ProseError;
pub use run::{CellRunner, Course, Failure, Measured, Progress, run_cells, seed_of};
pub use study::{ReproduceError, Reproduction, Request, Study};
