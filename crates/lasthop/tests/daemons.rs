//! The real command, as an operator meets it: how it starts, how it refuses to, how it stops.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A directory of its own for each test, with the keys of a base and a mobile.
struct Isolation(PathBuf);

impl Isolation {
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

impl Drop for Isolation {
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
fn startup_error(args: &[String]) -> String {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let child = command(&args).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let out = await_end(child);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    let pieces: Vec<&str> = said.trim().split(": ").collect();
    assert!(pieces.windows(2).all(|two| two[0] != two[1]), "said twice: {said}");
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

fn wait_until(what: &str, done: impl FnMut() -> bool) {
    lasthop_testing::wait_until(what, PATIENCE, done);
}

#[test]
fn a_port_in_use_is_one_line() {
    let place = Isolation::new("port");
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = udp.local_addr().unwrap().to_string();
    let said = startup_error(&place.base(&addr));
    assert!(said.contains(&addr) && said.contains("in use"), "{said}");

    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = tcp.local_addr().unwrap().to_string();
    let mut args = place.base(&addr);
    args.extend(["--hop", "split-tcp"].map(str::to_owned));
    let said = startup_error(&args);
    assert!(said.contains(&addr) && said.contains("in use"), "{said}");
}

/// Otherwise whoever finds the proxy or the base there would not yet find the page or the metrics.
#[test]
fn what_is_watched_is_bound_before_what_is_served() {
    let place = Isolation::new("watched");
    let (page, other) = (TcpListener::bind("127.0.0.1:0"), UdpSocket::bind("127.0.0.1:0"));
    let (page, other) = (page.unwrap(), other.unwrap());
    let page = page.local_addr().unwrap().to_string();
    let mut base = place.base(&other.local_addr().unwrap().to_string());
    base.extend(["--metrics".to_owned(), page.clone()]);
    let said = startup_error(&base);
    assert!(said.contains("metrics") && said.contains(&page), "{said}");

    let (key, base_key) = (place.path("mobile.key"), place.public("base.key"));
    let control = place.path("mobile.sock");
    let mobile = ["mobile", "--base", "127.0.0.1:4433", "--base-key", &base_key, "--key", &key];
    let watched = ["--control", &control, "--proxy", &page, "--ui", &page];
    let args: Vec<String> = mobile.into_iter().chain(watched).map(str::to_owned).collect();
    let said = startup_error(&args);
    assert!(said.contains("the page") && said.contains(&page), "{said}");
}

#[test]
fn an_address_that_is_not_ours_is_one_line() {
    let place = Isolation::new("addr");
    let said = startup_error(&place.base("192.0.2.1:4433"));
    assert!(said.contains("192.0.2.1:4433"), "{said}");
}

#[test]
fn a_key_file_that_cannot_be_used_is_one_line() {
    let place = Isolation::new("key");
    fs::write(place.path("base.key"), "not a key\n").unwrap();
    let said = startup_error(&place_args_with_key(&place, "base.key"));
    assert!(said.contains("base.key, line 1"), "{said}");
    fs::set_permissions(place.path("mobile.key"), fs::Permissions::from_mode(0o644)).unwrap();
    let said = startup_error(&place_args_with_key(&place, "mobile.key"));
    assert!(said.contains("chmod 600"), "{said}");
    let said = startup_error(&place_args_with_key(&place, "none.key"));
    assert!(said.contains("none.key"), "{said}");
}

fn place_args_with_key(place: &Isolation, key: &str) -> Vec<String> {
    const SOMEBODY: &str = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";
    let key = place.path(key);
    ["base", "--listen", "127.0.0.1:0", "--key", &key, "--allow", SOMEBODY]
        .map(str::to_owned)
        .to_vec()
}

#[test]
fn a_wrong_configuration_is_one_line() {
    let place = Isolation::new("config");
    let path = place.path("base.toml");
    fs::write(&path, "hop = \"srp\"\nlisten = [\"everywhere\"]\n").unwrap();
    let said = startup_error(&["base".to_owned(), "--config".to_owned(), path.clone()]);
    assert!(said.contains(&format!("{path}:2: `listen`")), "{said}");
}

#[test]
fn what_the_kernel_says_is_said_once() {
    let place = Isolation::new("once");
    let path = |name: &str| place.path(name);
    fs::write(path("scenario.toml"), "[sweep\n").unwrap();
    let none = path("none.toml");
    for args in [
        &["base", "--config", &none][..],
        &["mobile", "--config", &none],
        &["agent", "--config", &none],
        &["sim", &none],
        &["sim", &path("scenario.toml")],
        &["keygen", "--public", &none],
        &["status", "--control", &none],
        &["top", "--control", &none],
        &["link", "up", "--control", &none],
        &["handoff", "--to", "b2", "--control", &none],
        &["base", "reload", "--control", &none],
        &["base", "--key", &none, "--allow", &place.public("mobile.key")],
    ] {
        startup_error(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>());
    }
}

#[test]
fn base_and_mobile_run_until_they_are_told_to_stop() {
    for hop in ["srp", "split-tcp"] {
        let place = Isolation::new(&format!("run-{hop}"));
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

/// A service manager waits for that (sd_notify(3)), and asks by the exit status.
#[test]
fn a_base_tells_its_service_manager_that_it_serves_and_says_whether_it_is_ready() {
    let place = Isolation::new("notify");
    let manager = UnixDatagram::bind(place.path("notify.sock")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let args = place.base("127.0.0.1:0");
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let control = place.path("base.sock");
    let ready = || lasthop(&["status", "--ready", "--control", &control]);
    assert_eq!(ready().status.code(), Some(1));
    let base = command(&args).env("NOTIFY_SOCKET", place.path("notify.sock")).spawn().unwrap();
    let mut said = [0; 64];
    let n = manager.recv(&mut said).unwrap();
    assert_eq!(&said[..n], b"READY=1\n");
    let out = ready();
    assert_eq!((out.status.code(), out.stdout.len()), (Some(0), 0), "{out:?}");
    let drained = lasthop(&["base", "drain", "--control", &control]);
    assert!(String::from_utf8_lossy(&drained.stderr).contains("no [[peers]]"), "{drained:?}");
    let pid = rustix::process::Pid::from_child(&base);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(await_end(base).status.success());
}

#[test]
fn status_without_a_daemon_says_so() {
    let place = Isolation::new("status");
    let dir = place.path("");
    let out = command(&["status"]).env("XDG_RUNTIME_DIR", &dir).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("no base, mobile or agent runs here"), "{said}");
}

#[test]
fn an_agent_is_found_without_being_named() {
    let place = Isolation::new("agent-status");
    let dir = place.path("lasthop");
    fs::create_dir_all(&dir).unwrap();
    let listener = UnixListener::bind(format!("{dir}/agent.sock")).unwrap();
    thread::spawn(move || {
        let interface = r#"{"name":"a0","up":true,"packets_received":7,"bytes_received":700,
            "packets_sent":6,"bytes_sent":600,"packets_missed":0,"packets_unsent":0}"#;
        let report = format!(
            r#"{{"ok":{{"role":"agent","version":"0","uptime_s":1.0,"hop":"","associations":[],
            "connections":[],"counters":{{"opened":0,"refused":0,"closed":0,"garbage":0}},
            "agent":{{"schemes":["snoop"],"fixed":{interface},"mobile":{interface},"link":"up",
            "counters":{{"snoop_repaired":5}}}}}}}}"#
        );
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let _ = client.read(&mut [0; 100]);
            let _ = client.write_all(format!("{}\n", report.replace('\n', " ")).as_bytes());
        }
    });
    let out = command(&["status"]).env("XDG_RUNTIME_DIR", place.path("")).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    for what in ["agent (snoop", "a0", "snoop_repaired: 5"] {
        assert!(said.contains(what), "{said}");
    }
}

/// A process whose log is kept in a file, and which ends with the test.
struct Logged(Child, String);

impl Logged {
    fn start(args: &[&str], log: String) -> Self {
        let file = fs::File::create(&log).unwrap();
        Self(command(args).stderr(file).spawn().unwrap(), log)
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.1).unwrap()
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_base_logs_whom_it_refuses_and_the_mobile_says_what_to_check() {
    let place = Isolation::new("refused");
    let other = place.path("other.key");
    assert!(lasthop(&["keygen", "--out", &other]).status.success());
    let (base_key, other_key) = (place.public("base.key"), place.public("other.key"));
    let cells = ["srp", "mobile-tcp", "split-tcp"].map(|hop| {
        let addr = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let log = |name: &str| place.path(&format!("{hop}-{name}.log"));
        let mut args = place.base(&addr);
        args.extend(["--hop", hop].map(str::to_owned));
        let control = args.iter().position(|arg| arg == "--control").unwrap();
        args[control + 1] = place.path(&format!("{hop}-base.sock"));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let base = Logged::start(&args, log("base"));
        wait_until("the base listens", || base.said().contains(&addr));
        let mobile = |name: &str, key: &str, base_key: &str| {
            let control = place.path(&format!("{hop}-{name}.sock"));
            let args = ["mobile", "--base", &addr, "--base-key", base_key, "--key", key];
            let rest = ["--proxy", "127.0.0.1:0", "--hop", hop, "--control", &control];
            Logged::start(&[&args[..], &rest].concat(), log(name))
        };
        let stranger = mobile("stranger", &other, &base_key);
        let mistaken = mobile("mistaken", &place.path("mobile.key"), &other_key);
        (hop, base, stranger, mistaken)
    });
    for (hop, base, stranger, mistaken) in &cells {
        let refused = format!("the mobile {other_key} from 127.0.0.1");
        let misled = format!("the mobile's `base_key` is not {base_key}");
        for line in [&refused, &misled] {
            wait_until(&format!("{hop}: {line}"), || base.said().contains(line.as_str()));
        }
        for mobile in [stranger, mistaken] {
            wait_until(&format!("{hop}: the mobile"), || {
                mobile.said().contains("its log says why")
            });
        }
        assert!(stranger.said().contains(&format!("`allow` must have {other_key}")), "{hop}");
        // They ask again all the time, and the log has each once.
        for line in [&refused, &misled] {
            assert_eq!(base.said().matches(line.as_str()).count(), 1, "{hop}: {}", base.said());
        }
    }
}
