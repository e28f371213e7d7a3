//! What a mobile is told.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use lasthop_hop::seal::PublicKey;
use lasthop_session::Opening;
use serde::{Deserialize, Deserializer, de};

use crate::config::{self, ConfigError, HopKind, KeyText, SealKind, SrpFile};
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

impl<'de> Deserialize<'de> for BaseAddress {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(de::Error::custom)
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
    pub base: Option<BaseAddress>,
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
    pub base: BaseAddress,
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
}

impl TryFrom<MobileFile> for MobileConfig {
    type Error = ConfigError;

    fn try_from(file: MobileFile) -> Result<Self, ConfigError> {
        let missing = |what, how| ConfigError::Missing { what, how };
        let (hop, seal) = (file.hop.unwrap_or_default(), file.seal.unwrap_or_default());
        let base = file
            .base
            .ok_or_else(|| missing("the base's address", "say `base = \"HOST:PORT\"` or --base"))?;
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
        if hop == HopKind::Srp && file.congestion.is_some() {
            let why = "`congestion` is of hop = \"split-tcp\" only";
            return Err(ConfigError::Contradiction(why.to_owned()));
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
            connections: file.limits.connections.unwrap_or(4096),
        })
    }
}
