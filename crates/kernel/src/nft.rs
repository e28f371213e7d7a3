//! Packet rules, set through the `nft` program: a script is one transaction, so that a table stands
//! whole or not at all.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::process::{Command, Stdio};

use thiserror::Error;

/// Where `nft` is looked for: where `PATH` says, and where it is installed for the administrator,
/// which an ordinary `PATH` leaves out.
pub const PROGRAMS: [&str; 3] = ["nft", "/usr/sbin/nft", "/sbin/nft"];

/// Why packet rules cannot be set.
#[derive(Debug, Error)]
pub enum NftError {
    /// The program is not there.
    #[error("the `nft` program is missing: install nftables")]
    Missing,
    /// The kernel does not let this process change packet rules.
    #[error("packet rules may not be set here (CAP_NET_ADMIN is needed; nft says: {0})")]
    NotPermitted(String),
    /// `nft`, or the kernel under it, refused the rules.
    #[error("nft refused the rules: {0}")]
    Refused(String),
    /// The program could not be run or written to.
    #[error("running nft: {0}")]
    Io(io::Error),
}

/// Applies a script in the language of `nft`, in the calling thread's network namespace.
///
/// # Errors
///
/// [`NftError`]; then nothing of the script is in force.
pub fn apply(script: &str) -> Result<(), NftError> {
    run_nft(&["-f", "-"], script).map(drop)
}

/// Whether a script would be applied; nothing is changed.
///
/// # Errors
///
/// [`NftError`].
pub fn check(script: &str) -> Result<(), NftError> {
    run_nft(&["-c", "-f", "-"], script).map(drop)
}

/// How many rules that drop packets a table of the family `bridge` has; none if it is not there.
///
/// # Errors
///
/// [`NftError`].
pub fn drops_in_bridge(table: &str) -> Result<usize, NftError> {
    let rules = run_nft(&["list", "ruleset", "bridge"], "")?;
    let own = rules.split("table bridge ").find(|rules| rules.split(' ').next() == Some(table));
    Ok(own.map_or(0, |rules| rules.lines().filter(|line| line.ends_with(" drop")).count()))
}

/// Runs `nft` with a script, and returns what it says.
fn run_nft(arguments: &[&str], script: &str) -> Result<String, NftError> {
    let mut missing = Err(NftError::Missing);
    for program in PROGRAMS {
        missing = run(program, arguments, script);
        if !matches!(missing, Err(NftError::Missing)) {
            break;
        }
    }
    missing
}

/// Deletes a table of the family `inet`; one that is not there is no error.
///
/// # Errors
///
/// [`NftError`].
pub fn delete(table: &str) -> Result<(), NftError> {
    apply(&absent(table))
}

/// The beginning of a script after which no table of this name is there: one that may be there is
/// known to be there once it has been added.
pub fn absent(table: &str) -> String {
    format!("add table inet {table}\ndelete table inet {table}\n")
}

fn run(program: impl AsRef<OsStr>, arguments: &[&str], script: &str) -> Result<String, NftError> {
    let spawned = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(NftError::Missing),
        Err(e) => return Err(NftError::Io(e)),
    };
    // One that ends before it has read everything has reported why.
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(script.as_bytes()));
    let output = child.wait_with_output().map_err(NftError::Io)?;
    if !output.status.success() {
        return Err(refused(&String::from_utf8_lossy(&output.stderr)));
    }
    written.map_err(NftError::Io)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The first complaint is enough: the others follow from it, and each comes with the line.
fn refused(said: &str) -> NftError {
    let lines: Vec<&str> = said.lines().map(str::trim_end).filter(|l| !l.is_empty()).collect();
    let text = match lines.as_slice() {
        [] => "no reason was given".to_owned(),
        [complaint] => (*complaint).to_owned(),
        [complaint, line, ..] => format!("{complaint} in `{}`", line.trim()),
    };
    if said.contains("Operation not permitted") {
        NftError::NotPermitted(text)
    } else {
        NftError::Refused(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Netns;

    fn tables(netns: &Netns) -> String {
        let output = netns.command("nft").args(["list", "tables"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn a_table_stands_after_apply_and_not_after_delete() {
        let Some(netns) = Netns::for_test() else { return };
        let table = "table inet lasthop_x {\n}\n";
        netns.enter(|| apply(table).unwrap()).unwrap();
        assert_eq!(tables(&netns), "table inet lasthop_x\n");
        netns.enter(|| delete("lasthop_x").unwrap()).unwrap();
        netns.enter(|| delete("lasthop_x").unwrap()).unwrap();
        assert_eq!(tables(&netns), "");
    }

    #[test]
    fn a_refusal_is_reported_with_its_line_and_leaves_nothing() {
        let Some(netns) = Netns::for_test() else { return };
        let script = "table inet lasthop_x { }\nadd rule inet lasthop_x nowhere accept\n";
        let e = netns.enter(|| apply(script)).unwrap().unwrap_err();
        assert!(matches!(e, NftError::Refused(_)), "{e}");
        assert!(e.to_string().contains("add rule inet lasthop_x nowhere accept"), "{e}");
        assert_eq!(tables(&netns), "");
    }

    #[test]
    fn a_program_that_is_not_there_is_named_with_the_remedy() {
        let e = run("/nonexistent/nft", &[], "").unwrap_err();
        assert!(matches!(e, NftError::Missing), "{e}");
        assert!(e.to_string().contains("install nftables"), "{e}");
    }

    #[test]
    fn a_missing_privilege_is_distinguished_from_bad_rules() {
        let said = "/dev/stdin:1:1-10: Error: Could not process rule: Operation not permitted\n\
                    add table inet x\n^^^^^^^\n";
        let e = refused(said);
        assert!(matches!(e, NftError::NotPermitted(_)), "{e}");
        assert!(e.to_string().contains("CAP_NET_ADMIN"), "{e}");
        assert!(matches!(refused("netlink: Error: cache"), NftError::Refused(_)));
        assert!(refused("").to_string().contains("no reason"));
    }
}
