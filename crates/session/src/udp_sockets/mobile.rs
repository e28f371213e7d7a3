use alloc::collections::BTreeMap;
use core::net::{IpAddr, SocketAddr};

use lasthop_wire::varint;

use super::SocketNumber;

/// A mobile's UDP associations with its applications. `R` is what the caller has for each: the relay's
/// socket that was named in the reply, one for each association, so that it is plain whose a datagram is
/// before the application's port is known.
///
/// One table serves a process for as long as it runs, whatever base it is at: no number is used twice,
/// and what comes late for one never reaches another application.
#[derive(Debug)]
pub struct MobileSockets<R> {
    associations: BTreeMap<SocketNumber, Association<R>>,
    /// The next number.
    next: u64,
    max: usize,
}

#[derive(Debug)]
struct Association<R> {
    relay: R,
    /// The application's address, as its TCP connection has it.
    ip: IpAddr,
    /// Where it sends from, once that is known.
    application: Option<SocketAddr>,
}

impl<R> MobileSockets<R> {
    /// No associations, and no more than `max` of them.
    pub const fn new(max: usize) -> Self {
        Self { associations: BTreeMap::new(), next: 0, max }
    }

    /// Begins an association for the application whose TCP connection comes from `control`, and which
    /// expects to send from `expected`, the address of
    /// [`Progress::Associate`](crate::Progress::Associate).
    ///
    /// Datagrams are taken from `control`'s host alone, which RFC 1928 section 7 demands, and from the
    /// expected port if there is one. An expected address of another host is one that the application
    /// has mistaken, or sees otherwise than the mobile does, and counts as unknown.
    ///
    /// # Errors
    ///
    /// There are as many associations as there may be. The relay is given back; the application is to be
    /// refused with [`Refusal::TooMany`](crate::Refusal::TooMany).
    pub fn open(
        &mut self,
        control: SocketAddr,
        expected: SocketAddr,
        relay: R,
    ) -> Result<SocketNumber, R> {
        if self.associations.len() >= self.max || self.next > varint::MAX {
            return Err(relay);
        }
        let number = SocketNumber(self.next);
        self.next += 1;
        let here = expected.ip().is_unspecified() || same_host(expected.ip(), control.ip());
        // The scope of a link-local address is the connection's.
        let application = (here && expected.port() != 0).then(|| {
            let mut application = control;
            application.set_port(expected.port());
            application
        });
        let association = Association { relay, ip: control.ip(), application };
        self.associations.insert(number, association);
        Ok(number)
    }

    /// Whether a datagram that came to an association's relay from `from` is its application's; another
    /// is to be dropped (RFC 1928 section 7). The first one says which port the application has, if that
    /// was not known; so ask only of what has a header that can be read.
    pub fn admit(&mut self, number: SocketNumber, from: SocketAddr) -> bool {
        let Some(association) = self.associations.get_mut(&number) else { return false };
        if !same_host(from.ip(), association.ip) {
            return false;
        }
        association.application.get_or_insert(from).port() == from.port()
    }

    /// The relay, and the application that gets what comes from the base for this number; none before
    /// the application's port is known, nor for an association that is over. In that last case the base
    /// has missed its end: tell it again ([`Close`](crate::udp_relay::UdpRecord::Close)).
    pub fn application(&self, number: SocketNumber) -> Option<(&R, SocketAddr)> {
        let association = self.associations.get(&number)?;
        Some((&association.relay, association.application?))
    }

    /// The relay of an association, whether its application's port is known or not.
    pub fn relay_mut(&mut self, number: SocketNumber) -> Option<&mut R> {
        self.associations.get_mut(&number).map(|association| &mut association.relay)
    }

    /// How many associations the applications of one host have.
    pub fn of_host(&self, ip: IpAddr) -> usize {
        self.associations.values().filter(|association| same_host(association.ip, ip)).count()
    }

    /// Whether the association goes on.
    pub fn contains(&self, number: SocketNumber) -> bool {
        self.associations.contains_key(&number)
    }

    /// Ends an association, as the end of the application's TCP connection does (RFC 1928 section 7).
    /// The relay, if there was one: the base is to be told.
    pub fn close(&mut self, number: SocketNumber) -> Option<R> {
        self.associations.remove(&number).map(|association| association.relay)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.associations.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.associations.is_empty()
    }
}

/// A socket of both families has IPv4 addresses in mapped form, one of IPv4 alone has not.
fn same_host(a: IpAddr, b: IpAddr) -> bool {
    a.to_canonical() == b.to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: &str = "0.0.0.0:0";

    fn addr(text: &str) -> SocketAddr {
        text.parse().expect("address")
    }

    /// An association of an application at 192.0.2.7.
    fn opened(expected: &str) -> (MobileSockets<char>, SocketNumber) {
        let mut sockets = MobileSockets::new(2);
        let control = addr("192.0.2.7:1");
        let number = sockets.open(control, addr(expected), 'r').expect("room");
        (sockets, number)
    }

    /// RFC 1928 section 4: zeros are what a client says that does not know its address yet.
    #[test]
    fn the_first_datagram_says_where_an_application_sends_from() {
        for unknown in [UNKNOWN, "[::]:0", "192.0.2.7:0", "192.0.2.8:40", "[2001:db8::1]:40"] {
            let (mut sockets, number) = opened(unknown);
            assert_eq!(sockets.application(number), None);
            assert!(sockets.admit(number, addr("192.0.2.7:50")));
            assert_eq!(sockets.application(number), Some((&'r', addr("192.0.2.7:50"))));
            assert!(!sockets.admit(number, addr("192.0.2.7:51")));
            assert!(sockets.admit(number, addr("192.0.2.7:50")));
        }
    }

    /// RFC 1928 section 4: the server may use the address to limit access.
    #[test]
    fn an_expected_port_is_the_only_one() {
        for expected in ["0.0.0.0:40", "192.0.2.7:40", "[::ffff:192.0.2.7]:40"] {
            let (mut sockets, number) = opened(expected);
            assert_eq!(sockets.application(number), Some((&'r', addr("192.0.2.7:40"))));
            assert!(!sockets.admit(number, addr("192.0.2.7:50")));
            assert!(sockets.admit(number, addr("192.0.2.7:40")));
        }
    }

    /// RFC 1928 section 7: datagrams from elsewhere than the client's host must be dropped.
    #[test]
    fn only_the_host_of_the_tcp_connection_may_send() {
        for expected in [UNKNOWN, "192.0.2.8:50", "0.0.0.0:50"] {
            let (mut sockets, number) = opened(expected);
            assert!(!sockets.admit(number, addr("192.0.2.8:50")));
            assert!(!sockets.admit(number, addr("[2001:db8::1]:50")));
            assert!(sockets.admit(number, addr("[::ffff:192.0.2.7]:50")));
        }
    }

    /// RFC 1928 section 7: an association ends with the TCP connection that asked for it.
    #[test]
    fn an_association_that_is_over_takes_and_gives_nothing() {
        let (mut sockets, number) = opened("0.0.0.0:40");
        assert!(sockets.contains(number));
        assert_eq!(sockets.close(number), Some('r'));
        assert_eq!((sockets.close(number), sockets.contains(number)), (None, false));
        assert!(!sockets.admit(number, addr("192.0.2.7:40")));
        assert_eq!(sockets.application(number), None);
        assert!(sockets.is_empty());
    }

    #[test]
    fn no_number_is_used_twice_and_associations_are_bounded() {
        let (mut sockets, first) = opened(UNKNOWN);
        let control = addr("192.0.2.7:1");
        let mut numbers = alloc::vec![first];
        for _ in 0..10 {
            numbers.push(sockets.open(control, addr(UNKNOWN), 's').expect("room"));
            assert_eq!(sockets.len(), 2);
            assert_eq!(sockets.open(control, addr(UNKNOWN), 't'), Err('t'));
            sockets.close(numbers[numbers.len() - 2]);
        }
        assert!(numbers.is_sorted_by(|a, b| a < b));
        sockets.next = varint::MAX + 1;
        assert_eq!(sockets.open(control, addr(UNKNOWN), 't'), Err('t'));
    }

    #[test]
    fn applications_of_one_host_are_told_apart() {
        let (mut sockets, first) = opened(UNKNOWN);
        let second = sockets.open(addr("192.0.2.7:1"), addr(UNKNOWN), 's').expect("room");
        assert_eq!(sockets.of_host(addr("[::ffff:192.0.2.7]:9").ip()), 2);
        assert_eq!(sockets.of_host(addr("192.0.2.8:1").ip()), 0);
        assert_eq!(sockets.relay_mut(second), Some(&mut 's'));
        assert!(sockets.admit(second, addr("192.0.2.7:60")));
        assert!(sockets.admit(first, addr("192.0.2.7:50")));
        assert_eq!(sockets.application(first), Some((&'r', addr("192.0.2.7:50"))));
        assert_eq!(sockets.application(second), Some((&'s', addr("192.0.2.7:60"))));
    }
}
