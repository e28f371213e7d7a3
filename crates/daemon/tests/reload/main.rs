//! A base reads its configuration again while mobiles use it, and serves them by several workers, over loopback.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod addresses;
mod workers;
mod world;

use std::fs::Permissions;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lasthop_control::{self as control, Reloaded, Request};
use lasthop_daemon::base::{Base, BaseConfig, BaseFile};
use lasthop_daemon::config;
use lasthop_daemon::keyfile::{self, Existing};
use lasthop_daemon::mobile::{Mobile, MobileConfig, MobileFile};

use self::world::{
    PATIENCE, World, echo_server, free_ports, is_reset, mobile, pattern, publish, source, write,
};

const HOPS: [&str; 3] = ["srp", "mobile-tcp", "split-tcp"];

#[test]
fn a_mobile_that_is_revoked_is_out_and_another_s_transfer_is_whole() {
    for hop in HOPS {
        let doors = free_ports::<2>();
        let world = World::start(hop, 2, 2, &[(doors[0], 0), (doors[1], 1)]);
        world.await_mobiles(&[0, 1]);
        let (source, ends) = source();
        let mut victim = world.connect(0, source);
        victim.read_exact(&mut [0; 5000]).unwrap();
        let mut through_door = TcpStream::connect(doors[0]).unwrap();
        through_door.set_read_timeout(Some(PATIENCE)).unwrap();
        through_door.write_all(b"hello").unwrap();
        through_door.read_exact(&mut [0; 5]).unwrap();
        let sent = pattern(3_000_000);
        let mut other = world.connect(1, echo_server());
        let mut writer = other.try_clone().unwrap();
        let data = sent.clone();
        let (half, halfway) = mpsc::channel();
        let writing = thread::spawn(move || {
            let (first, rest) = data.split_at(1_000_000);
            writer.write_all(first).unwrap();
            // Some of it is sent after the other mobile is out.
            halfway.recv().unwrap();
            writer.write_all(rest).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut got = vec![0; 500_000];
        other.read_exact(&mut got).unwrap();

        world.allow(&[1]);
        let reloaded = world.reload().unwrap();
        // Its rule stands for what nobody answers any more.
        let restart = vec!["publish".to_owned()];
        assert_eq!(reloaded, Reloaded { removed: 1, restart, ..Reloaded::default() }, "{hop}");
        // What is asked next finds it gone: its associations, its connections, its doors.
        assert_eq!(world.present(), [1], "{hop}");
        let report = world.report();
        assert_eq!((report.associations.len(), report.connections.len()), (1, 1), "{hop}");
        assert!(is_reset(ends.recv_timeout(PATIENCE).unwrap()), "{hop}");
        let end = through_door.read(&mut [0; 10]).unwrap_err();
        assert_eq!(end.kind(), ErrorKind::ConnectionReset, "{hop}");
        let refused = TcpStream::connect(doors[0]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{hop}");

        half.send(()).unwrap();
        other.read_to_end(&mut got).unwrap();
        writing.join().unwrap();
        assert!(got == sent, "{hop}: bytes were lost, changed or doubled");
        let mut stream = TcpStream::connect(doors[1]).unwrap();
        stream.write_all(b"hello").unwrap();
        stream.read_exact(&mut [0; 5]).unwrap();
        // It asks again and again by now.
        let counted = world.report().counters;
        thread::sleep(Duration::from_millis(1500));
        assert_eq!(world.present(), [1], "{hop}: {counted:?}");

        // And is welcome once more.
        world.allow(&[0, 1]);
        assert_eq!(world.reload().unwrap().added, 1);
        world.await_mobiles(&[0, 1]);
        world.connect(0, echo_server());
    }
}

#[test]
fn a_mobile_that_is_added_comes_in_without_a_restart_and_a_signal_is_enough() {
    for hop in HOPS {
        let world = World::start(hop, 3, 1, &[]);
        world.await_mobiles(&[0]);
        let (source, ends) = source();
        let mut standing = world.connect(0, source);
        standing.read_exact(&mut [0; 100]).unwrap();
        world.allow(&[0, 1, 2]);
        world.base.stop.request_reload();
        world.await_mobiles(&[0, 1, 2]);
        world.connect(2, echo_server()).write_all(b"new").unwrap();
        standing.read_exact(&mut [0; 100]).unwrap();
        world.allow(&[2]);
        world.base.stop.request_reload();
        world.await_mobiles(&[2]);
        assert!(is_reset(ends.recv_timeout(PATIENCE).unwrap()), "{hop}");
    }
}

/// SEC-42: a pre-shared key that the base has from a reload on, and the mobile too, or not.
#[test]
fn a_pre_shared_key_that_is_added_changed_or_taken_away_counts_from_the_reload_on() {
    for hop in HOPS {
        let world = World::start(hop, 2, 2, &[]);
        world.await_mobiles(&[0, 1]);
        let (source, ends) = source();
        let mut standing = world.connect(1, source);
        standing.read_exact(&mut [0; 100]).unwrap();
        let path = world.dir.join("psk");
        let shared = keyfile::generate_psk().unwrap();
        keyfile::store_psk(&path, &shared, Existing::Keep).unwrap();
        world.share(&path);
        let counted = |added, removed| Reloaded { added, removed, ..Reloaded::default() };
        // The mobile does not have it.
        assert_eq!(world.reload().unwrap(), counted(1, 1), "{hop}");
        assert_eq!(world.reload().unwrap(), counted(0, 0), "{hop}");
        thread::sleep(Duration::from_secs(1));
        assert_eq!(world.present(), [1], "{hop}");
        world.allow(&[0, 1]);
        assert_eq!(world.reload().unwrap(), counted(1, 1), "{hop}");
        world.await_mobiles(&[0, 1]);
        // Another mobile, with the same secret key, has it.
        world.share(&path);
        world.reload().unwrap();
        let more = format!("psk = \"{}\"\n", path.display());
        let text = world.mobile_text.replace("NAME.sock", "other.sock");
        let (_, _running) = mobile(&text.replace("NAME", "mobile0"), &more);
        world.await_mobiles(&[0, 1]);
        // And the file has another key.
        let another = keyfile::generate_psk().unwrap();
        keyfile::store_psk(&path, &another, Existing::Replace).unwrap();
        assert_eq!(world.reload().unwrap(), counted(1, 1), "{hop}");
        thread::sleep(Duration::from_secs(1));
        assert_eq!(world.present(), [1], "{hop}");
        standing.read_exact(&mut [0; 100]).unwrap();
        assert!(ends.try_recv().is_err(), "{hop}: the other mobile noticed something");
    }
}

/// SEC-43: a file that cannot be used is named, whoever reads it.
#[test]
fn a_file_without_a_pre_shared_key_stops_base_mobile_and_reload_and_is_named() {
    let world = World::start("srp", 2, 2, &[]);
    world.await_mobiles(&[0, 1]);
    let path = world.dir.join("psk");
    let shown = path.display().to_string();
    let more = format!("psk = \"{shown}\"\n");
    for (text, mode, said) in [
        (None, 0, "cannot read key file"),
        (Some("# nothing\n"), 0o600, "holds no key"),
        (Some("abc\n"), 0o600, "line 1: a key has 44 base64 characters"),
        (Some("abc\n"), 0o644, "chmod 600"),
    ] {
        if let Some(text) = text {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        }
        world.share(&path);
        let refused = world.reload().unwrap_err();
        assert!(refused.contains(said) && refused.contains(&shown), "{refused}");
        assert!(!refused.contains('\n'), "{refused}");
        let file: BaseFile = config::load(&world.file()).unwrap();
        let base = Base::bind(BaseConfig::try_from(file).unwrap()).err().unwrap();
        let text = world.mobile_text.replace("NAME", "mobile0") + &more;
        let file: MobileFile = config::parse(Path::new("mobile.toml"), &text).unwrap();
        let mobile = Mobile::bind(MobileConfig::try_from(file).unwrap()).err().unwrap();
        for error in [base, mobile] {
            assert!(error.to_string().contains(&shown), "{error}");
        }
        assert_eq!(world.present(), [0, 1]);
    }
}

#[test]
fn what_cannot_be_used_changes_nothing_and_is_named_with_its_place() {
    let [door] = free_ports();
    let world = World::start("srp", 2, 2, &[(door, 0)]);
    world.await_mobiles(&[0, 1]);
    let path = world.file();
    let key = &world.mobiles[1].key;
    let (rules, shown) = (publish(door, &world.mobiles[0].key), path.display().to_string());
    let only = format!("allow = [{key:?}]\n");
    for (text, said) in [
        ("allow = [\n\"abc\"]\n".to_owned(), format!("{shown}:6: `allow`: ")),
        (format!("{only}listn = []\n"), format!("{shown}:6: ")),
        // A rule for a mobile that is not allowed any more.
        (format!("{only}{rules}"), format!("{shown}: `publish`: the mobile ")),
        (
            format!("{only}[[mobiles]]\nkey = \"{}\"\naddress = []\n", world.mobiles[0].key),
            format!("{shown}: `mobiles`: "),
        ),
        (String::new(), format!("{shown}: a mobile that is served is missing")),
    ] {
        std::fs::write(&path, format!("{}{text}", world.head)).unwrap();
        let refused = world.reload().unwrap_err();
        assert!(refused.starts_with(&said) && !refused.contains('\n'), "{refused}");
        assert_eq!(world.present(), [0, 1]);
    }
    std::fs::remove_file(&path).unwrap();
    assert!(world.reload().unwrap_err().contains(&shown));
    assert_eq!(world.present(), [0, 1]);
}

#[test]
fn what_needs_a_restart_is_named_every_time() {
    let [door] = free_ports();
    let world = World::start("srp", 2, 1, &[(door, 0)]);
    world.await_mobiles(&[0]);
    let none = Reloaded::default();
    assert_eq!(world.reload().unwrap(), none);
    // Said, and the default.
    let (path, head) = (world.file(), &world.head);
    let keys = [0, 1].map(|n| world.mobiles[n].key.clone());
    write(&path, &format!("{head}carrier = \"udp\"\n"), &keys[..1], &world.doors);
    assert_eq!(world.reload().unwrap(), none);
    let other = format!("{head}allow = {keys:?}\n[limits]\nconnections = 7\n");
    std::fs::write(&path, other).unwrap();
    for added in [1, 0] {
        let restart = ["publish", "targets.allow", "limits.connections"].map(str::to_owned);
        let restart = restart.to_vec();
        let told = Reloaded { added, restart, ..Reloaded::default() };
        assert_eq!(world.reload().unwrap(), told);
    }
    world.await_mobiles(&[0, 1]);
}

#[test]
fn a_mobile_reads_nothing_again() {
    let world = World::start("srp", 1, 1, &[]);
    world.await_mobiles(&[0]);
    let refused = control::request(&world.dir.join("mobile0.sock"), &Request::Reload {});
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("mobile") && refused.contains("base"), "{refused}");
}
