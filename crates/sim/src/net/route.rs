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

#[derive(Clone, Copy, Default, Debug)]
enum Slot {
    #[default]
    Free,
    Host(u32, Option<LinkId>),
}

impl RouteTable {
    /// The link towards `dst`.
    #[inline]
    pub fn get(&self, dst: Ipv4Addr) -> Option<LinkId> {
        if self.slots.is_empty() {
            return self.default;
        }
        match self.slots[self.place(dst.to_bits())] {
            Slot::Host(_, Some(link)) => Some(link),
            Slot::Host(_, None) | Slot::Free => self.default,
        }
    }

    /// Sends packets for the host `dst` by `link`, or no longer by a link of their own.
    pub fn set(&mut self, dst: Ipv4Addr, link: Option<LinkId>) {
        if 2 * (self.hosts + 1) > self.slots.len() {
            self.grow();
        }
        let host = dst.to_bits();
        let place = self.place(host);
        self.hosts += usize::from(matches!(self.slots[place], Slot::Free));
        self.slots[place] = Slot::Host(host, link);
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
        while let Slot::Host(other, _) = self.slots[place]
            && other != host
        {
            place = (place + 1) & mask;
        }
        place
    }

    fn grow(&mut self) {
        let room = vec![Slot::Free; (2 * self.slots.len()).max(8)];
        for slot in core::mem::replace(&mut self.slots, room) {
            if let Slot::Host(host, _) = slot {
                let place = self.place(host);
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
