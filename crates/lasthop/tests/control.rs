//! The commands that speak to a running base or mobile, as an operator meets them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::fs::{self, File};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Output};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A directory with keys, and a process that is killed in the end.
struct Isolation {
    dir: PathBuf,
    process: Option<Child>,
}

impl Isolation {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("lasthop-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        for key in ["base.key", "other.key", "mobile.key"] {
            let out = lasthop(&["keygen", "--out", dir.join(key).to_str().unwrap()]);
            assert!(out.status.success(), "{out:?}");
        }
        Self { dir, process: None }
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).to_str().unwrap().to_owned()
    }

    fn public(&self, key: &str) -> String {
        let out = lasthop(&["keygen", "--public", &self.path(key)]);
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    }

    /// Starts the command and waits until it answers.
    fn start(&mut self, args: &[&str]) {
        let child = command(args)
            .args(["--control", &self.path("control.sock")])
            .stderr(File::create(self.path("log")).unwrap())
            .spawn()
            .unwrap();
        self.process = Some(child);
        let start = Instant::now();
        while !self.ask(&["status"]).status.success() {
            assert!(start.elapsed() < PATIENCE, "it does not answer");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// A mobile of two bases, neither of which exists.
    fn start_mobile(&mut self) {
        let nobody = || UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut text =
            format!("key = \"{}\"\nproxy = [\"127.0.0.1:0\"]\n", self.path("mobile.key"));
        for (name, key) in [("b1", "base.key"), ("b2", "other.key")] {
            let (address, key) = (nobody(), self.public(key));
            text += &format!("[[bases]]\nname = \"{name}\"\naddress = \"{address}\"\n");
            text += &format!("key = \"{key}\"\n");
        }
        let config = self.path("mobile.toml");
        fs::write(&config, text).unwrap();
        self.start(&["mobile", "--config", &config]);
    }

    fn start_base(&mut self) {
        let (key, allow) = (self.path("base.key"), self.public("mobile.key"));
        self.start(&["base", "--listen", "127.0.0.1:0", "--key", &key, "--allow", &allow]);
    }

    fn ask(&self, args: &[&str]) -> Output {
        lasthop(&[args, &["--control", &self.path("control.sock")]].concat())
    }

    /// Asks for what must be refused; the one line that says why.
    fn refused(&self, args: &[&str]) -> String {
        let out = self.ask(args);
        assert_eq!(out.status.code(), Some(1), "{out:?}");
        assert!(out.stdout.is_empty(), "{out:?}");
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(said.lines().count(), 1, "{said}");
        said
    }
}

impl Drop for Isolation {
    fn drop(&mut self) {
        if let Some(child) = &mut self.process {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.dir);
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

#[test]
fn a_base_that_is_not_configured_is_answered_with_those_that_are() {
    let mut place = Isolation::new("control-names");
    place.start_mobile();
    for args in
        [&["handoff", "--to", "b9"][..], &["link", "imminent", "--to", "b9", "--in", "300ms"]]
    {
        let said = place.refused(args);
        assert!(said.contains("`b9`") && said.contains("b1, b2"), "{said}");
    }
}

/// The mobile goes on with a handoff that the command does not wait for any more.
#[test]
fn a_base_that_cannot_be_reached_ends_the_command_and_not_the_mobile() {
    let mut place = Isolation::new("control-wait");
    place.start_mobile();
    let status = place.ask(&["status", "--json"]);
    let lines = String::from_utf8(status.stdout).unwrap();
    let bases: Vec<&str> = lines.lines().filter(|l| l.contains("\"kind\":\"base\"")).collect();
    let [b1, b2] = bases[..] else { panic!("{lines}") };
    assert!(b1.contains("\"current\":true") && b2.contains("\"current\":false"), "{lines}");
    // No base has heard of the mobile, so there is nothing to hand over: it asks another one.
    let _ = place.ask(&["handoff", "--to", "b2", "--wait", "100ms"]);
    let lines = String::from_utf8(place.ask(&["status", "--json"]).stdout).unwrap();
    let current = lines.lines().find(|l| l.contains("\"current\":true")).unwrap();
    assert!(current.contains("\"name\":\"b2\""), "{lines}");
}

#[test]
fn link_events_are_taken_and_say_nothing() {
    let mut place = Isolation::new("control-link");
    place.start_mobile();
    for args in [
        &["link", "imminent", "--to", "b2", "--in", "300ms"][..],
        &["link", "imminent", "--in", "300ms"],
        &["link", "down"],
        &["link", "up"],
        &["link", "complete"],
    ] {
        let out = place.ask(args);
        assert!(out.status.success() && out.stdout.is_empty() && out.stderr.is_empty(), "{out:?}");
    }
    let out = place.ask(&["link", "up", "--json"]);
    assert_eq!(String::from_utf8(out.stdout).unwrap(), "{\"link\":{\"up\":{}}}\n");
}

/// A level is of use only where somebody judges it; the refusal says what is missing.
#[test]
fn a_mobile_that_does_not_watch_its_signal_says_so() {
    let mut place = Isolation::new("control-quality");
    place.start_mobile();
    let said = place.refused(&["link", "quality", "--dbm", "-70"]);
    assert!(said.contains("[signal]"), "{said}");
}

#[test]
fn a_base_moves_no_connections() {
    let mut place = Isolation::new("control-base");
    place.start_base();
    let said = place.refused(&["handoff", "--to", "b2"]);
    assert!(said.contains("base"), "{said}");
    assert!(place.ask(&["status"]).status.success(), "and it is none the worse");
}

/// A file is read again with the flags still over it; what cannot be used changes nothing.
#[test]
fn a_base_reads_its_file_again_by_command_and_by_signal() {
    let mut place = Isolation::new("control-reload");
    let (config, key) = (place.path("base.toml"), place.path("base.key"));
    let [mobile, other] = ["mobile.key", "other.key"].map(|key| place.public(key));
    let write = |allow: &[&str], more: &str| {
        let text =
            format!("key = \"{key}\"\nlisten = [\"192.0.2.1:1\"]\nallow = {allow:?}\n{more}");
        fs::write(&config, text).unwrap();
    };
    write(&[&mobile], "");
    place.start(&["base", "--config", &config, "--listen", "127.0.0.1:0"]);
    let reload = |place: &Isolation, args: &[&str]| {
        let out = place.ask(&[&["base", "reload"], args].concat());
        assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
        String::from_utf8(out.stdout).unwrap()
    };
    assert_eq!(reload(&place, &[]), "mobiles: 0 added, 0 removed\n");
    write(&[&mobile, &other], "[limits]\nconnections = 9\n");
    let said = reload(&place, &[]);
    assert_eq!(said, "mobiles: 1 added, 0 removed\nneeds a restart: limits.connections\n");
    write(&["x"], "");
    let said = place.refused(&["base", "reload"]);
    assert!(said.starts_with(&format!("lasthop: {config}:3: `allow`: ")), "{said}");
    let kill = || {
        let child = place.process.as_ref().unwrap();
        let pid = rustix::process::Pid::from_child(child);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    };
    let logged = |what: &str| {
        let log = place.path("log");
        let is_there = || fs::read_to_string(&log).unwrap().contains(what);
        lasthop_testing::wait_until(what, PATIENCE, is_there);
    };
    kill();
    logged("base.toml:3: `allow`");
    write(&[&mobile], "");
    kill();
    logged("added=0 removed=1");
    assert_eq!(reload(&place, &["--json"]), "{\"added\":0,\"removed\":0}\n");
    // Flags that serve and the command do not go together.
    let both = ["base", "--key", &key, "reload"];
    assert_eq!(place.ask(&both).status.code(), Some(2));
}

#[test]
fn only_a_base_reads_its_file_again() {
    let mut place = Isolation::new("control-reload-mobile");
    let said = place.refused(&["base", "reload"]);
    assert!(said.contains("no base answers on") && said.contains("control.sock"), "{said}");
    place.start_mobile();
    let said = place.refused(&["base", "reload"]);
    assert!(said.contains("a mobile cannot do this"), "{said}");
}

#[test]
fn a_mobile_of_one_base_says_what_is_missing() {
    let mut place = Isolation::new("control-single");
    let (key, base_key) = (place.path("mobile.key"), place.public("base.key"));
    let base = ["--base", "127.0.0.1:9", "--base-key", &base_key];
    place.start(&[&["mobile", "--key", &key, "--proxy", "127.0.0.1:0"], &base[..]].concat());
    let said = place.refused(&["handoff", "--to", "b2"]);
    assert!(said.contains("[[bases]]"), "{said}");
}

#[test]
fn without_a_mobile_the_socket_is_named() {
    let place = Isolation::new("control-nobody");
    for args in [&["handoff", "--to", "b2"][..], &["link", "down"]] {
        let said = place.refused(args);
        assert!(said.contains("answers on") && said.contains("control.sock"), "{said}");
        assert!(said.contains("no mobile"), "{said}");
    }
    let out = command(&["link", "up"]).env("XDG_RUNTIME_DIR", &place.dir).output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("lasthop/mobile.sock"), "{said}");
}
