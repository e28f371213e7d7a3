//! The `[signal]` table of a mobile and of an agent.

use std::time::Duration;

use lasthop_session::{Dbm, SignalConfig, SignalPredictor};
use serde::Deserialize;

use crate::config::{self, ConfigError};

/// The longest horizon: further ahead nobody can make use of a warning.
const HORIZON_MAX: Duration = crate::socket::IN_MAX;

/// The table. What it does not say is as [`SignalConfig`] has it.
#[derive(Clone, PartialEq, Default, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SignalFile {
    /// `false`: the table has no effect.
    pub enabled: Option<bool>,
    /// The interface whose signal is watched. Of a mobile, absent: none is, and only scripts tell
    /// of the level.
    pub interface: Option<String>,
    /// The level at which the link is lost, dBm.
    pub threshold: Option<f64>,
    /// How far ahead that is foretold.
    #[serde(deserialize_with = "config::duration")]
    pub horizon: Option<Duration>,
    /// The time constant of the level.
    #[serde(deserialize_with = "config::duration")]
    pub smoothing: Option<Duration>,
    /// How far back the slope is looked for.
    #[serde(deserialize_with = "config::duration")]
    pub window: Option<Duration>,
    /// How far the level must rise for a warning to be taken back, dB.
    pub hysteresis: Option<f64>,
    /// After so long without a level it is unknown.
    #[serde(deserialize_with = "config::duration")]
    pub silence: Option<Duration>,
}

/// What is to be watched, and how it is judged.
#[derive(Clone, PartialEq, Debug)]
pub struct SignalSettings {
    /// The interface; `None`: only scripts tell of the level.
    pub interface: Option<String>,
    /// How it is judged.
    pub predictor: SignalConfig,
}

impl SignalFile {
    /// What the table asks for; `None` if it is switched off.
    ///
    /// # Errors
    ///
    /// Names the key that cannot be meant.
    pub fn settings(self) -> Result<Option<SignalSettings>, ConfigError> {
        let wrong = |why: String| ConfigError::Contradiction(format!("`[signal]`: {why}"));
        let default = SignalConfig::default();
        let threshold = match self.threshold {
            None => default.threshold,
            Some(dbm) => Dbm::new(dbm).ok_or_else(|| {
                let (min, max) = (Dbm::MIN.get(), Dbm::MAX.get());
                wrong(format!("threshold = {dbm} is no level in dBm: they are from {min} to {max}"))
            })?,
        };
        if self.interface.as_deref() == Some("") {
            return Err(wrong("`interface` is empty".to_owned()));
        }
        let predictor = SignalConfig {
            threshold,
            horizon: self.horizon.unwrap_or(default.horizon),
            smoothing: self.smoothing.unwrap_or(default.smoothing),
            window: self.window.unwrap_or(default.window),
            hysteresis_db: self.hysteresis.unwrap_or(default.hysteresis_db),
            silence: self.silence.unwrap_or(default.silence),
            samples_min: default.samples_min,
        };
        if predictor.horizon > HORIZON_MAX {
            return Err(wrong(format!("horizon is more than {} s", HORIZON_MAX.as_secs())));
        }
        SignalPredictor::new(predictor).map_err(|error| wrong(error.to_string()))?;
        let settings = SignalSettings { interface: self.interface, predictor };
        Ok(self.enabled.unwrap_or(true).then_some(settings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<SignalSettings>, String> {
        let file: SignalFile = toml::from_str(text).map_err(|error| error.to_string())?;
        file.settings().map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_said_is_as_the_predictor_has_it() {
        let settings = read("interface = \"wlan0\"\nthreshold = -78\n").unwrap().unwrap();
        assert_eq!(settings.interface.as_deref(), Some("wlan0"));
        let expected =
            SignalConfig { threshold: Dbm::new(-78.0).unwrap(), ..SignalConfig::default() };
        assert_eq!(settings.predictor, expected);
        assert_eq!(read("").unwrap().unwrap().interface, None);
        let all = "horizon = \"1s\"\nsmoothing = \"200ms\"\nwindow = \"2s\"\nhysteresis = 6\n\
                   silence = \"10s\"\nthreshold = -118.5\n";
        let settings = read(all).unwrap().unwrap().predictor;
        assert_eq!((settings.horizon, settings.hysteresis_db), (Duration::from_secs(1), 6.0));
        assert_eq!(settings.silence, Duration::from_secs(10));
    }

    #[test]
    fn it_can_be_switched_off() {
        assert_eq!(read("enabled = false\ninterface = \"wlan0\"\n"), Ok(None));
    }

    #[test]
    fn what_cannot_be_meant_names_the_key() {
        for (text, said) in [
            ("threshold = -300\n", "threshold = -300"),
            ("threshold = nan\n", "threshold"),
            ("horizon = \"2min\"\n", "horizon"),
            ("window = \"0s\"\n", "window"),
            ("hysteresis = -1\n", "hysteresis"),
            ("interface = \"\"\n", "`interface`"),
            ("level = 3\n", "unknown field `level`"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
