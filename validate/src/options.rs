//! Named numbers, each taken once: what the scripts take as "key value" arguments.

use std::collections::BTreeMap;

use lasthop_units::Duration;
use thiserror::Error;

/// Options of one cell that are not taken yet.
#[derive(Clone, Default, Debug)]
pub struct Options(BTreeMap<String, f64>);

/// An option that makes no sense.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum OptionError {
    /// Nobody took it.
    #[error("unknown option `{0}`")]
    Unknown(String),
    /// Its value is out of its range.
    #[error("option `{key}` is {found}, which is not {expected}")]
    Value {
        /// Which.
        key: &'static str,
        /// What it was.
        found: f64,
        /// What it may be.
        expected: &'static str,
    },
}

impl Options {
    /// Adds an option, or replaces it.
    pub fn set(&mut self, key: &str, value: f64) {
        self.0.insert(key.to_owned(), value);
    }

    /// All that are left, in order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(key, value)| (key.as_str(), *value))
    }

    fn take(&mut self, key: &'static str, default: f64) -> f64 {
        self.0.remove(key).unwrap_or(default)
    }

    /// A share or a probability.
    pub(crate) fn share(&mut self, key: &'static str, default: f64) -> Result<f64, OptionError> {
        let found = self.take(key, default);
        if (0.0..1.0).contains(&found) {
            return Ok(found);
        }
        Err(OptionError::Value { key, found, expected: "a number from 0 up to 1" })
    }

    /// A number that is not negative.
    pub(crate) fn number(&mut self, key: &'static str, default: f64) -> Result<f64, OptionError> {
        let found = self.take(key, default);
        if found.is_finite() && found >= 0.0 {
            return Ok(found);
        }
        Err(OptionError::Value { key, found, expected: "a number from 0 on" })
    }

    /// A whole number.
    pub(crate) fn count(&mut self, key: &'static str, default: u32) -> Result<u32, OptionError> {
        let found = self.take(key, f64::from(default));
        if found.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&found) {
            return Ok(found as u32);
        }
        Err(OptionError::Value { key, found, expected: "a whole number" })
    }

    /// Yes or no: 1 or 0.
    pub(crate) fn flag(&mut self, key: &'static str) -> Result<bool, OptionError> {
        match self.take(key, 0.0) {
            0.0 => Ok(false),
            1.0 => Ok(true),
            found => Err(OptionError::Value { key, found, expected: "0 or 1" }),
        }
    }

    /// A time in seconds.
    pub(crate) fn seconds(
        &mut self,
        key: &'static str,
        default: f64,
    ) -> Result<Duration, OptionError> {
        self.span(key, default, 1.0)
    }

    /// A time in milliseconds.
    pub(crate) fn millis(
        &mut self,
        key: &'static str,
        default: f64,
    ) -> Result<Duration, OptionError> {
        self.span(key, default, 1e-3)
    }

    fn span(
        &mut self,
        key: &'static str,
        default: f64,
        unit: f64,
    ) -> Result<Duration, OptionError> {
        let found = self.take(key, default);
        Duration::try_from_secs_f64(found * unit).map_err(|_| OptionError::Value {
            key,
            found,
            expected: "a time",
        })
    }

    /// Nothing may be left.
    pub(crate) fn finish(self) -> Result<(), OptionError> {
        self.0.into_keys().next().map_or(Ok(()), |key| Err(OptionError::Unknown(key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_takes_is_named() {
        let mut options = Options::default();
        options.set("p1", 0.1);
        options.set("windw", 16.0);
        assert_eq!(options.share("p1", 0.0), Ok(0.1));
        assert_eq!(options.finish(), Err(OptionError::Unknown("windw".into())));
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let mut options = Options::default();
        for (key, value) in [("p1", 1.5), ("window", 2.5), ("both", 2.0), ("d1", -1.0)] {
            options.set(key, value);
        }
        assert!(options.share("p1", 0.0).is_err());
        assert!(options.count("window", 16).is_err());
        assert!(options.flag("both").is_err());
        assert!(options.millis("d1", 20.0).is_err());
        assert_eq!(options.millis("d1", 20.0), Ok(Duration::from_millis(20)));
    }
}
