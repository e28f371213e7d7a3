//! What a configuration that is read again changes in a base's part of handoffs.

use std::io;
use std::sync::Arc;

use lasthop_control::Changes;
use lasthop_hop::seal::PublicKey;
use lasthop_session::station::Farewell;

use super::wires::BaseWires;
use super::{Core, Handoffs, Migration, far_session};
use crate::backhaul::{BaseAssociationId, Peer, Purpose};
use crate::base::mobiles::Mobiles;
use crate::keyfile::PresharedKeys;

impl Handoffs {
    /// Opens associations to every other base.
    pub(in crate::base) fn start(&mut self, core: &mut Core) -> io::Result<()> {
        let peers = self.means.config.peers.clone();
        peers.iter().try_for_each(|peer| self.link_to(core, peer))
    }

    /// Opens associations to another base.
    fn link_to(&mut self, core: &mut Core, peer: &Peer) -> io::Result<()> {
        for links in [&mut self.links, &mut self.copies] {
            let (hop, mut turn) = core.turn();
            let part = hop.link(&mut turn, peer, Purpose::Messages)?;
            links.insert(peer.key, part);
            core.open_session(BaseAssociationId::Link(part), far_session);
        }
        Ok(())
    }

    /// These are the other bases from here on, with these pre-shared keys. With one that is not among them any more it is as
    /// if it had died for good, and so with one whose pre-shared key is another, which begins anew.
    pub(in crate::base) fn set_peers(
        &mut self,
        core: &mut Core,
        peers: &[Peer],
        psks: &PresharedKeys,
    ) -> Changes {
        let before = self.means.config.peers.clone();
        let is_kept =
            |core: &Core, peer: &Peer| core.hop.psk_with(&peer.key) == psks.with(&peer.key);
        let among = |all: &[Peer], peer: &Peer| all.iter().find(|p| p.key == peer.key).cloned();
        let mut changes = Changes::default();
        let mut added: Vec<Peer> = Vec::new();
        for peer in peers {
            match among(&before, peer) {
                Some(known) if is_kept(core, peer) => {
                    let psk = known.psk.clone();
                    changes.changed += u64::from(known != Peer { psk, ..peer.clone() });
                }
                _ => added.push(peer.clone()),
            }
        }
        for peer in &before {
            if !peers.iter().any(|other| other.key == peer.key) || !is_kept(core, peer) {
                changes.removed += 1;
                self.forget(core, peer);
            }
        }
        self.means.config.peers = peers.to_vec();
        let (hop, mut turn) = core.turn();
        hop.set_peers(&mut turn, peers, psks.clone());
        for peer in added {
            changes.added += 1;
            tracing::info!(peer = peer.name, address = %peer.address, "peer base added");
            self.station.authority_mut().allow_base(peer.key);
            if let Err(error) = self.link_to(core, &peer) {
                tracing::error!(peer = peer.name, %error, "no association with a peer base");
            }
        }
        changes
    }

    fn forget(&mut self, core: &mut Core, peer: &Peer) {
        tracing::info!(peer = peer.name, "peer base removed");
        let key = peer.key;
        self.reported.remove(&key);
        self.refused.remove(&key);
        for part in [self.links.remove(&key), self.copies.remove(&key)].into_iter().flatten() {
            core.close_session(BaseAssociationId::Link(part));
            let (hop, mut turn) = core.turn();
            hop.unlink(&mut turn, part, Farewell::Said);
        }
        let (now, Self { station, means, .. }) = (core.now, &mut *self);
        station.authority_mut().deny_base(&key);
        station.forget_base(&mut BaseWires { core, means }, now, key);
    }

    /// Mobiles that are served from here on, and that are not any more. One that is both begins anew.
    pub(in crate::base) fn set_served(
        &mut self,
        core: &mut Core,
        added: &[PublicKey],
        removed: &[PublicKey],
    ) {
        let (now, Self { station, means, .. }) = (core.now, &mut *self);
        for mobile in removed {
            means.strays.stay(*mobile);
            station.authority_mut().deny_mobile(mobile);
            station.revoke(&mut BaseWires { core, means }, now, *mobile);
        }
        added.iter().for_each(|mobile| station.authority_mut().allow_mobile(*mobile));
    }

    /// Before the helper is told of these addresses of mobiles: what is none of them any more is led nowhere.
    pub(in crate::base) fn prepare_mobiles(&self, now: &Mobiles) {
        if let Some(migration) = &self.means.migration {
            migration.check_gained(&self.means.config.settings, now);
            migration.release_lost(now);
        }
    }

    /// Mobiles have these addresses from here on, and tickets these keys.
    pub(in crate::base) fn set_mobiles(&mut self, mobiles: Arc<Mobiles>) {
        if let Some(migration) = &mut self.means.migration {
            migration.set_mobiles(mobiles);
        }
        let takes_over = self.means.migration.as_ref().is_some_and(Migration::takes_over);
        let take_over = takes_over.then(|| self.means.config.settings.take_over().0);
        self.station.set_take_over(take_over);
    }
}
