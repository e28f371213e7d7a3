//! Three hosts joined by plain virtual cables: no emulator is in the way.

use std::net::{Ipv4Addr, SocketAddrV4};

use anyhow::{Context, Result};
use lasthop_kernel::netns::Netns;
use lasthop_lab::process::run;
use lasthop_lab::topology::{RADIO, WIRED};
use lasthop_units::Rate;

use crate::peer::{Hosts, NotInstalled, which};

/// What may pass a limited cable at once: more than the largest packet that a host hands to an
/// interface in one piece, which is not cut for the limit's sake.
const BURST: &str = "128kb";
/// What may wait for a limited cable: more than the connections of a run have on their way, so that
/// none slows down for a loss.
const QUEUE: &str = "16mb";

/// Fixed host, base and mobile in a row, with the lab's addresses.
pub(crate) fn cabled() -> Result<Hosts> {
    let (fixed, base, mobile) = (Netns::anonymous()?, Netns::anonymous()?, Netns::anonymous()?);
    let [at_fixed, at_wired] = [2, 1].map(|n| Ipv4Addr::new(10, 0, 1, n));
    let [at_mobile, at_hop] = [2, 1].map(|n| Ipv4Addr::new(10, 0, 2, n));
    fixed.veth(WIRED, &base, WIRED)?;
    base.veth(RADIO, &mobile, RADIO)?;
    for (host, interface, address) in [
        (&fixed, WIRED, at_fixed),
        (&base, WIRED, at_wired),
        (&base, RADIO, at_hop),
        (&mobile, RADIO, at_mobile),
    ] {
        host.interface_up(interface, &[(address.into(), 24)])?;
    }
    fixed.route(None, at_wired.into())?;
    mobile.route(None, at_hop.into())?;
    base.sysctl("ipv4.ip_forward", "1").context("letting the base forward")?;
    let server = (at_fixed, 80).into();
    let hop = SocketAddrV4::new(at_hop, 4433);
    Ok(Hosts { fixed, base, mobile, server, wired: at_wired, hop })
}

/// Limits what comes from the fixed host to `rate`, by the kernel's token bucket there.
///
/// The limit is not at the hop: its timer would fire for every frame there, at the expense of
/// whoever sends frames one by one, as no interface of that rate makes it.
pub(crate) fn limit(hosts: &Hosts, rate: Rate) -> Result<()> {
    let tc = which("tc").ok_or(NotInstalled("tc"))?;
    let mut command = hosts.fixed.command(&tc);
    command.args(["qdisc", "add", "dev", WIRED, "root", "tbf", "burst", BURST]);
    command.args(["limit", QUEUE, "rate", &format!("{}bit", rate.as_bps())]);
    run(command)?;
    Ok(())
}

/// Has the kernel cut what is handed to the hop's interfaces in large pieces, as it does for a device
/// without segmentation offload: every frame crosses by itself.
pub(crate) fn cut(hosts: &Hosts) -> Result<()> {
    for host in [&hosts.base, &hosts.mobile] {
        host.ip(&format!("link set dev {RADIO} gso_max_segs 1\n"))?;
    }
    Ok(())
}
