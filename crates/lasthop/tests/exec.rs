//! `lasthop exec` as a user meets it.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::{Command, Output};

/// The dynamic loader takes any library; what ours does is tested beside it.
fn any_library() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.contains("/libc.so")).unwrap();
    PathBuf::from(&line[line.find('/').unwrap()..])
}

fn exec(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lasthop"))
        .arg("exec")
        .arg("--library")
        .arg(any_library())
        .args(arguments)
        .output()
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_programs_exit_status_and_output_pass_through() {
    let output = exec(&["--", "sh", "-c", "echo $LASTHOP_PROXY; exit 42"]);
    assert_eq!(output.status.code(), Some(42));
    assert_eq!(output.stdout, b"127.0.0.1:1080\n");
    assert_eq!(stderr(&output), "");
}

#[test]
fn options_reach_the_library_by_the_environment() {
    let shown = "echo $LASTHOP_PROXY $LASTHOP_DIRECT $LASTHOP_TIMEOUT";
    let options = ["--proxy", "127.0.0.2:9", "--direct", "10.0.0.0/8", "--direct", "fc00::/7"];
    let output = exec(&[&options[..], &["--timeout", "5", "--", "sh", "-c", shown]].concat());
    assert_eq!(output.stdout, b"127.0.0.2:9 10.0.0.0/8,fc00::/7 5\n", "{}", stderr(&output));
}

#[test]
fn a_program_that_is_not_there_is_127_as_in_a_shell() {
    let output = exec(&["--", "/no/such/program"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(stderr(&output).contains("/no/such/program"));
}

#[test]
fn a_file_that_is_no_program_is_126_as_in_a_shell() {
    let output = exec(&["--", "/etc/passwd"]);
    assert_eq!(output.status.code(), Some(126));
}

#[test]
fn a_missing_library_is_named_and_nothing_runs() {
    let output = Command::new(env!("CARGO_BIN_EXE_lasthop"))
        .args(["exec", "--library", "/no/such.so", "--", "echo", "ran"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(stderr(&output).contains("/no/such.so"));
    assert_eq!(output.stdout, b"");
}

#[test]
fn a_proxy_or_network_that_cannot_be_read_is_refused() {
    for bad in [["--proxy", "localhost"], ["--proxy", "[::1]:1080"], ["--direct", "10.0.0.0/40"]] {
        let output = exec(&[&bad[..], &["--", "echo", "ran"]].concat());
        assert_eq!(output.status.code(), Some(2), "{bad:?}");
        assert_eq!(output.stdout, b"");
    }
}
