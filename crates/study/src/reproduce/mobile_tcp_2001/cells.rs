//! The cells: bulk transfers over a fading hop, and what stands beside them, from the scenario files beside
//! the paper.

use std::sync::Arc;

use lasthop_units::Bytes;

use crate::published::Published;
use crate::reproduce::sheet::{Settings, Sheet, sheet};
use crate::reproduce::{Cell, Label, ReproduceError};
use crate::scenario::{Scenario, Traffic};

const FADES: Sheet = sheet!("mobile-tcp-2001", "fades.toml");
const NS2_FADES: Sheet = sheet!("mobile-tcp-2001", "ns2-fades.toml");
const SENSITIVITY_SHEET: Sheet = sheet!("mobile-tcp-2001", "sensitivity.toml");
const HANDOFFS: Sheet = sheet!("mobile-tcp-2001", "handoffs.toml");
const LOSSY_HANDOFFS: Sheet = sheet!("mobile-tcp-2001", "lossy-handoffs.toml");
const ALTERNATIVES_SHEET: Sheet = sheet!("mobile-tcp-2001", "alternatives.toml");

/// The paper's scheme, and the TCP that it is compared with.
pub(super) const MOBILE_TCP: &str = "mobile-tcp";
pub(super) const TCP: &str = "ms-tcp";
/// Mobile TCP with 24 bytes more in each packet.
pub(super) const PADDED: &str = "mobile-tcp-24";

/// The tables.
pub(super) const FIGURE_15: &str = "figure15";
pub(super) const GAINS: &str = "gains";
pub(super) const FIGURE_16: &str = "figure16";
pub(super) const SETTLED: &str = "settled";
pub(super) const NS2: &str = "ns2";
pub(super) const SENSITIVITY: &str = "sensitivity";
pub(super) const HANDOFF: &str = "handoff";
pub(super) const LOSSY: &str = "lossy handoff";
pub(super) const ALTERNATIVES: &str = "alternatives";

/// Figures 17 and 18: their tables, and the networks of the scenario file.
pub(super) const DELAYS: [(&str, &str); 2] = [("figure17", WIRELESS), ("figure18", ETHERNET)];

pub(super) const WIRELESS: &str = "wireless";
pub(super) const ETHERNET: &str = "ethernet";

/// Columns.
pub(super) const GOODPUT: &str = "goodput";
const GAIN: &str = "gain";
pub(super) const DELAY: &str = "delay";
pub(super) const JITTER: &str = "jitter";
const LATENCY: &str = "latency";
/// Runs in which a byte of a transfer was not the one that was sent, by direction.
pub(super) const WRONG: [&str; 2] = ["download wrong", "upload wrong"];

/// The rows of figure 15, by the packet error rate of equation (5).
pub(super) const ERRORS: [&str; 8] =
    ["PER 0 %", "PER 1 %", "PER 2 %", "PER 5 %", "PER 10 %", "PER 15 %", "PER 20 %", "PER 50 %"];
/// The rows of figures 16 to 18, by the share of time in fades.
pub(super) const SHARES: [&str; 9] =
    [NO_FADES, "FR 0.1 %", "FR 0.3 %", "FR 1 %", "FR 2 %", "FR 3 %", "FR 5 %", "FR 7 %", "FR 10 %"];
/// Without loss, by either name.
pub(super) const NO_LOSS: &str = "PER 0 %";
pub(super) const NO_FADES: &str = "FR 0 %";
/// What the transfers of the whole length are held against.
pub(super) const LONG_ROWS: [&str; 4] = [NO_LOSS, "PER 5 %", "PER 10 %", "PER 20 %"];

/// The paper's buffers.
const WHOLE: Bytes = Bytes::new(100_000 * 1460);

/// What a cell runs.
#[derive(Clone, Debug)]
pub enum Case {
    /// A metric of a run that came to its end.
    Metric {
        /// What is run.
        scenario: Arc<Scenario>,
        /// The metric's name.
        name: &'static str,
        /// What it is multiplied by for the cell's unit.
        scale: f64,
    },
    /// How much more a metric is in one scenario than in another with the same luck, in per cent.
    Change {
        /// The scenario that it is a change from.
        from: Arc<Scenario>,
        /// And to.
        to: Arc<Scenario>,
        /// The metric's name.
        name: &'static str,
    },
}

impl Case {
    /// The same over the paper's length, where it is a transfer of a file.
    pub(super) fn whole(self) -> Self {
        match self {
            Self::Metric { scenario, name, scale } => {
                Self::Metric { scenario: whole(&scenario), name, scale }
            }
            Self::Change { from, to, name } => {
                Self::Change { from: whole(&from), to: whole(&to), name }
            }
        }
    }
}

fn whole(scenario: &Arc<Scenario>) -> Arc<Scenario> {
    let mut whole = Scenario::clone(scenario);
    for flow in &mut whole.flows {
        if let Traffic::File { size } = &mut flow.traffic {
            *size = WHOLE;
        }
    }
    Arc::new(whole)
}

const GOODPUT_BPS: &str = "download.goodput_bps";

/// All cells, in the order in which they are printed.
pub(super) fn all(published: &Published) -> Result<Vec<Cell<Case>>, ReproduceError> {
    let fades = Fades::read()?;
    let mut cells = fades.figure_15();
    cells.extend(fades.gains(published)?);
    cells.extend(fades.figure_16()?);
    cells.extend(fades.delays()?);
    cells.extend(fades.settled()?);
    cells.extend(ns2()?);
    cells.extend(sensitivity()?);
    cells.extend(handoffs()?);
    cells.extend(lossy_handoffs()?);
    cells.extend(alternatives()?);
    Ok(cells)
}

/// The points of `fades.toml`.
struct Fades(Vec<(Settings, Arc<Scenario>)>);

impl Fades {
    fn read() -> Result<Self, ReproduceError> {
        Ok(Self(FADES.points()?))
    }

    fn at(&self, network: &str, row: &str, help: &str) -> Result<Arc<Scenario>, ReproduceError> {
        let row = if row == NO_FADES { NO_LOSS } else { row };
        let is_it = |settings: &Settings| {
            ["network", "at", "help"].map(|axis| settings.at(axis)) == [network, row, help]
        };
        let found = self.0.iter().find(|(settings, _)| is_it(settings));
        found.map(|(_, scenario)| Arc::clone(scenario)).ok_or_else(|| {
            ReproduceError::Beside(format!("{}: no point {network}, {row}, {help}", FADES.path))
        })
    }

    /// EXP-H6: goodput by packet error rate.
    fn figure_15(&self) -> Vec<Cell<Case>> {
        let own = self.0.iter().filter(|(settings, _)| {
            settings.at("network") == WIRELESS && settings.at("at").starts_with("PER")
        });
        let cell = |(settings, scenario): &(Settings, Arc<Scenario>)| {
            goodput(label(FIGURE_15, settings.at("at"), GOODPUT, settings.at("help")), scenario)
        };
        own.map(cell).collect()
    }

    /// EXP-H6: what Mobile TCP gains on TCP, where the paper says so.
    fn gains(&self, published: &Published) -> Result<Vec<Cell<Case>>, ReproduceError> {
        let table = published.table(GAINS).ok_or(ReproduceError::NoTable(GAINS))?;
        let cell = |row: &crate::published::Row| {
            let [from, to] = [TCP, MOBILE_TCP].map(|help| self.at(WIRELESS, &row.label, help));
            let case = Case::Change { from: from?, to: to?, name: GOODPUT_BPS };
            Ok(Cell::of_table(table, &row.label, GAIN, "%", case))
        };
        table.row.iter().map(cell).collect()
    }

    /// EXP-H7: goodput by the share of time in fades, at both rates.
    fn figure_16(&self) -> Result<Vec<Cell<Case>>, ReproduceError> {
        let mut cells = Vec::new();
        for row in SHARES {
            for network in [WIRELESS, ETHERNET] {
                for help in [TCP, MOBILE_TCP] {
                    let scenario = self.at(network, row, help)?;
                    cells.push(goodput(label(FIGURE_16, row, network, help), &scenario));
                }
            }
        }
        Ok(cells)
    }

    /// EXP-H8: inter-buffer delay and jitter.
    fn delays(&self) -> Result<Vec<Cell<Case>>, ReproduceError> {
        let metrics = [(DELAY, "download.inter_buffer_s"), (JITTER, "download.jitter_s")];
        let mut cells = Vec::new();
        for (table, network) in DELAYS {
            for row in SHARES {
                for (column, name) in metrics {
                    for help in [TCP, MOBILE_TCP] {
                        let scenario = self.at(network, row, help)?;
                        let case = Case::Metric { scenario, name, scale: 1e3 };
                        cells.push(Cell::ours(label(table, row, column, help), "ms", case));
                    }
                }
            }
        }
        Ok(cells)
    }

    /// Transfers of the paper's length, to see whether the mean of shorter ones has settled.
    fn settled(&self) -> Result<Vec<Cell<Case>>, ReproduceError> {
        let mut cells = Vec::new();
        for row in LONG_ROWS {
            for help in [TCP, MOBILE_TCP] {
                let scenario = whole(&self.at(WIRELESS, row, help)?);
                cells.push(goodput(label(SETTLED, row, GOODPUT, help), &scenario));
            }
        }
        Ok(cells)
    }
}

/// TCP as ns-2 has it, beside ns-2.
fn ns2() -> Result<Vec<Cell<Case>>, ReproduceError> {
    let cell = |(settings, scenario): (Settings, Arc<Scenario>)| {
        let (scheme, timer) = settings.at("sender").split_once(' ').unwrap_or_default();
        goodput(label(NS2, settings.at("at"), timer, scheme), &scenario)
    };
    Ok(NS2_FADES.points()?.into_iter().map(cell).collect())
}

/// What the assumptions are worth.
fn sensitivity() -> Result<Vec<Cell<Case>>, ReproduceError> {
    let cell = |(settings, scenario): (Settings, Arc<Scenario>)| {
        let [row, column, help] = ["assumption", "at", "help"].map(|axis| settings.at(axis));
        goodput(label(SENSITIVITY, row, column, help), &scenario)
    };
    Ok(SENSITIVITY_SHEET.points()?.into_iter().map(cell).collect())
}

/// EXP-H9: the latency of handoffs by what has to move and how fast it can.
fn handoffs() -> Result<Vec<Cell<Case>>, ReproduceError> {
    let cell = |(settings, scenario): (Settings, Arc<Scenario>)| {
        let [row, column, help] = ["buffer", "rate", "help"].map(|axis| settings.at(axis));
        let case = Case::Metric { scenario, name: "phone.handoff_s", scale: 1e3 };
        Cell::ours(label(HANDOFF, row, column, help), "ms", case)
    };
    Ok(HANDOFFS.points()?.into_iter().map(cell).collect())
}

/// EXP-Y4: what losses between the bases do to the bytes, and to the latency.
fn lossy_handoffs() -> Result<Vec<Cell<Case>>, ReproduceError> {
    let cells = |(settings, scenario): (Settings, Arc<Scenario>)| {
        let [row, help] = ["loss", "help"].map(|axis| settings.at(axis).to_owned());
        let [down, up] = WRONG;
        let columns = [
            (LATENCY, "ms", "phone.handoff_s", 1e3),
            (down, "share of runs", "download.wrong", 1.0),
            (up, "share of runs", "upload.wrong", 1.0),
        ];
        columns.map(|(column, unit, name, scale)| {
            let case = Case::Metric { scenario: Arc::clone(&scenario), name, scale };
            Cell::ours(label(LOSSY, &row, column, &help), unit, case)
        })
    };
    Ok(LOSSY_HANDOFFS.points()?.into_iter().flat_map(cells).collect())
}

/// EXP-H10: other schemes over the same hop.
fn alternatives() -> Result<Vec<Cell<Case>>, ReproduceError> {
    let cell = |(settings, scenario): (Settings, Arc<Scenario>)| {
        let [column, row, help] = ["path", "at", "help"].map(|axis| settings.at(axis));
        goodput(label(ALTERNATIVES, row, column, help), &scenario)
    };
    Ok(ALTERNATIVES_SHEET.points()?.into_iter().map(cell).collect())
}

fn goodput(label: Label, scenario: &Arc<Scenario>) -> Cell<Case> {
    let scenario = Arc::clone(scenario);
    Cell::ours(label, "kbit/s", Case::Metric { scenario, name: GOODPUT_BPS, scale: 1e-3 })
}

fn label(table: &str, row: &str, column: &str, scheme: &str) -> Label {
    let [table, row, column, scheme] = [table, row, column, scheme].map(str::to_owned);
    Label { table, row, column, scheme }
}
