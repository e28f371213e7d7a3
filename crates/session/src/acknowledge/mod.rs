//! What a fixed host is acknowledged of a connection that a base splits: no more than the mobile has.
//!
//! The base's kernel terminates TCP and acknowledges what it has received. What it sends passes a [`filter`](filter())
//! that bounds the acknowledgement number, so that a base that dies loses nothing: the fixed host still has what the
//! mobile lacks. The rule is here; on Linux a program of the kernel's does the same, and is tested against this. [`Hold`]
//! says how far the bound is.

mod filter;
mod hold;
#[cfg(test)]
mod tests;

pub use self::filter::{
    Control, INJECTED, Known, REPEAT_NS, Seen, Segment, Slot, Told, Verdict, WORDS, filter, receive,
};
pub use self::hold::{Due, Hold};
