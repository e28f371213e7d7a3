//! What the command leaves to programs beside it.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// The command in a folder of its own: a link, since a file that is written cannot be run (ETXTBSY)
/// as long as a child that another test forks meanwhile has it open for writing.
fn alone() -> tempfile::TempDir {
    let program = Path::new(env!("CARGO_BIN_EXE_lasthop"));
    let folder = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
    fs::hard_link(program, folder.path().join("lasthop")).unwrap();
    folder
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(folder.join("lasthop")).args(arguments).output().unwrap()
}

#[test]
fn what_is_missing_is_named_with_where_to_get_it() {
    let folder = alone();
    let study = ["sim", "reproduce", "cost", "demo"].map(|name| (name, "lasthop-study"));
    for (name, program) in [&study[..], &[("fleet", "lasthop-fleet")]].concat() {
        let output = run(folder.path(), &[name, "--help"]);
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        for part in [name, program, folder.path().to_str().unwrap(), "cargo build"] {
            assert!(said.contains(part), "{part} is not in {said}");
        }
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn the_program_beside_it_gets_every_argument_and_its_exit_status_is_the_commands() {
    let folder = alone();
    let study = folder.path().join("lasthop-study");
    lasthop_testing::write_script(&study, "printf '<%s>' \"$@\"\nexit 3");
    let output =
        run(folder.path(), &["reproduce", "league", "--only", "a b", "--json", "--", "-x"]);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    let got = String::from_utf8(output.stdout).unwrap();
    assert_eq!(got, "<reproduce><league><--only><a b><--json><--><-x>");
}

#[test]
fn what_is_a_program_of_its_own_is_called_by_the_command_that_was_typed() {
    let folder = alone();
    let fleet = folder.path().join("lasthop-fleet");
    lasthop_testing::write_script(&fleet, "printf '<%s>' \"$@\"");
    let output = run(folder.path(), &["fleet", "list", "--json"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "<list><--json>");
}
