//! What agents and mobiles say to each other, and how many bytes it takes.

use std::fmt;
use std::net::Ipv4Addr;

use lasthop_units::{Duration, Time};

/// Where advertisements go: all systems on the link (RFC 5944 section 2.3).
pub const ALL_SYSTEMS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// Where solicitations go: all routers on the link (RFC 5944 section 2.4).
pub const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
/// The UDP port of registration (RFC 5944 section 3).
pub const REGISTRATION_PORT: u16 = 434;

/// A message with its addresses, as the network carries it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Envelope {
    /// Who sends it.
    pub src: Ipv4Addr,
    /// Who it is for: a host, [`ALL_SYSTEMS`] or [`ALL_ROUTERS`].
    pub dst: Ipv4Addr,
    /// What it says.
    pub message: Message,
}

impl Envelope {
    /// Whether it is for everybody on one link, and must not be forwarded.
    pub fn is_local(&self) -> bool {
        self.dst.is_multicast()
    }
}

/// A Mobile IP message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Message {
    /// A mobile asks the agents on its link to advertise (RFC 5944 section 2.4).
    Solicitation,
    /// An agent says that it is there (RFC 5944 section 2.1).
    Advertisement(Advertisement),
    /// A mobile asks to be bound to a care-of address (RFC 5944 section 3.3).
    Request(Request),
    /// The answer (RFC 5944 section 3.4).
    Reply(Reply),
    /// The new foreign agent tells the previous one where the mobile went (MIP-4).
    BindingUpdate(BindingUpdate),
}

impl Message {
    /// Whether it is carried in ICMP; if not, in UDP on [`REGISTRATION_PORT`].
    pub const fn is_icmp(&self) -> bool {
        matches!(self, Self::Solicitation | Self::Advertisement(_))
    }
}

/// What an agent is to a mobile that receives its advertisements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// The mobile may be at home here.
    Home,
    /// The mobile is a visitor here; the agent's address is its care-of address.
    Foreign,
}

/// An agent says that it is there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Advertisement {
    /// The agent's address, which is the care-of address too if it is a foreign agent.
    pub agent: Ipv4Addr,
    /// What it offers.
    pub role: Role,
    /// Counts advertisements from 0 after a start; after 65535 comes 256, so that a mobile can
    /// tell a restart from a roll-over (RFC 5944 section 2.3.2).
    pub sequence: u16,
    /// How long the agent may be taken to be there if no advertisement follows.
    pub validity: Duration,
    /// The longest registration that it grants.
    pub lifetime: Duration,
    /// It takes no more visitors.
    pub busy: bool,
}

/// A mobile asks to be bound to a care-of address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Request {
    /// The mobile's home address.
    pub home: Ipv4Addr,
    /// Its home agent.
    pub home_agent: Ipv4Addr,
    /// Where it can be reached; its home address if it is at home.
    pub care_of: Ipv4Addr,
    /// For how long; zero ends the binding.
    pub lifetime: Duration,
    /// Orders requests, and makes a repeated one known as such.
    pub id: Identification,
    /// The whole network that moves with the mobile, which is its router (MIP-9).
    pub network: Option<Prefix>,
    /// The foreign agent that the mobile left, to be notified where the mobile is (MIP-4).
    pub previous: Option<Ipv4Addr>,
}

/// The answer to a [`Request`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reply {
    /// The mobile's home address.
    pub home: Ipv4Addr,
    /// Its home agent.
    pub home_agent: Ipv4Addr,
    /// What is granted, or the longest that would be; zero confirms the end of the binding.
    pub lifetime: Duration,
    /// Of the request; with [`Code::Identification`] its seconds are the home agent's clock.
    pub id: Identification,
    /// Whether it was granted.
    pub code: Code,
}

/// The new foreign agent tells the previous one where the mobile went.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BindingUpdate {
    /// The mobile's home address.
    pub home: Ipv4Addr,
    /// Where it can be reached.
    pub care_of: Ipv4Addr,
    /// Of the request that caused it.
    pub id: Identification,
}

/// An answer's meaning, with its number on the wire (RFC 5944 section 3.4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Code {
    /// The binding holds.
    Accepted,
    /// The foreign agent has no room.
    AgentFull,
    /// The foreign agent does not grant that long.
    LifetimeTooLong,
    /// The home agent did not answer the foreign agent.
    TimedOut,
    /// The home agent has no room.
    HomeFull,
    /// The home agent does not know this mobile.
    Unauthenticated,
    /// The identification is not above the last, or too far from the home agent's clock.
    Identification,
    /// The request reached a home agent that it does not name.
    WrongHomeAgent,
}

impl Code {
    const ALL: [Self; 8] = [
        Self::Accepted,
        Self::AgentFull,
        Self::LifetimeTooLong,
        Self::TimedOut,
        Self::HomeFull,
        Self::Unauthenticated,
        Self::Identification,
        Self::WrongHomeAgent,
    ];

    /// The code with this number on the wire, if it is known.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.number() == number)
    }

    /// The number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Self::Accepted => 0,
            Self::AgentFull => 66,
            Self::LifetimeTooLong => 69,
            Self::TimedOut => 78,
            Self::HomeFull => 130,
            Self::Unauthenticated => 131,
            Self::Identification => 133,
            Self::WrongHomeAgent => 136,
        }
    }
}

/// A request's time stamp, which orders requests and protects against replay (RFC 5944 section
/// 5.7.1): 32 bits of seconds, then 12 of their fraction and 20 that tell requests apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Identification {
    /// The sender's clock.
    pub seconds: u32,
    /// An answer is known by these bits.
    pub low: u32,
}

impl Identification {
    const COUNTER_BITS: u32 = 20;

    /// Made at `now` by a clock that is `ahead` seconds fast, the `count`th of its sender.
    pub fn at(now: Time, ahead: i32, count: u32) -> Self {
        let nanos = now.as_nanos();
        // Both fit: a run's seconds are below 2^35 and wrap as the wire's do.
        let seconds = (nanos / 1_000_000_000) as u32;
        let fraction = (((nanos % 1_000_000_000) << 32) / 1_000_000_000) as u32;
        let counter = (1 << Self::COUNTER_BITS) - 1;
        Self {
            seconds: seconds.wrapping_add_signed(ahead),
            low: (fraction & !counter) | (count & counter),
        }
    }

    /// The least that is above this.
    pub const fn next(self) -> Self {
        match self.low.checked_add(1) {
            Some(low) => Self { seconds: self.seconds, low },
            None => Self { seconds: self.seconds.wrapping_add(1), low: 0 },
        }
    }
}

/// A network: the addresses whose first bits agree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    network: u32,
    len: u8,
}

impl Prefix {
    /// The network of `address` with `len` significant bits; more than 32 count as 32.
    pub fn new(address: Ipv4Addr, len: u8) -> Self {
        let len = len.min(32);
        Self { network: u32::from(address) & mask(len), len }
    }

    /// Its first address.
    pub fn first(self) -> Ipv4Addr {
        self.network.into()
    }

    /// Significant bits, 0 to 32.
    pub const fn bits(self) -> u8 {
        self.len
    }

    /// Whether `address` is in this network.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        u32::from(address) & mask(self.len) == self.network
    }

    /// Whether the two share an address.
    pub fn overlaps(self, other: Self) -> bool {
        let shorter = mask(self.len.min(other.len));
        self.network & shorter == other.network & shorter
    }
}

const fn mask(len: u8) -> u32 {
    match len {
        0 => 0,
        n => u32::MAX << (32 - n),
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.network), self.len)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 1, 2, 3);

    fn request() -> Request {
        Request {
            home: ADDRESS,
            home_agent: ADDRESS,
            care_of: ADDRESS,
            lifetime: Duration::ZERO,
            id: Identification::default(),
            network: None,
            previous: None,
        }
    }

    #[test]
    fn messages_take_the_bytes_that_the_standards_give_them() {
        let advertisement = Advertisement {
            agent: ADDRESS,
            role: Role::Foreign,
            sequence: 0,
            validity: Duration::ZERO,
            lifetime: Duration::ZERO,
            busy: false,
        };
        let size = |message: Message| message.size().get();
        assert_eq!(size(Message::Solicitation), 28);
        assert_eq!(size(Message::Advertisement(advertisement)), 48);
        let home = Advertisement { role: Role::Home, ..advertisement };
        assert_eq!(size(Message::Advertisement(home)), 44);
        assert_eq!(size(Message::Request(request())), 74);
        let network = Some(Prefix::new(ADDRESS, 24));
        assert_eq!(size(Message::Request(Request { network, ..request() })), 82);
        let previous = Some(ADDRESS);
        assert_eq!(size(Message::Request(Request { previous, ..request() })), 106);
    }

    #[test]
    fn a_prefix_holds_the_addresses_that_begin_with_it() {
        let net = Prefix::new(ADDRESS, 24);
        assert_eq!(net.to_string(), "10.1.2.0/24");
        assert!(net.contains(Ipv4Addr::new(10, 1, 2, 255)));
        assert!(!net.contains(Ipv4Addr::new(10, 1, 3, 0)));
        assert!(Prefix::new(ADDRESS, 0).contains(Ipv4Addr::BROADCAST));
        assert_eq!(Prefix::new(ADDRESS, 99), Prefix::new(ADDRESS, 32));
        assert!(net.overlaps(Prefix::new(ADDRESS, 8)) && Prefix::new(ADDRESS, 8).overlaps(net));
        assert!(!net.overlaps(Prefix::new(Ipv4Addr::new(10, 1, 3, 0), 24)));
    }

    proptest! {
        #[test]
        fn later_requests_have_higher_identifications(
            a in 0..1u64 << 50, later in 250_000..1u64 << 50, first in any::<u32>(),
            second in any::<u32>(), ahead in 0..1000i32,
        ) {
            // A tick of the fraction is 2^-12 s; within one the counter decides.
            let early = Identification::at(Time::from_nanos(a), ahead, first);
            let late = Identification::at(Time::from_nanos(a + later), ahead, second);
            prop_assert!(early < late);
            prop_assert!(early < early.next());
        }
    }
}
