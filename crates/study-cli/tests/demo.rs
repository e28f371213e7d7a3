//! `lasthop demo bond` and `lasthop demo crash` as users meet them.

#![allow(clippy::expect_used, reason = "a test that cannot go on should say where")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The command with these arguments; none where the command whose mobiles are shown was not built.
fn demo(arguments: &[&str]) -> Option<Command> {
    if lasthop_lab::lasthop_program().is_none() {
        lasthop_testing::skip("no lasthop beside this test (cargo build -p lasthop)");
        return None;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_lasthop-study"));
    command.arg("demo").args(arguments);
    Some(command)
}

/// Whether the machine lets the demonstration have hosts and links of its own.
fn is_permitted() -> bool {
    let lab = lasthop_lab::topology::Lab::start(&lasthop_lab::topology::Topology::default());
    lasthop_testing::or_skip(lab, lasthop_lab::LabError::is_permission).is_some()
}

#[test]
fn ways_to_use_three_links_are_measured_side_by_side() {
    let ways = ["bond", "mptcp-cubic", "srp-dish", "srp-switch"];
    let only = ways.iter().flat_map(|way| ["--only", way]);
    let arguments: Vec<&str> =
        ["bond", "--json", "--for", "3s", "--seed", "7"].into_iter().chain(only).collect();
    let Some(mut command) = demo(&arguments).filter(|_| is_permitted()) else { return };
    let output = command.output().expect("starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
    let schemes: Vec<&str> = lines.iter().filter_map(|line| line["scheme"].as_str()).collect();
    assert_eq!(schemes, ways, "{said}");
    for line in lines {
        let scheme = &line["scheme"];
        if scheme == "mptcp-cubic" && line["error"].is_string() {
            lasthop_testing::skip(&line["error"]);
            continue;
        }
        assert_eq!((&line["sha256_ok"], &line["error"]), (&true.into(), &Value::Null), "{line}");
        let number = |name: &str| line[name].as_f64().unwrap_or_default();
        for way in ["down", "up"] {
            // The kernel's waits one second and then two where its first segments are lost.
            let least = if scheme == "mptcp-cubic" { -1.0 } else { 0.0 };
            let share = number(&format!("share_{way}"));
            assert!(share > least && share < 1.1, "{line}");
            assert!(number(&format!("goodput_{way}_bps")) > least, "{line}");
            assert!((0.0..=3.5).contains(&number(&format!("gap_{way}_s"))), "{line}");
        }
        if scheme == "mptcp-cubic" {
            assert!(number("goodput_down_bps") + number("goodput_up_bps") > 0.0, "{line}");
            assert!(line["call_sent"].is_null() && line["call_lost"].is_null(), "{line}");
        } else {
            // 50 a second each way, on a machine that lets nobody speak for a while.
            assert!((60.0..=302.0).contains(&number("call_sent")), "{line}");
            assert!(number("call_lost") < number("call_sent"), "{line}");
            assert!(number("call_delay_p99_s") > 0.04, "sooner than light: {line}");
        }
    }
}

#[test]
fn what_becomes_of_each_connection_of_a_dead_base_is_told() {
    let arguments = ["crash", "--json", "--way", "kill", "--connections", "6"];
    let Some(mut command) = demo(&arguments).filter(|_| is_permitted()) else { return };
    let output = command.output().expect("starts");
    let said = String::from_utf8_lossy(&output.stderr);
    let line: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!((&line["way"], &line["connections"]), (&"kill".into(), &6.into()), "{said}");
    let [whole, reset, wrong] = ["whole", "reset", "wrong"].map(|name| line[name].as_u64());
    // An upload may have been reset.
    assert_eq!(whole.zip(reset).map(|(whole, reset)| whole + reset), Some(6), "{line}");
    assert!(reset <= Some(2) && wrong == Some(0), "{line}");
    assert!(line["downloads"]["whole"] == 2 && line["idle"]["whole"] == 2, "{line}");
    assert!(line["resumed_s"].as_f64() > Some(0.0), "{line}");
    let noticed = [&line["server_saw_rst"], &line["server_saw_new_syn"]];
    let is_good = whole == Some(6) && noticed == [false, false];
    assert_eq!(output.status.success(), is_good && line["acked_beyond_mobile"] == 0, "{said}");
}

#[test]
fn an_interrupt_ends_it_in_order() {
    let arguments = ["bond", "--only", "bond", "--for", "1h"];
    let Some(mut command) = demo(&arguments).filter(|_| is_permitted()) else { return };
    let mut running = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
    let mut said = BufReader::new(running.stderr.take().expect("a pipe"));
    let mut first = String::new();
    said.read_line(&mut first).expect("says what it shows");
    kill_process(Pid::from_child(&running), Signal::INT).expect("is there");
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = running.try_wait().expect("is ours") {
            break status;
        }
        if begin.elapsed() > Duration::from_secs(60) {
            running.kill().expect("is ours");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("text");
    assert_eq!(status.code(), Some(1), "{first}{rest}");
    assert!(rest.contains("interrupted"), "{first}{rest}");
}
