//! The cells: bulk transfers over a fading hop, and what stands beside them, from the scenario files beside
//! the paper.

use std::sync::Arc;

use lasthop_scenario::{Scenario, Traffic};
use lasthop_units::Bytes;

use crate::published::Published;
use crate::reproduce::sheet::{Case, Settings, Sheet, SheetPoint, sheet};
use crate::reproduce::{Cell, ReproduceError};

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

/// The same over the paper's length, where it is a transfer of a file.
pub(super) fn at_full_length(case: &mut Case) {
    match case {
        Case::Metric { scenario, .. } => *scenario = whole(scenario),
        Case::Change { from, to, .. } => (*from, *to) = (whole(from), whole(to)),
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
struct Fades(Vec<SheetPoint>);

impl Fades {
    fn read() -> Result<Self, ReproduceError> {
        Ok(Self(FADES.points()?))
    }

    fn at(&self, network: &str, row: &str, help: &str) -> Result<Arc<Scenario>, ReproduceError> {
        let row = if row == NO_FADES { NO_LOSS } else { row };
        FADES.find(&self.0, [("network", network), ("at", row), ("help", help)])
    }

    /// EXP-H6: goodput by packet error rate.
    fn figure_15(&self) -> Vec<Cell<Case>> {
        let own = self.0.iter().filter(|(settings, _)| {
            settings.at("network") == WIRELESS && settings.at("at").starts_with("PER")
        });
        let cell = |(settings, scenario): &SheetPoint| {
            goodput([FIGURE_15, settings.at("at"), GOODPUT, settings.at("help")], scenario)
        };
        own.map(cell).collect()
    }

    /// EXP-H6: what Mobile TCP gains on TCP, where the paper says so.
    fn gains(&self, published: &Published) -> Result<Vec<Cell<Case>>, ReproduceError> {
        let table = published.table(GAINS).ok_or(ReproduceError::NoTable(GAINS))?;
        let cell = |row: &crate::published::Row| {
            let [from, to] = [TCP, MOBILE_TCP].map(|help| self.at(WIRELESS, &row.label, help));
            let case = Case::Change { from: from?, to: to?, name: GOODPUT_BPS.to_owned() };
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
                    cells.push(goodput([FIGURE_16, row, network, help], &scenario));
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
                        let case = Case::metric(&scenario, name, 1e3);
                        cells.push(Cell::ours([table, row, column, help], "ms", case));
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
                cells.push(goodput([SETTLED, row, GOODPUT, help], &scenario));
            }
        }
        Ok(cells)
    }
}

/// TCP as ns-2 has it, beside ns-2.
fn ns2() -> Result<Vec<Cell<Case>>, ReproduceError> {
    cells_of(&NS2_FADES, |settings, scenario| {
        let (scheme, timer) = settings.at("sender").split_once(' ').unwrap_or_default();
        goodput([NS2, settings.at("at"), timer, scheme], scenario)
    })
}

/// What the assumptions are worth.
fn sensitivity() -> Result<Vec<Cell<Case>>, ReproduceError> {
    cells_of(&SENSITIVITY_SHEET, |settings, scenario| {
        let [row, column, help] = ["assumption", "at", "help"].map(|axis| settings.at(axis));
        goodput([SENSITIVITY, row, column, help], scenario)
    })
}

/// EXP-H9: the latency of handoffs by what has to move and how fast it can.
fn handoffs() -> Result<Vec<Cell<Case>>, ReproduceError> {
    cells_of(&HANDOFFS, |settings, scenario| {
        let [row, column, help] = ["buffer", "rate", "help"].map(|axis| settings.at(axis));
        let case = Case::metric(scenario, "phone.handoff_s", 1e3);
        Cell::ours([HANDOFF, row, column, help], "ms", case)
    })
}

/// EXP-Y4: what losses between the bases do to the bytes, and to the latency.
fn lossy_handoffs() -> Result<Vec<Cell<Case>>, ReproduceError> {
    let [down, up] = WRONG;
    let columns = [
        (LATENCY, "ms", "phone.handoff_s", 1e3),
        (down, "share of runs", "download.wrong", 1.0),
        (up, "share of runs", "upload.wrong", 1.0),
    ];
    let mut cells = Vec::new();
    for (settings, scenario) in LOSSY_HANDOFFS.points()? {
        cells.extend(columns.map(|(column, unit, name, scale)| {
            let place = [LOSSY, settings.at("loss"), column, settings.at("help")];
            Cell::ours(place, unit, Case::metric(&scenario, name, scale))
        }));
    }
    Ok(cells)
}

/// EXP-H10: other schemes over the same hop.
fn alternatives() -> Result<Vec<Cell<Case>>, ReproduceError> {
    cells_of(&ALTERNATIVES_SHEET, |settings, scenario| {
        let [column, row, help] = ["path", "at", "help"].map(|axis| settings.at(axis));
        goodput([ALTERNATIVES, row, column, help], scenario)
    })
}

/// A cell for each point of a scenario file.
fn cells_of(
    sheet: &Sheet,
    cell: impl Fn(&Settings, &Arc<Scenario>) -> Cell<Case>,
) -> Result<Vec<Cell<Case>>, ReproduceError> {
    Ok(sheet.points()?.iter().map(|(settings, scenario)| cell(settings, scenario)).collect())
}

fn goodput(place: [&str; 4], scenario: &Arc<Scenario>) -> Cell<Case> {
    Cell::ours(place, "kbit/s", Case::metric(scenario, GOODPUT_BPS, 1e-3))
}
