//! The configuration that `lasthop exec` passes through the environment.

use core::ffi::CStr;
use core::net::{IpAddr, SocketAddr, SocketAddrV4};
use core::time::Duration;
use std::sync::OnceLock;

/// The mobile's SOCKS5 listener, as `ADDRESS:PORT`. Without it the library does nothing.
const PROXY: &CStr = c"LASTHOP_PROXY";
/// Networks to connect to directly, as `ADDRESS/BITS`, with commas between.
const DIRECT: &CStr = c"LASTHOP_DIRECT";
/// Seconds to wait for the far end's answer.
const TIMEOUT: &CStr = c"LASTHOP_TIMEOUT";

/// Most networks that can be named; `lasthop exec` refuses more.
const MAX_NETWORKS: usize = 32;

/// As long as the kernel itself keeps trying (`tcp_syn_retries` of 6).
const BLOCKING: Duration = Duration::from_secs(127);
/// Shorter, because a whole event loop may be standing still meanwhile.
const NON_BLOCKING: Duration = Duration::from_secs(20);

/// The configuration of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// Where the mobile listens. IPv4, since sockets of both families can reach that.
    pub(crate) proxy: SocketAddrV4,
    timeout: Option<Duration>,
    direct: [Option<Network>; MAX_NETWORKS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    bits: u8,
}

static CONFIG: OnceLock<Option<Config>> = OnceLock::new();

impl Config {
    /// The configuration, read from the environment once; `None` where there is no proxy.
    pub(crate) fn get() -> Option<&'static Config> {
        CONFIG
            .get_or_init(|| Config::parse(variable(PROXY)?, variable(DIRECT), variable(TIMEOUT)))
            .as_ref()
    }

    fn parse(proxy: &str, direct: Option<&str>, timeout: Option<&str>) -> Option<Config> {
        let mut networks = [None; MAX_NETWORKS];
        let named = direct.unwrap_or_default().split(',').filter_map(Network::parse);
        for (slot, network) in networks.iter_mut().zip(named) {
            *slot = Some(network);
        }
        let timeout = timeout.and_then(|t| t.parse().ok()).map(Duration::from_secs);
        Some(Config { proxy: proxy.parse().ok()?, timeout, direct: networks })
    }

    /// How long to wait for an answer: the user's setting, or as it suits the socket.
    pub(crate) fn patience(&self, non_blocking: bool) -> Duration {
        self.timeout.unwrap_or(if non_blocking { NON_BLOCKING } else { BLOCKING })
    }

    /// Whether `target` is not the mobile's business: this host itself, what only this link knows,
    /// and the networks that the user excepted.
    pub(crate) fn is_direct(&self, target: SocketAddr) -> bool {
        let ip = target.ip().to_canonical();
        is_local(ip)
            || self.is_proxy(target)
            || self.direct.iter().flatten().any(|n| n.contains(ip))
    }

    /// Whether `address` is the proxy's own, plain or v4-mapped.
    pub(crate) fn is_proxy(&self, address: SocketAddr) -> bool {
        address.ip().to_canonical() == IpAddr::V4(*self.proxy.ip())
            && address.port() == self.proxy.port()
    }
}

/// Loopback, unspecified (which connects to loopback), link-local, multicast and broadcast.
fn is_local(ip: IpAddr) -> bool {
    if ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() {
        return true;
    }
    match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

impl Network {
    fn parse(text: &str) -> Option<Network> {
        let (address, bits) = text.trim().split_once('/')?;
        let network = Network { address: address.parse().ok()?, bits: bits.parse().ok()? };
        (network.bits <= width(network.address)).then_some(network)
    }

    fn contains(&self, ip: IpAddr) -> bool {
        let differ = match (self.address, ip) {
            (IpAddr::V4(a), IpAddr::V4(b)) => u128::from(u32::from(a) ^ u32::from(b)),
            (IpAddr::V6(a), IpAddr::V6(b)) => u128::from(a) ^ u128::from(b),
            _ => return false,
        };
        differ.checked_shr(u32::from(width(ip) - self.bits)).unwrap_or(0) == 0
    }
}

fn width(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

fn variable(name: &CStr) -> Option<&'static str> {
    // SAFETY: `name` ends with NUL. The value is only read while the library is loaded, or at the
    // first call of a constructor before ours, when nobody changes the environment yet.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: `getenv` gives a string that ends with NUL; see above for its life.
    unsafe { CStr::from_ptr(value) }.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(direct: &str) -> Config {
        Config::parse("127.0.0.1:1080", Some(direct), None).unwrap()
    }

    #[test]
    fn this_host_and_its_link_are_never_tunnelled() {
        let config = config("");
        for local in [
            "127.0.0.1:80",
            "127.9.9.9:80",
            "[::1]:80",
            "0.0.0.0:80",
            "[::]:80",
            "[::ffff:127.0.0.1]:80",
            "169.254.1.1:80",
            "[fe80::1]:80",
            "224.0.0.1:80",
            "255.255.255.255:80",
        ] {
            assert!(config.is_direct(local.parse().unwrap()), "{local}");
        }
        for far in ["192.0.2.1:80", "[2001:db8::1]:80", "[::ffff:192.0.2.1]:80"] {
            assert!(!config.is_direct(far.parse().unwrap()), "{far}");
        }
    }

    #[test]
    fn a_proxy_elsewhere_is_itself_reached_directly() {
        let config = Config::parse("192.0.2.1:1080", None, None).unwrap();
        assert!(config.is_direct("192.0.2.1:1080".parse().unwrap()));
        assert!(config.is_direct("[::ffff:192.0.2.1]:1080".parse().unwrap()));
        assert!(!config.is_direct("192.0.2.1:1081".parse().unwrap()));
    }

    #[test]
    fn excepted_networks_are_direct_to_the_bit() {
        let config = config("10.0.0.0/8, 192.0.2.128/25,2001:db8::/33,nonsense,1.2.3.4/99");
        for direct in ["10.255.0.1:1", "192.0.2.129:1", "[2001:db8:7fff::1]:1"] {
            assert!(config.is_direct(direct.parse().unwrap()), "{direct}");
        }
        for far in ["11.0.0.1:1", "192.0.2.127:1", "[2001:db8:8000::1]:1", "1.2.3.4:1"] {
            assert!(!config.is_direct(far.parse().unwrap()), "{far}");
        }
    }

    #[test]
    fn a_prefix_of_no_bits_is_everything_of_its_family() {
        let config = config("::/0");
        assert!(config.is_direct("[2001:db8::1]:1".parse().unwrap()));
        assert!(!config.is_direct("192.0.2.1:1".parse().unwrap()));
    }

    #[test]
    fn the_users_patience_goes_before_ours() {
        let own = Config::parse("127.0.0.1:1080", None, Some("3")).unwrap();
        assert_eq!(own.patience(true), Duration::from_secs(3));
        assert_eq!(own.patience(false), Duration::from_secs(3));
        assert!(config("").patience(true) < config("").patience(false));
    }

    #[test]
    fn a_proxy_that_cannot_be_read_is_none() {
        assert_eq!(Config::parse("localhost", None, None), None);
        assert_eq!(Config::parse("[::1]:1080", None, None), None);
    }
}
