//! Forwarding tables: host routes and a default.

use core::net::Ipv4Addr;

use super::LinkId;

/// Where a node sends packets: a link for each known host, another for all others.
///
/// A hash table with open addressing. Hosts once known keep their place, so that nothing is ever
/// moved but by growth.
#[derive(Clone, Default, Debug)]
pub struct RouteTable {
    /// A power of two, at most half of it in use.
    slots: Vec<Slot>,
    hosts: usize,
    default: Option<LinkId>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    host: u32,
    link: u32,
}

impl Slot {
    /// In place of a link: the host has none of its own, or there is no host.
    const NONE: u32 = u32::MAX;
    const FREE: Self = Self { host: 0, link: u32::MAX - 1 };

    const fn is_free(self) -> bool {
        self.link == Self::FREE.link
    }
}

impl RouteTable {
    /// The link towards `dst`.
    #[inline]
    pub fn get(&self, dst: Ipv4Addr) -> Option<LinkId> {
        if self.slots.is_empty() {
            return self.default;
        }
        let slot = self.slots[self.place(dst.to_bits())];
        if slot.link < Slot::FREE.link { Some(LinkId::new(slot.link)) } else { self.default }
    }

    /// Sends packets for the host `dst` by `link`, or no longer by a link of their own.
    pub fn set(&mut self, dst: Ipv4Addr, link: Option<LinkId>) {
        if 2 * (self.hosts + 1) > self.slots.len() {
            self.grow();
        }
        let host = dst.to_bits();
        let place = self.place(host);
        self.hosts += usize::from(self.slots[place].is_free());
        let link = link.map_or(Slot::NONE, |link| link.index() as u32);
        self.slots[place] = Slot { host, link };
    }

    /// Sends packets for all other hosts by `link`, or drops them.
    pub fn set_default(&mut self, link: Option<LinkId>) {
        self.default = link;
    }

    /// Where `host` is or would be.
    #[inline]
    fn place(&self, host: u32) -> usize {
        let mask = self.slots.len() - 1;
        let mut place = host.wrapping_mul(0x9e37_79b9).rotate_right(16) as usize & mask;
        while self.slots[place].host != host && !self.slots[place].is_free() {
            place = (place + 1) & mask;
        }
        place
    }

    fn grow(&mut self) {
        let room = vec![Slot::FREE; (2 * self.slots.len()).max(8)];
        for slot in core::mem::replace(&mut self.slots, room) {
            if !slot.is_free() {
                let place = self.place(slot.host);
                self.slots[place] = slot;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_route_comes_before_the_default() {
        let mut table = RouteTable::default();
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        assert_eq!(table.get(a), None);
        table.set_default(Some(LinkId::new(7)));
        table.set(a, Some(LinkId::new(3)));
        assert_eq!((table.get(a), table.get(b)), (Some(LinkId::new(3)), Some(LinkId::new(7))));
        table.set(a, None);
        assert_eq!(table.get(a), Some(LinkId::new(7)));
    }

    #[test]
    fn many_hosts_are_told_apart() {
        let mut table = RouteTable::default();
        let host = |n: u32| Ipv4Addr::from_bits(0x0a00_0000 + n * 256);
        for n in 0..1000 {
            table.set(host(n), Some(LinkId::new(n)));
        }
        assert!((0..1000).all(|n| table.get(host(n)) == Some(LinkId::new(n))));
        assert_eq!(table.get(host(1000)), None);
    }
}
