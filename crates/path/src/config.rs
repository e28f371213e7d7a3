//! The configuration of an agent.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use lasthop_session::SignalConfig;
use lasthop_units::{AgentRole, HopEnd, Scheme, Span};
use serde::{Deserialize, Deserializer, Serialize, de};

use lasthop_control::config::{ConfigError, one_of};
use lasthop_control::link_signals::SignalFile;
use lasthop_control::priority::{Rule, Rules};
use lasthop_control::settings;

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
        #[range(one_of(AgentRole::all()))]
        pub schemes: Option<Vec<AgentRole>>,
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
        #[range(one_of([HopEnd::Base, HopEnd::Mobile]))]
        pub end: Option<HopEnd> => "where the scheme acts, or `mobile`",
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
    pub schemes: Vec<AgentRole>,
    /// The interface where the fixed hosts are.
    pub fixed_if: String,
    /// The interface where the mobiles are.
    pub mobile_if: String,
    /// The bridge that is made of the two if they are no ports of one.
    pub bridge: Option<String>,
    /// Which end of the hop this is.
    pub end: HopEnd,
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
    /// The interface that the hop is on.
    pub(super) fn hop_if(&self) -> &str {
        match self.end {
            HopEnd::Base => &self.mobile_if,
            HopEnd::Mobile => &self.fixed_if,
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
        if !file.priority.is_empty() && schemes.iter().all(|role| role.scheme != Scheme::Rwc) {
            return contradiction("[[priority]] has no meaning without the scheme rwc".to_owned());
        }
        let end = end(&schemes, file.end)?;
        if !recovery
            && end == HopEnd::Base
            && schemes.iter().any(|role| role.scheme.recovers_on_link())
        {
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

/// Where the agent is, by the configuration and by what its schemes can be.
fn end(schemes: &[AgentRole], said: Option<HopEnd>) -> Result<HopEnd, ConfigError> {
    let mut end = said.map(|end| (end, "--end says".to_owned()));
    for scheme in schemes {
        let Some(own) = scheme.end else { continue };
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
        None if schemes.iter().any(|role| role.scheme.recovers_on_link()) => {
            Err(ConfigError::Missing {
                what: "the end of the hop",
                how: "an agent is needed at both: --end base at one and --end mobile at the other",
            })
        }
        None => Ok(HopEnd::Mobile),
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
        assert_eq!(end("schemes = [\"snoop\", \"rwc\"]"), Ok(HopEnd::Base));
        assert_eq!(end("schemes = [\"obtcp-mobile-router\"]"), Ok(HopEnd::Mobile));
        assert_eq!(end("schemes = [\"freeze\"]"), Ok(HopEnd::Mobile));
        assert_eq!(end("schemes = [\"freeze\"]\nend = \"base\""), Ok(HopEnd::Base));
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
