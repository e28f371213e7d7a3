//! What the links of a mobile that has several could carry together, with the losses as they fell.

use lasthop_radio::{Errors, Gap, LinkConfig, LinkStats, Pacing};
use lasthop_scenario::{Flow, LinkIndex};
use lasthop_units::{Bytes, Rate};

use super::network::Running;

/// Bytes of the longest datagrams that hosts send, and of the IP and TCP headers in each.
const DATAGRAM: u32 = 1500;
const HEADERS: u32 = 40;

impl Running<'_> {
    /// Bits of payload in a second that the links which the mobile of a flow uses could have carried towards
    /// where its data goes, since rates count; `None` where the mobile has one link.
    pub(super) fn limit(&mut self, flow: &Flow) -> Option<f64> {
        let scenario = self.scenario;
        let mobile = scenario.mobile_end(flow)?;
        let set = scenario.link_set(mobile)?;
        let upwards = flow.from == mobile;
        let of = |link: &LinkIndex| {
            self.link_limit(*link, (scenario.link(*link).ends[0] == mobile) == upwards)
        };
        Some(set.used.iter().map(of).sum())
    }

    /// The same of one direction of a link, `forward` or back; no number where nobody can tell.
    fn link_limit(&mut self, link: LinkIndex, forward: bool) -> f64 {
        let radio = &self.scenario.link(link).radio;
        let (config, way) = if forward { (&radio.up, 0) } else { (&radio.down, 1) };
        let stats = self.network.link_stats(self.links[link.0][way]);
        let before = self.links_before.get(link.0).map(|before| before[way]).unwrap_or_default();
        carried(config, &stats, &before).unwrap_or(f64::NAN)
    }
}

/// The payload that a link could have carried between two looks at what it did.
fn carried(config: &LinkConfig, stats: &LinkStats, before: &LinkStats) -> Option<f64> {
    let rate = match &config.pacing {
        Pacing::Rate(Rate::UNLIMITED) | Pacing::Steps(_) => return None,
        Pacing::Rate(rate) => *rate,
        Pacing::Trace(trace) => trace.mean_rate(),
    };
    let datagram = config.mtu.min(DATAGRAM);
    let air = rate.time_for(Bytes::new(u64::from(datagram))).as_secs_f64();
    let elapsed = stats.until.since(before.until).as_secs_f64();
    let silent = stats.silent.saturating_sub(before.silent).as_secs_f64();
    // Packets that touch a fade are lost: those on the air as it begins and as it ends, half of each in it.
    let fades = stats.fades.saturating_sub(before.fades) as f64;
    let faded = stats.faded.saturating_sub(before.faded).as_secs_f64() + fades * air;
    let survives: Option<f64> = config.losses.iter().map(|loss| survivors(loss.errors)).product();
    let payload = f64::from(datagram.saturating_sub(HEADERS)) / f64::from(datagram);
    let clear = (1.0 - silent / elapsed) * (1.0 - faded / elapsed).max(0.0);
    Some(rate.as_bps() as f64 * survives? * clear * payload)
}

/// The share of packets that an error process without a clock leaves.
fn survivors(errors: Errors) -> Option<f64> {
    match errors {
        Errors::Uniform(share) => Some(1.0 - share),
        Errors::Burst { gap: Gap::Packets(gap), length } => Some(gap / (gap + length)),
        Errors::Burst { gap: Gap::Time(_), .. } => None,
        Errors::Fade { .. } => Some(1.0),
    }
}
