//! `lasthop base` and `lasthop mobile`.

use anyhow::Result;
use lasthop_lab::client::Client;
use lasthop_lab::scheme::{Carrier, Hop, Places};

use super::{Hosts, PATIENCE, Running, Work};
use crate::process;

/// Starts a base and a mobile with `hop` between them.
pub(super) fn start(hosts: &Hosts, place: u16, hop: &Hop) -> Result<Running> {
    let (at, proxy) = (hosts.hop_at(place), hosts.local_at(place));
    let places = Places {
        base: &hosts.base,
        mobile: &hosts.mobile,
        listen: at,
        reached: at,
        proxy,
        server: hosts.server.ip(),
    };
    let carrier = Carrier::between(hop, &places, process::lasthop()?, PATIENCE)?;
    let client = Client::new(&hosts.mobile, carrier.via(), hosts.server);
    Ok(Running { client, work: Work::Lasthop(Box::new(carrier)) })
}
