//! What an agent is told to be.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use lasthop_agent::Side;
use lasthop_session::SignalConfig;
use lasthop_units::Span;
use serde::{Deserialize, Deserializer, Serialize, de};

use lasthop_control::config::ConfigError;
use lasthop_control::link_signals::SignalFile;
use lasthop_control::priority::{Rule, Rules};
use lasthop_control::{choice, settings};

choice! {
    /// A way of helping TCP from the path.
    pub enum Scheme: "no scheme of an agent" {
        /// Packets are handed on, and that is all.
        None = "none",
        /// Keeps copies at the base, repairs, and keeps duplicates back.
        Snoop = "snoop",
        /// obTCP's agent at the base.
        ObtcpBase = "obtcp-base",
        /// obTCP's agent at the mobile router.
        ObtcpMobileRouter = "obtcp-mobile-router",
        /// Link recovery, and third duplicates that wait.
        DelayedDupacks = "delayed-dupacks",
        /// M-TCP's supervisor host.
        MTcp = "m-tcp",
        /// Windows shut before a disconnection.
        Freeze = "freeze",
        /// The same until packets find the mobile again, in both directions.
        LlFreeze = "ll-freeze",
        /// ATCP's receiver.
        Atcp = "atcp",
        /// Priorities become windows.
        Rwc = "rwc",
        /// Link recovery, and duplicates that wait unless marks tell of congestion.
        CongestionCoherence = "congestion-coherence",
    }
}

impl Scheme {
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

choice! {
    /// Which end of the hop an agent is at.
    pub enum End: "no end of the hop" {
        /// The hop is on the mobile side.
        Base = "base",
        /// The hop is on the fixed side: at a mobile router, or in front of a mobile.
        Mobile = "mobile",
    }
}

/// What the windows of all flows together have, for `rwc`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
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
                .filter(|n| (1..=TOTAL_MAX).contains(n))
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

settings! {
    /// An agent's configuration as it is written.
    #[derive(clap::Args)]
    pub struct AgentFile {
        /// What is done, from the fixed side to the mobile side.
        #[flag(value_name = "SCHEME")]
        #[range(Scheme::range())]
        pub schemes: Option<Vec<Scheme>>,
        /// The interface where the fixed hosts are.
        #[flag(long = "fixed-if", value_name = "NAME")]
        pub fixed_if: Option<String>,
        /// The interface where the mobiles are.
        #[flag(long = "mobile-if", value_name = "NAME")]
        pub mobile_if: Option<String>,
        /// The bridge that is made of the two interfaces if they are not ports of one; it stays.
        #[flag(long = "bridge", value_name = "NAME")]
        pub bridge: Option<String>,
        /// Which end of the hop this is.
        #[flag(long = "end", value_name = "END")]
        #[range(End::range())]
        pub end: Option<End> => "where the scheme acts, or `mobile`",
        /// Whether the agents of delayed-dupacks and congestion-coherence recover the link's losses.
        /// With `--no-recovery` the radio does by itself, and only the mobile's end needs an agent.
        #[flag(long = "no-recovery", num_args = 0, default_missing_value = "false")]
        pub recovery: Option<bool> = true,
        /// How long duplicates wait for the link's recovery.
        #[flag(long = "hold", value_name = "TIME")]
        pub hold: Option<Span> = Span(Duration::from_millis(100)),
        /// Acknowledgements at the end of a freeze.
        #[flag(long = "acks", value_name = "COUNT")]
        #[range(format!(", from 1 to {ACKS_MAX}"))]
        pub acks: Option<u8> => "3 for freeze, 1 for ll-freeze",
        /// Packets that all windows together have for rwc. With `auto` it is what the path is measured
        /// to hold.
        #[flag(long = "window", value_name = "PACKETS")]
        #[range(format!(", from 1 to {TOTAL_MAX}"))]
        pub window: Option<Total> = Total::Auto,
        /// Connections that are known at once.
        #[arg(skip)]
        pub connections: Option<usize> = 4096,
        /// What matters how much, for rwc: tables ([priorities](priorities.md)).
        #[arg(skip)]
        pub priority: Vec<Rule>,
        /// How the signal of the hop's interface is judged, a table ([events](events.md#the-signal)).
        #[arg(skip)]
        pub signal: Option<SignalFile>,
        /// The Unix socket that `lasthop status`, `link` and `priority` use.
        ///
        /// [Status](status.md) says where it is by default.
        #[flag(long = "control", value_name = "PATH")]
        pub control: Option<PathBuf>,
    }
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
    /// How long duplicates wait for the link's recovery (DDA-2, CC-5).
    pub hold: Duration,
    /// Acknowledgements at the end of a freeze; each scheme's own number if nobody says.
    pub acks: Option<u8>,
    /// What the windows of all flows together have, for `rwc`.
    pub window: Total,
    /// Connections that are known at once.
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

/// More acknowledgements at once are of no use (FRZ-3).
const ACKS_MAX: u8 = 8;
/// More packets than any path holds.
const TOTAL_MAX: u32 = 1_000_000;

impl TryFrom<AgentFile> for AgentConfig {
    type Error = ConfigError;

    fn try_from(file: AgentFile) -> Result<Self, ConfigError> {
        let missing = |what, how| ConfigError::Missing { what, how };
        let contradiction = |why: String| Err(ConfigError::Contradiction(why));
        let (recovery, hold, window) = (file.recovery(), file.hold().0, file.window());
        let connections = file.connections().max(1);
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
            hold,
            acks: file.acks,
            window,
            connections,
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
        let file: AgentFile = lasthop_control::config::parse(Path::new("agent.toml"), &both)
            .map_err(|e| e.to_string())?;
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
