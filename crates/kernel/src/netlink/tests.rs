//! In network namespaces, against the kernel itself.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::*;
use crate::netns::Netns;

const PATIENCE: Duration = Duration::from_secs(60);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Two namespaces joined by `left` and `right`, both up; none where tests may not have them.
fn pair() -> Option<(Netns, Netns)> {
    let (a, b) = (Netns::for_test()?, Netns::for_test()?);
    a.veth("left", &b, "right").unwrap();
    a.interface_up("left", &[(ip("10.0.0.1"), 24), (ip("2001:db8::1"), 64)]).unwrap();
    b.interface_up("right", &[(ip("10.0.0.2"), 24), (ip("2001:db8::2"), 64)]).unwrap();
    // The kernel may take a second to find out that a carrier is there.
    let (start, mut requests) = (Instant::now(), requests(&a));
    while !requests.interface("left").unwrap().works() {
        assert!(start.elapsed() < PATIENCE, "there is no carrier");
        std::thread::sleep(Duration::from_millis(5));
    }
    Some((a, b))
}

fn requests(netns: &Netns) -> Rtnetlink {
    netns.enter(Rtnetlink::open).unwrap().unwrap()
}

fn monitor(netns: &Netns) -> Monitor {
    netns.enter(Monitor::open).unwrap().unwrap()
}

/// What the monitor tells until `last` is told.
fn told_until(monitor: &mut Monitor, last: &NetworkEvent) -> Vec<NetworkEvent> {
    let (start, mut told) = (Instant::now(), Vec::new());
    loop {
        while let Some(event) = monitor.poll_event() {
            told.push(event);
        }
        if told.contains(last) {
            return told;
        }
        assert!(start.elapsed() < PATIENCE, "{last:?} is not among {told:?}");
        let mut fds = [PollFd::new(&*monitor, PollFlags::IN)];
        poll(&mut fds, Some(&Duration::from_millis(100).try_into().unwrap())).unwrap();
        while monitor.handle_ready() {}
    }
}

fn up(interface: &str) -> NetworkEvent {
    NetworkEvent::Up { interface: interface.to_owned() }
}

fn down(interface: &str) -> NetworkEvent {
    NetworkEvent::Down { interface: interface.to_owned() }
}

fn gained(interface: &str, address: &str) -> NetworkEvent {
    NetworkEvent::Gained { interface: interface.to_owned(), ip: ip(address) }
}

fn lost(interface: &str, address: &str) -> NetworkEvent {
    NetworkEvent::Lost { interface: interface.to_owned(), ip: ip(address) }
}

#[test]
fn interfaces_and_addresses_are_listed() {
    let Some((a, _b)) = pair() else { return };
    let mut requests = requests(&a);
    let left = requests.interface("left").unwrap();
    assert!(left.works() && !left.loopback && left.mac.is_some(), "{left:?}");
    assert!(requests.interface("lo").unwrap().loopback);
    let addresses = requests.addresses().unwrap();
    for (address, prefix) in [("10.0.0.1", 24), ("2001:db8::1", 64)] {
        let expected = Address { interface: left.index, ip: ip(address), prefix, usable: true };
        assert!(addresses.contains(&expected), "{addresses:?}");
    }
    let error = requests.interface("middle").unwrap_err().to_string();
    assert!(error.contains("`middle`"), "{error}");
}

#[test]
fn an_interface_becomes_what_it_is_ordered_to_be() {
    let Some((a, _b)) = pair() else { return };
    let mut requests = requests(&a);
    let index = requests.interface("left").unwrap().index;
    requests.set_up(index, false).unwrap();
    requests.set_mtu(index, 1400).unwrap();
    let left = requests.interface("left").unwrap();
    assert!(!left.up && left.mtu == 1400, "{left:?}");
    requests.set_up(index, true).unwrap();
    assert!(requests.interface("left").unwrap().up);
    for (address, prefix) in [("10.7.0.1", 24), ("2001:db8:7::1", 64)] {
        let given = Address { interface: index, ip: ip(address), prefix, usable: true };
        assert!(requests.add_address(index, (ip(address), prefix)).unwrap());
        assert!(!requests.add_address(index, (ip(address), prefix)).unwrap());
        assert!(requests.addresses().unwrap().contains(&given));
        let routes = requests.routes(given.ip.is_ipv6(), Some(MAIN)).unwrap();
        let is_there = |route: &Route| route.interface == Some(index) && route.to.1 == prefix;
        assert!(routes.iter().any(is_there), "{routes:?}");
        assert!(requests.delete_address(index, (ip(address), prefix)).unwrap());
        assert!(!requests.delete_address(index, (ip(address), prefix)).unwrap());
        assert!(!requests.addresses().unwrap().contains(&given));
    }
    let error = requests.set_mtu(index, 1).unwrap_err().to_string();
    assert!(error.contains("MTU of interface"), "{error}");
}

#[test]
fn routes_are_added_replaced_and_deleted() {
    let Some((a, _b)) = pair() else { return };
    let mut requests = requests(&a);
    let left = requests.interface("left").unwrap().index;
    for (to, via, other) in [
        ((ip("10.9.0.7"), 32), ip("10.0.0.2"), ip("10.0.0.3")),
        ((ip("2001:db8:9::7"), 128), ip("2001:db8::2"), ip("2001:db8::3")),
    ] {
        let ipv6 = to.0.is_ipv6();
        let route = Route { via: Some(via), interface: Some(left), ..Route::to(to) };
        requests.replace_route(&route).unwrap();
        let other = Route { via: Some(other), ..route.clone() };
        requests.replace_route(&other).unwrap();
        let all = requests.routes(ipv6, Some(MAIN)).unwrap();
        let found: Vec<_> = all.iter().filter(|r| r.to == to).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].via, found[0].interface), (other.via, Some(left)));
        assert_eq!(found[0].protocol, PROTOCOL);
        // What is not said matches.
        assert!(requests.delete_route(&Route::to(to)).unwrap());
        assert!(!requests.delete_route(&Route::to(to)).unwrap());
    }
}

#[test]
fn a_table_of_its_own_takes_marked_packets() {
    let Some((a, _b)) = pair() else { return };
    let mut requests = requests(&a);
    let lo = requests.interface("lo").unwrap().index;
    for ipv6 in [false, true] {
        let table = 3000;
        let everything = Route {
            kind: RouteKind::Local,
            table,
            interface: Some(lo),
            ..Route::to(super::everything(ipv6))
        };
        requests.replace_route(&everything).unwrap();
        let found = requests.routes(ipv6, Some(table)).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].kind, found[0].to.1), (RouteKind::Local, 0));

        let prefix = if ipv6 { (ip("2001:db8:9::"), 64) } else { (ip("10.9.0.0"), 16) };
        let rule = Rule {
            mark: Some((0x4c00, 0xff00)),
            to: Some(prefix),
            input: Some("left".to_owned()),
            ..Rule::new(ipv6, 1000, table)
        };
        assert!(requests.add_rule(&rule).unwrap());
        assert!(!requests.add_rule(&rule).unwrap(), "it is there");
        let rules = requests.rules(ipv6).unwrap();
        assert!(rules.contains(&rule), "{rules:?}");
        assert!(requests.delete_rule(&rule).unwrap());
        assert!(!requests.delete_rule(&rule).unwrap(), "it is gone");
        assert!(requests.delete_route(&everything).unwrap());
    }
}

#[test]
fn rules_may_mean_tcp_alone_jump_and_do_nothing() {
    let Some((a, _b)) = pair() else { return };
    let mut requests = requests(&a);
    for ipv6 in [false, true] {
        let lookup = Rule { tcp: true, ..Rule::new(ipv6, 1001, 3000) };
        let goto = Rule { action: Action::Goto(1002), ..Rule::new(ipv6, 1000, 0) };
        let nop = Rule { action: Action::Nop, ..Rule::new(ipv6, 1002, 0) };
        let rules = [lookup, goto, nop];
        for rule in &rules {
            assert!(requests.add_rule(rule).unwrap(), "{rule}");
        }
        let found = requests.rules(ipv6).unwrap();
        for rule in &rules {
            assert!(found.contains(rule), "{rule}: {found:?}");
            assert!(requests.delete_rule(rule).unwrap(), "{rule}");
        }
        assert!(requests.rules(ipv6).unwrap().iter().all(|rule| rule.protocol != PROTOCOL));
    }
}

#[test]
fn routes_of_every_kind_are_listed_as_they_were_added() {
    let Some((a, _b)) = pair() else { return };
    let mut requests = requests(&a);
    for (to, source) in [("10.9.0.0", "10.0.0.1"), ("2001:db8:9::", "2001:db8::1")] {
        let to = ip(to);
        let left = requests.interface("left").unwrap().index;
        let plain = Route { table: 3001, metric: Some(7), protocol: 77, ..Route::to((to, 60)) };
        let plain = if to.is_ipv6() { plain } else { Route { to: (to, 24), ..plain } };
        let routes = [
            Route { interface: Some(left), source: Some(ip(source)), ..plain.clone() },
            Route { kind: RouteKind::Throw, metric: Some(8), ..plain.clone() },
            Route { kind: RouteKind::Unreachable, metric: Some(9), ..plain.clone() },
            Route { kind: RouteKind::Blackhole, metric: Some(10), ..plain },
        ];
        for route in &routes {
            requests.replace_route(route).unwrap();
        }
        let found = requests.routes(to.is_ipv6(), Some(3001)).unwrap();
        assert_eq!(found.len(), routes.len(), "{found:?}");
        for route in &routes {
            let like = |r: &&Route| r.metric == route.metric;
            let same = found.iter().find(like).unwrap();
            assert_eq!((same.to, same.kind), (route.to, route.kind));
            assert_eq!((same.source, same.protocol), (route.source, 77));
            assert!(requests.delete_route(route).unwrap(), "{route}");
        }
    }
}

/// A deletion means the rule that it names, not one that looks alike.
#[test]
fn a_rule_of_somebody_else_stays() {
    let Some((a, _b)) = pair() else { return };
    a.ip("rule add fwmark 0x1/0x1 lookup 100 priority 1000\n").unwrap();
    let mut requests = requests(&a);
    let ours = Rule { mark: Some((2, 2)), ..Rule::new(false, 1000, 100) };
    assert!(!requests.delete_rule(&ours).unwrap());
    assert!(requests.rules(false).unwrap().iter().any(|rule| rule.mark == Some((1, 1))));
}

#[test]
fn proxies_come_and_go() {
    let Some((a, _b)) = pair() else { return };
    let mut requests = requests(&a);
    let left = requests.interface("left").unwrap().index;
    for address in ["10.0.0.7", "2001:db8::7"].map(ip) {
        requests.add_proxy(left, address).unwrap();
        requests.add_proxy(left, address).unwrap();
        assert!(requests.proxies().unwrap().contains(&(left, address)));
        assert!(requests.delete_proxy(left, address).unwrap());
        assert!(!requests.delete_proxy(left, address).unwrap());
    }
    assert_eq!(requests.proxies().unwrap(), []);
}

#[test]
fn the_kernels_refusal_is_reported_with_its_message() {
    let Some((a, _b)) = pair() else { return };
    let mut requests = requests(&a);
    let route = Route { via: Some(ip("192.0.2.1")), ..Route::to((ip("10.9.0.7"), 32)) };
    let error = requests.replace_route(&route).unwrap_err();
    let said = error.to_string();
    assert!(said.contains("10.9.0.7/32 via 192.0.2.1"), "{said}");
    assert!(said.contains("gateway"), "{said}");
    assert!(!error.is_absent() && !error.is_present());
}

#[test]
fn a_carrier_that_is_lost_and_found_is_reported() {
    let Some((a, b)) = pair() else { return };
    let mut monitor = monitor(&a);
    assert!(monitor.interfaces().any(|i| i.name == "left" && i.works()));
    assert_eq!(monitor.poll_event(), None);
    b.ip("link set right down\n").unwrap();
    told_until(&mut monitor, &down("left"));
    b.ip("link set right up\n").unwrap();
    told_until(&mut monitor, &up("left"));
}

#[test]
fn an_interface_switched_off_or_taken_away_is_down() {
    let Some((a, _b)) = pair() else { return };
    let mut monitor = monitor(&a);
    a.ip("link set left down\n").unwrap();
    told_until(&mut monitor, &down("left"));
    a.ip("link set left up\n").unwrap();
    told_until(&mut monitor, &up("left"));
    a.ip("link delete left\n").unwrap();
    told_until(&mut monitor, &down("left"));
    assert!(monitor.interfaces().all(|i| i.name != "left"));
}

#[test]
fn addresses_are_reported_as_they_come_and_go() {
    let Some((a, _b)) = pair() else { return };
    let mut monitor = monitor(&a);
    let left = monitor.interfaces().find(|i| i.name == "left").unwrap().index;
    a.ip("address add 10.1.0.1/24 dev left\n").unwrap();
    told_until(&mut monitor, &gained("left", "10.1.0.1"));
    assert!(monitor.addresses(left).any(|known| known == ip("10.1.0.1")));
    a.ip("address del 10.1.0.1/24 dev left\n").unwrap();
    told_until(&mut monitor, &lost("left", "10.1.0.1"));
    // It is asked for first whether somebody else has it, and told when that is known.
    a.ip("address add 2001:db8:1::1/64 dev left\n").unwrap();
    told_until(&mut monitor, &gained("left", "2001:db8:1::1"));
}

#[test]
fn the_default_route_is_reported_when_it_changes() {
    let Some((a, _b)) = pair() else { return };
    let mut monitor = monitor(&a);
    let route = |via: &str, metric| {
        let interface = Some("left".to_owned());
        let route = Some(DefaultRoute { interface, via: Some(ip(via)), metric });
        NetworkEvent::Default { ipv6: via.contains(':'), route }
    };
    a.ip("route add default via 10.0.0.2 metric 50\n").unwrap();
    told_until(&mut monitor, &route("10.0.0.2", 50));
    // A better one takes over.
    a.ip("route add default via 10.0.0.3 metric 20\n").unwrap();
    told_until(&mut monitor, &route("10.0.0.3", 20));
    a.ip("route add default via 2001:db8::2 metric 9\n").unwrap();
    told_until(&mut monitor, &route("2001:db8::2", 9));
    // IPv4 routes go without a word when their interface does.
    a.ip("link set left down\n").unwrap();
    let none = NetworkEvent::Default { ipv6: false, route: None };
    told_until(&mut monitor, &none);
    assert_eq!(monitor.default_route(false), None);
}

#[test]
fn a_monitor_that_missed_news_looks_for_itself() {
    let Some((a, _b)) = pair() else { return };
    let mut monitor = monitor(&a).with_little_room();
    let addresses: String =
        (1..=200).map(|n| format!("address add 10.2.0.{n}/32 dev left\n")).collect();
    a.ip(&addresses).unwrap();
    a.ip("link set left down\n").unwrap();
    while monitor.handle_ready() {}
    assert!(monitor.overruns() > 0, "nothing was missed");
    let events: Vec<_> = std::iter::from_fn(|| monitor.poll_event()).collect();
    assert!(events.contains(&down("left")), "{events:?}");
    let gained = events.iter().filter(|e| matches!(e, NetworkEvent::Gained { .. })).count();
    assert_eq!(gained, 200, "{events:?}");
}

/// A bridge speaks of its ports in messages that look like those of interfaces.
#[test]
fn a_port_that_leaves_its_bridge_is_still_there() {
    let Some((a, _b)) = pair() else { return };
    if a.ip("link add br0 type bridge\nlink set left master br0\n").is_err() {
        lasthop_testing::skip("there are no bridges here");
        return;
    }
    let mut monitor = monitor(&a);
    a.ip("link set left nomaster\naddress add 10.3.0.1/24 dev left\n").unwrap();
    let told = told_until(&mut monitor, &gained("left", "10.3.0.1"));
    assert!(!told.contains(&down("left")), "{told:?}");
    assert!(monitor.interfaces().any(|i| i.name == "left" && i.works()));
}
