//! Agents and commands with real etcd processes: members that die, leases that end, races, numbers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says where")]

mod common;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use common::{Agent, Etcd, FakeBase, block_on, join, joining, name, patiently, until};
use etcd_client::{GetOptions, PutOptions};
use lasthop_daemon::base::Acknowledge;
use lasthop_fleet::commands::{self, Fleet, MobileOptions};
use lasthop_fleet::error::FleetError;
use lasthop_fleet::records::{Key, MobileRecord, Place, encode};
use lasthop_fleet::store::{Store, StoreError};
use lasthop_hop::seal::PublicKey;

fn key(n: u16) -> Key {
    let mut bytes = [0; 32];
    bytes[..2].copy_from_slice(&n.to_be_bytes());
    bytes[31] = 1;
    Key(PublicKey::from_bytes(bytes))
}

fn mobile(n: u16, address: &[&str], folder: &std::path::Path) -> MobileOptions {
    MobileOptions {
        name: name(&format!("m{n}")),
        address: address.iter().map(|ip| ip.parse().unwrap()).collect(),
        network: Vec::new(),
        tun: Vec::new(),
        acknowledge: Acknowledge::Base,
        key: Some(key(n)),
        folder: folder.to_owned(),
    }
}

async fn add(fleet: &Fleet, n: u16, folder: &std::path::Path) {
    let address = format!("10.9.{}.{}", n / 250, n % 250 + 1);
    let options = mobile(n, &[&address], folder);
    patiently(async || fleet.add_mobile(&options).await).await;
}

async fn is_alive(fleet: &Fleet, base: &str) -> bool {
    fleet.read().await.is_ok_and(|all| all.records.alive.contains_key(&name(base)))
}

async fn until_alive(fleet: &Fleet, base: &str) {
    let start = Instant::now();
    while !is_alive(fleet, base).await {
        assert!(start.elapsed() < common::PATIENCE, "{base} is not alive");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn members_of_etcd_die_and_files_stay_as_they_are() {
    let Some(mut etcd) = Etcd::start(3) else { return };
    block_on(async {
        let fleet = etcd.fleet().await;
        let folder = etcd.folder("bases");
        let mut agents = Vec::new();
        for n in 0..3 {
            agents.push(Agent::start(&join(&fleet, n, &folder).await));
        }
        until("they know each other", || {
            agents.iter().all(|agent| agent.members().matches("[[peers]]").count() == 2)
        })
        .await;

        etcd.kill(0);
        let operator = etcd.folder("mobiles");
        let reopened = Fleet::open(of_operator(&etcd)).await.unwrap();
        add(&reopened, 1, &operator).await;
        let took = until("one member less", || agents.iter().all(|a| a.has("# m1"))).await;
        println!("with one of three members killed, a mobile is at every base in {took:?}");

        let before: Vec<String> = agents.iter().map(Agent::members).collect();
        etcd.kill_all();
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert!(agents.iter().map(Agent::members).eq(before.iter().cloned()));
        }
        etcd.start_again();
        let start = Instant::now();
        let reopened = loop {
            match Fleet::open(of_operator(&etcd)).await {
                Ok(fleet) => break fleet,
                Err(error) => assert!(start.elapsed() < common::PATIENCE, "{error}"),
            }
        };
        add(&reopened, 2, &operator).await;
        until("etcd is back", || agents.iter().all(|a| a.has("# m2"))).await;
        let took = start.elapsed();
        println!("{took:?} after all start again, a mobile that is new then is at every base");
        for n in 0..3 {
            until_alive(&reopened, &format!("b{n}")).await;
        }
        for agent in agents {
            agent.stop().await;
        }
        assert!(reopened.read().await.unwrap().records.alive.is_empty());
    });
}

fn of_operator(etcd: &Etcd) -> lasthop_fleet::config::FleetFile {
    let path = etcd.folder("operator").join("fleet.toml");
    lasthop_fleet::config::FleetFile::load(&path).unwrap()
}

#[test]
fn a_member_of_etcd_that_hangs_is_left() {
    let Some(mut etcd) = Etcd::start(3) else { return };
    block_on(async {
        let fleet = etcd.fleet().await;
        let folder = etcd.folder("bases");
        let mut agents = Vec::new();
        for n in 0..6 {
            agents.push(Agent::start(&join(&fleet, n, &folder).await));
        }
        until("they know each other", || {
            agents.iter().all(|agent| agent.members().matches("[[peers]]").count() == 5)
        })
        .await;
        etcd.hang(0);
        let start = Instant::now();
        let fleet = patiently(async || Fleet::open(of_operator(&etcd)).await).await;
        add(&fleet, 1, &etcd.folder("mobiles")).await;
        until("with one that hangs", || agents.iter().all(|agent| agent.has("# m1"))).await;
        let took = start.elapsed();
        println!("{took:?} after one of three members hangs, a mobile is at every base");
        for agent in agents {
            agent.stop().await;
        }
    });
}

#[test]
fn a_lease_that_ended_is_made_anew_and_bad_records_are_left_out() {
    let Some(etcd) = Etcd::start(1) else { return };
    block_on(async {
        let fleet = etcd.fleet().await;
        let folder = join(&fleet, 0, &etcd.folder("bases")).await;
        let base = FakeBase::serve(&folder);
        base.serves(&[(&key(1).to_string(), 2)]);
        let agent = Agent::start(&folder);
        add(&fleet, 1, &etcd.folder("mobiles")).await;
        until("it has the mobile", || agent.has("# m1")).await;
        until_alive(&fleet, "b0").await;
        let mut client = etcd.client().await;
        let held = format!("/lasthop/trains/{}", Place::Held(key(1)).path());
        let start = Instant::now();
        let lease = loop {
            let found = client.get(held.as_str(), None).await.unwrap();
            match found.kvs().first() {
                Some(pair) => break pair.lease(),
                None => assert!(start.elapsed() < common::PATIENCE),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        client.lease_revoke(lease).await.unwrap();
        assert!(!is_alive(&fleet, "b0").await);
        let start = Instant::now();
        until_alive(&fleet, "b0").await;
        println!("a lease that ended was made anew after {:?}", start.elapsed());
        let found = client.get(held.as_str(), None).await.unwrap();
        assert_ne!(found.kvs()[0].lease(), lease);

        // What anybody may have written there.
        let junk = [
            ("bases/x/y", "{}"),
            ("bases/..", "{"),
            ("mobiles/short", "{}"),
            (&Place::Mobile(key(9)).path(), "[1,2"),
            ("weather", "rain"),
            ("revoked/%", "\u{0}"),
        ];
        for (path, value) in junk {
            client.put(format!("/lasthop/trains/{path}"), value, None).await.unwrap();
        }
        add(&fleet, 2, &etcd.folder("mobiles")).await;
        until("it goes on", || agent.has("# m2")).await;
        assert!(agent.has("# m1"));
        let problems = fleet.read().await.unwrap().problems;
        assert_eq!(problems.len(), 5, "{problems:?}");

        // Another base comes to serve the mobile: that it leaves this one changes nothing there.
        let other = br#"{"base":"b5","connections":9,"since":1}"#.to_vec();
        client.put(held.as_str(), other.clone(), Some(PutOptions::new())).await.unwrap();
        base.serves(&[]);
        tokio::time::sleep(Duration::from_millis(2500)).await;
        let found = client.get(held.as_str(), None).await.unwrap();
        assert_eq!(found.kvs()[0].value(), other);
        agent.stop().await;
        assert!(!is_alive(&fleet, "b0").await);
    });
}

#[test]
fn what_must_not_happen_twice_does_not() {
    let Some(etcd) = Etcd::start(1) else { return };
    block_on(async {
        let fleet = etcd.fleet().await;
        let folder = etcd.folder("all");
        // A token is good for one of those who come at the same time, and so is an address, and a name.
        let token = fleet.token(Duration::from_secs(60)).await.unwrap();
        let all = [joining(token.clone(), 1, &folder), joining(token, 2, &folder)];
        let (one, two) =
            tokio::join!(commands::join(&all[0], |_| {}), commands::join(&all[1], |_| {}));
        let outcomes = [one.map(drop), two.map(drop)];
        let failed: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        assert!(matches!(failed[..], [FleetError::TokenSpent]), "{failed:?}");

        let rivals: Vec<_> = (1..=6).map(|n| mobile(n, &["10.9.0.9"], &folder)).collect();
        let (a, b, c, d, e, f) = tokio::join!(
            fleet.add_mobile(&rivals[0]),
            fleet.add_mobile(&rivals[1]),
            fleet.add_mobile(&rivals[2]),
            fleet.add_mobile(&rivals[3]),
            fleet.add_mobile(&rivals[4]),
            fleet.add_mobile(&rivals[5]),
        );
        let failed: Vec<_> = [a, b, c, d, e, f].into_iter().filter_map(Result::err).collect();
        assert_eq!(failed.len(), 5);
        assert!(failed.iter().all(|why| matches!(why, FleetError::Taken(_))), "{failed:?}");

        // What was done is done, for whom the answer did not reach.
        let again = mobile(20, &["10.9.0.20"], &folder);
        let made = MobileOptions { key: None, ..again };
        let first = fleet.add_mobile(&made).await.unwrap();
        std::fs::remove_file(&first.config).unwrap();
        let second = fleet.add_mobile(&made).await.unwrap();
        assert_eq!(first.key, second.key);
        let more = MobileOptions { address: Vec::new(), ..made };
        std::fs::remove_file(&second.config).unwrap();
        assert!(matches!(fleet.add_mobile(&more).await, Err(FleetError::Taken(_))));
        assert!(second.secret.unwrap().exists(), "a key that is in use is not removed");

        let named = |n| MobileOptions {
            name: name("same"),
            ..mobile(n, &[], &etcd.folder(&n.to_string()))
        };
        let rivals = [named(11), named(12)];
        let (one, two) = tokio::join!(fleet.add_mobile(&rivals[0]), fleet.add_mobile(&rivals[1]));
        assert!(one.is_ok() != two.is_ok());

        // A rotation is never lost.
        let (one, two) = tokio::join!(fleet.rotate(true), fleet.rotate(true));
        assert_eq!(BTreeSet::from([one.unwrap(), two.unwrap()]), BTreeSet::from([2, 3]));
        fleet.rotate(true).await.unwrap();
        let keys = fleet.read().await.unwrap().records.tickets.unwrap();
        assert_eq!((keys.generation, keys.keys.len()), (4, 3));

        // A token that nobody used runs out.
        let late = fleet.token(Duration::from_secs(1)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(3500)).await;
        let error = commands::join(&joining(late, 7, &folder), |_| {}).await.unwrap_err();
        assert!(matches!(error, FleetError::TokenSpent), "{error}");
    });
}

#[test]
fn changes_that_etcd_does_not_keep_are_not_followed() {
    let Some(etcd) = Etcd::start(1) else { return };
    block_on(async {
        let fleet = etcd.fleet().await;
        for _ in 0..4 {
            fleet.rotate(true).await.unwrap();
        }
        let revision = fleet.read().await.unwrap().revision;
        etcd.client().await.compact(revision, None).await.unwrap();
        let file = of_operator(&etcd);
        let access = file.access().unwrap();
        let store = Store::connect(&access, &file.name, 0).await.unwrap();
        let mut changes = store.watch(1).await.unwrap();
        // First it says that it follows.
        let error = loop {
            match changes.next().await {
                Ok(none) => assert!(none.is_empty(), "{none:?}"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, StoreError::Compacted(_)), "{error}");
    });
}

/// What a whole fleet does, in one process and with all of etcd's members on the same machine.
#[test]
fn a_hundred_bases_and_a_thousand_mobiles() {
    const BASES: usize = 100;
    const MOBILES: u16 = 1000;
    let Some(etcd) = Etcd::start(3) else { return };
    block_on(async {
        let fleet = etcd.fleet().await;
        let folder = etcd.folder("bases");
        let start = Instant::now();
        let mut client = etcd.client().await;
        // As many at once as etcd takes in a transaction.
        let all: Vec<u16> = (0..MOBILES).collect();
        for some in all.chunks(100) {
            let puts: Vec<_> = some
                .iter()
                .map(|n| {
                    let record = MobileRecord {
                        name: name(&format!("m{n}")),
                        key: key(*n),
                        address: vec![format!("10.9.{}.{}", n / 250, n % 250 + 1).parse().unwrap()],
                        network: Vec::new(),
                        tun: Vec::new(),
                        acknowledge: Acknowledge::Mobile,
                    };
                    let path = format!("/lasthop/trains/{}", Place::Mobile(key(*n)).path());
                    etcd_client::TxnOp::put(path, encode(&record), None)
                })
                .collect();
            client.txn(etcd_client::Txn::new().and_then(puts)).await.unwrap();
        }
        println!("{MOBILES} mobiles are in etcd after {:?}", start.elapsed());

        let start = Instant::now();
        let mut folders = Vec::new();
        for n in 0..BASES {
            folders.push(join(&fleet, n, &folder).await);
        }
        let each = start.elapsed() / u32::try_from(BASES).unwrap();
        println!("{BASES} bases joined, {each:?} each with its token and its files");

        let start = Instant::now();
        let agents: Vec<_> = folders.iter().map(|folder| Agent::start(folder)).collect();
        let peers = |agent: &Agent| agent.members().matches("[[peers]]").count();
        until("all know all", || agents.iter().all(|agent| peers(agent) == BASES - 1)).await;
        println!("{BASES} agents started, and all files are right after {:?}", start.elapsed());
        let start = Instant::now();
        loop {
            let alive = fleet.read().await.unwrap().records.alive.len();
            if alive == BASES {
                break;
            }
            assert!(start.elapsed() < common::PATIENCE, "{alive} are alive");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }

        join(&fleet, BASES, &folder).await;
        let took = until("a join", || agents.iter().all(|a| a.has(&format!("\"b{BASES}\"")))).await;
        println!("a base that joins is in every agent's file after {took:?}");

        fleet.revoke("m7", Default::default()).await.unwrap();
        let gone = key(7).to_string();
        let took = until("a revocation", || agents.iter().all(|a| !a.has(&gone))).await;
        println!("a mobile that is revoked is in no agent's file after {took:?}");

        fleet.rotate(true).await.unwrap();
        let has = |agent: &Agent| agent.tickets().contains("tickets-2.key");
        let took = until("a new key", || agents.iter().all(has)).await;
        println!("a new key of tickets is at every base after {took:?}");
        let only = GetOptions::new().with_prefix().with_count_only();
        let records = client.get("/lasthop/trains/", Some(only)).await.unwrap().count();
        println!("etcd has {records} records");
        for agent in agents {
            agent.stop().await;
        }
    });
}
