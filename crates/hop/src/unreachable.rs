use core::fmt;

/// What the network says of datagrams that were sent to a base. It is a hint: nothing of it is
/// authentic, and what is so now may not be so in a moment.
///
/// RFC 1122 section 4.2.3.9 tells hard errors from soft ones. Of these only [`Port`](Self::Port) is
/// hard: it is what a host says whose base has died. The others tell of the way, and a dead zone
/// behind a router looks the same as a base that is no more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Unreachable {
    /// The base's host is there and nobody listens: ICMP port or protocol unreachable from the base's
    /// own address, or a TCP connection that is refused.
    Port,
    /// Somebody on the way, a firewall most likely, does not let them pass.
    Prohibited,
    /// A router says that the base's host does not answer, or that the way there has no end.
    Host,
    /// A router has no route to it.
    Network,
    /// This host says that the next hop on its own link does not answer.
    NextHop,
    /// This host has no route to it.
    NoRoute,
}

impl Unreachable {
    /// Whether it concerns the base itself and not the way to it.
    pub const fn is_hard(self) -> bool {
        matches!(self, Self::Port)
    }

    /// Whether it is this host that says so, and not the network.
    pub const fn is_local(self) -> bool {
        matches!(self, Self::NextHop | Self::NoRoute)
    }
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Port => "the base's host says that nobody listens at this port",
            Self::Prohibited => "the network prohibits it (a firewall)",
            Self::Host => "a router says that the base's host is unreachable",
            Self::Network => "a router says that the base's network is unreachable",
            Self::NextHop => "the next hop on this link does not answer",
            Self::NoRoute => "this host has no route to the base",
        })
    }
}
