//! Names to which mobiles' datagrams go: asked for once, and remembered for a while.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use lasthop_session::udp_sockets::SocketNumber;
use lasthop_session::{HostName, Refusal};
use lasthop_units::Time;

use crate::resolve;

/// For how long an answer is believed. A name server's own word (TTL) does not come through.
const BELIEVED_FOR: Duration = Duration::from_secs(30);
/// And a failure.
const FAILED_FOR: Duration = Duration::from_secs(5);
/// Names of one mobile that are remembered.
const NAMES_MAX: usize = 256;
/// Bytes of one mobile's datagrams that may wait for answers.
const WAITING_MAX: usize = 256 * 1024;

/// A datagram that waits for its target's address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Waiting {
    /// The socket that it is to leave from.
    pub(super) socket: SocketNumber,
    /// The port that it goes to.
    pub(super) port: u16,
    /// The user data.
    pub(super) payload: Vec<u8>,
}

/// What is known of a name.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Known<'a> {
    /// Its addresses, the best first.
    Addresses(&'a [IpAddr]),
    /// It has none.
    Failed(Refusal),
    /// The resolver is to be asked, under this number. The datagram waits.
    Ask(u64),
    /// It is being asked. The datagram waits.
    Asked,
    /// Too many names are being asked for, or too much waits: the datagram is dropped.
    Full,
}

#[derive(Debug)]
enum Entry {
    Asked { waiting: Vec<Waiting> },
    Answered { until: Time, addresses: Result<Vec<IpAddr>, Refusal> },
}

impl Entry {
    fn is_over(&self, now: Time) -> bool {
        matches!(self, Self::Answered { until, .. } if *until <= now)
    }
}

/// Names by mobiles' associations `M`.
#[derive(Debug)]
pub(super) struct DatagramNames<M> {
    names: BTreeMap<M, HashMap<HostName, Entry>>,
    asked: BTreeMap<u64, (M, HostName)>,
    next: u64,
}

impl<M: Copy + Ord> DatagramNames<M> {
    pub(super) const fn new() -> Self {
        Self { names: BTreeMap::new(), asked: BTreeMap::new(), next: 0 }
    }

    /// A datagram goes to a name.
    pub(super) fn look_up(
        &mut self,
        now: Time,
        mobile: M,
        name: &HostName,
        datagram: impl FnOnce() -> Waiting,
    ) -> Known<'_> {
        let names = self.names.entry(mobile).or_default();
        if names.get(name).is_some_and(|entry| entry.is_over(now)) {
            names.remove(name);
        }
        if !names.contains_key(name) {
            if names.len() >= NAMES_MAX {
                names.retain(|_, entry| !entry.is_over(now));
            }
            if names.len() >= NAMES_MAX {
                return Known::Full;
            }
        }
        let held: usize = match names.get(name) {
            Some(Entry::Answered { .. }) => 0,
            _ => names.values().map(held).sum(),
        };
        let has_room = |waiting: &Waiting| held + cost(waiting) <= WAITING_MAX;
        match names.get_mut(name) {
            Some(Entry::Answered { .. }) => {}
            Some(Entry::Asked { waiting }) => match Some(datagram()).filter(has_room) {
                Some(datagram) => {
                    waiting.push(datagram);
                    return Known::Asked;
                }
                None => return Known::Full,
            },
            None => {
                let Some(datagram) = Some(datagram()).filter(has_room) else { return Known::Full };
                names.insert(name.clone(), Entry::Asked { waiting: vec![datagram] });
                self.next += 1;
                self.asked.insert(self.next, (mobile, name.clone()));
                return Known::Ask(self.next);
            }
        }
        match self.names.get(&mobile).and_then(|names| names.get(name)) {
            Some(Entry::Answered { addresses: Ok(addresses), .. }) => Known::Addresses(addresses),
            Some(Entry::Answered { addresses: Err(refusal), .. }) => Known::Failed(*refusal),
            _ => Known::Full,
        }
    }

    /// The answer to a question: whose it was, the name, what it is, and what has waited. `None` if the
    /// association is over.
    #[allow(clippy::type_complexity, reason = "taken apart where it is called")]
    pub(super) fn answer(
        &mut self,
        now: Time,
        number: u64,
        addresses: io::Result<Vec<SocketAddr>>,
    ) -> Option<(M, HostName, Result<Vec<IpAddr>, Refusal>, Vec<Waiting>)> {
        let (mobile, name) = self.asked.remove(&number)?;
        let addresses = match addresses {
            Ok(all) => Ok(all.into_iter().map(|addr| addr.ip().to_canonical()).collect()),
            Err(error) => Err(resolve::refusal(&error)),
        };
        let until = now + if addresses.is_ok() { BELIEVED_FOR } else { FAILED_FOR };
        let entry = self.names.get_mut(&mobile)?.get_mut(&name)?;
        let answered = Entry::Answered { until, addresses: addresses.clone() };
        let Entry::Asked { waiting } = std::mem::replace(entry, answered) else { return None };
        Some((mobile, name, addresses, waiting))
    }

    /// A mobile's association is over.
    pub(super) fn end(&mut self, mobile: M) {
        self.names.remove(&mobile);
        self.asked.retain(|_, (of, _)| *of != mobile);
    }
}

/// What a datagram that waits costs, bytes.
fn cost(datagram: &Waiting) -> usize {
    size_of::<Waiting>() + datagram.payload.len()
}

fn held(entry: &Entry) -> usize {
    match entry {
        Entry::Asked { waiting } => waiting.iter().map(cost).sum(),
        Entry::Answered { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HostName {
        HostName::new(text).unwrap()
    }

    fn datagram(length: usize) -> Waiting {
        Waiting { socket: SocketNumber(1), port: 53, payload: vec![7; length] }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_name_is_asked_for_once_and_believed_for_a_while() {
        let (mut names, now) = (DatagramNames::new(), Time::from_secs(9));
        let a = name("a.example");
        assert_eq!(names.look_up(now, 'm', &a, || datagram(1)), Known::Ask(1));
        assert_eq!(names.look_up(now, 'm', &a, || datagram(2)), Known::Asked);
        let said =
            vec!["[::ffff:192.0.2.7]:0".parse().unwrap(), "[2001:db8::1]:0".parse().unwrap()];
        let (mobile, of, addresses, waiting) = names.answer(now, 1, Ok(said)).unwrap();
        assert_eq!((mobile, of), ('m', a.clone()));
        assert_eq!(waiting, [datagram(1), datagram(2)]);
        let all = [ip("192.0.2.7"), ip("2001:db8::1")];
        assert_eq!(addresses.unwrap(), all);
        let known = names.look_up(now + Duration::from_secs(29), 'm', &a, || datagram(1));
        assert_eq!(known, Known::Addresses(&all));
        let later = now + BELIEVED_FOR;
        assert_eq!(names.look_up(later, 'm', &a, || datagram(1)), Known::Ask(2));
        let failed = Err(io::Error::other("no such name"));
        assert!(names.answer(later, 2, failed).unwrap().2.is_err());
        let known = names.look_up(later, 'm', &a, || datagram(1));
        assert_eq!(known, Known::Failed(Refusal::NameNotFound));
    }

    #[test]
    fn what_waits_is_bounded_for_each_mobile() {
        let (mut names, now) = (DatagramNames::new(), Time::ZERO);
        let taken = (0..1000)
            .filter(|n| {
                let known = names.look_up(now, 'm', &name(&format!("{n}.example")), || datagram(1));
                matches!(known, Known::Ask(_))
            })
            .count();
        assert_eq!(taken, NAMES_MAX);
        assert_eq!(names.look_up(now, 'n', &name("x"), || datagram(WAITING_MAX)), Known::Full);
        let half = WAITING_MAX / 2;
        assert!(matches!(names.look_up(now, 'n', &name("x"), || datagram(half)), Known::Ask(_)));
        assert_eq!(names.look_up(now, 'n', &name("x"), || datagram(half)), Known::Full);
        assert_eq!(names.look_up(now, 'n', &name("y"), || datagram(half)), Known::Full);
    }

    #[test]
    fn an_answer_for_an_association_that_is_over_is_nobodys() {
        let (mut names, now) = (DatagramNames::new(), Time::ZERO);
        assert_eq!(names.look_up(now, 'm', &name("x"), || datagram(1)), Known::Ask(1));
        names.end('m');
        assert!(names.answer(now, 1, Ok(Vec::new())).is_none());
        assert!(names.names.is_empty() && names.asked.is_empty());
    }
}
