//! The association that stands for a peer, and how it is called.

use std::collections::BTreeMap;

use lasthop_control::grid::key;
use lasthop_control::{AssociationReport, Report};

use super::Labels;

/// Peers at once that have series of their own: as many as a base serves by default.
pub(super) const PEERS_MAX: usize = 256;

/// An association with its labels.
#[derive(Debug)]
pub(super) struct Current<'a> {
    pub(super) labels: Labels,
    pub(super) report: &'a AssociationReport,
}

/// One association for each peer: of several, as after a peer was started again, the latest that is
/// not closing. Its counters begin again when another takes its place, as counters may.
pub(super) fn current(report: &Report) -> Vec<Current<'_>> {
    let mut by_peer = BTreeMap::<String, &AssociationReport>::new();
    for association in &report.associations {
        let peer = peer(association);
        let rank = |a: &AssociationReport| (a.state != "closing", a.id);
        let known = by_peer.get(&peer);
        if known.is_none_or(|known| rank(known) < rank(association)) {
            by_peer.insert(peer, association);
        }
    }
    let labelled = |(peer, association): (String, _)| Current {
        labels: labels(report, peer, association),
        report: association,
    };
    by_peer.into_iter().take(PEERS_MAX).map(labelled).collect()
}

/// What names a peer: its key, as in `lasthop status`, or without a seal where it is.
fn peer(association: &AssociationReport) -> String {
    match (&association.peer, &association.address) {
        (Some(peer), _) => key(peer),
        (None, Some(address)) => address.clone(),
        (None, None) => "unknown".to_owned(),
    }
}

fn labels(report: &Report, peer: String, association: &AssociationReport) -> Labels {
    let mut labels = vec![("peer", peer)];
    let base = report.bases.iter().find(|base| {
        let same_key = base.key.is_some() && base.key == association.peer;
        same_key || association.address.as_ref() == Some(&base.address)
    });
    if let Some(base) = base {
        labels.push(("base", base.name.clone()));
    }
    labels
}
