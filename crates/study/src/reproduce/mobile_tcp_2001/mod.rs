//! Haas and Warkhedi, 2001: Mobile TCP over a hop that fades.
//!
//! Figures 15 to 18 are simulated, from the scenario files in `papers/mobile-tcp-2001`, with handoffs
//! (section 3.5) and the unsplit alternative (section 6) beside them. Figures 10 to 14 are of processor
//! time: whoever can read a clock measures them and hands them over as data ([`Processing`]).

mod cells;
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
use super::equations::Check;
use super::page;
use super::prose::Prose;
use super::run::{CellRunner, Progress};
use super::study::{ReproduceError, Reproduction, Request, compared, paper};
use crate::published::Published;
use ns2::Ns2;

pub use super::processing::{self, Processing};
pub use super::sheet::Case;
pub use runner::Simulated;

/// How many runs each cell gets if nobody says.
const RUNS: u32 = 10;

/// What gains are told over.
const OVER: Option<&str> = Some(cells::TCP);

paper!("mobile-tcp-2001", dyn CellRunner<Case>, Simulated, full);

/// What [`reproduce_with`] does, told in these words.
fn reproduce_in(
    prose: &Prose,
    runner: &dyn CellRunner<Case>,
    request: &Request,
    progress: &dyn Progress,
) -> Result<Reproduction, ReproduceError> {
    let published = published()?;
    let checks = fades::checks()?;
    let ns2 = Ns2::read()?;
    let mut cells = chosen(cells::all(&published)?, &request.only)?;
    if request.full {
        for cell in &mut cells {
            cells::at_full_length(&mut cell.case);
        }
    }
    let comparison = compared(&cells, runner, request, progress)?;
    let criteria = criteria::all(
        &comparison,
        &checks,
        &ns2,
        request.processing.as_ref().map(|costs| (costs, &published)),
    );
    let own = Own { checks, ns2 };
    let published = &published;
    document::reproduction(Content { prose, published, request, comparison, criteria, own })
}

/// What a report is made of.
type Content<'a> = page::Content<'a, Own>;

/// What this paper's report shows beside what all reports do.
struct Own {
    checks: Vec<Check>,
    ns2: Ns2,
}

#[cfg(test)]
mod tests;
