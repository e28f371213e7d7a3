//! A mobile and two bases of a handoff, on any datagrams, upcalls and answers of their worlds: nothing
//! panics or spins, what they remember is bounded, and what they say can be read.

use std::time::Duration;

use arbitrary::Unstructured;
use lasthop_session::handoff::{
    Authority, Base, BaseEvent, Claim, Config, Granter, Mobile, MobileEvent, SessionId,
    SessionState,
};
use lasthop_units::{Bytes, Time};
use lasthop_wire::mhp::handoff::{
    BaseName, CopyName, Datagram, Grant, Message, Pieces, Reason, Warrant,
};

/// The mobile in whose name is forged.
pub(crate) const MOBILE: u32 = 9;
const SESSIONS_MAX: usize = 6;
const PENDING_MAX: usize = 3;
const STATE_MAX: u64 = 2000;
/// More than that at one instant would be a machine that does not stop: an outbox, and what a datagram
/// lets out again.
const BURST: usize = 8192;

fn config() -> Config {
    Config {
        datagram: Bytes::new(100),
        window: 4,
        state_max: Bytes::new(STATE_MAX),
        memory_max: Bytes::new(2 * STATE_MAX),
        pending_max: PENDING_MAX,
        sessions_max: SESSIONS_MAX,
        ..Config::base()
    }
}

pub(crate) fn next<'a, T: arbitrary::Arbitrary<'a> + Default>(input: &mut Unstructured<'a>) -> T {
    input.arbitrary().unwrap_or_default()
}

fn state(session: SessionId, len: u16) -> SessionState {
    let hop = vec![7; usize::from(len % 1024)];
    SessionState { hop, ..SessionState::of(session, vec![]) }
}

/// Numbers that meet each other often.
pub(crate) fn small(input: &mut Unstructured<'_>) -> u32 {
    match next::<u8>(input) {
        255 => next(input),
        n => u32::from(n % 4),
    }
}

fn name(input: &mut Unstructured<'_>) -> BaseName {
    BaseName::new(&(1 + small(input) % 3).to_be_bytes()).expect("short")
}

/// Knows the mobile and the two bases, and takes every even grant for the mobile's.
struct Even;

impl Granter<u32> for Even {
    fn grants(&self, _session: SessionId, attempt: u32, to: u32) -> Vec<(u32, Grant)> {
        [1, 2, 3]
            .into_iter()
            .filter(|n| *n != to)
            .map(|n| (n, Grant([(attempt as u8).wrapping_mul(2); 16])))
            .collect()
    }
}

impl Authority<u32> for Even {
    fn is_base(&self, name: u32) -> bool {
        matches!(name, 1 | 2)
    }

    fn is_mobile(&self, name: u32) -> bool {
        name == MOBILE
    }

    fn holds(&self, _mobile: u32, _claim: &Claim<u32>, grant: &Grant) -> bool {
        grant.0[0].is_multiple_of(2)
    }
}

fn warrant(input: &mut Unstructured<'_>) -> Option<Warrant> {
    let mobile = BaseName::new(&MOBILE.to_be_bytes()).expect("short");
    (next::<u8>(input) > 30).then(|| Warrant { mobile, grant: Grant([next(input); 16]) })
}

/// A datagram that somebody might send. Its sessions have small numbers, or numbers below 2^32.
pub(crate) fn forge(input: &mut Unstructured<'_>) -> Vec<u8> {
    let piece: Vec<u8>;
    let session = SessionId(u64::from(small(input)));
    let attempt = small(input);
    let message = match next::<u8>(input) % 18 {
        0 => {
            let grants =
                vec![(name(input), Grant([next(input); 16])); usize::from(next::<u8>(input) % 4)];
            Message::Greet { holder: name(input), since: small(input), grants }
        }
        1 => Message::Resume { since: small(input) },
        2 => Message::Handover {
            limit: next::<u16>(input).into(),
            piece: next::<u8>(input).into(),
            window: next(input),
            since: small(input),
            copy: next::<bool>(input)
                .then(|| CopyName { len: next::<u8>(input).into(), digest: small(input).into() }),
            warrant: warrant(input),
        },
        3 => {
            let pieces = vec![Pieces { first: small(input), count: next(input) }; 3];
            Message::Pull { piece: next::<u8>(input).into(), pieces }
        }
        4 | 5 => {
            let whole = state(session, next(input)).encode();
            let offset = usize::from(next::<u8>(input)) % 8 * 62;
            let end = whole.len().min(offset + 62);
            piece = whole.get(offset..end).unwrap_or_default().to_vec();
            let total = whole.len() as u64;
            Message::State { generation: small(input), total, offset: offset as u64, bytes: &piece }
        }
        6 => Message::Commit { generation: small(input), warrant: warrant(input) },
        7 => Message::Committed { generation: small(input) },
        8 => Message::Superseded { generation: small(input) },
        9 => Message::Moved { to: name(input), since: small(input) },
        10 => Message::Expect { candidate: name(input) },
        11 => {
            let pieces = vec![Pieces { first: small(input), count: next(input) }; 3];
            Message::Fetch { number: small(input), piece: next::<u8>(input).into(), pieces }
        }
        12 | 13 => {
            // A copy is any bytes; some begin as a remainder does.
            let whole = [&[next::<u8>(input)][..], &state(session, next(input)).encode()].concat();
            let offset = usize::from(next::<u8>(input)) % 8 * 62;
            let end = whole.len().min(offset + 62);
            piece = whole.get(offset..end).unwrap_or_default().to_vec();
            let total = whole.len() as u64;
            Message::Ahead { number: small(input), total, offset: offset as u64, bytes: &piece }
        }
        14 => Message::Have { number: small(input) },
        15 => Message::Here { since: small(input) },
        16 => match warrant(input) {
            Some(warrant) => Message::Attach { warrant },
            None => Message::Attached,
        },
        _ => Message::Refuse(Reason::from_code(next(input))),
    };
    let mut datagram = Vec::new();
    Datagram { session, attempt, message }.encode(&mut datagram);
    if next::<u8>(input) > 250 {
        let at = usize::from(next::<u16>(input)) % datagram.len();
        datagram[at] ^= next::<u8>(input);
    }
    datagram
}

struct Roaming {
    now: Time,
    mobile: Mobile<u32, Even>,
    bases: [Base<u32, Even>; 2],
    /// What is on its way: from, to, what. A few wait; more are lost.
    flying: Vec<(u32, u32, Vec<u8>)>,
    /// Answers that the bases' worlds owe.
    owed: Vec<(usize, BaseEvent<u32>)>,
}

impl Roaming {
    /// The mobile is with the first base, which knows it.
    fn new() -> Self {
        let mut world = Self {
            now: Time::ZERO,
            mobile: Mobile::with_granter(config(), SessionId(1), 1, Even),
            bases: [1, 2].map(|addr| Base::with_authority(config(), addr, Even)),
            flying: vec![],
            owed: vec![],
        };
        world.mobile.reached(world.now, 1);
        let mut here = vec![];
        assert_eq!(world.mobile.poll_transmit(world.now, &mut here), Some(1));
        world.receive(MOBILE, 1, &here);
        world
    }

    fn receive(&mut self, from: u32, to: u32, datagram: &[u8]) {
        match to {
            MOBILE => self.mobile.handle_datagram(self.now, from, datagram),
            1 | 2 => {
                let base = &mut self.bases[to as usize - 1];
                if base.check_attach(from, datagram).is_none() {
                    base.handle_datagram(self.now, from, datagram);
                }
            }
            _ => {}
        }
    }

    fn answer(&mut self, argument: u8, len: u16) {
        if self.owed.is_empty() {
            return;
        }
        let which = usize::from(argument >> 2) % self.owed.len();
        let (at, event) = self.owed.swap_remove(which);
        match event {
            BaseEvent::Freeze { session, .. }
                if argument & 3 == 3 && self.bases[at].stays(self.now, session) => {}
            BaseEvent::Freeze { session, .. } => {
                let state = (argument & 3 > 0).then(|| state(session, len));
                self.bases[at].frozen(self.now, session, state);
            }
            BaseEvent::Copy(session) => {
                let state = (argument & 3 > 0).then(|| state(session, len));
                self.bases[at].copied(self.now, session, state);
            }
            BaseEvent::Rebuild { state, .. } => {
                self.bases[at].rebuilt(self.now, state.session, argument & 3 > 0);
            }
            _ => {}
        }
    }

    fn operate(&mut self, input: &mut Unstructured<'_>) {
        let [operation, argument]: [u8; 2] = next(input);
        match operation % 14 {
            0..=3 => {
                let ways = [(1, 2), (2, 1), (MOBILE, 1), (MOBILE, 2), (1, MOBILE), (2, MOBILE)];
                let (from, to) = ways[usize::from(argument % 6)];
                let datagram = forge(input);
                self.receive(from, to, &datagram);
            }
            4 | 5 if !self.flying.is_empty() => {
                let which = usize::from(argument) % self.flying.len();
                let (from, to, datagram) = self.flying.swap_remove(which);
                self.receive(from, to, &datagram);
            }
            6 => self.mobile.handle_upcall(self.now, 1 + u32::from(argument % 3)),
            7 => self.answer(argument, next(input)),
            10 => {
                let lead = Duration::from_millis(u64::from(next::<u16>(input)));
                self.mobile.handle_imminent(self.now, 1 + u32::from(argument % 3), lead);
            }
            11 => self.mobile.reached(self.now, 1 + u32::from(argument % 3)),
            12 => self.bases[usize::from(argument & 1)]
                .unreachable(self.now, 1 + u32::from(argument >> 6)),
            13 => self.bases[usize::from(argument & 1)]
                .reached(self.now, 1 + u32::from(argument >> 6)),
            8 => self.bases[usize::from(argument & 1)].remove(SessionId(u64::from(argument >> 6))),
            _ => self.advance(Duration::from_millis(u64::from(argument) * u64::from(argument))),
        }
        self.settle();
    }

    fn advance(&mut self, by: Duration) {
        self.now += by;
        self.mobile.handle_timeout(self.now);
        self.bases.iter_mut().for_each(|base| base.handle_timeout(self.now));
    }

    fn settle(&mut self) {
        while let Some(event) = self.mobile.poll_event() {
            let quiet = matches!(event, MobileEvent::Resumed { .. } | MobileEvent::Broken(_));
            assert!(!quiet || !self.mobile.is_pending(), "{event:?}");
        }
        let mut out = vec![];
        let mut sent = 0;
        while let Some(to) = self.mobile.poll_transmit(self.now, &mut out) {
            self.send(MOBILE, to, &out, &mut sent);
        }
        for at in 0..self.bases.len() {
            while let Some(event) = self.bases[at].poll_event() {
                self.owed.push((at, event));
                assert!(self.owed.len() < BURST);
            }
            while let Some(to) = self.bases[at].poll_transmit(self.now, &mut out) {
                self.send(at as u32 + 1, to, &out, &mut sent);
            }
            assert!(self.bases[at].pending() <= self.bases[at].sessions());
            assert!(self.bases[at].sessions() <= SESSIONS_MAX);
            assert!(self.bases[at].copies() <= 2 * PENDING_MAX);
        }
        let timeouts =
            self.bases.iter().map(Base::next_timeout).chain([self.mobile.next_timeout()]);
        for at in timeouts.flatten() {
            assert!(at > self.now, "a timer that is over and did not fire");
        }
    }

    fn send(&mut self, from: u32, to: u32, datagram: &[u8], sent: &mut usize) {
        *sent += 1;
        assert!(*sent < BURST, "it does not stop sending");
        assert!(Datagram::decode(datagram).is_ok());
        if self.flying.len() < 64 {
            self.flying.push((from, to, datagram.to_vec()));
        }
    }
}

/// One input: operations.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let mut world = Roaming::new();
    while !input.is_empty() {
        world.operate(&mut input);
    }
}
