//! Accepted connections that are not authenticated yet.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;

use lasthop_kernel::slab::Key;
use lasthop_kernel::tcp::{Moved, Socket};
use lasthop_units::{CarrierAddress, Time};
use lasthop_wire::datagram::MAX_INIT_LEN;

use super::association::Association;
use crate::split::cipher::Opener;
use crate::split::inbound::Inbound;
use crate::split::{
    GREETING_TIMEOUT, KIND_CONTROL, KIND_STREAM, MAGIC, PREFACE_LEN, STREAM_PREFACE_LEN, VERSION,
    preface,
};

/// Connections that are not authenticated yet, at most.
const GREETINGS_MAX: usize = 512;

/// An accepted connection that is not authenticated yet.
pub(super) struct Greeting {
    pub(super) socket: Socket,
    pub(super) from: SocketAddr,
    pub(super) into: Inbound,
    /// The association and stream that it claims, once the preface was read.
    pub(super) claims: Option<(u32, u64)>,
}

/// All of them, by their entry among the base's connections.
#[derive(Default)]
pub(super) struct Greetings {
    all: HashMap<Key, Greeting>,
    /// The oldest first. Some are no greetings any more.
    deadlines: VecDeque<(Time, Key)>,
}

impl Greetings {
    /// Adds one. If there are too many, the oldest of those yields that come from where most come from: who
    /// holds the places is whoever fills them.
    pub(super) fn insert(&mut self, now: Time, key: Key, greeting: Greeting) -> Option<Key> {
        self.all.insert(key, greeting);
        self.deadlines.push_back((now + GREETING_TIMEOUT, key));
        if self.deadlines.len() > 2 * GREETINGS_MAX {
            self.deadlines.retain(|(_, key)| self.all.contains_key(key));
        }
        if self.all.len() <= GREETINGS_MAX {
            return None;
        }
        let mut counts: HashMap<[u8; 8], usize> = HashMap::new();
        for greeting in self.all.values() {
            *counts.entry(greeting.from.source()).or_default() += 1;
        }
        let most = counts.values().max().copied();
        let keys = self.deadlines.iter().map(|(_, key)| *key);
        let mut crowd = keys.filter(|key| {
            let source = self.all.get(key).map(|greeting| greeting.from.source());
            source.is_some_and(|source| counts.get(&source).copied() == most)
        });
        crowd.next()
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Greeting> {
        self.all.get_mut(&key)
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<Greeting> {
        self.all.remove(&key)
    }

    /// One whose time is over.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<Key> {
        while let Some((at, key)) = self.deadlines.front().copied() {
            let known = self.all.contains_key(&key);
            if known && at > now {
                return None;
            }
            self.deadlines.pop_front();
            if known {
                return Some(key);
            }
        }
        None
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.deadlines.front().map(|(at, _)| *at)
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = Greeting> {
        self.deadlines.clear();
        self.all.drain().map(|(_, greeting)| greeting)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}

/// What the first bytes of a connection are.
#[derive(PartialEq, Eq, Debug)]
pub(in crate::split) enum FirstBytes {
    Incomplete,
    Garbage,
    /// The preface of another version of the protocol, which is this.
    OtherVersion(u8),
    /// An init for a new association.
    Init(Vec<u8>),
    /// The first record of a stream of an association opened.
    Stream(u32, u64),
}

/// Reads what has come and classifies it.
pub(super) fn read(greeting: &mut Greeting, known: &BTreeMap<u32, Association>) -> FirstBytes {
    loop {
        let room = greeting.into.space();
        if room.is_empty() {
            return FirstBytes::Garbage;
        }
        match greeting.socket.read(room) {
            Moved::Bytes(n) => greeting.into.filled(n),
            Moved::Blocked => return FirstBytes::Incomplete,
            Moved::End | Moved::Broken(_) => return FirstBytes::Garbage,
        }
        let Greeting { into, claims, .. } = greeting;
        let opener = |association, stream: u64| {
            let claimed = known.get(&association)?;
            // A mobile's streams are even; of the odd ones only those are accepted that were requested.
            let is_asked = stream.is_multiple_of(2) || claimed.streams.awaits_connection(stream);
            is_asked.then(|| claimed.keys.stream(stream).1)
        };
        match classify(into, claims, opener) {
            FirstBytes::Incomplete => {}
            complete => return complete,
        }
    }
}

/// `opener` knows what opens the records of an association's stream, if there may be such a one.
pub(in crate::split) fn classify(
    into: &mut Inbound,
    claims: &mut Option<(u32, u64)>,
    opener: impl Fn(u32, u64) -> Option<Opener>,
) -> FirstBytes {
    if let Some((association, stream)) = *claims {
        return match into.open_records() {
            Ok(()) if into.opened() => FirstBytes::Stream(association, stream),
            Ok(()) => FirstBytes::Incomplete,
            Err(_) => FirstBytes::Garbage,
        };
    }
    let raw = into.raw();
    if raw.starts_with(&preface(KIND_CONTROL)) {
        let Some(length) = raw.get(PREFACE_LEN..PREFACE_LEN + 2) else {
            return FirstBytes::Incomplete;
        };
        let len = length.iter().fold(0, |n, b| n << 8 | usize::from(*b));
        let end = PREFACE_LEN + 2 + len;
        if len > MAX_INIT_LEN {
            return FirstBytes::Garbage;
        }
        let Some(init) = raw.get(PREFACE_LEN + 2..end) else { return FirstBytes::Incomplete };
        let init = init.to_vec();
        into.skip(end);
        return FirstBytes::Init(init);
    }
    if raw.starts_with(&preface(KIND_STREAM)) {
        let Some(names) = raw.get(PREFACE_LEN..STREAM_PREFACE_LEN) else {
            return FirstBytes::Incomplete;
        };
        let number = |bytes: &[u8]| bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b));
        let (association, stream) = (number(&names[..4]) as u32, number(&names[4..]));
        let Some(opens) = opener(association, stream) else { return FirstBytes::Garbage };
        into.skip(STREAM_PREFACE_LEN);
        into.start(opens);
        *claims = Some((association, stream));
        return classify(into, claims, opener);
    }
    match raw.split_at_checked(MAGIC.len()) {
        Some((magic, [version, _kind, ..])) if magic == MAGIC && *version != VERSION => {
            FirstBytes::OtherVersion(*version)
        }
        None if MAGIC.starts_with(raw) => FirstBytes::Incomplete,
        Some((magic, rest)) if magic == MAGIC && rest.len() < PREFACE_LEN - MAGIC.len() => {
            FirstBytes::Incomplete
        }
        _ => FirstBytes::Garbage,
    }
}
