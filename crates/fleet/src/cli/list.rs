//! The list of who is there.

use clap::Args;
use lasthop_control::grid::{self, Grid, or_dash};
use lasthop_fleet::commands::{BaseRow, Listed, MobileRow};

use super::{FleetOptions, print};

/// Shows bases and mobiles: whether they are there, and who serves whom.
#[derive(Args, Debug)]
pub(super) struct Options {
    #[command(flatten)]
    fleet: FleetOptions,

    /// Print one JSON object a line: `"kind": "base"` or `"kind": "mobile"`
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(options: &Options) -> anyhow::Result<()> {
    let snapshot = options.fleet.open().await?.read().await?;
    for (path, why) in &snapshot.problems {
        eprintln!("lasthop: {} is left out: {why}", grid::printable(path));
    }
    let listed = Listed::of(&snapshot.records);
    print(&if options.json { lines(&listed)? } else { tables(&listed) })
}

fn lines(listed: &Listed) -> anyhow::Result<String> {
    let mut out = String::new();
    for row in &listed.bases {
        out.push_str(&serde_json::to_string(row)?);
        out.push('\n');
    }
    for row in &listed.mobiles {
        out.push_str(&serde_json::to_string(row)?);
        out.push('\n');
    }
    Ok(out)
}

fn tables(listed: &Listed) -> String {
    let bases = Grid::of(&listed.bases)
        .text("BASE", 0, |b| b.name.to_string())
        .text("KEY", 0, |b| grid::key(&b.key.to_string()))
        .text("FOR BASES", 0, |b| b.address.to_string())
        .text("FOR MOBILES", 0, |b| b.hop.to_string())
        .text("STATE", 0, |b| state(b).to_owned())
        .number("MOBILES", 0, |b| or_dash(b.alive.then_some(b.mobiles)))
        .number("CONNECTIONS", 0, |b| or_dash(b.alive.then_some(b.connections)))
        .text("VERSION", 0, |b| or_dash(b.version.as_ref()))
        .grid();
    let mobiles = Grid::of(&listed.mobiles)
        .text("MOBILE", 0, |m| m.name.to_string())
        .text("KEY", 0, |m| grid::key(&m.key.to_string()))
        .text("ADDRESS", 0, addresses)
        .text("BASE", 0, |m| or_dash(m.base.as_ref()))
        .number("CONNECTIONS", 0, |m| or_dash(m.alive.then_some(m.connections)))
        .grid();
    format!("{}\n{}", bases.to_text(), mobiles.to_text())
}

/// What an operator has to know first.
fn state(base: &BaseRow) -> &'static str {
    match (base.alive, base.ready, base.draining) {
        (false, _, false) => "away",
        (false, _, true) => "away, draining",
        (true, false, false) => "no base",
        (true, false, true) => "no base, draining",
        (true, true, false) => "up",
        (true, true, true) => "draining",
    }
}

fn addresses(mobile: &MobileRow) -> String {
    let own = mobile.address.iter().chain(&mobile.tun).map(ToString::to_string);
    let all: Vec<String> = own.chain(mobile.network.iter().map(ToString::to_string)).collect();
    if all.is_empty() { "-".to_owned() } else { all.join(" ") }
}
