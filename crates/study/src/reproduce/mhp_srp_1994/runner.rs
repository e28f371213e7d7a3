//! Each run of a cell: a mobile that moves a file from cell to cell.

use lasthop_hop::{Discipline, HopConfig, Window};
use lasthop_radio::{Errors, LinkConfig, Loss, Pacing, RadioConfig};
use lasthop_session::{Config as SessionConfig, handoff};
use lasthop_sim::schemes::HopKind;
use lasthop_sim::schemes::journey::{Help, Journey, Outcome, Pause};
use lasthop_tcp::Config as TcpConfig;
use lasthop_units::{Duration, Seed, Stream, Time};

use super::cells::{Case, Contender, Handoffs};
use super::setup::{Bursts, Experiment};
use crate::engine::{UDP_HEADERS, srp_hop};
use crate::reproduce::{Cell, CellRunner, Course, Failure};

/// Bytes of the IP and TCP headers on the hop.
const TCP_HEADERS: u64 = 40;
/// More handoffs than any transfer meets that ends.
const HANDOFFS_MAX: usize = 64;
/// A transfer's course is sampled so often.
const SAMPLED_EVERY: Duration = Duration::from_millis(50);

/// The experiment in the simulator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Simulated;

impl CellRunner<Case> for Simulated {
    fn run(&self, cell: &Cell<Case>, _run: u32, seed: Seed) -> Result<f64, Failure> {
        let journey = journey(&cell.case.experiment(), &cell.case, seed);
        let outcome = journey.run(seed).map_err(|e| Failure::Unavailable(e.to_string()))?;
        time_of(&journey, &outcome)
    }

    fn course(&self, cell: &Cell<Case>, _run: u32, seed: Seed) -> Option<Course> {
        let journey = journey(&cell.case.experiment(), &cell.case, seed);
        let mut run = journey.start(seed).ok()?;
        let mut course = Course::default();
        let mut at = Time::ZERO;
        while !run.is_over() && at < Time::ZERO + journey.give_up {
            at += SAMPLED_EVERY;
            run.run_until(at).ok()?;
            let sample = run.sample();
            let seconds = at.as_secs_f64();
            course.cwnd.push((seconds, sample.cwnd.get() as f64));
            course.sent.push((seconds, sample.sent.get() as f64));
            course.delivered.push((seconds, sample.delivered.get() as f64));
        }
        let end = at.as_secs_f64();
        let pauses = journey
            .pauses
            .iter()
            .map(|pause| (pause.at.as_secs_f64(), (pause.at + pause.lasts).as_secs_f64()));
        course.pauses = pauses.filter(|(from, _)| *from < end).collect();
        Some(course)
    }
}

fn time_of(journey: &Journey, outcome: &Outcome) -> Result<f64, Failure> {
    match outcome.received {
        Some(time) if outcome.bytes == journey.file => Ok(time.as_secs_f64()),
        _ if outcome.broken => Err(Failure::Incomplete("the session broke".to_owned())),
        _ => {
            let limit = journey.give_up.as_secs();
            let of = journey.file;
            Err(Failure::Incomplete(format!("{} of {of} after {limit} s", outcome.bytes)))
        }
    }
}

/// What a run of `case` is made of; what differs from run to run follows from `seed`.
fn journey(experiment: &Experiment, case: &Case, seed: Seed) -> Journey {
    let wired = wired(experiment);
    Journey {
        help: help(experiment, case.scheme),
        file: experiment.file,
        way: experiment.direction,
        radio: RadioConfig::both(hop(experiment, case.loss)),
        half_duplex: experiment.half_duplex,
        wired_up: wired.clone(),
        wired_down: wired,
        campus: LinkConfig {
            pacing: Pacing::Rate(experiment.base_rate),
            delay: experiment.base_delay / 2,
            ..LinkConfig::default()
        },
        pauses: pauses(experiment, case, seed.stream("handoffs")),
        mobile_tcp: tcp(experiment, small_segment(experiment)),
        fixed_tcp: tcp(experiment, experiment.wired_mss.get()),
        wired_tcp: TcpConfig {
            recv_buffer: experiment.agent_buffer,
            send_buffer: experiment.agent_buffer,
            ..tcp(experiment, experiment.wired_mss.get())
        },
        sessions: (SessionConfig::mobile(), SessionConfig::base()),
        handoffs: (handoff::Config::mobile(), handoff::Config::base()),
        give_up: experiment.limit,
    }
}

fn help(experiment: &Experiment, scheme: Contender) -> Help {
    let small = tcp(experiment, small_segment(experiment));
    match scheme {
        Contender::Tcp => Help::Nothing,
        Contender::SplitTcp => Help::Split(HopKind::SplitTcp(small)),
        Contender::ITcp => Help::Split(HopKind::ITcp(small)),
        Contender::Srp => Help::Split(HopKind::Srp(srp(experiment, windowed(experiment)))),
        Contender::SrpToday => Help::Split(HopKind::Srp(srp(experiment, Discipline::Paced))),
    }
}

fn small_segment(experiment: &Experiment) -> u64 {
    experiment.mtu.get().saturating_sub(TCP_HEADERS)
}

fn tcp(experiment: &Experiment, mss: u64) -> TcpConfig {
    let mut config = TcpConfig {
        mss: u16::try_from(mss).unwrap_or(u16::MAX),
        recv_buffer: experiment.window,
        send_buffer: experiment.window,
        algorithm: experiment.flavour,
        ..TcpConfig::bsd_1990s()
    };
    config.rto.tick = experiment.tick;
    config.rto.min = experiment.min_rto;
    config
}

fn windowed(experiment: &Experiment) -> Discipline {
    Discipline::Windowed(Window {
        segments: experiment.srp_window,
        ack_every: experiment.srp_ack_every,
        granularity: experiment.srp_tick,
        rto_max: experiment.srp_max_rto,
        ..Window::default()
    })
}

fn srp(experiment: &Experiment, discipline: Discipline) -> HopConfig {
    let datagram = experiment.mtu.get().saturating_sub(UDP_HEADERS);
    srp_hop([datagram, datagram], experiment.agent_buffer, discipline)
}

fn hop(experiment: &Experiment, loss: f64) -> LinkConfig {
    LinkConfig {
        pacing: Pacing::Rate(experiment.wireless_rate),
        delay: experiment.wireless_delay,
        mac_delay: experiment.per_packet,
        mac_occupies: true,
        mtu: u32::try_from(experiment.mtu.get()).unwrap_or(u32::MAX),
        losses: errors(experiment, loss).map(Loss::lose).into_iter().collect(),
        ..LinkConfig::default()
    }
}

fn errors(experiment: &Experiment, loss: f64) -> Option<Errors> {
    if loss <= 0.0 {
        return None;
    }
    Some(match experiment.bursts {
        Bursts::Packets(length) => Errors::burst(loss, length),
        Bursts::Time(mean) => {
            let air = experiment.per_packet + experiment.wireless_rate.time_for(experiment.mtu);
            Errors::Fade { mean, share: share_of_time(loss, mean, air) }
        }
    })
}

/// The share of time in bursts of `mean` length that hits the share `loss` of packets with this air
/// time: a packet is hit if any part of it is (ERR-5, exact).
fn share_of_time(loss: f64, mean: Duration, air: Duration) -> f64 {
    let packets = air.as_secs_f64() / mean.as_secs_f64();
    let mut share = loss;
    for _ in 0..60 {
        let spared = (1.0 - share) * libm::exp(-share * packets / (1.0 - share));
        share *= loss / (1.0 - spared);
    }
    share
}

fn wired(experiment: &Experiment) -> LinkConfig {
    let loss = experiment.wired_loss;
    LinkConfig {
        pacing: Pacing::Rate(experiment.wired_rate),
        // The campus link is a part of the way.
        delay: (experiment.wired_rtt / 2).saturating_sub(experiment.base_delay / 2),
        losses: (loss > 0.0).then(|| Loss::lose(Errors::Uniform(loss))).into_iter().collect(),
        ..LinkConfig::default()
    }
}

fn pauses(experiment: &Experiment, case: &Case, mut numbers: Stream) -> Vec<Pause> {
    if case.pause.is_zero() {
        return Vec::new();
    }
    let first = uniform(experiment.first_handoff, &mut numbers);
    // LNK-9: from start to start, constant within a run.
    let spacing = uniform(experiment.spacing, &mut numbers).max(case.pause + SAMPLED_EVERY);
    let count = match case.handoffs {
        Handoffs::Once => 1,
        Handoffs::Repeated => HANDOFFS_MAX,
    };
    (0..count as u32).map(|n| Pause { at: first + spacing * n, lasts: case.pause }).collect()
}

fn uniform([from, to]: [Duration; 2], numbers: &mut Stream) -> Duration {
    from + to.saturating_sub(from).mul_f64(numbers.uniform())
}

#[cfg(test)]
mod tests {
    use lasthop_units::{Bytes, Rate};

    use super::*;

    /// LNK-5: the share of time is such that the share of packets is what was asked for.
    #[test]
    fn bursts_in_time_hit_the_share_of_packets_that_was_asked_for() {
        let (mean, air) = (Duration::from_millis(200), Duration::from_millis(21));
        for loss in [0.05, 0.1] {
            let share = share_of_time(loss, mean, air);
            assert!(share < loss && share > 0.8 * loss, "{share}");
            let link = LinkConfig {
                pacing: Pacing::Rate(Rate::from_kbps(8)),
                losses: vec![Loss::lose(Errors::Fade { mean, share })],
                ..LinkConfig::default()
            };
            let mut link =
                lasthop_radio::Link::new(&link, Seed::from_u64(1), Time::ZERO).expect("a link");
            let mut now = Time::ZERO;
            for _ in 0..100_000 {
                link.push(now, Bytes::new(21), ()).expect("room");
                now += air;
                while link.pop(now).is_some() {}
            }
            let stats = link.stats(now);
            let lost = 1.0 - stats.delivered.packets as f64 / stats.offered.packets as f64;
            assert!((lost - loss).abs() < 0.005, "{lost}");
        }
    }

    /// LNK-8, LNK-9: the first within the range, the others at one spacing.
    #[test]
    fn handoffs_are_spaced_evenly_within_a_run() {
        let experiment = Experiment::default();
        let case = Case {
            scheme: Contender::Tcp,
            pause: Duration::from_secs(1),
            loss: 0.0,
            handoffs: Handoffs::Repeated,
            variation: None,
        };
        for seed in 0..50 {
            let pauses = pauses(&experiment, &case, Seed::from_u64(seed).stream("handoffs"));
            let first = pauses[0].at.as_secs_f64();
            assert!((4.0..8.0).contains(&first), "{first}");
            let spacing = pauses[1].at - pauses[0].at;
            assert!((5.0..10.0).contains(&spacing.as_secs_f64()));
            assert!(pauses.windows(2).all(|w| w[1].at - w[0].at == spacing));
        }
    }
}
