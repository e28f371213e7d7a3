//! The course of a run: what happens in the network, what is changed by hand meanwhile, and what is
//! noted when rates begin to count.

use lasthop_scenario::RunError;
use lasthop_sim::net::LinkId;
use lasthop_units::Time;

use super::network::Running;

impl Running<'_> {
    /// Lets everything up to `end` happen.
    pub(super) fn run_until(&mut self, end: Time) -> Result<(), RunError> {
        let from = Time::ZERO + self.scenario.measure.from;
        if self.before.is_empty() && from <= end {
            self.advance(from)?;
            self.before = (0..self.scenario.flows.len()).map(|i| self.received(i)).collect();
            let flows = 0..self.scenario.flows.len();
            self.buffers_before = flows.map(|i| self.buffers(i).unwrap_or_default()).collect();
            let network = &mut self.network;
            let stats = |ids: &[LinkId; 2]| ids.map(|id| network.link_stats(id));
            self.links_before = self.links.iter().map(stats).collect();
        }
        self.advance(end)
    }

    fn advance(&mut self, end: Time) -> Result<(), RunError> {
        while let Some(transfer) = self.transfers.front().copied().filter(|t| t.at <= end) {
            self.transfers.pop_front();
            self.run_network(transfer.at)?;
            self.transfer(&transfer);
        }
        self.run_network(end)
    }

    fn run_network(&mut self, end: Time) -> Result<(), RunError> {
        self.network.run_until(end).map_err(|halt| RunError::Failed(halt.to_string()))
    }
}
