//! What byte streams are kept in: a ring of bytes addressed by stream offset, sets of offsets, and
//! the division of a window among streams; and a receiver's state of a gap: duplicates that wait
//! for its repair, and marks beside it.
//!
//! Whoever reassembles and repeats bytes, or helps those that do, shares these; none knows a
//! protocol.

#![no_std]

extern crate alloc;

mod dupacks;
mod marks;
mod ranges;
mod ring;
mod shares;

pub use dupacks::HeldDupacks;
pub use marks::Marks;
pub use ranges::RangeSet;
pub use ring::Ring;
pub use shares::{Shares, SharesError};
