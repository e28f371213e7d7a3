//! Holding acknowledgements for a client.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use lasthop_kernel::netlink::{Destroyer, Ends};
use lasthop_session::acknowledge::Control;

use super::super::Flow;
use super::super::ack_filter::{AckFilter, AckFilterError};
use super::super::message::HELD_MAX;

/// How often interfaces that have come since are looked for, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often sockets of a client that is gone are looked for, and for how long. Where they cannot be ended, the kernel needs
/// so long to give one up whose end is not acknowledged (tcp_orphan_retries).
const MOURN_EVERY: Duration = Duration::from_millis(20);
const MOURN_FOR: Duration = Duration::from_secs(120);

/// What holds acknowledgements for one client, once it has begun.
#[derive(Default, Debug)]
pub(super) struct HeldFlows {
    filter: Option<AckFilter>,
    looked: Option<Instant>,
}

impl HeldFlows {
    /// The memory of the slots, for a client that begins to have acknowledgements held.
    pub(super) fn begin(&mut self) -> Result<OwnedFd, String> {
        let filter = begun(AckFilter::new(HELD_MAX as u32))?;
        let slots = filter.slots().share().map_err(|e| e.to_string())?;
        self.filter = Some(filter);
        Ok(slots)
    }

    /// The same for one that has the memory from a helper before, with the connections that it held.
    pub(super) fn begin_again(
        &mut self,
        fds: &[OwnedFd],
        held: &[(Flow, u32)],
    ) -> Result<(), String> {
        let [slots] = fds else { return Err("no memory of slots came with the request".into()) };
        let slots = slots.try_clone().map_err(|e| e.to_string())?;
        self.filter = Some(begun(AckFilter::over(slots, held))?);
        Ok(())
    }

    /// Holds a connection's acknowledgements: by which slot.
    pub(super) fn hold(&mut self, flow: Flow) -> Result<u32, String> {
        let filter = self.filter.as_mut().ok_or("nothing is held for this client")?;
        if self.looked.is_none_or(|at| at.elapsed() >= LOOK_EVERY) {
            self.looked = Some(Instant::now());
            if let Err(error) = filter.attach_everywhere() {
                tracing::warn!(%error, "acknowledgements on some interface are not held");
            }
        }
        filter.insert(flow).map_err(|error| error.to_string())
    }

    /// Holds that connection's no longer.
    pub(super) fn release(&mut self, flow: &Flow) -> Result<(), String> {
        let Some(filter) = &mut self.filter else { return Ok(()) };
        filter.remove(flow).map(drop).map_err(|error| error.to_string())
    }
}

/// Connections whose client is gone without a word. The kernel would send their fixed hosts what ends them, and another base
/// may go on with them: nothing of them leaves until their sockets have ended.
#[derive(Debug)]
pub(super) struct Mourned {
    filter: AckFilter,
    next: Instant,
    /// Until the next look; longer each time they cannot be ended.
    pause: Duration,
    until: Instant,
}

impl Mourned {
    /// None if nothing was held for the client.
    pub(super) fn of(client: HeldFlows) -> Option<Self> {
        let filter = client.filter.filter(|filter| filter.held().next().is_some())?;
        let control = Control { live: true, mute: true, ..Control::default() };
        for (_, slot) in filter.held() {
            filter.slots().set_control(slot, control);
        }
        let now = Instant::now();
        Some(Self { filter, next: now, pause: MOURN_EVERY, until: now + MOURN_FOR })
    }

    /// When to look again.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Ends those sockets that are left, if it is time to; whether that was all.
    pub(super) fn handle_timeout(&mut self) -> bool {
        let now = Instant::now();
        if now < self.next {
            return false;
        }
        let flows: Vec<Flow> = self.filter.held().map(|(flow, _)| flow).collect();
        if let Err(error) = self.end(flows) {
            tracing::warn!(%error, "sockets of a base that is gone cannot be ended");
            self.pause *= 2;
        }
        self.next = now + self.pause;
        now >= self.until || self.filter.held().next().is_none()
    }

    fn end(&mut self, flows: Vec<Flow>) -> Result<(), String> {
        let mut destroyer = Destroyer::open().map_err(|e| e.to_string())?;
        for flow in flows {
            // One that is found is looked for once more: its process may be about to end it, too.
            let ends = Ends::tcp(flow.local, flow.remote);
            if !destroyer.destroy(ends).map_err(|e| e.to_string())? {
                self.filter.remove(&flow).map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }
}

fn begun(filter: Result<AckFilter, AckFilterError>) -> Result<AckFilter, String> {
    let attached = filter.and_then(|mut filter| filter.attach_everywhere().map(|()| filter));
    attached.map_err(|error| error.to_string())
}
