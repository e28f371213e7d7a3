//! A mobile's configuration.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use lasthop_control::link_signals::{SignalFile, SignalSettings};
use lasthop_control::priority::{Rule, Rules};
use lasthop_control::{choice, settings};
use lasthop_hop::seal::PublicKey;
use lasthop_kernel::mac::Mac;
use lasthop_kernel::tcp::Congestion;
use lasthop_kernel::transparent::TransparentConfig;
use lasthop_session::Opening;
use lasthop_units::Span;
use serde::{Deserialize, Deserializer};

use super::links::{self, LinkConfig, LinkFile};
use super::policies::{self, Policies, PolicyFile};
use crate::config::{
    self, CarrierKind, ConfigError, HopAddress, HopKind, KeyText, MobileTcpFile, SealKind, SrpFile,
    role_settings,
};
use crate::packets::{MobileTunConfig, MobileTunFile, PacketRule};
use crate::publish::{self, Server};
use crate::transparent::TransparentFile;

/// Where applications are served when nobody says.
const PROXY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1080);

/// Where something is kept over restarts when nobody says.
const STATE: &str = "/var/lib/lasthop";

/// Bases that a mobile may know: as many as it can authorise in one message.
const BASES_MAX: usize = 16;

/// Where a base is: a name or an address, and a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BaseAddress {
    /// Name or address.
    pub host: String,
    /// UDP or TCP port.
    pub port: u16,
}

impl fmt::Display for BaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
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

/// As it is written: `HOST:PORT`, `ether:INTERFACE` or `ether:INTERFACE/ADDRESS`.
impl FromStr for HopAddress<BaseAddress> {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let Some(link) = s.strip_prefix("ether:") else {
            return s.parse().map(Self::Internet);
        };
        let (interface, peer) = match link.split_once('/') {
            Some((interface, mac)) => (interface, Some(mac.parse::<Mac>()?)),
            None => (link, None),
        };
        if interface.is_empty() {
            return Err(format!("`{s}` is not ether:INTERFACE or ether:INTERFACE/ADDRESS"));
        }
        if peer.is_some_and(|mac| mac.is_group()) {
            return Err(format!(
                "`{s}`: a base's address is one interface's; leave it out to find it"
            ));
        }
        Ok(Self::Ethernet { interface: interface.to_owned(), peer })
    }
}

impl<'de> Deserialize<'de> for HopAddress<BaseAddress> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        config::from_text(d)
    }
}

/// One place out of all settings for it.
fn place(
    base: Option<HopAddress<BaseAddress>>,
    carrier: Option<CarrierKind>,
    interface: Option<String>,
) -> Result<HopAddress<BaseAddress>, ConfigError> {
    match (base, carrier, interface) {
        (Some(HopAddress::Internet(_)), Some(CarrierKind::Ethernet), _) => {
            let why = "`base = \"HOST:PORT\"` has no meaning with carrier = \"ethernet\": say \
                       ether:INTERFACE, or `interface` alone";
            Err(config::contradiction(why))
        }
        (Some(HopAddress::Ethernet { .. }), Some(CarrierKind::Udp), _) => {
            let why = "`base = \"ether:...\"` has no meaning with carrier = \"udp\"";
            Err(config::contradiction(why))
        }
        (Some(HopAddress::Ethernet { interface, .. }), _, Some(other)) if interface != other => {
            let why = format!("`interface` is {other}, but `base` is at {interface}");
            Err(ConfigError::Contradiction(why))
        }
        (Some(place @ HopAddress::Ethernet { .. }), _, _) => Ok(place),
        (None, Some(CarrierKind::Ethernet), Some(interface)) => {
            Ok(HopAddress::Ethernet { interface, peer: None })
        }
        (None, Some(CarrierKind::Ethernet), None) => {
            let how = "say `interface = \"NAME\"` or `base = \"ether:NAME\"` (see ip link)";
            Err(ConfigError::Missing { what: "the interface for Ethernet", how })
        }
        (_, _, Some(_)) => {
            Err(config::contradiction("`interface` is of carrier = \"ethernet\" only"))
        }
        (Some(place @ HopAddress::Internet(_)), _, None) => Ok(place),
        (None, _, None) => Err(ConfigError::Missing {
            what: "the base's address",
            how: "say `base = \"HOST:PORT\"` or --base",
        }),
    }
}

/// The one base of a mobile that does not move between bases.
fn single(
    base: Option<HopAddress<BaseAddress>>,
    (key, psk): (Option<KeyText>, Option<PathBuf>),
    carrier: Option<CarrierKind>,
    interface: Option<String>,
) -> Result<Candidate, ConfigError> {
    let place = place(base, carrier, interface)?;
    let name = match &place {
        HopAddress::Internet(base) => base.host.clone(),
        HopAddress::Ethernet { interface, .. } => interface.clone(),
    };
    Ok(Candidate { name, place, key: key.map(|key| key.0), psk, interface: None })
}

/// The `[[bases]]`, each of which must be known from the others.
fn several(
    files: Vec<CandidateFile>,
    carrier: Option<CarrierKind>,
    seal: SealKind,
) -> Result<Vec<Candidate>, ConfigError> {
    let wrong = |why: String| ConfigError::Contradiction(format!("`[[bases]]`: {why}"));
    if files.len() > BASES_MAX {
        return Err(wrong(format!("{} are too many; at most {BASES_MAX}", files.len())));
    }
    if files.len() > 1 && seal == SealKind::None {
        let why = "a handoff needs the seal, which proves to each base who the others are; with \
                   seal = \"none\" say one base";
        return Err(wrong(why.to_owned()));
    }
    let mut bases: Vec<Candidate> = Vec::new();
    for CandidateFile { name, address: place, key, psk, interface } in files {
        let wrong = |why: &str| wrong(format!("{name}: {why}"));
        let key = key.map(|key| key.0);
        if name.is_empty() {
            return Err(wrong("`name` is empty"));
        }
        if key.is_none() && seal == SealKind::Noise {
            return Err(wrong("`key` is missing: the base's public key"));
        }
        if bases.iter().any(|other| other.name == name) {
            return Err(wrong("`name` stands there twice"));
        }
        if bases.iter().any(|other| other.key == key) {
            return Err(wrong("`key` is another base's too: each has its own"));
        }
        let kind = match place {
            HopAddress::Internet(_) => CarrierKind::Udp,
            HopAddress::Ethernet { .. } => CarrierKind::Ethernet,
        };
        let like = |other: &Candidate| {
            matches!(other.place, HopAddress::Ethernet { .. }) == (kind == CarrierKind::Ethernet)
        };
        if carrier.is_some_and(|carrier| carrier != kind) || !bases.iter().all(like) {
            return Err(wrong("`address` is of another carrier than the rest of the hop"));
        }
        let interface = match (&place, interface) {
            (HopAddress::Ethernet { interface, .. }, None) => Some(interface.clone()),
            (_, interface) => interface,
        };
        bases.push(Candidate { name, place, key, psk, interface });
    }
    Ok(bases)
}

choice! {
    /// When applications are notified that their connection stands.
    #[derive(Default)]
    pub enum Connect: "no way to connect" {
        /// When the fixed host has answered.
        #[default]
        Faithful = "faithful",
        /// At once; a refusal arrives as a reset.
        Early = "early",
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

role_settings! {
    /// A mobile's configuration file; flags fill the same fields and win.
    #[derive(clap::Args)]
    pub struct MobileFile {
        /// Where the base is; a name is looked up again whenever the base is lost. On raw Ethernet
        /// `ether:INTERFACE/ADDRESS`, or `ether:INTERFACE` for the base that answers there.
        ///
        /// An IPv6 address goes in brackets. To find a base on Ethernet, openings go to every station of the link, and the base is where
        /// the first answer comes from that proves itself (with `seal = "none"`, the first answer). It
        /// is looked for again when it falls silent.
        #[flag(long = "base", value_name = "HOST:PORT")]
        pub base: Option<HopAddress<BaseAddress>>,
        /// The base's public key.
        #[flag(long = "base-key", value_name = "PUBLIC KEY")]
        pub base_key: Option<KeyText>,
        /// The file with the pre-shared key with the base, made by `lasthop keygen --psk`; its mode must be
        /// 600.
        ///
        /// The base has the same ([pre-shared keys](#pre-shared-keys)).
        #[flag(long = "psk", value_name = "FILE")]
        pub psk: Option<PathBuf>,
        /// The bases between which the mobile moves, instead of the one, [tables](#bases-handoff).
        #[arg(skip)]
        pub bases: Vec<CandidateFile>,
        /// How it moves, a [table](#bases-handoff).
        #[arg(skip)]
        pub handoff: HandoffFile,
        /// Interfaces that are used together, [tables](#links).
        #[arg(skip)]
        pub links: Vec<LinkFile>,
        /// Use these interfaces together, with commas between, whatever the routes are; `auto` for each that has a
        /// default route, now or later.
        #[flag(long = "links", value_name = "INTERFACE,...", value_delimiter = ',')]
        #[key(skip)]
        pub link_names: Vec<String>,
        /// The directory for what is kept over restarts: what [links with a cap](links.md#policies) have carried today.
        #[flag(long = "state", value_name = "DIRECTORY")]
        pub state: Option<PathBuf> => "`/var/lib/lasthop`",
        /// Which links carry what no other word is said of: `speed`, `redundant`, `cheap`, or `only NAME`
        /// ([policies](links.md#policies)).
        #[flag(long = "policy", value_name = "POLICY")]
        pub policy: Option<String> => "`\"speed\"`",
        /// Addresses on which SOCKS5, SOCKS4a, HTTP CONNECT and plain HTTP proxying are served, all on
        /// the same port.
        ///
        /// Whoever reaches the address can use the mobile: other than loopback it is warned of.
        #[flag(long = "proxy", value_name = "ADDRESS:PORT")]
        pub proxy: Option<Vec<SocketAddr>> = vec![PROXY],
        /// When an application is told that its connection stands. Faithful is when the fixed host has
        /// answered, early at once, and a refusal arrives as a reset.
        ///
        /// With `faithful` it is told why if the host does not answer, with `early` its first bytes travel with the opening. Intercepted connections keep to it too
        /// ([what an application sees](transparent.md#at-the-mobile)).
        #[flag(long = "connect", value_name = "WHEN")]
        #[range(Connect::range())]
        pub connect: Option<Connect> = Connect::default(),
        /// Servers here that fixed hosts reach through the base: who comes for PORT is connected with
        /// the server at ADDRESS:PORT.
        ///
        /// It is given 10 seconds. Nothing else of the mobile can be reached. In a file,
        /// `"PORT -> ADDRESS:PORT"`.
        #[flag(long = "publish", value_name = "PORT -> ADDRESS:PORT")]
        pub publish: Vec<Server>,
        /// TCP that is carried without the application's knowledge, of this host or of networks behind
        /// it, a table ([without proxy settings](transparent.md)).
        #[arg(skip)]
        pub transparent: Option<TransparentFile>,
        /// TCP to carry of applications that know nothing of it: of this host (`host`, also where nothing is named) and of the networks behind
        /// the interfaces that are named, with commas between. Needs CAP_NET_ADMIN and the nft program.
        #[flag(
            long = "transparent",
            value_name = "host,INTERFACE,...",
            num_args = 0..=1,
            require_equals = true,
            default_missing_value = "host"
        )]
        #[key(skip)]
        pub intercepted: Option<String>,
        /// What is carried as packets beside connections, a [table](datagrams.md).
        #[arg(skip)]
        pub tun: Option<MobileTunFile>,
        /// Carry what is not TCP too, from these addresses of the mobile's, with commas between. Needs CAP_NET_ADMIN.
        #[flag(long = "tun", value_name = "ADDRESS,...", value_delimiter = ',')]
        #[key(skip)]
        pub tun_address: Vec<IpAddr>,
        /// Bounds, a [table](#limits-1).
        #[command(flatten)]
        pub limits: LimitsFile,
        /// Which connections matter more, [tables](#priority): the first that fits counts.
        #[arg(skip)]
        pub priority: Vec<Rule>,
        /// Which links carry which connections, [tables](#policies): the first that fits counts.
        #[arg(skip)]
        pub policies: Vec<PolicyFile>,
        /// The signal whose loss is foretold, a [table](events.md#the-signal).
        #[arg(skip)]
        pub signal: Option<SignalFile>,
    }
}

settings! {
    entry
    /// One of the `[[bases]]`.
    pub struct CandidateFile {
        /// What commands and reports call it.
        pub name: String,
        /// Where it is, as `base`.
        pub address: HopAddress<BaseAddress>,
        /// Its public key.
        pub key: Option<KeyText>,
        /// The file with the [pre-shared key](#pre-shared-keys) with it.
        pub psk: Option<PathBuf>,
        /// The interface on which it is near: when that loses its carrier and another base's has one,
        /// the mobile moves there.
        pub interface: Option<String>,
    }
}

settings! {
    /// The mobile's `[handoff]` table.
    #[derive(Copy, Eq)]
    pub struct HandoffFile {
        /// A base that does not answer for so long is left for one that does.
        ///
        /// The default is longer than a fade, and shorter than what people wait.
        pub lost_after: Option<Span> = Span(Duration::from_secs(3)),
        /// How long a base that was reached may take (MHP-21).
        pub give_up: Option<Span> = Span(Duration::from_secs(30)),
        /// Bases of which the present one tells are [used too](moving.md#bases-that-are-learned).
        pub learn: Option<bool> = true,
    }
}

settings! {
    /// The `[limits]` table.
    #[derive(clap::Args)]
    pub struct LimitsFile {
        /// Connections at once.
        #[flag(long = "max-connections", value_name = "COUNT")]
        pub connections: Option<usize> = 4096,
        /// UDP associations at once, which SOCKS5 gives to applications, and half as many for each host that
        /// applications are on; 0 if none is served.
        ///
        /// The base has a [bound](#limits) of its own ([UDP](datagrams.md#udp-by-socks5)).
        #[arg(skip)]
        pub udp_sockets: Option<usize> = 256,
        /// An association is ended when nothing has passed for so long.
        ///
        /// Longer than bases keep an idle socket, so that no application of a busy port is left without its association.
        #[arg(skip)]
        pub udp_idle: Option<Span> = Span(Duration::from_secs(10 * 60)),
    }
}

/// A base where the mobile can be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// What commands and reports call it.
    pub name: String,
    /// Where it is.
    pub place: HopAddress<BaseAddress>,
    /// Its public key; `None` without a seal.
    pub key: Option<PublicKey>,
    /// The file with the pre-shared key, if there is one.
    pub psk: Option<PathBuf>,
    /// The interface on which it is near, if that matters.
    pub interface: Option<String>,
}

/// All that a mobile needs to know.
#[derive(Clone, Debug)]
pub struct MobileConfig {
    /// The bases between which it moves, the one where it begins first. Never empty; one base alone
    /// means that there are no handoffs.
    pub bases: Vec<Candidate>,
    /// How it moves.
    pub handoff: HandoffFile,
    /// Interfaces that are used together; where there are none, routes decide.
    pub links: Vec<LinkConfig>,
    /// Every interface with a default route is used beside them.
    pub all_links: bool,
    /// The directory for what is kept over restarts.
    pub state: PathBuf,
    /// The file with the mobile's key; `None` without a seal.
    pub key: Option<PathBuf>,
    /// Addresses on which SOCKS5 and HTTP CONNECT are served.
    pub proxy: Vec<SocketAddr>,
    /// When applications are notified that their connection stands.
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
    /// UDP associations at once; 0 if none is served.
    pub udp_sockets: usize,
    /// How long one may be idle.
    pub udp_idle: Duration,
    /// SRP's few settings.
    pub srp: SrpFile,
    /// Mobile TCP's.
    pub mobile_tcp: MobileTcpFile,
    /// Servers here that fixed hosts reach through the base.
    pub publish: Vec<Server>,
    /// TCP that is carried without the application's knowledge.
    pub transparent: Option<TransparentConfig>,
    /// What packets are worth.
    pub packets: Vec<PacketRule>,
    /// What is carried as packets, if anything is.
    pub tun: Option<MobileTunConfig>,
    /// Which connections matter more.
    pub priority: Rules,
    /// Which links carry which connections.
    pub policies: Policies,
    /// The signal whose loss is foretold, if one is.
    pub signal: Option<SignalSettings>,
}

impl TryFrom<MobileFile> for MobileConfig {
    type Error = ConfigError;

    fn try_from(file: MobileFile) -> Result<Self, ConfigError> {
        let missing = |what, how| ConfigError::Missing { what, how };
        let (hop, seal) = (file.hop(), file.seal());
        let (proxy, connect) = (file.proxy(), file.connect());
        config::check_hop(hop, file.congestion.as_ref(), file.carrier, &file.mobile_tcp)?;
        let bases = if file.bases.is_empty() {
            if file.handoff != HandoffFile::default() && seal == SealKind::None {
                let why = "`[handoff]` has no meaning with seal = \"none\": nothing is handed over";
                return Err(config::contradiction(why));
            }
            vec![single(file.base, (file.base_key, file.psk), file.carrier, file.interface)?]
        } else {
            if file.base.is_some() || file.base_key.is_some() || file.interface.is_some() {
                let why = "`base`, `base_key` and `interface` are of a mobile with one base: with \
                           [[bases]] each of those says `address`, `key` and `interface`";
                return Err(config::contradiction(why));
            }
            if file.psk.is_some() {
                let why = "`psk` is of a mobile with one base: each of [[bases]] says its own";
                return Err(config::contradiction(why));
            }
            several(file.bases, file.carrier, seal)?
        };
        let on_ethernet = |base: &Candidate| matches!(base.place, HopAddress::Ethernet { .. });
        if hop == HopKind::SplitTcp && bases.iter().any(on_ethernet) {
            let why = "`base = \"ether:...\"` has no meaning with hop = \"split-tcp\"";
            return Err(config::contradiction(why));
        }
        if seal == SealKind::Noise {
            if file.key.is_none() {
                let how = "say `key = \"FILE\"` or --key FILE (see lasthop keygen)";
                return Err(missing("the mobile's key", how));
            }
            if bases.iter().any(|base| base.key.is_none()) {
                let how = "say `base_key = \"PUBLIC KEY\"` or --base-key KEY";
                return Err(missing("the base's public key", how));
            }
        }
        if seal == SealKind::None && bases.iter().any(|base| base.psk.is_some()) {
            let why = "`psk` has no meaning with seal = \"none\": nothing is encrypted";
            return Err(config::contradiction(why));
        }
        let mut tun = file.tun;
        if !file.tun_address.is_empty() {
            tun.get_or_insert_default().address = file.tun_address;
        }
        let tun = tun.map(MobileTunConfig::try_from).transpose()?;
        if tun.is_some() && hop != HopKind::Srp {
            return Err(config::contradiction(
                "`[tun]` is of hop = \"srp\": no other carries packets",
            ));
        }
        let mut link_files = file.links;
        let by_flag = file.link_names.into_iter();
        link_files.extend(by_flag.map(LinkFile::of));
        let uses_links = !link_files.is_empty();
        let names: Vec<&str> = bases.iter().map(|base| base.name.as_str()).collect();
        let (links, all_links) = links::from_files(link_files, &names)?;
        let policies = Policies::from_files(file.policies, file.policy.as_deref(), &links)?;
        if policies.say_something() && !uses_links {
            return Err(config::contradiction(policies::NO_LINKS));
        }
        if uses_links && (hop != HopKind::Srp || bases.iter().any(on_ethernet)) {
            let why = "`[[links]]` are of hop = \"srp\" over UDP: nothing else has several paths";
            return Err(config::contradiction(why));
        }
        let mut transparent = file.transparent;
        if let Some(names) = &file.intercepted {
            transparent.get_or_insert_default().add(names);
        }
        Ok(Self {
            bases,
            handoff: file.handoff,
            links,
            all_links,
            state: file.state.unwrap_or_else(|| PathBuf::from(STATE)),
            proxy,
            connect,
            connections: file.limits.connections(),
            udp_sockets: file.limits.udp_sockets(),
            udp_idle: file.limits.udp_idle().0,
            key: file.key,
            hop,
            seal,
            congestion: file.congestion,
            control: file.control,
            srp: file.srp,
            mobile_tcp: file.mobile_tcp,
            publish: publish::servers(file.publish)?,
            transparent: transparent.map(TransparentConfig::try_from).transpose()?,
            tun,
            packets: file.packets,
            priority: file.priority.into(),
            policies,
            signal: file.signal.map(SignalFile::settings).transpose()?.flatten(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const KEYS: [&str; 2] = [
        "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=",
        "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=",
    ];

    fn read(text: &str) -> Result<MobileConfig, ConfigError> {
        config::parse::<MobileFile>(Path::new("m.toml"), text)?.try_into()
    }

    fn base(name: &str, key: &str, more: &str) -> String {
        format!("[[bases]]\nname = \"{name}\"\naddress = \"{name}:1\"\nkey = \"{key}\"\n{more}\n")
    }

    #[test]
    fn bases_are_read_in_their_order() {
        let (first, second) =
            (base("b1", KEYS[0], "interface = \"w0\""), base("b2", KEYS[1], "psk = \"b2.psk\""));
        let text = format!("key = \"k\"\n{first}{second}[handoff]\nlost_after = \"1s\"\n");
        let got = read(&text).unwrap();
        let names: Vec<_> = got.bases.iter().map(|base| base.name.as_str()).collect();
        assert_eq!(names, ["b1", "b2"]);
        assert_eq!(got.bases[0].interface.as_deref(), Some("w0"));
        assert_eq!(got.bases[0].psk, None);
        assert_eq!(got.bases[1].psk, Some(PathBuf::from("b2.psk")));
        assert_eq!(got.handoff.lost_after().0, Duration::from_secs(1));
        assert_eq!(got.handoff.give_up().0, Duration::from_secs(30));
    }

    #[test]
    fn what_cannot_be_meant_of_several_bases_is_one_line_that_names_it() {
        let (first, second) = (base("b1", KEYS[0], ""), base("b2", KEYS[1], ""));
        let ether = "[[bases]]\nname = \"e\"\naddress = \"ether:w0\"\nkey = \"";
        for (text, said) in [
            (format!("base = \"a:1\"\nkey = \"k\"\n{first}{second}"), "`base`"),
            (format!("psk = \"p\"\nkey = \"k\"\n{first}{second}"), "`psk`"),
            ("psk = \"p\"\nseal = \"none\"\nbase = \"b:1\"\n".to_owned(), "`psk`"),
            (format!("interface = \"w0\"\nkey = \"k\"\n{first}{second}"), "`interface`"),
            (format!("seal = \"none\"\n{first}{second}"), "a handoff needs the seal"),
            (format!("key = \"k\"\n{first}{}", base("b1", KEYS[1], "")), "b1: `name`"),
            (format!("key = \"k\"\n{first}{}", base("b2", KEYS[0], "")), "b2: `key`"),
            (format!("key = \"k\"\n{first}{ether}{}\"\n", KEYS[1]), "e: `address`"),
            ("key = \"k\"\n[[bases]]\nname = \"b\"\naddress = \"b:1\"\n".to_owned(), "b: `key`"),
            (
                "seal = \"none\"\nbase = \"b:1\"\n[handoff]\ngive_up = \"1s\"\n".to_owned(),
                "[handoff]",
            ),
            (
                format!("key = \"k\"\n{first}[[packets]]\nprogram = \"\"\nclass = \"call\"\n"),
                "the name of a program is empty",
            ),
            (first.clone(), "the mobile's key is missing"),
            ("[[links]]\ninterface = \"w0\"\nhop = 3\n".to_owned(), "m.toml:3: unknown field"),
            (format!("{first}interfaces = 3\n"), "m.toml:6: unknown field `interfaces`"),
        ] {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn links_are_read_in_their_order_and_refused_where_they_mean_nothing() {
        let hop = "seal = \"none\"\nbase = \"b:1\"\n";
        let link = |interface: &str| format!("[[links]]\ninterface = \"{interface}\"\n");
        let (w0, w1) = (link("w0"), link("w1"));
        let got = read(&format!("{hop}{w0}name = \"modem\"\n{w1}")).unwrap().links;
        let got: Vec<_> = got.iter().map(|l| (l.name.as_str(), l.interface.as_str())).collect();
        assert_eq!(got, [("modem", "w0"), ("w1", "w1")]);
        let auto = link("auto");
        let got = read(&format!("{hop}{w0}{auto}")).unwrap();
        assert!(got.links.len() == 1 && got.all_links);
        for (text, said) in [
            (format!("{hop}{w0}{w0}"), "w0: `interface` stands there twice"),
            (format!("{hop}{w0}name = \"w1\"\n{w1}"), "w1: `name`"),
            (format!("{hop}{auto}name = \"w1\"\n"), "`auto` stands there once, and alone in"),
            (format!("{hop}{w0}cap = \"0B\"\n"), "w0: `cap` leaves it nothing"),
            (format!("{hop}{w0}base = \"b2\"\n"), "w0: no base in [[bases]] is called `b2`"),
            (format!("{hop}{auto}cap = \"1MiB\"\n"), "`auto` stands there once, and alone in"),
            (format!("{hop}{auto}cost = 1\n"), "`auto` stands there once, and alone in"),
            (format!("{hop}{w0}cost = {}\n", u32::MAX), "w0: `cost` is at most"),
            (format!("{hop}policy = \"cheap\"\n"), "policies are of a mobile with `[[links]]`"),
            (format!("policy = \"only w1\"\n{hop}{w0}"), "no link in [[links]] is called `w1`"),
            (format!("{hop}{auto}{auto}"), "`auto` stands there once"),
            (format!("{hop}{}", link("")), "`` is no interface's name"),
            (format!("{hop}{}", link("much-too-long-for-one")), "much-too-long-for-one"),
            (
                format!("{hop}{}", (0..9).map(|n| link(&format!("w{n}"))).collect::<String>()),
                "9 are",
            ),
            (format!("hop = \"split-tcp\"\n{hop}{w0}"), "hop = \"srp\" over UDP"),
            (format!("seal = \"none\"\nbase = \"ether:e0\"\n{w0}"), "hop = \"srp\" over UDP"),
        ] {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn priorities_are_read_in_their_order_and_errors_name_the_line() {
        use lasthop_control::priority::Flow;

        let hop = "seal = \"none\"\nbase = \"b:1\"\n";
        let rules = "[[priority]]\nport = 22\npriority = 9\n[[priority]]\n\
                     address = \"10.0.0.0/8\"\npriority = 2\n";
        let got = read(&format!("{hop}{rules}")).unwrap().priority;
        for (to, priority) in [("10.0.0.1:22", Some(9)), ("10.0.0.1:80", Some(2))] {
            assert_eq!(got.priority(&Flow::to(to.parse().unwrap())), priority);
        }
        let error = read(&format!("{hop}[[priority]]\nport = 22\npriority = 0\n")).unwrap_err();
        assert!(error.to_string().contains("m.toml:5: `priority`: 0 is no priority"), "{error}");
    }
}
