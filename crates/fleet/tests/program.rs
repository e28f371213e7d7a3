//! The program, from the first base to the last, with a real etcd.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says where")]

mod common;

use std::fs;
use std::process::{Child, Command};

use common::{Etcd, FakeBase, PATIENCE, program, refused, told};
use lasthop_testing::wait_until;
use serde_json::Value;

/// The program as an agent, which is killed when it is dropped.
struct Agent(Child);

impl Agent {
    fn start(fleet: &str, control: &str) -> Self {
        let agent = Command::new(env!("CARGO_BIN_EXE_lasthop-fleet"))
            .args(["agent", "--fleet", fleet, "--control", control, "--log", "error"])
            .spawn();
        Self(agent.unwrap())
    }

    fn end(mut self) {
        let id = self.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn listed(fleet: &str) -> Vec<Value> {
    let text = told(&["list", "--fleet", fleet, "--json"]);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn row(fleet: &str, name: &str) -> Value {
    listed(fleet).into_iter().find(|row| row["name"] == name).unwrap_or_default()
}

fn last_line(text: &str) -> &str {
    text.lines().last().unwrap()
}

#[test]
fn from_the_first_base_to_the_last() {
    let Some(etcd) = Etcd::start(1) else { return };
    let folder = etcd.folder("all");
    let dir = |name: &str| folder.join(name).display().to_string();
    let fleet = dir("operator/fleet.toml");
    let init = ["init", "trains", "--endpoints", &etcd.endpoints[0], "--folder", &dir("operator")];
    let mut said = String::new();
    wait_until("etcd answers", PATIENCE, || {
        let output = program(&init);
        said = String::from_utf8(output.stdout).unwrap();
        output.status.success()
    });
    assert!(refused(&init).contains("fleet.toml exists"));
    let other = dir("elsewhere");
    let elsewhere = [&init[..5], &[&other]].concat();
    assert!(refused(&elsewhere).contains("has a fleet trains already"));

    // A token is good once, and a name is one base's.
    let join = |token: &str, name: &str, n: u8, at: &str| {
        let (peer, hop) = (format!("10.1.0.{n}:4434"), format!("10.1.0.{n}:4433"));
        let words = ["join", token, "--name", name, "--peer", &peer, "--hop", &hop, "--folder", at];
        words.map(str::to_owned)
    };
    let first = join(last_line(&said), "b1", 1, &dir("b1"));
    let joined = told(&first);
    assert!(joined.contains("0 other bases") && joined.contains("fleet = \""), "{joined}");
    // Whose answer was lost tries again.
    told(&first);
    let spent = join(last_line(&said), "b2", 2, &dir("b2"));
    assert!(refused(&spent).contains("used up"));
    let token = told(&["token", "--fleet", &fleet, "--ttl", "5min"]);
    let twin = join(token.trim(), "b1", 2, &dir("b2"));
    assert!(refused(&twin).contains("b1 is another's name already"));
    let second = join(token.trim(), "b2", 2, &dir("b2"));
    assert!(told(&second).contains("1 other bases"));
    assert!(
        refused(&["join", "x", "--name", "b3", "--peer", "10.1.0.3:1", "--hop", "10.1.0.3:2"])
            .contains("this is no token")
    );

    // The agent tells how its base is, and writes its files.
    let base = FakeBase::serve(&folder.join("b1"));
    let agent = Agent::start(&dir("b1/fleet.toml"), &dir("b1/base.sock"));
    wait_until("the base is up", PATIENCE, || row(&fleet, "b1")["ready"] == true);
    assert_eq!(row(&fleet, "b1")["version"], "7");
    assert_eq!(row(&fleet, "b2")["alive"], false);
    let members = || fs::read_to_string(folder.join("b1/members.toml")).unwrap();
    wait_until("it knows the other base", PATIENCE, || members().contains("10.1.0.2:4434"));

    let add = ["add-mobile", "train7", "--fleet", &fleet, "--address", "10.9.0.7", "--folder"];
    let added = told(&[&add[..], &[&dir("mobiles"), "--acknowledge", "mobile"]].concat());
    assert!(added.contains("train7.toml") && added.contains("train7.key"), "{added}");
    wait_until("it knows the mobile", PATIENCE, || members().contains("# train7"));
    wait_until("the base read its files", PATIENCE, || base.reloads() > 0);
    let config = fs::read_to_string(folder.join("mobiles/train7.toml")).unwrap();
    assert_eq!(config.matches("[[bases]]").count(), 2, "{config}");
    let twin = ["add-mobile", "other", "--fleet", &fleet, "--address", "10.9.0.7", "--folder"];
    let error = refused(&[&twin[..], &[&dir("mobiles")]].concat());
    assert!(error.contains("10.9.0.7 is train7's address already"), "{error}");
    assert!(!folder.join("mobiles/other.key").exists());
    let error = refused(&[&add[..], &[&dir("more")]].concat());
    assert!(error.contains("train7 is another's name already"), "{error}");

    // Who serves whom.
    let key = row(&fleet, "train7")["key"].as_str().unwrap().to_owned();
    base.serves(&[(&key, 3)]);
    wait_until("it is told who serves it", PATIENCE, || row(&fleet, "train7")["base"] == "b1");
    let table = told(&["list", "--fleet", &fleet]);
    assert!(
        table.contains("train7") && table.contains("10.9.0.7") && table.contains("up"),
        "{table}"
    );
    wait_until("it is counted", PATIENCE, || row(&fleet, "b1")["connections"] == 3);

    // Emptying.
    let error = refused(&["drain", "b1", "--fleet", &fleet, "--timeout", "1500ms"]);
    assert!(error.contains("b1 holds 1 mobile") && error.contains("still holds 1"), "{error}");
    assert_eq!(row(&fleet, "b1")["draining"], true);
    wait_until("the base is asked to drain", PATIENCE, || base.is_draining());
    base.serves(&[]);
    assert!(told(&["drain", "b1", "--fleet", &fleet]).contains("b1 holds no mobile"));
    wait_until("nobody serves it", PATIENCE, || row(&fleet, "train7")["base"].is_null());
    base.drain(false);
    wait_until("one that was started again is asked too", PATIENCE, || base.is_draining());
    assert!(told(&["drain", "b1", "--fleet", &fleet, "--undo"]).contains("any more"));
    wait_until("the base is asked to drain no longer", PATIENCE, || !base.is_draining());
    // What its operator asks of it is his.
    base.drain(true);
    assert!(refused(&["drain", "b9", "--fleet", &fleet]).contains("`b9`"));

    // Keys.
    assert!(told(&["rotate", "--fleet", &fleet]).contains("key 2"));
    wait_until("it has the key", PATIENCE, || members().contains("tickets-2.key"));
    assert!(members().contains("tickets-1.key"));
    assert!(base.is_draining());
    assert!(told(&["rotate", "--fleet", &fleet, "--forget"]).contains("key 3"));
    wait_until("it has that key alone", PATIENCE, || {
        members().contains("tickets-3.key") && !members().contains("tickets-2.key")
    });
    assert!(refused(&["revoke", "nobody", "--fleet", &fleet]).contains("`nobody`"));
    let revoke = ["revoke", "train7", "--fleet", &fleet, "--why", "sold"];
    assert!(told(&revoke).contains("of train7"));
    wait_until("it forgets the mobile", PATIENCE, || !members().contains(&key));
    let again = ["add-mobile", "t8", "--fleet", &fleet, "--key", &key, "--folder", &dir("mobiles")];
    assert!(refused(&again).contains("is revoked"));
    assert!(told(&["revoke", "b2", "--fleet", &fleet]).contains("under key 4"));
    wait_until("it forgets the base", PATIENCE, || !members().contains("b2"));
    assert!(!members().contains("tickets-3.key"));
    wait_until("no old key is left", PATIENCE, || !folder.join("b1/tickets-1.key").exists());
    assert!(folder.join("b1/tickets-4.key").exists());

    // Nothing is left of an agent that ends.
    agent.end();
    assert_eq!(row(&fleet, "b1")["alive"], false);
    assert!(told(&["leave", "--fleet", &dir("b1/fleet.toml")]).contains("b1"));
    assert!(listed(&fleet).is_empty());
    assert!(
        refused(&["leave", "--fleet", &dir("b1/fleet.toml")]).contains("no base of this machine")
    );
}

#[test]
fn what_cannot_be_reached_or_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("fleet.toml").display().to_string();
    assert!(refused(&["list", "--fleet", &missing]).contains(&missing));
    let file = "name = \"trains\"\nendpoints = [\"http://127.0.0.1:1\"]\n";
    fs::write(&missing, file).unwrap();
    let error = refused(&["list", "--fleet", &missing]);
    assert!(error.contains("http://127.0.0.1:1: ") && error.contains("refused"), "{error}");
    fs::write(&missing, "name = \"trains\"\nendpoint = []\n").unwrap();
    assert!(refused(&["list", "--fleet", &missing]).contains("fleet.toml:2"));
}
