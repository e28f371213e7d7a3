//! The simulated world: machines over radios in virtual time.
