//! What the command leaves to `lasthop-study`.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// A copy of the command, in a folder of its own.
fn alone() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(env!("CARGO_BIN_EXE_lasthop"), folder.path().join("lasthop")).unwrap();
    folder
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(folder.join("lasthop")).args(arguments).output().unwrap()
}

#[test]
fn what_is_missing_is_named_with_where_to_get_it() {
    let folder = alone();
    for name in ["sim", "reproduce", "cost", "demo"] {
        let output = run(folder.path(), &[name, "--help"]);
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        for part in [name, "lasthop-study", folder.path().to_str().unwrap(), "cargo build"] {
            assert!(said.contains(part), "{part} is not in {said}");
        }
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn the_program_beside_it_gets_every_argument_and_its_exit_status_is_the_commands() {
    let folder = alone();
    let study = folder.path().join("lasthop-study");
    fs::write(&study, "#!/bin/sh\nprintf '<%s>' \"$@\"\nexit 3\n").unwrap();
    fs::set_permissions(&study, fs::Permissions::from_mode(0o755)).unwrap();
    let output =
        run(folder.path(), &["reproduce", "league", "--only", "a b", "--json", "--", "-x"]);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    let got = String::from_utf8(output.stdout).unwrap();
    assert_eq!(got, "<reproduce><league><--only><a b><--json><--><-x>");
}
