//! Mobile TCP on a bare hop: the paper's frames with nothing around them, by explicit choice.
//!
//! No seal, no association and no header but Mobile TCP's own (MOB-1). A peer is its address on the
//! carrier, and **anybody on such a hop can read, change and forge everything, and be anyone**. It
//! is for hops that are private by other means, and for measuring the paper's protocol.
//!
//! Connection IDs are unique among a base's connections with one mobile only: the address that a
//! frame comes from says which mobile's they are (MOB-18). A mobile that moves to another base gets
//! new ones there (MOB-38).
//!
//! The paper does not say how an end learns that the other was started anew, so that IDs and stream
//! numbers of two lives meet. Here a mobile greets the base with a random number of its life and
//! sends nothing else before the base has answered with a random number of its own. On a hop that
//! does not reorder, everything that comes after is of these two lives. A base to which a stranger
//! says anything but a greeting answers that it does not know it, and keeps nothing; the mobile
//! greets anew, and unless the base's answer has the number that it had before, old streams are
//! reset and new ones begin. `docs/mobile-tcp.md` has the bytes.
//!
//! [`BareMobile`] and [`BareBase`] are driven like [`Mobile`](crate::Mobile) and
//! [`Base`](crate::Base); [`MobileEnd`](crate::MobileEnd) and [`BaseEnd`](crate::BaseEnd) say what
//! they have in common.

mod base;
mod mobile;

#[cfg(test)]
mod tests;

pub use base::{BareBase, BareBounds, BareStats};
pub use mobile::BareMobile;
