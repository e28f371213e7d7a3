//! What agents in the path bring kernels that know nothing of them.

use anyhow::Result;
use lasthop_lab::agent::cell::{Cell, Figures, Hop, measure};
use lasthop_lab::agent::path::{Behind, Settings};
use lasthop_lab::agent::placement;
use lasthop_lab::agent::script::Gap;
use lasthop_lab::agent::sender::Sender;
use lasthop_lab::client::Stop;
use lasthop_lab::topology::link;
use lasthop_radio::{Errors, LinkConfig, Loss, RadioConfig};
use lasthop_units::Duration;

use super::{DELAY, RATE, Setting};
use crate::process;
use crate::report::{Report, Row};

const FIGURE: &str = "agents";
/// The path without an agent.
const NONE: &str = "none";
/// What is claimed of snoop's goodput over that without help at 5 % loss.
const SNOOP: f64 = 5.0;
/// And of what is left of it where there is little for it to repair.
const UNHARMED: f64 = 0.75;
/// What is claimed of obTCP's goodput over snoop's where both hops lose.
const OBTCP: f64 = 1.1;
/// What a silence that was told may cost beyond itself.
const TOLD: Duration = Duration::from_millis(300);
/// The silence: told a round trip with the queue full ahead. What it costs without help is a matter
/// of luck, as a timeout may happen to end just after it. Here it does not: timeouts of at most
/// 300 ms, doubled, end more than a second after it.
const SILENCE: Gap = Gap {
    at: Duration::from_secs(4),
    lasting: Duration::from_secs(5),
    lead: Some(Duration::from_millis(150)),
};

/// A path, and who is compared on it: each with the first.
struct Contest {
    name: &'static str,
    schemes: &'static [&'static str],
    cell: fn(&str, &Setting) -> Option<Cell>,
    /// The row of a scheme beside the first one's figures.
    row: fn(Row, &str, &Figures, &Figures) -> Row,
}

const CONTESTS: [Contest; 4] = [
    Contest { name: "loss-5", schemes: &[NONE, "snoop"], cell: lossy, row: at_a_lossy_hop },
    Contest { name: "gaps", schemes: &[NONE, "snoop"], cell: gaps, row: over_gaps },
    Contest {
        name: "two-hops-5",
        schemes: &["snoop", "obtcp"],
        cell: two_hops,
        row: over_two_hops,
    },
    Contest {
        name: "silence-5",
        schemes: &[NONE, "freeze", "ll-freeze"],
        cell: silence,
        row: told,
    },
];

/// Runs all contests.
pub(crate) fn run(setting: &Setting, report: &mut Report) {
    for contest in &CONTESTS {
        let wanted: Vec<_> = contest.schemes.iter().map(|name| setting.wants(name)).collect();
        if !wanted.contains(&true) {
            continue;
        }
        let mut first = None;
        for (scheme, wanted) in contest.schemes.iter().zip(wanted) {
            if !wanted && first.is_some() {
                continue;
            }
            report.row(&match attempt(setting, contest, scheme) {
                Ok(figures) => {
                    let first = first.get_or_insert_with(|| figures.clone());
                    shown(contest, scheme, &figures, first)
                }
                Err(error) => Row::failed(FIGURE, scheme, contest.name, &error, true),
            });
        }
    }
}

fn attempt(setting: &Setting, contest: &Contest, scheme: &str) -> Result<Figures> {
    let Some(cell) = (contest.cell)(scheme, setting) else {
        anyhow::bail!("{scheme} does not act on this path")
    };
    let seed = setting.seed.child(contest.name);
    Ok(measure(&cell, seed, process::lasthop()?, &Stop::default())?)
}

fn shown(contest: &Contest, scheme: &str, figures: &Figures, first: &Figures) -> Row {
    let row = Row::new(FIGURE, scheme, contest.name)
        .number("goodput_mbps", figures.goodput.as_bps() as f64 / 1e6)
        .number("gain", gain(figures, first))
        .number("loss", figures.loss)
        .value("timeouts", figures.timeouts)
        .value("retransmitted", figures.retransmitted)
        .every_byte("sha256_ok", figures.is_right);
    (contest.row)(row, scheme, figures, first)
}

fn gain(figures: &Figures, first: &Figures) -> f64 {
    figures.goodput.as_bps() as f64 / (first.goodput.as_bps() as f64).max(1.0)
}

fn cell(scheme: &str, path: Settings, measured: Duration) -> Option<Cell> {
    let league = Cell::league(NONE, path.sender, Hop::Clean, measured)?;
    let agents = placement::of(scheme)?;
    Some(Cell { path, agents, settle: Duration::from_secs(1), ..league })
}

/// 5 % of the packets are lost, and the sender is the papers'.
fn lossy(scheme: &str, setting: &Setting) -> Option<Cell> {
    let losses = vec![Loss::lose(Errors::Uniform(0.05))];
    let radio = RadioConfig::both(LinkConfig { losses, ..link(RATE, DELAY, 100) });
    let path = Settings { radio: Some(radio), sender: Sender::RENO, ..Settings::default() };
    cell(scheme, path, Duration::from_secs(setting.choose(8, 30)))
}

fn at_a_lossy_hop(row: Row, scheme: &str, figures: &Figures, none: &Figures) -> Row {
    let claim = format!("at least {SNOOP} times the unhelped");
    row.claim_if(scheme != NONE, claim, gain(figures, none) >= SNOOP)
}

/// A queue that the agent does not see, a burst that is lost whole, and a sender whose window has no
/// bound: snoop has little to repair there, and must not be what holds the sender up.
fn gaps(scheme: &str, setting: &Setting) -> Option<Cell> {
    let measured = Duration::from_secs(setting.choose(15, 40));
    Cell::league(scheme, Sender::CUBIC, Hop::Gaps, measured)
}

fn over_gaps(row: Row, scheme: &str, figures: &Figures, none: &Figures) -> Row {
    let claim = format!("at least {UNHARMED} of the unhelped");
    row.claim_if(scheme != NONE, claim, gain(figures, none) >= UNHARMED)
}

/// Both hops lose 5 %, of which snoop at the base repairs what it can tell.
fn two_hops(scheme: &str, setting: &Setting) -> Option<Cell> {
    let measured = Duration::from_secs(setting.choose(20, 60));
    let cell = Cell::league(scheme, Sender::RENO_32, Hop::TwoHops(0.05), measured)?;
    Some(Cell { settle: Duration::from_secs(1), ..cell })
}

fn over_two_hops(row: Row, scheme: &str, figures: &Figures, snoop: &Figures) -> Row {
    let claim = format!("at least {OBTCP} times snoop's");
    row.claim_if(scheme == "obtcp", claim, gain(figures, snoop) >= OBTCP)
}

fn silence(scheme: &str, _: &Setting) -> Option<Cell> {
    let radio = Some(RadioConfig::both(link(RATE, DELAY, 50)));
    let path = Settings { wire: None, radio, behind: Behind::Edge, ..Settings::default() };
    let measured = SILENCE.end() + Duration::from_secs(4);
    let cell = cell(scheme, path, measured)?;
    Some(Cell { gaps: vec![SILENCE], settle: Duration::ZERO, ..cell })
}

fn told(row: Row, scheme: &str, figures: &Figures, _: &Figures) -> Row {
    let cost = cost(figures);
    let within = cost.is_some_and(|cost| cost <= TOLD.as_secs_f64());
    row.number("cost_s", cost).claim_if(scheme != NONE, "costs at most 0.3 s more", within)
}

/// Seconds that the silence cost beyond itself, at the rate before it.
fn cost(figures: &Figures) -> Option<f64> {
    let received = &figures.received;
    let first = received.first()?;
    let (lead, rest) = (SILENCE.lead?, Duration::from_secs(3));
    let before = Duration::from_millis(1500);
    let from = SILENCE.at - lead;
    let bytes = |from, to| received.between(first + from, first + to).get() as f64;
    let rate = bytes(from - before, from) / before.as_secs_f64();
    let missing = bytes(from, SILENCE.end() + rest) / rate;
    Some((lead + rest).as_secs_f64() - missing)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use lasthop_lab::arrivals::Received;
    use lasthop_units::Seed;

    use super::*;

    #[test]
    fn every_contest_can_be_held_and_has_somebody_to_beat() {
        let setting = Setting {
            quick: true,
            only: Vec::new(),
            cells: Vec::new(),
            notes: None,
            seed: Seed::from_u64(1),
        };
        for contest in &CONTESTS {
            assert!(contest.schemes.len() > 1, "{}", contest.name);
            for scheme in contest.schemes {
                assert!((contest.cell)(scheme, &setting).is_some(), "{scheme} {}", contest.name);
            }
        }
    }

    #[test]
    fn a_silence_costs_what_it_lasts_longer_than_it_is() {
        let (first, tick) = (Instant::now(), Duration::from_millis(10));
        let arrives = |late: Duration| {
            let mut received = Received::default();
            let (falls, goes_on) = (SILENCE.at, SILENCE.end() + late);
            for n in 0..1300 {
                let at = tick * n;
                if at < falls || at >= goes_on {
                    received.take(first + at, &[0; 100]);
                }
            }
            cost(&Figures { received, ..Figures::default() }).unwrap()
        };
        assert!(arrives(Duration::ZERO).abs() < 0.05);
        assert!((arrives(Duration::from_millis(700)) - 0.7).abs() < 0.05);
    }
}
