//! The kernel's own TCP, from end to end.

use anyhow::Result;
use lasthop_lab::LabError;
use lasthop_lab::client::{Client, Via};
use lasthop_lab::topology::{RADIO, has_congestion_control};

use super::{Hosts, Running};

/// Nothing to run: the base forwards, as any router does.
pub(super) fn start(hosts: &Hosts, congestion: &str) -> Result<Running> {
    require(hosts, congestion)?;
    let gateway = hosts.wired;
    hosts.fixed.ip(&format!("route change default via {gateway} congctl {congestion}\n"))?;
    from_mobile(hosts, congestion)?;
    Ok(Running::bare(Client::new(&hosts.mobile, Via::Direct, hosts.server)))
}

/// Makes connections between base and mobile use this congestion control. It is set on routes,
/// since a namespace may not make just any algorithm its default.
pub(super) fn set_on_hop(hosts: &Hosts, congestion: &str) -> Result<()> {
    require(hosts, congestion)?;
    let base = hosts.hop.ip();
    let net = hosts.hop_net();
    hosts.base.ip(&format!(
        "route change {net} dev {RADIO} proto kernel scope link src {base} congctl {congestion}\n"
    ))?;
    from_mobile(hosts, congestion)
}

fn from_mobile(hosts: &Hosts, congestion: &str) -> Result<()> {
    let base = hosts.hop.ip();
    Ok(hosts.mobile.ip(&format!("route change default via {base} congctl {congestion}\n"))?)
}

fn require(hosts: &Hosts, congestion: &str) -> Result<()> {
    if has_congestion_control(&hosts.base, congestion)? {
        Ok(())
    } else {
        Err(LabError::NoCongestionControl(congestion.to_owned()).into())
    }
}
