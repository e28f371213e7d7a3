//! Links on which each datagram has a header with the association's name and a number, sealed or
//! plain: an association is known by its name, wherever it is.

mod base;
mod candidates;
mod handshakes;
mod hello_limits;
mod keyset;
mod mobile;
mod probation;
mod sources;
mod transits;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use lasthop_units::Time;
use lasthop_wire::datagram::{DATA_HEADER_LEN, Data, TAG_LEN, Token};

pub use base::{Base, BaseStats, NumberedLinks};
pub use hello_limits::GREETING_MAX;
pub use mobile::{Mobile, MobileStats, NumberedLink};

use self::keyset::{Keyset, Unsealed};
use self::probation::Probation;
use super::{Link, Opened, Written};
use crate::path_id::PathId;
use crate::seal::PublicKey;
use crate::transport::Transport;

/// Without keys nothing can be sent; whether the transport has given up is looked at again after so long.
const KEYLESS: Duration = Duration::from_secs(30);

/// Keys, names and numbers of an association that stands.
pub struct Numbered {
    current: Keyset,
    /// What was used before: datagrams under it may be on their way.
    previous: Option<Box<Keyset>>,
    /// The association's name in handshakes: what the base called it first. Keys come and go.
    name: u32,
    /// Whose it is, if the peer is a mobile.
    mobile: Option<PublicKey>,
    has_received: bool,
    /// Whether the peer, a mobile, is where its datagrams come from.
    probation: Probation,
    /// Responses to the peer's challenges, one for each path at most.
    responses: Vec<Token>,
    /// Until when nothing may be sent, whatever the transport has.
    blocked_until: Option<Time>,
}

fn overhead<T: Transport>(config: &T::Config, sealed: bool) -> usize {
    let tag = if sealed { TAG_LEN } else { 0 };
    DATA_HEADER_LEN + tag + T::carrier_overhead(config).as_usize()
}

impl Numbered {
    fn new(keyset: Keyset, name: u32, mobile: Option<PublicKey>) -> Self {
        Self {
            current: keyset,
            previous: None,
            name,
            mobile,
            has_received: false,
            probation: Probation::default(),
            responses: Vec::new(),
            blocked_until: None,
        }
    }

    /// The same association goes on under other keys.
    fn renew(&mut self, keyset: Keyset) {
        let old = core::mem::replace(&mut self.current, keyset);
        self.previous = Some(Box::new(old));
        self.blocked_until = None;
    }

    /// Our names for the association: of the keys in use, and of those before.
    fn locals(&self) -> (u32, Option<u32>) {
        (self.current.local, self.previous.as_ref().map(|previous| previous.local))
    }

    fn keyset(&self, local: u32) -> &Keyset {
        self.previous.as_deref().filter(|previous| previous.local == local).unwrap_or(&self.current)
    }

    /// The base asks whether we are where our datagrams come from: the response follows.
    fn on_challenge(&mut self, now: Time, challenge: &Token) -> bool {
        let keyset = self.keyset(challenge.receiver);
        if challenge.response || !keyset.verify_token(now, challenge) {
            return false;
        }
        let response = keyset.token(true, PathId(challenge.path), challenge.token);
        self.responses.retain(|response| response.path != challenge.path);
        self.responses.extend(response);
        true
    }

    /// The mobile has shown that it is where it was challenged.
    fn on_response(&mut self, now: Time, response: &Token) -> bool {
        let keyset = self.keyset(response.receiver);
        if !response.response || !keyset.verify_token(now, response) {
            return false;
        }
        let right = self.probation.on_response(PathId(response.path), response.token);
        if right {
            self.blocked_until = None;
        }
        right
    }

    /// A challenge or a response that is due.
    fn poll_token(&mut self, now: Time, out: &mut [u8]) -> Option<Written> {
        let token = match self.responses.pop() {
            Some(response) => response,
            None => {
                let (path, token) = self.probation.poll_challenge(now)?;
                self.current.token(false, path, token)?
            }
        };
        out.get_mut(..Token::LEN)?.copy_from_slice(&token.to_bytes());
        Some(Written { path: PathId(token.path), len: Token::LEN })
    }
}

impl Link for Numbered {
    fn open<'d>(&mut self, now: Time, datagram: &'d mut [u8]) -> Option<Opened<'d>> {
        let (receiver, len) =
            (Data::new_checked(&*datagram).ok()?.header().receiver, datagram.len());
        let late = self.previous.as_deref_mut().filter(|previous| previous.local == receiver);
        let is_late = late.is_some();
        let opened = late.unwrap_or(&mut self.current).open(now, datagram)?;
        self.has_received = true;
        self.probation.on_received(opened.path, len);
        // Only the newest datagram shows where the peer is: an old one may have been held back. A
        // base does not move: whoever sends on a copy of its datagram is not the base.
        let locates = self.mobile.is_some() && opened.newest && !is_late;
        let Unsealed { path, number, packet, .. } = opened;
        Some(Opened { path, number, packet, locates })
    }

    fn write<T: Transport>(&mut self, now: Time, of: &mut T, out: &mut [u8]) -> Option<Written> {
        if let Some(written) = self.poll_token(now, out) {
            return Some(written);
        }
        let (held, until) = self.probation.held(now);
        let all_held = of.hold(held, until);
        let keyless = self.current.is_expired(now).then(|| now + KEYLESS);
        self.blocked_until = keyless.or(until.filter(|_| all_held));
        if self.blocked_until.is_some() {
            return None;
        }
        let written = self.current.write(now, of, out)?;
        self.probation.on_sent(written.path, written.len);
        Some(written)
    }

    fn has_received(&self) -> bool {
        self.has_received
    }

    fn mobile(&self) -> Option<PublicKey> {
        self.mobile
    }

    fn blocked_until(&self) -> Option<Time> {
        self.blocked_until
    }

    fn check_at(&self) -> Option<Time> {
        self.probation.next_timeout()
    }

    fn handle_moved(&mut self, now: Time, path: PathId) {
        if let Some(token) = self.current.draw_token(self.probation.count) {
            self.probation.begin(now, path, token);
        }
    }
}
