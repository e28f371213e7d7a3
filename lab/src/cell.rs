//! One measurement: a scheme carries a transfer across a topology, and every byte is checked.

use std::path::Path;
use std::time::Instant;

use lasthop_radio::{LinkStats, Pacing, RadioConfig};
use lasthop_units::{Bytes, Duration, Rate};

use crate::arrivals::Received;
use crate::client::{Client, Stop};
use crate::error::LabError;
use crate::http;
use crate::quic::{self, Congestion};
use crate::scheme::{Carrier, Hop, Scheme};
use crate::service::Server;
use crate::topology::{Family, Lab, Topology};
use crate::transfer::{Direction, ENDLESS, Ended, Transfer};
use crate::wait::wait_for;

/// The share of a full packet that is TCP payload: 1500 bytes less IPv4 and TCP headers with
/// timestamps.
pub(crate) const PAYLOAD: f64 = 1448.0 / 1500.0;
/// A rate counts as full when this share of the limit holds for this long.
const FULL: (f64, Duration) = (0.9, Duration::from_millis(250));

/// A silence of the radio in the middle of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Silence {
    /// When it begins, after the measured part began.
    pub after: Duration,
    /// How long it lasts.
    pub lasting: Duration,
}

/// Where the hosts are.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Isolation {
    /// Namespaces of their own.
    #[default]
    Namespaces,
    /// Ports of the loopback interface, without privilege and without a wired link.
    Loopback,
}

/// What is carried.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Carried {
    /// A connection of TCP.
    #[default]
    Tcp,
    /// A connection of QUIC, whose ends know nothing of the scheme, with this congestion control.
    Quic(Congestion),
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Across what.
    pub topology: Topology,
    /// Among which hosts.
    pub place: Isolation,
    /// By what.
    pub scheme: Scheme,
    /// Of what; QUIC goes from the fixed host to the mobile, as packets where the scheme is srp.
    pub traffic: Carried,
    /// Which way.
    pub direction: Direction,
    /// By which addresses.
    pub family: Family,
    /// How long after the first byte the measured part begins.
    pub settle: Duration,
    /// How long the measured part lasts, not counting a silence in it.
    pub measured: Duration,
    /// A silence in it.
    pub silence: Option<Silence>,
    /// How long connecting, and the wait for the first byte, may take.
    pub patience: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            topology: Topology::default(),
            place: Isolation::default(),
            scheme: Scheme::Srp,
            traffic: Carried::Tcp,
            direction: Direction::default(),
            family: Family::default(),
            settle: Duration::from_millis(1500),
            measured: Duration::from_secs(15),
            silence: None,
            patience: Duration::from_secs(15),
        }
    }
}

/// What was measured.
#[derive(Clone, Default, Debug)]
pub struct Measured {
    /// New bytes at the receiver over the time that the radio was there.
    pub goodput: Rate,
    /// Goodput over radio rate x (1 - loss as it fell) x 1448/1500; none if the radio's rate
    /// is unlimited or changes.
    pub share_of_limit: Option<f64>,
    /// Packets dropped at the radio's queue over packets offered to it, data direction.
    pub queue_drop_share: f64,
    /// Packets lost by the radio over packets that it transmitted, data direction.
    pub loss: f64,
    /// All that the radio did in the measured part, data direction.
    pub radio: LinkStats,
    /// From the radio's return to the first byte after it; none without a silence, or if
    /// nothing more came.
    pub recovery: Option<Duration>,
    /// From the radio's return to the start of the first quarter second at nine tenths of the
    /// limit.
    pub full_rate: Option<Duration>,
    /// How long the transfer was watched after the radio's return.
    pub watched: Option<Duration>,
    /// Bytes received in all.
    pub total: Bytes,
    /// Whether those bytes are, by SHA-256, the bytes that were sent.
    pub sha256_ok: bool,
    /// What arrived when.
    pub received: Received,
}

/// Carries out `plan` with the `lasthop` command at `program` until it is done or `stop` is set.
///
/// # Errors
///
/// The lab could not be built, the scheme could not be started, the connection could not be made
/// or broke, or `stop` was set.
pub fn measure(plan: &Plan, program: &Path, stop: &Stop) -> Result<Measured, LabError> {
    let lab = match plan.place {
        Isolation::Namespaces => Lab::start(&plan.topology)?,
        Isolation::Loopback => Lab::on_loopback(&plan.topology)?,
    };
    let seed = plan.topology.seed.child("content");
    if let Carried::Quic(congestion) = plan.traffic {
        let mut carrier = start_with_packets(plan, &lab, program)?;
        let server = lab.server_address(plan.family);
        let ends = (&lab.fixed, server, &lab.mobile);
        let transfer = quic::download(ends, congestion, seed, plan.patience)?;
        let observed = observe(plan, &lab, &transfer, || match stop.is_set() {
            true => Err(LabError::Stopped),
            false => carrier.check(),
        });
        let (observed, ended) = transfer.end(observed)?;
        return Ok(evaluate(plan, &observed, ended));
    }
    let mut carrier = Carrier::start(&plan.scheme, &lab, plan.family, program, plan.patience)?;
    let server = http::start(&lab.fixed, lab.server_address(plan.family), seed)?;
    let client = Client::new(&lab.mobile, carrier.via(), server.address());
    measure_on(plan, &lab, &server, &client, || match stop.is_set() {
        true => Err(LabError::Stopped),
        false => carrier.check(),
    })
}

/// What `plan`'s scheme needs, where packets go by it too if it can carry them; ready for them.
pub(crate) fn start_with_packets(
    plan: &Plan,
    lab: &Lab,
    program: &Path,
) -> Result<Carrier, LabError> {
    let (family, patience) = (plan.family, plan.patience);
    if plan.scheme != Scheme::Srp {
        return Carrier::start(&plan.scheme, lab, family, program, patience);
    }
    start_hop_with_packets(&Hop::with_packets(), lab, family, program, patience)
}

/// A hop that carries packets too, ready for them.
pub(crate) fn start_hop_with_packets(
    hop: &Hop,
    lab: &Lab,
    family: Family,
    program: &Path,
    patience: Duration,
) -> Result<Carrier, LabError> {
    let mut carrier = Carrier::start_hop(hop, lab, family, program, patience)?;
    let what = "the mobile's way for packets";
    wait_for(patience, what, || {
        carrier.check()?;
        let mobile = carrier.daemons().last();
        Ok(mobile.filter(|mobile| mobile.said().contains("association up")).map(|_| ()))
    })?;
    Ok(carrier)
}

/// The same by a `client` and a `server` in a lab that is there, as long as `check` finds nothing
/// wrong.
///
/// # Errors
///
/// The connection could not be made or broke, or what `check` found.
pub fn measure_on(
    plan: &Plan,
    lab: &Lab,
    server: &Server,
    client: &Client,
    check: impl FnMut() -> Result<(), LabError>,
) -> Result<Measured, LabError> {
    let transfer = Transfer::start(server, client, plan.direction, ENDLESS, plan.patience)?;
    let observed = observe(plan, lab, &transfer, check);
    let (observed, ended) = transfer.end(observed)?;
    Ok(evaluate(plan, &observed, ended))
}

/// What was seen of the measured part.
struct Observed {
    from: Instant,
    to: Instant,
    radio: LinkStats,
    /// When the radio fell silent and when it came back.
    silence: Option<(Instant, Instant)>,
}

/// Waits through the plan's parts, taking note, as long as `check` finds nothing wrong.
fn observe(
    plan: &Plan,
    lab: &Lab,
    transfer: &Transfer,
    mut check: impl FnMut() -> Result<(), LabError>,
) -> Result<Observed, LabError> {
    let first = transfer.first_byte_while(&mut check)?;
    transfer.until_while(first + plan.settle, &mut check)?;
    lab.radio.control.reset_stats();
    let from = Instant::now();
    let mut end = from + plan.measured;
    let mut silence = None;
    if let Some(planned) = plan.silence {
        transfer.until_while(from + planned.after, &mut check)?;
        let fell = Instant::now();
        lab.radio.control.pause(planned.lasting);
        silence = Some((fell, fell + planned.lasting));
        end += planned.lasting;
    }
    transfer.until_while(end, &mut check)?;
    let radio = lab.radio.stats(plan.direction.on_radio());
    Ok(Observed { from, to: Instant::now(), radio, silence })
}

fn evaluate(plan: &Plan, observed: &Observed, ended: Ended) -> Measured {
    let Ended { received, is_right } = ended;
    let Observed { from, to, radio, silence } = *observed;
    let silent = silence.map_or(Duration::ZERO, |(fell, returned)| returned - fell);
    let goodput = Rate::of(received.between(from, to), (to - from).saturating_sub(silent));
    let loss = radio.loss();
    let limit = radio_rate(&plan.topology.radio, plan.direction)
        .map(|rate| rate.scale((1.0 - loss) * PAYLOAD));
    let after = |moment: Option<Instant>| Some(moment?.duration_since(silence?.1));
    let returned = silence.map(|(_, returned)| returned);
    let full = limit.zip(returned).and_then(|(limit, returned)| {
        received.first_stretch(returned, FULL.1, limit.scale(FULL.0))
    });
    Measured {
        goodput,
        share_of_limit: limit.map(|limit| goodput.as_bps() as f64 / limit.as_bps() as f64),
        queue_drop_share: radio.queue_drop_share(),
        loss,
        radio,
        recovery: after(returned.and_then(|returned| received.first_from(returned))),
        full_rate: after(full),
        watched: after(Some(to)),
        total: received.total(),
        sha256_ok: is_right,
        received,
    }
}

/// The radio's rate in the direction of the data, if it is limited and steady.
pub(crate) fn radio_rate(radio: &RadioConfig, direction: Direction) -> Option<Rate> {
    let link = match direction {
        Direction::Download => &radio.down,
        Direction::Upload => &radio.up,
    };
    match link.pacing {
        Pacing::Rate(rate) if rate != Rate::UNLIMITED => Some(rate),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use lasthop_radio::Count;
    use lasthop_units::Seed;

    use super::*;
    use crate::content::Content;

    const SEED: Seed = Seed::from_u64(2);

    /// One segment of 1448 bytes every 600 us for `ms`, but none while `silent`: 20 Mbit/s.
    fn arrivals(start: Instant, ms: u64, silent: std::ops::Range<u64>) -> Received {
        let (mut received, mut content) = (Received::default(), Content::new(SEED));
        let mut segment = [0; 1448];
        for us in (0..ms * 1000).step_by(600).filter(|us| !silent.contains(&(us / 1000))) {
            content.fill(&mut segment);
            received.take(start + Duration::from_micros(us), &segment);
        }
        received
    }

    fn observed(start: Instant, to_ms: u64, silence: Option<(u64, u64)>) -> Observed {
        let at = |ms| start + Duration::from_millis(ms);
        let radio = LinkStats {
            offered: Count { packets: 1000, bytes: 0 },
            sent: Count { packets: 900, bytes: 0 },
            ..LinkStats::default()
        };
        let silence = silence.map(|(fell, returned)| (at(fell), at(returned)));
        Observed { from: at(1000), to: at(to_ms), radio, silence }
    }

    #[test]
    fn a_radio_filled_with_segments_is_the_limit() {
        let start = Instant::now();
        let received = arrivals(start, 4000, 0..0);
        let m =
            evaluate(&Plan::default(), &observed(start, 4000, None), Ended::new(received, SEED));
        let share = m.share_of_limit.unwrap();
        assert!((share - 1.0).abs() < 0.002, "{share}");
        assert_eq!((m.recovery, m.full_rate, m.loss), (None, None, 0.0));
        assert!(m.sha256_ok);
    }

    #[test]
    fn a_silence_costs_only_what_follows_it() {
        let start = Instant::now();
        // Silent from 2 s to 4 s, and nothing arrives for half a second more.
        let received = arrivals(start, 6000, 2000..4500);
        let silence = Some((2000, 4000));
        let m =
            evaluate(&Plan::default(), &observed(start, 6000, silence), Ended::new(received, SEED));
        let share = m.share_of_limit.unwrap();
        assert!((share - 2.5 / 3.0).abs() < 0.002, "{share}");
        let back = m.recovery.unwrap();
        assert!(back >= Duration::from_millis(500) && back < Duration::from_millis(502));
        assert_eq!(m.full_rate, Some(back));
        assert_eq!(m.watched, Some(Duration::from_secs(2)));
    }

    #[test]
    fn losses_lower_the_limit_and_full_queues_are_told_apart() {
        let start = Instant::now();
        let mut observed = observed(start, 2000, None);
        observed.radio.hit.packets = 450;
        observed.radio.dropped.queue.packets = 100;
        let received = arrivals(start, 2000, 0..0);
        let m = evaluate(&Plan::default(), &observed, Ended::new(received, SEED));
        assert!((m.share_of_limit.unwrap() - 2.0).abs() < 0.005);
        assert_eq!((m.loss, m.queue_drop_share), (0.5, 0.1));
    }

    #[test]
    fn a_changing_rate_has_no_limit_and_wrong_bytes_are_told() {
        let start = Instant::now();
        let mut plan = Plan::default();
        plan.topology.radio.down.pacing = Pacing::Rate(Rate::UNLIMITED);
        let received = arrivals(start, 2000, 0..0);
        let other = Seed::from_u64(3);
        let m = evaluate(&plan, &observed(start, 2000, None), Ended::new(received, other));
        assert_eq!(m.share_of_limit, None);
        assert!(!m.sha256_ok);
    }
}
