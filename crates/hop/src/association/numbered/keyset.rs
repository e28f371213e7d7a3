//! What one handshake has yielded, and for how long it is good.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use lasthop_units::Time;
use lasthop_wire::datagram::{DATA_HEADER_LEN, Data, DataHeader, Token, recover_number};

use super::super::Written;
use crate::path_id::{PATHS_MAX, PathId, PathNumbers};
use crate::seal::{Keys, OpeningKey, PathSecrets, ReplayWindow, SealingKey};
use crate::transport::{Packet, Transport};

/// Keys that are older are renewed by a handshake (WireGuard's Rekey-After-Time).
pub(super) const RENEW_AFTER: Duration = Duration::from_secs(120);
/// And keys under which nothing but pings has passed (WireGuard's Reject-After-Time less its Keepalive-Timeout and
/// Rekey-Timeout).
pub(super) const RENEW_UNUSED_AFTER: Duration = Duration::from_secs(165);
/// Keys that are older are neither used nor believed (WireGuard's Reject-After-Time).
pub(super) const REJECT_AFTER: Duration = Duration::from_secs(180);

/// Keys of one path, and what was received under them.
struct PathKeys {
    send: SealingKey,
    recv: OpeningKey,
    replay: ReplayWindow,
}

impl PathKeys {
    /// Packet numbers under them begin with `send` and `recv`.
    fn new(mut keys: (SealingKey, OpeningKey), send: u64, recv: u64) -> Self {
        keys.0.start_at(send);
        keys.1.start_at(recv);
        Self { send: keys.0, recv: keys.1, replay: ReplayWindow::starting_at(recv) }
    }

    fn open<'d>(&mut self, header: DataHeader, datagram: &'d mut [u8]) -> Option<Unsealed<'d>> {
        let highest = self.replay.highest();
        let number = recover_number(header.number_low, highest);
        if !self.replay.check(number) {
            return None;
        }
        let (head, body) = datagram.split_at_mut_checked(DATA_HEADER_LEN)?;
        let packet = &*self.recv.open_in_place(number, head, body).ok()?;
        let newest = highest.is_none_or(|highest| number > highest);
        let path = PathId(header.path);
        self.replay.accept(number).then_some(Unsealed { path, number, packet, newest })
    }
}

/// Keys, and the names that datagrams under them have.
pub(super) struct Keyset {
    /// Of the path that an association begins with.
    first: PathKeys,
    /// Of others, once they are used.
    further: Vec<(PathId, Box<PathKeys>)>,
    secrets: Option<Box<PathSecrets>>,
    /// With what the packet numbers of further paths begin, ours and the peer's, if any has used some before.
    numbers: Option<Box<(PathNumbers, PathNumbers)>>,
    /// Our name for the association, and the peer's.
    pub(super) local: u32,
    pub(super) remote: u32,
    /// The least packet number of the first path that nothing was sealed under.
    fresh: u64,
    /// From when on it is good for nothing.
    expires: Time,
}

/// A packet that was opened.
pub(super) struct Unsealed<'d> {
    pub(super) path: PathId,
    pub(super) number: u64,
    pub(super) packet: &'d [u8],
    /// No packet with a greater number has come by this path.
    pub(super) newest: bool,
}

impl Keyset {
    /// Keys of a handshake that ended `now`. Packet numbers under them begin with `send` and `recv`.
    pub(super) fn new(
        now: Time,
        keys: Keys,
        (local, remote): (u32, u32),
        (send, recv): (PathNumbers, PathNumbers),
    ) -> Self {
        let expires = if keys.is_sealed() { now + REJECT_AFTER } else { Time::NEVER };
        let Keys { send: sealing, recv: opening, paths: secrets } = keys;
        let fresh = send.of(PathId::FIRST);
        let first = PathKeys::new((sealing, opening), fresh, recv.of(PathId::FIRST));
        let later = [send, recv].iter().any(|numbers| numbers.0[1..].iter().any(|n| *n > 0));
        let numbers = later.then(|| Box::new((send, recv)));
        Self { first, further: Vec::new(), secrets, numbers, local, remote, fresh, expires }
    }

    pub(super) fn is_expired(&self, now: Time) -> bool {
        self.expires <= now
    }

    /// Keys of a path that was used under these.
    fn of(&mut self, path: PathId) -> Option<&mut PathKeys> {
        match path {
            PathId::FIRST => Some(&mut self.first),
            _ => self.further.iter_mut().find(|(id, _)| *id == path).map(|(_, keys)| &mut **keys),
        }
    }

    /// Keys of a path that was not used under these yet; `None` if there is no such path.
    fn make(&self, path: PathId) -> Option<PathKeys> {
        if usize::from(path.0) >= PATHS_MAX {
            return None;
        }
        let keys = match (&self.secrets, self.first.send.cipher()) {
            (Some(secrets), Some(cipher)) => secrets.of_path(path.0, cipher),
            _ => (SealingKey::unsealed(), OpeningKey::unsealed()),
        };
        let numbers = self.numbers.as_deref();
        let (send, recv) = numbers.map_or((0, 0), |(send, recv)| (send.of(path), recv.of(path)));
        Some(PathKeys::new(keys, send, recv))
    }

    /// Opens a datagram where it lies; `None` if it is forged, damaged or known.
    pub(super) fn open<'d>(&mut self, now: Time, datagram: &'d mut [u8]) -> Option<Unsealed<'d>> {
        let header = Data::new_checked(&*datagram).ok()?.header();
        // Without a seal nothing else distinguishes an earlier association's datagrams from this one's.
        if header.receiver != self.local || self.is_expired(now) {
            return None;
        }
        let path = PathId(header.path);
        if let Some(keys) = self.of(path) {
            return keys.open(header, datagram);
        }
        // Nothing is kept of what does not open.
        let mut keys = self.make(path)?;
        let opened = keys.open(header, datagram)?;
        self.further.push((path, Box::new(keys)));
        Some(opened)
    }

    /// Has the transport write its next packet, and seals it.
    pub(super) fn write<T: Transport>(
        &mut self,
        now: Time,
        of: &mut T,
        out: &mut [u8],
    ) -> Option<Written> {
        let tag_len = self.first.send.tag_len();
        let room = out.len().checked_sub(DATA_HEADER_LEN + tag_len)?;
        let (head, rest) = out.split_at_mut_checked(DATA_HEADER_LEN)?;
        let Packet { path, number, len } = of.poll(now, self.fresh, rest.get_mut(..room)?)?;
        let header = DataHeader::new(path.0, self.remote, number).to_bytes();
        head.copy_from_slice(&header);
        let (frames, tag) = rest.split_at_mut_checked(len)?;
        if self.of(path).is_none() {
            let keys = self.make(path)?;
            self.further.push((path, Box::new(keys)));
        }
        let tag_len = self.of(path)?.send.seal_in_place(number, &header, frames, tag).ok()?;
        if path == PathId::FIRST {
            self.fresh = number.saturating_add(1);
        }
        Some(Written { path, len: DATA_HEADER_LEN + len + tag_len })
    }

    /// A token that nobody else can predict, another for each `count`; none without a seal.
    pub(super) fn draw_token(&self, count: u64) -> Option<[u8; 8]> {
        Some(self.secrets.as_ref()?.draw(count))
    }

    /// A challenge for the peer on a path, or the response to the peer's.
    pub(super) fn token(&self, response: bool, path: PathId, token: [u8; 8]) -> Option<Token> {
        let token = Token { response, path: path.0, receiver: self.remote, token, mac: [0; 16] };
        Some(self.secrets.as_ref()?.make(token))
    }

    /// Whether the peer made this token under these keys.
    pub(super) fn verify_token(&self, now: Time, token: &Token) -> bool {
        let secrets = self.secrets.as_ref().filter(|_| !self.is_expired(now));
        token.receiver == self.local && secrets.is_some_and(|secrets| secrets.verify(token))
    }
}
