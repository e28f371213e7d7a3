//! mosh (Winstein and Balakrishnan, USENIX ATC 2012), a terminal by UDP that knows nothing of lasthop, through TUN
//! devices and an outage.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::tun::Scene;
use lasthop_testing::{is_installed, wait_or};
use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(60);
const OUTAGE: Duration = Duration::from_secs(2);
const PORT: &str = "60001";
/// What runs at the server: it answers each line, and ends after `end`.
const ANSWERS: &str =
    r#"echo ready; while read line; do [ "$line" = end ] && exit; echo "got-$line"; done"#;

/// A server that has left its parent; it ends with its program, and at the latest when this is dropped.
struct Server {
    pid: Pid,
    key: String,
}

impl Server {
    fn start(scene: &Scene) -> Self {
        let ip = scene.fixed(0).to_string();
        let mut command = scene.lab.fixed.command("mosh-server");
        command.args(["new", "-i", &ip, "-p", PORT, "--", "sh", "-c", ANSWERS]);
        let said = utf8(command).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
        let after = |word: &str| {
            let rest = said.split_once(word).unwrap_or_else(|| panic!("no `{word}`: {said}")).1;
            let end = rest.find([']', '\r', '\n']).unwrap_or(rest.len());
            rest[..end].trim().to_owned()
        };
        let key = after(&format!("MOSH CONNECT {PORT}"));
        let pid = after("detached, pid =").parse().ok().and_then(Pid::from_raw);
        Self { pid: pid.unwrap_or_else(|| panic!("no process: {said}")), key }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let name = format!("/proc/{}/comm", self.pid.as_raw_nonzero());
        // One that has ended may have left its number to another.
        if std::fs::read_to_string(name).is_ok_and(|name| name.trim() == "mosh-server") {
            let _ = kill_process(self.pid, Signal::KILL);
        }
    }
}

/// A client with a terminal of its own.
struct Client {
    child: Child,
    keys: ChildStdin,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Client {
    fn start(scene: &Scene, key: &str) -> Self {
        let mut command = scene.lab.mobile.command("script");
        let client = format!("stty cols 80 rows 24; exec mosh-client {} {PORT}", scene.fixed(0));
        command.args(["-qfec", &client, "/dev/null"]).env("MOSH_KEY", key).env("TERM", "xterm");
        let mut command = utf8(command);
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = pipes.spawn().unwrap();
        let (keys, mut shown) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let screen = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&screen);
        thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(n @ 1..) = shown.read(&mut piece) {
                kept.lock().unwrap().extend_from_slice(&piece[..n]);
            }
        });
        Self { child, keys, screen }
    }

    fn types(&mut self, line: &str) {
        self.keys.write_all(format!("{line}\r").as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }

    fn shows(&self, text: &str) {
        let told = || format!("no `{text}` in {:?}", self.shown());
        wait_or(PATIENCE, || self.shown().contains(text), told);
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Without such a locale neither end of mosh starts.
fn utf8(mut command: Command) -> Command {
    command.env("LC_ALL", "C.UTF-8");
    command
}

/// A terminal by mosh goes on after an outage, with the line that was typed meanwhile, and ends when its program does.
#[test]
fn a_terminal_by_mosh_outlives_an_outage() {
    if !["mosh-server", "script"].into_iter().all(is_installed) {
        return;
    }
    let Some(scene) = Scene::new(0.05) else { return };
    let _base = scene.base("address", "", "");
    let _mobile = scene.mobile("");
    let server = Server::start(&scene);
    let mut client = Client::start(&scene, &server.key);
    client.shows("ready");
    client.types("before");
    client.shows("got-before");
    scene.lab.radio.control.pause(OUTAGE);
    client.types("meanwhile");
    thread::sleep(OUTAGE);
    client.shows("got-meanwhile");
    client.types("after");
    client.shows("got-after");
    let carried = scene.tun("mobile");
    assert!(carried.from_kernel > 0 && carried.to_kernel > 0, "{carried:?}");
    client.types("end");
    let ended = |client: &mut Client| client.child.try_wait().unwrap().is_some();
    wait_or(PATIENCE, || ended(&mut client), || "the client did not end".to_owned());
}
