//! How a mobile comes to an association: its init is answered, and a record of the mobile confirms it.

use lasthop_hop::Refusal;
use lasthop_hop::seal::{PublicKey, ReplayWindow, Request};
use lasthop_kernel::reactor::Readiness;
use lasthop_kernel::slab::Key;
use lasthop_kernel::tcp::Moved;
use lasthop_kernel::turn::Turn;
use lasthop_wire::datagram::MAX_REPLY_LEN;

use super::association::Association;
use super::candidates::Room;
use super::{SocketRole, SplitBase, name, psk_in};
use crate::hop::HopEvent;
use crate::split::cipher::{CONTROL, SharedKeys};
use crate::split::control::Control;
use crate::split::hello;
use crate::split::streams::SplitTcp;
use crate::split::wires::Owner;

impl SplitBase {
    /// Answers an init with a candidate.
    pub(super) fn answer_init(&mut self, turn: &mut Turn<'_>, key: Key, init: &[u8]) {
        let request = match self.responder.read(init) {
            Ok(request) => request,
            Err(e) => return self.refuse(turn, key, Refusal::of(e, init)),
        };
        let (peer, stamp) = (*request.mobile(), request.hello().stamp);
        let request = match &self.allowed {
            None => request,
            Some(allowed) => match psk_in(allowed, &peer) {
                Some(psk) => request.with_psk(psk.clone()),
                None => return self.refuse(turn, key, Some(Refusal::Stranger(peer))),
            },
        };
        if self.is_sealed()
            && let Some(greatest) = self.stamps.outdone(&peer, stamp)
        {
            // It was recorded, or the mobile's clock was set back: then the mobile begins behind this stamp.
            let _ = self.reply(key, request, 0, greatest);
            return self.close_greeting(turn, key);
        }
        if self.is_full_for(&peer) {
            return self.refuse(turn, key, Some(Refusal::Full));
        }
        match self.candidates.room(&peer, stamp) {
            Room::Free => {}
            Room::After(yields) => self.end_candidate(turn, yields, "another handshake came"),
            Room::Full => return self.close_greeting(turn, key),
        }
        let id = self.fresh_id();
        let Some(keys) = self.reply(key, request, id, 0) else {
            return self.close_greeting(turn, key);
        };
        let Some(greeting) = self.greetings.remove(key) else { return };
        if let Some(owner) = self.wires.owners.get_mut(key) {
            *owner = Owner::Role(SocketRole::Control(id));
        }
        let control = Control::new(key, greeting.socket, greeting.into, keys.stream(CONTROL));
        // A mobile may still have streams of an association before, whose numbers are not these.
        let first = 2 * u64::from(self.random.next_u64() as u32) + 1;
        let association = Association {
            peer,
            address: greeting.from,
            keys,
            seen: ReplayWindow::new(),
            streams: SplitTcp::new(self.bounds.streams, first, &self.bounds.memory),
            confirmed: false,
            lost: false,
            control: Some(control),
            since: turn.now,
            active: false,
        };
        self.associations.insert(id, association);
        self.candidates.insert(turn.now, id, peer, stamp);
        self.handle_control(turn, id, Readiness::default());
    }

    /// Replies to an init; the keys that follow.
    fn reply(&mut self, key: Key, request: Request, id: u32, stamp: u64) -> Option<SharedKeys> {
        let mut reply = [0; 2 + MAX_REPLY_LEN];
        let (len, keys) = request.accept(&hello(id, stamp), &mut reply[2..]).ok()?;
        reply[..2].copy_from_slice(&(len as u16).to_be_bytes());
        let written = self.greetings.get_mut(key)?.socket.write(&reply[..2 + len]);
        // A fresh connection's buffer holds a reply of a few hundred bytes.
        let whole = matches!(written, Moved::Bytes(n) if n == 2 + len);
        whole.then(|| SharedKeys::new(keys))
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.allowed.is_some()
    }

    /// Whether a mobile may have no association: there are as many of others as there may be.
    fn is_full_for(&self, mobile: &PublicKey) -> bool {
        let others = self.associations.values().filter(|a| a.confirmed && a.peer != *mobile);
        others.count() >= self.bounds.associations
    }

    fn fresh_id(&mut self) -> u32 {
        loop {
            let id = self.random.next_u64() as u32;
            if !self.associations.contains_key(&id) {
                return id;
            }
        }
    }

    /// The mobile has proven that it has an association's keys: it stands, in place of the one that the
    /// mobile had. False if there is none.
    pub(super) fn confirm(&mut self, turn: &mut Turn<'_>, id: u32) -> bool {
        let Some(association) = self.associations.get(&id) else { return false };
        if association.confirmed {
            return true;
        }
        let (peer, from) = (association.peer, association.address);
        if self.is_full_for(&peer) {
            self.refusals.record(turn.now, from.ip(), Refusal::Full);
            self.end_candidate(turn, id, "there are as many associations as there may be");
            return false;
        }
        let stamp = self.candidates.take(id);
        if let Some(stamp) = stamp.filter(|_| self.is_sealed()) {
            self.stamps.confirm(&peer, stamp);
        }
        let before = self.associations.iter().filter(|(_, a)| a.confirmed && a.peer == peer);
        let before: Vec<u32> = before.map(|(id, _)| *id).collect();
        if let Some(association) = self.associations.get_mut(&id) {
            association.confirmed = true;
        }
        self.events.push_back(HopEvent::Up(name(id)));
        for before in before {
            self.lose(before, "the mobile has made a new association");
        }
        true
    }

    /// A candidate is over.
    pub(super) fn end_candidate(&mut self, turn: &mut Turn<'_>, id: u32, why: &str) {
        self.garbage += 1;
        self.candidates.take(id);
        self.close_control(turn, id, why);
    }
}
