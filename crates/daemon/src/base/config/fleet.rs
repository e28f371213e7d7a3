//! The members of a base's fleet, in a file that somebody else keeps.

use std::path::Path;

use lasthop_control::config;
use lasthop_control::settings::Setting;

use super::handoff::{HandoffFile, Mode};
use super::{BaseFile, ConfigError};

impl BaseFile {
    /// With the mobiles, bases and keys of the file that `fleet` names beside those of this one.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or has settings that are this base's own.
    pub fn with_fleet(self) -> Result<Self, ConfigError> {
        let Some(path) = self.fleet.clone() else { return Ok(self) };
        let members = config::load(&path)?;
        self.join(&path, members)
    }

    fn join(mut self, path: &Path, mut members: Self) -> Result<Self, ConfigError> {
        let allow = members.allow.take().unwrap_or_default();
        let (mobiles, peers) =
            (std::mem::take(&mut members.mobiles), std::mem::take(&mut members.peers));
        let handoff = members.handoff.as_mut();
        let keys = handoff.map(|of| std::mem::take(&mut of.fleet_keys)).unwrap_or_default();
        if members.handoff == Some(HandoffFile::default()) {
            members.handoff = None;
        }
        let mut others = Vec::new();
        Self::default().differences(&members, "", &mut others);
        if let Some(other) = others.first() {
            let path = path.display();
            let why = format!("{path}: `{other}` is the base's own to say, not its fleet's");
            return Err(ConfigError::Contradiction(why));
        }
        let own = self.allow.get_or_insert_default();
        for entry in allow {
            if !own.iter().any(|known| known.0.key == entry.0.key) {
                own.push(entry);
            }
        }
        self.mobiles.extend(mobiles);
        self.peers.extend(peers);
        if let Some(handoff) = &mut self.handoff
            && handoff.mode() == Mode::Migrate
        {
            handoff.fleet_keys.extend(keys);
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::BaseConfig;

    const KEYS: [&str; 3] = [
        "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=",
        "nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=",
        "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=",
    ];

    fn file(text: &str) -> BaseFile {
        toml::from_str(text).unwrap()
    }

    fn members() -> String {
        let [_, mobile, peer] = KEYS;
        format!(
            "allow = [\"{mobile}\"]\n[handoff]\nfleet_keys = [\"tickets-1.key\"]\n\
             [[peers]]\nkey = \"{peer}\"\naddress = \"192.0.2.2:4434\"\n\
             [[mobiles]]\nkey = \"{mobile}\"\naddress = [\"10.9.0.7\"]\nacknowledge = \"mobile\"\n"
        )
    }

    const OWN: &str = "key = \"base.key\"\nfleet = \"members.toml\"\n\
                       [handoff]\nmode = \"migrate\"\ninterface = \"eth0\"\n";

    #[test]
    fn a_bases_members_are_those_of_both_files() {
        let own = format!("allow = [\"{}\", \"{}\"]\n{OWN}", KEYS[0], KEYS[1]);
        let both = file(&own).join(Path::new("members.toml"), file(&members())).unwrap();
        let config = BaseConfig::try_from(both).unwrap();
        assert_eq!((config.allow.len(), config.mobiles.len()), (2, 1));
        let handoff = config.handoff.unwrap();
        assert_eq!((handoff.peers.len(), handoff.settings.fleet_keys.len()), (1, 1));
    }

    #[test]
    fn keys_are_of_no_use_where_connections_stay() {
        let own = OWN.replace("migrate", "anchor");
        let both = file(&own).join(Path::new("members.toml"), file(&members())).unwrap();
        let config = BaseConfig::try_from(both).unwrap();
        assert!(config.handoff.unwrap().settings.fleet_keys.is_empty());
    }

    #[test]
    fn a_base_that_is_the_fleets_first_starts_alone() {
        let alone = file(OWN).join(Path::new("members.toml"), file("allow = []\n")).unwrap();
        let config = BaseConfig::try_from(alone).unwrap();
        assert!(config.allow.is_empty() && config.handoff.unwrap().peers.is_empty());
        // Where no other base could reach it there is nothing to be ready for.
        let text = "key = \"base.key\"\nfleet = \"members.toml\"\n";
        let alone = file(text).join(Path::new("members.toml"), file("allow = []\n")).unwrap();
        assert!(BaseConfig::try_from(alone).unwrap().handoff.is_none());
        let said = BaseConfig::try_from(file("key = \"base.key\"\n")).unwrap_err().to_string();
        assert!(said.contains("a mobile that is served"), "{said}");
    }

    #[test]
    fn what_is_the_bases_own_is_refused_by_name() {
        for (text, name) in [
            ("listen = [\"[::]:1\"]\n", "listen"),
            ("[handoff]\nmode = \"migrate\"\n", "handoff"),
            ("fleet = \"other.toml\"\n", "fleet"),
        ] {
            let said = file(OWN).join(Path::new("members.toml"), file(text)).unwrap_err();
            let said = said.to_string();
            assert!(said.contains("members.toml") && said.contains(name), "{said}");
        }
    }
}
