//! What the bases of a fleet share: the keys of the tickets by which they go on with each other's connections.

use std::path::PathBuf;
use std::sync::Arc;

use lasthop_hop::seal::{PublicKey, TicketKey};
use lasthop_migrate as migrate;
use lasthop_session::{ConnId, Orphan, Ticket};
use lasthop_wire::mhp::handoff::TicketMessage;

use crate::keyfile::{self, KeyFileError};

/// The keys: tickets are made with the first, and those of all are taken.
#[derive(Clone, Debug)]
pub(crate) struct FleetKeys(Arc<[TicketKey]>);

impl FleetKeys {
    /// Reads them; none if there are none.
    pub(crate) fn load(files: &[PathBuf]) -> Result<Option<Self>, KeyFileError> {
        let keys = keyfile::load_tickets(files)?;
        Ok((!keys.is_empty()).then(|| Self(keys.into())))
    }

    /// What a mobile is to keep of a connection of its own.
    pub(crate) fn seal(
        &self,
        mobile: &PublicKey,
        conn: ConnId,
        ticket: &migrate::Ticket,
    ) -> Option<Vec<u8>> {
        let sealed = self.0.first()?.seal(mobile, conn.0, &ticket.encode());
        let (connection, ticket) = (conn.0, Ticket::new(&sealed)?);
        let mut message = Vec::new();
        TicketMessage { connection, ticket }.encode(&mut message);
        Some(message)
    }

    /// What a base of the fleet has made of a mobile's connection; nothing if none has.
    pub(crate) fn open(&self, mobile: &PublicKey, orphan: &Orphan) -> Option<migrate::Ticket> {
        let (connection, ticket) = (orphan.connection, orphan.ticket.as_ref()?.as_bytes());
        let mut opened = self.0.iter().filter_map(|key| key.open(mobile, connection, ticket));
        migrate::Ticket::decode(opened.next()?).ok()
    }
}
