//! The lab leaves nothing behind. One test, since it counts what the whole process holds.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use lasthop_kernel::netns::Netns;
use lasthop_lab::process::Daemon;
use lasthop_lab::topology::Topology;
use lasthop_testing::wait_until;

const PATIENCE: Duration = Duration::from_secs(60);
const CHILD: &str = "LASTHOP_LAB_CHILD";

/// Namespaces and TUN devices that this process holds open, and the interfaces outside.
fn held() -> (usize, Vec<String>) {
    let targets = fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
    let targets = targets.filter_map(|entry| fs::read_link(entry.path()).ok());
    let ours = |path: &Path| {
        let path = path.to_string_lossy();
        path.starts_with("net:[") || path.ends_with("net/tun") || path.starts_with("socket:")
    };
    (targets.filter(|t| ours(t)).count(), Netns::current().unwrap().interfaces().unwrap())
}

/// The other half of the test: it builds a lab, tells its child's number, and is killed.
fn be_killed() {
    let lab = common::lab(&Topology::default()).unwrap();
    let mut sleep = lab.mobile.command("sleep");
    sleep.arg("600");
    let daemon = Daemon::spawn(sleep).unwrap();
    println!("child {}", daemon.id());
    thread::sleep(2 * PATIENCE);
}

#[test]
fn a_lab_leaves_nothing_behind_however_it_ends() {
    if env::var_os(CHILD).is_some() {
        return be_killed();
    }
    let before = held();
    let Some(lab) = common::lab(&Topology::default()) else { return };
    assert_ne!(held().0, before.0);
    assert_eq!(held().1, before.1, "interfaces appeared outside");
    drop(lab);
    assert_eq!(held(), before);

    let name = "a_lab_leaves_nothing_behind_however_it_ends";
    let mut other = Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(other.stdout.take().unwrap()).lines().map_while(Result::ok);
    let child = lines.filter_map(|l| Some(l.split_once("child ")?.1.trim().to_owned())).next();
    let child = child.expect("the other half said nothing");
    let process = Path::new("/proc").join(&child);
    assert!(process.exists());
    other.kill().unwrap();
    other.wait().unwrap();
    wait_until("the other half's child is gone", PATIENCE, || !is_alive(&process));
}

/// A dead process that nobody has waited for does not count.
fn is_alive(process: &Path) -> bool {
    let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}
