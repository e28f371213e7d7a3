//! `lasthop base` and `lasthop mobile`.

use anyhow::Result;
use lasthop_lab::client::Client;
use lasthop_lab::scheme::{Carrier, Hop, Places};

use super::{Hosts, PATIENCE, Running, Work};
use crate::process;

/// Starts a base and a mobile with `hop` between them.
pub(super) fn start(hosts: &Hosts, place: u16, hop: &Hop) -> Result<Running> {
    let carrier = carrier(hosts, place, hop)?;
    let client = Client::new(&hosts.mobile, carrier.via(), hosts.server);
    Ok(Running { client, work: Work::Lasthop(Box::new(carrier)) })
}

/// The two processes alone, where no client is wanted.
pub(crate) fn carrier(hosts: &Hosts, place: u16, hop: &Hop) -> Result<Carrier> {
    let (at, proxy) = (hosts.hop_at(place), hosts.local_at(place));
    let places = Places {
        base: &hosts.base,
        mobile: &hosts.mobile,
        listen: at,
        reached: at,
        proxy,
        server: hosts.server.ip(),
    };
    Ok(Carrier::between(hop, &places, process::lasthop()?, PATIENCE)?)
}
