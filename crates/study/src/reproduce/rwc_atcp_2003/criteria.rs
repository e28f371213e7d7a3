//! What has to be right.

use super::beside::Ns2;
use super::cells::{AFTER, BEFORE, FLOWS, GOODPUT, IDLE, TRANSFERS, Transfer};
use super::gains::{gain, ideal, largest, lengths};
use crate::reproduce::{Comparison, Criterion};

/// How far the rates of the two downloads may be from the paper's.
const RATES: f64 = 0.03;
/// A loss of less than this, in per cent, is none.
const MATERIAL: f64 = 2.0;
/// ATCP is close to Freeze-TCP if their goodputs differ by no more.
const CLOSE: f64 = 0.10;
/// How far above the ideal a mean may be, as a part of it, and in standard errors of the time that
/// the link is down: lengths vary.
const ABOVE: f64 = 0.005;
const ERRORS: f64 = 3.0;
/// An idle time is no longer than another if it exceeds it by less than two bins, in seconds.
const BINS: f64 = 0.02;
/// How far Reno may be from ns-2's beyond that one's interval.
const NS2: f64 = 0.05;
/// How many lengths of disconnections there are.
const LENGTHS: usize = 9;

/// Everything that is counted, in the order in which it is told.
pub(super) fn all(comparison: &Comparison, ns2: &Ns2) -> Vec<Criterion> {
    let mut all = downloads(comparison);
    all.extend(gains(comparison));
    all.extend(others(comparison));
    all.extend(bounds(comparison, ns2));
    all
}

/// RWC: EXP-R1 to R3.
fn downloads(comparison: &Comparison) -> Vec<Criterion> {
    let windows = comparison.cells.iter().filter(|c| c.cell.unit == "packets");
    let exact = windows.map(|c| {
        let ours = c.cell.ours.estimate().map(|e| e.mean);
        ours.is_some() && ours == c.cell.published.map(|p| p.mean)
    });
    let sum = |(table, total, flows): (&str, f64, usize), row: &str| {
        let flow = |n: usize| comparison.whole_mean([table, row, &format!("f{n}"), "rwc"]);
        let sum: Option<f64> = (1..=flows).map(flow).sum();
        sum.map(|sum| sum == total)
    };
    let examples = [("example", 30.0, 3), ("windows", 32.0, 2)];
    let sums = examples
        .into_iter()
        .flat_map(|table| ["before", "after"].into_iter().filter_map(move |row| sum(table, row)));
    let expected = [
        ("figure2", BEFORE, "none", [1.0, 1.0]),
        ("figure2", AFTER, "none", [1.0, 1.0]),
        ("figure3", BEFORE, "rwc", [1.0, 1.0]),
        ("figure3", AFTER, "rwc", [1.31, 0.69]),
    ];
    let rates = expected.into_iter().flat_map(|(table, row, scheme, rates)| {
        FLOWS.into_iter().zip(rates).filter_map(move |(flow, expected)| {
            let ours = comparison.whole_mean([table, row, flow, scheme])?;
            Some((ours / expected - 1.0).abs() <= RATES)
        })
    });
    let lossy = |row: &str, flow: &str| comparison.whole(["figure4", row, flow, "rwc"])?.interval();
    let moved = FLOWS.into_iter().enumerate().filter_map(|(n, flow)| {
        let (before, after) = (lossy(BEFORE, flow)?, lossy(AFTER, flow)?);
        Some(if n == 0 { after.lo > before.hi } else { after.hi < before.lo })
    });
    vec![
        Criterion::all("windows of the worked examples exact", exact, 10),
        Criterion::all("windows that add up to the whole", sums, 4),
        Criterion::all("rates of figures 2 and 3 within 3 %", rates, 8),
        Criterion::all(
            "flows that the feedback moves as it should despite loss, figure 4",
            moved,
            2,
        ),
    ]
}

/// What ATCP gains on Reno.
fn gains(comparison: &Comparison) -> Vec<Criterion> {
    let certain =
        TRANSFERS.iter().filter_map(|t| Some(largest(comparison, t, "atcp")?.1.is_certain()));
    let never_less = TRANSFERS.iter().flat_map(|t| {
        lengths(comparison, t).into_iter().filter_map(move |row| {
            Some(gain(comparison, [t.table, row, GOODPUT], "atcp")?.percent > -MATERIAL)
        })
    });
    let growing = TRANSFERS.iter().flat_map(|t| {
        let of = |row: &str| gain(comparison, [t.table, row, GOODPUT], "atcp").map(|g| g.percent);
        let rows = lengths(comparison, t);
        let steps = rows.windows(2).filter_map(|step| Some(of(step[1])? > of(step[0])?));
        steps.collect::<Vec<bool>>()
    });
    let reached = |local: bool, percent: f64| {
        TRANSFERS
            .iter()
            .filter(move |t| t.local == local)
            .filter_map(move |t| Some(largest(comparison, t, "atcp")?.1.percent >= percent))
    };
    vec![
        Criterion::all("directions and networks where ATCP gains on Reno", certain, 4),
        Criterion::all("points where ATCP loses less than 2 % on Reno", never_less, 4 * LENGTHS),
        Criterion::told(
            "steps to a longer disconnection with which ATCP's gain grows",
            growing,
            4 * (LENGTHS - 1),
        ),
        Criterion::told(
            "directions of a WLAN where the largest gain is 40 % or more",
            reached(true, 40.0),
            2,
        ),
        Criterion::told(
            "directions of a WWAN where the largest gain is 150 % or more",
            reached(false, 150.0),
            2,
        ),
    ]
}

/// ATCP beside the other schemes, where the mobile receives.
fn others(comparison: &Comparison) -> Vec<Criterion> {
    let points = |local: bool, right: fn(f64, f64) -> bool, other: &'static str| {
        let receiving = TRANSFERS.iter().filter(move |t| t.down && t.local == local);
        receiving.flat_map(move |t| {
            lengths(comparison, t).into_iter().filter_map(move |row| {
                let of = |scheme| comparison.whole_mean([t.table, row, GOODPUT, scheme]);
                Some(right(of("atcp")?, of(other)?))
            })
        })
    };
    let close: fn(f64, f64) -> bool = |atcp, freeze| (atcp / freeze - 1.0).abs() <= CLOSE;
    let above: fn(f64, f64) -> bool = |atcp, other| atcp > other;
    let claims = [
        ("within 10 % of Freeze-TCP", close, "freeze"),
        ("above three duplicates", above, "fast-rtx-handoff"),
    ];
    let count = |(claim, right, other)| {
        [("WLAN", true), ("WWAN", false)].map(|(network, local)| {
            let name = format!("lengths where ATCP is {claim}, {network}");
            let needed = local.then_some(LENGTHS);
            Criterion::count(&name, points(local, right, other), LENGTHS, needed)
        })
    };
    claims.into_iter().flat_map(count).collect()
}

/// What no scheme can exceed, and what Reno has elsewhere.
fn bounds(comparison: &Comparison, ns2: &Ns2) -> Vec<Criterion> {
    let schemes = |t: &'static Transfer| t.schemes.iter().copied();
    let ideal = TRANSFERS.iter().flat_map(|t| {
        lengths(comparison, t).into_iter().flat_map(move |row| {
            schemes(t).filter_map(move |scheme| {
                let ours = comparison.whole([t.table, row, GOODPUT, scheme])?;
                let ideal = ideal(comparison, t, row)?;
                let slack = ABOVE * ideal.mean + ERRORS * ideal.error(ours.n);
                Some(ours.mean <= ideal.mean + slack)
            })
        })
    });
    let idle = TRANSFERS.iter().filter(|t| t.local).flat_map(|t| {
        let table = t.idle();
        lengths(comparison, t).into_iter().filter_map(move |row| {
            let of = |scheme| comparison.whole_mean([&table, row, IDLE, scheme]);
            Some(of("atcp")? <= of("none")? + BINS)
        })
    });
    let reno = TRANSFERS.iter().flat_map(|t| {
        ns2.of(t.table).iter().filter_map(move |point| {
            let ours = comparison.mean([t.table, &point.length, GOODPUT, "none"])?;
            Some((ours - point.mean).abs() <= point.half + NS2 * point.mean)
        })
    });
    let all: usize = TRANSFERS.iter().map(|t| t.schemes.len() * LENGTHS).sum();
    vec![
        Criterion::all("goodputs not above what the disconnections leave", ideal, all),
        Criterion::all("idle times no longer with ATCP than with Reno, WLAN", idle, 2 * LENGTHS),
        Criterion::all("Reno within ns-2's interval and 5 %", reno, 14),
    ]
}
