//! Which targets a base connects to.

use std::net::{IpAddr, Ipv4Addr};

use lasthop_kernel::network::Network;

/// Networks in which an address means the base itself, its link, nobody in particular, or the service that
/// gives a cloud's machine its credentials. A mobile that could reach them would stand inside the base.
pub(super) const INWARD: &[Network] = &[
    Network::v4(0, 0, 0, 0, 8),
    Network::v4(127, 0, 0, 0, 8),
    Network::v4(169, 254, 0, 0, 16),
    Network::v4(224, 0, 0, 0, 4),
    Network::v4(255, 255, 255, 255, 32),
    Network::v4(100, 100, 100, 200, 32),
    Network::v4(168, 63, 129, 16, 32),
    Network::v4(192, 0, 0, 192, 32),
    Network::v6_of([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128),
    Network::v6_of([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128),
    Network::v6(0, 0, 128),
    Network::v6(0, 1, 128),
    Network::v6(0xfe80, 0, 10),
    Network::v6(0xff00, 0, 8),
];

/// Networks whose addresses hold an IPv4 address that a host in between translates to or tunnels to, and how
/// many bits stand behind it: RFC 6052 section 2.1, RFC 8215, RFC 3056 section 2 (6to4), RFC 4291
/// section 2.5.5.1 (IPv4-compatible).
const EMBEDDED: &[(Network, u32)] = &[
    (Network::v6_of([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96), 0),
    (Network::v6_of([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), 0),
    (Network::v6(0x2002, 0, 16), 80),
    (Network::v6(0, 0, 96), 0),
];

/// The rules: the most specific network that holds the target decides, and of two equally specific
/// ones the denying. Without any rule everything is allowed but the base itself: unspecified,
/// loopback, link-local and multicast addresses, and those that its kernel takes for its own. An
/// `allow` that is as specific as these opens them.
#[derive(Clone, Default, Debug)]
pub struct TargetPolicy {
    /// Networks that are allowed.
    pub allow: Vec<Network>,
    /// Networks that are denied.
    pub deny: Vec<Network>,
}

impl TargetPolicy {
    /// Whether the base may connect to `ip`. Of an address that is the host's own, `own` tells how
    /// many leading bits the local route has that leads to it.
    pub fn allows(&self, ip: IpAddr, own: impl Fn(IpAddr) -> Option<u8>) -> bool {
        let ip = ip.to_canonical();
        self.allows_form(ip, &own) && embedded(ip).is_none_or(|ip| self.allows_form(ip, &own))
    }

    /// The same for one of the forms that an address has.
    fn allows_form(&self, ip: IpAddr, own: &impl Fn(IpAddr) -> Option<u8>) -> bool {
        let longest = |networks: &[Network]| {
            networks.iter().filter(|net| net.contains(ip)).map(|net| net.prefix().1).max()
        };
        let allowed = longest(&self.allow);
        let denied = longest(&self.deny).is_some_and(|bits| Some(bits) >= allowed);
        let inward = longest(INWARD).or_else(|| own(ip)).is_some_and(|bits| Some(bits) > allowed);
        !denied && !inward
    }
}

/// The IPv4 address in an IPv6 address.
fn embedded(ip: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(v6) = ip else { return None };
    let holds = |(net, _): &&(Network, u32)| net.contains(ip);
    // `::` and `::1` mean nothing but themselves.
    let (_, behind) = EMBEDDED.iter().find(holds).filter(|_| v6.to_bits() > 1)?;
    Some(Ipv4Addr::from_bits((v6.to_bits() >> behind) as u32).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(list: &[&str]) -> Vec<Network> {
        list.iter().map(|s| s.parse().unwrap()).collect()
    }

    fn ip(s: &str) -> IpAddr {
        s.parse().unwrap()
    }

    fn nobodys(_: IpAddr) -> Option<u8> {
        None
    }

    #[test]
    fn by_default_everything_but_the_base_itself_is_allowed() {
        let policy = TargetPolicy::default();
        for yes in ["192.0.2.1", "10.0.0.1", "2001:db8::1"] {
            assert!(policy.allows(ip(yes), nobodys), "{yes}");
        }
        let inward = [
            "127.0.0.1",
            "0.0.0.0",
            "169.254.169.254",
            "224.0.0.1",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
        ];
        for no in inward {
            assert!(!policy.allows(ip(no), nobodys), "{no}");
        }
    }

    /// SEC-7: a cloud gives its machines' credentials to whoever asks from inside.
    #[test]
    fn metadata_services_and_embedded_ipv4_addresses_are_denied_unless_allowed() {
        let inward = [
            "169.254.169.254",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd20:ce::254",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::127.0.0.1",
            "2002:a9fe:a9fe::1",
            "2002:7f00:1:9:9:9:9:9",
            "::127.0.0.1",
            "::ffff:100.100.100.200",
        ];
        let everything = networks(&["0.0.0.0/0", "::/0"]);
        let broad = TargetPolicy { allow: everything, deny: Vec::new() };
        for no in inward {
            for policy in [&TargetPolicy::default(), &broad] {
                assert!(!policy.allows(ip(no), nobodys), "{no}");
            }
        }
        let allow = ["169.254.169.254", "2002::/16", "fd00:ec2::254", "::1"];
        let open = TargetPolicy { allow: networks(&allow), deny: Vec::new() };
        let opened = ["2002:a9fe:a9fe::1", "fd00:ec2::254", "::1"];
        for yes in opened.into_iter().chain(["2002:c000:201::1", "64:ff9b::c000:201"]) {
            assert!(open.allows(ip(yes), nobodys), "{yes}");
        }
        assert!(!open.allows(ip("2002:7f00:1::1"), nobodys));
        let closed = TargetPolicy { allow: Vec::new(), deny: networks(&["10.0.0.0/8"]) };
        assert!(!closed.allows(ip("2002:a00:1::1"), nobodys));
        assert!(closed.allows(ip("2002:b00:1::1"), nobodys));
    }

    #[test]
    fn the_most_specific_rule_decides() {
        let policy = TargetPolicy {
            allow: networks(&["127.0.0.0/8", "10.1.0.0/16"]),
            deny: networks(&["10.0.0.0/8", "10.1.2.0/24", "127.0.0.9"]),
        };
        assert!(policy.allows(ip("127.0.0.1"), nobodys));
        assert!(!policy.allows(ip("127.0.0.9"), nobodys));
        assert!(!policy.allows(ip("10.2.0.1"), nobodys));
        assert!(policy.allows(ip("10.1.9.1"), nobodys));
        assert!(!policy.allows(ip("10.1.2.1"), nobodys));
        assert!(policy.allows(ip("192.0.2.1"), nobodys));
        assert!(!policy.allows(ip("::1"), nobodys));
    }

    #[test]
    fn equally_specific_rules_deny() {
        let both = networks(&["192.0.2.0/24"]);
        let policy = TargetPolicy { allow: both.clone(), deny: both };
        assert!(!policy.allows(ip("192.0.2.1"), nobodys));
    }
    #[test]
    fn the_hosts_own_addresses_are_opened_by_what_is_as_specific_as_their_route() {
        let own = |address: IpAddr| match address {
            a if a == ip("10.3.0.1") || a == ip("127.0.0.1") => Some(32),
            a if a == ip("2001:db8::1") => Some(128),
            a if networks(&["192.0.2.0/24"])[0].contains(a) => Some(24),
            _ => None,
        };
        let closed = TargetPolicy {
            allow: networks(&["0.0.0.0/0", "::/0", "10.3.0.0/24", "192.0.2.0/23", "2001:db8::/64"]),
            deny: Vec::new(),
        };
        let owned = ["10.3.0.1", "192.0.2.7", "2001:db8::1", "::ffff:10.3.0.1", "64:ff9b::a03:1"];
        for no in owned {
            assert!(!closed.allows(ip(no), own) && !TargetPolicy::default().allows(ip(no), own));
        }
        assert!(closed.allows(ip("10.3.0.2"), own) && closed.allows(ip("64:ff9b::a03:2"), own));
        let allow = ["10.3.0.1", "192.0.2.0/24", "2001:db8::1", "127.0.0.0/8"];
        let open = TargetPolicy { allow: networks(&allow), deny: Vec::new() };
        for yes in owned.into_iter().chain(["127.0.0.1", "64:ff9b:1::7f00:1"]) {
            assert!(open.allows(ip(yes), own), "{yes}");
        }
    }

    #[test]
    fn what_is_denied_is_denied_in_its_translated_form_too() {
        let policy = TargetPolicy { allow: Vec::new(), deny: networks(&["10.0.0.0/8"]) };
        assert!(!policy.allows(ip("64:ff9b::10.1.2.3"), nobodys));
        assert!(policy.allows(ip("64:ff9b::192.0.2.1"), nobodys));
        assert!(!policy.allows(ip("64:ff9b::127.0.0.1"), nobodys));
    }
}
