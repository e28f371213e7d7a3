//! Connections that go on though the base that carried them has died: what a mobile says of them, and a base that takes them
//! over.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use lasthop_wire::mhp::Message;
use lasthop_wire::mhp::handoff::{SessionId, Ticket};

use super::{Role, Session};
use crate::ConnId;

/// A connection whose base may have died, as far as its mobile knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Orphan {
    /// Which.
    pub conn: ConnId,
    /// Bytes of the fixed host's that the mobile has.
    pub received: u64,
    /// It has the fixed host's end, too.
    pub received_end: bool,
    /// Offset of the first byte for the fixed host that the mobile still has.
    pub kept: u64,
    /// Offset behind the last byte that it has ever sent.
    pub sent: u64,
    /// It has sent its end.
    pub sent_end: bool,
    /// What the base before has made of the connection.
    pub ticket: Ticket,
}

/// All that a mobile carries on of a session.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Orphans {
    /// Nothing more is to come.
    pub complete: bool,
    /// The highest number of a connection.
    pub newest: u64,
    /// Those that have a ticket.
    pub with_ticket: Vec<Orphan>,
    /// Those that stood and have none: they cannot go on.
    pub without: Vec<ConnId>,
}

impl Session {
    /// Mobile: keeps what the base has made of a connection for as long as that lasts, in place of what it had made before. It
    /// goes with the connection to other bases, any of which can take it over with that.
    pub fn keep_ticket(&mut self, id: ConnId, ticket: Ticket) {
        if self.role == Role::Mobile {
            self.table.set_ticket(id, ticket);
        }
    }

    /// Base: what the mobile carries on of a session that is not here, as far as it has asked for it.
    pub fn orphans(&self, session: SessionId) -> Orphans {
        let (mut orphans, mut named, mut asked) = (Orphans::default(), None, BTreeSet::new());
        for (stream, message) in self.holds.asked_of(session) {
            let id = match message {
                Message::Roll(roll) => {
                    named = Some(roll);
                    continue;
                }
                Message::Open { connection, .. } => connection.unwrap_or(stream.0),
                Message::Reopen(reopen) => {
                    let conn = ConnId(reopen.connection);
                    match &reopen.takeover {
                        Some(takeover) if reopen.asking.is_none() => {
                            orphans.with_ticket.push(Orphan {
                                conn,
                                received: reopen.expected,
                                received_end: reopen.ended,
                                kept: reopen.kept,
                                sent: takeover.sent,
                                sent_end: takeover.sent_end,
                                ticket: takeover.ticket.clone(),
                            })
                        }
                        _ if reopen.asking.is_none() => orphans.without.push(conn),
                        _ => {}
                    }
                    conn.0
                }
                _ => continue,
            };
            asked.insert(id);
        }
        let named = named.filter(|roll| roll.last).map(|roll| &roll.connections);
        orphans.complete = named.is_some_and(|all| all.iter().all(|id| asked.contains(id)));
        orphans.newest =
            asked.iter().chain(named.into_iter().flatten()).copied().max().unwrap_or(0);
        orphans
    }
}
