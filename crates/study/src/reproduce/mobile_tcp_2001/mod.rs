//! Haas and Warkhedi, 2001: Mobile TCP over a hop that fades.
//!
//! Figures 15 to 18 are simulated, from the scenario files in `papers/mobile-tcp-2001`, with handoffs
//! (section 3.5) and the unsplit alternative (section 6) beside them. Figures 10 to 14 are of processor
//! time: whoever can read a clock measures them and hands them over as data ([`Processing`]).

mod cells;
mod content;
mod costs;
mod criteria;
mod document;
pub mod fades;
mod figures;
mod gains;
mod half_duplex;
mod ns2;
mod runner;

use super::cell::chosen;
use super::prose::Prose;
use super::run::{CellRunner, Progress};
use super::study::{ReproduceError, Reproduction, Request, compared, paper};
use crate::published::Published;
use content::Content;

pub use super::processing::{self, Processing};
pub use cells::Case;
pub use runner::Simulated;

/// How many runs each cell gets if nobody says.
const RUNS: u32 = 10;

/// What gains are told over.
const OVER: Option<&str> = Some(cells::TCP);

paper!("mobile-tcp-2001", dyn CellRunner<Case>, Simulated::default(), full);

/// What [`reproduce_with`] does, told in these words.
fn reproduce_in(
    prose: &Prose,
    runner: &dyn CellRunner<Case>,
    request: &Request,
    progress: &dyn Progress,
) -> Result<Reproduction, ReproduceError> {
    let published = published()?;
    let checks = fades::checks()?;
    let ns2 = ns2::Ns2::read()?;
    let mut cells = chosen(cells::all(&published)?, &request.only)?;
    if request.full {
        for cell in &mut cells {
            cell.case = cell.case.clone().whole();
        }
    }
    let comparison = compared(&cells, runner, request, progress)?;
    let criteria = criteria::all(
        &comparison,
        &checks,
        &ns2,
        request.processing.as_ref().map(|costs| (costs, &published)),
    );
    let report = document::report(&Content {
        prose,
        published: &published,
        request,
        comparison: &comparison,
        criteria: &criteria,
        checks: &checks,
        ns2: &ns2,
    })?;
    Ok(Reproduction { comparison, criteria, report })
}

#[cfg(test)]
mod tests;
