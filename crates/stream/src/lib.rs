//! What byte streams are kept in: a ring of bytes addressed by stream offset, sets of offsets, and
//! the division of a window among streams.
//!
//! The transports that reassemble and repeat bytes share these; none knows a protocol.

#![no_std]

extern crate alloc;

mod ranges;
mod ring;
mod shares;

pub use ranges::RangeSet;
pub use ring::Ring;
pub use shares::{Shares, SharesError};
