use std::net::IpAddr;

use lasthop_hop::seal::{PresharedKey, PublicKey};
use lasthop_units::Seed;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn key(n: u8) -> Key {
    Key(PublicKey::from_bytes([n; 32]))
}

fn base() -> Value {
    json!({ "name": "b1", "key": key(1), "peer": "192.0.2.1:4434", "hop": "192.0.2.1:4433" })
}

fn mobile() -> Value {
    json!({ "name": "m", "key": key(7), "address": ["10.9.0.7"], "acknowledge": "mobile" })
}

fn refusal(path: &str, value: &Value) -> String {
    let mut records = Records::default();
    let error = records.apply(path, Some(value.to_string().as_bytes())).unwrap_err();
    assert_eq!(records, Records::default());
    error.to_string()
}

fn with(mut record: Value, name: &str, value: Value) -> Value {
    record[name] = value;
    record
}

#[test]
fn a_place_is_read_as_it_is_written() {
    let name: Name = "b-1.x".parse().unwrap();
    for place in [
        Place::Settings,
        Place::TicketKeys,
        Place::Base(name.clone()),
        Place::Alive(name.clone()),
        Place::Held(key(255)),
        Place::Mobile(key(255)),
        Place::Revoked(key(3)),
        Place::Draining(name.clone()),
        Place::Token(name),
    ] {
        assert_eq!(Place::parse(&place.path()).unwrap(), Some(place));
    }
}

#[test]
fn what_another_version_wrote_is_left_alone() {
    let mut records = Records::default();
    records.apply("weather/today", Some(b"fine")).unwrap();
    records.apply("keys/other", Some(b"{}")).unwrap();
    let record = with(base(), "colour", json!("red"));
    records.apply("bases/b1", Some(record.to_string().as_bytes())).unwrap();
    assert_eq!(records.bases.len(), 1);
}

#[test]
fn what_is_wrong_with_a_record_is_said() {
    let mobile_path = Place::Mobile(key(7)).path();
    let two = json!(["10.0.0.1", "10.0.0.2"]);
    for (path, value, said) in [
        ("bases/b2", base(), "its name is b1"),
        ("bases/..", base(), "not a name"),
        ("bases/b1", with(base(), "peer", json!("0.0.0.0:4434")), "`peer`: nobody can be"),
        ("bases/b1", with(base(), "hop", json!("192.0.2.1:0")), "`hop`: nobody can be"),
        ("bases/b1", with(base(), "key", json!("x")), "44 base64 characters"),
        ("bases/b1", with(base(), "via", json!("there")), "not understood"),
        ("mobiles/x", mobile(), "not a public key"),
        (&Place::Mobile(key(8)).path(), mobile(), "its key is"),
        (&mobile_path, with(mobile(), "address", two), "two of one family"),
        (&mobile_path, with(mobile(), "tun", json!(["10.9.0.7"])), "stands there twice"),
        (&mobile_path, with(mobile(), "tun", json!(["0.0.0.0"])), "no host's address"),
        (&mobile_path, with(mobile(), "acknowledge", json!("none")), "not understood"),
        (&mobile_path, with(mobile(), "name", json!("a\u{1b}[2J")), "not a name"),
        ("keys/tickets", json!({ "generation": 1, "keys": [] }), "has 0 keys"),
        ("settings", json!([]), "not understood"),
    ] {
        let error = refusal(path, &value);
        assert!(error.contains(said), "{path} {value}: {error}");
    }
    let long = "x".repeat(LEN_MAX + 1);
    assert!(refusal("settings", &json!(long)).contains("bytes"));
}

#[test]
fn a_bad_record_takes_the_place_of_a_good_one() {
    let mut records = Records::default();
    let good = base().to_string();
    records.apply("bases/b1", Some(good.as_bytes())).unwrap();
    records.apply("bases/b1", Some(b"{")).unwrap_err();
    assert!(records.bases.is_empty());
    records.apply("bases/b1", Some(good.as_bytes())).unwrap();
    records.apply("bases/b1", None).unwrap();
    assert!(records.bases.is_empty());
}

#[test]
fn rotation_keeps_the_two_before_or_none() {
    let new = |n| PresharedKey::generate(Seed::from_u64(n));
    let mut keys = TicketKeys::first(new(0));
    for n in 1..5 {
        keys = keys.rotated(new(n), true);
        keys.check().unwrap();
    }
    let numbers: Vec<u64> = keys.numbered().map(|(n, _)| n).collect();
    assert_eq!(numbers, [5, 4, 3]);
    assert_eq!(keys.keys[2].0, new(2));
    let alone = keys.rotated(new(9), false);
    assert_eq!(alone.numbered().map(|(n, _)| n).collect::<Vec<_>>(), [6]);
    assert!(!format!("{keys:?}").contains(new(4).to_text().as_str()));
}

prop_compose! {
    fn mobiles()(
        name in "[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
        bytes: [u8; 32],
        v4: Option<[u8; 4]>,
        v6: Option<[u8; 16]>,
        networks in prop::collection::vec((any::<[u8; 4]>(), 0_u8..=32), 0..4),
        ends: bool,
    ) -> MobileRecord {
        let address = v4.map(IpAddr::from).into_iter().chain(v6.map(IpAddr::from)).collect();
        let network = networks.iter().map(|(ip, bits)| {
            format!("{}/{bits}", IpAddr::from(*ip)).parse().unwrap()
        }).collect();
        let acknowledge = if ends {
            lasthop_daemon::base::Acknowledge::Mobile
        } else {
            lasthop_daemon::base::Acknowledge::Base
        };
        let (name, key) = (name.parse().unwrap(), Key(PublicKey::from_bytes(bytes)));
        MobileRecord { name, key, address, network, tun: Vec::new(), acknowledge }
    }
}

proptest! {
    #[test]
    fn a_mobile_is_read_as_it_is_written(mobile in mobiles()) {
        prop_assume!(mobile.check().is_ok());
        let mut records = Records::default();
        records.apply(&Place::Mobile(mobile.key).path(), Some(&encode(&mobile))).unwrap();
        prop_assert_eq!(&records.mobiles[&mobile.key], &mobile);
    }

    #[test]
    fn no_key_and_no_value_makes_it_panic(
        folder in "settings|keys/tickets|(bases|alive|held|mobiles|revoked|draining|tokens|x)/.{0,50}",
        value: Vec<u8>,
        text in "\\PC{0,80}",
    ) {
        let mut records = Records::default();
        let _ = records.apply(&folder, Some(&value));
        let _ = records.apply(&folder, Some(text.as_bytes()));
        let _ = records.apply(&text, Some(&value));
    }

    #[test]
    fn no_change_to_a_good_record_makes_it_panic(at in 0_usize..200, byte: u8) {
        for (path, record) in [("bases/b1".to_owned(), base()), (Place::Mobile(key(7)).path(), mobile())] {
            let mut bytes = record.to_string().into_bytes();
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = Records::default().apply(&path, Some(&bytes));
        }
    }
}
