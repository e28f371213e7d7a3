//! A base that several serve, each a part of its mobiles: whose a datagram is.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use lasthop_units::Seed;

use crate::seal::PublicKey;

/// Datagrams of other parts that wait to be polled.
const STRAYS_MAX: usize = 64;

/// One of those that serve a base. It serves the mobiles that it is told to, and gives their associations names that
/// no other gives: those whose remainder is its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Its number.
    pub number: u32,
    /// How many there are.
    pub of: u32,
    /// What all of them make cookies from; entropy.
    pub cookies: Seed,
    /// A handshake with a greeting is for the part that serves what the greeting names.
    pub greeted: bool,
}

/// Whose a datagram is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Owner {
    /// The part that serves this mobile, which made the handshake.
    Mobile(PublicKey),
    /// The part that serves what the handshake's greeting names, which may be the one where it came.
    Greeted(Vec<u8>),
    /// The part with this number.
    Part(u32),
}

/// A datagram that came to the wrong part, unchanged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stray<A> {
    /// Whose it is.
    pub owner: Owner,
    /// Where it came from.
    pub from: A,
    /// What came.
    pub datagram: Vec<u8>,
}

/// Which part this is, if there are several, and what came here for others.
#[derive(Debug)]
pub(super) struct Parts<A> {
    own: Option<Part>,
    strays: VecDeque<Stray<A>>,
    /// What comes was passed on by another part.
    passed: bool,
}

impl<A> Default for Parts<A> {
    fn default() -> Self {
        Self { own: None, strays: VecDeque::new(), passed: false }
    }
}

impl<A> Parts<A> {
    /// This is one of several parts.
    pub(super) fn be(&mut self, own: Part) {
        self.own = Some(own);
    }

    /// The name of this part nearest to a number, if there is one.
    pub(super) fn name(&self, number: u32) -> Option<u32> {
        match self.own {
            Some(own) => (number - number % own.of).checked_add(own.number),
            None => Some(number),
        }
    }

    /// Takes the handshake of a mobile that is not served here: whether another part may serve it.
    pub(super) fn take_stranger(&mut self, from: A, mobile: PublicKey, init: &[u8]) -> bool {
        let takes = self.own.is_some();
        if takes {
            self.push(Owner::Mobile(mobile), from, init);
        }
        takes
    }

    /// Takes a datagram to this name, if another part gave the name: whether it has.
    pub(super) fn divert(&mut self, from: A, name: u32, datagram: &[u8]) -> bool {
        let owner = self.own.map(|own| (name % own.of, own.number));
        let Some((owner, _)) = owner.filter(|(owner, own)| owner != own) else { return false };
        self.push(Owner::Part(owner), from, datagram);
        true
    }

    /// What comes from here on was passed on by another part, or not any more.
    pub(super) fn set_passed(&mut self, passed: bool) {
        self.passed = passed;
    }

    /// Takes a handshake that renews the association of this name, or begins one with this greeting, if it may be
    /// another part's: whether it may.
    pub(super) fn divert_init(
        &mut self,
        from: A,
        standing: Option<u32>,
        greeting: &[u8],
        init: &[u8],
    ) -> bool {
        // A mobile is one part's, whatever its handshake says.
        if self.passed || !self.own.is_some_and(|own| own.greeted) {
            return false;
        }
        if let Some(name) = standing {
            return self.divert(from, name, init);
        }
        if !greeting.is_empty() {
            self.push(Owner::Greeted(greeting.to_vec()), from, init);
        }
        !greeting.is_empty()
    }

    fn push(&mut self, owner: Owner, from: A, datagram: &[u8]) {
        if self.strays.len() < STRAYS_MAX {
            self.strays.push_back(Stray { owner, from, datagram: datagram.to_vec() });
        }
    }

    pub(super) fn poll_stray(&mut self) -> Option<Stray<A>> {
        self.strays.pop_front()
    }
}
