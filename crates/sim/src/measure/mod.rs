//! What a run measures (MET-1 to MET-13), and the tables that it becomes.
//!
//! Meters are told what happens as it happens and say at the end what it came to. They change
//! nothing and draw nothing, so a run with meters is the run without. Intervals over several runs
//! are made elsewhere, from these values.

mod buffers;
#[cfg(feature = "parquet")]
mod columns;
mod cost;
mod flow;
mod handoff;
mod loss;
mod output;
mod rate;
mod recovery;
mod series;
mod share;

pub use buffers::BufferMeter;
#[cfg(feature = "parquet")]
pub use columns::{write_flows_parquet, write_series_parquet};
pub use cost::{Line, cpu_energy_per_kb, protocol_latency};
pub use flow::{Counters, FlowMeter, FlowRecord, Outcome, Transfers};
pub use handoff::{Handoff, HandoffEffect};
pub use loss::LossApplied;
pub use output::{OutputError, write_flows_csv, write_series_csv};
pub use rate::RateSeries;
pub use recovery::{HopPath, RecoveryMeter};
pub use series::{Recorder, Row, Sampling, Subject, Variable};
pub use share::{fairness, gain_percent, normalised, utilisation_percent};
