//! What one handshake has yielded, and for how long it is good.

use core::time::Duration;

use lasthop_units::Time;
use lasthop_wire::datagram::{DATA_HEADER_LEN, Data, DataHeader, Token, recover_number};

use crate::seal::{Keys, ReplayWindow};
use crate::transport::{Packet, Transport};

/// Keys that are older are renewed by a handshake (WireGuard's Rekey-After-Time).
pub(super) const RENEW_AFTER: Duration = Duration::from_secs(120);
/// And keys under which nothing but pings has passed (WireGuard's Reject-After-Time less its Keepalive-Timeout and
/// Rekey-Timeout).
pub(super) const RENEW_UNUSED_AFTER: Duration = Duration::from_secs(165);
/// Keys that are older are neither used nor believed (WireGuard's Reject-After-Time).
pub(super) const REJECT_AFTER: Duration = Duration::from_secs(180);

/// Keys, and the names that datagrams under them have.
pub(super) struct Keyset {
    keys: Keys,
    replay: ReplayWindow,
    /// Our name for the association, and the peer's.
    pub(super) local: u32,
    pub(super) remote: u32,
    /// The least packet number that nothing was sealed under.
    fresh: u64,
    /// From when on it is good for nothing.
    expires: Time,
}

/// A packet that was opened.
pub(super) struct Unsealed<'d> {
    pub(super) number: u64,
    pub(super) packet: &'d [u8],
    /// No packet with a greater number has come.
    pub(super) newest: bool,
}

impl Keyset {
    /// Keys of a handshake that ended `now`. Packet numbers under them begin with `send` and `recv`.
    pub(super) fn new(
        now: Time,
        mut keys: Keys,
        (local, remote): (u32, u32),
        (send, recv): (u64, u64),
    ) -> Self {
        keys.start_at(send, recv);
        let expires = if keys.is_sealed() { now + REJECT_AFTER } else { Time::NEVER };
        let replay = ReplayWindow::starting_at(recv);
        Self { keys, replay, local, remote, fresh: send, expires }
    }

    pub(super) fn is_expired(&self, now: Time) -> bool {
        self.expires <= now
    }

    /// Opens a datagram where it lies; `None` if it is forged, damaged or known.
    pub(super) fn open<'d>(&mut self, now: Time, datagram: &'d mut [u8]) -> Option<Unsealed<'d>> {
        let header = Data::new_checked(&*datagram).ok()?.header();
        // Without a seal nothing else distinguishes an earlier association's datagrams from this one's.
        if header.receiver != self.local || self.is_expired(now) {
            return None;
        }
        let highest = self.replay.highest();
        let number = recover_number(header.number_low, highest);
        if !self.replay.check(number) {
            return None;
        }
        let (header, body) = datagram.split_at_mut_checked(DATA_HEADER_LEN)?;
        let packet = &*self.keys.recv.open_in_place(number, header, body).ok()?;
        let newest = highest.is_none_or(|highest| number > highest);
        self.replay.accept(number).then_some(Unsealed { number, packet, newest })
    }

    /// Has the transport write its next packet, and seals it; how long the datagram is.
    pub(super) fn write<T: Transport>(
        &mut self,
        now: Time,
        of: &mut T,
        out: &mut [u8],
    ) -> Option<usize> {
        let tag_len = self.keys.send.tag_len();
        let room = out.len().checked_sub(DATA_HEADER_LEN + tag_len)?;
        let (head, rest) = out.split_at_mut_checked(DATA_HEADER_LEN)?;
        let Packet { number, len, .. } = of.poll(now, self.fresh, rest.get_mut(..room)?)?;
        let header = DataHeader::new(0, self.remote, number).to_bytes();
        head.copy_from_slice(&header);
        let (frames, tag) = rest.split_at_mut_checked(len)?;
        let tag_len = self.keys.send.seal_in_place(number, &header, frames, tag).ok()?;
        self.fresh = number.saturating_add(1);
        Some(DATA_HEADER_LEN + len + tag_len)
    }

    /// A token that nobody else can predict, another for each `count`; none without a seal.
    pub(super) fn draw_token(&self, count: u64) -> Option<[u8; 8]> {
        Some(self.keys.tokens.as_ref()?.draw(count))
    }

    /// A challenge for the peer, or the response to the peer's.
    pub(super) fn token(&self, response: bool, token: [u8; 8]) -> Option<Token> {
        Some(self.keys.tokens.as_ref()?.make(response, self.remote, token))
    }

    /// Whether the peer made this token under these keys.
    pub(super) fn verify_token(&self, now: Time, token: &Token) -> bool {
        let tokens = self.keys.tokens.as_ref().filter(|_| !self.is_expired(now));
        token.receiver == self.local && tokens.is_some_and(|tokens| tokens.verify(token))
    }
}
