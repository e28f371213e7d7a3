//! The paper's model at the points that are simulated.

use lasthop_radio::Errors;
use lasthop_scenario::{Link, Scenario};
use lasthop_tcp::Window;
use lasthop_units::{Bytes, Duration};

use super::cells::Case;
use super::runner::payload;
use crate::analysis::obtcp::validity::{Doubt, Surroundings, doubts, mean_run};
use crate::analysis::obtcp::{
    Batch, Batches, DomainError, Hop, Hops, LossProbability, Model, PacketRate,
};

/// The least timeout of Table 2, the same in every scenario.
const MIN_RTO: Duration = Duration::from_millis(300);
/// Bytes of IP and TCP headers.
const HEADERS: u64 = 40;

/// The model at a point, and what its packets carry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    model: Model,
    payload: Bytes,
    surroundings: Surroundings,
}

impl Point {
    /// The model of a download; none for what it does not describe.
    pub(super) fn of(case: &Case) -> Option<Self> {
        let scenario = &case.scenario;
        let link = |name: &str| scenario.links.iter().find(|link| link.name == name);
        let (wire, radio, wlan) = (link("wire")?, link("radio")?, link("wlan")?);
        let hops = Hops::new(hop(radio).ok()?, hop(wlan).ok()?);
        let model = Model::new(wire.radio.up.delay, hops, window(scenario)).ok()?;
        let lasthop_radio::Pacing::Rate(rate) = radio.radio.up.pacing else { return None };
        let payload = payload(scenario);
        let packet = payload + Bytes::new(HEADERS);
        let surroundings = Surroundings { link: rate, packet, min_rto: MIN_RTO };
        Some(Self { model, payload, surroundings })
    }

    /// Equation (16) in kB/s.
    pub(super) fn snoop(&self) -> f64 {
        self.kilobytes(self.model.snoop_throughput())
    }

    /// Equation (20) in kB/s, with the batches that independent losses give on the first link, and
    /// single packets on the second.
    pub(super) fn obtcp(&self) -> f64 {
        self.kilobytes(self.model.obtcp_throughput(self.batches()))
    }

    /// The same with another n1.
    pub(super) fn obtcp_with(&self, first: Batch) -> f64 {
        self.kilobytes(self.model.obtcp_throughput(Batches { first, second: Batch::ONE }))
    }

    /// The gain by (16) and (20), in per cent.
    pub(super) fn gain(&self) -> f64 {
        self.model.gain(self.batches())
    }

    /// The n1 that makes the model's gain so many per cent.
    pub(super) fn first_batch_for(&self, gain: f64) -> Option<Batch> {
        self.model.first_batch_for(gain, Batch::ONE).ok()
    }

    /// What speaks against (16) here.
    pub(super) fn doubts(&self) -> Vec<Doubt> {
        doubts(&self.model, &self.surroundings)
    }

    fn batches(&self) -> Batches {
        Batches { first: mean_run(self.model.hops().first.loss), second: Batch::ONE }
    }

    fn kilobytes(&self, rate: PacketRate) -> f64 {
        rate.per_second() * self.payload.get() as f64 / 1000.0
    }
}

/// A link as the model sees it: the MAC delay is part of the delay.
fn hop(link: &Link) -> Result<Hop, DomainError> {
    let data = &link.radio.up;
    let loss = data.losses.iter().find_map(|loss| match loss.errors {
        Errors::Uniform(p) => Some(p),
        Errors::Burst { .. } | Errors::Fade { .. } => None,
    });
    Ok(Hop::new(
        data.delay.saturating_add(data.mac_delay),
        LossProbability::new(loss.unwrap_or(0.0))?,
    ))
}

/// The largest window in packets.
fn window(scenario: &Scenario) -> u32 {
    let most = scenario.flows.first().and_then(|flow| flow.tcp.from.max_window);
    match most {
        Some(Window::Segments(n)) => n,
        Some(Window::Bytes(bytes)) => {
            u32::try_from(bytes.get() / payload(scenario).get().max(1)).unwrap_or(u32::MAX)
        }
        None => 0,
    }
}
