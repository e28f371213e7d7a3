//! From records to the files that a base reads. Nothing here reads or writes anything.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use lasthop_daemon::base::Acknowledge;
use lasthop_hop::seal::PresharedKey;

use crate::records::{BaseRecord, Key, MobileRecord, Name, OwnBase, Place, Records};

/// The file of members, in a base's folder.
pub const MEMBERS: &str = "members.toml";

/// What is written for a base.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Files {
    /// The text of [`MEMBERS`].
    pub members: String,
    /// The keys of tickets by their files' names, the one in use first.
    pub tickets: Vec<(String, PresharedKey)>,
    /// Records that contradict others, and why they are left out.
    pub problems: Vec<(String, String)>,
}

/// The name of the file that holds the key of tickets with this number.
pub fn ticket_file(generation: u64) -> String {
    format!("tickets-{generation}.key")
}

/// Whether a file may be one that held a key of tickets.
pub fn is_ticket_file(name: &str) -> bool {
    let number = name.strip_prefix("tickets-").and_then(|rest| rest.strip_suffix(".key"));
    number.is_some_and(|n| !n.is_empty() && n.bytes().all(|c| c.is_ascii_digit()))
}

/// The files of the base `own`, which are in `folder`. The same records make the same files.
pub fn files(records: &Records, own: &OwnBase, folder: &Path) -> Files {
    let mut problems = Vec::new();
    let none = Records::default();
    // A base that is not of the fleet any more knows nobody.
    let revoked = records.revoked.contains_key(&own.key);
    let records = if revoked { &none } else { records };
    let numbered = records.tickets.iter().flat_map(|keys| keys.numbered());
    let tickets: Vec<_> = numbered.map(|(n, key)| (ticket_file(n), key.clone())).collect();
    let paths: Vec<PathBuf> = tickets.iter().map(|(name, _)| folder.join(name)).collect();
    let mobiles = mobiles(records, &mut problems);
    let peers = peers(records, own, &mut problems);
    let members = text(&own.name, &paths, &peers, &mobiles);
    Files { members, tickets, problems }
}

/// Mobiles in the order of their names: those that are not revoked, and of which no other has an address.
fn mobiles<'a>(
    records: &'a Records,
    problems: &mut Vec<(String, String)>,
) -> Vec<&'a MobileRecord> {
    let bases: BTreeSet<Key> = records.bases.values().map(|base| base.key).collect();
    let mut sorted: Vec<&MobileRecord> = records.mobiles.values().collect();
    sorted.sort_by(|a, b| (&a.name, a.key).cmp(&(&b.name, b.key)));
    let mut taken: BTreeSet<IpAddr> = BTreeSet::new();
    let mut good: Vec<&MobileRecord> = Vec::new();
    for mobile in sorted {
        let mut refuse = |why: String| {
            problems.push((format!("{}{}", Place::MOBILES, mobile.key.path()), why));
        };
        if records.revoked.contains_key(&mobile.key) {
            continue;
        }
        if bases.contains(&mobile.key) {
            refuse(format!("{} has the key of a base", mobile.name));
        } else if let Some(ip) = mobile.own().find(|ip| taken.contains(ip)) {
            refuse(format!("{}: {ip} is another mobile's already", mobile.name));
        } else {
            taken.extend(mobile.own());
            good.push(mobile);
        }
    }
    good
}

/// The other bases in the order of their names: those that are not revoked, one for each key.
fn peers<'a>(
    records: &'a Records,
    own: &OwnBase,
    problems: &mut Vec<(String, String)>,
) -> Vec<&'a BaseRecord> {
    let mut taken = BTreeSet::from([own.key]);
    let mut good = Vec::new();
    for base in records.bases.values().filter(|base| base.name != own.name) {
        if records.revoked.contains_key(&base.key) {
            continue;
        }
        if taken.insert(base.key) {
            good.push(base);
        } else {
            let place = format!("{}{}", Place::BASES, base.name);
            problems.push((place, format!("{} has the key of another base", base.name)));
        }
    }
    good
}

fn text(
    own: &Name,
    tickets: &[PathBuf],
    peers: &[&BaseRecord],
    mobiles: &[&MobileRecord],
) -> String {
    let mut out = format!(
        "# Written by `lasthop fleet agent` of the base {own}, which overwrites what is changed here.\n"
    );
    out.push_str("allow = [\n");
    for mobile in mobiles {
        line(&mut out, format_args!("    \"{}\", # {}", mobile.key, mobile.name));
    }
    out.push_str("]\n");
    if !tickets.is_empty() {
        let paths = list(tickets.iter().map(|path| path.display()));
        line(&mut out, format_args!("\n[handoff]\nfleet_keys = {paths}"));
    }
    for base in peers {
        let BaseRecord { name, key, peer, hop, via, .. } = base;
        line(&mut out, format_args!("\n[[peers]]\nname = \"{name}\"\nkey = \"{key}\""));
        line(&mut out, format_args!("address = \"{peer}\"\nhop = \"{hop}\""));
        if let Some(via) = via {
            line(&mut out, format_args!("via = \"{via}\""));
        }
    }
    for mobile in mobiles.iter().filter(|mobile| mobile.has_addresses()) {
        let MobileRecord { name, key, address, network, tun, acknowledge } = mobile;
        line(&mut out, format_args!("\n# {name}\n[[mobiles]]\nkey = \"{key}\""));
        let lists = [("address", list(address)), ("network", list(network)), ("tun", list(tun))];
        for (what, list) in lists.iter().filter(|(_, list)| list != "[]") {
            line(&mut out, format_args!("{what} = {list}"));
        }
        if *acknowledge != Acknowledge::default() {
            line(&mut out, format_args!("acknowledge = \"{acknowledge}\""));
        }
    }
    out
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing into a text does not fail.
    let _ = writeln!(out, "{text}");
}

/// A list of texts, as TOML has it.
fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let quoted = |item: T| toml::Value::String(item.to_string()).to_string();
    format!("[{}]", items.into_iter().map(quoted).collect::<Vec<_>>().join(", "))
}

/// The configuration of a mobile, whose secret key is in the file `key`: all bases of the fleet that have a
/// place in it, and how many have not.
pub fn mobile(
    records: &Records,
    fleet: &Name,
    mobile: &MobileRecord,
    key: &Path,
) -> (String, usize) {
    let of_fleet = |base: &&BaseRecord| !records.revoked.contains_key(&base.key);
    let bases: Vec<&BaseRecord> = records.bases.values().filter(of_fleet).collect();
    let shown = &bases[..bases.len().min(BASES_MAX)];
    let mut out = format!(
        "# The mobile {} of the fleet {fleet}: lasthop mobile --config FILE\n",
        mobile.name
    );
    line(&mut out, format_args!("# Its public key is {}", mobile.key));
    let key = toml::Value::String(key.display().to_string());
    line(&mut out, format_args!("key = {key}"));
    for BaseRecord { name, key, hop, .. } in shown {
        line(&mut out, format_args!("\n[[bases]]\nname = \"{name}\"\naddress = \"{hop}\""));
        line(&mut out, format_args!("key = \"{key}\""));
    }
    (out, bases.len() - shown.len())
}

/// As many bases as a mobile can know.
pub const BASES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use lasthop_daemon::base::BaseFile;
    use lasthop_daemon::mobile::{MobileConfig, MobileFile};
    use lasthop_hop::seal::PublicKey;
    use lasthop_units::Seed;
    use proptest::prelude::*;

    use super::*;
    use crate::records::{RevokedRecord, TicketKeys};

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn key(n: u8) -> Key {
        Key(PublicKey::from_bytes([n; 32]))
    }

    fn psk(n: u64) -> PresharedKey {
        PresharedKey::generate(Seed::from_u64(n))
    }

    fn base(n: u8, via: Option<&str>) -> BaseRecord {
        BaseRecord {
            name: name(&format!("b{n}")),
            key: key(n),
            peer: format!("192.0.2.{n}:4434").parse().unwrap(),
            hop: format!("192.0.2.{n}:4433").parse().unwrap(),
            via: via.map(|ip| ip.parse().unwrap()),
            user: None,
        }
    }

    fn mobile_of(n: u8, address: &[&str]) -> MobileRecord {
        MobileRecord {
            name: name(&format!("m{n}")),
            key: key(n),
            address: address.iter().map(|ip| ip.parse().unwrap()).collect(),
            network: Vec::new(),
            tun: Vec::new(),
            acknowledge: Acknowledge::Base,
        }
    }

    fn records() -> Records {
        let tickets = Some(TicketKeys::first(psk(1)).rotated(psk(2), true));
        let mut records = Records { tickets, ..Records::default() };
        for base in [base(1, None), base(2, Some("192.0.2.254")), base(3, None)] {
            records.bases.insert(base.name.clone(), base);
        }
        let mut m8 = mobile_of(8, &["10.9.0.8", "2001:db8::8"]);
        m8.network.push("10.8.0.0/16".parse().unwrap());
        m8.tun.push("10.7.0.8".parse().unwrap());
        m8.acknowledge = Acknowledge::Mobile;
        for mobile in [mobile_of(9, &[]), m8] {
            records.mobiles.insert(mobile.key, mobile);
        }
        records
    }

    fn revoke(records: &mut Records, n: u8) {
        let revoked = RevokedRecord { when: 0, name: None, why: Default::default() };
        records.revoked.insert(key(n), revoked);
    }

    fn files_of(records: &Records) -> Files {
        files(records, &OwnBase { name: name("b1"), key: key(1) }, Path::new("/etc/lasthop"))
    }

    #[test]
    fn the_file_of_members() {
        let files = files_of(&records());
        let golden = r#"# Written by `lasthop fleet agent` of the base b1, which overwrites what is changed here.
allow = [
    "CAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAg=", # m8
    "CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQk=", # m9
]

[handoff]
fleet_keys = ["/etc/lasthop/tickets-2.key", "/etc/lasthop/tickets-1.key"]

[[peers]]
name = "b2"
key = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI="
address = "192.0.2.2:4434"
hop = "192.0.2.2:4433"
via = "192.0.2.254"

[[peers]]
name = "b3"
key = "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM="
address = "192.0.2.3:4434"
hop = "192.0.2.3:4433"

# m8
[[mobiles]]
key = "CAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAg="
address = ["10.9.0.8", "2001:db8::8"]
network = ["10.8.0.0/16"]
tun = ["10.7.0.8"]
acknowledge = "mobile"
"#;
        assert_eq!(files.members, golden);
        let keys: Vec<_> = files.tickets.iter().map(|(file, key)| (file.as_str(), key)).collect();
        assert_eq!(keys, [("tickets-2.key", &psk(2)), ("tickets-1.key", &psk(1))]);
        assert!(files.problems.is_empty());
    }

    /// What a base makes of the members, with what its own file has beside them.
    fn read(members: &str) -> Result<lasthop_daemon::base::BaseConfig, String> {
        let mut file: toml::Table = members.parse().map_err(|e| format!("{e}"))?;
        file.insert("key".into(), "base.key".into());
        if let Some(handoff) = file.get_mut("handoff").and_then(|h| h.as_table_mut()) {
            handoff.insert("mode".into(), "migrate".into());
        }
        let text = file.to_string();
        let file: BaseFile = toml::from_str(&text).map_err(|e| e.to_string())?;
        file.try_into().map_err(|e: lasthop_control::config::ConfigError| e.to_string())
    }

    #[test]
    fn a_base_reads_what_is_written() {
        let config = read(&files_of(&records()).members).unwrap();
        assert_eq!(config.allow.len(), 2);
        let handoff = config.handoff.unwrap();
        assert_eq!(handoff.peers.len(), 2);
        assert_eq!(handoff.settings.fleet_keys.len(), 2);
    }

    #[test]
    fn who_is_revoked_is_in_no_file() {
        let mut records = records();
        [8, 3].into_iter().for_each(|n| revoke(&mut records, n));
        let files = files_of(&records);
        for gone in ["m8", "b3"] {
            assert!(!files.members.contains(gone), "{}", files.members);
        }
        assert!(files.members.contains("m9") && files.members.contains("b2"));
        revoke(&mut records, 1);
        let files = files_of(&records);
        assert!(files.tickets.is_empty());
        assert!(files.members.ends_with("allow = [\n]\n"), "{}", files.members);
    }

    #[test]
    fn records_that_contradict_each_other_are_left_out_and_named() {
        let mut records = records();
        for mobile in [mobile_of(10, &["10.7.0.8"]), mobile_of(2, &[])] {
            records.mobiles.insert(mobile.key, mobile);
        }
        let twin = BaseRecord { name: name("b4"), ..base(3, None) };
        records.bases.insert(twin.name.clone(), twin);
        let files = files_of(&records);
        let said: Vec<&str> = files.problems.iter().map(|(_, why)| why.as_str()).collect();
        assert_eq!(
            said,
            [
                "m2 has the key of a base",
                "m8: 10.7.0.8 is another mobile's already",
                "b4 has the key of another base"
            ]
        );
        read(&files.members).unwrap();
    }

    #[test]
    fn a_mobile_reads_what_is_written_for_it() {
        let records = records();
        let (text, left) =
            mobile(&records, &name("trains"), &records.mobiles[&key(8)], Path::new("/x/m8.key"));
        assert_eq!(left, 0);
        let file: MobileFile = toml::from_str(&text).unwrap();
        MobileConfig::try_from(file).unwrap();
        assert_eq!(text.matches("[[bases]]").count(), 3, "{text}");
        let mut many = records.clone();
        for n in 20..40 {
            many.bases.insert(name(&format!("b{n}")), base(n, None));
        }
        let (text, left) = mobile(&many, &name("x"), &records.mobiles[&key(8)], Path::new("k"));
        assert_eq!(left, 23 - BASES_MAX);
        MobileConfig::try_from(toml::from_str::<MobileFile>(&text).unwrap()).unwrap();
    }

    proptest! {
        #[test]
        fn whatever_the_records_a_base_can_read_the_file(
            all in prop::collection::vec((0_u8..12, 0_u8..6, 0_u8..6, any::<bool>()), 0..20),
            gone in prop::collection::vec(0_u8..12, 0..4),
        ) {
            let mut records = records();
            for (n, one, two, is_base) in all {
                if is_base {
                    let twin = BaseRecord { name: name(&format!("b{one}")), ..base(n.max(1), None) };
                    records.bases.insert(twin.name.clone(), twin);
                } else {
                    let mut mobile = mobile_of(n, &[&format!("10.9.0.{one}")]);
                    mobile.tun.push(format!("10.9.1.{two}").parse().unwrap());
                    records.mobiles.insert(mobile.key, mobile);
                }
            }
            gone.into_iter().for_each(|n| revoke(&mut records, n));
            let files = files_of(&records);
            prop_assert_eq!(&files, &files_of(&records.clone()));
            // A base that serves nobody, or has no peers, says so; nothing else may be wrong.
            if let Err(why) = read(&files.members) {
                prop_assert!(why.contains("is missing"), "{}\n{}", why, files.members);
            }
        }
    }
}
