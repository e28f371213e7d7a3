//! The code bits.

use crate::kinds::bits;

bits! {
    /// What a packet says by single bits (MOB-12), without those that tell its kind and version.
    ///
    /// The paper names RC and RCR (section 3.4) and leaves the rest open.
    pub struct Code(u16) {
        /// The sender has no more data; takes one sequence number.
        FIN = 0x0001,
        /// Opens a connection; takes one sequence number.
        SYN = 0x0002,
        /// The connection ends at once, or will not be opened.
        RST = 0x0004,
        /// The data ends what was written; without a connection it asks for an answer.
        PSH = 0x0008,
        /// The acknowledgement field means something.
        ACK = 0x0010,
        /// A retransmission request: the bytes from the acknowledgement up to the negative
        /// acknowledgement are missing (MOB-15, MOB-23).
        RRQ = 0x0020,
        /// The sender's retransmission cycle (MOB-28).
        RC = 0x0040,
        /// The retransmission cycle of the last packet received (MOB-29).
        RCR = 0x0080,
        /// Concerns a port on which the mobile accepts connections (MOB-8).
        LISTEN = 0x0100,
        /// Nobody has the connection that the packet named.
        UNKNOWN = 0x0200,
        /// The opening arrived, and the fixed host has not answered yet (MOB-7).
        PENDING = 0x0400,
    }
}

impl Code {
    /// What data packets cannot say.
    pub(super) const CONTROL_ONLY: Self = Self::SYN.with(Self::LISTEN).with(Self::PENDING);
}
