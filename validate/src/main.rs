//! Compares our TCP and our simulated network with ns-2.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Parser, Subcommand};
use indicatif::ProgressBar;
use lasthop_units::one_line;
use lasthop_validate::ns2::Ns2;
use lasthop_validate::reference::{self, Cell};
use lasthop_validate::run::Effort;
use lasthop_validate::verdict::{Compared, Source};
use lasthop_validate::{ours, speed};
use rayon::prelude::*;

/// Compare our TCP and our simulated network with ns-2.
#[derive(Parser, Debug)]
#[command(name = "lasthop-validate", version, max_term_width = 100)]
struct Cli {
    /// One JSON object a line instead of a table
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    cells: Cells,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Args, Debug)]
struct Cells {
    /// Only cells whose names contain this; may be given several times
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
    /// Fewer runs of each cell
    #[arg(long)]
    quick: bool,
    /// Compare with the written reference even where ns-2 is installed
    #[arg(long)]
    reference: bool,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Delivered packets for each second of CPU time, beside ns-2's
    Speed {
        /// Simulated seconds
        #[arg(long, value_name = "NUMBER", default_value_t = 20_000)]
        seconds: u32,
        /// Runs of each side, in turn; the median counts
        #[arg(long, value_name = "NUMBER", default_value_t = 3)]
        rounds: u32,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.command {
        Some(Command::Speed { seconds, rounds }) => measure_speed(cli.json, *seconds, *rounds),
        None => compare(cli.json, &cli.cells),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("lasthop-validate: {}", one_line(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// The cells whose names contain any of `parts`; all of them if there is no part.
fn chosen(cells: Vec<Cell>, parts: &[String]) -> Result<Vec<Cell>> {
    let names: Vec<String> = cells.iter().map(Cell::name).collect();
    if let Some(part) = parts.iter().find(|part| !names.iter().any(|name| name.contains(*part))) {
        bail!("no cell has `{part}` in its name; there are: {}", names.join(", "));
    }
    let mut names = names.iter();
    let wanted = |name: &String| parts.is_empty() || parts.iter().any(|part| name.contains(part));
    Ok(cells.into_iter().filter(|_| names.next().is_some_and(wanted)).collect())
}

/// Runs the cells and says whether all agree.
fn compare(json: bool, wanted: &Cells) -> Result<bool> {
    let cells = chosen(reference::cells()?, &wanted.only)?;
    let ns2 = if wanted.reference { None } else { Ns2::find()? };
    if ns2.is_none() && !wanted.reference {
        eprintln!("lasthop-validate: no ns-2 here (Debian's ns2): comparing with reference.toml");
    }
    // Draws nothing where standard error is no terminal.
    let progress = ProgressBar::new(cells.len() as u64);
    let compared: Vec<Compared> = cells
        .par_iter()
        .map(|cell| {
            let compared = compare_cell(cell, ns2.as_ref(), wanted.quick);
            progress.inc(1);
            compared
        })
        .collect::<Result<_>>()?;
    progress.finish_and_clear();
    show(json, &compared);
    Ok(!compared.is_empty() && !compared.iter().any(Compared::fails))
}

fn compare_cell(cell: &Cell, ns2: Option<&Ns2>, quick: bool) -> Result<Compared> {
    let (ours, theirs) = if quick { ((4, 12), (3, 6)) } else { ((8, 100), (8, 60)) };
    let ours = Effort { least: ours.0, most: ours.1, precision: 0.01 };
    let theirs = Effort { least: theirs.0, most: theirs.1, precision: 0.015 };
    let spot = match ns2 {
        Some(ns2) => theirs.measure(cell.unit, |seed| ns2.cell(cell, seed))?,
        None => None,
    };
    let ours = ours.measure(cell.unit, |seed| ours::run(&cell.scenario, seed))?;
    let ours = ours.ok_or_else(|| anyhow::anyhow!("{}: no run of ours", cell.name()))?;
    Ok(Compared::new(cell, ours, spot))
}

fn show(json: bool, compared: &[Compared]) {
    if json {
        compared.iter().for_each(|c| println!("{}", c.json()));
        return;
    }
    let width = compared.iter().map(|c| c.name.len()).max().unwrap_or(0);
    println!("{}", Compared::heading(width));
    compared.iter().for_each(|c| println!("{}", c.line(width)));
    let agree = compared.iter().filter(|c| c.agrees()).count();
    let source = match compared.first().map(|c| c.source) {
        Some(Source::Spot) => "ns-2, run here",
        _ => "the written reference",
    };
    println!("\n{agree} of {} cells agree with {source}", compared.len());
}

/// Runs both sides in turn and says whether the target is met, as far as ns-2 is here to tell.
fn measure_speed(json: bool, seconds: u32, rounds: u32) -> Result<bool> {
    let ns2 = Ns2::find()?;
    if ns2.is_none() {
        eprintln!("lasthop-validate: no ns-2 here (Debian's ns2): only our own speed");
    }
    let mut all = Vec::new();
    for _ in 0..rounds.max(1) {
        all.push(speed::round(ns2.as_ref(), seconds)?);
    }
    all.sort_by(|a, b| {
        let key = |r: &speed::Round| r.ratio().unwrap_or_else(|| r.ours.per_second());
        key(a).total_cmp(&key(b))
    });
    let median = all[all.len() / 2];
    if json {
        println!("{}", median.json(seconds));
    } else {
        println!("packets delivered for each CPU second, {seconds} simulated seconds, no loss");
        println!("ours {:>12.0}", median.ours.per_second());
        if let (Some(theirs), Some(ratio)) = (median.ns2, median.ratio()) {
            println!("ns-2 {:>12.0}", theirs.per_second());
            println!("ours is {ratio:.2} times as fast; the target is {}", speed::TARGET);
        }
    }
    Ok(median.ratio().is_none_or(|ratio| ratio >= speed::TARGET))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_no_name_has_is_refused_with_the_names_that_there_are() {
        let cells = || reference::cells().unwrap();
        let all = cells().len();
        assert_eq!(chosen(cells(), &[]).unwrap().len(), all);
        let first = cells()[0].name();
        assert_eq!(chosen(cells(), std::slice::from_ref(&first)).unwrap()[0].name(), first);
        let error = chosen(cells(), &[first.clone(), "fig99".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("`fig99`") && error.contains(&first), "{error}");
    }
}
