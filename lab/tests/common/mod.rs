//! What the lab's tests share.

#[allow(dead_code, reason = "not every test has agents")]
pub(crate) mod helped;
#[allow(dead_code, reason = "not every test roams")]
pub(crate) mod scene;

use lasthop_lab::LabError;
use lasthop_lab::agent::path::{Path, Settings};
use lasthop_lab::roam::{Config, Roam};
use lasthop_lab::topology::{Lab, Topology};
use lasthop_linux::netns::NetnsError;

/// A lab, or none where the test may not have one.
#[allow(dead_code, reason = "not every test has a still mobile")]
pub(crate) fn lab(topology: &Topology) -> Option<Lab> {
    match Lab::start(topology) {
        Ok(lab) => Some(lab),
        Err(LabError::Netns(e @ NetnsError::NotPermitted(_))) => {
            eprintln!("skipped: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// A roaming lab, or none where the test may not have one.
#[allow(dead_code, reason = "not every test roams")]
pub(crate) fn roam(config: &Config) -> Option<Roam> {
    match Roam::start(config) {
        Ok(roam) => Some(roam),
        Err(LabError::Netns(e @ NetnsError::NotPermitted(_))) => {
            eprintln!("skipped: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// Whether `program` is there to be run.
#[allow(dead_code, reason = "not every test runs another program")]
pub(crate) fn is_installed(program: &str) -> bool {
    let found = std::process::Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

/// A path of bridges, or none where the test may not have one.
#[allow(dead_code, reason = "not every test has agents")]
pub(crate) fn path(settings: &Settings) -> Option<Path> {
    match Path::start(settings) {
        Ok(path) => Some(path),
        Err(LabError::Netns(e @ NetnsError::NotPermitted(_))) => {
            eprintln!("skipped: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}
