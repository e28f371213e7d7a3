//! Virtual cables, and their carrier: whether anything is at the other end.

use std::io::Write;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use lasthop_kernel::netns::Netns;

use crate::error::LabError;

/// Above every number that the kernel would choose for itself.
const FIRST_INDEX: u32 = 1000;

/// A new namespace that says nothing of its own accord, for what is between hosts.
pub(crate) fn quiet() -> Result<Netns, LabError> {
    let place = Netns::anonymous()?;
    for which in ["default", "all"] {
        place.sysctl(&format!("ipv6.conf.{which}.disable_ipv6"), "1")?;
    }
    Ok(place)
}

/// Joins `name` in `host` with `far_name` in `far` by a pair of virtual Ethernet interfaces, both
/// down.
///
/// The number of one interface is not that of the other, which a namespace of each one's own allows:
/// the kernel takes its time, up to a second, to notice a carrier where both are equal.
pub(crate) fn cable(host: &Netns, name: &str, far: &Netns, far_name: &str) -> Result<(), LabError> {
    static NEXT: AtomicU32 = AtomicU32::new(FIRST_INDEX);
    let index = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = far.path();
    host.ip(&format!(
        "link add name {name} index {index} type veth peer name {far_name} netns {}\n",
        path.display()
    ))?;
    Ok(())
}

/// Gives the interface at the other end of a cable its carrier, or takes it away, by that end `far` in `place`.
pub(crate) fn plug(place: &Netns, far: &str, present: bool) -> Result<(), LabError> {
    place.ip(&set(far, present)).map_err(LabError::from)
}

fn set(far: &str, present: bool) -> String {
    format!("link set dev {far} {}\n", if present { "up" } else { "down" })
}

/// One end of a virtual cable; while it is down the interface at the other end has no carrier.
///
/// An `ip` that reads what to do from a pipe carries it out, so that no process has to be started
/// at the moment that counts.
#[derive(Debug)]
pub(crate) struct Carrier {
    ip: Child,
    orders: Option<ChildStdin>,
    far: &'static str,
}

impl Carrier {
    /// That of the cable whose far end is `far` in `place`. The caller's thread must outlive it.
    pub(crate) fn new(place: &Netns, far: &'static str) -> Result<Self, LabError> {
        let mut ip = place
            .command("ip")
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| LabError::io("starting `ip`", e))?;
        let orders = ip.stdin.take();
        Ok(Self { ip, orders, far })
    }

    /// Gives the carrier or takes it away. The moment is that just before the order.
    pub(crate) fn set(&mut self, present: bool) -> Result<Instant, LabError> {
        let order = set(self.far, present);
        let now = Instant::now();
        let written = match &mut self.orders {
            Some(orders) => orders.write_all(order.as_bytes()),
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        };
        written.map_err(|e| LabError::io("setting a carrier", e))?;
        Ok(now)
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        // At the end of its orders it ends.
        self.orders = None;
        let _ = self.ip.wait();
    }
}
