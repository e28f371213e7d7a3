//! Where mobiles' packets and datagrams may go: asked for each of them, and so remembered for a moment.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use lasthop_units::Time;

use crate::dial::Gate;

/// What the kernel has said of a target is believed for so long,
const BELIEVED_FOR: Duration = Duration::from_secs(1);
/// and of so many.
const REMEMBERED_MAX: usize = 4096;

/// What a gate has said of late.
#[derive(Debug, Default)]
pub(super) struct Admitted(HashMap<IpAddr, (Time, bool)>);

impl Admitted {
    /// Whether something may go to `ip`.
    pub(super) fn admits(&mut self, now: Time, gate: &dyn Gate, ip: IpAddr) -> bool {
        match self.0.get(&ip) {
            Some((at, admitted)) if now.since(*at) < BELIEVED_FOR => *admitted,
            _ => {
                if self.0.len() >= REMEMBERED_MAX {
                    self.0.clear();
                }
                let admitted = gate.admits(SocketAddr::new(ip, 0));
                self.0.insert(ip, (now, admitted));
                admitted
            }
        }
    }
}
