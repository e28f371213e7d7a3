//! Configuration as files and flags give it: every value may be left out, and what holds for both
//! directions may be overridden for one.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use core::str::FromStr;

use lasthop_units::{Rate, Span};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::text::{self, TextError};
use crate::{
    ConfigError, LinkConfig, Loss, Pacing, Pause, QueueLimit, RadioConfig, RateStep, RateSteps,
    Reorder, Trace,
};

/// A radio as a configuration file describes it.
///
/// ```toml
/// shared-fades = false
/// [both]
/// rate = "20Mbit/s"
/// delay = "20ms"
/// queue = "100 packets"
/// [down]
/// loss = "5%"
/// ```
#[derive(Clone, PartialEq, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RadioSettings {
    /// For both directions.
    pub both: LinkSettings,
    /// From the mobile to the base; takes precedence over `both`.
    pub up: LinkSettings,
    /// From the base to the mobile; takes precedence over `both`.
    pub down: LinkSettings,
    /// Both directions fade together (ERR-4).
    pub shared_fades: bool,
}

impl RadioSettings {
    /// Fills in the defaults. `load` gives the text of a trace by name.
    ///
    /// # Errors
    ///
    /// Names the first setting that does not hold, or what `load` said.
    pub fn resolve(
        &self,
        load: &mut dyn FnMut(&str) -> Result<String, String>,
    ) -> Result<RadioConfig, ConfigError> {
        Ok(RadioConfig {
            up: self.up.clone().over(&self.both).resolve(load)?,
            down: self.down.clone().over(&self.both).resolve(load)?,
            shared_fades: self.shared_fades,
        })
    }
}

/// One direction of a radio as a configuration file or flags describe it. What is left out takes
/// the value of [`LinkConfig::default`].
#[derive(Clone, PartialEq, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct LinkSettings {
    /// `20Mbit/s`, `unlimited`.
    pub rate: Option<Rate>,
    /// Changes of the rate: `["4Mbit/s at 10s", "20Mbit/s at 20s"]`.
    pub steps: Option<StepList>,
    /// Begin the steps anew after this long.
    pub steps_repeat: Option<Span>,
    /// The name of a mahimahi trace, in place of a rate.
    pub trace: Option<String>,
    /// One-way delay: `20ms`.
    pub delay: Option<Span>,
    /// `100 packets`, `64KiB`, `50ms`.
    pub queue: Option<QueueLimit>,
    /// Mark what finds so much waiting: `15 packets`, `20KiB`, `10ms` (CC-2).
    pub ecn_mark: Option<QueueLimit>,
    /// Bytes of the whole IP datagram.
    pub mtu: Option<u32>,
    /// The MAC's delay for each transmission: `5ms` (LNK-13).
    pub mac_delay: Option<Span>,
    /// Whether the MAC delay keeps the channel busy.
    pub mac_occupies: Option<bool>,
    /// `5%`, `burst 5% length 3`, `fade 10% mean 17ms corrupt`, or a list of such.
    pub loss: Option<LossList>,
    /// `2.8s at 4s`, `1s at 4s every 8s`, or a list of such.
    pub pause: Option<PauseList>,
    /// `1% by 10ms`.
    pub reorder: Option<Reorder>,
    /// `1%`.
    pub duplicate: Option<Share>,
    /// The most packets held at once.
    pub capacity: Option<u32>,
}

impl LinkSettings {
    /// These settings where they say something, `base` elsewhere. How packets are paced (rate,
    /// steps, trace) counts as one setting.
    pub fn over(mut self, base: &Self) -> Self {
        if !self.says_pacing() {
            self.rate = base.rate;
            self.steps = base.steps.clone();
            self.steps_repeat = base.steps_repeat;
            self.trace = base.trace.clone();
        }
        Self {
            delay: self.delay.or(base.delay),
            queue: self.queue.or(base.queue),
            ecn_mark: self.ecn_mark.or(base.ecn_mark),
            mtu: self.mtu.or(base.mtu),
            mac_delay: self.mac_delay.or(base.mac_delay),
            mac_occupies: self.mac_occupies.or(base.mac_occupies),
            loss: self.loss.or_else(|| base.loss.clone()),
            pause: self.pause.or_else(|| base.pause.clone()),
            reorder: self.reorder.or(base.reorder),
            duplicate: self.duplicate.or(base.duplicate),
            capacity: self.capacity.or(base.capacity),
            ..self
        }
    }

    /// Fills in the defaults. `load` gives the text of a trace by name.
    ///
    /// # Errors
    ///
    /// Names the first setting that does not hold, or what `load` said.
    pub fn resolve(
        &self,
        load: &mut dyn FnMut(&str) -> Result<String, String>,
    ) -> Result<LinkConfig, ConfigError> {
        let default = LinkConfig::default();
        let config = LinkConfig {
            pacing: self.pacing(load)?,
            delay: self.delay.map_or(default.delay, |d| d.0),
            queue: self.queue.unwrap_or(default.queue),
            ecn_mark: self.ecn_mark,
            mtu: self.mtu.unwrap_or(default.mtu),
            mac_delay: self.mac_delay.map_or(default.mac_delay, |d| d.0),
            mac_occupies: self.mac_occupies.unwrap_or(default.mac_occupies),
            losses: self.loss.clone().map_or(default.losses, |list| list.0),
            pauses: self.pause.clone().map_or(default.pauses, |list| list.0),
            reorder: self.reorder,
            duplicate: self.duplicate.map_or(default.duplicate, |share| share.0),
            capacity: self.capacity.unwrap_or(default.capacity),
        };
        config.validate()?;
        Ok(config)
    }

    fn says_pacing(&self) -> bool {
        self.rate.is_some()
            || self.steps.is_some()
            || self.steps_repeat.is_some()
            || self.trace.is_some()
    }

    fn pacing(
        &self,
        load: &mut dyn FnMut(&str) -> Result<String, String>,
    ) -> Result<Pacing, ConfigError> {
        let rate = self.rate.unwrap_or(Rate::UNLIMITED);
        match (&self.trace, &self.steps) {
            (Some(_), _) if self.rate.is_some() || self.steps.is_some() => {
                Err(ConfigError::Conflict("a link has either a rate or a trace, not both"))
            }
            (Some(path), _) => {
                let failed = |why| ConfigError::Trace { path: path.clone(), why };
                let text = load(path).map_err(failed)?;
                let trace = Trace::parse(&text).map_err(|e| failed(e.to_string()))?;
                Ok(Pacing::Trace(Arc::new(trace)))
            }
            (None, Some(steps)) => Ok(Pacing::Steps(RateSteps {
                initial: rate,
                steps: steps.0.clone(),
                period: self.steps_repeat.map(|d| d.0),
            })),
            (None, None) if self.steps_repeat.is_some() => {
                Err(ConfigError::Conflict("steps-repeat is set, but there are no steps"))
            }
            (None, None) => Ok(Pacing::Rate(rate)),
        }
    }
}

/// A share in its text form: `5%`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Share(pub f64);

impl FromStr for Share {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        text::share(text).map(Self)
    }
}

/// What one text says, with commas between the members, or a list of texts. `none` is the empty
/// list.
#[derive(Clone, PartialEq, Debug)]
pub struct TextList<T>(pub Vec<T>);

/// Error processes.
pub type LossList = TextList<Loss>;

/// Pauses.
pub type PauseList = TextList<Pause>;

/// Changes of the rate.
pub type StepList = TextList<RateStep>;

impl<T: FromStr> FromStr for TextList<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        if text.trim() == "none" {
            return Ok(Self(Vec::new()));
        }
        text.split(',').map(T::from_str).collect::<Result<_, _>>().map(Self)
    }
}

impl<'de, T: FromStr<Err = TextError>> Deserialize<'de> for TextList<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(TextOrList(PhantomData))
    }
}

macro_rules! deserialize_from_text {
    ($($type:ident)*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                String::deserialize(d)?.parse().map_err(de::Error::custom)
            }
        }
    )*};
}

deserialize_from_text!(Share QueueLimit Reorder);

/// Accepts one text as well as a list of texts.
struct TextOrList<T>(PhantomData<T>);

impl<'de, T: FromStr<Err = TextError>> Visitor<'de> for TextOrList<T> {
    type Value = TextList<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of texts")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<TextList<T>, E> {
        text.parse().map_err(de::Error::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut texts: A) -> Result<TextList<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(text) = texts.next_element::<String>()? {
            list.extend(text.parse::<TextList<T>>().map_err(de::Error::custom)?.0);
        }
        Ok(TextList(list))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use lasthop_units::Duration;

    use super::*;
    use crate::Errors;

    fn resolve(toml: &str) -> Result<RadioConfig, String> {
        let settings: RadioSettings = toml::from_str(toml).map_err(|e| e.to_string())?;
        let mut load = |name: &str| match name {
            "good" => Ok("1\n2\n".to_string()),
            "bad" => Ok("1\nx\n".to_string()),
            _ => Err("no such file".to_string()),
        };
        settings.resolve(&mut load).map_err(|e| e.to_string())
    }

    #[test]
    fn one_direction_overrides_what_holds_for_both() {
        let config = resolve(
            r#"
            [both]
            rate = "20Mbit/s"
            delay = "20ms"
            queue = "100 packets"
            loss = ["1%", "fade 10% mean 17ms corrupt"]
            [down]
            rate = "10Mbit/s"
            steps = "4Mbit/s at 10s"
            loss = "5%"
            "#,
        )
        .expect("resolves");
        assert_eq!(config.up.pacing, Pacing::Rate(Rate::from_mbps(20)));
        assert_eq!(config.up.losses.len(), 2);
        assert_eq!(config.down.losses, vec![Loss::lose(Errors::Uniform(0.05))]);
        assert_eq!(config.down.delay, Duration::from_millis(20));
        assert_eq!(config.down.queue, QueueLimit::Packets(100));
        let Pacing::Steps(steps) = config.down.pacing else { panic!("no steps") };
        assert_eq!(steps.initial, Rate::from_mbps(10));
    }

    #[test]
    fn an_empty_file_is_the_default_radio() {
        assert_eq!(resolve(""), Ok(RadioConfig::default()));
    }

    #[test]
    fn unknown_keys_and_bad_values_are_refused_by_name() {
        let error = |toml| resolve(toml).expect_err("accepted");
        let unknown = error("[both]\nrate = \"1Mbit/s\"\nspeed = 3\n");
        assert!(unknown.contains("line 3") && unknown.contains("speed"), "{unknown}");
        assert!(error("[both]\nloss = \"5 in 100\"").contains("5 in 100"));
        assert!(error("[up]\ntrace = \"bad\"").contains("trace bad: line 2"));
        assert!(error("[up]\ntrace = \"none\"").contains("no such file"));
        assert!(error("[up]\ntrace = \"good\"\nrate = \"1Mbit/s\"").contains("not both"));
        assert!(error("[up]\nsteps-repeat = \"1s\"").contains("no steps"));
        assert!(error("[up]\nmtu = 0").contains("mtu"));
        assert!(error("[up]\necn-mark = \"some\"").contains("`some` is not a queue limit"));
        assert!(error("[up]\nqueue = \"9\"\necn-mark = \"9\"").contains("not below the queue"));
    }

    /// CC-2: the threshold is a setting, for both directions or for one.
    #[test]
    fn the_threshold_for_marks_is_read_like_a_queue() {
        let config = resolve("[both]\necn-mark = \"15 packets\"\n[up]\necn-mark = \"10ms\"");
        let config = config.expect("reads");
        assert_eq!(config.down.ecn_mark, Some(QueueLimit::Packets(15)));
        assert_eq!(config.up.ecn_mark, Some(QueueLimit::Time(Duration::from_millis(10))));
    }

    #[test]
    fn a_trace_for_one_direction_replaces_the_rate_of_both() {
        let config = resolve("[both]\nrate = \"1Mbit/s\"\n[up]\ntrace = \"good\"").expect("reads");
        assert!(matches!(config.up.pacing, Pacing::Trace(_)));
        assert_eq!(config.down.pacing, Pacing::Rate(Rate::from_mbps(1)));
    }
}
