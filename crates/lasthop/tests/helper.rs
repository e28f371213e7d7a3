//! `lasthop helper`, as people call it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::process::Command;

/// SEC-30: there is no helper for all addresses.
#[test]
fn a_helper_without_an_address_does_not_start_and_the_option_is_named() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lasthop"));
    let out = command.args(["helper", "--socket", "/nonexistent/helper.sock"]).output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(!out.status.success() && said.contains("--address <ADDRESS>"), "{said}");
}
