//! ns-2 itself, where it is installed.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use tempfile::TempDir;

use crate::reference::Cell;
use crate::run::Outcome;

const SCRIPTS: [(&str, &str); 6] = [
    ("common.tcl", include_str!("../ns2/common.tcl")),
    ("chain.tcl", include_str!("../ns2/chain.tcl")),
    ("snoop.tcl", include_str!("../ns2/snoop.tcl")),
    ("outage.tcl", include_str!("../ns2/outage.tcl")),
    ("fade.tcl", include_str!("../ns2/fade.tcl")),
    ("speed.tcl", include_str!("../ns2/speed.tcl")),
];

/// An `ns` that runs, and a folder with our scripts.
#[derive(Debug)]
pub struct Ns2 {
    scripts: TempDir,
}

#[derive(Deserialize)]
struct Delivered {
    acked: u64,
}

impl Ns2 {
    /// The `ns` of the path, if it is ns-2: something else would not know `Simulator`.
    ///
    /// # Errors
    ///
    /// The scripts could not be written to a temporary folder.
    pub fn find() -> Result<Option<Self>> {
        let scripts = tempfile::tempdir().context("a folder for ns-2's scripts")?;
        for (name, text) in SCRIPTS {
            std::fs::write(scripts.path().join(name), text).with_context(|| name.to_owned())?;
        }
        let ns2 = Self { scripts };
        let known = ns2.run("common.tcl", &[]).is_ok();
        Ok(known.then_some(ns2))
    }

    /// Runs a cell once.
    ///
    /// # Errors
    ///
    /// `ns` failed, or said something else than a result.
    pub fn cell(&self, cell: &Cell, seed: u32) -> Result<Outcome> {
        let mut args = vec!["sender".to_owned(), cell.sender.ns2_name().to_owned()];
        for (key, value) in cell.options.iter() {
            args.extend([key.to_owned(), value.to_string()]);
        }
        args.extend(["seed".to_owned(), seed.to_string()]);
        let text = self.run(&format!("{}.tcl", cell.topology.script()), &args)?;
        serde_json::from_str(&text).with_context(|| format!("ns-2 said {text:?}"))
    }

    /// Runs the bare script for so many simulated seconds; tells the packets delivered.
    ///
    /// # Errors
    ///
    /// As [`Ns2::cell`].
    pub fn bare(&self, seconds: u32) -> Result<u64> {
        let text = self.run("speed.tcl", &[seconds.to_string()])?;
        let delivered: Delivered =
            serde_json::from_str(&text).with_context(|| format!("ns-2 said {text:?}"))?;
        Ok(delivered.acked)
    }

    fn run(&self, script: &str, args: &[String]) -> Result<String> {
        let path: &Path = self.scripts.path();
        let output = Command::new("ns").arg(path.join(script)).args(args).output();
        let output = output.context("running ns")?;
        if !output.status.success() {
            bail!("ns {script} {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
