//! Reading a base's configuration again while it runs.

use std::fmt;

use lasthop_control::Reloaded;
use lasthop_control::settings::Setting;
use lasthop_hop::seal::Allowed;

use super::{BaseConfig, BaseFile};
use crate::config::{ConfigError, SealKind};
use crate::error::in_full;
use crate::publish::Published;

/// What reads a base's settings: those of its file, with its flags laid over them.
type Read = Box<dyn Fn() -> Result<BaseFile, ConfigError> + Send>;

/// Where a running base's settings come from, and with which of them it runs.
pub struct ConfigSource {
    place: String,
    read: Read,
    running: BaseFile,
    /// What `publish` comes to, which depends on `allow` too.
    publish: Vec<Published>,
}

impl ConfigSource {
    /// Of a base that was started with `running`. `read` reads the same again, from what people call
    /// `place`.
    pub fn new(
        place: String,
        running: BaseFile,
        read: impl Fn() -> Result<BaseFile, ConfigError> + Send + 'static,
    ) -> Self {
        Self { place, read: Box::new(read), running, publish: Vec::new() }
    }

    /// What the running base has made of `publish`.
    pub(super) fn set_publish(&mut self, publish: Vec<Published>) {
        self.publish = publish;
    }

    /// Reads the settings again: the mobiles that are to be served from here on, where that can be
    /// changed, and the names of settings that have changed and cannot.
    ///
    /// # Errors
    ///
    /// What is wrong with them, and where. The base is to go on as it is.
    pub(super) fn read(&mut self) -> Result<(Option<Vec<Allowed>>, Vec<String>), String> {
        let said = |error: ConfigError| match error {
            // These name the file.
            ConfigError::Read { .. } | ConfigError::Syntax { .. } => error.to_string(),
            ConfigError::Missing { .. } | ConfigError::Contradiction(_) => {
                format!("{}: {error}", self.place)
            }
        };
        let file = (self.read)().map_err(said)?;
        let config = BaseConfig::try_from(file.clone()).map_err(said)?;
        let mut restart = Vec::new();
        self.running.differences(&file, "", &mut restart);
        if config.publish != self.publish && !restart.iter().any(|name| name == "publish") {
            restart.push("publish".to_owned());
        }
        let sealed = [self.running.seal(), config.seal] == [SealKind::Noise; 2];
        if !sealed {
            return Ok((None, restart));
        }
        let allowed = config.allowed().map_err(|error| in_full(&error))?;
        restart.retain(|name| name != "allow");
        self.running.allow = file.allow;
        Ok((Some(allowed), restart))
    }
}

impl fmt::Debug for ConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigSource").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Tells the log what came of reading the configuration again.
pub(super) fn log(outcome: &Result<Reloaded, String>) {
    match outcome {
        Ok(Reloaded { added, removed, restart }) => {
            tracing::info!(added, removed, "configuration read again");
            if !restart.is_empty() {
                let settings = restart.join(", ");
                tracing::warn!(settings, "these settings have changed and need a restart");
            }
        }
        Err(why) => tracing::error!(why, "configuration not read again"),
    }
}
