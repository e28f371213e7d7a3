//! A base's configuration of handoffs: how connections move, and which bases there are.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use lasthop_control::{choice, settings};
use lasthop_hop::seal::PublicKey;
use lasthop_kernel::network::Network;
use lasthop_migrate::{NETWORKS_MAX, RouteMode};
use lasthop_units::{Duration, Span};

use crate::backhaul::Peer;
use crate::config::{ConfigError, KeyText, SealKind};

/// Where other bases are served when nobody says.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 4434);

choice! {
    /// How a wired connection follows its mobile.
    #[derive(Default)]
    pub enum Mode: "no way of moving" {
        /// Its socket stays where it was made, and that base passes the bytes on.
        #[default]
        Anchor = "anchor",
        /// It moves as it is, with the same four-tuple.
        Migrate = "migrate",
    }
}

choice! {
    /// What becomes of a connection that cannot migrate.
    #[derive(Default)]
    pub enum Fallback: "no fallback" {
        /// Its socket stays, and the bytes are passed on.
        #[default]
        Anchor = "anchor",
        /// It is reset.
        Reset = "reset",
    }
}

choice! {
    /// What a fixed host is acknowledged.
    #[derive(Default)]
    pub enum Acknowledge: "nothing that is acknowledged" {
        /// What the base has, as whoever splits a connection does.
        #[default]
        Base = "base",
        /// What the mobile has.
        Mobile = "mobile",
    }
}

/// After how long a silent base is taken for dead where nobody says.
const TAKE_OVER: Duration = Duration::from_millis(400);

/// For how long what the mobile does not have is not acknowledged where nobody says.
const HOLD: Duration = Duration::from_secs(60);

/// How long a base that is to end waits for its mobiles to leave where nobody says.
const DRAIN: Duration = Duration::from_secs(30);

settings! {
    /// The `[handoff]` table.
    pub struct HandoffFile {
        /// How connections move.
        #[range(Mode::range())]
        pub mode: Option<Mode> = Mode::default(),
        /// Where other bases reach this one.
        pub listen: Option<Vec<SocketAddr>> = vec![LISTEN],
        /// What becomes of a connection that does not leave from its mobile's address.
        #[range(Fallback::range())]
        pub fallback: Option<Fallback> = Fallback::default(),
        /// How packets for a mobile's address find its base: `announce`, `route`, `hook` or `none`.
        pub route: Option<RouteMode> = RouteMode::default(),
        /// The wired interface, for `announce` and `route`.
        pub interface: Option<String>,
        /// The command of `route = "hook"` and its first arguments.
        pub hook: Vec<String>,
        /// The socket of a helper that somebody else starts.
        pub helper: Option<PathBuf>,
        /// Files of keys that all bases share which [take over](acknowledgements.md#when-a-base-dies) from each other: the
        /// first is the one in use, others are those before it.
        pub fleet_keys: Vec<PathBuf>,
        /// With `fleet_keys`: a base that has a mobile's connections and is silent for so long is taken for dead.
        pub take_over: Option<Span> = Span(TAKE_OVER),
        /// On SIGTERM its mobiles are [told to leave](moving.md#emptying-a-base), and it ends when they have, or after so long;
        /// `0s`: at once.
        pub drain: Option<Span> = Span(DRAIN),
    }
}

settings! {
    entry
    /// A `[[peers]]` table.
    pub struct PeerFile {
        /// Its public key.
        pub key: KeyText,
        /// Where it listens for bases, as `IP:PORT`.
        pub address: SocketAddr,
        /// Where it serves mobiles, as `IP:PORT`, so that this base can [pass on](links.md#links-to-different-bases) what is
        /// for it.
        pub hop: Option<SocketAddr> => "the IP of `address`, with the port on which mobiles are served here",
        /// What logs and reports call it.
        pub name: Option<String> => "the key",
        /// The file with the [pre-shared key](#pre-shared-keys) with it.
        pub psk: Option<PathBuf>,
        /// Where the wired network reaches it, for routes.
        pub via: Option<IpAddr> => "the IP of `address`",
    }
}

settings! {
    entry
    /// A `[[mobiles]]` table.
    pub struct MobileEntry {
        /// Its public key, which `allow` must name.
        pub key: KeyText,
        /// The addresses from which its connections leave, at most one of each family.
        #[serde(default)]
        pub address: Vec<IpAddr>,
        /// Networks behind it, whose hosts leave from their own addresses ([without proxy
        /// settings](transparent.md)).
        #[serde(default)]
        pub network: Vec<Network>,
        /// Addresses from which nothing but its [packets](datagrams.md) leaves.
        #[serde(default)]
        pub tun: Vec<IpAddr>,
        /// What fixed hosts are [acknowledged](acknowledgements.md) of what its connections carry to it.
        #[range(Acknowledge::range())]
        pub acknowledge: Option<Acknowledge> = Acknowledge::default(),
        /// With `acknowledge = "mobile"`: what the mobile does not have after so long is acknowledged all the same.
        pub hold: Option<Span> = Span(HOLD),
    }
}

/// All that a base needs to know of handoffs.
#[derive(Clone, Debug)]
pub struct HandoffConfig {
    /// The `[handoff]` table.
    pub settings: HandoffFile,
    /// The other bases.
    pub peers: Vec<Peer>,
}

impl MobileEntry {
    /// From where its packets may come.
    pub(in crate::base) fn sources(&self) -> impl Iterator<Item = Network> {
        let addresses = self.address.iter().chain(&self.tun).copied().map(Network::from);
        addresses.chain(self.network.iter().copied())
    }

    /// Whether its fixed hosts are acknowledged what it has.
    pub(in crate::base) fn is_held(&self) -> bool {
        self.acknowledge() == Acknowledge::Mobile
    }

    /// One of all its addresses.
    pub(in crate::base) fn any(&self) -> Option<IpAddr> {
        let network = self.network.first().map(|network| network.prefix().0);
        self.address.first().copied().or(network).or(self.tun.first().copied())
    }
}

fn contradiction<T>(why: String) -> Result<T, ConfigError> {
    Err(ConfigError::Contradiction(why))
}

/// What handoffs need, if there is another base, or may be one: a base that `is_of_fleet` has others once they join. `seal` is
/// the hop's.
///
/// # Errors
///
/// Names the setting that is missing or contradicts another.
pub(in crate::base) fn configured(
    file: Option<HandoffFile>,
    peers: Vec<PeerFile>,
    mobiles: &[MobileEntry],
    seal: SealKind,
    is_of_fleet: bool,
) -> Result<Option<HandoffConfig>, ConfigError> {
    if peers.is_empty() {
        match file {
            None => return Ok(None),
            Some(_) if is_of_fleet => {}
            Some(_) => {
                return Err(ConfigError::Missing {
                    what: "another base to hand over to",
                    how: "say [[peers]] with `key = \"PUBLIC KEY\"` and `address = \"IP:PORT\"`",
                });
            }
        }
    }
    if seal == SealKind::None {
        return contradiction(
            "other bases have no meaning with seal = \"none\": nobody can prove whose connections are \
             handed over"
                .to_owned(),
        );
    }
    let settings = file.unwrap_or_default();
    let route = settings.route();
    if settings.mode() == Mode::Migrate && mobiles.is_empty() && !is_of_fleet {
        return Err(ConfigError::Missing {
            what: "an address that can move",
            how: "say [[mobiles]] with `key` and `address = [\"IP\"]` for each mobile, or \
                  `mode = \"anchor\"`",
        });
    }
    if matches!(route, RouteMode::Announce | RouteMode::Route) && settings.interface.is_none() {
        return Err(ConfigError::Missing {
            what: "the wired interface",
            how: "say `interface = \"NAME\"` under [handoff] (see ip link)",
        });
    }
    if !settings.fleet_keys.is_empty() && settings.mode() != Mode::Migrate {
        return contradiction(
            "`fleet_keys` needs `mode = \"migrate\"`: a connection of a base's own address ends with \
             that base"
                .to_owned(),
        );
    }
    if (route == RouteMode::Hook) == settings.hook.is_empty() {
        return contradiction(
            "`route = \"hook\"` and `hook = [\"COMMAND\"]` belong together".to_owned(),
        );
    }
    Ok(Some(HandoffConfig { settings, peers: self::peers(peers)? }))
}

fn peers(files: Vec<PeerFile>) -> Result<Vec<Peer>, ConfigError> {
    let mut out: Vec<Peer> = Vec::new();
    for PeerFile { name, key: KeyText(key), psk, address, hop, via } in files {
        let name = name.unwrap_or_else(|| key.to_string());
        if let Some(other) = out.iter().find(|p| p.key == key || p.name == name) {
            return contradiction(format!("`peers`: {} stands there twice", other.name));
        }
        if address.port() == 0 || address.ip().is_unspecified() {
            return contradiction(format!("`peers`: {name} cannot be reached at {address}"));
        }
        if let Some(hop) = hop.filter(|hop| hop.port() == 0 || hop.ip().is_unspecified()) {
            return contradiction(format!("`peers`: {name} serves no mobiles at {hop}"));
        }
        out.push(Peer { name, key, psk, address, hop, via: via.unwrap_or(address.ip()) });
    }
    Ok(out)
}

/// Checks the addresses of mobiles, each of which `allow` must name.
///
/// # Errors
///
/// A mobile or an address stands there twice, the mobile is not served, or there are more addresses than a helper works for.
pub(in crate::base) fn check_mobiles(
    mobiles: &[MobileEntry],
    allow: &[PublicKey],
) -> Result<(), ConfigError> {
    for (n, MobileEntry { key: KeyText(key), address, tun, .. }) in mobiles.iter().enumerate() {
        if !allow.contains(key) {
            return contradiction(format!("`mobiles`: the mobile {key} is not in `allow`"));
        }
        if mobiles[..n].iter().any(|other| other.key.0 == *key) {
            return contradiction(format!("`mobiles`: {key} stands there twice"));
        }
        let own = || address.iter().chain(tun);
        let others =
            || mobiles[..n].iter().flat_map(|other| other.address.iter().chain(&other.tun));
        if let Some(ip) = own().find(|ip| others().any(|other| other == *ip)) {
            return contradiction(format!("`mobiles`: {ip} is another mobile's already"));
        }
        for family in [IpAddr::is_ipv4, IpAddr::is_ipv6] {
            if address.iter().filter(|ip| family(ip)).count() > 1 {
                return contradiction(format!("`mobiles`: {key} has two addresses of one family"));
            }
        }
    }
    let count = mobiles.iter().flat_map(MobileEntry::sources).count();
    if count > NETWORKS_MAX {
        return contradiction(format!(
            "`mobiles`: {count} addresses and networks are more than {NETWORKS_MAX}"
        ));
    }
    match mobiles.iter().find(|mobile| mobile.sources().next().is_none()) {
        Some(mobile) => contradiction(format!("`mobiles`: {} has no address", mobile.key.0)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{BaseConfig, BaseFile};

    fn key(n: u8) -> PublicKey {
        PublicKey::from_bytes([n; 32])
    }

    fn read(text: &str) -> Result<BaseConfig, ConfigError> {
        let all = format!("key = \"base.key\"\nallow = [\"{}\"]\n{text}", key(1));
        let file: BaseFile = toml::from_str(&all).unwrap();
        file.try_into()
    }

    fn peer(n: u8, rest: &str) -> String {
        format!("[[peers]]\nkey = \"{}\"\n{rest}\n", key(n))
    }

    #[test]
    fn a_base_with_peers_hands_over_and_one_without_does_not() {
        assert!(read("").unwrap().handoff.is_none());
        let text = peer(2, "name = \"b2\"\naddress = \"192.0.2.2:4434\"");
        let handoff = read(&text).unwrap().handoff.unwrap();
        let settings = &handoff.settings;
        assert_eq!((settings.mode(), settings.fallback()), (Mode::Anchor, Fallback::Anchor));
        assert_eq!(settings.listen(), [LISTEN]);
        let peer = &handoff.peers[0];
        assert_eq!(peer.psk, None);
        assert_eq!((peer.name.as_str(), peer.via.to_string()), ("b2", "192.0.2.2".to_owned()));
    }

    #[test]
    fn a_peer_may_have_a_pre_shared_key() {
        let text = peer(2, "psk = \"b2.psk\"\naddress = \"192.0.2.2:4434\"");
        let handoff = read(&text).unwrap().handoff.unwrap();
        assert_eq!(handoff.peers[0].psk, Some(PathBuf::from("b2.psk")));
    }

    #[test]
    fn what_a_base_cannot_mean_is_named() {
        let good = peer(2, "address = \"192.0.2.2:4434\"");
        let mobile = |n: u8, address: &str| {
            format!("[[mobiles]]\nkey = \"{}\"\naddress = {address}\n", key(n))
        };
        for (text, said) in [
            ("[handoff]\nmode = \"anchor\"".to_owned(), "[[peers]]"),
            (format!("seal = \"none\"\n{good}"), "seal"),
            (
                format!(
                    "hop = \"mobile-tcp\"\n{}",
                    mobile(1, "[\"10.0.0.1\"]\nacknowledge = \"mobile\"")
                ),
                "hop = \"srp\"",
            ),
            (format!("[handoff]\nmode = \"migrate\"\n{good}"), "[[mobiles]]"),
            (format!("[handoff]\nroute = \"announce\"\n{good}"), "interface"),
            (format!("[handoff]\nroute = \"hook\"\n{good}"), "hook"),
            (format!("[handoff]\nfleet_keys = [\"fleet.key\"]\n{good}"), "migrate"),
            (format!("[handoff]\nhook = [\"x\"]\n{good}"), "hook"),
            (format!("{good}{good}"), "twice"),
            (peer(2, "address = \"0.0.0.0:4434\""), "cannot be reached"),
            (peer(2, "address = \"192.0.2.2:0\""), "cannot be reached"),
            (peer(2, "address = \"192.0.2.2:4434\"\nhop = \"[::]:4433\""), "serves no mobiles"),
            (mobile(3, "[]"), "not in `allow`"),
            (format!("{}{}", mobile(1, "[]"), mobile(1, "[]")), "twice"),
            (mobile(1, "[\"10.0.0.1\", \"10.0.0.2\"]"), "two addresses"),
            (mobile(1, "[]"), "has no address"),
            (
                format!("{}network = [{}]", mobile(1, "[]"), "\"10.0.0.0/8\", ".repeat(4097)),
                "4097 addresses and networks",
            ),
            ("[[packets]]\nprogram = \"x\"\nclass = \"call\"".to_owned(), "knows no programs"),
        ] {
            let all = match text.strip_prefix("seal = \"none\"\n") {
                Some(rest) => {
                    let file: BaseFile =
                        toml::from_str(&format!("seal = \"none\"\n{rest}")).unwrap();
                    BaseConfig::try_from(file)
                }
                None => read(&text),
            };
            let error = all.unwrap_err().to_string();
            assert!(error.contains(said), "{text}\n{error}");
        }
    }
}
