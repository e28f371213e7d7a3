//! What byte streams are kept in: a ring of bytes addressed by stream offset, and sets of offsets.
//!
//! The transports that reassemble and repeat bytes share these; neither knows a protocol.

#![no_std]

extern crate alloc;

mod ranges;
mod ring;

pub use ranges::RangeSet;
pub use ring::Ring;
