//! Reading a base's configuration again while it runs.

use std::fmt;
use std::sync::Arc;

use lasthop_control::settings::Setting;
use lasthop_control::{Changes, Reloaded};
use lasthop_hop::seal::{Allowed, TicketKey};
use lasthop_kernel::network::Network;
use tracing::field::display;

use super::mobiles::{self, AddressBook, Mobiles};
use super::{BaseConfig, BaseFile};
use crate::backhaul::Peer;
use crate::config::{ConfigError, SealKind};
use crate::error::in_full;
use crate::keyfile::{self, KeyFileError, PresharedKeys};

/// What reads a base's settings: those of its file, with its flags laid over them.
type Read = Box<dyn Fn() -> Result<BaseFile, ConfigError> + Send>;

/// Where a running base's settings come from, and with which of them it runs.
pub struct ConfigSource {
    place: String,
    read: Read,
    running: BaseFile,
    /// What the base was started with.
    started: Option<BaseConfig>,
}

/// What was read again and can be taken in.
pub(super) struct Fresh {
    /// The mobiles that are served.
    pub(super) allowed: Vec<Allowed>,
    pub(super) others: Others,
    /// Keys of tickets, the one in use first; none where they need a restart.
    pub(super) tickets: Option<Vec<TicketKey>>,
    /// The addresses of mobiles, and what the helper may work for; none where they need a restart.
    pub(super) addresses: Option<(AddressBook, Vec<Network>)>,
}

/// Other bases, and what is shared with those that have a pre-shared key.
#[derive(Clone, Default, Debug)]
pub(super) struct Others {
    pub(super) peers: Vec<Peer>,
    pub(super) psks: PresharedKeys,
}

/// What all workers know of others, beside the mobiles that each serves.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) others: Others,
    pub(super) mobiles: Arc<Mobiles>,
    /// Tickets are made with another key than before.
    pub(super) renew: bool,
}

impl ConfigSource {
    /// Of a base that was started with `running`. `read` reads the same again, from what people call
    /// `place`.
    pub fn new(
        place: String,
        running: BaseFile,
        read: impl Fn() -> Result<BaseFile, ConfigError> + Send + 'static,
    ) -> Self {
        Self { place, read: Box::new(read), running, started: None }
    }

    /// What the running base has made of its settings.
    pub(super) fn set_started(&mut self, started: BaseConfig) {
        self.started = Some(started);
    }

    /// Reads the settings again: what is to be taken in, where anything can be changed, and the names of settings that
    /// have changed and cannot.
    ///
    /// # Errors
    ///
    /// What is wrong with them, and where. The base is to go on as it is.
    pub(super) fn read(&mut self) -> Result<(Option<Fresh>, Vec<String>), String> {
        let said = |error: ConfigError| match error {
            // These name the file.
            ConfigError::Read { .. } | ConfigError::Syntax { .. } => error.to_string(),
            ConfigError::Missing { .. } | ConfigError::Contradiction(_) => {
                format!("{}: {error}", self.place)
            }
        };
        let started = self.started.as_ref().ok_or("this base has not started")?;
        let file = (self.read)().map_err(said)?;
        let config = BaseConfig::try_from(file.clone()).map_err(said)?;
        let (mut running, mut restart) = (self.running.clone(), Vec::new());
        let mut fresh = None;
        if [started.seal, config.seal] == [SealKind::Noise; 2] {
            let new = Fresh::of(started, &config).map_err(|error| in_full(&error))?;
            running.allow.clone_from(&file.allow);
            if started.handoff.is_some() {
                running.peers.clone_from(&file.peers);
                if let (Some(own), Some(new)) = (&mut running.handoff, &file.handoff) {
                    own.fleet_keys.clone_from(&new.fleet_keys);
                }
            }
            if new.addresses.is_some() {
                running.mobiles.clone_from(&file.mobiles);
            }
            fresh = Some(new);
        }
        running.differences(&file, "", &mut restart);
        let mut name = |name: &str, differs: bool| {
            if differs && !restart.iter().any(|named| named == name) {
                restart.push(name.to_owned());
            }
        };
        name("publish", config.publish != started.publish);
        // The device has the addresses that it was made with.
        name("mobiles", started.tun.is_some() && config.mobiles != started.mobiles);
        self.running = running;
        Ok((fresh, restart))
    }
}

impl Fresh {
    /// Of a configuration that is read by a base that was started with another.
    fn of(started: &BaseConfig, config: &BaseConfig) -> Result<Self, KeyFileError> {
        let allowed = config.allowed()?;
        let handoff = config.handoff.as_ref().filter(|_| started.handoff.is_some());
        let (mut others, mut tickets) = (Others::default(), None);
        if let Some(handoff) = handoff {
            others = Others::of(&handoff.peers)?;
            if mobiles::migrates(config) == mobiles::migrates(started) {
                tickets = Some(keyfile::load_tickets(&handoff.settings.fleet_keys)?);
            }
        }
        // How it serves them needs a restart.
        let as_started = BaseConfig {
            mobiles: config.mobiles.clone(),
            tun: started.tun.clone(),
            handoff: started.handoff.clone(),
            ..config.clone()
        };
        let book = mobiles::addresses(&as_started);
        let permitted = mobiles::permitted(&as_started, &book);
        let can = permitted.is_empty() || mobiles::wants_helper(started);
        Ok(Self { allowed, others, tickets, addresses: can.then_some((book, permitted)) })
    }
}

impl Others {
    /// These bases, whose pre-shared keys are read.
    ///
    /// # Errors
    ///
    /// A file with one cannot be used.
    pub(super) fn of(peers: &[Peer]) -> Result<Self, KeyFileError> {
        let files = peers.iter().filter_map(|peer| Some((peer.key, peer.psk.as_deref()?)));
        Ok(Self { peers: peers.to_vec(), psks: PresharedKeys::load(files)? })
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
        Ok(Reloaded { added, removed, bases, addresses, keys, restart }) => {
            let some = |changes: &Changes| (!changes.is_none()).then(|| display(*changes));
            let (bases, addresses, keys) = (some(bases), some(addresses), some(keys));
            tracing::info!(added, removed, bases, addresses, keys, "configuration read again");
            if !restart.is_empty() {
                let settings = restart.join(", ");
                tracing::warn!(settings, "these settings have changed and need a restart");
            }
        }
        Err(why) => tracing::error!(why, "configuration not read again"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const KEYS: [&str; 3] = [
        "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=",
        "nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=",
        "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=",
    ];

    /// A base that was started from one text, and reads others after it.
    struct Read {
        source: ConfigSource,
        text: Arc<Mutex<String>>,
    }

    impl Read {
        fn new(text: &str) -> Self {
            let parse = |text: &str| toml::from_str::<BaseFile>(&full(text)).unwrap();
            let shared = Arc::new(Mutex::new(text.to_owned()));
            let read = Arc::clone(&shared);
            let read = move || Ok(parse(&read.lock().unwrap()));
            let mut source = ConfigSource::new("base.toml".into(), parse(text), read);
            source.set_started(parse(text).try_into().unwrap());
            Self { source, text: shared }
        }

        fn read(&mut self, text: &str) -> Result<(Option<Fresh>, Vec<String>), String> {
            text.clone_into(&mut self.text.lock().unwrap());
            self.source.read()
        }

        /// What is taken in, and nothing needs a restart.
        fn taken(&mut self, text: &str) -> Fresh {
            let (fresh, restart) = self.read(text).unwrap();
            assert_eq!(restart, Vec::<String>::new(), "{text}");
            fresh.unwrap()
        }

        fn restart(&mut self, text: &str) -> Vec<String> {
            self.read(text).unwrap().1
        }
    }

    /// A file whose first keys are one mobile's and the second mobile's, and the third a peer's.
    fn full(text: &str) -> String {
        let [first, second, _] = KEYS;
        format!("key = \"base.key\"\nallow = [\"{first}\", \"{second}\"]\n{text}")
    }

    fn peer(rest: &str) -> String {
        format!("[[peers]]\nkey = \"{}\"\naddress = \"192.0.2.2:4434\"\n{rest}", KEYS[2])
    }

    fn mobile(n: usize, address: &str) -> String {
        format!("[[mobiles]]\nkey = \"{}\"\naddress = [\"{address}\"]\n", KEYS[n])
    }

    const OWN: &str = "fleet = \"members.toml\"\n\
                       [handoff]\nmode = \"migrate\"\ninterface = \"eth0\"\n";

    /// FLT-1
    #[test]
    fn other_bases_and_addresses_of_mobiles_are_taken_in() {
        let mut base = Read::new(OWN);
        let fresh =
            base.taken(&format!("{OWN}{}{}", peer("name = \"b2\"\n"), mobile(0, "10.9.0.7")));
        assert_eq!(fresh.others.peers[0].name, "b2");
        let (book, permitted) = fresh.addresses.unwrap();
        assert_eq!((book.len(), permitted.len()), (1, 1));
        let fresh = base.taken(OWN);
        assert!(fresh.others.peers.is_empty() && fresh.addresses.unwrap().1.is_empty());
    }

    /// FLT-4: it is named even if the base has read it before.
    #[test]
    fn what_is_taken_in_by_nobody_needs_a_restart_every_time() {
        // Nothing listens for other bases, and there is no helper.
        let mut alone = Read::new("");
        let more = format!("[handoff]\nmode = \"anchor\"\n{}", peer(""));
        for _ in 0..2 {
            assert_eq!(alone.restart(&more), ["handoff", "peers"]);
            assert_eq!(alone.restart(&mobile(0, "10.9.0.7")), ["mobiles"]);
        }
        assert_eq!(alone.restart(""), Vec::<String>::new());

        let mut fleet = Read::new(OWN);
        let changed = OWN.replace("eth0", "eth1") + "listen = [\"127.0.0.1:4444\"]\n" + &peer("");
        for _ in 0..2 {
            assert_eq!(fleet.restart(&changed), ["handoff"]);
        }
        // A base cannot begin to have connections migrate, so it has no use for keys.
        let anchored = OWN.replace("migrate", "anchor");
        let mut anchored = Read::new(&anchored);
        let (fresh, restart) = anchored.read(OWN).unwrap();
        assert_eq!(restart, ["handoff"]);
        assert!(fresh.unwrap().tickets.is_none());

        // The device has the addresses that it was made with.
        let tun = "[tun]\naddress = [\"10.9.0.254\"]\n";
        let first = mobile(0, "10.9.0.7");
        let mut device = Read::new(&format!("{tun}{first}"));
        let more = format!("{tun}{first}{}", mobile(1, "10.9.0.8"));
        assert_eq!(device.restart(&more), ["mobiles"]);
    }

    /// FLT-4
    #[test]
    fn what_is_wrong_is_said_with_where_it_stands_and_what_was_before_counts() {
        let good = format!("{OWN}{}{}", peer(""), mobile(0, "10.9.0.7"));
        let mut base = Read::new(&good);
        for (text, said) in [
            (format!("{good}{}", mobile(1, "10.9.0.7")), "10.9.0.7 is another mobile's"),
            (good.replace("192.0.2.2:4434", "192.0.2.2:0"), "cannot be reached"),
            (format!("{OWN}{}", mobile(2, "10.9.0.7")), "not in `allow`"),
            (format!("{OWN}{}", peer("psk = \"/nowhere/b2.psk\"\n")), "/nowhere/b2.psk"),
            (
                OWN.replace("[handoff]", "[handoff]\nfleet_keys = [\"/nowhere/fleet.key\"]"),
                "/nowhere/fleet.key",
            ),
        ] {
            let Err(why) = base.read(&text) else { panic!("{text}") };
            assert!(why.contains(said), "{why}");
            assert!(why.contains("base.toml") || why.contains("/nowhere"), "{why}");
            base.taken(&good);
        }
    }
}
