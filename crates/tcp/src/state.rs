//! Where a connection stands between its opening and its end.

/// The states of RFC 9293 section 3.3.2, without LISTEN, which is whoever calls
/// [`Connection::accept`](crate::Connection::accept).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Over, or never begun.
    Closed,
    /// Our SYN is out.
    SynSent,
    /// Both SYNs are known, ours is not acknowledged.
    SynReceived,
    /// Data flows.
    Established,
    /// We finished; our FIN is not acknowledged.
    FinWait1,
    /// Our FIN is acknowledged; the peer may go on.
    FinWait2,
    /// The peer finished; we may go on.
    CloseWait,
    /// Both finished at once; our FIN is not acknowledged.
    Closing,
    /// The peer finished, then we; our FIN is not acknowledged.
    LastAck,
    /// Both FINs are acknowledged; old segments are awaited.
    TimeWait,
}
