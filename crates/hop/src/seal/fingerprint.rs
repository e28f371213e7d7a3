use lasthop_wire::datagram::MAC_LEN;

/// Names one init. Equal only for copies of the same message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fingerprint(pub(super) [u8; MAC_LEN]);
