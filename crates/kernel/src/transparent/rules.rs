//! Which packets stay here: the packet rules as `nft` reads them, and the routing rules and routes
//! beside them, for a mobile and for a base.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lasthop_wire::mhp::reach::Families;

use super::config::{Numbers, TransparentConfig};
use super::holding::Answer;
use crate::netlink::{Action, Field, Prefix, Route, RouteKind, Rule, SetChange, key};
use crate::network::Network;
use crate::nft;

/// Everything that is put into the kernel, and what it is found again by.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Plan {
    /// The table of packet rules, of the family `inet`; empty if there are none.
    pub(super) nft_table: &'static str,
    /// Marks the routing rules and routes as made by this role (`ip route show proto N`).
    pub(super) protocol: u8,
    /// The packet rules; the table is made anew by them.
    pub(super) ruleset: String,
    /// Routing rules.
    pub(super) rules: Vec<Rule>,
    /// Those by which the host's connections are begun, one for each family: without them what
    /// stands goes on.
    pub(super) openers: Vec<Rule>,
    /// Behind the opener of IPv4: what it does not take finds no route. For IPv6 the kernel would
    /// choose an address then and ask again, as one does who has chosen it himself; there the packet
    /// rules say it.
    pub(super) barriers: Vec<Rule>,
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
/// The chain in which SYNs wait.
pub(super) const WAITING_CHAIN: &str = "waiting";
/// The chain in which connections end that the base has no way for.
const UNREACHED_CHAIN: &str = "unreached";
/// The chain through which a network's connections are begun.
const OPENING_CHAIN: &str = "opening";

/// What may tell of a connection: an ICMP error has the header of a packet of ours in it, by which
/// `socket` finds the one that it is for. Echoes, and errors of what left no socket of ours, match none.
const ICMP: &str = "{ icmp, ipv6-icmp }";

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

/// Whether SYNs wait until the base has answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hold {
    /// They do not.
    Not,
    /// In the queue of this number, by the packet filter's own words.
    Queue(u16),
    /// By a rule that is added to [`WAITING_CHAIN`] when all else is there.
    Later,
}

impl Plan {
    /// What a mobile intercepts.
    ///
    /// The host's own TCP takes no packet rule to divert: a connection that has not chosen its
    /// own address yet is routed by a table in which everything is local, so it leaves from the
    /// loopback address, by which all of its later packets are known. What was there before, who
    /// answers to others, and who binds to an address of its own is not touched; and a connection
    /// depends neither on an address that comes and goes nor on a route.
    ///
    /// Where SYNs are held, they wait in a chain before all that, and what comes of them is told by
    /// their mark.
    pub(super) fn mobile(
        config: &TransparentConfig,
        ports: Ports,
        lo: u32,
        holding: &Hold,
    ) -> Self {
        let exclude = prefixes(NEAR.into_iter().chain(config.exclude.iter().map(Network::prefix)));
        let mut plan = Self {
            nft_table: MOBILE_TABLE,
            protocol: MOBILE_PROTOCOL,
            ruleset: mobile_ruleset(config, ports, &exclude, holding),
            rules: Vec::new(),
            openers: Vec::new(),
            barriers: Vec::new(),
            routes: Vec::new(),
        };
        let families = [Some(false), ports.v6.map(|_| true)];
        for ipv6 in families.into_iter().flatten() {
            plan.add_routes(config.numbers.table, ipv6, lo, &exclude);
            if config.host {
                plan.add_host_rules(config.numbers, ipv6, &exclude);
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

    /// What a base keeps of what comes for mobiles' addresses: the TCP of its own transparent
    /// sockets, and the ICMP errors that tell of it. All other TCP to them is dropped, so that nobody
    /// resets a connection that has a socket at another base; but for the `exceptions`.
    pub(super) fn base(
        numbers: Numbers,
        networks: &[Network],
        exceptions: &Exceptions,
        lo: u32,
    ) -> Self {
        let networks = prefixes(networks.iter().map(Network::prefix));
        let mut plan = Self {
            nft_table: BASE_TABLE,
            protocol: BASE_PROTOCOL,
            ruleset: base_ruleset(numbers, &networks, exceptions),
            rules: Vec::new(),
            openers: Vec::new(),
            barriers: Vec::new(),
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
        let table = self.nft_table;
        format!(
            "flush chain inet {table} {UNREACHED_CHAIN}\nflush chain inet {table} {OPENING_CHAIN}\n"
        )
    }

    /// A script after which there is no route for connections of other families than these; but
    /// for the host's own of IPv4, which the [`openers`](Self::openers) decide about.
    pub(super) fn reaching(&self, families: Families) -> String {
        let table = self.nft_table;
        let mut out = format!("flush chain inet {table} {UNREACHED_CHAIN}\n");
        for (ipv6, name) in [(false, "ipv4"), (true, "ipv6")] {
            if !families.has(ipv6) {
                out.push_str(&format!(
                    "add rule inet {table} {UNREACHED_CHAIN} meta nfproto {name} \
                     reject with icmpx type no-route\n"
                ));
            }
        }
        out
    }

    fn add_routes(&mut self, table: u32, ipv6: bool, lo: u32, exclude: &[Prefix]) {
        let (all, own) = everything(ipv6);
        let here = Route { table, interface: Some(lo), ..Route::to((all, 0)) };
        self.routes.push(Route { kind: RouteKind::Local, source: Some(own), ..here });
        let thrown = exclude.iter().filter(|to| to.0.is_ipv6() == ipv6);
        self.routes.extend(thrown.map(|to| Route {
            table,
            kind: RouteKind::Throw,
            ..Route::to(*to)
        }));
    }

    fn add_host_rules(&mut self, numbers: Numbers, ipv6: bool, exclude: &[Prefix]) {
        let (all, own) = everything(ipv6);
        let past = Action::Goto(numbers.priority + 4);
        let length = if ipv6 { 128 } else { 32 };
        let rule = |n: u32| Rule {
            input: Some("lo".into()),
            tcp: true,
            // Lasthop's own sockets have the mark.
            mark: Some((0, numbers.mark)),
            ..Rule::new(ipv6, numbers.priority + n, numbers.table)
        };
        self.rules.push(Rule { from: Some((own, length)), ..rule(0) });
        // A connection of IPv4 without an address of its own is from 0.0.0.0. One of IPv6 matches no
        // prefix at all: those that have an address are led past the rule.
        let begun = Rule { from: (!ipv6).then_some((all, 32)), ..rule(2) };
        self.openers.push(begun.clone());
        if ipv6 {
            let upper = IpAddr::V6(Ipv6Addr::new(0x8000, 0, 0, 0, 0, 0, 0, 0));
            for half in [all, upper] {
                self.rules.push(Rule {
                    from: Some((half, 1)),
                    tcp: false,
                    mark: None,
                    action: past,
                    ..rule(1)
                });
            }
        } else {
            let behind = Rule { priority: numbers.priority + 3, ..begun };
            let excluded = exclude.iter().filter(|to| to.0.is_ipv4());
            self.rules.extend(excluded.map(|to| Rule {
                to: Some(*to),
                action: past,
                ..behind.clone()
            }));
            self.barriers.push(Rule { action: Action::Unreachable, ..behind });
        }
        let nop = Rule::new(ipv6, numbers.priority + 4, 0);
        self.rules.push(Rule { action: Action::Nop, ..nop });
    }

    /// Writes the role's number on everything.
    pub(super) fn claim(mut self) -> Self {
        let openers = self.openers.iter_mut().chain(&mut self.barriers);
        for rule in self.rules.iter_mut().chain(openers) {
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
pub(super) fn prefixes(prefixes: impl Iterator<Item = Prefix>) -> Vec<Prefix> {
    let mut prefixes: Vec<_> = prefixes.collect();
    prefixes.sort_unstable();
    prefixes.dedup();
    prefixes
}

/// A set for each family under these names: `near4` and `near6` for `near`.
pub(super) fn sets(name: &str, prefixes: &[Prefix]) -> String {
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

fn mobile_ruleset(
    config: &TransparentConfig,
    ports: Ports,
    exclude: &[Prefix],
    hold: &Hold,
) -> String {
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
    let of_host = |chain: &str| {
        let foreign6 = format!("ip6 saddr ::1 {mark_it} fib daddr . mark type != local");
        format!(
            "    ip saddr 127.0.0.1 fib daddr type != local goto {chain}\n    \
             tcp flags & (fin | syn | rst | ack) == syn {foreign6} jump {UNREACHED_CHAIN}\n    \
             {foreign6} goto {chain}\n"
        )
    };
    // Only what was begun here is taken: a connection that stood before goes on as it was.
    let of_network = |chain: &str| {
        format!(
            "    fib daddr type {{ local, broadcast, anycast, multicast }} accept\n    \
             ip daddr @past4 accept\n    \
             ip6 daddr @past6 accept\n    \
             tcp flags & (fin | syn | rst | ack) != syn accept\n    \
             jump {UNREACHED_CHAIN}\n    \
             jump {chain}\n"
        )
    };
    let each = |suffix: &str| {
        let mut each = String::new();
        if config.host {
            each.push_str(&format!("    iifname \"lo\" jump host{suffix}\n"));
        }
        for interface in &config.interfaces {
            each.push_str(&format!("    iifname \"{interface}\" jump network{suffix}\n"));
        }
        each
    };
    // Where no process listens any more, the application gets a reset at once.
    out.push_str(&format!("  chain {OWN_CHAIN} {{\n    {take4} accept\n"));
    if let Some(take6) = &take6 {
        out.push_str(&format!("    {take6} accept\n"));
    }
    out.push_str(&format!(
        "    meta l4proto tcp reject with tcp reset\n  }}\n  chain {UNREACHED_CHAIN} {{\n  }}\n  \
         chain host {{\n{}  }}\n  chain {OPENING_CHAIN} {{\n",
        of_host(OWN_CHAIN)
    ));
    for take in [Some(&take4), take6.as_ref()].into_iter().flatten() {
        out.push_str(&format!("    {take} {mark_it} accept\n"));
    }
    let queue = match hold {
        Hold::Queue(number) => format!("    queue num {number} bypass\n"),
        Hold::Not | Hold::Later => String::new(),
    };
    out.push_str(&format!(
        "  }}\n  chain network {{\n    socket transparent 1 {mark_it} accept\n{}  }}\n  \
         chain {WAITING_CHAIN} {{\n{queue}  }}\n",
        of_network(OPENING_CHAIN)
    ));
    let errors: String = (config.interfaces.iter())
        .map(|interface| {
            let errors =
                format!("iifname \"{interface}\" meta l4proto {ICMP} socket transparent 1");
            format!("    {errors} {mark_it} accept\n")
        })
        .collect();
    let hook = |name: &str, priority: &str, first: &str| {
        format!(
            "  chain {name} {{\n    type filter hook prerouting priority {priority}; policy \
             accept;\n{first}    meta l4proto != tcp accept\n"
        )
    };
    let mut answers = String::new();
    if *hold != Hold::Not {
        out.push_str(&format!(
            "  chain host_waiting {{\n{}  }}\n  chain network_waiting {{\n{}  }}\n{}    \
             tcp flags & (fin | syn | rst | ack) != syn accept\n{}  }}\n",
            of_host(WAITING_CHAIN),
            of_network(WAITING_CHAIN),
            hook("before", "mangle - 5", ""),
            each("_waiting"),
        ));
        for answer in Answer::ALL {
            let (mark, rejection) = (answer.mark(mark), answer.rejection());
            answers.push_str(&format!("    meta mark {mark:#x} reject with {rejection}\n"));
        }
    }
    out.push_str(&format!(
        "{}{answers}{}  }}\n}}\n",
        hook("prerouting", "mangle", &errors),
        each("")
    ));
    out
}

/// Mobiles' addresses at a base, of which TCP that meets no socket is not dropped. They are sets in
/// the table: to make its rules anew takes the kernel seconds on a busy host where `socket` is an
/// xtables match (it waits for rules that are being destroyed in any namespace), elements nothing.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Exceptions {
    /// It is reset: no other base has connections of these.
    pub answered: BTreeSet<IpAddr>,
    /// It passes, like everything else for these: another router gets it.
    pub away: BTreeSet<IpAddr>,
}

impl Exceptions {
    /// The sets, by their names without the digit of the family.
    fn sets(&self) -> [(&'static str, &BTreeSet<IpAddr>); 2] {
        [("answered", &self.answered), ("away", &self.away)]
    }

    /// What has to change in a base's table that has these, so that it has those of `to`. One that is not there
    /// any more would make all fail: after adding it is.
    pub fn change(&self, to: &Self) -> Vec<SetChange> {
        let mut changes = Vec::new();
        for ((set, now), (_, then)) in self.sets().into_iter().zip(to.sets()) {
            let (gone, new) = (now - then, then - now);
            for (add, addresses) in [(true, &gone), (false, &gone), (true, &new)] {
                for (digit, ipv6) in [(4, false), (6, true)] {
                    let own = addresses.iter().filter(|ip| ip.is_ipv6() == ipv6);
                    let keys: Vec<Vec<u8>> = own.map(|ip| key(&[Field::Ip(*ip)])).collect();
                    let set = format!("{set}{digit}");
                    let change = SetChange { table: BASE_TABLE, set, add, keys };
                    changes.extend((!change.keys.is_empty()).then_some(change));
                }
            }
        }
        changes
    }

    /// A script after which a base's table, which must be there, resets no stray.
    pub fn resetting_nobody() -> String {
        ["answered4", "answered6"]
            .map(|set| format!("flush set inet {BASE_TABLE} {set}\n"))
            .concat()
    }
}

/// A line for each family that adds addresses to a set.
fn elements(set: &str, addresses: &BTreeSet<IpAddr>) -> String {
    let line = |(digit, ipv6): (u8, bool)| {
        let own = addresses.iter().filter(|ip| ip.is_ipv6() == ipv6);
        match own.map(IpAddr::to_string).collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => none,
            own => format!("add element inet {BASE_TABLE} {set}{digit} {{ {own} }}\n"),
        }
    };
    [(4, false), (6, true)].map(line).concat()
}

fn base_ruleset(numbers: Numbers, networks: &[Prefix], exceptions: &Exceptions) -> String {
    let (table, mark) = (BASE_TABLE, numbers.mark);
    let mut out = nft::absent(table);
    out.push_str(&format!("table inet {table} {{\n{}", sets("own", networks)));
    for (set, _) in exceptions.sets() {
        out.push_str(&format!(
            "  set {set}4 {{ type ipv4_addr; }}\n  set {set}6 {{ type ipv6_addr; }}\n"
        ));
    }
    // The kernel's answer to what met no socket is a reset without ACK; none may leave in the
    // moment between a socket's end and the next rule.
    let astray = "tcp flags & (fin | syn | rst | ack) == rst drop";
    // An ICMP error for a socket of ours would else be the mobile's, which has none.
    out.push_str(&format!(
        "  chain own {{\n    \
         socket transparent 1 meta mark set meta mark | {mark:#x} accept\n    \
         ip daddr @answered4 meta l4proto tcp reject with tcp reset\n    \
         ip6 daddr @answered6 meta l4proto tcp reject with tcp reset\n    \
         meta l4proto tcp drop\n  }}\n  \
         chain prerouting {{\n    \
         type filter hook prerouting priority mangle; policy accept;\n    \
         meta l4proto != {{ tcp, icmp, ipv6-icmp }} accept\n    \
         ip daddr @away4 accept\n    \
         ip6 daddr @away6 accept\n    \
         ip daddr @own4 jump own\n    \
         ip6 daddr @own6 jump own\n  }}\n  \
         chain output {{\n    \
         type filter hook output priority mangle; policy accept;\n    \
         ip saddr @away4 accept\n    \
         ip6 saddr @away6 accept\n    \
         ip saddr @answered4 accept\n    \
         ip6 saddr @answered6 accept\n    \
         ip saddr @own4 {astray}\n    \
         ip6 saddr @own6 {astray}\n  }}\n}}\n"
    ));
    exceptions.sets().iter().for_each(|(set, of)| out.push_str(&elements(set, of)));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transparent::tests::config;

    fn every(plan: &Plan) -> impl Iterator<Item = &Rule> {
        plan.rules.iter().chain(&plan.barriers).chain(&plan.openers)
    }

    const PORTS: Ports = Ports { v4: 4001, v6: Some(6001) };

    #[test]
    fn every_rule_and_route_is_found_again_by_the_roles_number() {
        let config = config("host,lan0", |f| {
            f.exclude = vec!["10.1.2.3/8".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
        });
        for plan in [
            Plan::mobile(&config, PORTS, 1, &Hold::Not),
            Plan::base(Numbers::BASE, &["10.9.0.7".parse().unwrap()], &Exceptions::default(), 1),
        ] {
            assert!(every(&plan).all(|r| r.protocol == plan.protocol));
            assert!(plan.routes.iter().all(|r| r.protocol == plan.protocol && r.table != 254));
        }
        let plan = Plan::mobile(&config, PORTS, 1, &Hold::Not);
        let thrown = plan.routes.iter().filter(|r| r.kind == RouteKind::Throw).count();
        assert_eq!(thrown, NEAR.len() + 1, "each network once");
    }

    #[test]
    fn priorities_stay_within_the_range_that_is_claimed() {
        let config = config("host,lan0", |_| {});
        let mobile = Plan::mobile(&config, PORTS, 1, &Hold::Not);
        let base = Plan::base(Numbers::BASE, &[], &Exceptions::default(), 1);
        for (plan, first) in [(mobile, 1080), (base, 1090)] {
            let range = first..first + Numbers::PRIORITIES;
            assert!(every(&plan).all(|r| range.contains(&r.priority)));
        }
    }

    #[test]
    fn without_ipv6_nothing_of_it_is_touched() {
        let config = config("host,lan0", |_| {});
        let plan = Plan::mobile(&config, Ports { v4: 4001, v6: None }, 1, &Hold::Not);
        assert!(every(&plan).all(|r| !r.ipv6));
        assert!(plan.routes.iter().all(|r| r.to.0.is_ipv4()));
        assert!(!plan.ruleset.contains("tproxy ip6"));
    }

    #[test]
    fn exceptions_change_by_elements_alone() {
        let of = |answered: &[&str], away: &[&str]| {
            let set = |texts: &[&str]| texts.iter().map(|ip| ip.parse().unwrap()).collect();
            Exceptions { answered: set(answered), away: set(away) }
        };
        let (old, new) = (of(&["10.9.0.7", "fd09::7"], &[]), of(&["10.9.0.7"], &["fd09::7"]));
        let change = |set: &str, add| SetChange {
            table: BASE_TABLE,
            set: set.to_owned(),
            add,
            keys: vec![key(&[Field::Ip("fd09::7".parse().unwrap())])],
        };
        let gone = [change("answered6", true), change("answered6", false)];
        assert_eq!(old.change(&new), [&gone[..], &[change("away6", true)]].concat());
        assert_eq!(old.change(&old), []);
        let added = "add element inet lasthop_base away6 { fd09::7 }\n";
        assert!(base_ruleset(Numbers::BASE, &[], &new).ends_with(added));
    }

    #[test]
    fn only_what_is_named_is_intercepted() {
        let lan = Plan::mobile(&config("lan0", |_| {}), PORTS, 1, &Hold::Not);
        assert!(lan.openers.is_empty() && !lan.ruleset.contains("iifname \"lo\""));
        let host = Plan::mobile(&config("host", |_| {}), PORTS, 1, &Hold::Not);
        assert!(!host.ruleset.contains("jump network"));
        assert!(host.rules.iter().all(|r| r.input.as_deref().is_none_or(|name| name == "lo")));
    }
}
