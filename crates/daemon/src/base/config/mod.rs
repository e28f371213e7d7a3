//! What a base is told.

pub(super) mod handoff;

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use lasthop_hop::seal::PublicKey;
use lasthop_kernel::network::Network;
use lasthop_kernel::tcp::Congestion;
use serde::Deserialize;

use self::handoff::{HandoffConfig, HandoffFile, MobileAddresses, MobileEntry, PeerFile};
use crate::base::policy::TargetPolicy;
use crate::config::{
    self, CarrierKind, ConfigError, HopAddress, HopKind, KeyText, MobileTcpFile, SealKind, SrpFile,
};
use crate::publish::{self, PublishFile, Published};

/// Where mobiles are served when nobody says.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V6(Ipv6Addr::UNSPECIFIED), 4433);
/// How long the fixed host may take to answer when nobody says.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A base's configuration file; flags fill the same fields and win.
#[derive(Clone, Default, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BaseFile {
    /// Addresses on which mobiles are served.
    pub listen: Option<Vec<SocketAddr>>,
    /// The file with the base's key.
    pub key: Option<PathBuf>,
    /// The public keys of the mobiles that are served.
    pub allow: Option<Vec<KeyText>>,
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
    /// Where connections may go.
    pub targets: TargetsFile,
    /// Bounds.
    pub limits: LimitsFile,
    /// SRP's few settings.
    pub srp: SrpFile,
    /// Mobile TCP's.
    pub mobile_tcp: MobileTcpFile,
    /// Servers on mobiles that fixed hosts reach here.
    pub publish: Vec<PublishFile>,
    /// How connections move to other bases.
    pub handoff: Option<HandoffFile>,
    /// The other bases.
    pub peers: Vec<PeerFile>,
    /// Addresses of mobiles.
    pub mobiles: Vec<MobileEntry>,
}

/// The `[targets]` table.
#[derive(Clone, Default, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TargetsFile {
    /// Networks that are allowed.
    pub allow: Vec<Network>,
    /// Networks that are denied.
    pub deny: Vec<Network>,
    /// How long the fixed host may take to answer.
    #[serde(deserialize_with = "config::duration")]
    pub connect_timeout: Option<Duration>,
}

/// The `[limits]` table.
#[derive(Clone, Default, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsFile {
    /// Associations at once.
    pub associations: Option<usize>,
    /// Connections of one association at once.
    pub connections: Option<usize>,
    /// Connections in all at once.
    pub connections_total: Option<usize>,
}

/// Bounds of a base.
#[derive(Clone, Copy, Debug)]
pub struct BaseLimits {
    /// Associations at once.
    pub associations: usize,
    /// Connections of one association at once.
    pub connections: usize,
    /// Connections in all at once.
    pub connections_total: usize,
}

impl Default for BaseLimits {
    fn default() -> Self {
        Self { associations: 256, connections: 4096, connections_total: 16384 }
    }
}

/// All that a base needs to know.
#[derive(Clone, Debug)]
pub struct BaseConfig {
    /// Where mobiles are served.
    pub place: HopAddress<Vec<SocketAddr>>,
    /// The file with the base's key; unused without a seal.
    pub key: PathBuf,
    /// The mobiles that are served; unused without a seal.
    pub allow: Vec<PublicKey>,
    /// What crosses the hop.
    pub hop: HopKind,
    /// What protects it.
    pub seal: SealKind,
    /// The congestion control of split-tcp; the system's own if `None`.
    pub congestion: Option<Congestion>,
    /// The status socket; a default place if `None`.
    pub control: Option<PathBuf>,
    /// Where connections may go.
    pub targets: TargetPolicy,
    /// How long the fixed host may take to answer.
    pub connect_timeout: Duration,
    /// Bounds.
    pub limits: BaseLimits,
    /// SRP's few settings.
    pub srp: SrpFile,
    /// Mobile TCP's.
    pub mobile_tcp: MobileTcpFile,
    /// Servers on mobiles that fixed hosts reach here.
    pub publish: Vec<Published>,
    /// How connections move to other bases; `None` where there is no other.
    pub handoff: Option<HandoffConfig>,
    /// From where the connections of mobiles leave; others leave from the base's own address.
    pub mobiles: Vec<MobileAddresses>,
}

impl TryFrom<BaseFile> for BaseConfig {
    type Error = ConfigError;

    fn try_from(file: BaseFile) -> Result<Self, ConfigError> {
        let (hop, seal) = (file.hop.unwrap_or_default(), file.seal.unwrap_or_default());
        let allow: Vec<_> = file.allow.unwrap_or_default().into_iter().map(|key| key.0).collect();
        let key = match (seal, file.key) {
            (_, Some(key)) => key,
            (SealKind::None, None) => PathBuf::new(),
            (SealKind::Noise, None) => {
                let how = "say `key = \"FILE\"` or --key FILE (see lasthop keygen)";
                return Err(ConfigError::Missing { what: "the base's key", how });
            }
        };
        if seal == SealKind::Noise && allow.is_empty() {
            let how = "say `allow = [\"PUBLIC KEY\"]` or --allow KEY, once for each mobile";
            return Err(ConfigError::Missing { what: "a mobile that is served", how });
        }
        if seal == SealKind::None && !allow.is_empty() {
            let why = "`allow` has no meaning with seal = \"none\": nobody can prove a key";
            return Err(ConfigError::Contradiction(why.to_owned()));
        }
        config::check_hop(hop, file.congestion.as_ref(), file.carrier, &file.mobile_tcp)?;
        let place = match (file.carrier.unwrap_or_default(), file.interface, file.listen) {
            (CarrierKind::Udp, Some(_), _) => {
                return Err(config::contradiction("`interface` is of carrier = \"ethernet\" only"));
            }
            (CarrierKind::Udp, None, listen) => {
                HopAddress::Internet(listen.unwrap_or_else(|| vec![LISTEN]))
            }
            (CarrierKind::Ethernet, _, Some(_)) => {
                let why = "`listen` has no meaning with carrier = \"ethernet\": frames have no \
                           port; say `interface`";
                return Err(config::contradiction(why));
            }
            (CarrierKind::Ethernet, None, None) => {
                let how = "say `interface = \"NAME\"` or --interface NAME (see ip link)";
                return Err(ConfigError::Missing { what: "the interface for Ethernet", how });
            }
            (CarrierKind::Ethernet, Some(interface), None) => {
                HopAddress::Ethernet { interface, peer: None }
            }
        };
        let publish = publish::published(file.publish, &allow)?;
        let mobiles = handoff::mobiles(file.mobiles, &allow)?;
        let handoff = handoff::configured(file.handoff, file.peers, &mobiles, seal)?;
        let limits = BaseLimits::default();
        Ok(Self {
            place,
            key,
            allow,
            hop,
            seal,
            congestion: file.congestion,
            control: file.control,
            targets: TargetPolicy { allow: file.targets.allow, deny: file.targets.deny },
            srp: file.srp,
            mobile_tcp: file.mobile_tcp,
            publish,
            handoff,
            mobiles,
            connect_timeout: file.targets.connect_timeout.unwrap_or(CONNECT_TIMEOUT),
            limits: BaseLimits {
                associations: file.limits.associations.unwrap_or(limits.associations),
                connections: file.limits.connections.unwrap_or(limits.connections),
                connections_total: file
                    .limits
                    .connections_total
                    .unwrap_or(limits.connections_total),
            },
        })
    }
}
