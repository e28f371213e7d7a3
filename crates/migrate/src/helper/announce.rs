//! Tells a segment that this host answers for a mobile's address, and answers.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lasthop_wire::checksum::Sum;
use rustix::net::SendFlags;
use socket2::Type;

use lasthop_kernel::netlink::{self, Interface, MAIN, NetlinkError, Rtnetlink};
use lasthop_kernel::network::Network;
use lasthop_kernel::packet_socket;

/// After the first announcement it is made again so much later each time: one may be lost.
const AGAIN: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(2)];
/// Every station of an Ethernet segment.
const BROADCAST: [u8; 6] = [0xff; 6];

/// The addresses that this host answers for.
#[derive(Debug)]
pub(super) struct Announcements {
    standing: BTreeMap<(IpAddr, String), Standing>,
    segments: Segments,
}

/// A socket for each interface. They stay: the kernel takes long to close one.
#[derive(Default, Debug)]
struct Segments(BTreeMap<u32, OwnedFd>);

#[derive(Debug)]
struct Standing {
    interface: Interface,
    /// A route of our own, without which the kernel would not answer.
    route: Option<netlink::Route>,
    /// The kernel does answer.
    answers: bool,
    again: Option<(usize, Instant)>,
}

impl Announcements {
    /// Removes what an earlier helper answered for among `ours`.
    pub(super) fn new(ours: &[Network]) -> Self {
        let clean = || -> Result<(), NetlinkError> {
            let mut kernel = Rtnetlink::open()?;
            for (interface, ip) in kernel.proxies()? {
                if ours.iter().any(|n| n.contains(ip)) {
                    kernel.delete_proxy(interface, ip)?;
                }
            }
            Ok(())
        };
        if let Err(error) = clean() {
            tracing::warn!(%error, "cannot remove addresses announced by an earlier helper");
        }
        Self { standing: BTreeMap::new(), segments: Segments::default() }
    }

    /// Answers for `address` from here on, and says so.
    pub(super) fn announce(&mut self, address: IpAddr, name: &str) -> Result<(), String> {
        let mut kernel = Rtnetlink::open().map_err(|e| e.to_string())?;
        let interface = kernel.interface(name).map_err(|e| e.to_string())?;
        let mac = interface.mac.ok_or_else(|| format!("{name} has no hardware address"))?;
        prepare(address, name)?;
        let key = (address, name.to_owned());
        let standing = self.standing.entry(key.clone()).or_insert_with(|| Standing {
            interface: interface.clone(),
            route: None,
            answers: false,
            again: None,
        });
        if !standing.answers {
            answer(&mut kernel, address, standing).map_err(|e| e.to_string())?;
        }
        let said = self.segments.send_once(address, interface.index, mac);
        said.map_err(|e| format!("announcing on {name}: {e}"))?;
        if let Some(standing) = self.standing.get_mut(&key) {
            standing.again = Some((0, Instant::now() + AGAIN[0]));
        }
        Ok(())
    }

    /// Answers for `address` no more.
    pub(super) fn retract(&mut self, address: IpAddr, name: &str) -> Result<(), String> {
        let key = (address, name.to_owned());
        let Some(standing) = self.standing.get_mut(&key) else { return Ok(()) };
        standing.again = None;
        let end = || -> Result<(), NetlinkError> {
            let mut kernel = Rtnetlink::open()?;
            kernel.delete_proxy(standing.interface.index, address)?;
            if let Some(route) = &standing.route {
                kernel.delete_route(route)?;
            }
            Ok(())
        };
        end().map_err(|e| e.to_string())?;
        self.standing.remove(&key);
        Ok(())
    }

    /// How long until something is due.
    pub(super) fn next(&self) -> Option<Duration> {
        let due = self.standing.values().filter_map(|standing| Some(standing.again?.1)).min()?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    /// Says again what is due.
    pub(super) fn handle_timeout(&mut self) {
        let now = Instant::now();
        for ((address, _), standing) in &mut self.standing {
            let Some((n, due)) = standing.again.filter(|(_, due)| *due <= now) else { continue };
            let Some(mac) = standing.interface.mac else { continue };
            // The next one may go out where this one did not.
            let _ = self.segments.send_once(*address, standing.interface.index, mac);
            standing.again = AGAIN.get(n + 1).map(|later| (n + 1, due + *later));
        }
    }
}

/// A setting of the kernel's for the interface `name`, in the family of `address`.
fn setting(address: IpAddr, kind: &str, name: &str, what: &str) -> PathBuf {
    let family = if address.is_ipv4() { "ipv4" } else { "ipv6" };
    PathBuf::from("/proc/sys/net").join(family).join(kind).join(name).join(what)
}

/// Whether the kernel forwards what comes in by the interface `name`. Where it does not, it answers
/// for no address but its own, whatever else it is told (`arp_process` and `ndisc_recv_ns`).
///
/// # Errors
///
/// It does not, and what to set; or there is no such interface.
pub(crate) fn forwards(address: IpAddr, name: &str) -> io::Result<()> {
    let forwarding = fs::read_to_string(setting(address, "conf", name, "forwarding"))?;
    if forwarding.trim() == "1" {
        return Ok(());
    }
    let family = if address.is_ipv4() { "ipv4" } else { "ipv6" };
    Err(io::Error::other(format!(
        "this host forwards nothing that comes in by {name}, so it does not answer for {address}: \
         set net.{family}.conf.{name}.forwarding to 1"
    )))
}

/// What the kernel must be set to before it answers for others.
fn prepare(address: IpAddr, name: &str) -> Result<(), String> {
    let key = |kind: &str, what: &str| setting(address, kind, name, what);
    forwards(address, name).map_err(|e| e.to_string())?;
    let mut wanted = vec![(key("neigh", "proxy_delay"), "0")];
    if address.is_ipv6() {
        wanted.push((key("conf", "proxy_ndp"), "1"));
    }
    for (path, value) in wanted {
        let is = fs::read_to_string(&path).unwrap_or_default();
        if is.trim() != value {
            fs::write(&path, value).map_err(|e| format!("setting {}: {e}", path.display()))?;
        }
    }
    Ok(())
}

/// Has the kernel answer whoever asks for the address. It does not for one that it would look for
/// on the same segment itself (IPv4): then the address gets a route that leads nowhere else. The
/// packets that are for a socket here do not follow it.
fn answer(
    kernel: &mut Rtnetlink,
    address: IpAddr,
    standing: &mut Standing,
) -> Result<(), NetlinkError> {
    let interface = standing.interface.index;
    let route = if address.is_ipv4() && is_on_link(kernel, address, interface)? {
        let lo = kernel.interfaces()?.into_iter().find(|i| i.loopback);
        let lo = lo.ok_or_else(|| NetlinkError::NoInterface("lo".into()))?.index;
        let to = netlink::Route::to((address, 32));
        Some(netlink::Route { interface: Some(lo), protocol: super::ways::PROTOCOL, ..to })
    } else {
        None
    };
    if let Some(route) = route {
        kernel.replace_route(standing.route.insert(route))?;
    }
    kernel.add_proxy(interface, address)?;
    standing.answers = true;
    Ok(())
}

/// Whether the best route to the address leaves by the interface, or there is none.
fn is_on_link(
    kernel: &mut Rtnetlink,
    address: IpAddr,
    interface: u32,
) -> Result<bool, NetlinkError> {
    let routes = kernel.routes(address.is_ipv6(), Some(MAIN))?;
    let best = routes
        .iter()
        .filter(|route| contains(route.to, address))
        .max_by_key(|route| (route.to.1, std::cmp::Reverse(route.metric.unwrap_or(0))));
    Ok(best.is_none_or(|route| route.interface == Some(interface)))
}

fn contains((network, length): netlink::Prefix, address: IpAddr) -> bool {
    let bits = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => (u128::from(ip.to_bits()) << 96, 32),
        IpAddr::V6(ip) => (ip.to_bits(), 128),
    };
    let ((network, all), (address, other)) = (bits(network), bits(address));
    let differ = (network ^ address).leading_zeros();
    all == other && (network == address || differ >= u32::from(length))
}

impl Segments {
    /// Sends the announcement once.
    fn send_once(&mut self, address: IpAddr, interface: u32, mac: [u8; 6]) -> io::Result<()> {
        let said = self.send(address, interface, mac);
        if said.is_err() {
            // The number may be another interface's next time.
            self.0.remove(&interface);
        }
        said
    }

    fn send(&mut self, address: IpAddr, interface: u32, mac: [u8; 6]) -> io::Result<()> {
        let socket = match self.0.entry(interface) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let socket = packet_socket::open(Type::RAW)?;
                // No frame is wanted back.
                packet_socket::bind(socket.as_fd(), &packet_socket::address(interface, 0))?;
                entry.insert(socket)
            }
        };
        let frames = match address {
            IpAddr::V4(ip) => vec![arp(ip, mac, 1), arp(ip, mac, 2)],
            IpAddr::V6(ip) => vec![advertisement(ip, mac)],
        };
        for frame in frames {
            rustix::net::send(&*socket, &frame, SendFlags::NOSIGNAL)?;
        }
        Ok(())
    }
}

/// A gratuitous ARP (RFC 5227, section 3): a request (1) or a reply (2) whose sender and target are
/// the address. Some hosts heed the one, some the other.
fn arp(ip: Ipv4Addr, mac: [u8; 6], operation: u8) -> Vec<u8> {
    let target = if operation == 1 { [0; 6] } else { mac };
    let header = [0, 1, 8, 0, 6, 4, 0, operation];
    let ends = [&mac[..], &ip.octets(), &target, &ip.octets()].concat();
    [&BROADCAST[..], &mac, &[0x08, 0x06], &header, &ends].concat()
}

/// An unsolicited neighbour advertisement that overrides what was known (RFC 4861, section 7.2.6).
fn advertisement(ip: Ipv6Addr, mac: [u8; 6]) -> Vec<u8> {
    let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).octets();
    let own = ip.octets();
    // From a router; not asked for; overrides. Then the address and its option 2, the station's.
    let mut message = [&[136, 0, 0, 0, 0xa0, 0, 0, 0][..], &own, &[2, 1], &mac].concat();
    let length = message.len() as u8;
    let pseudo = Sum::new().with(&own).with(&all).with(&[0, 0, 0, length, 0, 0, 0, 58]);
    let checksum = pseudo.with(&message).checksum();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let ethernet = [&[0x33, 0x33, 0, 0, 0, 1], &mac[..], &[0x86, 0xdd]].concat();
    // Only a hop limit of 255 shows that no router was in between.
    let ip = [&[0x60, 0, 0, 0, 0, length, 58, 255][..], &own, &all].concat();
    [ethernet, ip, message].concat()
}

#[cfg(test)]
mod tests {
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};

    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

    #[test]
    fn an_advertisement_is_whole_and_its_checksum_right() {
        let ip = "2001:db8::7".parse().unwrap();
        let frame = advertisement(ip, MAC);
        let packet = SlicedPacket::from_ethernet(&frame).unwrap();
        let Some(NetSlice::Ipv6(net)) = &packet.net else { panic!("{packet:?}") };
        let Some(TransportSlice::Icmpv6(icmp)) = &packet.transport else { panic!("{packet:?}") };
        let header = net.header();
        assert!(icmp.is_checksum_valid(header.source(), header.destination()));
        assert_eq!((icmp.type_u8(), header.hop_limit()), (136, 255));
        assert_eq!(&frame[frame.len() - 8..], [2, 1, 2, 0, 0, 0, 0, 7]);
    }

    #[test]
    fn a_gratuitous_arp_names_the_address_twice() {
        let frame = arp([10, 9, 0, 7].into(), MAC, 1);
        assert_eq!(frame.len(), 42);
        assert_eq!(&frame[28..32], [10, 9, 0, 7]);
        assert_eq!(&frame[38..42], [10, 9, 0, 7]);
        assert_eq!(&frame[12..22], [8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    }

    #[test]
    fn a_prefix_contains_what_begins_like_it() {
        let contains = |network: &str, length, address: &str| {
            super::contains((network.parse().unwrap(), length), address.parse().unwrap())
        };
        assert!(contains("10.0.9.0", 24, "10.0.9.100"));
        assert!(!contains("10.0.9.0", 24, "10.0.8.100"));
        assert!(contains("0.0.0.0", 0, "10.0.8.100"));
        assert!(contains("10.0.8.100", 32, "10.0.8.100"));
        assert!(!contains("::", 0, "10.0.8.100"));
        assert!(contains("fd00:9::", 64, "fd00:9::100"));
        assert!(!contains("fd00:9::100", 128, "fd00:9::101"));
    }
}
