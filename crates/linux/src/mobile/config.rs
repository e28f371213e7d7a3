//! What a mobile is told.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use lasthop_hop::seal::PublicKey;
use lasthop_session::Opening;
use serde::{Deserialize, Deserializer, de};

use crate::carrier::ether::Mac;
use crate::config::{
    self, CarrierKind, ConfigError, HopKind, KeyText, MobileTcpFile, Place, SealKind, SrpFile,
};
use crate::publish::{self, Server};
use crate::tcp::Congestion;

/// Where applications are served when nobody says.
const PROXY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1080);

/// Where a base is: a name or an address, and a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BaseAddress {
    /// Name or address.
    pub host: String,
    /// UDP or TCP port.
    pub port: u16,
}

impl FromStr for BaseAddress {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let fail = || format!("`{s}` is not HOST:PORT (an IPv6 address goes in brackets)");
        let (host, port) = s.rsplit_once(':').ok_or_else(fail)?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(fail)?;
        let host = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
            Some(inner) => inner,
            None if host.contains(':') => return Err(fail()),
            None => host,
        };
        if host.is_empty() {
            return Err(fail());
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

/// Where a base is, as it is written: `HOST:PORT`, `ether:INTERFACE` or `ether:INTERFACE/ADDRESS`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BaseText {
    /// By an Internet address.
    Internet(BaseAddress),
    /// On an Ethernet link.
    Ether {
        /// The mobile's own interface there.
        interface: String,
        /// The base's interface; `None`: whoever answers as the base.
        mac: Option<Mac>,
    },
}

impl FromStr for BaseText {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let Some(link) = s.strip_prefix("ether:") else {
            return s.parse().map(Self::Internet);
        };
        let (interface, mac) = match link.split_once('/') {
            Some((interface, mac)) => (interface, Some(mac.parse::<Mac>()?)),
            None => (link, None),
        };
        if interface.is_empty() {
            return Err(format!("`{s}` is not ether:INTERFACE or ether:INTERFACE/ADDRESS"));
        }
        if mac.is_some_and(|mac| mac.is_group()) {
            return Err(format!(
                "`{s}`: a base's address is one interface's; leave it out to find it"
            ));
        }
        Ok(Self::Ether { interface: interface.to_owned(), mac })
    }
}

impl From<BaseAddress> for BaseText {
    fn from(address: BaseAddress) -> Self {
        Self::Internet(address)
    }
}

impl<'de> Deserialize<'de> for BaseText {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(de::Error::custom)
    }
}

/// One place out of all that was said of it.
fn place(
    base: Option<BaseText>,
    carrier: Option<CarrierKind>,
    interface: Option<String>,
) -> Result<Place<BaseAddress>, ConfigError> {
    match (base, carrier, interface) {
        (Some(BaseText::Internet(_)), Some(CarrierKind::Ethernet), _) => {
            let why = "`base = \"HOST:PORT\"` has no meaning with carrier = \"ethernet\": say \
                       ether:INTERFACE, or `interface` alone";
            Err(config::contradiction(why))
        }
        (Some(BaseText::Ether { .. }), Some(CarrierKind::Udp), _) => Err(config::contradiction(
            "`base = \"ether:...\"` has no meaning with carrier = \"udp\"",
        )),
        (Some(BaseText::Ether { interface, .. }), _, Some(other)) if interface != other => {
            let why = format!("`interface` is {other}, but `base` is at {interface}");
            Err(ConfigError::Contradiction(why))
        }
        (Some(BaseText::Ether { interface, mac }), _, _) => {
            Ok(Place::Ethernet { interface, peer: mac })
        }
        (None, Some(CarrierKind::Ethernet), Some(interface)) => {
            Ok(Place::Ethernet { interface, peer: None })
        }
        (None, Some(CarrierKind::Ethernet), None) => {
            let how = "say `interface = \"NAME\"` or `base = \"ether:NAME\"` (see ip link)";
            Err(ConfigError::Missing { what: "the interface for Ethernet", how })
        }
        (_, _, Some(_)) => {
            Err(config::contradiction("`interface` is of carrier = \"ethernet\" only"))
        }
        (Some(BaseText::Internet(address)), _, None) => Ok(Place::Internet(address)),
        (None, _, None) => Err(ConfigError::Missing {
            what: "the base's address",
            how: "say `base = \"HOST:PORT\"` or --base",
        }),
    }
}

/// When applications are told that their connection stands.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Connect {
    /// When the fixed host has answered.
    #[default]
    Faithful,
    /// At once; a refusal arrives as a reset.
    Early,
}

impl FromStr for Connect {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "faithful" => Ok(Self::Faithful),
            "early" => Ok(Self::Early),
            _ => Err(format!("`{s}` is no way to connect; there are faithful and early")),
        }
    }
}

impl From<Connect> for Opening {
    fn from(connect: Connect) -> Self {
        match connect {
            Connect::Faithful => Self::Faithful,
            Connect::Early => Self::Early,
        }
    }
}

/// A mobile's configuration file; flags fill the same fields and win.
#[derive(Clone, Default, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MobileFile {
    /// Where the base is.
    pub base: Option<BaseText>,
    /// The base's public key.
    pub base_key: Option<KeyText>,
    /// The file with the mobile's key.
    pub key: Option<PathBuf>,
    /// Addresses on which SOCKS5 and HTTP CONNECT are served.
    pub proxy: Option<Vec<SocketAddr>>,
    /// When applications are told that their connection stands.
    pub connect: Option<Connect>,
    /// What crosses the hop.
    pub hop: Option<HopKind>,
    /// What moves its datagrams.
    pub carrier: Option<CarrierKind>,
    /// The interface whose frames they are.
    pub interface: Option<String>,
    /// What protects it.
    pub seal: Option<SealKind>,
    /// The congestion control of split-tcp.
    #[serde(deserialize_with = "config::congestion")]
    pub congestion: Option<Congestion>,
    /// The status socket.
    pub control: Option<PathBuf>,
    /// Bounds.
    pub limits: LimitsFile,
    /// SRP's few settings.
    pub srp: SrpFile,
    /// Mobile TCP's.
    pub mobile_tcp: MobileTcpFile,
    /// Servers here that fixed hosts reach through the base.
    pub publish: Vec<Server>,
}

/// The `[limits]` table.
#[derive(Clone, Default, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsFile {
    /// Connections at once.
    pub connections: Option<usize>,
}

/// All that a mobile needs to know.
#[derive(Clone, Debug)]
pub struct MobileConfig {
    /// Where the base is.
    pub base: Place<BaseAddress>,
    /// The base's public key; `None` without a seal.
    pub base_key: Option<PublicKey>,
    /// The file with the mobile's key; `None` without a seal.
    pub key: Option<PathBuf>,
    /// Addresses on which SOCKS5 and HTTP CONNECT are served.
    pub proxy: Vec<SocketAddr>,
    /// When applications are told that their connection stands.
    pub connect: Connect,
    /// What crosses the hop.
    pub hop: HopKind,
    /// What protects it.
    pub seal: SealKind,
    /// The congestion control of split-tcp; the system's own if `None`.
    pub congestion: Option<Congestion>,
    /// The status socket; a default place if `None`.
    pub control: Option<PathBuf>,
    /// Connections at once.
    pub connections: usize,
    /// SRP's few settings.
    pub srp: SrpFile,
    /// Mobile TCP's.
    pub mobile_tcp: MobileTcpFile,
    /// Servers here that fixed hosts reach through the base.
    pub publish: Vec<Server>,
}

impl TryFrom<MobileFile> for MobileConfig {
    type Error = ConfigError;

    fn try_from(file: MobileFile) -> Result<Self, ConfigError> {
        let missing = |what, how| ConfigError::Missing { what, how };
        let (hop, seal) = (file.hop.unwrap_or_default(), file.seal.unwrap_or_default());
        config::check_hop(hop, file.congestion.as_ref(), file.carrier, &file.mobile_tcp)?;
        let base = place(file.base, file.carrier, file.interface)?;
        if hop == HopKind::SplitTcp && matches!(base, Place::Ethernet { .. }) {
            let why = "`base = \"ether:...\"` has no meaning with hop = \"split-tcp\"";
            return Err(config::contradiction(why));
        }
        if seal == SealKind::Noise {
            if file.key.is_none() {
                let how = "say `key = \"FILE\"` or --key FILE (see lasthop keygen)";
                return Err(missing("the mobile's key", how));
            }
            if file.base_key.is_none() {
                let how = "say `base_key = \"PUBLIC KEY\"` or --base-key KEY";
                return Err(missing("the base's public key", how));
            }
        }
        Ok(Self {
            base,
            base_key: file.base_key.map(|key| key.0),
            key: file.key,
            proxy: file.proxy.unwrap_or_else(|| vec![PROXY]),
            connect: file.connect.unwrap_or_default(),
            hop,
            seal,
            congestion: file.congestion,
            control: file.control,
            srp: file.srp,
            mobile_tcp: file.mobile_tcp,
            publish: publish::servers(file.publish)?,
            connections: file.limits.connections.unwrap_or(4096),
        })
    }
}
