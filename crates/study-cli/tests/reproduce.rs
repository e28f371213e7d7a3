//! `lasthop reproduce` as programs meet it.

#![allow(clippy::expect_used, reason = "a test that cannot go on should say where")]

use std::process::{Command, Output};

use serde_json::Value;

fn reproduce(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lasthop-study"))
        .arg("reproduce")
        .args(arguments)
        .output()
        .expect("starts")
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

#[test]
fn the_exit_status_tells_of_a_criterion_that_is_not_met() {
    // Without loss, ours gains less than the paper's.
    let cells = ["--only", "gains/PER0%", "--only", "figure15/PER0%", "--runs", "1"];
    let missed = reproduce(&[&["mobile-tcp-2001", "--json"], &cells[..]].concat());
    assert_eq!(missed.status.code(), Some(3), "{}", String::from_utf8_lossy(&missed.stderr));
    let lines: Vec<Value> =
        said(&missed).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).count();
    assert!(of("cell") > 0 && of("gain") > 0 && of("criterion") > 10 && of("verdict") == 1);
    assert!(lines.iter().all(|line| line["paper"] == "mobile-tcp-2001"));
    assert!(lines.iter().any(|line| line["kind"] == "criterion" && line["verdict"] == false));
    let open = reproduce(&["mhp-srp-1994", "--only", "srp/0s/5%", "--runs", "2"]);
    assert_eq!(open.status.code(), Some(0), "{}", String::from_utf8_lossy(&open.stderr));
    let text = said(&open);
    assert!(text.lines().last().expect("a line").contains("Does not: "), "{text}");
    assert_eq!(reproduce(&["no-paper"]).status.code(), Some(1));
    assert_eq!(reproduce(&["mhp-srp-1994", "--runs", "0"]).status.code(), Some(2));
}
