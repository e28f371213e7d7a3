//! To which bases a mobile's datagrams are passed on: those that the configuration names, and no other address.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use lasthop_hop::seal::PublicKey;
use lasthop_wire::mhp::transit::TransitMessage;

use super::{BaseConfig, news};
use crate::backhaul::{BaseAssociationId, WithPeers};
use crate::driver::Core;

/// Where other bases serve mobiles, by their keys.
pub(super) struct TransitTargets(BTreeMap<[u8; 32], SocketAddr>);

impl TransitTargets {
    /// Those of a configuration; none where this base serves its mobiles by frames and not by UDP.
    pub(super) fn new(config: &BaseConfig) -> Self {
        let targets = news::serving(config).map(|(_, key, at)| (*key.as_bytes(), at));
        Self(targets.collect())
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
        let to = self.0.get(&base);
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
