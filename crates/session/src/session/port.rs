//! Connections of a mobile's end that go on at another mobile's end.
//!
//! A base that relays to the base with the wired half is a mobile to that one. When the mobile moves
//! on, what it holds of each connection goes to the next base, whose session takes it up.

use alloc::vec::Vec;

use lasthop_units::Time;
use lasthop_wire::mhp::handoff::{ConnectionState, Direction, Stage};

use super::pack::pack;
use super::{Role, Session};
use crate::ConnId;
use crate::table::{Phase, is_provisional};

impl Session {
    /// Mobile: takes a connection out of a [suspended](Self::suspend) session, to be
    /// [imported](Self::import) by another. It has no further events.
    ///
    /// Up are the bytes for the base, from the first that it has not acknowledged; down those that it
    /// sent and that nobody read here. The target means something only while the base has not
    /// answered.
    ///
    /// `None` if there is no such connection, if the session is not suspended, or if the connection
    /// is one that a fixed host opened and that was not answered.
    pub fn export(&mut self, id: ConnId) -> Option<ConnectionState> {
        if self.role == Role::Base || !self.moves.is_suspended() || is_provisional(id) {
            return None;
        }
        let state = pack(self.role, id, self.table.get_mut(id)?)?;
        self.events.retain(|event| event.id() != id);
        self.table.remove(id);
        Some(state)
    }

    /// Mobile: [exports](Self::export) every connection that can be.
    ///
    /// Some of them may be over for whoever they were relayed to, and still have bytes for the base:
    /// they must go on too, or those are lost.
    pub fn export_all(&mut self) -> Vec<ConnectionState> {
        self.table.ids().into_iter().filter_map(|id| self.export(id)).collect()
    }

    /// Mobile: takes up a connection that another session [exported](Self::export), under the same
    /// number. A session without connections on a hop, such as a new one, is suspended by it;
    /// [`resume`](Self::resume) asks the base for the connection.
    ///
    /// Whether it was taken up: not by a session that is not suspended, that has the number already or
    /// has no room, and not if the base was refusing the connection.
    pub fn import(&mut self, now: Time, state: ConnectionState) -> bool {
        self.advance(now);
        let id = ConnId(state.id);
        let phase = match state.stage {
            Stage::Connecting(opening) => Phase::Asking(opening),
            Stage::Open | Stage::Over => Phase::Open,
            Stage::Refusing(_) => return false,
        };
        let kept = (state.up.bytes.len() + state.down.bytes.len()) as u64;
        let is_bad = is_provisional(id) || self.table.get(id).is_some();
        if self.role == Role::Base || is_bad || kept > self.config.kept_max.get() || self.is_full()
        {
            return false;
        }
        if !self.moves.is_suspended() {
            if self.is_carried() {
                return false;
            }
            self.moves.begin_suspended();
        }
        self.next = self.next.max((id.0 | 1) + 1);
        self.unpack(id, phase, state);
        true
    }
}

/// What a base says to the next one of a connection that is over for the mobile, while its last bytes
/// are still on their way through `far`, which was [exported](Session::export) and must go on.
///
/// The next base's session reports its end as soon as it has adopted it.
#[must_use]
pub fn left_over(far: &ConnectionState) -> ConnectionState {
    let ended = |start| Direction { start, bytes: Vec::new(), ended: true };
    let (up, down) = (ended(far.up.end()), ended(far.down.end()));
    ConnectionState { stage: Stage::Over, up, down, wired: Vec::new(), ..far.clone() }
}
