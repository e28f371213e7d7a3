//! Surrogates as the machine of handoffs knows them.

use core::net::{Ipv4Addr, SocketAddr};

use lasthop_hop::Streams;
use lasthop_session::station::{
    Associations, Bridge, Dumped, Ended, Farewell, Fate, Name, Restored, SocketState, Wires,
};
use lasthop_session::{ConnId, Session, SessionId, Target};
use lasthop_units::{Bytes, Duration};

use super::half::Half;
use super::{Departure, Entry, Surrogates, Way};
use crate::schemes::mobile_of;
use crate::schemes::moved::Moved;

/// The address of whoever is called so.
pub(super) fn ip(name: SocketAddr) -> Ipv4Addr {
    match name {
        SocketAddr::V4(name) => *name.ip(),
        // Nobody here has such a name.
        SocketAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    }
}

impl Surrogates {
    fn half(&self, key: u64) -> Option<&Half> {
        match self.entries.get(&key)? {
            Entry::Half(half) => Some(half),
            Entry::Bridge(..) => None,
        }
    }

    fn half_mut(&mut self, key: u64) -> Option<&mut Half> {
        match self.entries.get_mut(&key)? {
            Entry::Half(half) => Some(half),
            Entry::Bridge(..) => None,
        }
    }

    /// Resets a wired half, or lets one that is closed say its last.
    fn abort(&mut self, mut half: Half) {
        half.socket.abort();
        self.resets.extend(half.last_word(self.now));
    }

    /// Wired halves of that mobile whose connections are over, for another base.
    fn take_ending(&mut self, mobile: Ipv4Addr) -> Vec<Vec<u8>> {
        let moves = |half: &Half| half.over && *half.ends.local.ip() == mobile;
        let keys: Vec<u64> =
            self.halves_mut().filter(|(_, half)| moves(half)).map(|(key, _)| key).collect();
        let mut ending = Vec::new();
        for mut half in keys.into_iter().filter_map(|key| self.take(key)).collect::<Vec<_>>() {
            if half.socket.connection().is_closed() {
                self.resets.extend(half.last_word(self.now));
            } else {
                ending.push(half.encode(self.now));
            }
        }
        ending
    }
}

impl Associations for Surrogates {
    type Id = Way;
    type Streams = dyn Streams;

    fn session(&mut self, id: Way) -> Option<(&mut Session, &mut (dyn Streams + 'static))> {
        self.sessions.session(id)
    }

    fn peek(&self, id: Way) -> Option<&Session> {
        self.sessions.peek(id)
    }
}

impl Wires<SocketAddr, Way, u64> for Surrogates {
    type Made = Half;

    /// Here nothing takes the time of a kernel.
    const DEFERRAL: Duration = Duration::ZERO;

    fn link(&mut self, base: SocketAddr, _session: SessionId) -> Option<Way> {
        Some(self.sessions.links.open(self.now, ip(base)))
    }

    fn is_linked(&self, id: Way) -> bool {
        matches!(id, Way::Link(n) if self.sessions.links.is_up(n))
    }

    fn unlink(&mut self, id: Way, farewell: Farewell) {
        if let Way::Link(n) = id {
            self.sessions.links.close(self.now, n, farewell);
        }
    }

    fn close(&mut self, id: Way) {
        if let Way::Peer(id) = id {
            self.sessions.links.dismiss(id);
        }
    }

    fn wired(&self, id: Way) -> Vec<(ConnId, u64)> {
        let of = self.names.range((id, ConnId(0))..=(id, ConnId(u64::MAX)));
        of.map(|((_, conn), key)| (*conn, *key)).collect()
    }

    /// One that is half-open moves, too, but with the base's own address.
    fn fate(&self, mobile: SocketAddr, socket: u64) -> Option<Fate> {
        let half = self.half(socket)?;
        if *half.ends.local.ip() == ip(mobile) {
            return Some(Fate::Leaves);
        }
        (!half.connecting).then_some(Fate::Stays)
    }

    fn state(&self, socket: u64) -> Option<SocketState> {
        Some(match self.entries.get(&socket)? {
            Entry::Half(half) if half.connecting => SocketState::Opens,
            Entry::Half(_) => SocketState::Relays,
            Entry::Bridge(..) => SocketState::Spliced,
        })
    }

    fn is_write_done(&self, socket: u64) -> bool {
        self.half(socket).is_some_and(|half| half.finished)
    }

    fn attach(&mut self, socket: u64, name: Name<Way>) {
        if let Some(half) = self.half_mut(socket) {
            half.name = Some(name);
            self.names.insert(name, socket);
            self.dirty.push(socket);
        }
    }

    fn detach(&mut self, socket: u64) {
        if let Some(name) = self.half_mut(socket).and_then(|half| half.name.take()) {
            self.names.remove(&name);
        }
    }

    fn reset(&mut self, socket: u64) {
        self.detach(socket);
        if let Some(half) = self.half_mut(socket)
            && half.is_over()
        {
            half.over = true;
            self.dirty.push(socket);
        } else if let Some(half) = self.take(socket) {
            self.abort(half);
        }
    }

    fn splice(&mut self, _target: &Target, bridge: Bridge<Way>) {
        let key = self.next;
        self.next += 1;
        for name in [bridge.near, bridge.far].into_iter().flatten() {
            self.names.insert(name, key);
        }
        self.entries.insert(key, Entry::Bridge(Box::new(bridge), false));
        self.dirty.push(key);
    }

    fn dump(
        &mut self,
        _session: SessionId,
        mobile: SocketAddr,
        leaving: Vec<Name<u64>>,
    ) -> Option<Vec<(ConnId, Dumped<u64>)>> {
        let mobile = ip(mobile);
        if let Some(known) = self.sessions.mobiles.get_mut(&mobile) {
            known.away = true;
        }
        // Until the new base has the state, what comes for the mobile is withheld.
        self.depart(mobile, Departure::Leaving);
        let dump = |(socket, conn)| {
            let image = self.take(socket).map(|half| Dumped::Image(half.encode(self.now)));
            (conn, image.unwrap_or(Dumped::Lost))
        };
        Some(leaving.into_iter().map(dump).collect())
    }

    fn restore(
        &mut self,
        _session: SessionId,
        mobile: SocketAddr,
        images: Vec<Vec<u8>>,
    ) -> Option<Vec<Option<Half>>> {
        let make = |image: Vec<u8>| Half::decode(self.setup.wired, ip(mobile), &image, self.now);
        Some(images.into_iter().map(make).collect())
    }

    fn install(&mut self, id: Way, Restored { conn, ended, .. }: Restored, half: Half) {
        match ended {
            None => self.add(Half { name: Some((id, conn)), ..half }),
            Some(Ended::Whole) => self.add(Half { over: true, ..half }),
            Some(Ended::Reset | Ended::Abandoned) => self.abort(half),
        }
    }

    fn discard(&mut self, session: SessionId, images: Vec<Vec<u8>>) {
        for image in images {
            let mobile = mobile_of(session);
            if let Some(half) = Half::decode(self.setup.wired, mobile, &image, self.now) {
                self.abort(half);
            }
        }
    }

    fn reroute(&mut self, session: SessionId, _mobile: Option<SocketAddr>, to: SocketAddr) {
        let until = self.now + self.setup.forward;
        self.depart(mobile_of(session), Departure::Gone { to: ip(to), until });
    }

    fn end_move(&mut self, mobile: SocketAddr) {
        self.departed.remove(&ip(mobile));
        if let Some(known) = self.sessions.mobiles.get_mut(&ip(mobile)) {
            known.away = false;
        }
    }

    fn release_mobile(&mut self, _mobile: SocketAddr) {}

    fn is_ready(&self) -> bool {
        true
    }

    fn previews(&self, id: Way, _mobile: SocketAddr, limit: Bytes) -> Vec<(ConnId, Vec<u8>)> {
        let image = |(conn, key)| Some((conn, self.half(key)?.encode(self.now)));
        let mut left = limit.as_usize();
        let images = self.wired(id).into_iter().filter_map(image);
        let fits = |(_, image): &(ConnId, Vec<u8>)| {
            let rest = left.checked_sub(image.len());
            left = rest.unwrap_or(left);
            rest.is_some()
        };
        images.filter(fits).collect()
    }

    fn hop_state(&mut self, id: Way) -> Vec<u8> {
        let Way::Mobile(mobile) = id else { return Vec::new() };
        let (ending, connections) = (self.take_ending(mobile), self.wired(id));
        let Some(known) = self.sessions.mobiles.get_mut(&mobile) else { return Vec::new() };
        Moved { estimates: known.take_estimates(&connections), ending }.encode()
    }

    fn adopt_hop_state(&mut self, id: Way, state: &[u8]) {
        let Way::Mobile(mobile) = id else { return };
        let Moved { estimates, ending } = Moved::decode(state);
        for image in ending {
            let half = Half::decode(self.setup.wired, mobile, &image, self.now);
            half.into_iter().for_each(|half| self.add(Half { over: true, ..half }));
        }
        if self.setup.hop.keeps_estimates()
            && let Some(known) = self.sessions.mobiles.get_mut(&mobile)
        {
            known.estimates = estimates;
        }
    }
}
