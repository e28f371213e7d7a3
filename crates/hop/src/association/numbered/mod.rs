//! Links on which each datagram has a header with the association's name and a number, sealed or
//! plain: an association is known by its name, wherever it is.

mod base;
mod handshakes;
mod hello_limits;
mod mobile;

use lasthop_units::Time;
use lasthop_wire::datagram::{DATA_HEADER_LEN, Data, DataHeader, TAG_LEN, recover_number};

pub use base::{Base, BaseStats, NumberedLinks};
pub use hello_limits::GREETING_MAX;
pub use mobile::{Mobile, MobileStats, NumberedLink};

use super::{Link, Opened};
use crate::seal::{Keys, PublicKey, ReplayWindow};
use crate::transport::{Packet, Transport};

/// Keys, names and numbers of an association that stands.
pub struct Numbered {
    keys: Keys,
    replay: ReplayWindow,
    /// Our name for this association, and the peer's.
    local: u32,
    remote: u32,
    /// Whose it is, if the peer is a mobile.
    mobile: Option<PublicKey>,
    /// The least packet number that nothing was sealed under. It lives and dies with the keys.
    fresh: u64,
}

fn overhead<T: Transport>(config: &T::Config, sealed: bool) -> usize {
    let tag = if sealed { TAG_LEN } else { 0 };
    DATA_HEADER_LEN + tag + T::carrier_overhead(config).as_usize()
}

impl Numbered {
    fn new(keys: Keys, local: u32, remote: u32, mobile: Option<PublicKey>) -> Self {
        Self { keys, replay: ReplayWindow::new(), local, remote, mobile, fresh: 0 }
    }
}

impl Link for Numbered {
    fn open<'d>(&mut self, _now: Time, datagram: &'d mut [u8]) -> Option<Opened<'d>> {
        let header = Data::new_checked(&*datagram).ok()?.header();
        // Without a seal nothing else distinguishes an earlier association's datagrams from this one's.
        if header.receiver != self.local {
            return None;
        }
        let highest = self.replay.highest();
        let number = recover_number(header.number_low, highest);
        if !self.replay.check(number) {
            return None;
        }
        let (header, body) = datagram.split_at_mut_checked(DATA_HEADER_LEN)?;
        let packet = &*self.keys.recv.open_in_place(number, header, body).ok()?;
        // Only the newest datagram shows where the peer is: an old one may have been held back. A
        // base does not move: whoever sends on a copy of its datagram is not the base.
        let locates = self.mobile.is_some() && highest.is_none_or(|highest| number > highest);
        self.replay.accept(number).then_some(Opened { number, packet, locates })
    }

    fn write<T: Transport>(&mut self, now: Time, of: &mut T, out: &mut [u8]) -> Option<usize> {
        let tag_len = self.keys.send.tag_len();
        let room = out.len().checked_sub(DATA_HEADER_LEN + tag_len)?;
        let (head, rest) = out.split_at_mut_checked(DATA_HEADER_LEN)?;
        let Packet { number, len } = of.poll(now, self.fresh, rest.get_mut(..room)?)?;
        let header = DataHeader::new(0, self.remote, number).to_bytes();
        head.copy_from_slice(&header);
        let (frames, tag) = rest.split_at_mut_checked(len)?;
        let tag_len = self.keys.send.seal_in_place(number, &header, frames, tag).ok()?;
        self.fresh = number.saturating_add(1);
        Some(DATA_HEADER_LEN + len + tag_len)
    }

    fn has_received(&self) -> bool {
        self.replay.highest().is_some()
    }

    fn mobile(&self) -> Option<PublicKey> {
        self.mobile
    }
}
