//! The cells: the paper's three tables, and what stands beside them.

use lasthop_units::{Duration, Scheme};

use super::setup::{Experiment, VARIATIONS, Variation};
use crate::published::Published;
use crate::reproduce::{Cell, ReproduceError};

/// What helps the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contender {
    /// Nothing: TCP from end to end.
    Tcp,
    /// MHP with TCP on both halves; the paper's MTCP.
    SplitTcp,
    /// MHP with SRP on the hop, with the transport parameters of the paper.
    Srp,
    /// I-TCP: TCP on both halves, and the same connections go on after a handoff.
    ITcp,
    /// MHP with SRP on the hop as it is today.
    SrpToday,
}

impl Contender {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::SplitTcp => Scheme::SplitTcp.name(),
            Self::Srp => Scheme::Srp.name(),
            Self::ITcp => Scheme::ITcp.name(),
            Self::SrpToday => "srp-today",
        }
    }
}

/// How many handoffs a transfer meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handoffs {
    /// One, or none where the pause is zero (EXP-Y1).
    Once,
    /// As many as fit into the transfer (EXP-Y2).
    Repeated,
}

/// What a cell runs.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What helps the connection.
    pub scheme: Contender,
    /// How long a handoff silences the hop.
    pub pause: Duration,
    /// The mean part of packets that the hop loses.
    pub loss: f64,
    /// How many handoffs there are.
    pub handoffs: Handoffs,
    /// Which assumption is changed, if one is.
    pub variation: Option<Variation>,
}

impl Case {
    /// The experiment that the case runs in.
    pub fn experiment(&self) -> Experiment {
        let mut experiment = Experiment::default();
        if let Some(variation) = self.variation {
            (variation.apply)(&mut experiment);
        }
        experiment
    }
}

/// The rows and columns of the paper's tables.
const PAUSES: [(&str, Duration); 4] = [
    ("0 s", Duration::ZERO),
    ("1 s", Duration::from_secs(1)),
    ("2.8 s", Duration::from_millis(2800)),
    ("5 s", Duration::from_secs(5)),
];
const LOSSES: [(&str, f64); 3] = [("0 %", 0.0), ("5 %", 0.05), ("10 %", 0.10)];

const UNIT: &str = "s";

/// The tables of the paper and their schemes.
const TABLES: [(&str, Contender); 3] =
    [("table1", Contender::Tcp), ("table2", Contender::SplitTcp), ("table3", Contender::Srp)];

/// The tables of ours that have the same rows and columns.
const BESIDE: [(&str, Contender); 2] =
    [("table2-i-tcp", Contender::ITcp), ("table3-today", Contender::SrpToday)];

/// The table of repeated handoffs (EXP-Y2).
pub(super) const REPEATED: &str = "repeated-handoffs";

/// The table of changed assumptions.
pub(super) const SENSITIVITY: &str = "sensitivity";

/// Where changed assumptions are looked at: pause and loss, by index.
const LOOKED_AT: [(usize, usize); 3] = [(0, 0), (0, 2), (2, 1)];

type PauseAndLoss = ((&'static str, Duration), (&'static str, f64));

/// All cells, in the order in which they are printed.
pub(super) fn all(published: &Published) -> Result<Vec<Cell<Case>>, ReproduceError> {
    let mut cells = Vec::new();
    for (id, scheme) in TABLES {
        let table = published.table(id).ok_or(ReproduceError::NoTable(id))?;
        cells.extend(places().map(|((row, pause), (column, loss))| {
            Cell::of_table(table, row, column, UNIT, case(scheme, pause, loss))
        }));
    }
    for (table, scheme) in BESIDE {
        cells.extend(places().map(|place| ours(table, place, case_at(scheme, place))));
    }
    for scheme in
        [Contender::Tcp, Contender::SplitTcp, Contender::ITcp, Contender::Srp, Contender::SrpToday]
    {
        let pauses = places().filter(|((_, pause), _)| !pause.is_zero());
        cells.extend(pauses.map(|place| {
            let handoffs = Handoffs::Repeated;
            ours(REPEATED, place, Case { handoffs, ..case_at(scheme, place) })
        }));
    }
    for variation in VARIATIONS {
        cells.extend(sensitivity(variation));
    }
    Ok(cells)
}

fn places() -> impl Iterator<Item = PauseAndLoss> {
    PAUSES.into_iter().flat_map(|pause| LOSSES.into_iter().map(move |loss| (pause, loss)))
}

fn sensitivity(variation: Variation) -> impl Iterator<Item = Cell<Case>> {
    LOOKED_AT.into_iter().flat_map(move |(pause, loss)| {
        let place = (PAUSES[pause], LOSSES[loss]);
        TABLES.into_iter().map(move |(_, scheme)| {
            let case = Case { variation: Some(variation), ..case_at(scheme, place) };
            let column = format!("{}, {}", place.0.0, place.1.0);
            Cell::ours([SENSITIVITY, variation.name, &column, scheme.name()], UNIT, case)
        })
    })
}

fn ours(table: &str, ((row, _), (column, _)): PauseAndLoss, case: Case) -> Cell<Case> {
    Cell::ours([table, row, column, case.scheme.name()], UNIT, case)
}

fn case_at(scheme: Contender, ((_, pause), (_, loss)): PauseAndLoss) -> Case {
    case(scheme, pause, loss)
}

fn case(scheme: Contender, pause: Duration, loss: f64) -> Case {
    Case { scheme, pause, loss, handoffs: Handoffs::Once, variation: None }
}
