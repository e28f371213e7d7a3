//! Which packets stay here: the packet rules as `nft` reads them, and the routing rules and routes
//! beside them, for a mobile and for a base.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::config::{Numbers, TransparentConfig};
use crate::base::Network;
use crate::netlink::{Action, Kind, Prefix, Route, Rule};
use crate::nft;

/// Everything that is put into the kernel, and what it is found again by.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Plan {
    /// The table of packet rules, of the family `inet`.
    pub(super) nft_table: &'static str,
    /// Marks the routing rules and routes as made by this role (`ip route show proto N`).
    pub(super) protocol: u8,
    /// The packet rules; the table is made anew by them.
    pub(super) ruleset: String,
    /// Routing rules.
    pub(super) rules: Vec<Rule>,
    /// Those of them by which connections are begun: without them what stands goes on.
    pub(super) openers: Vec<Rule>,
    /// Routes, all in lasthop's own table.
    pub(super) routes: Vec<Route>,
}

/// A mobile's table of packet rules.
pub(super) const MOBILE_TABLE: &str = "lasthop_mobile";
/// A base's.
pub(super) const BASE_TABLE: &str = "lasthop_base";
/// Marks a mobile's routing rules and routes.
const MOBILE_PROTOCOL: u8 = 77;
/// Marks a base's.
const BASE_PROTOCOL: u8 = 78;
/// The chain through which the host's own connections go.
const OWN_CHAIN: &str = "own";
/// The chain through which a network's connections are begun.
const OPENING_CHAIN: &str = "opening";

/// Addresses that mean something on their own link only: never carried.
const NEAR: [Prefix; 4] = [
    (IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), 16),
    (IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)), 4),
    (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10),
    (IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), 8),
];

/// Where connections are taken: ports of the listeners on 127.0.0.1 and, where there is IPv6, on
/// `::1`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ports {
    pub(super) v4: u16,
    pub(super) v6: Option<u16>,
}

impl Plan {
    /// What a mobile intercepts.
    ///
    /// The host's own TCP takes no packet rule to divert: a connection that has not chosen its
    /// own address yet is routed by a table in which everything is local, so it leaves from the
    /// loopback address, by which all of its later packets are known. What was there before, who
    /// answers to others, and who binds to an address of its own is not touched; and a connection
    /// depends neither on an address that comes and goes nor on a route.
    pub(super) fn mobile(config: &TransparentConfig, ports: Ports, lo: u32) -> Self {
        let exclude = prefixes(NEAR.into_iter().chain(config.exclude.iter().map(Network::prefix)));
        let mut plan = Self {
            nft_table: MOBILE_TABLE,
            protocol: MOBILE_PROTOCOL,
            ruleset: mobile_ruleset(config, ports, &exclude),
            rules: Vec::new(),
            openers: Vec::new(),
            routes: Vec::new(),
        };
        let families = [Some(false), ports.v6.map(|_| true)];
        for ipv6 in families.into_iter().flatten() {
            plan.add_routes(config.numbers.table, ipv6, lo, &exclude);
            if config.host {
                plan.add_host_rules(config.numbers, ipv6);
            }
            let mark = config.numbers.mark;
            for interface in &config.interfaces {
                plan.rules.push(Rule {
                    mark: Some((mark, mark)),
                    input: Some(interface.clone()),
                    ..Rule::new(ipv6, config.numbers.priority + 5, config.numbers.table)
                });
            }
        }
        plan.claim()
    }

    /// What a base keeps of the TCP of mobiles' addresses: the packets of its own transparent
    /// sockets. All other TCP to them is dropped, so that nobody resets a connection that has a
    /// socket at another base.
    pub(super) fn base(numbers: Numbers, networks: &[Network], lo: u32) -> Self {
        let networks = prefixes(networks.iter().map(Network::prefix));
        let mut plan = Self {
            nft_table: BASE_TABLE,
            protocol: BASE_PROTOCOL,
            ruleset: base_ruleset(numbers, &networks),
            rules: Vec::new(),
            openers: Vec::new(),
            routes: Vec::new(),
        };
        for ipv6 in [false, true] {
            let rule = |n: u32| Rule::new(ipv6, numbers.priority + n, numbers.table);
            plan.add_routes(numbers.table, ipv6, lo, &[]);
            // What the base itself sends, and the kernel's question for the way back to a sender,
            // must not find that everything is local.
            let own = Action::Goto(numbers.priority + 2);
            plan.rules.push(Rule { input: Some("lo".into()), action: own, ..rule(0) });
            plan.rules.push(Rule { mark: Some((numbers.mark, numbers.mark)), ..rule(1) });
            plan.rules.push(Rule { action: Action::Nop, ..rule(2) });
        }
        plan.claim()
    }

    /// A script after which no connection of a network is begun here any more.
    pub(super) fn closing(&self) -> String {
        format!("flush chain inet {} {OPENING_CHAIN}\n", self.nft_table)
    }

    fn add_routes(&mut self, table: u32, ipv6: bool, lo: u32, exclude: &[Prefix]) {
        let (all, own) = everything(ipv6);
        let here = Route { table, interface: Some(lo), ..Route::to((all, 0)) };
        self.routes.push(Route { kind: Kind::Local, source: Some(own), ..here });
        let thrown = exclude.iter().filter(|to| to.0.is_ipv6() == ipv6);
        self.routes.extend(thrown.map(|to| Route { table, kind: Kind::Throw, ..Route::to(*to) }));
    }

    fn add_host_rules(&mut self, numbers: Numbers, ipv6: bool) {
        let (all, own) = everything(ipv6);
        let length = if ipv6 { 128 } else { 32 };
        let rule = |n: u32| Rule {
            input: Some("lo".into()),
            tcp: true,
            // Lasthop's own sockets have the mark.
            mark: Some((0, numbers.mark)),
            ..Rule::new(ipv6, numbers.priority + n, numbers.table)
        };
        self.rules.push(Rule { from: Some((own, length)), ..rule(0) });
        if !ipv6 {
            self.openers.push(Rule { from: Some((all, 32)), ..rule(1) });
            return;
        }
        // A connection of IPv6 without an address of its own matches no prefix at all: those that
        // have one are led past the rule.
        let upper = IpAddr::V6(Ipv6Addr::new(0x8000, 0, 0, 0, 0, 0, 0, 0));
        for (n, half) in [(1, all), (2, upper)] {
            self.rules.push(Rule {
                from: Some((half, 1)),
                tcp: false,
                mark: None,
                action: Action::Goto(numbers.priority + 4),
                ..rule(n)
            });
        }
        self.openers.push(rule(3));
        let nop = Rule::new(ipv6, numbers.priority + 4, 0);
        self.rules.push(Rule { action: Action::Nop, ..nop });
    }

    /// Writes the role's number on everything.
    fn claim(mut self) -> Self {
        for rule in self.rules.iter_mut().chain(&mut self.openers) {
            rule.protocol = self.protocol;
        }
        for route in &mut self.routes {
            route.protocol = self.protocol;
        }
        self
    }
}

/// All of a family's addresses, and its loopback address.
fn everything(ipv6: bool) -> (IpAddr, IpAddr) {
    if ipv6 {
        (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::LOCALHOST.into())
    } else {
        (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::LOCALHOST.into())
    }
}

/// Each once.
fn prefixes(prefixes: impl Iterator<Item = Prefix>) -> Vec<Prefix> {
    let mut prefixes: Vec<_> = prefixes.collect();
    prefixes.sort_unstable();
    prefixes.dedup();
    prefixes
}

/// A set for each family under these names: `near4` and `near6` for `near`.
fn sets(name: &str, prefixes: &[Prefix]) -> String {
    let set = |ipv6: bool| {
        let (digit, kind) = if ipv6 { (6, "ipv6_addr") } else { (4, "ipv4_addr") };
        let of_family = prefixes.iter().filter(|(ip, _)| ip.is_ipv6() == ipv6);
        let elements: Vec<_> = of_family.map(|(ip, bits)| format!("{ip}/{bits}")).collect();
        let elements = match elements.as_slice() {
            [] => String::new(),
            elements => format!(" elements = {{ {} }};", elements.join(", ")),
        };
        format!("  set {name}{digit} {{ type {kind}; flags interval; auto-merge;{elements} }}\n")
    };
    set(false) + &set(true)
}

fn mobile_ruleset(config: &TransparentConfig, ports: Ports, exclude: &[Prefix]) -> String {
    let (table, mark) = (MOBILE_TABLE, config.numbers.mark);
    let take4 = format!("meta nfproto ipv4 meta l4proto tcp tproxy ip to 127.0.0.1:{}", ports.v4);
    let take6 = ports
        .v6
        .map(|port| format!("meta nfproto ipv6 meta l4proto tcp tproxy ip6 to [::1]:{port}"));
    let mark_it = format!("meta mark set meta mark | {mark:#x}");
    let mut out = nft::absent(table);
    out.push_str(&format!("table inet {table} {{\n{}", sets("past", exclude)));
    // Connections of the host come in by lo from the loopback address. The kernel takes IPv6
    // addresses for local by the very rules that divert these packets, unless they are marked.
    // Where no process listens any more, the application is told so at once.
    out.push_str(&format!("  chain {OWN_CHAIN} {{\n    {take4} accept\n"));
    if let Some(take6) = &take6 {
        out.push_str(&format!("    {take6} accept\n"));
    }
    out.push_str(&format!(
        "    meta l4proto tcp reject with tcp reset\n  }}\n  chain host {{\n    \
         ip saddr 127.0.0.1 fib daddr type != local goto {OWN_CHAIN}\n    \
         ip6 saddr ::1 {mark_it} fib daddr . mark type != local goto {OWN_CHAIN}\n  }}\n  \
         chain {OPENING_CHAIN} {{\n"
    ));
    for take in [Some(&take4), take6.as_ref()].into_iter().flatten() {
        out.push_str(&format!("    {take} {mark_it} accept\n"));
    }
    // Only what was begun here is taken: a connection that stood before goes on as it was.
    out.push_str(&format!(
        "  }}\n  chain network {{\n    \
         socket transparent 1 {mark_it} accept\n    \
         fib daddr type {{ local, broadcast, anycast, multicast }} accept\n    \
         ip daddr @past4 accept\n    \
         ip6 daddr @past6 accept\n    \
         tcp flags & (fin | syn | rst | ack) == syn jump {OPENING_CHAIN}\n  }}\n"
    ));
    out.push_str(
        "  chain prerouting {\n    \
         type filter hook prerouting priority mangle; policy accept;\n    \
         meta l4proto != tcp accept\n",
    );
    if config.host {
        out.push_str("    iifname \"lo\" jump host\n");
    }
    for interface in &config.interfaces {
        out.push_str(&format!("    iifname \"{interface}\" jump network\n"));
    }
    out.push_str("  }\n}\n");
    out
}

fn base_ruleset(numbers: Numbers, networks: &[Prefix]) -> String {
    let (table, mark) = (BASE_TABLE, numbers.mark);
    let mut out = nft::absent(table);
    out.push_str(&format!("table inet {table} {{\n{}", sets("own", networks)));
    // The kernel's answer to what met no socket is a reset without ACK; none may leave in the
    // moment between a socket's end and the next rule.
    let astray = "tcp flags & (fin | syn | rst | ack) == rst drop";
    out.push_str(&format!(
        "  chain own {{\n    \
         socket transparent 1 meta mark set meta mark | {mark:#x} accept\n    \
         drop\n  }}\n  \
         chain prerouting {{\n    \
         type filter hook prerouting priority mangle; policy accept;\n    \
         meta l4proto != tcp accept\n    \
         ip daddr @own4 jump own\n    \
         ip6 daddr @own6 jump own\n  }}\n  \
         chain output {{\n    \
         type filter hook output priority mangle; policy accept;\n    \
         ip saddr @own4 {astray}\n    \
         ip6 saddr @own6 {astray}\n  }}\n}}\n"
    ));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transparent::TransparentFile;

    fn config(f: impl FnOnce(&mut TransparentFile)) -> TransparentConfig {
        let mut file = TransparentFile::default();
        f(&mut file);
        file.try_into().unwrap()
    }

    const PORTS: Ports = Ports { v4: 4001, v6: Some(6001) };

    #[test]
    fn every_rule_and_route_is_found_again_by_the_roles_number() {
        let config = config(|f| {
            f.add("host,lan0");
            f.exclude = vec!["10.1.2.3/8".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
        });
        for plan in [
            Plan::mobile(&config, PORTS, 1),
            Plan::base(Numbers::BASE, &["10.9.0.7".parse().unwrap()], 1),
        ] {
            assert!(plan.rules.iter().chain(&plan.openers).all(|r| r.protocol == plan.protocol));
            assert!(plan.routes.iter().all(|r| r.protocol == plan.protocol && r.table != 254));
        }
        let plan = Plan::mobile(&config, PORTS, 1);
        let thrown = plan.routes.iter().filter(|r| r.kind == Kind::Throw).count();
        assert_eq!(thrown, NEAR.len() + 1, "each network once");
    }

    #[test]
    fn priorities_stay_within_the_range_that_is_claimed() {
        let config = config(|f| f.add("host,lan0"));
        let mobile = Plan::mobile(&config, PORTS, 1);
        let base = Plan::base(Numbers::BASE, &[], 1);
        for (plan, first) in [(mobile, 1080), (base, 1090)] {
            let range = first..first + Numbers::PRIORITIES;
            assert!(plan.rules.iter().chain(&plan.openers).all(|r| range.contains(&r.priority)));
        }
    }

    #[test]
    fn without_ipv6_nothing_of_it_is_touched() {
        let config = config(|f| f.add("host,lan0"));
        let plan = Plan::mobile(&config, Ports { v4: 4001, v6: None }, 1);
        assert!(plan.rules.iter().chain(&plan.openers).all(|r| !r.ipv6));
        assert!(plan.routes.iter().all(|r| r.to.0.is_ipv4()));
        assert!(!plan.ruleset.contains("tproxy ip6"));
    }

    #[test]
    fn only_what_is_named_is_intercepted() {
        let lan = Plan::mobile(&config(|f| f.add("lan0")), PORTS, 1);
        assert!(lan.openers.is_empty() && !lan.ruleset.contains("iifname \"lo\""));
        let host = Plan::mobile(&config(|f| f.add("host")), PORTS, 1);
        assert!(!host.ruleset.contains("jump network"));
        assert!(host.rules.iter().all(|r| r.input.as_deref().is_none_or(|name| name == "lo")));
    }
}
