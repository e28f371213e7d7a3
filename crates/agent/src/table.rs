//! An agent's state of each connection and its timer, within a bound.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

use lasthop_units::{Duration, Time, Timers};

use crate::Connection;
use crate::lru::LruList;

/// State of many connections. When it is full, the one that was silent longest gives way; one that
/// was silent for long enough is removed anyhow, since its end may have passed elsewhere. Weight
/// and deadline of a connection go with it.
#[derive(Clone, Debug)]
pub struct Table<S> {
    /// Boxed, so that the map's code is the same for all states.
    entries: BTreeMap<Connection, Box<Entry<S>>>,
    recency: LruList,
    deadlines: Timers<Connection>,
    weight: u64,
    limit: usize,
    idle: Duration,
}

#[derive(Clone, Debug)]
struct Entry<S> {
    /// Its place in the order of use.
    place: usize,
    weight: u64,
    due: Option<Time>,
    state: S,
}

impl<S> Table<S> {
    /// A table of at most `limit` connections, each removed after `idle` without a packet.
    pub const fn new(limit: usize, idle: Duration) -> Self {
        Self {
            entries: BTreeMap::new(),
            recency: LruList::new(),
            deadlines: Timers::new(),
            weight: 0,
            limit: if limit == 0 { 1 } else { limit },
            idle,
        }
    }

    /// Connections that are known.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// None is known.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What is known of a connection, which has a packet at this moment.
    pub fn get(&mut self, now: Time, connection: &Connection) -> Option<&mut S> {
        self.expire(now);
        let entry = self.entries.get_mut(connection)?;
        self.recency.touch(entry.place, now);
        Some(&mut entry.state)
    }

    /// The same without its counting as use.
    pub fn peek(&mut self, connection: &Connection) -> Option<&mut S> {
        self.entries.get_mut(connection).map(|entry| &mut entry.state)
    }

    /// Tracks a connection, in place of what was known of it.
    pub fn insert(&mut self, now: Time, connection: Connection, state: S) -> &mut S {
        self.remove(&connection);
        self.make_room();
        let place = self.recency.push(now, connection);
        let entry = Box::new(Entry { place, weight: 0, due: None, state });
        &mut self.entries.entry(connection).or_insert(entry).state
    }

    /// Says how much a connection weighs, such as the bytes that are kept of it.
    pub fn weigh(&mut self, connection: &Connection, weight: u64) {
        if let Some(entry) = self.entries.get_mut(connection) {
            self.weight = self.weight - entry.weight + weight;
            entry.weight = weight;
        }
    }

    /// What all of them weigh.
    pub const fn weight(&self) -> u64 {
        self.weight
    }

    /// Sets a connection's timer, in place of the one before.
    pub fn arm(&mut self, connection: &Connection, due: Option<Time>) {
        if let Some(entry) = self.entries.get_mut(connection) {
            self.deadlines.replace(*connection, entry.due, due);
            entry.due = due;
        }
    }

    /// Says the same of all connections.
    pub fn arm_all(&mut self, due: impl Fn(&S) -> Option<Time>) {
        for (connection, entry) in &mut self.entries {
            let due = due(&entry.state);
            self.deadlines.replace(*connection, entry.due, due);
            entry.due = due;
        }
    }

    /// The first deadline of all.
    pub fn next_due(&self) -> Option<Time> {
        self.deadlines.next()
    }

    /// The connection whose deadline came first, if it has come; it has none from here on.
    pub fn pop_due(&mut self, now: Time) -> Option<Connection> {
        let connection = self.deadlines.pop_due(now)?;
        if let Some(entry) = self.entries.get_mut(&connection) {
            entry.due = None;
        }
        Some(connection)
    }

    /// Forgets a connection.
    pub fn remove(&mut self, connection: &Connection) -> Option<S> {
        let entry = self.entries.remove(connection)?;
        self.recency.remove(entry.place);
        self.weight -= entry.weight;
        self.deadlines.replace(*connection, entry.due, None);
        Some(entry.state)
    }

    /// Takes all connections of a mobile out.
    pub fn take_mobile(&mut self, mobile: IpAddr) -> Vec<(Connection, S)> {
        let keys: Vec<Connection> =
            self.entries.keys().filter(|c| c.mobile.ip() == mobile).copied().collect();
        keys.into_iter().filter_map(|key| Some((key, self.remove(&key)?))).collect()
    }

    /// Forgets connections that were silent too long.
    pub fn expire(&mut self, now: Time) {
        while self.pop_expired(now).is_some() {}
    }

    /// Takes out a connection that was silent too long, for an agent that has more to remove with it.
    pub fn pop_expired(&mut self, now: Time) -> Option<(Connection, S)> {
        let (used, oldest) = self.recency.oldest()?;
        if now.since(used) < self.idle {
            return None;
        }
        Some((oldest, self.remove(&oldest)?))
    }

    /// Whether one more connection can be known without another giving way that has had a packet
    /// within `lately`.
    pub fn has_room(&self, now: Time, lately: Duration) -> bool {
        let silent = |(used, _)| now.since(used) >= lately;
        self.entries.len() < self.limit || self.recency.oldest().is_some_and(silent)
    }

    /// Takes out the connection that was silent longest, if there is no room for another. Before
    /// [`insert`](Self::insert) of one that is not known, for an agent that has more to remove.
    pub fn make_room(&mut self) -> Option<(Connection, S)> {
        if self.entries.len() < self.limit {
            return None;
        }
        let (_, oldest) = self.recency.oldest()?;
        Some((oldest, self.remove(&oldest)?))
    }

    /// All connections, in the order of their addresses.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Connection, &mut S)> {
        self.entries.iter_mut().map(|(connection, entry)| (connection, &mut entry.state))
    }

    /// All connections, in the order of their addresses.
    pub fn iter(&self) -> impl Iterator<Item = (&Connection, &S)> {
        self.entries.iter().map(|(connection, entry)| (connection, &entry.state))
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, SocketAddr};

    use proptest::prelude::*;

    use super::*;

    fn connection(port: u16) -> Connection {
        let at = |host, port| SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), port));
        Connection { fixed: at(1, 80), mobile: at(2, port) }
    }

    fn second(n: u64) -> Time {
        Time::ZERO + Duration::from_secs(n)
    }

    #[test]
    fn a_full_table_removes_the_connection_that_was_silent_longest() {
        let mut table = Table::new(2, Duration::from_secs(100));
        table.insert(second(0), connection(1), 'a');
        table.insert(second(1), connection(2), 'b');
        table.get(second(2), &connection(1));
        table.insert(second(3), connection(3), 'c');
        assert_eq!(table.get(second(4), &connection(2)), None);
        assert_eq!(table.get(second(4), &connection(1)), Some(&mut 'a'));
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn a_connection_without_packets_expires() {
        let mut table = Table::new(8, Duration::from_secs(10));
        table.insert(second(0), connection(1), ());
        table.insert(second(5), connection(2), ());
        table.expire(second(12));
        assert_eq!(table.iter().map(|(c, ())| *c).collect::<Vec<_>>(), [connection(2)]);
        assert_eq!(table.take_mobile(connection(2).mobile.ip()).len(), 1);
        assert!(table.is_empty());
    }

    #[test]
    fn what_gives_way_can_be_had() {
        let mut table = Table::new(1, Duration::from_secs(10));
        assert_eq!(table.make_room(), None);
        table.insert(second(0), connection(1), 'a');
        assert_eq!(table.make_room(), Some((connection(1), 'a')));
        table.insert(second(1), connection(2), 'b');
        assert_eq!(table.pop_expired(second(10)), None);
        assert_eq!(table.pop_expired(second(11)), Some((connection(2), 'b')));
        assert!(table.is_empty() && table.recency.len() == 0);
    }

    #[test]
    fn one_that_is_in_use_need_not_give_way() {
        let mut table = Table::new(2, Duration::from_secs(100));
        let lately = Duration::from_secs(5);
        table.insert(second(0), connection(1), 'a');
        assert!(table.has_room(second(0), lately));
        table.insert(second(1), connection(2), 'b');
        assert!(!table.has_room(second(4), lately));
        assert!(table.has_room(second(5), lately));
        table.get(second(5), &connection(1));
        assert!(!table.has_room(second(5), lately));
        assert!(table.has_room(second(6), lately));
    }

    #[test]
    fn what_is_removed_weighs_nothing() {
        let mut table = Table::new(2, Duration::from_secs(10));
        for (n, weight) in [(1, 5), (2, 7), (1, 6)] {
            table.insert(second(0), connection(n), ());
            table.weigh(&connection(n), weight);
        }
        assert_eq!(table.weight(), 13);
        table.insert(second(5), connection(3), ());
        table.weigh(&connection(3), 1);
        assert_eq!(table.weight(), 7, "the one that was silent longest gave way");
        table.expire(second(12));
        assert_eq!(table.weight(), 1);
        table.take_mobile(connection(3).mobile.ip());
        table.weigh(&connection(3), 9);
        assert_eq!(table.weight(), 0);
    }

    #[test]
    fn connections_are_called_in_the_order_of_their_deadlines_and_once() {
        let mut table = Table::new(4, Duration::from_secs(100));
        for (n, due) in [(1, 7), (2, 5), (3, 6)] {
            table.insert(second(0), connection(n), n);
            table.arm(&connection(n), Some(second(due)));
        }
        table.arm(&connection(2), Some(second(9)));
        table.remove(&connection(3));
        assert_eq!(table.next_due(), Some(second(7)));
        assert_eq!(table.pop_due(second(6)), None);
        assert_eq!(table.pop_due(second(9)), Some(connection(1)));
        assert_eq!(table.pop_due(second(9)), Some(connection(2)));
        assert_eq!((table.pop_due(second(9)), table.next_due()), (None, None));
        table.arm_all(|n| (*n == 2).then(|| second(12)));
        assert_eq!(table.next_due(), Some(second(12)));
        table.arm(&connection(2), None);
        assert_eq!(table.next_due(), None);
    }

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Insert(u16),
        Arm(u16, u64),
        Fire,
        Get(u16),
        Peek(u16),
        Remove(u16),
        Mobile,
        Expire,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => (0u16..12).prop_map(Op::Insert),
            4 => (0u16..12).prop_map(Op::Get),
            1 => (0u16..12).prop_map(Op::Peek),
            2 => (0u16..12, 0u64..9).prop_map(|(port, later)| Op::Arm(port, later)),
            1 => Just(Op::Fire),
            1 => (0u16..12).prop_map(Op::Remove),
            1 => Just(Op::Expire),
            1 => prop::sample::select(alloc::vec![Op::Mobile, Op::Expire]),
        ]
    }

    /// A list, the one that was silent longest first.
    struct Model(Vec<(Time, u16, usize)>);

    impl Model {
        fn expire(&mut self, now: Time) {
            self.0.retain(|(used, ..)| now.since(*used) < Duration::from_secs(10));
        }

        fn remove(&mut self, port: u16) -> Option<usize> {
            let at = self.0.iter().position(|(_, known, _)| *known == port)?;
            Some(self.0.remove(at).2)
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_list(
            limit in 1usize..8,
            ops in prop::collection::vec((0u64..6, op()), 0..80),
        ) {
            let mut table = Table::new(limit, Duration::from_secs(10));
            let mut model = Model(Vec::new());
            let mut dues = BTreeMap::new();
            let mut now = Time::ZERO;
            for (n, (later, op)) in ops.into_iter().enumerate() {
                now += Duration::from_secs(later);
                match op {
                    Op::Insert(port) => {
                        model.remove(port);
                        dues.remove(&port);
                        if model.0.len() == limit {
                            model.0.remove(0);
                        }
                        model.0.push((now, port, n));
                        prop_assert_eq!(*table.insert(now, connection(port), n), n);
                    }
                    Op::Get(port) => {
                        model.expire(now);
                        let state = model.remove(port);
                        model.0.extend(state.map(|state| (now, port, state)));
                        prop_assert_eq!(table.get(now, &connection(port)).copied(), state);
                    }
                    Op::Peek(port) => {
                        let state = model.0.iter().find(|known| known.1 == port).map(|k| k.2);
                        prop_assert_eq!(table.peek(&connection(port)).copied(), state);
                    }
                    Op::Arm(port, later) => {
                        dues.insert(port, now + Duration::from_secs(later));
                        table.arm(&connection(port), Some(now + Duration::from_secs(later)));
                    }
                    Op::Fire => {
                        while let Some(connection) = table.pop_due(now) {
                            let due = dues.remove(&connection.mobile.port());
                            prop_assert!(due.is_some_and(|due| due <= now));
                        }
                    }
                    Op::Remove(port) => {
                        prop_assert_eq!(table.remove(&connection(port)), model.remove(port));
                    }
                    Op::Mobile => {
                        let taken = table.take_mobile(connection(0).mobile.ip());
                        prop_assert_eq!(taken.len(), model.0.len());
                        model.0.clear();
                    }
                    Op::Expire => {
                        model.expire(now);
                        table.expire(now);
                    }
                }
                prop_assert!(table.len() <= limit);
                dues.retain(|port, _| model.0.iter().any(|(_, known, _)| known == port));
                prop_assert_eq!(table.next_due(), dues.values().min().copied());
                prop_assert_eq!(table.deadlines.len(), dues.len());
                prop_assert_eq!(table.recency.len(), table.len());
                prop_assert!(table.recency.nodes() <= limit);
                let mut expected: Vec<_> =
                    model.0.iter().map(|(_, port, n)| (connection(*port), *n)).collect();
                expected.sort_unstable();
                let known: Vec<_> = table.iter().map(|(c, n)| (*c, *n)).collect();
                prop_assert_eq!(known, expected);
            }
        }
    }
}
