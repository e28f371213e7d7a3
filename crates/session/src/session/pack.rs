//! What a connection takes along to another session, and how it goes on there.

use alloc::boxed::Box;
use alloc::vec::Vec;

use lasthop_wire::mhp::handoff::{ConnectionState, Direction, Stage};

use super::{Role, Session};
use crate::ConnId;
use crate::carried::{CarriedBytes, Origin};
use crate::table::{Conn, Phase};

/// At which stage a connection leaves. `None` for one that is over but for reading, or that nobody but
/// this session knows.
pub(super) fn stage(role: Role, conn: &Conn) -> Option<Stage> {
    Some(match (role, conn.phase()) {
        (Role::Mobile, Phase::Asking(opening)) | (Role::Base, Phase::Connecting(opening)) => {
            Stage::Connecting(opening)
        }
        (Role::Base, Phase::Refusing(refusal)) => Stage::Refusing(refusal),
        (_, Phase::Open) if conn.is_over() => Stage::Over,
        (_, Phase::Open) => Stage::Open,
        _ => return None,
    })
}

/// What a connection takes along; its bytes leave it. `None` as for [`stage`].
pub(super) fn pack(role: Role, id: ConnId, conn: &mut Conn) -> Option<ConnectionState> {
    let stage = stage(role, conn)?;
    let Origin { target, bound, from: source } =
        conn.origin.take().map_or_else(Origin::nowhere, |origin| *origin);
    let rest = conn.rest.take().map(|rest| *rest).unwrap_or_default();
    let unread = rest.unread.as_slice();
    let received = Direction {
        start: conn.recv_base.saturating_sub(unread.len() as u64),
        bytes: unread.to_vec(),
        ended: rest.ended,
    };
    let sent = Direction { start: conn.send_base, bytes: rest.resend, ended: conn.finishing };
    let (up, down) = match role {
        Role::Mobile => (sent, received),
        Role::Base => (received, sent),
    };
    let (id, wired) = (id.0, Vec::new());
    Some(ConnectionState { id, stage, target, bound, up, down, wired, source })
}

impl Session {
    /// A connection that comes from another session is in that phase here.
    pub(super) fn unpack(&mut self, id: ConnId, phase: Phase, state: ConnectionState) {
        let ConnectionState { stage, target, bound, source, up, down, .. } = state;
        let (sent, received) = match self.role {
            Role::Mobile => (up, down),
            Role::Base => (down, up),
        };
        self.table.insert(id, phase);
        // A mobile whose connection was answered waits for nothing here, and needs no target any more.
        let waits = self.role == Role::Base || phase != Phase::Open;
        if waits {
            self.arm(id);
        }
        let Some(conn) = self.table.get_mut(id) else { return };
        (conn.send_base, conn.recv_base) = (sent.start, received.end());
        conn.finishing = sent.ended;
        conn.moved = true;
        let rest = CarriedBytes::new(received.bytes, received.ended, sent.bytes);
        conn.rest = Some(Box::new(rest));
        if waits {
            conn.origin = Some(Box::new(Origin { target, bound, from: source }));
        }
        self.announce_rest(id);
        if stage == Stage::Over {
            self.close_when_read(id);
        }
    }
}
