//! Holding acknowledgements for a client.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::super::Flow;
use super::super::ack_filter::{AckFilter, AckFilterError};
use super::super::message::HELD_MAX;

/// How often interfaces that have come since are looked for, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);

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

fn begun(filter: Result<AckFilter, AckFilterError>) -> Result<AckFilter, String> {
    let attached = filter.and_then(|mut filter| filter.attach_everywhere().map(|()| filter));
    attached.map_err(|error| error.to_string())
}
