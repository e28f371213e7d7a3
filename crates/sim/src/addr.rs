use core::fmt;

/// Where a datagram comes from or goes to in the simulated world. Machines treat it as opaque, as
/// they treat a socket address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Addr {
    /// The host.
    pub host: u32,
    /// The port on it: a rebinding NAT changes this one only.
    pub port: u16,
}

impl Addr {
    /// The address of `port` on `host`.
    pub const fn new(host: u32, port: u16) -> Self {
        Self { host, port }
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}
