//! What a run measures, and the tables that it becomes.
//!
//! Meters are notified of what happens as it happens and report at the end what it came to. They change
//! nothing and draw nothing, so a run with meters is the run without. Intervals over several runs
//! are made elsewhere, from these values.

mod buffers;
mod handoff;
mod output;
mod rate;
mod series;
mod share;

pub use buffers::BufferMeter;
pub use handoff::{Handoff, HandoffEffect};
pub use output::{OutputError, write_series_csv};
pub use rate::RateSeries;
pub use series::{Recorder, Row, Sampling, Subject, Variable};
pub use share::{fairness, utilisation_percent};
