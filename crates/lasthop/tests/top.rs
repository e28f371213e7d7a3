//! `lasthop top` in a real terminal, which tmux plays, with a process that the test plays.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../../watch/tests/common/mod.rs"]
mod common;

use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use common::Process;
use lasthop_control::{Request, Target};

const LASTHOP: &str = env!("CARGO_BIN_EXE_lasthop");
const PATIENCE: Duration = Duration::from_secs(60);
const CONNECTIONS: [(&str, &str); 2] =
    [("curl", "mirror.example:443"), ("wget", "files.example:80")];

/// A terminal of 100 columns and 30 lines with a shell in it, until it is dropped.
struct Tmux {
    socket: String,
}

impl Tmux {
    /// None where tmux is not installed.
    fn start(folder: &Path) -> Option<Self> {
        if !lasthop_testing::is_installed("tmux") {
            return None;
        }
        let tmux = Self { socket: folder.join("tmux").display().to_string() };
        let shell = "env -i PATH=/usr/bin:/bin TERM=screen LC_ALL=C.UTF-8 PS1='ready> ' sh";
        tmux.run(&["new-session", "-d", "-x", "100", "-y", "30", shell]);
        tmux.wait_for("ready>");
        Some(tmux)
    }

    fn run(&self, args: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.args(["-S", &self.socket, "-f", "/dev/null", "-u"]).args(args).env_remove("TMUX");
        let Output { status, stdout, stderr } = command.output().unwrap();
        assert!(status.success(), "tmux {args:?}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8_lossy(&stdout).into_owned()
    }

    fn press(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    fn screen(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    fn wait_for(&self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.screen().contains(text) {
            assert!(Instant::now() < deadline, "no `{text}`:\n{}", self.screen());
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn top(&self, process: &Process) {
        let control = process.path.display();
        self.press(&[&format!("{LASTHOP} top --control {control} --interval 300ms"), "Enter"]);
        self.wait_for("mirror.example:443");
    }

    /// The process that the shell waits for.
    fn child(&self) -> String {
        let shell = self.run(&["display", "-p", "#{pane_pid}"]);
        let children = format!("/proc/{0}/task/{0}/children", shell.trim());
        std::fs::read_to_string(children).unwrap().trim().to_owned()
    }

    /// Whether the shell has its terminal as it was: lines, echo, the ordinary screen, a cursor.
    fn is_as_before(&self, said: &str) {
        // What is typed until then is still for top.
        let deadline = Instant::now() + PATIENCE;
        while self.run(&["display", "-p", "#{alternate_on}"]).trim() != "0" {
            assert!(Instant::now() < deadline, "it goes on:\n{}", self.screen());
            thread::sleep(Duration::from_millis(50));
        }
        self.press(&[&format!("stty -a | tr ';' '\\n' | grep -w icanon; echo {said}-$?"), "Enter"]);
        self.wait_for(&format!("\n{said}-0"));
        let screen = self.screen();
        assert!(screen.contains(" icanon") && screen.contains(" echo "), "{screen}");
        assert_eq!(self.run(&["display", "-p", "#{alternate_on} #{cursor_flag}"]).trim(), "0 1");
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = Command::new("tmux").args(["-S", &self.socket, "kill-server"]).output();
    }
}

#[test]
fn keys_work_in_a_terminal_and_it_is_as_before_however_top_ends() {
    let folder = tempfile::tempdir().unwrap();
    let Some(tmux) = Tmux::start(folder.path()) else { return };
    let process = Process::start(folder.path(), &CONNECTIONS);
    tmux.top(&process);
    tmux.wait_for("Mbit/s");
    tmux.press(&["s", "s", "s"]);
    tmux.wait_for("by name");
    tmux.press(&["Home", "+", "+"]);
    tmux.wait_for("connection 1 has priority 3");
    tmux.press(&["Tab"]);
    tmux.wait_for("programs: ");
    tmux.press(&["End", "+"]);
    tmux.wait_for("program wget has priority 2");
    let last = process.asked().pop().unwrap();
    let of = Target::Program("wget".to_owned());
    assert_eq!(last, Request::Priority { of, priority: Some(2) });
    for size in [["20", "4"], ["200", "60"], ["100", "30"]] {
        tmux.run(&["resize-window", "-x", size[0], "-y", size[1]]);
        thread::sleep(Duration::from_millis(200));
    }
    tmux.wait_for("programs: ");
    tmux.press(&["q"]);
    tmux.is_as_before("quit");
    tmux.top(&process);
    assert!(Command::new("kill").args(["-TERM", &tmux.child()]).status().unwrap().success());
    tmux.is_as_before("told");
}

#[test]
fn top_ends_with_its_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let Some(tmux) = Tmux::start(folder.path()) else { return };
    let process = Process::start(folder.path(), &CONNECTIONS);
    tmux.top(&process);
    let top = tmux.child();
    drop(tmux);
    // What is over and not waited for yet counts as ended.
    let runs = || {
        let status = std::fs::read_to_string(format!("/proc/{top}/status")).unwrap_or_default();
        status.starts_with("Name:\tlasthop") && !status.contains("State:\tZ")
    };
    let deadline = Instant::now() + PATIENCE;
    while runs() {
        if Instant::now() >= deadline {
            let _ = Command::new("kill").args(["-KILL", &top]).status();
            panic!("it goes on without a terminal");
        }
        thread::sleep(Duration::from_millis(50));
    }
}

fn lasthop(args: &[&str], process: &Process) -> Output {
    let control = process.path.display().to_string();
    let mut command = Command::new(LASTHOP);
    command.args(args).args(["--control", &control, "--interval", "200ms"]).output().unwrap()
}

#[test]
fn without_a_terminal_there_are_tables_and_objects() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &CONNECTIONS);
    let text = String::from_utf8(lasthop(&["top", "--once"], &process).stdout).unwrap();
    for part in ["mobile (srp", "PROGRAM", "mirror.example:443", "wget", "Mbit/s"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let text = String::from_utf8(lasthop(&["top", "--once", "--json"], &process).stdout).unwrap();
    let sample: serde_json::Value = serde_json::from_str(text.trim_end()).unwrap();
    assert_eq!(text.lines().count(), 1);
    assert_eq!(sample["programs"].as_array().unwrap().len(), 2);
    assert!(sample["total"]["from_hop_bps"].as_f64().unwrap() > 0.0);
    let refused = lasthop(&["top"], &process);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--once"));
}

#[test]
fn the_page_is_refused_beyond_loopback_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &CONNECTIONS);
    let control = process.path.display().to_string();
    let mut command = Command::new(LASTHOP);
    let output = command.args(["ui", "--control", &control, "--listen", "0.0.0.0:8088"]).output();
    let said = String::from_utf8_lossy(&output.unwrap().stderr).into_owned();
    assert!(said.contains("loopback") && said.contains("ssh -L"), "{said}");
}
