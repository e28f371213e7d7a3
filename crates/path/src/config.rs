//! What an agent is told to be.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use lasthop_agent::Side;
use lasthop_session::SignalConfig;
use serde::{Deserialize, Deserializer, de};

use lasthop_control::config::{self, ConfigError};
use lasthop_control::link_signals::SignalFile;
use lasthop_control::priority::{Rule, Rules};

/// A way of helping TCP from the path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scheme {
    /// Packets are handed on, and that is all.
    None,
    /// Keeps copies at the base, repairs, and keeps duplicates back.
    Snoop,
    /// obTCP's agent at the base.
    ObtcpBase,
    /// obTCP's agent at the mobile router.
    ObtcpMobileRouter,
    /// Link recovery, and third duplicates that wait.
    DelayedDupacks,
    /// M-TCP's supervisor host.
    MTcp,
    /// Windows shut before a disconnection.
    Freeze,
    /// The same until packets find the mobile again, in both directions.
    LlFreeze,
    /// ATCP's receiver.
    Atcp,
    /// Priorities become windows.
    Rwc,
    /// Link recovery, and duplicates that wait unless marks tell of congestion.
    CongestionCoherence,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::None,
        Self::Snoop,
        Self::ObtcpBase,
        Self::ObtcpMobileRouter,
        Self::DelayedDupacks,
        Self::MTcp,
        Self::Freeze,
        Self::LlFreeze,
        Self::Atcp,
        Self::Rwc,
        Self::CongestionCoherence,
    ];

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Snoop => "snoop",
            Self::ObtcpBase => "obtcp-base",
            Self::ObtcpMobileRouter => "obtcp-mobile-router",
            Self::DelayedDupacks => "delayed-dupacks",
            Self::MTcp => "m-tcp",
            Self::Freeze => "freeze",
            Self::LlFreeze => "ll-freeze",
            Self::Atcp => "atcp",
            Self::Rwc => "rwc",
            Self::CongestionCoherence => "congestion-coherence",
        }
    }

    /// Whether the link recovers by itself with it, which takes an agent at each end of the hop.
    pub(super) const fn recovers(self) -> bool {
        matches!(self, Self::DelayedDupacks | Self::CongestionCoherence)
    }

    /// The end of the hop at which it can only be.
    const fn end(self) -> Option<End> {
        match self {
            Self::ObtcpBase | Self::Snoop | Self::MTcp => Some(End::Base),
            Self::ObtcpMobileRouter | Self::Atcp => Some(End::Mobile),
            _ => None,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scheme {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|scheme| scheme.name() == s).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|scheme| scheme.name()).collect();
            format!("`{s}` is no scheme of an agent: there are {}", known.join(", "))
        })
    }
}

impl<'de> Deserialize<'de> for Scheme {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(de::Error::custom)
    }
}

/// Which end of the hop an agent is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// The hop is on the mobile side.
    Base,
    /// The hop is on the fixed side: at a mobile router, or in front of a mobile.
    Mobile,
}

impl FromStr for End {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "base" => Ok(Self::Base),
            "mobile" => Ok(Self::Mobile),
            _ => Err(format!("`{s}` is no end of the hop: there are base and mobile")),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Base => "base",
            Self::Mobile => "mobile",
        })
    }
}

/// What the windows of all flows together have, for `rwc`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Total {
    /// As much as the path holds, by its measured rate and round trip.
    #[default]
    Auto,
    /// So many packets.
    Packets(u32),
}

impl FromStr for Total {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "auto" => Ok(Self::Auto),
            _ => s
                .parse()
                .ok()
                .filter(|n| (1..=1_000_000).contains(n))
                .map(Self::Packets)
                .ok_or_else(|| format!("`{s}` is neither auto nor a number of packets")),
        }
    }
}

impl<'de> Deserialize<'de> for Total {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Value {
            Number(u32),
            Text(String),
        }
        match Value::deserialize(d)? {
            Value::Number(n) => n.to_string().parse(),
            Value::Text(text) => text.parse(),
        }
        .map_err(de::Error::custom)
    }
}

/// An agent's configuration as it is written.
#[derive(Clone, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentFile {
    /// The schemes, from the fixed side to the mobile side.
    pub schemes: Option<Vec<Scheme>>,
    /// The interface where the fixed hosts are.
    pub fixed_if: Option<String>,
    /// The interface where the mobiles are.
    pub mobile_if: Option<String>,
    /// The bridge that is made of the two if they are no ports of one.
    pub bridge: Option<String>,
    /// Which end of the hop this is.
    pub end: Option<End>,
    /// Whether the agent recovers what the link loses, where the scheme has it.
    pub recovery: Option<bool>,
    /// The control socket.
    pub control: Option<PathBuf>,
    /// How long duplicates wait for the link's recovery.
    #[serde(deserialize_with = "config::duration")]
    pub hold: Option<Duration>,
    /// Acknowledgements at the end of a freeze.
    pub acks: Option<u8>,
    /// What the windows of all flows together have, for `rwc`.
    pub window: Option<Total>,
    /// Connections that are known at once.
    pub connections: Option<usize>,
    /// What matters how much, for `rwc`.
    pub priority: Vec<Rule>,
    /// How the signal of the hop's interface is judged.
    pub signal: Option<SignalFile>,
}

/// An agent's configuration, complete and consistent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The schemes, from the fixed side to the mobile side.
    pub schemes: Vec<Scheme>,
    /// The interface where the fixed hosts are.
    pub fixed_if: String,
    /// The interface where the mobiles are.
    pub mobile_if: String,
    /// The bridge that is made of the two if they are no ports of one.
    pub bridge: Option<String>,
    /// Which end of the hop this is.
    pub end: End,
    /// Whether the agent recovers what the link loses, where the scheme has it.
    pub recovery: bool,
    /// The control socket; the default place if nobody says.
    pub control: Option<PathBuf>,
    /// How long duplicates wait for the link's recovery (DDA-2, CC-5): 100 ms.
    pub hold: Duration,
    /// Acknowledgements at the end of a freeze; each scheme's own number if nobody says.
    pub acks: Option<u8>,
    /// What the windows of all flows together have, for `rwc`.
    pub window: Total,
    /// Connections that are known at once: 4096.
    pub connections: usize,
    /// What matters how much, for `rwc`.
    pub priority: Rules,
    /// How the signal of the hop's interface is judged, if it is.
    pub signal: Option<SignalConfig>,
}

impl AgentConfig {
    /// The side that the hop is on.
    pub(super) const fn hop_side(&self) -> Side {
        match self.end {
            End::Base => Side::Mobile,
            End::Mobile => Side::Fixed,
        }
    }

    /// The interface that the hop is on.
    pub(super) fn hop_if(&self) -> &str {
        match self.end {
            End::Base => &self.mobile_if,
            End::Mobile => &self.fixed_if,
        }
    }
}

/// How long duplicates wait when nobody says.
const HOLD: Duration = Duration::from_millis(100);
/// Connections when nobody says.
const CONNECTIONS: usize = 4096;
/// More acknowledgements at once are of no use (FRZ-3).
const ACKS_MAX: u8 = 8;

impl TryFrom<AgentFile> for AgentConfig {
    type Error = ConfigError;

    fn try_from(file: AgentFile) -> Result<Self, ConfigError> {
        let missing = |what, how| ConfigError::Missing { what, how };
        let contradiction = |why: String| Err(ConfigError::Contradiction(why));
        let schemes = file.schemes.filter(|schemes| !schemes.is_empty());
        let schemes =
            schemes.ok_or(missing("the scheme", "name it, such as `lasthop agent snoop`"))?;
        let fixed_if =
            file.fixed_if.ok_or(missing("the fixed side's interface", "--fixed-if NAME"))?;
        let mobile_if =
            file.mobile_if.ok_or(missing("the mobile side's interface", "--mobile-if NAME"))?;
        if fixed_if == mobile_if {
            return contradiction(format!("`{fixed_if}` cannot be on both sides"));
        }
        for (n, scheme) in schemes.iter().enumerate() {
            if schemes[..n].contains(scheme) {
                return contradiction(format!("{scheme} stands there twice"));
            }
        }
        if !file.priority.is_empty() && !schemes.contains(&Scheme::Rwc) {
            return contradiction("[[priority]] has no meaning without the scheme rwc".to_owned());
        }
        let end = end(&schemes, file.end)?;
        let recovery = file.recovery.unwrap_or(true);
        if !recovery && end == End::Base && schemes.iter().any(|scheme| scheme.recovers()) {
            let why = "without recovery the base has nothing to do: run the mobile's end only";
            return contradiction(why.to_owned());
        }
        let too_many = file.acks.filter(|n| !(1..=ACKS_MAX).contains(n));
        if let Some(n) = too_many {
            return contradiction(format!("`acks` is {n}, and from 1 to {ACKS_MAX} make sense"));
        }
        let mut config = Self {
            schemes,
            fixed_if,
            mobile_if,
            bridge: file.bridge,
            end,
            recovery,
            control: file.control,
            hold: file.hold.unwrap_or(HOLD),
            acks: file.acks,
            window: file.window.unwrap_or_default(),
            connections: file.connections.unwrap_or(CONNECTIONS).max(1),
            priority: file.priority.into(),
            signal: None,
        };
        config.signal = signal(file.signal, config.hop_if())?;
        Ok(config)
    }
}

/// How the signal of the interface on the hop is judged. It is the only one that is watched.
fn signal(file: Option<SignalFile>, hop_if: &str) -> Result<Option<SignalConfig>, ConfigError> {
    let Some(settings) = file.map(SignalFile::settings).transpose()?.flatten() else {
        return Ok(None);
    };
    match settings.interface {
        Some(name) if name != hop_if => Err(ConfigError::Contradiction(format!(
            "`[signal]`: interface = \"{name}\" is not the one on the hop, which is {hop_if}"
        ))),
        _ => Ok(Some(settings.predictor)),
    }
}

/// Where the agent is, by what was said and by what its schemes can be.
fn end(schemes: &[Scheme], said: Option<End>) -> Result<End, ConfigError> {
    let mut end = said.map(|end| (end, "--end says".to_owned()));
    for scheme in schemes {
        let Some(own) = scheme.end() else { continue };
        match &end {
            Some((other, why)) if *other != own => {
                return Err(ConfigError::Contradiction(format!(
                    "{scheme} acts at the {own} and not at the {other}, as {why}"
                )));
            }
            _ => end = Some((own, format!("{scheme} does"))),
        }
    }
    match end {
        Some((end, _)) => Ok(end),
        None if schemes.iter().any(|scheme| scheme.recovers()) => Err(ConfigError::Missing {
            what: "the end of the hop",
            how: "an agent is needed at both: --end base at one and --end mobile at the other",
        }),
        None => Ok(End::Mobile),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(text: &str) -> Result<AgentConfig, String> {
        let both = format!("fixed_if = \"a\"\nmobile_if = \"b\"\n{text}");
        let file: AgentFile =
            config::parse(Path::new("agent.toml"), &both).map_err(|e| e.to_string())?;
        file.try_into().map_err(|e: ConfigError| e.to_string())
    }

    #[test]
    fn every_scheme_is_known_by_its_name() {
        for scheme in Scheme::ALL {
            assert_eq!(scheme.name().parse(), Ok(scheme));
        }
        let e = "snop".parse::<Scheme>().unwrap_err();
        assert!(e.contains("`snop`") && e.contains("congestion-coherence"), "{e}");
    }

    /// LLT-2: the signal that is judged is the hop's.
    #[test]
    fn the_signal_is_that_of_the_interface_on_the_hop() {
        let signal = |text: &str| config(&format!("schemes = [\"freeze\"]\n{text}"));
        assert_eq!(signal("").unwrap().signal, None);
        let judged = signal("[signal]\nthreshold = -75\n").unwrap().signal.unwrap();
        assert_eq!(judged.threshold.get(), -75.0);
        assert!(signal("[signal]\ninterface = \"a\"\n").unwrap().signal.is_some());
        let e = signal("[signal]\ninterface = \"b\"\n").unwrap_err();
        assert!(e.contains("\"b\"") && e.contains("which is a"), "{e}");
    }

    #[test]
    fn the_end_follows_from_the_scheme_where_it_can() {
        let end = |text: &str| config(text).map(|config| config.end);
        assert_eq!(end("schemes = [\"snoop\", \"rwc\"]"), Ok(End::Base));
        assert_eq!(end("schemes = [\"obtcp-mobile-router\"]"), Ok(End::Mobile));
        assert_eq!(end("schemes = [\"freeze\"]"), Ok(End::Mobile));
        assert_eq!(end("schemes = [\"freeze\"]\nend = \"base\""), Ok(End::Base));
        let e = end("schemes = [\"snoop\", \"atcp\"]").unwrap_err();
        assert!(e.contains("atcp acts at the mobile") && e.contains("snoop does"), "{e}");
        let e = end("schemes = [\"delayed-dupacks\"]").unwrap_err();
        assert!(e.contains("--end base"), "{e}");
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for (text, said) in [
            ("", "the scheme is missing"),
            ("schemes = [\"snoop\", \"snoop\"]", "twice"),
            ("schemes = [\"snoopy\"]", "agent.toml:3"),
            ("schemes = [\"freeze\"]\nacks = 9", "from 1 to 8"),
            ("schemes = [\"rwc\"]\nwindow = 0", "neither auto"),
            ("schemes = [\"delayed-dupacks\"]\nend = \"base\"\nrecovery = false", "mobile's end"),
            ("schemes = [\"snoop\"]\nspeed = 3", "speed"),
        ] {
            let e = config(text).unwrap_err();
            assert!(e.contains(said), "{text}: {e}");
        }
        assert_eq!(config("schemes = [\"rwc\"]\nwindow = 64").unwrap().window, Total::Packets(64));
    }
}
