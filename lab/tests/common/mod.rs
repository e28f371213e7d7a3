//! What the lab's tests share.

use lasthop_lab::LabError;
use lasthop_lab::topology::{Lab, Topology};
use lasthop_linux::netns::NetnsError;

/// A lab, or none where the test may not have one.
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
