//! How packets come to a TUN device and leave from it: routing rules and routes, and the rule that masquerades.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::config::Numbers;
use super::interception::{Standing, TunnelError};
use super::rules::{Plan, prefixes, sets};
use crate::lock::Lock;
use crate::netlink::{Action, MAIN, Prefix, Route, Rtnetlink, Rule};
use crate::network::Network;
use crate::nft;

/// The table of packet rules, where there are some.
const BASE_TABLE: &str = "lasthop_base_tun";
/// Mark routing rules and routes.
const MOBILE_PROTOCOL: u8 = 80;
const BASE_PROTOCOL: u8 = 81;
/// The routing table that leads to the device, and the first of six priorities of routing rules; those of intercepted
/// TCP follow.
const NUMBERS: Numbers = Numbers { mark: Numbers::MOBILE.mark, table: 1070, priority: 1070 };
/// The metric of routes to a base's device: where another base has the mobile, its route goes before (without a metric, which
/// IPv6 takes for 1024).
const BASE_METRIC: u32 = 4096;
/// A process that has just ended may have left its lock with a child for a moment.
const LOCK_PATIENCE: Duration = Duration::from_millis(200);

/// What a mobile leads to its device.
#[derive(Clone, PartialEq, Debug)]
pub struct MobileTunnel {
    /// The mobile's addresses.
    pub addresses: Vec<IpAddr>,
    /// What this host sends.
    pub host: bool,
    /// What comes in by these.
    pub interfaces: Vec<String>,
    /// Networks that are reached as without lasthop.
    pub exclude: Vec<Network>,
    /// TCP too.
    pub tcp: bool,
    /// The mark of lasthop's own sockets, which is a bit.
    pub mark: u32,
}

/// What a base leads to its device.
#[derive(Clone, PartialEq, Debug)]
pub struct BaseTunnel {
    /// The base's own addresses on it.
    pub addresses: Vec<IpAddr>,
    /// The mobiles' addresses and networks.
    pub mobiles: Vec<Network>,
    /// What comes from these leaves from the base's own address.
    pub masqueraded: Vec<Network>,
}

/// Routes and rules that stand in the kernel until this is dropped.
#[derive(Debug)]
pub struct Tunnel {
    _standing: Standing,
    _lock: Lock,
}

impl Tunnel {
    /// Switches the device on, gives it the mobile's addresses, and leads packets to it.
    ///
    /// # Errors
    ///
    /// [`TunnelError`]; then nothing is left in the kernel but the device's addresses.
    pub fn mobile(device: &str, config: &MobileTunnel) -> Result<Self, TunnelError> {
        let lock = Lock::take("tun-mobile", LOCK_PATIENCE)?;
        let interface = set_up(device, &config.addresses)?;
        let standing = Standing::put::<TunnelError>(mobile(interface, config))?;
        Ok(Self { _standing: standing, _lock: lock })
    }

    /// Switches the device on, and leads what is for mobiles to it.
    ///
    /// # Errors
    ///
    /// As [`mobile`](Self::mobile).
    pub fn base(device: &str, config: &BaseTunnel) -> Result<Self, TunnelError> {
        let lock = Lock::take("tun-base", LOCK_PATIENCE)?;
        let interface = set_up(device, &config.addresses)?;
        let standing = Standing::put::<TunnelError>(base(device, interface, config))?;
        Ok(Self { _standing: standing, _lock: lock })
    }
}

const fn host_bits(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

/// The number of the device, which is on and has these addresses from now on.
fn set_up(device: &str, addresses: &[IpAddr]) -> Result<u32, TunnelError> {
    let mut kernel = Rtnetlink::open()?;
    let interface = kernel.interface(device)?.index;
    for ip in addresses {
        kernel.add_address(interface, (*ip, host_bits(*ip)))?;
    }
    kernel.set_up(interface, true)?;
    Ok(interface)
}

fn plan(protocol: u8) -> Plan {
    Plan {
        nft_table: "",
        protocol,
        ruleset: String::new(),
        rules: Vec::new(),
        openers: Vec::new(),
        barriers: Vec::new(),
        routes: Vec::new(),
    }
}

/// All of a family.
const fn any(ipv6: bool) -> IpAddr {
    if ipv6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) }
}

/// What a host sends that has chosen an address of its own goes as without lasthop, and so do routes of the main table that
/// are more specific than the default one.
fn mobile(interface: u32, config: &MobileTunnel) -> Plan {
    let mut plan = plan(MOBILE_PROTOCOL);
    let of_family = |ipv6: bool| config.addresses.iter().filter(move |ip| ip.is_ipv6() == ipv6);
    for ipv6 in [false, true] {
        let Some(source) = of_family(ipv6).next() else { continue };
        let table = NUMBERS.table;
        plan.routes.push(Route {
            table,
            interface: Some(interface),
            source: Some(*source),
            ..Route::to((any(ipv6), 0))
        });
        let rule = |n: u32| Rule::new(ipv6, NUMBERS.priority + n, table);
        let past = Action::Goto(NUMBERS.priority + 5);
        let own = Some((config.mark, config.mark));
        plan.rules.push(Rule { mark: own, action: past, ..rule(0) });
        if !config.tcp {
            plan.rules.push(Rule { tcp: true, action: past, ..rule(1) });
        }
        for network in config.exclude.iter().map(Network::prefix) {
            if network.0.is_ipv6() == ipv6 {
                plan.rules.push(Rule { to: Some(network), action: past, ..rule(2) });
            }
        }
        let mut lead = |input: &str, from: Option<Prefix>| {
            let of = Rule { input: Some(input.to_owned()), from, ..rule(3) };
            let near = Rule { action: Action::Lookup(MAIN), no_default: true, ..of.clone() };
            plan.rules.extend([near, of]);
        };
        for interface in &config.interfaces {
            lead(interface, None);
        }
        if config.host {
            for ip in of_family(ipv6) {
                lead("lo", Some((*ip, host_bits(*ip))));
            }
            if ipv6 {
                // What has no address yet matches no prefix: what has one is led past.
                let upper = IpAddr::V6(Ipv6Addr::new(0x8000, 0, 0, 0, 0, 0, 0, 0));
                for half in [any(true), upper] {
                    let other = Rule { input: Some("lo".into()), from: Some((half, 1)), ..rule(3) };
                    plan.rules.push(Rule { action: past, ..other });
                }
            }
            let begun = (!ipv6).then_some((any(false), 32));
            let of = Rule { input: Some("lo".into()), from: begun, ..rule(4) };
            let near = Rule { action: Action::Lookup(MAIN), no_default: true, ..of.clone() };
            plan.rules.extend([near, of]);
        }
        plan.rules.push(Rule { action: Action::Nop, ..rule(5) });
    }
    plan.claim()
}

fn base(device: &str, interface: u32, config: &BaseTunnel) -> Plan {
    let mut plan = plan(BASE_PROTOCOL);
    let mobiles = prefixes(config.mobiles.iter().map(Network::prefix));
    let to = |to: &Prefix| {
        let (interface, metric) = (Some(interface), Some(BASE_METRIC));
        Route { interface, metric, ..Route::to(*to) }
    };
    plan.routes.extend(mobiles.iter().map(to));
    let masqueraded = prefixes(config.masqueraded.iter().map(Network::prefix));
    if !masqueraded.is_empty() {
        plan.nft_table = BASE_TABLE;
        plan.ruleset = nft::absent(BASE_TABLE);
        plan.ruleset += &format!(
            "table inet {BASE_TABLE} {{\n{}  chain leaving {{\n    type nat hook postrouting \
             priority srcnat; policy accept;\n    oifname \"{device}\" accept\n    \
             ip saddr @mobiles4 masquerade\n    ip6 saddr @mobiles6 masquerade\n  }}\n}}\n",
            sets("mobiles", &masqueraded)
        );
    }
    plan.claim()
}
