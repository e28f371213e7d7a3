//! The configuration that base and mobile share: the hop, what protects it, its bounds.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use lasthop_control::settings::shown;
use lasthop_control::{choice, settings};
use lasthop_hop::seal::PublicKey;
use lasthop_hop::{HopConfig, mobile_tcp};
use lasthop_kernel::mac::Mac;
use lasthop_kernel::tcp::Congestion;
use lasthop_units::{Bytes, Scheme, Span};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use lasthop_control::config::{ConfigError, contradiction, from_text, load, parse};

choice! {
    /// Which transport crosses the hop.
    #[derive(Default)]
    pub enum HopKind: "no hop" {
        /// SRP.
        #[default]
        Srp = Scheme::Srp.name(),
        /// Mobile TCP.
        MobileTcp = Scheme::MobileTcp.name(),
        /// Kernel TCP, one connection for each stream.
        SplitTcp = Scheme::SplitTcp.name(),
    }
}

choice! {
    /// What moves the datagrams of srp and mobile-tcp.
    #[derive(Default)]
    pub enum CarrierKind: "no carrier" {
        /// UDP.
        #[default]
        Udp = "udp",
        /// Raw Ethernet frames, without IP.
        Ethernet = "ethernet",
    }
}

choice! {
    /// What protects the hop.
    #[derive(Default)]
    pub enum SealKind: "no seal" {
        /// The seal: authenticated and encrypted.
        #[default]
        Noise = "noise",
        /// Nothing: whoever is on the hop can read, change and forge everything.
        None = "none",
    }
}

/// [`settings!`](lasthop_control::settings!) with what base and mobile share.
macro_rules! role_settings {
    ($(#[$($meta:tt)*])* pub struct $name:ident { $($own:tt)* }) => {
        lasthop_control::settings! {
            $(#[$($meta)*])*
            pub struct $name {
                $($own)*
                /// The file with the secret key, made by `lasthop keygen`; its mode must be 600.
                #[flag(long = "key", value_name = "FILE")]
                pub key: Option<std::path::PathBuf>,
                /// What crosses the hop, the same at both ends.
                ///
                /// `split-tcp` is kernel TCP.
                #[flag(long = "hop", value_name = "NAME")]
                #[range($crate::config::HopKind::range())]
                pub hop: Option<$crate::config::HopKind> = $crate::config::HopKind::default(),
                /// What moves the datagrams of srp and mobile-tcp, the same at both ends. The latter
                /// is raw frames without IP, which a mobile's `--base ether:...` says too.
                ///
                /// [Carriers](#carriers) compares them.
                #[flag(long = "carrier", value_name = "NAME")]
                #[range($crate::config::CarrierKind::range())]
                pub carrier: Option<$crate::config::CarrierKind> =
                    $crate::config::CarrierKind::default(),
                /// The interface of the hop with `--carrier ethernet`.
                #[flag(long = "interface", value_name = "NAME")]
                pub interface: Option<String>,
                /// What protects the hop, the same at both ends. One that is private already may do
                /// without.
                ///
                /// `none` sends everything in the clear.
                #[flag(long = "seal", value_name = "NAME")]
                #[range($crate::config::SealKind::range())]
                pub seal: Option<$crate::config::SealKind> = $crate::config::SealKind::default(),
                /// The congestion control of split-tcp, as the kernel calls it (bbr, cubic).
                ///
                /// Each end's choice rules what that end sends.
                #[flag(long = "congestion", value_name = "NAME")]
                #[key(read = $crate::config::congestion)]
                pub congestion: Option<lasthop_kernel::tcp::Congestion> => "the system's",
                /// The Unix socket that `lasthop status` asks.
                ///
                /// [Status](status.md) says where it is by default.
                #[flag(long = "control", value_name = "PATH")]
                pub control: Option<std::path::PathBuf>,
                /// SRP's few settings, a [table](#srp).
                #[arg(skip)]
                pub srp: $crate::config::SrpFile,
                /// What packets are worth, [tables](datagrams.md#what-packets-are-worth): the first that fits counts.
                #[arg(skip)]
                pub packets: Vec<$crate::packets::PacketRule>,
                /// Mobile TCP's settings, a [table](#mobile_tcp).
                #[command(flatten)]
                pub mobile_tcp: $crate::config::MobileTcpFile,
            }
        }
    };
}
pub(crate) use role_settings;

/// The longest IP packet that is tried when nobody says: Ethernet's.
pub(crate) const MTU: Bytes = Bytes::new(1500);

/// What all connections of an association may have on their way where the carrier takes everything
/// at once and drops what a slower radio behind it has no room for. Four windows of the paper's
/// 16 KiB: enough to fill 20 Mbit/s at a round trip of 26 ms, and no more than 45 full packets in
/// whatever queue there is, which radios have.
pub(crate) const INFLIGHT_UDP: Bytes = Bytes::from_kib(64);

settings! {
    /// The `[srp]` table: what little a hop may have to be told. What is not said follows from what
    /// the hop measures, or from the defaults of [`HopConfig`].
    #[derive(Copy)]
    pub struct SrpFile {
        /// The longest IP packet that is tried, in bytes.
        ///
        /// What really passes is probed.
        pub mtu_max: Option<Bytes> = MTU,
        /// What one connection may hold unread or unacknowledged, in each direction.
        pub connection_memory: Option<Bytes> = HopConfig::default().stream_memory,
        /// The same for all connections of an association, in each direction.
        ///
        /// An eighth of it, 64 KiB at most, is for those that hold less than 2 KiB.
        pub association_memory: Option<Bytes> = HopConfig::default().association_memory,
        /// How long a hop may be silent before its connections are given up.
        pub silence_limit: Option<Span> = Span(HopConfig::default().silence_limit),
    }
}

settings! {
    /// The `[mobile_tcp]` table. What is not said is as the paper has it, or as the defaults of
    /// [`mobile_tcp::Config`].
    #[derive(Copy, Eq, clap::Args)]
    pub struct MobileTcpFile {
        /// What a connection of mobile-tcp may receive before it is read.
        ///
        /// Sequence numbers have 16 bits (MOB-13, MOB-20). A connection moves at most one window in
        /// a round trip.
        #[flag(long = "window", value_name = "SIZE", value_parser = |s: &str| WINDOW.parse(s))]
        #[range(WINDOW)]
        #[key(read = window)]
        pub window: Option<Bytes> = mobile_tcp::Config::default().window,
        /// What a connection may hold unsent or unacknowledged.
        #[arg(skip)]
        #[range(SEND_BUFFER)]
        #[key(read = send_buffer)]
        pub send_buffer: Option<Bytes> = mobile_tcp::Config::default().send_buffer,
        /// Data in one packet.
        ///
        /// More than the interface's frames hold is refused.
        #[arg(skip)]
        #[range(PACKET)]
        #[key(read = packet)]
        pub packet: Option<Bytes> = mobile_tcp::Config::default().max_packet
            => format!("{}, or what fits", shown(&mobile_tcp::Config::default().max_packet)),
        /// The one timer.
        ///
        /// Acknowledgements that wait, and retransmissions when nothing else tells of a loss
        /// (MOB-34).
        #[arg(skip)]
        #[range(format!(", from {} to {}", TICK.0, TICK.1))]
        #[key(read = tick)]
        pub tick: Option<Span> = Span(mobile_tcp::Config::default().tick),
        /// What all connections of mobile-tcp of a mobile together may have on their way, in each
        /// direction, or `none` for no bound.
        ///
        /// With `none` it is as much as their windows allow.
        #[flag(long = "inflight", value_name = "SIZE")]
        pub inflight: Option<Inflight> = Inflight(Some(INFLIGHT_UDP))
            => format!("{} on UDP, {} on Ethernet", shown(&INFLIGHT_UDP), shown(&"none")),
        /// How long a hop may be silent before its connections are given up.
        #[arg(skip)]
        pub silence_limit: Option<Span> = Span(mobile_tcp::Config::default().silence_limit),
    }
}

/// A bound on what is on its way: a size, or `none`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inflight(pub Option<Bytes>);

impl FromStr for Inflight {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        if s == "none" {
            return Ok(Self(None));
        }
        let fail = || format!("`{s}` is neither a size such as 64KiB nor none");
        let bytes: Bytes = s.parse().map_err(|_| fail())?;
        if bytes == Bytes::ZERO { Err(fail()) } else { Ok(Self(Some(bytes))) }
    }
}

impl<'de> Deserialize<'de> for Inflight {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        from_text(d)
    }
}

impl Serialize for Inflight {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(bytes) => bytes.serialize(s),
            None => s.serialize_str("none"),
        }
    }
}

/// Sizes of which a setting is one, in bytes, and why there are no others.
struct Sizes {
    min: u64,
    max: u64,
    why: &'static str,
}

const WINDOW: Sizes = Sizes {
    min: 2048,
    max: 32_767,
    why: "sequence numbers have 16 bits, and a window may take half of them",
};
const SEND_BUFFER: Sizes =
    Sizes { min: 2048, max: 16 << 20, why: "it is held for each connection" };
const PACKET: Sizes = Sizes { min: 64, max: 9_000, why: "one packet is one frame or datagram" };
/// The shortest and the longest tick.
const TICK: (Span, Span) = (Span(Duration::from_millis(1)), Span(Duration::from_secs(10)));

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", from {} to {} bytes", self.min, self.max)
    }
}

impl Sizes {
    fn check(&self, size: Bytes) -> Result<Bytes, String> {
        if (self.min..=self.max).contains(&size.get()) {
            return Ok(size);
        }
        let Self { min, max, why } = self;
        Err(format!("{} is not from {min} to {max} bytes: {why}", size.get()))
    }

    fn parse(&self, text: &str) -> Result<Bytes, String> {
        self.check(text.parse().map_err(|e| format!("{e}"))?)
    }

    fn read<'de, D: Deserializer<'de>>(&self, d: D) -> Result<Option<Bytes>, D::Error> {
        self.check(Bytes::deserialize(d)?).map(Some).map_err(de::Error::custom)
    }
}

fn window<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Bytes>, D::Error> {
    WINDOW.read(d)
}

fn send_buffer<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Bytes>, D::Error> {
    SEND_BUFFER.read(d)
}

fn packet<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Bytes>, D::Error> {
    PACKET.read(d)
}

fn tick<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Span>, D::Error> {
    let tick = Span::deserialize(d)?;
    if (TICK.0..=TICK.1).contains(&tick) {
        return Ok(Some(tick));
    }
    Err(de::Error::custom(format!("a tick is from {} to {}", TICK.0, TICK.1)))
}

/// Where a hop's datagrams are sent and received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HopAddress<I> {
    /// By Internet addresses: UDP, or TCP for split-tcp.
    Internet(I),
    /// By frames of an interface.
    Ethernet {
        /// Its name.
        interface: String,
        /// Who is meant there; `None` for whoever answers.
        peer: Option<Mac>,
    },
}

/// A setting of one hop while another is chosen.
pub(crate) fn check_hop(
    hop: HopKind,
    congestion: Option<&Congestion>,
    carrier: Option<CarrierKind>,
    mobile_tcp: &MobileTcpFile,
) -> Result<(), ConfigError> {
    if hop != HopKind::SplitTcp && congestion.is_some() {
        return Err(contradiction("`congestion` is of hop = \"split-tcp\" only"));
    }
    if hop == HopKind::SplitTcp && carrier.is_some() {
        let why = "`carrier` is of hop = \"srp\" and hop = \"mobile-tcp\" only: split-tcp is the \
                   kernel's TCP";
        return Err(contradiction(why));
    }
    if hop != HopKind::MobileTcp && *mobile_tcp != MobileTcpFile::default() {
        return Err(contradiction("`[mobile_tcp]` is of hop = \"mobile-tcp\" only"));
    }
    if let (Some(packet), Some(window)) = (mobile_tcp.packet, mobile_tcp.window)
        && packet > window
    {
        let why = format!("`packet` ({packet}) does not fit into `window` ({window})");
        return Err(ConfigError::Contradiction(why));
    }
    Ok(())
}

pub(crate) fn congestion<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Congestion>, D::Error> {
    from_text(d).map(Some)
}

/// A public key in a configuration file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyText(pub PublicKey);

impl FromStr for KeyText {
    type Err = <PublicKey as FromStr>::Err;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        s.parse().map(Self)
    }
}

impl<'de> Deserialize<'de> for KeyText {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        from_text(d)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde::de::DeserializeOwned;

    use super::*;
    use crate::base::{BaseConfig, BaseFile};
    use crate::mobile::{MobileConfig, MobileFile};

    fn parse_error<T: DeserializeOwned>(text: &str) -> String {
        match parse::<T>(Path::new("x.toml"), text) {
            Ok(_) => panic!("understood: {text}"),
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn the_examples_are_understood() {
        let base = include_str!("../../../docs/examples/base.toml");
        let base: BaseFile = parse(Path::new("base.toml"), base).unwrap();
        assert_eq!(BaseConfig::try_from(base).unwrap().targets.deny.len(), 4);
        let mobile = include_str!("../../../docs/examples/mobile.toml");
        let mobile: MobileFile = parse(Path::new("mobile.toml"), mobile).unwrap();
        assert_eq!(MobileConfig::try_from(mobile).unwrap().proxy.len(), 2);
    }

    #[test]
    fn the_examples_for_ethernet_belong_together() {
        let base = include_str!("../../../docs/examples/base-ethernet.toml");
        let base: BaseFile = parse(Path::new("base-ethernet.toml"), base).unwrap();
        let base = BaseConfig::try_from(base).unwrap();
        let mobile = include_str!("../../../docs/examples/mobile-ethernet.toml");
        let mobile: MobileFile = parse(Path::new("mobile-ethernet.toml"), mobile).unwrap();
        let mobile = MobileConfig::try_from(mobile).unwrap();
        assert_eq!((base.hop, mobile.hop), (HopKind::MobileTcp, HopKind::MobileTcp));
        assert!(matches!(base.place, HopAddress::Ethernet { .. }));
        assert!(matches!(mobile.bases[0].place, HopAddress::Ethernet { peer: None, .. }));
        assert_eq!(base.publish[0].port, mobile.publish[0].port);
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let said = parse_error::<BaseFile>("hop = \"srp\"\n\nlistn = []\n");
        assert!(said.starts_with("x.toml:3: ") && said.contains("`listn`"), "{said}");
        assert!(said.contains("`listen`") && !said.contains('\n'), "{said}");
        let said = parse_error::<MobileFile>("[limits]\nconections = 3");
        assert!(said.starts_with("x.toml:2: ") && said.contains("`conections`"), "{said}");
    }

    #[test]
    fn a_wrong_value_is_named_with_line_key_and_what_was_expected() {
        for (text, line, key, expected) in [
            ("listen = 5", 1, "listen", "sequence"),
            ("\nlisten = [\n\"nowhere\"]", 3, "listen", "socket address"),
            ("allow = [\"abc\"]", 1, "allow", "44 base64"),
            ("hop = \"pigeon\"", 1, "hop", "`srp`"),
            ("congestion = \"warp\"", 1, "congestion", "available"),
            ("[targets]\nconnect_timeout = \"10\"", 2, "connect_timeout", "duration"),
            ("[targets]\ndeny = [\"10.0.0.0/40\"]", 2, "deny", "network"),
            ("[limits]\nconnections = -1", 2, "connections", "usize"),
            ("[srp]\nmtu_max = \"big\"", 2, "mtu_max", "size"),
            ("carrier = \"pigeon\"", 1, "carrier", "`ethernet`"),
            ("[mobile_tcp]\nwindow = \"32KiB\"", 2, "window", "16 bits"),
            ("[mobile_tcp]\nwindow = \"1KiB\"", 2, "window", "from 2048 to 32767"),
            ("[mobile_tcp]\npacket = \"64KiB\"", 2, "packet", "from 64 to 9000"),
            ("[mobile_tcp]\n\ntick = \"20s\"", 3, "tick", "from 1ms to 10s"),
            ("[mobile_tcp]\ninflight = \"lots\"", 2, "inflight", "64KiB nor none"),
            ("[[publish]]\nlisten = \"8080\"", 2, "listen", "socket address"),
        ] {
            let said = parse_error::<BaseFile>(text);
            assert!(said.starts_with(&format!("x.toml:{line}: ")), "{said}");
            assert!(said.contains(&format!("`{key}`")), "{said}");
            assert!(said.contains(expected) && !said.contains('\n'), "{said}");
        }
        let said = parse_error::<MobileFile>("base = \"here\"");
        assert!(said.contains("`base`") && said.contains("HOST:PORT"), "{said}");
        let said = parse_error::<MobileFile>("\npublish = [\"80\"]");
        assert!(said.starts_with("x.toml:2: `publish`") && said.contains("->"), "{said}");
    }

    #[test]
    fn what_a_hop_does_not_have_is_refused_by_name() {
        let unsealed = "seal = \"none\"\n";
        for (text, said) in [
            ("[mobile_tcp]\nwindow = \"8KiB\"", "`[mobile_tcp]` is of"),
            ("hop = \"mobile-tcp\"\ncongestion = \"reno\"", "`congestion` is of"),
            (
                "hop = \"mobile-tcp\"\n[mobile_tcp]\nwindow = \"2KiB\"\npacket = \"4KiB\"",
                "`packet` (4096 B) does not fit into `window` (2048 B)",
            ),
            ("workers = 2", "`workers`: seal = \"none\" has one"),
            ("workers = 65", "`workers`: 65 are more than 64"),
        ] {
            let text = format!("{unsealed}{text}");
            let file: BaseFile = parse(Path::new("x.toml"), &text).unwrap();
            let e = BaseConfig::try_from(file).unwrap_err().to_string();
            assert!(e.contains(said), "{e}");
        }
    }

    #[test]
    fn what_is_no_toml_is_reported_with_its_line() {
        let said = parse_error::<BaseFile>("hop = \"srp\"\nseal = = 3");
        assert!(said.starts_with("x.toml:2: "), "{said}");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let said = load::<BaseFile>(Path::new("/nonexistent/b.toml")).unwrap_err().to_string();
        assert!(said.contains("/nonexistent/b.toml"), "{said}");
    }
}
