//! What base and mobile are both told: the hop, what protects it, its bounds.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use lasthop_hop::seal::PublicKey;
use lasthop_kernel::mac::Mac;
use lasthop_kernel::tcp::Congestion;
use lasthop_units::Bytes;
use serde::{Deserialize, Deserializer, de};

pub use lasthop_control::config::{ConfigError, contradiction, duration, from_text, load, parse};

/// Which transport crosses the hop.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HopKind {
    /// SRP.
    #[default]
    Srp,
    /// Mobile TCP.
    MobileTcp,
    /// Kernel TCP, one connection for each stream.
    SplitTcp,
}

impl FromStr for HopKind {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "srp" => Ok(Self::Srp),
            "mobile-tcp" => Ok(Self::MobileTcp),
            "split-tcp" => Ok(Self::SplitTcp),
            _ => Err(format!("`{s}` is no hop; there are srp, mobile-tcp and split-tcp")),
        }
    }
}

impl fmt::Display for HopKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Srp => "srp",
            Self::MobileTcp => "mobile-tcp",
            Self::SplitTcp => "split-tcp",
        })
    }
}

/// What moves the datagrams of srp and mobile-tcp.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CarrierKind {
    /// UDP.
    #[default]
    Udp,
    /// Raw Ethernet frames, without IP.
    Ethernet,
}

impl FromStr for CarrierKind {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "udp" => Ok(Self::Udp),
            "ethernet" => Ok(Self::Ethernet),
            _ => Err(format!("`{s}` is no carrier; there are udp and ethernet")),
        }
    }
}

/// The `[srp]` table: what little a hop may have to be told. What is not said follows from what the
/// hop measures, or from the defaults of [`lasthop_hop::HopConfig`].
#[derive(Clone, Copy, Default, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SrpFile {
    /// The longest IP packet that is tried.
    pub mtu_max: Option<Bytes>,
    /// What one connection may hold in each direction.
    pub connection_memory: Option<Bytes>,
    /// What all connections of an association may hold in each direction.
    pub association_memory: Option<Bytes>,
    /// Silence after which an association is given up.
    #[serde(deserialize_with = "duration")]
    pub silence_limit: Option<Duration>,
}

/// The `[mobile_tcp]` table. What is not said is as the paper has it, or as the defaults of
/// [`lasthop_hop::mobile_tcp::Config`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MobileTcpFile {
    /// What a connection may receive before it is read: the largest window (MOB-20).
    #[serde(deserialize_with = "window")]
    pub window: Option<Bytes>,
    /// What a connection may hold unsent or unacknowledged.
    #[serde(deserialize_with = "send_buffer")]
    pub send_buffer: Option<Bytes>,
    /// Data in one packet.
    #[serde(deserialize_with = "packet")]
    pub packet: Option<Bytes>,
    /// The one timer (MOB-34).
    #[serde(deserialize_with = "tick")]
    pub tick: Option<Duration>,
    /// What all connections of an association may have on their way.
    pub inflight: Option<Inflight>,
    /// Silence after which all of an association is given up.
    #[serde(deserialize_with = "duration")]
    pub silence_limit: Option<Duration>,
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

impl MobileTcpFile {
    /// Reads a window from its text form.
    ///
    /// # Errors
    ///
    /// It is no size, or one that sequence numbers of 16 bits do not allow (MOB-13).
    pub fn parse_window(text: &str) -> Result<Bytes, String> {
        let size: Bytes = text.parse().map_err(|e| format!("{e}"))?;
        let why = "sequence numbers have 16 bits, and a window may take half of them";
        within(size, (2048, 32_767), why)
    }
}

/// A size that must be from `min` to `max`; `why` says what there is beyond.
fn within(size: Bytes, (min, max): (u64, u64), why: &str) -> Result<Bytes, String> {
    if (min..=max).contains(&size.get()) {
        return Ok(size);
    }
    Err(format!("{} is not from {min} to {max} bytes: {why}", size.get()))
}

fn size_within<'de, D: Deserializer<'de>>(
    d: D,
    bounds: (u64, u64),
    why: &str,
) -> Result<Option<Bytes>, D::Error> {
    within(Bytes::deserialize(d)?, bounds, why).map(Some).map_err(de::Error::custom)
}

fn window<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Bytes>, D::Error> {
    let text = String::deserialize(d)?;
    MobileTcpFile::parse_window(&text).map(Some).map_err(de::Error::custom)
}

fn send_buffer<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Bytes>, D::Error> {
    size_within(d, (2048, 16 << 20), "it is held for each connection")
}

fn packet<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Bytes>, D::Error> {
    size_within(d, (64, 9_000), "one packet is one frame or datagram")
}

fn tick<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
    let tick = duration(d)?;
    match tick {
        Some(tick) if !(Duration::from_millis(1)..=Duration::from_secs(10)).contains(&tick) => {
            Err(de::Error::custom("a tick is from 1ms to 10s"))
        }
        tick => Ok(tick),
    }
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

/// What is said of one hop while another is meant.
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

/// What protects the hop.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SealKind {
    /// The seal: authenticated and encrypted.
    #[default]
    Noise,
    /// Nothing: whoever is on the hop can read, change and forge everything.
    None,
}

impl FromStr for SealKind {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "noise" => Ok(Self::Noise),
            "none" => Ok(Self::None),
            _ => Err(format!("`{s}` is no seal; there are noise and none")),
        }
    }
}

pub(crate) fn congestion<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Congestion>, D::Error> {
    from_text(d).map(Some)
}

/// A public key in a configuration file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyText(pub PublicKey);

impl<'de> Deserialize<'de> for KeyText {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        from_text(d).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde::de::DeserializeOwned;

    use super::*;
    use crate::base::{BaseConfig, BaseFile};
    use crate::mobile::{MobileConfig, MobileFile};

    fn complaint<T: DeserializeOwned>(text: &str) -> String {
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
        let said = complaint::<BaseFile>("hop = \"srp\"\n\nlistn = []\n");
        assert!(said.starts_with("x.toml:3: ") && said.contains("`listn`"), "{said}");
        assert!(said.contains("`listen`") && !said.contains('\n'), "{said}");
        let said = complaint::<MobileFile>("[limits]\nconections = 3");
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
            let said = complaint::<BaseFile>(text);
            assert!(said.starts_with(&format!("x.toml:{line}: ")), "{said}");
            assert!(said.contains(&format!("`{key}`")), "{said}");
            assert!(said.contains(expected) && !said.contains('\n'), "{said}");
        }
        let said = complaint::<MobileFile>("base = \"here\"");
        assert!(said.contains("`base`") && said.contains("HOST:PORT"), "{said}");
        let said = complaint::<MobileFile>("\npublish = [\"80\"]");
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
        ] {
            let text = format!("{unsealed}{text}");
            let file: BaseFile = parse(Path::new("x.toml"), &text).unwrap();
            let e = BaseConfig::try_from(file).unwrap_err().to_string();
            assert!(e.contains(said), "{e}");
        }
    }

    #[test]
    fn what_is_no_toml_is_told_with_its_line() {
        let said = complaint::<BaseFile>("hop = \"srp\"\nseal = = 3");
        assert!(said.starts_with("x.toml:2: "), "{said}");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let said = load::<BaseFile>(Path::new("/nonexistent/b.toml")).unwrap_err().to_string();
        assert!(said.contains("/nonexistent/b.toml"), "{said}");
    }
}
