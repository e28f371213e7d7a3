//! Scenarios, sweeps, their results, and published experiments beside ours.
