//! What conversations with applications have in common, whatever their protocol: how far they are,
//! what was gathered of a message.

use alloc::vec::Vec;
use core::net::SocketAddr;

use lasthop_wire::mhp::Target;

/// What became of a piece of input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taken {
    /// Bytes that belong to the conversation. What follows them is the application's, and is left.
    pub bytes: usize,
    /// Where the conversation is.
    pub progress: Progress,
}

/// Where a conversation with an application is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// All input was taken and more is wanted; there may be output.
    NeedMore,
    /// A connection is wanted: open it and call `reply`. Said once.
    Request(Target),
    /// A UDP association is wanted (RFC 1928 section 4), for datagrams that come from this address,
    /// of which all or the port alone may be zero: not known yet. Open it and call `reply` with the
    /// relay's address. Said once, and only where
    /// [`with_udp_associate`](crate::Ingress::with_udp_associate) allows it. After that answer the
    /// connection carries nothing, and its end is the association's (section 7).
    Associate(SocketAddr),
    /// It cannot go on: send the output, then close. Input is taken and ignored.
    Over,
}

/// Bytes of a message that is not complete yet, and the bound for it.
#[derive(Clone, Default, Debug)]
pub(crate) struct Gathered(Vec<u8>);

/// What a parser says of the bytes gathered so far.
pub(crate) enum Parsed<T> {
    Incomplete,
    /// A message of that many bytes.
    Complete(T, usize),
}

impl Gathered {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds input until `parse` finds a message in what was gathered, which must be within `max`
    /// bytes; how much input was taken, and the message.
    pub(crate) fn feed<T>(
        &mut self,
        input: &[u8],
        max: usize,
        parse: impl FnOnce(&[u8]) -> Parsed<T>,
    ) -> (usize, Option<T>) {
        let before = self.0.len();
        let offered = input.len().min(max.saturating_sub(before));
        self.0.extend_from_slice(&input[..offered]);
        match parse(&self.0) {
            Parsed::Incomplete => (offered, None),
            Parsed::Complete(message, len) => {
                self.0 = Vec::new();
                (len.saturating_sub(before), Some(message))
            }
        }
    }
}
