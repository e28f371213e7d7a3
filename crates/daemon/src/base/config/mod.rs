//! A base's configuration.

pub(super) mod allow;
mod fleet;
pub(super) mod handoff;

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use lasthop_control::settings;
use lasthop_hop::seal::{Allowed, PublicKey};
use lasthop_kernel::memory;
use lasthop_kernel::network::Network;
use lasthop_kernel::tcp::Congestion;
use lasthop_units::{Bytes, Span};
use serde::{Deserialize, Deserializer, de};

use self::allow::AllowEntry;
use self::handoff::{HandoffConfig, HandoffFile, MobileEntry, PeerFile};
use crate::base::policy::TargetPolicy;
use crate::config::{
    self, CarrierKind, ConfigError, HopAddress, HopKind, MobileTcpFile, SealKind, SrpFile,
    role_settings,
};
use crate::keyfile::{KeyFileError, PresharedKeys};
use crate::packets::{BaseTunConfig, BaseTunFile, PacketRule};
use crate::publish::{self, PublishFile, Published};

/// Where mobiles are served when nobody says.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V6(Ipv6Addr::UNSPECIFIED), 4433);

role_settings! {
    /// A base's configuration file; flags fill the same fields and win.
    #[derive(clap::Args)]
    pub struct BaseFile {
        /// Addresses on which mobiles are served.
        ///
        /// `[::]` takes IPv4 too.
        #[flag(long = "listen", value_name = "ADDRESS:PORT")]
        pub listen: Option<Vec<SocketAddr>> = vec![LISTEN],
        /// The public keys of the mobiles that are served.
        ///
        /// Nobody else gets an answer, and the log says who asked. In a file, a mobile with which there is a
        /// pre-shared key is a [table](#pre-shared-keys).
        #[flag(long = "allow", value_name = "PUBLIC KEY")]
        pub allow: Option<Vec<AllowEntry>>,
        /// A file with the members of the base's [fleet](fleet.md), which are served and trusted beside those here: `allow`,
        /// `[[mobiles]]`, `[[peers]]`, and `fleet_keys` under `[handoff]`.
        #[arg(skip)]
        pub fleet: Option<PathBuf>,
        /// Threads that serve mobiles, each with mobiles of its own.
        ///
        /// More than one need the seal to tell mobiles apart, and UDP; split-tcp has one.
        #[flag(long = "workers", value_name = "COUNT")]
        pub workers: Option<NonZeroU32> => "one for each CPU, where there can be more than one",
        /// Servers on mobiles that fixed hosts reach here: who connects to ADDRESS:PORT is offered to
        /// the mobile for its PORT, or to the mobile with this key.
        ///
        /// In a file, [tables](#publish).
        #[flag(long = "publish", value_name = "ADDRESS:PORT -> [KEY:]PORT")]
        pub publish: Vec<PublishFile>,
        /// Where mobiles' connections may go, a [table](#targets).
        #[command(flatten)]
        pub targets: TargetsFile,
        /// Bounds, a [table](#limits).
        #[command(flatten)]
        pub limits: LimitsFile,
        /// How connections move to other bases, a [table](#handoff-peers-mobiles).
        #[arg(skip)]
        pub handoff: Option<HandoffFile>,
        /// The other bases, [tables](#handoff-peers-mobiles).
        #[arg(skip)]
        pub peers: Vec<PeerFile>,
        /// How packets beside connections are carried on, a [table](datagrams.md).
        #[arg(skip)]
        pub tun: Option<BaseTunFile>,
        /// Addresses of mobiles, [tables](#handoff-peers-mobiles).
        #[arg(skip)]
        pub mobiles: Vec<MobileEntry>,
    }
}

settings! {
    /// The `[targets]` table.
    #[derive(clap::Args)]
    pub struct TargetsFile {
        /// Networks to which connections may go, or an address even if it is the base's own.
        #[flag(long = "allow-target", value_name = "ADDRESS/BITS")]
        pub allow: Vec<Network>,
        /// Networks to which no connection may go.
        #[flag(long = "deny-target", value_name = "ADDRESS/BITS")]
        pub deny: Vec<Network>,
        /// How long resolving and connecting to a fixed host may take in all.
        #[flag(long = "connect-timeout", value_name = "TIME")]
        pub connect_timeout: Option<Span> = Span(Duration::from_secs(10)),
    }
}

settings! {
    /// The `[limits]` table.
    #[derive(Copy, clap::Args)]
    pub struct LimitsFile {
        /// Mobiles at once.
        ///
        /// It bounds split-tcp, and every hop without a seal; with one, srp and mobile-tcp serve the mobiles
        /// in `allow`.
        #[flag(long = "max-associations", value_name = "COUNT")]
        pub associations: Option<usize> = 256,
        /// Connections of one mobile at once.
        #[flag(long = "max-connections", value_name = "COUNT")]
        pub connections: Option<usize> = 4096,
        /// Connections of all mobiles at once.
        #[arg(skip)]
        pub connections_total: Option<usize> = 16384,
        /// Connections of one mobile opened in a second.
        ///
        /// Eight times as many may come at once. What is beyond waits for its turn, half of `connect_timeout` at most,
        /// and is refused if that is not enough.
        #[arg(skip)]
        pub openings: Option<NonZeroU32> = OPENINGS,
        /// UDP sockets of one mobile at once, for the datagrams of its applications; 0 if none is served.
        ///
        /// All mobiles together have sixteen times as many ([UDP](datagrams.md#udp-by-socks5)).
        #[arg(skip)]
        pub udp_sockets: Option<usize> = UDP_SOCKETS,
        /// A UDP socket is closed when nothing has passed for so long (RFC 4787, REQ-5).
        #[arg(skip)]
        pub udp_idle: Option<Span> = Span(UDP_IDLE),
        /// What all mobiles' connections may hold in buffers together, in both directions, at least 16MiB.
        ///
        /// [Memory](#memory) says what it covers.
        #[flag(long = "max-memory", value_name = "SIZE", value_parser = parsed_memory)]
        #[key(read = read_memory)]
        pub memory: Option<Bytes> = default_memory() => "a quarter of the host's",
    }
}

/// Workers of a base, at most.
const WORKERS_MAX: u32 = 64;
/// Openings of one mobile in a second where nobody says: a page opens some dozens at once, and a network
/// behind a mobile router some hundreds.
const OPENINGS: NonZeroU32 = NonZeroU32::new(256).unwrap();
/// UDP sockets of one mobile where nobody says.
const UDP_SOCKETS: usize = 256;
/// How long they may be idle where nobody says.
const UDP_IDLE: Duration = Duration::from_secs(5 * 60);
/// The least bound on memory.
const MEMORY_MIN: Bytes = Bytes::from_mib(16);
/// The bound where nobody says, and the kernel does not say how much memory there is.
const MEMORY_UNKNOWN: Bytes = Bytes::from_mib(256);
/// The bound where nobody says: one of so many parts of the host's memory.
const MEMORY_PART: u64 = 4;

fn default_memory() -> Bytes {
    let host = memory::available_to_us().map(|bytes| Bytes::new(bytes / MEMORY_PART));
    host.unwrap_or(MEMORY_UNKNOWN).max(MEMORY_MIN)
}

fn checked_memory(memory: Bytes) -> Result<Bytes, String> {
    if memory >= MEMORY_MIN {
        return Ok(memory);
    }
    Err(format!("{} bytes are less than 16MiB: connections would stand still", memory.get()))
}

fn parsed_memory(text: &str) -> Result<Bytes, String> {
    checked_memory(text.parse().map_err(|e| format!("{e}"))?)
}

fn read_memory<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Bytes>, D::Error> {
    checked_memory(Bytes::deserialize(d)?).map(Some).map_err(de::Error::custom)
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
    /// The files with the pre-shared keys of those that have one.
    pub psks: BTreeMap<PublicKey, PathBuf>,
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
    /// Threads that serve mobiles.
    pub workers: usize,
    /// Bounds.
    pub limits: LimitsFile,
    /// SRP's few settings.
    pub srp: SrpFile,
    /// Mobile TCP's.
    pub mobile_tcp: MobileTcpFile,
    /// Servers on mobiles that fixed hosts reach here.
    pub publish: Vec<Published>,
    /// How connections move to other bases; `None` where there is no other, and none can come.
    pub handoff: Option<HandoffConfig>,
    /// What packets are worth.
    pub packets: Vec<PacketRule>,
    /// How packets are carried on, if they are.
    pub tun: Option<BaseTunConfig>,
    /// From where the connections of mobiles leave; others leave from the base's own address.
    pub mobiles: Vec<MobileEntry>,
}

impl BaseConfig {
    /// The mobiles that are served, with the pre-shared keys, which are read.
    ///
    /// # Errors
    ///
    /// A file with one cannot be used.
    pub(super) fn allowed(&self) -> Result<Vec<Allowed>, KeyFileError> {
        let files = self.psks.iter().map(|(key, path)| (*key, path.as_path()));
        Ok(PresharedKeys::load(files)?.allowed(self.allow.iter().copied()))
    }
}

impl TryFrom<BaseFile> for BaseConfig {
    type Error = ConfigError;

    fn try_from(file: BaseFile) -> Result<Self, ConfigError> {
        let (hop, seal, carrier) = (file.hop(), file.seal(), file.carrier());
        let listen = file.listen();
        let (allow, psks) = allow::mobiles(file.allow.unwrap_or_default())?;
        let key = match (seal, file.key) {
            (_, Some(key)) => key,
            (SealKind::None, None) => PathBuf::new(),
            (SealKind::Noise, None) => {
                let how = "say `key = \"FILE\"` or --key FILE (see lasthop keygen)";
                return Err(ConfigError::Missing { what: "the base's key", how });
            }
        };
        let is_of_fleet = file.fleet.is_some();
        if seal == SealKind::Noise && allow.is_empty() && !is_of_fleet {
            let how = "say `allow = [\"PUBLIC KEY\"]` or --allow KEY, once for each mobile";
            return Err(ConfigError::Missing { what: "a mobile that is served", how });
        }
        if seal == SealKind::None && !allow.is_empty() {
            let why = "`allow` has no meaning with seal = \"none\": nobody can prove a key";
            return Err(ConfigError::Contradiction(why.to_owned()));
        }
        config::check_hop(hop, file.congestion.as_ref(), file.carrier, &file.mobile_tcp)?;
        let place = match (carrier, file.interface, file.listen) {
            (CarrierKind::Udp, Some(_), _) => {
                return Err(config::contradiction("`interface` is of carrier = \"ethernet\" only"));
            }
            (CarrierKind::Udp, None, _) => HopAddress::Internet(listen),
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
        handoff::check_mobiles(&file.mobiles, &allow)?;
        // The first base of a fleet has no other yet, or no mobile.
        let mobiles = &file.mobiles;
        let handoff = handoff::configured(file.handoff, file.peers, mobiles, seal, is_of_fleet)?;
        let tun = file.tun.map(BaseTunConfig::try_from).transpose()?;
        if tun.is_some() && (hop != HopKind::Srp || seal == SealKind::None) {
            let why = "`[tun]` is of hop = \"srp\" with the seal: no other carries packets, and \
                       nobody else can prove whose they are";
            return Err(config::contradiction(why));
        }
        if file.packets.iter().any(|rule| rule.program.is_some()) {
            let why = "`[[packets]] program` is a mobile's to say: its base knows no programs";
            return Err(config::contradiction(why));
        }
        if hop != HopKind::Srp && file.mobiles.iter().any(MobileEntry::is_held) {
            let why = "`[[mobiles]] acknowledge = \"mobile\"` is of hop = \"srp\": no other says what the \
                       mobile has";
            return Err(config::contradiction(why));
        }
        if tun.is_some() && file.mobiles.is_empty() {
            return Err(ConfigError::Missing {
                what: "a mobile whose packets are carried",
                how: "say [[mobiles]] with `key` and `address` or `tun` for each",
            });
        }
        let single = match (hop, seal, carrier) {
            (HopKind::SplitTcp, _, _) => Some("hop = \"split-tcp\" has one"),
            (_, SealKind::None, _) => Some("seal = \"none\" has one"),
            (_, _, CarrierKind::Ethernet) => Some("carrier = \"ethernet\" has one"),
            _ => None,
        };
        let workers = workers(file.workers, single)?;
        let connect_timeout = file.targets.connect_timeout().0;
        Ok(Self {
            place,
            key,
            allow,
            psks,
            hop,
            seal,
            congestion: file.congestion,
            control: file.control,
            targets: TargetPolicy { allow: file.targets.allow, deny: file.targets.deny },
            srp: file.srp,
            mobile_tcp: file.mobile_tcp,
            publish,
            handoff,
            tun,
            packets: file.packets,
            mobiles: file.mobiles,
            connect_timeout,
            limits: file.limits,
            workers,
        })
    }
}

/// How many workers there are where so many are asked for, and there may be but a `single` one for a reason.
fn workers(asked: Option<NonZeroU32>, single: Option<&str>) -> Result<usize, ConfigError> {
    let contradiction = |why: String| Err(ConfigError::Contradiction(format!("`workers`: {why}")));
    match (asked.map(NonZeroU32::get), single) {
        (Some(asked), _) if asked > WORKERS_MAX => {
            contradiction(format!("{asked} are more than {WORKERS_MAX}"))
        }
        (Some(asked), Some(why)) if asked > 1 => contradiction(why.to_owned()),
        (Some(asked), _) => Ok(asked as usize),
        (None, Some(_)) => Ok(1),
        (None, None) => {
            let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
            Ok(cpus.min(WORKERS_MAX as usize))
        }
    }
}
