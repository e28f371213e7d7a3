//! To which bases a mobile's datagrams are passed on: those that the configuration names, and no other address.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use lasthop_hop::seal::PublicKey;
use lasthop_wire::mhp::transit::TransitMessage;

use super::{BaseConfig, news};
use crate::backhaul::{BaseAssociationId, Peer, WithPeers};
use crate::driver::Core;

/// Where other bases serve mobiles, by their keys.
pub(super) struct TransitTargets {
    /// The port on which mobiles are served here; none where that is by frames and not by UDP.
    port: Option<u16>,
    at: BTreeMap<[u8; 32], SocketAddr>,
}

impl TransitTargets {
    /// Those of a configuration; none where this base serves its mobiles by frames.
    pub(super) fn new(config: &BaseConfig) -> Self {
        let mut targets = Self { port: news::port(config), at: BTreeMap::new() };
        targets.set_peers(news::peers(config));
        targets
    }

    /// These are the other bases from here on.
    pub(super) fn set_peers(&mut self, peers: &[Peer]) {
        let at = news::serving(self.port, peers);
        self.at = at.map(|(peer, at)| (*peer.key.as_bytes(), at)).collect();
    }

    /// Takes a mobile's question, and answers it. False if the message is none.
    pub(super) fn handle<W>(
        &self,
        core: &mut Core<WithPeers, W>,
        id: BaseAssociationId,
        message: &[u8],
    ) -> bool {
        let (BaseAssociationId::Mobile(mobile), Some(TransitMessage::Ask(base))) =
            (id, TransitMessage::decode(message))
        else {
            return false;
        };
        let to = self.at.get(&base);
        let (hop, mut turn) = core.turn();
        let grant = to.and_then(|to| hop.mobiles.grant_transit(&mut turn.within(0), mobile, *to));
        let key = PublicKey::from_bytes(base);
        let answer = match grant {
            Some(grant) => {
                tracing::info!(association = ?mobile, base = %key, to = ?to, "passing on");
                TransitMessage::Granted(base, grant)
            }
            None => {
                tracing::warn!(association = ?mobile, base = %key, "nothing is passed on there");
                TransitMessage::Refused(base)
            }
        };
        let (mut said, now) = (Vec::new(), core.now);
        answer.encode(&mut said);
        if let Some((session, mut streams)) = core.session(id) {
            // A mobile without an answer asks again.
            let _ = session.send_message(now, &mut streams, &said);
        }
        true
    }
}
