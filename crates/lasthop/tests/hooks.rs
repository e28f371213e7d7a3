//! The scripts in `packaging/hooks`, with a network manager, a modem and a lasthop that are played.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Programs that are played, and what lasthop was told.
struct Stage {
    dir: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let stage = Self { dir: tempfile::tempdir().unwrap() };
        stage.play("lasthop", r#"echo "$*" >>"$STAGE/told""#);
        stage.play("sleep", ":");
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Has a shell script stand for a program.
    fn play(&self, name: &str, script: &str) {
        lasthop_testing::write_script(&self.path(name), script);
    }

    /// Has a modem show these states and signals, one after the other; the last for ever.
    fn play_modem(&self, rounds: &[(&str, &str)]) {
        for (n, (state, signal)) in rounds.iter().enumerate() {
            fs::write(self.path(&format!("state.{n}")), state).unwrap();
            fs::write(self.path(&format!("signal.{n}")), signal).unwrap();
        }
        fs::write(self.path("round"), "0").unwrap();
        let last = rounds.len() - 1;
        let script = format!(
            r#"n=$(cat "$STAGE/round")
echo "$*" >>"$STAGE/asked"
case $* in
*--signal-setup=*) exit 0 ;;
*--signal-get*) cat "$STAGE/signal.$((n - 1))" ;;
*)
    cat "$STAGE/state.$n"
    if [ "$n" -le {last} ]; then echo $((n + 1)) >"$STAGE/round"; fi
    [ -s "$STAGE/state.$n" ]
    ;;
esac"#
        );
        self.play("mmcli", &script);
    }

    fn run(&self, hook: &str, args: &[&str]) -> Output {
        let hook = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/hooks").join(hook);
        Command::new("sh")
            .arg(hook)
            .args(args)
            .env("STAGE", self.dir.path())
            .env("LASTHOP_HOOKS", self.path("hooks"))
            .env("PATH", format!("{}:/usr/bin:/bin", self.dir.path().display()))
            .output()
            .unwrap()
    }

    /// What lasthop was told; each is something that the command understands.
    fn told(&self) -> Vec<String> {
        let told = fs::read_to_string(self.path("told")).unwrap_or_default();
        let _ = fs::remove_file(self.path("told"));
        told.lines().inspect(|line| is_understood(line)).map(str::to_owned).collect()
    }
}

/// Whether the command, which then finds nobody, understands these arguments.
fn is_understood(arguments: &str) {
    let out = Command::new(env!("CARGO_BIN_EXE_lasthop"))
        .args(arguments.split(' '))
        .args(["--control", "/nonexistent/lasthop.sock"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{arguments}: {said}");
    assert!(said.contains("/nonexistent/lasthop.sock"), "{arguments}: {said}");
}

fn quiet(out: &Output) {
    assert!(out.status.success() && out.stdout.is_empty() && out.stderr.is_empty(), "{out:?}");
}

#[test]
fn what_network_manager_does_is_told() {
    let stage = Stage::new();
    for (action, told) in [
        ("pre-down", &["link imminent --in 500ms"][..]),
        ("down", &["link down --interface wlan0"]),
        ("up", &["link up --interface wlan0", "link complete"]),
        ("dhcp4-change", &["link complete"]),
        ("dhcp6-change", &["link complete"]),
        ("hostname", &[]),
        ("connectivity-change", &[]),
    ] {
        quiet(&stage.run("90-lasthop", &["wlan0", action]));
        assert_eq!(stage.told(), told, "{action}");
    }
    quiet(&stage.run("90-lasthop", &["", "dns-change"]));
    quiet(&stage.run("90-lasthop", &[]));
    assert!(stage.told().is_empty());
}

#[test]
fn interfaces_that_are_not_named_are_left_out() {
    let stage = Stage::new();
    fs::write(stage.path("hooks"), "INTERFACES=\"wwan0 wlan0\"\n").unwrap();
    quiet(&stage.run("90-lasthop", &["eth0", "down"]));
    quiet(&stage.run("90-lasthop", &["wlan", "down"]));
    assert!(stage.told().is_empty());
    quiet(&stage.run("90-lasthop", &["wlan0", "down"]));
    assert_eq!(stage.told(), ["link down --interface wlan0"]);
}

#[test]
fn a_lasthop_that_does_not_run_is_no_failure_of_network_manager() {
    let stage = Stage::new();
    stage.play("lasthop", "echo 'nobody answers' >&2; exit 1");
    let out = stage.run("90-lasthop", &["wlan0", "up"]);
    assert!(out.status.success(), "{out:?}");
}

const CONNECTED: &str = "\
modem.dbus-path                                 : /org/freedesktop/ModemManager1/Modem/0
modem.generic.state                             : connected
modem.generic.state-failed-reason               : --
";
const SEARCHING: &str = "modem.generic.state : searching\n";

fn lte(rsrp: &str) -> String {
    format!(
        "modem.signal.refresh.rate                 : 1
modem.signal.gsm.rssi                     : --
modem.signal.umts.rscp                    : --
modem.signal.lte.rssi                     : -71.00
modem.signal.lte.rsrq                     : -9.00
modem.signal.lte.rsrp                     : {rsrp}
modem.signal.5g.rsrp                      : --
"
    )
}

#[test]
fn a_modem_s_signal_is_told() {
    let stage = Stage::new();
    let signals = [lte("-100.00"), lte("-101.50"), lte("--")];
    let umts = "modem.signal.umts.rscp : -87\nmodem.signal.umts.rssi : -70\n".to_owned();
    let rounds: Vec<_> =
        signals.iter().chain([&umts]).map(|signal| (CONNECTED, signal.as_str())).collect();
    stage.play_modem(&rounds);
    quiet(&stage.run("lasthop-modem", &["-i", "wwan0", "-m", "3", "-n", "4", "-s", "2"]));
    let quality = |dbm: &str| format!("link quality --dbm {dbm} --interface wwan0");
    assert_eq!(stage.told(), [quality("-100.00"), quality("-101.50"), quality("-87")]);
    let asked = fs::read_to_string(stage.path("asked")).unwrap();
    assert_eq!(asked.matches("-m 3 --signal-setup=2").count(), 1, "{asked}");
}

/// What cannot be measured is not told, and the modem is asked to measure again when it is back.
#[test]
fn a_modem_that_loses_its_network_or_is_taken_away_is_a_link_that_is_down() {
    let stage = Stage::new();
    let good = lte("-95");
    let disconnecting = "modem.generic.state : disconnecting\n";
    stage.play_modem(&[
        (CONNECTED, &good),
        (SEARCHING, ""),
        ("", ""),
        (CONNECTED, &good),
        (disconnecting, ""),
        (disconnecting, ""),
        (SEARCHING, ""),
    ]);
    quiet(&stage.run("lasthop-modem", &["-n", "7"]));
    assert_eq!(
        stage.told(),
        [
            "link quality --dbm -95",
            "link down",
            "link up",
            "link complete",
            "link quality --dbm -95",
            "link imminent --in 500ms",
            "link down",
        ]
    );
    let asked = fs::read_to_string(stage.path("asked")).unwrap();
    assert_eq!(asked.matches("--signal-setup=1").count(), 2, "{asked}");
}

#[test]
fn what_cannot_be_meant_is_said() {
    let stage = Stage::new();
    stage.play_modem(&[(CONNECTED, "")]);
    for (args, code, said) in [
        (&["-s", "soon"][..], 2, "`soon`"),
        (&["-n", "-1"], 2, "`-1`"),
        (&["-x"], 2, "usage"),
        (&["wwan0"], 2, "usage"),
    ] {
        let out = stage.run("lasthop-modem", args);
        assert_eq!(out.status.code(), Some(code), "{args:?}: {out:?}");
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert!(stderr.contains(said), "{args:?}: {stderr}");
    }
    let help = stage.run("lasthop-modem", &["-h"]);
    assert!(help.status.success() && !help.stdout.is_empty());
    fs::remove_file(stage.path("mmcli")).unwrap();
    let out = stage.run("lasthop-modem", &[]);
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(stderr.contains("mmcli") && out.status.code() == Some(1), "{stderr}");
}
