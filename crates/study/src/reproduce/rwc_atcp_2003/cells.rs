//! The cells: the windows that RWC computes, the rates of two downloads, and transfers over
//! disconnections, from the scenario files beside the paper.

use std::sync::Arc;

use lasthop_scenario::Scenario;

use crate::published::{Published, Table};
use crate::reproduce::sheet::{self, Sheet, SheetPoint, sheet};
use crate::reproduce::{Cell, ReproduceError};

const RWC: Sheet = sheet!("rwc-atcp-2003", "rwc.toml");
const DISCONNECTIONS: Sheet = sheet!("rwc-atcp-2003", "disconnections.toml");
const SENSITIVITY_SHEET: Sheet = sheet!("rwc-atcp-2003", "sensitivity.toml");

/// The times over which rates are means.
pub(super) const BEFORE: &str = "1 to 5 s";
pub(super) const AFTER: &str = "6 to 10 s";
/// The same time where no priority changed.
const UNCHANGED: &str = "6 to 10 s, unchanged";

/// The two downloads.
pub(super) const FLOWS: [&str; 2] = ["f1", "f2"];

/// The column of goodputs, and that of idle times.
pub(super) const GOODPUT: &str = "goodput";
pub(super) const IDLE: &str = "idle";

/// The table of changed assumptions.
pub(super) const SENSITIVITY: &str = "sensitivity";

/// The row without disconnections.
pub(super) const NEVER: &str = "0 s";

/// A transfer over disconnections: a network and a direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    /// The table of its cells: the paper's figure, where there is one.
    pub(super) table: &'static str,
    /// In the scenario file.
    network: &'static str,
    /// In words.
    pub(super) title: &'static str,
    /// What is compared. The paper has nothing but ATCP for a mobile that sends.
    pub(super) schemes: &'static [&'static str],
    /// The mobile receives.
    pub(super) down: bool,
    /// A local network, as in figures 6 and 7.
    pub(super) local: bool,
}

const SENDING: &[&str] = &["none", "atcp"];
const RECEIVING: &[&str] = &["none", "fast-rtx-handoff", "freeze", "atcp"];

/// Everything of section V.
pub(super) const TRANSFERS: [Transfer; 4] = [
    Transfer {
        table: "figure6",
        network: "wlan-up",
        title: "Figure 6: WLAN, the mobile sends",
        schemes: SENDING,
        down: false,
        local: true,
    },
    Transfer {
        table: "figure7",
        network: "wlan-down",
        title: "Figure 7: WLAN, the mobile receives",
        schemes: RECEIVING,
        down: true,
        local: true,
    },
    Transfer {
        table: "wwan-up",
        network: "wwan-up",
        title: "WWAN, the mobile sends",
        schemes: SENDING,
        down: false,
        local: false,
    },
    Transfer {
        table: "wwan-down",
        network: "wwan-down",
        title: "WWAN, the mobile receives",
        schemes: RECEIVING,
        down: true,
        local: false,
    },
];

impl Transfer {
    /// What helps.
    pub(super) fn helped(&self) -> impl Iterator<Item = &'static str> {
        self.schemes.iter().copied().filter(|scheme| *scheme != "none")
    }

    /// The table of its idle times.
    pub(super) fn idle(&self) -> String {
        format!("{}-idle", self.table)
    }
}

/// What a cell runs.
#[derive(Clone, Debug)]
pub enum Case {
    /// A window that RWC gives; nothing is simulated.
    Window {
        /// Packets in all.
        total: u64,
        /// How many flows there are, of priority 1 each.
        flows: usize,
        /// The first one's priority has become this.
        raised: Option<u32>,
        /// Whose window.
        flow: usize,
    },
    /// What runs of scenarios give.
    Runs(sheet::Case),
}

impl Case {
    /// What is run for a metric; none where anything else is asked for.
    pub(super) fn scenario(&self) -> Option<&Arc<Scenario>> {
        match self {
            Self::Runs(sheet::Case::Metric { scenario, .. }) => Some(scenario),
            _ => None,
        }
    }
}

/// All cells, in the order in which they are printed.
pub(super) fn all(published: &Published) -> Result<Vec<Cell<Case>>, ReproduceError> {
    let mut cells = windows(published)?;
    cells.extend(rates(published)?);
    cells.extend(transfers()?);
    cells.extend(sensitivity()?);
    Ok(cells)
}

fn table<'a>(published: &'a Published, id: &'static str) -> Result<&'a Table, ReproduceError> {
    published.table(id).ok_or(ReproduceError::NoTable(id))
}

/// RWC-5: the worked examples.
fn windows(published: &Published) -> Result<Vec<Cell<Case>>, ReproduceError> {
    let mut cells = Vec::new();
    for (id, total) in [("example", 30), ("windows", 32)] {
        let table = table(published, id)?;
        for (row, raised) in [("before", None), ("after", Some(2))] {
            let flows = table.column.len();
            for (flow, column) in table.column.iter().enumerate() {
                let case = Case::Window { total, flows, raised, flow };
                cells.push(Cell::of_table(table, row, column, "packets", case));
            }
        }
    }
    Ok(cells)
}

/// EXP-R1 to R3: figures 2 to 4.
fn rates(published: &Published) -> Result<Vec<Cell<Case>>, ReproduceError> {
    let points = RWC.points()?;
    let at = |figure: &str, row: &str| RWC.find(&points, [("at", &format!("{figure}/{row}"))]);
    let name = |flow: &str| format!("{flow}.goodput_bps");
    let rate = |scenario: &Arc<Scenario>, flow: &str| metric(scenario, &name(flow), 1e-6);
    let mut cells = Vec::new();
    for figure in ["figure2", "figure3"] {
        let table = table(published, figure)?;
        for row in [BEFORE, AFTER] {
            let scenario = at(figure, row)?;
            let cell = |flow| Cell::of_table(table, row, flow, "Mbit/s", rate(&scenario, flow));
            cells.extend(FLOWS.map(cell));
        }
    }
    let change = table(published, "figure3-change")?;
    let [from, to] = [at("figure2", AFTER)?, at("figure3", AFTER)?];
    cells.extend(FLOWS.map(|flow| {
        let (from, to) = (Arc::clone(&from), Arc::clone(&to));
        let case = Case::Runs(sheet::Case::Change { from, to, name: name(flow) });
        Cell::of_table(change, AFTER, flow, "%", case)
    }));
    for row in [BEFORE, AFTER, UNCHANGED] {
        let scenario = at("figure4", row)?;
        let cell =
            |flow| Cell::ours(["figure4", row, flow, "rwc"], "Mbit/s", rate(&scenario, flow));
        cells.extend(FLOWS.map(cell));
    }
    Ok(cells)
}

/// EXP-R4 to R6: goodput and idle time by the length of disconnections.
fn transfers() -> Result<Vec<Cell<Case>>, ReproduceError> {
    let points = DISCONNECTIONS.points()?;
    let mut cells = Vec::new();
    for transfer in &TRANSFERS {
        let own: Vec<_> = points
            .iter()
            .filter(|(s, _)| s.at("network") == transfer.network)
            .filter(|(s, _)| transfer.schemes.contains(&s.at("help")))
            .collect();
        for (settings, scenario) in &own {
            let [length, help] = ["length", "help"].map(|axis| settings.at(axis));
            cells.push(goodput([transfer.table, length, GOODPUT, help], scenario));
        }
        for (settings, scenario) in own.iter().filter(|(s, _)| s.at("length") != NEVER) {
            let [length, help] = ["length", "help"].map(|axis| settings.at(axis));
            let case = metric(scenario, "transfer.idle_s", 1.0);
            cells.push(Cell::ours([&transfer.idle(), length, IDLE, help], "s", case));
        }
    }
    Ok(cells)
}

/// What the assumptions are worth.
fn sensitivity() -> Result<Vec<Cell<Case>>, ReproduceError> {
    let points = SENSITIVITY_SHEET.points()?;
    let own = points.iter().filter(|(s, _)| s.at("way") == "down" || s.at("help") != "freeze");
    let cell = |(settings, scenario): &SheetPoint| {
        let column = format!("{}, {}", settings.at("way"), settings.at("length"));
        let row = settings.at("assumption");
        goodput([SENSITIVITY, row, &column, settings.at("help")], scenario)
    };
    Ok(own.map(cell).collect())
}

fn goodput(place: [&str; 4], scenario: &Arc<Scenario>) -> Cell<Case> {
    Cell::ours(place, "kbit/s", metric(scenario, "transfer.goodput_bps", 1e-3))
}

fn metric(scenario: &Arc<Scenario>, name: &str, scale: f64) -> Case {
    Case::Runs(sheet::Case::metric(scenario, name, scale))
}
