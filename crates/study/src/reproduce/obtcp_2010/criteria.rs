//! What has to be right: signs and shapes of the figures, fairness, and snoop beside ns-2's.

use super::gains::{gains, mean};
use super::points::Points;
use crate::analysis::obtcp::reference::Reference;
use crate::reproduce::equations::Check;
use crate::reproduce::{Comparison, Criterion, Gain, RATIO_TOLERANCE};

/// obTCP as it is described; as figure 21 needs it: the mobile router sends again the missing packet
/// (section III.B) or all from it on (section VII.B, INC-S7), without or with timers (OBB-7); and as
/// figure 17 needs it beyond a loss of 0.15: lost repetitions are noticed too (OBB-9).
const READINGS: [(&str, &str); 3] = [
    ("obtcp", "the missing packet"),
    ("obtcp-gbn-timers", "go-back-n, timers"),
    ("obtcp-all", "every option"),
];

/// A gain is flat if every one of its values is this near to their mean, as a part of it.
const FLAT: f64 = 0.2;
/// The largest loss of figure 17 up to which the sender's window stays large with obTCP.
const LARGEST_LOSS: f64 = 0.15;
/// The least fairness that the paper prints.
const LEAST_FAIRNESS: f64 = 0.92;
/// How far snoop may be from ns-2's beyond that one's interval, up to a loss of 0.02.
const SNOOP_SLACK: f64 = 0.05;
/// The largest loss at which ns-2's snoop is not spoilt by its timer.
const SPOILT_BEYOND: f64 = 0.02;
/// The least part of ns-2's goodput with its timer held that snoop has to reach beyond.
const SNOOP_LEAST: f64 = 0.90;
/// The figures of which there are runs of ns-2.
const NS2_FIGURES: [&str; 2] = ["figure14", "figure17"];
/// How far snoop may be above equation (16).
const MODEL_SLACK: f64 = 1.05;

/// Everything that is counted, in the order in which it is told.
pub(super) fn all(
    comparison: &Comparison,
    checks: &[Check],
    reference: &Reference,
    points: &Points,
) -> Vec<Criterion> {
    let exact = checks.iter().map(Check::is_exact);
    let mut all = vec![Criterion::all(
        "values of equations (3) to (20), computed from the formulas",
        exact,
        95,
    )];
    for (scheme, reading) in READINGS {
        all.extend(shapes(comparison, scheme, reading));
    }
    all.extend(sharing(comparison));
    all.extend(round_trips(comparison));
    all.extend(snoop(comparison, reference, points));
    all
}

/// EXP-S2 to EXP-S4.
fn shapes(comparison: &Comparison, scheme: &str, reading: &str) -> Vec<Criterion> {
    let along = |figure: &str| gains(comparison, figure, scheme, "snoop");
    let of =
        |figure: &str| -> Vec<Gain> { along(figure).into_iter().map(|(_, gain)| gain).collect() };
    let count = |name: &str, cases: Vec<bool>, whole: usize, needed: Option<usize>| {
        Criterion::count(&format!("{name} ({reading})"), cases, whole, needed)
    };
    let both = |f: fn(&[Gain]) -> Vec<bool>, figures: [&str; 2]| -> Vec<bool> {
        figures.into_iter().flat_map(|figure| f(&of(figure))).collect()
    };
    let by_loss = along("figure17");
    let up_to = by_loss.partition_point(|(row, _)| loss(row) <= LARGEST_LOSS);
    let by_loss: Vec<Gain> = by_loss.into_iter().map(|(_, gain)| gain).collect();
    // Figure 21 decides between the readings.
    let second = (scheme != "obtcp").then_some(7);
    // And the largest losses as well.
    let beyond = (scheme == "obtcp-all").then_some(3);
    vec![
        count(
            "steps of d2 with which the gain rises, figures 14 and 15",
            both(rising, ["figure14", "figure15"]),
            12,
            Some(12),
        ),
        count(
            "steps of p1 up to 0.15 with which the gain rises, figure 17",
            rising(&by_loss[..up_to]),
            7,
            Some(7),
        ),
        count(
            "steps of p1 beyond 0.15 with which the gain rises, figure 17",
            rising(&by_loss[up_to.saturating_sub(1)..]),
            3,
            beyond,
        ),
        count(
            "points with a gain above zero, figure 17",
            by_loss.iter().map(|g| g.percent > 0.0).collect(),
            11,
            None,
        ),
        count(
            "gains above zero with equal links, figure 18",
            of("figure18").iter().map(|g| g.percent > 0.0).collect(),
            7,
            Some(7),
        ),
        count(
            "gains within a fifth of their mean, whatever d1, figure 20",
            flat(&of("figure20")),
            7,
            Some(7),
        ),
        count(
            "gains within a fifth of their mean, whatever d2, figure 21",
            flat(&of("figure21")),
            7,
            second,
        ),
    ]
}

fn loss(row: &str) -> f64 {
    row.parse().unwrap_or(f64::NAN)
}

fn rising(gains: &[Gain]) -> Vec<bool> {
    gains.windows(2).map(|w| w[1].percent > w[0].percent).collect()
}

fn flat(gains: &[Gain]) -> Vec<bool> {
    let mean = gains.iter().map(|g| g.percent).sum::<f64>() / gains.len() as f64;
    gains.iter().map(|g| (g.percent - mean).abs() <= FLAT * mean).collect()
}

/// EXP-S7, EXP-S8.
fn sharing(comparison: &Comparison) -> Vec<Criterion> {
    let of = |table: &str, scheme: &str| -> Vec<f64> {
        let here = comparison.of_table(table).map(|c| &c.cell).filter(|m| m.label.scheme == scheme);
        here.filter_map(|m| Some(m.ours.estimate()?.mean)).collect()
    };
    let fair = |scheme: &str| -> Vec<bool> {
        let values = ["table5-fairness", "table6-fairness"].map(|table| of(table, scheme));
        values.concat().iter().map(|omega| *omega >= LEAST_FAIRNESS).collect()
    };
    let falling =
        |table: &str| -> Vec<bool> { of(table, "both").windows(2).map(|w| w[1] < w[0]).collect() };
    let steps = ["table5-utilisation", "table6-utilisation"].map(falling).concat();
    let lossy = comparison.printed().filter_map(|c| {
        let here = c.cell.unit != "1" && loss(&c.cell.label.row) > 0.0;
        c.is_within(RATIO_TOLERANCE).filter(|_| here)
    });
    vec![
        Criterion::all("fairness of at least 0.92, Tables 5 and 6", fair("both"), 10),
        Criterion::told(
            "fairness of at least 0.92 with timers in obTCP's agents",
            fair("both+timers"),
            10,
        ),
        Criterion::all("steps of p1 with which utilisation falls", steps, 8),
        Criterion::told(
            "goodputs and utilisations of Tables 5 and 6 within 35 % of the printed, with losses",
            lossy,
            24,
        ),
    ]
}

/// EXP-S5.
fn round_trips(comparison: &Comparison) -> Vec<Criterion> {
    let of = |column: &str, scheme: &str| {
        comparison.mean([super::cells::FIGURE_22_TABLE, "SRTT", column, scheme])
    };
    let lower = ["mean", "median", "95 % below"]
        .into_iter()
        .filter_map(|column| Some(of(column, "obtcp")? < of(column, "snoop")?));
    let name = "levels of the smoothed round trip that are lower with obTCP, figure 22";
    vec![Criterion::all(name, lower, 3)]
}

fn snoop(comparison: &Comparison, reference: &Reference, points: &Points) -> Vec<Criterion> {
    let ours = |row: &str| mean(comparison, "figure17", row, "snoop");
    let stock = reference.curve("figure17", "snoop");
    let near = stock.into_iter().flat_map(|curve| &curve.points).filter_map(|point| {
        let ours = ours(&point.x).filter(|_| loss(&point.x) <= SPOILT_BEYOND)?;
        let slack = point.half.unwrap_or(0.0) + SNOOP_SLACK * point.mean;
        Some((ours - point.mean).abs() <= slack)
    });
    let pinned = reference.curve("figure17", "snoop-pinned");
    let enough = pinned
        .into_iter()
        .flat_map(|curve| &curve.points)
        .filter_map(|point| Some(ours(&point.x)? >= SNOOP_LEAST * point.mean));
    let below = |by_ns2: bool| -> Vec<bool> {
        let here = points.iter().filter(|(figure, _, _)| NS2_FIGURES.contains(figure) == by_ns2);
        here.filter_map(|(figure, row, point)| {
            let ours = mean(comparison, figure, row, "snoop")?;
            Some(ours <= MODEL_SLACK * point.snoop())
        })
        .collect()
    };
    let of = |by_ns2: bool| {
        points.iter().filter(|(figure, _, _)| NS2_FIGURES.contains(figure) == by_ns2).count()
    };
    vec![
        Criterion::all("snoop within ns-2's interval and 5 %, figure 17 up to p1 = 0.02", near, 5),
        Criterion::all(
            "snoop at least 90 % of ns-2's with its timer held, figure 17 beyond",
            enough,
            4,
        ),
        Criterion::all(
            "snoop at most 5 % above equation (16), figures 14 and 17",
            below(true),
            of(true),
        ),
        Criterion::told(
            "snoop at most 5 % above equation (16), other figures",
            below(false),
            of(false),
        ),
    ]
}
