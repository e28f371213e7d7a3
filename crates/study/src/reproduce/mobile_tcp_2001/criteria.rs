//! What has to be right.

use super::cells::{
    ALTERNATIVES, DELAY, DELAYS, ERRORS, ETHERNET, FIGURE_15, GAINS, GOODPUT, HANDOFF, JITTER,
    LONG_ROWS, LOSSY, MOBILE_TCP, NO_FADES, NO_LOSS, PADDED, SETTLED, SHARES, TCP, WIRELESS, WRONG,
};
use super::gains::{gain, normalised};
use super::ns2::Ns2;
use crate::published::Published;
use crate::reproduce::equations::Check;
use crate::reproduce::processing::Processing;
use crate::reproduce::{Comparison, Criterion};

/// How far a gain may be from the paper's, as a part of it.
const THIRD: f64 = 1.0 / 3.0;
/// Two goodputs are nearly equal if Mobile TCP's differs from TCP's by no more, in per cent.
const NEARLY: f64 = 10.0;
/// What 24 bytes more may cost, in per cent.
const PAD: f64 = 5.0;
/// How far a shorter transfer's mean may be from that of the paper's length beyond both intervals.
const SETTLED_WITHIN: f64 = 0.05;
/// The error rate from which transfers of TCP fail.
const HEAVY: &str = "PER 50 %";
/// Mobile TCP told of its handoffs beforehand.
const FORESEEN: &str = "mobile-tcp, foreseen";
/// The TCP with a clock of 500 ms.
const COARSE: &str = "tcp-linux";

/// Everything that is counted, in the order in which it is told.
pub(super) fn all(
    comparison: &Comparison,
    checks: &[Check],
    ns2: &Ns2,
    costs: Option<(&Processing, &Published)>,
) -> Vec<Criterion> {
    let mut all = vec![equations(checks), beside_ns2(comparison, ns2), settled(comparison)];
    all.extend(figure_15(comparison));
    all.extend(figure_16(comparison));
    all.extend(delays(comparison));
    all.extend(handoffs(comparison));
    all.push(lossy_handoffs(comparison));
    all.push(alternatives(comparison));
    all.extend(costs.map(|(costs, published)| processing(costs, published)));
    all
}

fn equations(checks: &[Check]) -> Criterion {
    let exact = checks.iter().map(Check::is_exact);
    let name = "values of equations (1) to (5) met";
    Criterion::all(name, exact, checks.len())
}

fn beside_ns2(comparison: &Comparison, ns2: &Ns2) -> Criterion {
    let held = ns2.rows.iter().filter(|row| !row.apart);
    let agree = held.flat_map(|row| ns2.points(row, comparison)).filter_map(|p| p.agrees());
    let name = "TCP within ns-2's interval, its own and 5 %";
    Criterion::all(name, agree, ns2.held())
}

fn settled(comparison: &Comparison) -> Criterion {
    let places = LONG_ROWS.into_iter().flat_map(|row| [(row, TCP), (row, MOBILE_TCP)]);
    let close = places.filter_map(|(row, scheme)| {
        let short = comparison.whole([FIGURE_15, row, GOODPUT, scheme])?;
        let long = comparison.whole([SETTLED, row, GOODPUT, scheme])?;
        let half = |e: crate::stats::Estimate| e.interval().map_or(0.0, |i| (i.hi - i.lo) / 2.0);
        let most = half(short) + half(long) + SETTLED_WITHIN * long.mean;
        Some((short.mean - long.mean).abs() <= most)
    });
    let whole = 2 * LONG_ROWS.len();
    Criterion::all("means of transfers that have settled", close, whole)
}

/// EXP-H6.
fn figure_15(comparison: &Comparison) -> Vec<Criterion> {
    let at = |row: &str| gain(comparison, [FIGURE_15, row, GOODPUT]).map(|gain| gain.percent);
    let within = |row: &str, published: fn(f64) -> f64| {
        let printed = comparison.at([GAINS, row, "gain", MOBILE_TCP])?.published?.mean;
        let (ours, printed) = (published(at(row)?), published(printed));
        Some((ours - printed).abs() <= THIRD * printed)
    };
    let per_cent: fn(f64) -> f64 = |percent| percent;
    let factor: fn(f64) -> f64 = |percent| 1.0 + percent / 100.0;
    let one = |name: &str, met: Option<bool>| Criterion::all(name, met, 1);
    let low = ["PER 1 %", "PER 2 %"].into_iter().filter_map(|row| Some(at(row)?.abs() <= NEARLY));
    let ends = |scheme: &str| {
        let runs = &comparison.at([FIGURE_15, HEAVY, GOODPUT, scheme])?.ours;
        (runs.runs() > 0).then(|| runs.failures() == 0)
    };
    let lossy = || ERRORS.into_iter().filter(|row| ![NO_LOSS, HEAVY].contains(row));
    let mean = |row: &str, scheme: &str| comparison.whole_mean([FIGURE_15, row, GOODPUT, scheme]);
    let coarse = lossy().filter_map(|row| Some(mean(row, COARSE)? < mean(row, TCP)?));
    let padded = [NO_LOSS].into_iter().chain(lossy()).filter_map(|row| {
        let ratio = mean(row, PADDED)? / mean(row, MOBILE_TCP)?;
        Some(100.0 * (1.0 - ratio) < PAD)
    });
    let rows = ERRORS.len() - 2;
    vec![
        one("gain without loss within a third of the paper's 8 %", within(NO_LOSS, per_cent)),
        one(
            "gain at 10 % of errors within a third of the paper's 75 %",
            within("PER 10 %", per_cent),
        ),
        one(
            "goodput at 20 % of errors within a third of five times TCP's",
            within("PER 20 %", factor),
        ),
        Criterion::all("error rates below 5 % with a gain of at most 10 %", low, 2),
        one("Mobile TCP completes every transfer at 50 % of errors", ends(MOBILE_TCP)),
        one("TCP does not complete every transfer at 50 % of errors", ends(TCP).map(|all| !all)),
        Criterion::all(
            "error rates where the TCP with coarse timers is the slower one",
            coarse,
            rows,
        ),
        Criterion::all("error rates where 24 bytes more cost less than 5 %", padded, rows + 1),
    ]
}

/// EXP-H7.
fn figure_16(comparison: &Comparison) -> Vec<Criterion> {
    let below = |scheme: &'static str| {
        let shares = SHARES.into_iter().filter(|row| ![NO_FADES, "FR 10 %"].contains(row));
        shares.filter_map(move |row| {
            let of = |network: &str| Some(normalised(comparison, network, row, scheme)?.value);
            Some(of(ETHERNET)? < of(WIRELESS)?)
        })
    };
    let whole = SHARES.len() - 2;
    vec![
        Criterion::all(
            "shares of fades below 10 % where Mobile TCP keeps less of its peak on Ethernet",
            below(MOBILE_TCP),
            whole,
        ),
        Criterion::told(
            "shares of fades below 10 % where TCP keeps less of that peak on Ethernet",
            below(TCP),
            whole,
        ),
    ]
}

/// EXP-H8.
fn delays(comparison: &Comparison) -> Vec<Criterion> {
    let lower = |column: &'static str| {
        DELAYS.into_iter().flat_map(move |(table, _)| {
            let faded = SHARES.into_iter().filter(|row| *row != NO_FADES);
            faded.filter_map(move |row| {
                let mean = |scheme| comparison.whole_mean([table, row, column, scheme]);
                Some(mean(MOBILE_TCP)? < mean(TCP)?)
            })
        })
    };
    let whole = DELAYS.len() * (SHARES.len() - 1);
    vec![
        Criterion::all(
            "shares of fades where buffers wait less with Mobile TCP, both networks",
            lower(DELAY),
            whole,
        ),
        Criterion::all(
            "shares of fades where the buffers' wait varies less, both networks",
            lower(JITTER),
            whole,
        ),
    ]
}

/// EXP-H1 to EXP-H5: told and not judged, for they are this machine's.
fn processing(costs: &Processing, published: &Published) -> Criterion {
    let same = costs.ratios.iter().filter_map(|ratio| ratio.agrees(published));
    let whole = published.table("processing").map_or(0, |table| table.row.len());
    Criterion::told("processing costs in the paper's range or within a third", same, whole)
}

/// EXP-H9: what the text says of the latency of handoffs.
fn handoffs(comparison: &Comparison) -> Vec<Criterion> {
    let mean = |row: &str, column: &str, scheme: &str| {
        comparison.whole_mean([HANDOFF, row, column, scheme])
    };
    let (buffers, rates) = (comparison.rows(HANDOFF), comparison.columns(HANDOFF));
    let slower = rates.iter().flat_map(|rate| {
        buffers.windows(2).filter_map(move |pair| {
            Some(mean(pair[0], rate, MOBILE_TCP)? < mean(pair[1], rate, MOBILE_TCP)?)
        })
    });
    let sooner = buffers.iter().flat_map(|buffer| {
        rates.iter().filter_map(move |rate| {
            Some(mean(buffer, rate, FORESEEN)? < mean(buffer, rate, MOBILE_TCP)?)
        })
    });
    vec![
        Criterion::all(
            "steps to a larger buffer that make a handoff longer",
            slower.collect::<Vec<_>>(),
            9,
        ),
        Criterion::all(
            "buffers and rates where a foreseen handoff is shorter",
            sooner.collect::<Vec<_>>(),
            12,
        ),
    ]
}

/// EXP-Y4: no byte is wrong, missing or doubled, however many messages of handoffs are lost.
fn lossy_handoffs(comparison: &Comparison) -> Criterion {
    let cells: Vec<_> = comparison
        .of_table(LOSSY)
        .map(|c| &c.cell)
        .filter(|m| WRONG.contains(&m.label.column.as_str()))
        .collect();
    let right = cells.iter().filter_map(|m| Some(m.whole()?.mean == 0.0));
    let name = "losses, schemes and directions where handoffs changed no byte";
    Criterion::all(name, right, cells.len())
}

/// EXP-H10: where the hop loses, recovery made for it does better than TCP's.
fn alternatives(comparison: &Comparison) -> Criterion {
    let lossy = || ["PER 2 %", "PER 10 %", "PER 20 %"].into_iter();
    let above = ["near", "far"].into_iter().flat_map(|path| {
        lossy().filter_map(move |row| {
            let of = |scheme: &str| comparison.whole_mean([ALTERNATIVES, row, path, scheme]);
            Some(of(MOBILE_TCP)? > of("split-tcp")?)
        })
    });
    Criterion::all("points where Mobile TCP is above TCP on the same split hop", above, 6)
}
