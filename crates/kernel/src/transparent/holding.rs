//! SYNs that wait: what an application asks for is known before the kernel answers it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use lasthop_wire::checksum;
use lasthop_wire::ip::{Addresses, Header, Protocol};
use lasthop_wire::mhp::Refusal;
use lasthop_wire::tcp::{Segment, Seq};

use crate::netlink::{Held, NetlinkError, PacketQueue, Verdict};

/// SYNs that the kernel holds at most. What is beyond vanishes, and is sent again.
const SYNS_MAX: u32 = 8192;
/// What an ICMP error quotes at most of the packet that it is about (RFC 1812 section 4.3.2.3).
const QUOTED_MAX: usize = 548;

/// What is sent to an application's kernel for a connection that does not come about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// A reset: ECONNREFUSED.
    Reset,
    /// The host cannot be reached: EHOSTUNREACH.
    Host,
    /// The network cannot be reached: ENETUNREACH.
    Network,
    /// It is forbidden: EACCES, or EHOSTUNREACH for IPv4.
    Forbidden,
}

impl Answer {
    /// All of them.
    pub(super) const ALL: [Self; 4] = [Self::Reset, Self::Host, Self::Network, Self::Forbidden];

    /// As the packet filter gives it.
    pub(super) fn rejection(self) -> &'static str {
        match self {
            Self::Reset => "tcp reset",
            Self::Host => "icmpx type host-unreachable",
            Self::Network => "icmpx type no-route",
            Self::Forbidden => "icmpx type admin-prohibited",
        }
    }

    /// The mark of a SYN that is answered so: a number that a mark with `own`, lasthop's bit, never
    /// is, and that nobody else has use for.
    pub(super) fn mark(self, own: u32) -> u32 {
        let code = match self {
            Self::Reset => 1,
            Self::Host => 2,
            Self::Network => 3,
            Self::Forbidden => 4,
        };
        // Four numbers in the half of a mark where lasthop's bit is not.
        if own > 0xffff { (!own & 0xffff_0000) | code } else { (code << 16) | (!own & 0xffff) }
    }

    /// The code of ICMP's Destination Unreachable (RFC 792, RFC 1812 section 5.2.7.1).
    fn icmp_code(self) -> Option<u8> {
        match self {
            Self::Reset => None,
            Self::Network => Some(0),
            Self::Host => Some(1),
            Self::Forbidden => Some(13),
        }
    }

    fn of(refusal: Refusal) -> Self {
        match refusal {
            Refusal::HostUnreachable
            | Refusal::TimedOut
            | Refusal::NameNotFound
            | Refusal::ResolverFailed
            | Refusal::AssociationLost => Self::Host,
            Refusal::NetworkUnreachable | Refusal::ShuttingDown => Self::Network,
            Refusal::NotPermitted | Refusal::NotAllowed => Self::Forbidden,
            _ => Self::Reset,
        }
    }
}

/// A SYN that waits for its verdict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Syn {
    held: Held,
    /// The application's own address.
    pub source: SocketAddr,
    /// Where it goes to.
    pub target: SocketAddr,
    /// It has this number as often as it is sent again.
    pub seq: Seq,
}

impl Syn {
    fn read(held: &Held) -> Option<Self> {
        let (header, payload) = Header::parse(&held.bytes).ok()?;
        let (segment, _) = Segment::parse_unverified(payload).ok()?;
        Some(Self {
            source: SocketAddr::new(header.addresses.src(), segment.src_port),
            target: SocketAddr::new(header.addresses.dst(), segment.dst_port),
            seq: segment.seq,
            held: held.clone(),
        })
    }

    /// The ICMP error of the host that was meant, as it would come to the application.
    fn unreachable(&self, code: u8) -> Option<Vec<u8>> {
        let quoted = self.held.bytes.get(..QUOTED_MAX).unwrap_or(&self.held.bytes);
        let mut icmp = vec![3, code, 0, 0, 0, 0, 0, 0];
        icmp.extend_from_slice(quoted);
        let sum = checksum::of(&icmp).to_be_bytes();
        icmp[2..4].copy_from_slice(&sum);
        let addresses = Addresses::new(self.target.ip(), self.source.ip()).ok()?;
        let mut packet = Vec::with_capacity(icmp.len() + addresses.header_len() as usize);
        Header::new(addresses, Protocol::ICMP).emit(icmp.len(), &mut packet).ok()?;
        packet.extend_from_slice(&icmp);
        Some(packet)
    }
}

/// The SYNs that wait.
#[derive(Debug)]
pub struct Holding {
    queue: PacketQueue,
    /// Lasthop's bit of marks.
    mark: u32,
}

impl Holding {
    /// Holds nothing yet: that takes a rule.
    pub(super) fn open(mark: u32) -> Result<Self, NetlinkError> {
        Ok(Self { queue: PacketQueue::open(SYNS_MAX)?, mark })
    }

    /// The queue that the rule is to fill.
    pub(super) fn number(&self) -> u16 {
        self.queue.number()
    }

    /// Takes what waits; whether there may be more.
    ///
    /// # Errors
    ///
    /// The kernel tells nothing any more.
    pub fn read(&mut self, mut each: impl FnMut(Syn)) -> io::Result<bool> {
        let mut strange = Vec::new();
        let more = self.queue.read(|held| match Syn::read(&held) {
            Some(syn) => each(syn),
            None => strange.push(held.id),
        })?;
        // The kernel is to say what it thinks of it.
        strange.into_iter().for_each(|id| self.queue.answer(id, &Verdict::Accept));
        Ok(more)
    }

    /// Lets it go on to the listener.
    pub fn admit(&mut self, syn: &Syn) {
        self.queue.answer(syn.held.id, &Verdict::Accept);
    }

    /// Lets it vanish: it is answered in another's place, or by nobody.
    pub fn drop(&mut self, syn: &Syn) {
        self.queue.answer(syn.held.id, &Verdict::Drop);
    }

    /// Tells the application why there is no connection.
    pub fn refuse(&mut self, syn: &Syn, refusal: Refusal) {
        let answer = Answer::of(refusal);
        // The kernel makes no ICMP error for IPv4 that comes from an address that the table of local
        // addresses does not have, which on loopback it has to: there the SYN becomes one.
        let on_loopback = syn.source.is_ipv4() && syn.source.ip().is_loopback();
        let own = answer.icmp_code().filter(|_| on_loopback);
        let verdict = match own.and_then(|code| syn.unreachable(code)) {
            Some(packet) => Verdict::Replace(packet),
            None => Verdict::Mark(answer.mark(self.mark)),
        };
        self.queue.answer(syn.held.id, &verdict);
    }
}

impl AsFd for Holding {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusals_mark_never_has_lasthops_bit() {
        for bit in 0..32 {
            let own = 1 << bit;
            let marks = Answer::ALL.map(|answer| answer.mark(own));
            assert!(marks.iter().all(|mark| mark & own == 0), "{own:#x}");
            assert!((0..4).all(|i| !marks[..i].contains(&marks[i])), "{own:#x}: {marks:x?}");
        }
    }

    #[test]
    fn applications_get_the_fixed_hosts_error() {
        for (refusal, answer) in [
            (Refusal::Refused, Answer::Reset),
            (Refusal::ConnectionReset, Answer::Reset),
            (Refusal::TooMany, Answer::Reset),
            (Refusal::HostUnreachable, Answer::Host),
            (Refusal::TimedOut, Answer::Host),
            (Refusal::AssociationLost, Answer::Host),
            (Refusal::NetworkUnreachable, Answer::Network),
            (Refusal::NotAllowed, Answer::Forbidden),
        ] {
            assert_eq!(Answer::of(refusal), answer, "{refusal}");
        }
    }
}
