//! The `[signal]` table of a mobile and of an agent.

use lasthop_session::{Dbm, SignalConfig, SignalPredictor};
use lasthop_units::Span;

use crate::config::ConfigError;
use crate::settings;

/// The longest horizon: further ahead nobody can make use of a warning.
const HORIZON_MAX: Span = Span(crate::socket::IN_MAX);

settings! {
    /// The table. What it does not say is as [`SignalConfig`] has it.
    pub struct SignalFile {
        /// The interface whose signal is watched.
        ///
        /// Of a mobile, absent: levels come from `lasthop link quality` alone. An agent watches the
        /// interface on its hop.
        pub interface: Option<String>,
        /// The level in dBm at which the link is lost.
        ///
        /// The default is what IEEE 802.11 asks of every receiver at the lowest rate in 20 MHz; LTE
        /// and 5G tell another quantity (RSRP), which is lost at about -118.
        #[range(format!(", from {} to {}", Dbm::MIN.get(), Dbm::MAX.get()))]
        pub threshold: Option<f64> = SignalConfig::default().threshold.get(),
        /// How long before that the warning comes.
        #[range(format!(", {HORIZON_MAX} at most"))]
        pub horizon: Option<Span> = Span(SignalConfig::default().horizon),
        /// The time constant with which samples lose their weight for the level.
        pub smoothing: Option<Span> = Span(SignalConfig::default().smoothing),
        /// How far back the slope is looked for; stretched until it holds five samples.
        pub window: Option<Span> = Span(SignalConfig::default().window),
        /// How many dB above the threshold a warning is taken back, and how many further down one
        /// that came to nothing is repeated.
        pub hysteresis: Option<f64> = SignalConfig::default().hysteresis_db,
        /// After so long without a sample the signal is unknown, which is no warning.
        pub silence: Option<Span> = Span(SignalConfig::default().silence),
        /// `false` switches the table off.
        pub enabled: Option<bool> = true,
    }
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
        let dbm = self.threshold();
        let threshold = Dbm::new(dbm).ok_or_else(|| {
            let (min, max) = (Dbm::MIN.get(), Dbm::MAX.get());
            wrong(format!("threshold = {dbm} is no level in dBm: they are from {min} to {max}"))
        })?;
        if self.interface.as_deref() == Some("") {
            return Err(wrong("`interface` is empty".to_owned()));
        }
        let predictor = SignalConfig {
            threshold,
            horizon: self.horizon().0,
            smoothing: self.smoothing().0,
            window: self.window().0,
            hysteresis_db: self.hysteresis(),
            silence: self.silence().0,
            samples_min: SignalConfig::default().samples_min,
        };
        if self.horizon() > HORIZON_MAX {
            return Err(wrong(format!("horizon is more than {} s", HORIZON_MAX.0.as_secs())));
        }
        SignalPredictor::new(predictor).map_err(|error| wrong(error.to_string()))?;
        let enabled = self.enabled();
        Ok(enabled.then_some(SignalSettings { interface: self.interface, predictor }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
