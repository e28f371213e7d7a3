//! The real command, as an operator meets it: how it starts, how it refuses to, how it stops.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::fs;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// A directory of its own for each test, with the keys of a base and a mobile.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("lasthop-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        for key in ["base.key", "mobile.key"] {
            let out = lasthop(&["keygen", "--out", dir.join(key).to_str().unwrap()]);
            assert!(out.status.success());
        }
        Self(dir)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn public(&self, key: &str) -> String {
        let out = lasthop(&["keygen", "--public", &self.path(key)]);
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    }

    fn base(&self, listen: &str) -> Vec<String> {
        let (key, allow) = (self.path("base.key"), self.public("mobile.key"));
        let control = self.path("base.sock");
        ["base", "--listen", listen, "--key", &key, "--allow", &allow, "--control", &control]
            .map(str::to_owned)
            .to_vec()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lasthop"));
    command.args(args).env_remove("XDG_RUNTIME_DIR").env_remove("LASTHOP_LOG");
    command
}

fn lasthop(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

/// Runs a command that must fail; the one line that it says.
fn complaint(args: &[String]) -> String {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let child = command(&args).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let out = await_end(child);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

fn await_end(mut child: Child) -> Output {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("it does not end");
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_port_in_use_is_one_line() {
    let place = Place::new("port");
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = udp.local_addr().unwrap().to_string();
    let said = complaint(&place.base(&addr));
    assert!(said.contains(&addr) && said.contains("in use"), "{said}");

    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = tcp.local_addr().unwrap().to_string();
    let mut args = place.base(&addr);
    args.extend(["--hop", "split-tcp"].map(str::to_owned));
    let said = complaint(&args);
    assert!(said.contains(&addr) && said.contains("in use"), "{said}");
}

/// Otherwise whoever finds the proxy or the base there would not yet find the page or the metrics.
#[test]
fn what_is_watched_is_bound_before_what_is_served() {
    let place = Place::new("watched");
    let (page, other) = (TcpListener::bind("127.0.0.1:0"), UdpSocket::bind("127.0.0.1:0"));
    let (page, other) = (page.unwrap(), other.unwrap());
    let page = page.local_addr().unwrap().to_string();
    let mut base = place.base(&other.local_addr().unwrap().to_string());
    base.extend(["--metrics".to_owned(), page.clone()]);
    let said = complaint(&base);
    assert!(said.contains("metrics") && said.contains(&page), "{said}");

    let (key, base_key) = (place.path("mobile.key"), place.public("base.key"));
    let control = place.path("mobile.sock");
    let mobile = ["mobile", "--base", "127.0.0.1:4433", "--base-key", &base_key, "--key", &key];
    let watched = ["--control", &control, "--proxy", &page, "--ui", &page];
    let args: Vec<String> = mobile.into_iter().chain(watched).map(str::to_owned).collect();
    let said = complaint(&args);
    assert!(said.contains("the page") && said.contains(&page), "{said}");
}

#[test]
fn an_address_that_is_not_ours_is_one_line() {
    let place = Place::new("addr");
    let said = complaint(&place.base("192.0.2.1:4433"));
    assert!(said.contains("192.0.2.1:4433"), "{said}");
}

#[test]
fn a_key_file_that_cannot_be_used_is_one_line() {
    let place = Place::new("key");
    fs::write(place.path("base.key"), "not a key\n").unwrap();
    let said = complaint(&place_args_with_key(&place, "base.key"));
    assert!(said.contains("base.key, line 1"), "{said}");
    fs::set_permissions(place.path("mobile.key"), fs::Permissions::from_mode(0o644)).unwrap();
    let said = complaint(&place_args_with_key(&place, "mobile.key"));
    assert!(said.contains("chmod 600"), "{said}");
    let said = complaint(&place_args_with_key(&place, "none.key"));
    assert!(said.contains("none.key"), "{said}");
}

fn place_args_with_key(place: &Place, key: &str) -> Vec<String> {
    const SOMEBODY: &str = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";
    let key = place.path(key);
    ["base", "--listen", "127.0.0.1:0", "--key", &key, "--allow", SOMEBODY]
        .map(str::to_owned)
        .to_vec()
}

#[test]
fn a_wrong_configuration_is_one_line() {
    let place = Place::new("config");
    let path = place.path("base.toml");
    fs::write(&path, "hop = \"srp\"\nlisten = [\"everywhere\"]\n").unwrap();
    let said = complaint(&["base".to_owned(), "--config".to_owned(), path.clone()]);
    assert!(said.contains(&format!("{path}:2: `listen`")), "{said}");
}

#[test]
fn base_and_mobile_run_until_they_are_told_to_stop() {
    for hop in ["srp", "split-tcp"] {
        let place = Place::new(&format!("run-{hop}"));
        // The port is free again once the socket is dropped, for UDP and TCP alike.
        let addr = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut args = place.base(&addr);
        args.extend(["--hop", hop].map(str::to_owned));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let base = command(&args).stderr(Stdio::piped()).spawn().unwrap();
        let (key, base_key) = (place.path("mobile.key"), place.public("base.key"));
        let control = place.path("mobile.sock");
        let mobile = command(&["mobile", "--base", &addr, "--base-key", &base_key, "--key", &key])
            .args(["--proxy", "127.0.0.1:0", "--hop", hop, "--control", &control])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_until("the association is up", || {
            let out = lasthop(&["status", "--json", "--control", &control]);
            String::from_utf8_lossy(&out.stdout).contains("\"state\":\"up\"")
        });
        let table = lasthop(&["status", "--control", &place.path("base.sock")]);
        assert!(String::from_utf8_lossy(&table.stdout).contains("PEER"), "{table:?}");
        for (name, child) in [("mobile", mobile), ("base", base)] {
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            let out = await_end(child);
            assert_eq!(out.status.code(), Some(0), "{hop} {name}: {out:?}");
            assert!(String::from_utf8_lossy(&out.stderr).contains("stopping"), "{name}");
        }
        assert!(!fs::exists(&control).unwrap(), "the status socket is taken away");
        assert!(TcpStream::connect(&addr).is_err());
    }
}

#[test]
fn status_without_a_daemon_says_so() {
    let place = Place::new("status");
    let dir = place.path("");
    let out = command(&["status"]).env("XDG_RUNTIME_DIR", &dir).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("no base or mobile runs here"), "{said}");
}
